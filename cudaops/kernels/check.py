#!/usr/bin/env python3
"""Checks the compiled kernels against float64, on a GPU or on the CPU stand-in of emu/, and times them.

    check.py --emu LIB.so [--only PART]                 correctness on a CPU (emu/build.sh makes LIB.so)
    check.py --cubins DIR [--only PART] [--no-time]     correctness on the GPU, then the cases of the peers' benchmark

PART: decode, prefill, layer, linear, engine (comma-separated). --match TEXT runs the cases whose name has it. One JSON line per timed case, a summary line per
part, exit status 1 when anything is wrong. It needs Python, NumPy and a driver; for timing PyTorch with Triton (events, L2 flush).
Everything a kernel must not touch is poisoned: NaN in unused page slots, in pages no table names and in outputs before the call,
absurd ids in unused table entries, guard bytes around every buffer.
"""
import argparse, ctypes, gzip, json, math, os, re, sys, time
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
LOG2E = 1.4426950408889634


# ---- parameter structs, read from params.h ----

CTYPES = {"int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float, "double": ctypes.c_double}


def read_structs():
    text = re.sub(r"//[^\n]*", "", open(os.path.join(HERE, "params.h")).read())
    out = {}
    for body, name in re.findall(r"typedef struct \{([^}]*)\} (\w+);", text):
        fields = []
        for decl in filter(None, (" ".join(d.split()) for d in body.split(";"))):
            kind, field, count = re.match(r"^(.*?[\s*])(\w+)(?:\[(\d+)\])?$", decl).groups()
            t = ctypes.c_void_p if "*" in kind else CTYPES[kind.strip()]
            fields.append((field, t * int(count) if count else t))
        out[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return out


P = read_structs()


# ---- numbers ----

def bf16_bits(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    r = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, r).astype(np.uint16)


class DType:
    def __init__(self, name, store, step):
        self.name, self.store, self.size, self.steps = name, np.dtype(store), np.dtype(store).itemsize, step

    def encode(self, x):
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "bf16":
                return bf16_bits(np.asarray(x, np.float32))
            if self.name == "e4m3":
                return e4m3_encode(np.asarray(x, np.float64))
            return np.asarray(x, np.float32).astype(self.store)

    def decode(self, b):
        with np.errstate(invalid="ignore"):
            if self.name == "bf16":
                return (b.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
            if self.name == "e4m3":
                return E4M3[b]
            return b.astype(np.float64)

    def round(self, x):
        return self.decode(self.encode(x))

    def step(self, x):
        """Distance of neighbours at |x|."""
        m, least = {"f16": (10, -24), "bf16": (7, -133), "f32": (23, -149), "e4m3": (3, -9)}[self.name]
        with np.errstate(divide="ignore", invalid="ignore"):
            e = np.floor(np.log2(np.abs(x)))
        return np.exp2(np.maximum(np.where(np.isfinite(e), e, -999) - m, least))


def e4m3_table():
    t = np.zeros(256)
    for i in range(256):
        e, m = i >> 3 & 15, i & 7
        v = m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
        t[i] = (-1 if i & 128 else 1) * (math.nan if i & 127 == 127 else v)
    return t


E4M3 = e4m3_table()


def e4m3_encode(x):
    mags = E4M3[:127]
    a = np.minimum(np.abs(x), 448.0)
    i = np.clip(np.searchsorted(mags, a), 1, 126)
    lo, hi = mags[i - 1], mags[i]
    up = (a - lo > hi - a) | ((a - lo == hi - a) & (i % 2 == 0))
    code = np.where(up, i, i - 1)
    return np.where(np.isnan(x), 127, code | np.where(np.signbit(x), 128, 0)).astype(np.uint8)


F32, F16, BF16, F8 = DType("f32", np.float32, 23), DType("f16", np.float16, 10), DType("bf16", np.uint16, 7), DType("e4m3", np.uint8, 3)
HALVES = [BF16, F16]


# ---- devices ----

GUARD = 256


class Emu:
    """Buffers end at an unmapped page, and begin after one."""

    sms = 5  # so that few keys are already split

    def __init__(self, lib):
        self.lib = ctypes.CDLL(lib)
        self.lib.emu_params.restype = ctypes.c_size_t
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self.libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.maps = {}

    def alloc(self, n):
        page = 4096
        room = (n + 15) // 16 * 16
        size = (room + page - 1) // page * page
        base = self.libc.mmap(None, size + 2 * page, 3, 0x22, -1, 0)
        assert base not in (None, ctypes.c_void_p(-1).value)
        self.libc.mprotect(base, page, 0)
        self.libc.mprotect(base + page + size, page, 0)
        at = base + page + size - room
        self.maps[at] = (base, size + 2 * page)
        return at

    def free(self, at):
        self.libc.munmap(*self.maps.pop(at))

    def write(self, at, data):
        ctypes.memmove(at, data.ctypes.data, data.nbytes)

    def read(self, at, n):
        return np.frombuffer(ctypes.string_at(at, n), np.uint8).copy()

    def launch(self, symbol, grid, threads, shared, params):
        n = self.lib.emu_params(symbol.encode())
        assert n == ctypes.sizeof(params), f"{symbol}: parameters of {n} bytes, params.h says {ctypes.sizeof(params)}"
        g = tuple(grid) + (1, 1)
        assert self.lib.emu_launch(symbol.encode(), g[0], g[1], g[2], threads, shared, ctypes.byref(params)) == 0, symbol

    def has(self, symbol):
        return self.lib.emu_params(symbol.encode()) != ctypes.c_size_t(-1).value

    def tensor_map(self, at, dt, dims, strides, box):
        """EmuMap of emu/hopper_emu.h."""
        raw = np.zeros(32, np.uint32)
        raw[:18] = np.array([at, *dims, dt.size, *strides], np.uint64).view(np.uint32)
        raw[18:22] = box
        return raw.view(np.uint64)


class Cuda:
    def __init__(self, cubins, target):
        import torch  # its primary context, allocator and streams are used when timing

        self.torch = torch
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.cu = ctypes.CDLL("libcuda.so.1")
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.functions, self.modules = {}, []
        for f in sorted(os.listdir(cubins)):
            if re.search(rf"_{target}\.cubin(\.gz)?$", f):
                m, image = ctypes.c_void_p(), open(os.path.join(cubins, f), "rb").read()
                self.ok(self.cu.cuModuleLoadData(ctypes.byref(m), gzip.decompress(image) if f.endswith(".gz") else image), f)
                self.modules.append(m)
        assert self.modules, f"no *_{target}.cubin[.gz] in {cubins}"

    def ok(self, code, what):
        if code:
            s = ctypes.c_char_p()
            self.cu.cuGetErrorName(code, ctypes.byref(s))
            raise RuntimeError(f"{what}: {s.value.decode() if s.value else code}")

    def function(self, symbol, shared=0):
        key = (symbol, shared)
        if key not in self.functions:
            f = ctypes.c_void_p()
            for m in self.modules:
                if self.cu.cuModuleGetFunction(ctypes.byref(f), m, symbol.encode()) == 0:
                    break
            else:
                return None
            if shared > 48 << 10:
                self.ok(self.cu.cuFuncSetAttribute(f, 8, shared), symbol)
            self.functions[key] = f
        return self.functions[key]

    def has(self, symbol):
        return self.function(symbol) is not None

    def alloc(self, n):
        p = ctypes.c_uint64()
        self.ok(self.cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(max(n, 16))), "alloc")
        return p.value

    def free(self, at):
        self.cu.cuMemFree_v2(ctypes.c_uint64(at))

    def write(self, at, data):
        self.ok(self.cu.cuMemcpyHtoD_v2(ctypes.c_uint64(at), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes)), "write")

    def read(self, at, n):
        out = np.empty(n, np.uint8)
        self.ok(self.cu.cuMemcpyDtoH_v2(ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(at), ctypes.c_size_t(n)), "read (after the launch)")
        return out

    def tensor_map(self, at, dt, dims, strides, box):
        """A CUtensorMap of rank 4: 128-byte swizzle, no interleave, 256-byte L2 promotion, zeros outside."""
        raw = np.zeros(32, np.uint64)
        at16 = raw.ctypes.data + (-raw.ctypes.data) % 64
        u64, u32 = lambda x: (ctypes.c_uint64 * len(x))(*x), lambda x: (ctypes.c_uint32 * len(x))(*x)
        self.ok(self.cu.cuTensorMapEncodeTiled(ctypes.c_void_p(at16), {"f16": 6, "bf16": 9}[dt.name], 4, ctypes.c_void_p(at), u64(dims), u64(strides), u32(box),
                                               u32([1] * 4), 0, 3, 3, 0), f"tensor map {dims} {strides} {box}")
        return np.frombuffer(ctypes.string_at(at16, 128), np.uint64)

    def launch(self, symbol, grid, threads, shared, params, stream=0):
        f = self.function(symbol, shared)
        assert f is not None, f"no kernel {symbol}"
        g = tuple(grid) + (1, 1)
        args = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        self.ok(self.cu.cuLaunchKernel(f, g[0], g[1], g[2], threads, 1, 1, shared, ctypes.c_void_p(stream), args, None), symbol)


# ---- buffers ----

class Buffer:
    """Guarded device memory holding a NumPy array of storage type."""

    def __init__(self, run, data):
        self.run, self.data = run, np.ascontiguousarray(data)
        n = self.data.nbytes
        pad = 0 if isinstance(run.dev, Emu) else GUARD
        self.pad, self.base = pad, run.dev.alloc(n + 2 * pad)
        if pad:
            run.dev.write(self.base, np.full(n + 2 * pad, 0xA5, np.uint8))
        self.at = self.base + pad
        if n:
            run.dev.write(self.at, self.data)
        run.buffers.append(self)

    def get(self):
        raw = self.run.dev.read(self.base, self.data.nbytes + 2 * self.pad)
        n = self.data.nbytes
        if self.pad:
            assert (raw[: self.pad] == 0xA5).all() and (raw[self.pad + n :] == 0xA5).all(), "wrote outside a buffer"
        return raw[self.pad : self.pad + n].view(self.data.dtype).reshape(self.data.shape)

    def free(self):
        self.run.dev.free(self.base)


class Run:
    """One case: its buffers, freed at the end, and the fault record."""

    def __init__(self, dev, rng):
        self.dev, self.rng, self.buffers = dev, rng, []
        self.fault = self.put(np.zeros(32, np.uint8))

    def put(self, data):
        return Buffer(self, data)

    def nan(self, shape, dt):
        return self.put(np.full(shape, 0xFF, np.uint8).repeat(dt.size, axis=-1).view(dt.store) if shape else np.zeros(0, dt.store))

    def faults(self):
        r = self.fault.get()
        return int(r[:4].view(np.uint32)[0]), [int(x) for x in r[8:32].view(np.int64)]

    def done(self):
        for b in self.buffers:
            b.free()


class Failure(Exception):
    pass


def compare(name, got, want, dt, rtol_steps=2.0, floor=0.0, nmse=None):
    """|got - want| ≤ 2 rounding steps of the row's largest |want| (H11), NaN and infinities in the same places."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape:
        raise Failure(f"{name}: shape {got.shape}, want {want.shape}")
    if not got.size:
        return 0.0
    same = np.isnan(got) == np.isnan(want)
    inf = np.isinf(want) | np.isinf(got)
    same &= ~inf | (got == want)
    if not same.all():
        at = tuple(int(i[0]) for i in np.nonzero(~same))
        raise Failure(f"{name}: {np.count_nonzero(~same)} of {got.size} wrong, first at {at}: got {got[at]}, want {want[at]}")
    good = np.isfinite(want)
    w = np.where(good, want, 0)
    err = np.where(good, np.abs(np.where(good, got, 0) - w), 0)
    top = np.abs(w).max(axis=-1, keepdims=True)
    bound = rtol_steps * dt.step(top) + floor
    if (err > bound).any():
        at = np.unravel_index(np.argmax(err / bound), err.shape)
        raise Failure(f"{name}: {np.count_nonzero(err > bound)} of {got.size} off, worst at {tuple(map(int, at))}: got {got[at]}, want {want[at]}")
    den = (w * w).sum()
    e = float((err * err).sum() / den) if den else 0.0
    limit = nmse if nmse is not None else {"bf16": 2e-5, "f16": 1e-7, "f32": 1e-10}.get(dt.name, 1)
    if e > limit:
        raise Failure(f"{name}: NMSE {e:.3g} above {limit}")
    return e


# ---- paged caches ----

LAYOUTS = ["hnd", "nhd", "stacked_hnd", "stacked_nhd", "shared", "padded", "odd"]


class Cache:
    """Logical keys and values [S_b,Hkv,D] of each request in a pool of pages full of NaN, and the table that finds them."""

    def __init__(self, run, dt, lens, hkv, page, dk, dv=None, layout="hnd", extra_cols=2, table_gap=0, values=None, hide=None, first_page=0):
        dv = dv or dk
        rng = run.rng
        self.dt, self.lens, self.page, self.dk, self.dv = dt, lens, page, dk, dv
        self.k = [dt.round(rng.standard_normal((s, hkv, dk))) for s in lens]
        self.v = self.k if layout == "shared" else [dt.round(rng.standard_normal((s, hkv, dv))) for s in lens]
        if values:
            self.k, self.v = values(self.k, self.v)
        used = [-(-s // page) for s in lens]
        ids = rng.permutation(sum(used) + 3) + first_page
        n = self.pages = sum(used) + 3 + first_page
        cols = max(used, default=0) + extra_cols
        self.max_pages = max(cols, 1)
        width = self.max_pages + table_gap
        self.table = np.where(np.arange(len(lens) * width).reshape(len(lens), width) % 2, 1 << 30, -1).astype(np.int32)
        at = 0
        self.used = []
        for b, u in enumerate(used):
            self.table[b, :u] = ids[at : at + u]
            self.used.append(ids[at : at + u])
            at += u
        self.table_row = width

        def strides(d, order):
            if layout.endswith("nhd"):
                return page * hkv * d, d, hkv * d
            return hkv * page * d, page * d, d

        size = dt.store
        ks, vs = list(strides(dk, 0)), list(strides(dv, 1))
        if layout.startswith("stacked"):
            pool = np.full(n * 2 * hkv * page * dk, 0, size)
            ks[0] = vs[0] = 2 * hkv * page * dk
            self.kbuf = self.vbuf = pool
            self.koff, self.voff = 0, hkv * page * dk
        elif layout == "shared":
            self.kbuf = self.vbuf = np.zeros(n * hkv * page * dk, size)
            self.koff = self.voff = 0
        else:
            gap = {"padded": (8, 16), "odd": (1, 3)}.get(layout)
            if gap:
                ks = [hkv * page * (dk + gap[0]) * 2, page * (dk + gap[0]), dk + gap[0]]
                vs = [hkv * (page * (dv + gap[1]) + gap[1]), page * (dv + gap[1]) + gap[1], dv + gap[1]]
            self.kbuf, self.vbuf = np.zeros(n * ks[0], size), np.zeros(n * vs[0], size)
            self.koff = self.voff = 0
        for buf in (self.kbuf, self.vbuf):
            buf.view(np.uint8)[:] = 0xFF
        self.ks, self.vs = ks, vs
        for b, s in enumerate(lens):
            for name, st, off, d, buf in (("k", ks, self.koff, dk, self.kbuf), ("v", vs, self.voff, dv, self.vbuf)):
                x = dt.encode(getattr(self, name)[b])
                for j in range(s):
                    for h in range(hkv):
                        a = off + int(self.table[b, j // page]) * st[0] + h * st[1] + j % page * st[2]
                        buf[a : a + d] = x[j, h]
        self.kdev = run.put(self.kbuf)
        self.vdev = self.kdev if self.vbuf is self.kbuf else run.put(self.vbuf)
        self.tdev = run.put(self.table)
        self.k_at = self.kdev.at + self.koff * dt.size
        self.v_at = self.vdev.at + self.voff * dt.size


def attend(q, k, v, c1, c2, see, sinks):
    """q [L,Hq,D], k, v [S,Hkv,·], see [L,S] bool → out [L,Hq,Dv], natural LSE [L,Hq]; float64. Hidden keys are not touched."""
    L, hq, _ = q.shape
    s_len, hkv, dv = v.shape
    out, lse = np.zeros((L, hq, dv)), np.full((L, hq), -np.inf)
    g = hq // hkv
    for i in range(L):
        keys = np.nonzero(see[i])[0]
        for h in range(hq):
            with np.errstate(invalid="ignore", over="ignore"):
                s = c1 * (k[keys, h // g] @ q[i, h]) if len(keys) else np.zeros(0)
                sink = sinks[h] if sinks is not None else -np.inf
                m = max(s.max(initial=-np.inf), sink)
                if np.isnan(s).any():
                    m = np.nan
                if m == -np.inf:
                    continue
                e = np.exp(s - m)
                den = e.sum() + np.exp(sink - m)
                lse[i, h] = m + np.log(den)
                out[i, h] = c2 * (e @ v[keys, h // g]) / den if len(keys) else 0
    return out, lse


# ---- decode ----

def launch_facts(kind, d, target):
    text = open(os.path.join(HERE, "launch.h")).read()
    m = re.search(rf"#define GAZE_{kind}_{d}_{target.upper()} (.*)", text)
    return [int(x) for x in m.group(1).split(",")] if m else None


def decode_case(dev, rng, target, dt=BF16, d=128, lens=(37,), hq=8, hkv=2, page=16, L=1, qlens=None, layout="hnd", window=-1, sinks=None, mask=None,
                c1=None, c2=1.0, device_scales=False, q_gap=0, q_head_gap=0, max_seq=None, grid=None, min_units=0, lse=True, values=None, table_gap=0,
                break_it=None, expect=None, rounds=1, values_q=None, max_q=None):
    run = Run(dev, rng)
    try:
        lens = list(lens)
        B, G = len(lens), hq // hkv
        ql = list(qlens) if qlens is not None else [L] * B
        T = sum(ql)
        cache = Cache(run, dt, lens, hkv, page, d, layout=layout, values=values, table_gap=table_gap)
        c1 = c1 if c1 is not None else 1 / math.sqrt(d)
        q = dt.round(rng.standard_normal((T, hq, d)))
        if values_q:
            q = values_q(q)
        hs = d + q_head_gap
        ts = hq * hs + q_gap
        qbuf = np.zeros(max(T * ts, 1), dt.store)
        qbuf.view(np.uint8)[:] = 0xFF
        for t in range(T):
            for h in range(hq):
                qbuf[t * ts + h * hs : t * ts + h * hs + d] = dt.encode(q[t, h])
        threads, shared, most = launch_facts("DECODE", d, target)
        maxL = max(ql, default=1) if qlens is not None else L
        maxL = max_q or max(maxL, 1)
        rows = next((r for r in (8, 16, 32) if r >= min(G * maxL, most)), most)
        rows = min(rows, most)
        grid = grid or dev.sms
        p = P["DecodeParams"]()
        out = run.nan((T, hq, d), dt)
        l1, l2 = run.nan((T, hq), F32), run.nan((T, hq), F32)
        ws = run.nan((2 * grid * rows * (d + 2),), F32)
        counters = run.put(np.zeros(grid, np.uint32))
        qdev, sl = run.put(qbuf), run.put(np.asarray(lens, np.int32))
        p.q, p.k, p.v, p.block_tables, p.seq_lens = qdev.at, cache.k_at, cache.v_at, cache.tdev.at, sl.at
        cum = None
        if qlens is not None:
            cum = run.put(np.concatenate([[0], np.cumsum(ql)]).astype(np.int32))
            p.cum_seq_lens_q = cum.at
        if mask is not None:
            words = 2 * ((L + 31) // 32)
            bits = np.zeros((B, L, words), np.uint16)
            for b in range(B):
                for i in range(L):
                    for c in range(L):
                        if mask(b, i, c):
                            bits[b, i, c // 16] |= 1 << (c % 16)
            p.mask = run.put(bits).at
        if sinks is not None:
            sinks = np.asarray(sinks, np.float32)
            p.sinks = run.put(sinks).at
        p.bmm1_scale, p.bmm2_scale = c1, c2
        if device_scales:
            p.bmm1_scale_at, p.bmm2_scale_at = run.put(np.float32([c1])).at, run.put(np.float32([c2])).at
            p.bmm1_scale, p.bmm2_scale = 11, 13
        p.out, p.workspace, p.counters, p.fault = out.at, ws.at, counters.at, run.fault.at
        if lse:
            p.lse, p.lse2 = l1.at, l2.at
        p.q_token, p.q_head = ts, hs
        p.k_page, p.k_head, p.k_token = cache.ks
        p.v_page, p.v_head, p.v_token = cache.vs
        p.table_row, p.tokens, p.pages = cache.table_row, T, cache.pages
        p.batch, p.q_heads, p.kv_heads, p.q_len, p.max_q_len = B, hq, hkv, L if qlens is None else maxL, maxL
        p.page_size, p.max_pages, p.max_seq_len = page, cache.max_pages, max_seq or cache.max_pages * page
        p.window_left, p.tile_rows, p.min_units = window, rows, min_units
        bad = set()
        if break_it:
            bad = break_it(dict(run=run, p=p, table=cache.table, tdev=cache.tdev, lens=lens, sl=sl, cum=cum, cache=cache)) or set()
        name = f"decode_h{d}_{dt.name}_kv{dt.name}_{target}"
        for _ in range(rounds):
            dev.launch(name, (grid,), threads, shared, p)
        c1r, c2r = float(np.float32(c1)), float(np.float32(c2))
        want, wl = np.zeros((T, hq, d)), np.full((T, hq), -np.inf)
        at = 0
        for b in range(B):
            n, S = ql[b], lens[b]
            if b not in bad:
                pos = S - n + np.arange(n)[:, None]
                j = np.arange(S)[None, :]
                see = j <= pos
                if mask is not None and n > 1:
                    see = np.array([[jj < S - n or mask(b, i, jj - (S - n)) for jj in range(S)] for i in range(n)]).reshape(n, S)
                if window >= 0:
                    see &= j >= pos - window
                want[at : at + n], wl[at : at + n] = attend(q[at : at + n], cache.k[b], cache.v[b], c1r, c2r, see, sinks)
            at += n
        got = dt.decode(out.get())
        e = compare("out", got, want, dt)
        if lse:
            compare("lse", l1.get()[..., None], wl[..., None], F32, 0, 3e-3 + 1e-3 * np.abs(np.where(np.isfinite(wl), wl, 0))[..., None], nmse=1)
            compare("lse2", l2.get()[..., None], wl[..., None] * LOG2E, F32, 0, 5e-3 + 1e-3 * np.abs(np.where(np.isfinite(wl), wl, 0))[..., None], nmse=1)
        if (counters.get() != 0).any():
            raise Failure(f"counters are left at {counters.get()}")
        reason, rest = run.faults()
        if expect is None and reason:
            raise Failure(f"fault {reason} {rest} without cause")
        if expect is not None and (reason, rest[0]) != expect:
            raise Failure(f"fault {reason} {rest}, want reason and request {expect}")
        for b in run.buffers:
            b.get()
        return e
    finally:
        run.done()


def decode_cases():
    """name → arguments of decode_case."""
    c = {}
    for dt in HALVES:
        for d in (64, 128):
            c[f"{dt.name}/d={d}"] = dict(dt=dt, d=d, lens=(37, 5, 0, 130))
    c["long"] = dict(lens=(700, 3, 1200), hq=4, hkv=1)
    c["one_request"] = dict(lens=(1000,), hq=4, hkv=2, d=64)
    c["many_small"] = dict(lens=tuple(range(0, 23)), hq=4, hkv=4, d=64)
    c["more_blocks_than_units"] = dict(lens=(17,), hq=1, hkv=1, d=64, grid=9, min_units=1)
    c["thin"] = dict(lens=(300, 40), hq=4, hkv=2, d=64, min_units=1, grid=13)
    for page in (1, 3, 8, 16, 32, 48, 100):
        c[f"page={page}"] = dict(lens=(70, 64, 1, 33), page=page, d=64, hq=4)
    for layout in LAYOUTS:
        c[f"layout={layout}"] = dict(lens=(70, 21, 1), layout=layout, L=2, d=64)
        c[f"layout={layout}/page=5"] = dict(lens=(70, 21, 1), layout=layout, page=5, L=1, d=128)
    for hq, hkv in ((9, 3), (5, 1), (28, 4), (7, 7), (64, 1), (12, 2)):
        c[f"heads={hq}-{hkv}"] = dict(lens=(21, 3), hq=hq, hkv=hkv, d=64)
    for L in (2, 3, 5, 8, 17):
        for g in (1, 3, 8):
            c[f"q_len={L}/group={g}"] = dict(lens=(61, 21, L - 1), L=L, hq=2 * g, hkv=2, d=64, window=-1 if L % 2 else 9)
    c["q_len=5/group=8/d=128"] = dict(lens=(150, 21), L=5, hq=16, hkv=2)
    c["q_len=2/group=8/d=128"] = dict(lens=(150, 21), L=2, hq=16, hkv=2)
    c["ragged"] = dict(lens=(90, 33, 0, 5, 64, 7), qlens=(5, 1, 2, 7, 0, 3), hq=6, hkv=2, d=64, sinks=(1, -1, 0, 2, -3, 4), max_q=9)
    c["ragged/windows"] = dict(lens=(90, 33, 2), qlens=(5, 1, 2), hq=6, hkv=2, d=64, window=1)
    for w in (0, 3, 7, 19, 20, 127):
        c[f"window={w}"] = dict(lens=(20, 200, 1), window=w, d=64, hq=4, L=1)
        c[f"window={w}/q_len=4"] = dict(lens=(20, 200, 1), window=w, d=64, hq=4, L=4)
    c["sinks"] = dict(lens=(37, 0, 300, 2), window=7, sinks=(math.log(8), math.log(24), -math.inf, 80), hq=4, hkv=2, d=64)
    c["sinks/q_len=3"] = dict(lens=(37, 0, 300, 2), L=3, sinks=(math.log(8), math.log(24), -math.inf, 80), hq=4, hkv=2, d=64)
    for L in (1, 4, 17, 33):
        c[f"mask/q_len={L}"] = dict(lens=(100, L, 70, 2), L=L, hq=4, d=64, mask=lambda b, i, x: (i * 7 + x * 3 + b) % 5 < 3)
    c["mask/window"] = dict(lens=(100, 6, 70), L=4, hq=4, d=64, window=2, mask=lambda b, i, x: (i + x) % 3 < 2)
    c["scales"] = dict(lens=(37, 12), c1=-0.125, c2=-2.0, d=64)
    c["device_scales"] = dict(lens=(37, 12), c1=0.1, c2=0.6, device_scales=True, d=64)
    c["nan_scale"] = dict(lens=(37, 0), c1=math.nan, device_scales=True, d=64)
    c["q_strided"] = dict(lens=(21, 7), q_gap=1024, hq=8)
    c["q_heads_apart"] = dict(lens=(21, 7), q_gap=40, q_head_gap=8, hq=8)
    c["q_odd"] = dict(lens=(21, 7), q_gap=3, q_head_gap=1, hq=8, d=64)
    c["table_slice"] = dict(lens=(21, 70), table_gap=5, d=64)
    c["no_lse"] = dict(lens=(21, 70), lse=False, d=64)
    c["rounds"] = dict(lens=(400, 70), hq=4, hkv=1, rounds=3, d=64)
    c["large_scores"] = dict(lens=(90, 17), L=2, c1=40.0, d=64, hq=4, dt=F16)

    def plant(where, what):
        def f(k, v):
            for b in range(len(k)):
                for j in range(len(k[b])):
                    if where(b, j):
                        k[b][j], v[b][j] = what, what
            return k, v
        return f

    c["hidden_nan"] = dict(lens=(40, 9), L=3, hq=4, d=64, values=plant(lambda b, j: b == 0 and j == 39, math.nan))
    c["hidden_inf"] = dict(lens=(40, 9), L=3, hq=4, d=64, values=lambda k, v: (k, plant(lambda b, j: b == 0 and j >= 38, math.inf)([x.copy() for x in k], v)[1]))
    c["window_nan"] = dict(lens=(70, 9), L=2, hq=4, d=64, window=20, values=plant(lambda b, j: b == 0 and j < 48, math.nan))
    c["mask_nan"] = dict(lens=(40, 9), L=3, hq=4, d=64, values=plant(lambda b, j: j == 39, math.nan), mask=lambda b, i, x: x <= min(i, 1) and (i != 2 or x == 0))

    def one_nan(kind):
        def f(k, v):
            (k if kind == "k" else v)[1][3, 1, 7] = math.nan
            return k, v
        return f

    c["nan/key"] = dict(lens=(20, 33), L=2, hq=4, d=64, values=one_nan("k"))
    c["nan/value"] = dict(lens=(20, 33), L=2, hq=4, d=64, values=one_nan("v"))

    def nan_q(q):
        q[1, 2, 5] = math.nan
        return q

    c["nan/query"] = dict(lens=(20, 33), L=2, hq=4, d=64, values_q=nan_q)

    def table(b, n, value):
        def f(x):
            t = x["table"].copy()
            t[b, n] = value
            x["run"].dev.write(x["tdev"].at, t)
            return {b}
        return f

    def lengths(b, value):
        def f(x):
            s = np.asarray(x["lens"], np.int32)
            s[b] = value
            x["run"].dev.write(x["sl"].at, s)
            return {b}
        return f

    for value in (-1, 1 << 30, 10):
        c[f"bad/table={value}"] = dict(lens=(37, 5, 33), hq=4, d=64, L=2, break_it=table(2, 1, value), expect=(7, 2))
    c["bad/table/page=5"] = dict(lens=(37, 5, 33), hq=4, d=64, page=5, break_it=table(0, 3, -7), expect=(7, 0))
    c["bad/table/split"] = dict(lens=(900, 5, 33), hq=4, hkv=1, d=64, break_it=table(0, 20, -7), expect=(7, 0))
    c["bad/len=-1"] = dict(lens=(37, 5, 33), hq=4, d=64, break_it=lengths(1, -1), expect=(1, 1), sinks=(0, 1, 2, 3))
    c["bad/len_over_table"] = dict(lens=(37, 5, 33), hq=4, d=64, break_it=lengths(1, 16 * 5 + 1), expect=(2, 1), max_seq=1 << 20)
    c["bad/len_over_max"] = dict(lens=(37, 5, 33), hq=4, d=64, break_it=lengths(2, 38), expect=(3, 2), max_seq=37)
    c["batch=300"] = dict(lens=tuple((i * 7) % 40 for i in range(300)), hq=2, hkv=1, d=64)
    c["batch=600/ragged"] = dict(lens=tuple((i * 7) % 40 for i in range(600)), qlens=tuple(i % 3 for i in range(600)), hq=2, hkv=1, d=64)
    return c


# ---- prefill ----

def tma_maps(dev, p, dt, d, dv):
    """Fills in what the tma kernel needs; False where it cannot take the call."""
    st = [p.k_token, p.k_head, p.v_token, p.v_head] + ([p.k_page, p.v_page] if p.block_tables else [])
    if any(s % 8 for s in st) or (p.k or 0) % 16 or (p.v or 0) % 16 or p.offsets_k or p.offsets_v or (p.block_tables and p.page_size % 8):
        return False
    n = p.pages if p.block_tables else 1
    rows = p.page_size if p.block_tables else p.kv_tokens
    if not n or not rows:
        return False
    p.box_rows = min(128, p.page_size & -p.page_size) if p.block_tables else 128
    for name, at, w, token, head, page in (("k_map", p.k, d, p.k_token, p.k_head, p.k_page), ("v_map", p.v, dv, p.v_token, p.v_head, p.v_page)):
        m = dev.tensor_map(at, dt, [w, rows, p.kv_heads, n], [2 * token, 2 * head, 2 * (page if p.block_tables else 8)], [64, p.box_rows, 1, 1])
        for i in range(16):
            getattr(p, name)[i] = int(m[i])
    return True


def prefill_case(dev, rng, target, dt=BF16, d=128, dv=None, qlens=(37,), lens=(70,), hq=8, hkv=2, page=16, layout="hnd", causal=True, scale=None, q_gap=0,
                 kv_gap=0, extra_rows=0, extra_kv=0, offsets=0, gap=0, stats=False, max_q=None, max_kv=None, grid=None, values=None, break_it=None,
                 expect=None, rounds=1, table_gap=0, tma=False):
    """page 0: ragged keys. offsets: bytes of explicit batch offsets, with `gap` unused rows before each request."""
    run = Run(dev, rng)
    try:
        dv = dv or d
        B = len(qlens)
        scale = scale if scale is not None else 1 / math.sqrt(d)
        starts = lambda ls: [sum(ls[:b]) + (gap * (b + 1) if offsets else 0) for b in range(len(ls))]
        q0, k0 = starts(qlens), starts(lens)
        T = sum(qlens) + (gap * B if offsets else 0) + extra_rows
        ts = hq * d + q_gap
        q = [dt.round(rng.standard_normal((n, hq, d))) for n in qlens]
        qbuf = np.zeros(max(1, T * ts), dt.store)
        qbuf.view(np.uint8)[:] = 0xFF
        for b in range(B):
            for i in range(qlens[b]):
                a = (q0[b] + i) * ts
                qbuf[a : a + hq * d] = dt.encode(q[b][i]).reshape(-1)
        p = P["PrefillParams"]()
        p.q = run.put(qbuf).at
        if page:
            c = Cache(run, dt, list(lens), hkv, page, d, dv, layout=layout, values=values, table_gap=table_gap)
            K, V = c.k, c.v
            p.k, p.v, p.block_tables = c.k_at, c.v_at, c.tdev.at
            p.k_page, p.k_head, p.k_token = c.ks
            p.v_page, p.v_head, p.v_token = c.vs
            p.table_row, p.pages, p.page_size, p.max_pages = c.table_row, c.pages, page, c.max_pages
        else:
            K = [dt.round(rng.standard_normal((s, hkv, d))) for s in lens]
            V = [dt.round(rng.standard_normal((s, hkv, dv))) for s in lens]
            if values:
                K, V = values(K, V)
            tkv = sum(lens) + (gap * B if offsets else 0) + extra_kv
            kt, vt = hkv * d + kv_gap, hkv * dv + 2 * kv_gap
            kb, vb = np.zeros(max(1, tkv * kt), dt.store), np.zeros(max(1, tkv * vt), dt.store)
            kb.view(np.uint8)[:], vb.view(np.uint8)[:] = 0xFF, 0xFF
            for b in range(B):
                for j in range(lens[b]):
                    a, e = (k0[b] + j) * kt, (k0[b] + j) * vt
                    kb[a : a + hkv * d] = dt.encode(K[b][j]).reshape(-1)
                    vb[e : e + hkv * dv] = dt.encode(V[b][j]).reshape(-1)
            p.k, p.v = run.put(kb).at, run.put(vb).at
            p.k_token, p.k_head, p.v_token, p.v_head, p.kv_tokens = kt, d, vt, dv, tkv
        offs = {}
        if offsets:
            for name, o, st in (("q", q0, ts), ("o", q0, hq * dv)) + ((("k", k0, kt), ("v", k0, vt)) if not page else ()):
                offs[name] = run.put(np.asarray([x * st for x in o], np.int64 if offsets == 8 else np.int32))
                setattr(p, "offsets_" + name, offs[name].at)
                setattr(p, "offset_bytes_" + name, offsets)
        max_q = max_q or max(qlens, default=1) or 1
        out = run.nan((T, hq, dv), dt)
        fill = lambda: run.put(np.full((B, max_q, hq), -np.inf, np.float32))
        l1, l2 = fill(), fill()
        if stats:
            offs["stats"] = run.put(np.asarray([sum(qlens[:b]) * hq for b in range(B)], np.int32))
            p.offsets_stats, p.offset_bytes_stats = offs["stats"].at, 4
        ql, kl = run.put(np.asarray(qlens, np.int32)), run.put(np.asarray(lens, np.int32))
        counters = run.put(np.zeros(2, np.uint32))
        p.q_lens, p.kv_lens, p.out, p.lse, p.lse2, p.counters, p.fault = ql.at, kl.at, out.at, l1.at, l2.at, counters.at, run.fault.at
        p.q_token, p.q_head, p.tokens, p.scale, p.batch, p.q_heads, p.kv_heads = ts, d, T, scale, B, hq, hkv
        p.max_q_len, p.max_kv_len, p.causal = max_q, max_kv or max(lens, default=1), int(causal)
        bad = set()
        if break_it:
            bad = break_it(dict(run=run, p=p, ql=ql, kl=kl, offs=offs, cache=c if page else None)) or set()
        if tma and not tma_maps(dev, p, dt, d, dv):
            return None
        threads, shared, _ = launch_facts("PREFILL" + "_TMA" * tma, d if d == dv else f"{d}X{dv}", target)
        name = f"prefill_h{d}{'' if d == dv else 'x%d' % dv}_{dt.name}{'_tma' * tma}_{target}"
        for _ in range(rounds):
            dev.launch(name, (grid or dev.sms,), threads, shared, p)
        want = np.zeros((T, hq, dv))
        wl = np.full((B * max_q, hq), -np.inf)
        owned = np.zeros(T, bool)
        c1 = float(np.float32(scale))
        for b in range(B):
            n, S = qlens[b], lens[b]
            owned[q0[b] : q0[b] + n] = True
            if b in bad or not n:
                continue
            see = np.arange(S)[None] <= np.arange(n)[:, None] + (S - n if causal else S)
            o, ls = attend(q[b], K[b], V[b], c1, 1.0, see, None)
            want[q0[b] : q0[b] + n] = o
            at = sum(qlens[:b]) if stats else b * max_q
            wl[at : at + n] = ls
        raw = out.get()
        got = dt.decode(raw)
        if offsets:
            if not (raw.view(np.uint8).reshape(T, -1)[~owned] == 0xFF).all():
                raise Failure("rows between requests were written")
            got, want = got[owned], want[owned]
        e = compare("out", got, want, dt)
        tol = 3e-3 + 1e-3 * np.abs(np.where(np.isfinite(wl), wl, 0))
        compare("lse", l1.get().reshape(wl.shape)[..., None], wl[..., None], F32, 0, tol[..., None], nmse=1)
        compare("lse2", l2.get().reshape(wl.shape)[..., None], wl[..., None] * LOG2E, F32, 0, 2 * tol[..., None], nmse=1)
        if (counters.get() != 0).any():
            raise Failure(f"counters are left at {counters.get()}")
        reason, rest = run.faults()
        if expect is None and reason:
            raise Failure(f"fault {reason} {rest} without cause")
        if expect is not None and (reason, rest[0]) != expect:
            raise Failure(f"fault {reason} {rest}, want reason and request {expect}")
        for b in run.buffers:
            b.get()
        return e
    finally:
        run.done()


def prefill_cases():
    c = {}
    for dt in HALVES:
        for d in (64, 128):
            for page in (0, 16):
                for causal in (True, False):
                    c[f"{dt.name}/d={d}/page={page}/causal={causal}"] = dict(dt=dt, d=d, page=page, causal=causal, qlens=(37, 0, 64, 1), lens=(70, 5, 64, 33), hq=4)
    for page in (0, 16):
        t = f"/page={page}"
        for causal in (True, False):
            c[f"long/causal={causal}{t}"] = dict(qlens=(130, 70), lens=(300, 129), page=page, causal=causal, d=64)
        c["more_rows_than_keys" + t] = dict(qlens=(7, 3, 200), lens=(3, 5, 1), page=page, hq=4, d=64)
        c["no_keys" + t] = dict(qlens=(3, 2), lens=(0, 2), page=page, hq=4, d=64)
        c["no_keys/full" + t] = dict(qlens=(3, 2), lens=(0, 2), page=page, hq=4, d=64, causal=False)
        c["rows_past_end" + t] = dict(qlens=(2, 3), lens=(5, 3), page=page, hq=4, d=64, extra_rows=5)
        c["rows_past_end/all" + t] = dict(qlens=(0,), lens=(3,), page=page, hq=4, d=64, extra_rows=3)
        c["lse_padding" + t] = dict(qlens=(2, 9, 0), lens=(5, 9, 4), page=page, hq=4, d=64, max_q=17)
        c["stats" + t] = dict(qlens=(2, 9, 0, 4), lens=(5, 9, 4, 8), page=page, hq=4, d=64, stats=True)
        for n in (4, 8):
            c[f"offsets={n}{t}"] = dict(qlens=(2, 9, 0, 4), lens=(5, 9, 4, 8), page=page, hq=4, d=64, offsets=n, gap=2, q_gap=24, kv_gap=16, extra_kv=3)
        c["odd_strides" + t] = dict(qlens=(21, 4), lens=(33, 16), page=page, hq=4, d=64, q_gap=3, kv_gap=5, layout="odd")
        c["scale=-0.3" + t] = dict(qlens=(17, 5), lens=(37, 5), page=page, hq=4, d=64, scale=-0.3)
        c["scale=0" + t] = dict(qlens=(17, 5), lens=(37, 5), page=page, hq=4, d=64, scale=0.0)
        c["tails" + t] = dict(qlens=(1, 5, 33, 64, 65), lens=(33, 70, 33, 128, 129), page=page, hq=4, d=64)
        c["batch=70" + t] = dict(qlens=tuple(i % 5 for i in range(70)), lens=tuple(i * 3 % 40 for i in range(70)), page=page, hq=2, hkv=1, d=64)
        c["rounds" + t] = dict(qlens=(60, 5, 90), lens=(60, 17, 90), page=page, hq=4, d=64, rounds=3, grid=3)

        def nan_tail(first, what=math.nan):
            def f(k, v):
                for j in range(first, len(k[0])):
                    k[0][j], v[0][j] = what, what
                return k, v
            return f
        c["hidden_nan" + t] = dict(qlens=(20, 9), lens=(40, 9), page=page, hq=4, d=64, values=nan_tail(38))
        c["hidden_nan/long" + t] = dict(qlens=(150, 9), lens=(150, 9), page=page, hq=4, d=128, values=nan_tail(100))
        c["hidden_inf" + t] = dict(qlens=(20, 9), lens=(40, 9), page=page, hq=4, d=64, values=nan_tail(30, math.inf))

        def lens_to(which, b, value):
            def f(x):
                buf = x[which]
                a = buf.data.copy()
                a[b] = value
                x["run"].dev.write(buf.at, a)
                return {b}
            return f

        def off_to(which, b, value):
            def f(x):
                a = x["offs"][which].data.copy()
                a[b] = value
                x["run"].dev.write(x["offs"][which].at, a)
                return {b}
            return f
        c["bad/kv=-1" + t] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=page, hq=4, d=64, break_it=lens_to("kl", 1, -1 if page else -1), expect=(1, 1), max_kv=99) if page else \
            dict(qlens=(7, 3, 5), lens=(17, 33, 0), page=page, hq=4, d=64, break_it=lens_to("kl", 2, -1), expect=(1, 2), max_kv=99)
        c["bad/kv_over_max" + t] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=page, hq=4, d=64, break_it=lens_to("kl", 2, 34), expect=(3, 2), extra_kv=9)
        c["bad/offset_q" + t] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=page, hq=4, d=64, offsets=8, break_it=off_to("q", 2, 12 * 4 * 64 + 1), expect=(12, 2))
        if not page:
            c["bad/offset_k"] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=0, hq=4, d=64, offsets=8, break_it=off_to("k", 1, 50 * 2 * 64 + 1), expect=(14, 1))
            c["bad/offset_v"] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=0, hq=4, d=64, offsets=8, break_it=off_to("v", 1, -1), expect=(15, 1))

        else:
            def table(b, n, value):
                def f(x):
                    a = x["cache"].table.copy()
                    a[b, n] = value
                    x["run"].dev.write(x["cache"].tdev.at, a)
                    return {b}
                return f
            for value in (-1, 1 << 30):
                c[f"bad/table={value}"] = dict(qlens=(7, 5, 300), lens=(17, 5, 330), page=16, hq=4, d=64, break_it=table(2, 20, value), expect=(7, 2))
            c["bad/kv_over_table"] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=16, hq=4, d=64, break_it=lens_to("kl", 1, 81), expect=(2, 1), max_kv=1 << 20)
    for page in (1, 3, 8, 64, 100):
        c[f"page={page}"] = dict(qlens=(37, 5, 64), lens=(70, 5, 64), page=page, hq=4, d=64)
    for layout in LAYOUTS:
        c[f"layout={layout}"] = dict(qlens=(21, 40, 1), lens=(21, 70, 1), layout=layout, d=64)
    for hq, hkv in ((9, 3), (5, 1), (28, 4), (7, 7), (64, 1)):
        c[f"heads={hq}-{hkv}"] = dict(qlens=(5, 3, 40), lens=(21, 3, 50), hq=hq, hkv=hkv, d=64)
    c["table_slice"] = dict(qlens=(21, 4), lens=(70, 33), hq=4, d=64, table_gap=5, max_kv=4096)
    c["many_blocks"] = dict(qlens=(300, 1), lens=(700, 600), hq=4, hkv=1, d=128, grid=3)
    c["many_blocks/ragged"] = dict(qlens=(300, 1), lens=(700, 600), hq=2, hkv=2, d=128, page=0, grid=3)
    c["many_blocks/full"] = dict(qlens=(150, 1), lens=(700, 600), hq=4, hkv=1, d=64, page=64, grid=3, causal=False)
    return c


def prefill_tma_cases():
    return {"tma/" + k: dict(v, tma=True) for k, v in prefill_cases().items()}


# ---- the rest of a decoder layer ----

KIND = {"f32": F32, "f16": F16, "bf16": BF16, "e4m3": F8}


def rows_of(run, dt, rows, cols, gap=0, scale=1.0, x=None):
    """A [rows, cols] operand with NaN after each row; its values, its buffer, its stride."""
    x = dt.round(scale * run.rng.standard_normal((rows, cols)) if x is None else x)
    buf = np.zeros((max(rows, 1), cols + gap), dt.store)
    buf.view(np.uint8)[:] = 0xFF
    buf[:rows, :cols] = dt.encode(x)
    return x, run.put(buf), cols + gap


def near(name, got, want, dt, extra=0.0):
    if dt is F32:
        return compare(name, got, want, F32, 0, 1e-5 * (1 + np.abs(np.where(np.isfinite(want), want, 0)).max(axis=-1, keepdims=True)) + extra, nmse=1)
    return compare(name, got, want, dt, 2.0, extra, nmse={"bf16": 2e-5, "f16": 1e-6}.get(dt.name))


def turns_of(rotary, base):
    return [base ** (-2 * i / rotary) / (2 * math.pi) for i in range(rotary // 2)]


def turned(x, pos, rotary, base, adjacent, factors):
    y = x.copy()
    n = rotary // 2
    ang = pos * np.array([base ** (-2 * i / rotary) for i in range(n)]) / (factors if factors is not None else 1)
    a, b = (slice(0, rotary, 2), slice(1, rotary, 2)) if adjacent else (slice(0, n), slice(n, rotary))
    y[..., a] = x[..., a] * np.cos(ang) - x[..., b] * np.sin(ang)
    y[..., b] = x[..., a] * np.sin(ang) + x[..., b] * np.cos(ang)
    return y


def layer_case(dev, rng, target, op, dt="bf16", **kw):
    run = Run(dev, rng)
    try:
        e = globals()["layer_" + op](run, KIND[dt], f"_{target}", **kw)
        expect = kw.get("expect")
        reason, rest = run.faults()
        if (reason, rest[0]) != (expect or (0, 0)):
            raise Failure(f"fault {reason} {rest}, want {expect}")
        for b in run.buffers:
            b.get()
        return e
    finally:
        run.done()


def layer_rmsnorm(run, dt, suffix, rows=5, cols=576, residual=True, weight=None, gap=0, alias=False):
    p = P["RMSNormParams"]()
    wt = KIND[weight] if weight else dt
    x, xb, p.x_row = rows_of(run, dt, rows, cols, gap)
    w = wt.round(run.rng.standard_normal(cols))
    p.x, p.weight, p.weight_f32 = xb.at, run.put(wt.encode(w)).at, int(wt is F32 and dt is not F32)
    r = x
    out, total = run.nan((rows, cols), dt), run.nan((rows, cols), dt)
    if residual:
        y, yb, p.residual_row = rows_of(run, dt, rows, cols, 0 if alias else 2 * gap)
        p.residual, p.sum, r = yb.at, total.at, x + y
        if alias:
            p.sum, total = yb.at, yb
    p.out, p.rows, p.columns, p.eps = out.at, rows, cols, 1e-5
    run.dev.launch("rmsnorm_" + dt.name + suffix, (min(rows, 3),), 256, 0, p)
    want = r / np.sqrt((r * r).mean(axis=1, keepdims=True) + float(np.float32(1e-5))) * w
    if residual:
        near("sum", dt.decode(total.get()), r, dt)
    return near("out", dt.decode(out.get()), want, dt)


def layer_silu_mul(run, dt, suffix, rows=5, cols=96, gap=0):
    p = P["SiLUMulParams"]()
    g, gb, p.gate_row = rows_of(run, dt, rows, cols, gap, 3)
    u, ub, p.up_row = rows_of(run, dt, rows, cols, 2 * gap)
    out = run.nan((rows, cols), dt)
    p.gate, p.up, p.out, p.rows, p.columns = gb.at, ub.at, out.at, rows, cols
    run.dev.launch("silu_mul_" + dt.name + suffix, (2,), 256, 0, p)
    return near("out", dt.decode(out.get()), g / (1 + np.exp(-g)) * u, dt)


def layer_embedding(run, dt, suffix, out="bf16", rows=7, cols=64, vocab=11, gap=0, bad=None, expect=None):
    p, od = P["EmbeddingParams"](), KIND[out]
    w, wb, p.weight_row = rows_of(run, dt, vocab, cols, gap)
    ids = run.rng.integers(0, vocab, rows).astype(np.int32)
    want = w[ids]
    if bad is not None:
        ids[3] = bad
        want[3] = 0
    o = run.nan((rows, cols), od)
    p.ids, p.weight, p.out, p.fault, p.rows, p.columns, p.vocab = run.put(ids).at, wb.at, o.at, run.fault.at, rows, cols, vocab
    run.dev.launch(f"embedding_{dt.name}_{out}" + suffix, (2,), 256, 0, p)
    return compare("out", od.decode(o.get()), od.round(want), od, 0, 0, nmse=1)


def layer_argmax(run, dt, suffix, rows=5, cols=999, gap=0, special=None):
    p = P["ArgmaxParams"]()
    x = run.rng.standard_normal((rows, cols))
    if special:
        x = special(x)
    x, xb, p.x_row = rows_of(run, dt, rows, cols, gap, x=x)
    out = run.put(np.full(rows, -7, np.int32))
    p.x, p.out, p.rows, p.columns = xb.at, out.at, rows, cols
    run.dev.launch("argmax_" + dt.name + suffix, (3,), 1024, 0, p)
    want = np.array([0 if np.isnan(r).all() else int(np.nanargmax(np.where(np.isnan(r), -np.inf, r))) if not (np.nan_to_num(r, nan=-np.inf) == -np.inf).all()
                     else int(np.nonzero(~np.isnan(r))[0][0]) for r in x])
    if (out.get() != want).any():
        raise Failure(f"got {out.get()}, want {want}")


def layer_merge(run, dt, suffix, tokens=5, heads=3, d=64, gap=0):
    p = P["MergeLSEParams"]()
    a, ab, _ = rows_of(run, dt, tokens, heads * d, gap)
    b, bb, _ = rows_of(run, dt, tokens, heads * d, 2 * gap)
    la, lb = (3 * run.rng.standard_normal((tokens, heads)).astype(np.float32) for _ in range(2))
    la[0, 0], lb[0, 1], la[1, 1], lb[1, 1] = -np.inf, -np.inf, -np.inf, -np.inf
    la[2, 2], lb[2, 2] = 500, -500
    o, l = run.nan((tokens, heads, d), dt), run.nan((tokens, heads), F32)
    p.out_a, p.out_b, p.lse_a, p.lse_b, p.out, p.lse = ab.at, bb.at, run.put(la).at, run.put(lb).at, o.at, l.at
    p.a_token, p.b_token, p.a_head, p.b_head, p.lse_a_token, p.lse_b_token = heads * d + gap, heads * d + 2 * gap, d, d, heads, heads
    p.tokens, p.heads, p.head_dim = tokens, heads, d
    run.dev.launch("merge_lse_" + dt.name + suffix, (2,), 256, 0, p)
    la, lb = la.astype(np.float64), lb.astype(np.float64)
    with np.errstate(invalid="ignore"):
        want_l = np.logaddexp(la, lb)
        wa, wb = (np.where(np.isneginf(want_l), 0, np.exp(x - want_l)) for x in (la, lb))
    want = a.reshape(tokens, heads, d) * wa[..., None] + b.reshape(tokens, heads, d) * wb[..., None]
    compare("lse", l.get()[..., None], want_l[..., None], F32, 0, 1e-5 * (2 + np.abs(np.where(np.isfinite(want_l), want_l, 0)))[..., None], nmse=1)
    return near("out", dt.decode(o.get()), want, dt)


def layer_rope(run, dt, suffix, heads=9, d=64, rotary=None, adjacent=False, factors=False, gap=0, base=1e5, positions=(0, 5, -1, 131071, 77), expect=None, bad=None):
    p, T, rotary = P["RoPEParams"](), len(positions), d if rotary is None else rotary
    x, xb, p.x_token = rows_of(run, dt, T, heads * d, gap)
    f = 1 + 0.75 * (np.arange(rotary // 2) % 5) if factors else None
    out = run.nan((T, heads, d), dt)
    positions = list(positions)
    if bad is not None:
        positions[1] = bad
    p.x, p.positions, p.out, p.fault = xb.at, run.put(np.asarray(positions, np.int32)).at, out.at, run.fault.at
    p.x_head, p.tokens, p.heads, p.head_dim, p.rotary, p.adjacent = d, T, heads, d, rotary, int(adjacent)
    if factors:
        p.factors = run.put(f.astype(np.float32)).at
    for i, t in enumerate(turns_of(rotary, base) if rotary else []):
        p.turns[i] = t
    run.dev.launch("rope_" + dt.name + suffix, (2,), 256, 0, p)
    x = x.reshape(T, heads, d)
    want = np.stack([turned(x[t], positions[t], rotary, base, adjacent, f) if positions[t] >= 0 and rotary else x[t] for t in range(T)])
    return near("out", dt.decode(out.get()), want, dt, 1e-5 * np.abs(x).max())


def layer_append(run, dt, suffix, cache="bf16", lens=(20, 33, 5), hkv=2, d=64, dv=None, page=16, layout="hnd", ranges=False, rotary=0, adjacent=False, q_heads=0,
                 gap=0, scale=1.0, expect=None, bad=None):
    """New rows for the last positions of every request; the cache must change there and nowhere else."""
    p, cd, dv = P["AppendParams"](), KIND[cache], dv or d
    c = Cache(run, cd, list(lens), hkv, page, d, dv, layout=layout)
    B = len(lens)
    counts = [min(3, s) for s in lens]
    where = [(b, lens[b] - counts[b] + i) for b in range(B) for i in range(counts[b])]
    if not ranges:
        where.insert(2, (-1, -1))
        where = [where[i] for i in run.rng.permutation(len(where))]
    T = len(where)
    k, kb, p.k_row_token = rows_of(run, dt, T, hkv * d, gap)
    v, vb, p.v_row_token = rows_of(run, dt, T, hkv * dv, 2 * gap)
    p.k, p.v, p.k_row_head, p.v_row_head = kb.at, vb.at, d, dv
    p.k_cache, p.v_cache, p.block_tables, p.fault = c.k_at, c.v_at, c.tdev.at, run.fault.at
    p.k_page, p.k_head, p.k_token = c.ks
    p.v_page, p.v_head, p.v_token = c.vs
    p.table_row, p.tokens, p.pages, p.k_scale, p.v_scale = c.table_row, T, c.pages, scale, scale / 2
    p.batch, p.kv_heads, p.k_dim, p.v_dim, p.page_size, p.max_pages, p.rotary, p.adjacent = B, hkv, d, dv, page, c.max_pages, rotary, int(adjacent)
    for i, t in enumerate(turns_of(rotary, 1e4) if rotary else []):
        p.turns[i] = t
    if ranges:
        p.cum_seq_lens = run.put(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)).at
        p.start_positions = run.put(np.asarray([lens[b] - counts[b] for b in range(B)], np.int32)).at
    else:
        pos = np.asarray([w[1] for w in where], np.int32)
        req = np.asarray([w[0] if w[0] >= 0 else 1 << 30 for w in where], np.int32)
        if bad:
            pos[4], req[4] = 0, 0
            (pos if bad[0] == "position" else req)[4] = bad[1]
            where[4] = (-1, -1)
        p.positions, p.requests = run.put(pos).at, run.put(req).at
    q = None
    if q_heads:
        q, qb, p.q_token = rows_of(run, dt, T, q_heads * d, gap)
        qo = run.nan((T, q_heads, d), dt)
        p.q, p.q_out, p.q_head, p.q_heads = qb.at, qo.at, d, q_heads
    run.dev.launch(f"append_{dt.name}_{cache}" + suffix, (3,), 256, 0, p)
    kbuf, vbuf = c.kdev.data.copy(), c.vdev.data.copy()
    if c.vdev is c.kdev:
        vbuf = kbuf
    worst = 0
    gk, gv = c.kdev.get(), c.vdev.get()
    for t, (b, pos) in enumerate(where):
        kr, vr = k[t].reshape(hkv, d), v[t].reshape(hkv, dv)
        if rotary and pos >= 0:
            kr = turned(kr, pos, rotary, 1e4, adjacent, None)
        if q_heads:
            qr = q[t].reshape(q_heads, d)
            near("q", dt.decode(qo.get()[t]), turned(qr, pos, rotary, 1e4, adjacent, None) if pos >= 0 else qr, dt, 1e-5)
        if pos < 0:
            continue
        for h in range(hkv):
            for st, off, n, x, exp, got, sc in ((c.ks, c.koff, d, kr[h], kbuf, gk, scale), (c.vs, c.voff, dv, vr[h], vbuf, gv, scale / 2)):
                a = off + int(c.table[b, pos // page]) * st[0] + h * st[1] + pos % page * st[2]
                w = x / sc if cd is F8 else x
                if cd is F8:
                    w = np.clip(w, -448, 448)
                g = cd.decode(got[a : a + n])
                if rotary or cd is F8:
                    near("cache", g, w, cd, cd.step(w) + 1e-5)
                elif not (g == cd.round(w)).all():
                    raise Failure(f"cache row of token {t}: got {g}, want {cd.round(w)}")
                exp[a : a + n] = got[a : a + n]
    for name, exp, buf in (("K", kbuf, gk), ("V", vbuf, gv)):
        if not (exp.view(np.uint8) == buf.view(np.uint8)).all():
            raise Failure(f"{name}: something else than the new rows was written")


def layer_cases():
    c = {}
    for dt in ("f32", "f16", "bf16"):
        for res in (True, False):
            c[f"rmsnorm/{dt}/residual={res}"] = dict(op="rmsnorm", dt=dt, residual=res)
        c[f"rmsnorm/{dt}/odd"] = dict(op="rmsnorm", dt=dt, cols=77, gap=3)
        c[f"rmsnorm/{dt}/f32_weight"] = dict(op="rmsnorm", dt=dt, weight="f32", gap=8)
        c[f"rmsnorm/{dt}/in_place"] = dict(op="rmsnorm", dt=dt, alias=True, cols=4096)
        for gap in (0, 3, 8):
            c[f"silu/{dt}/gap={gap}"] = dict(op="silu_mul", dt=dt, gap=gap)
        c[f"silu/{dt}/odd"] = dict(op="silu_mul", dt=dt, cols=37)
        for out in ("f32", "f16", "bf16"):
            c[f"embedding/{dt}/{out}"] = dict(op="embedding", dt=dt, out=out)
        c[f"embedding/{dt}/odd"] = dict(op="embedding", dt=dt, out=dt, cols=37, gap=3)
        for bad in (-1, 11, 1 << 30):
            c[f"embedding/{dt}/id={bad}"] = dict(op="embedding", dt=dt, out=dt, bad=bad, expect=(10, 3))
        c[f"argmax/{dt}"] = dict(op="argmax", dt=dt)
        c[f"argmax/{dt}/wide"] = dict(op="argmax", dt=dt, cols=49152, rows=2, gap=8)

        def special(x):
            x[0, 5], x[1, :], x[2, 7], x[2, 900], x[3, :] = math.nan, math.nan, 9, 9, -math.inf
            x[4, 100], x[4, 3] = math.inf, math.nan
            return x
        c[f"argmax/{dt}/special"] = dict(op="argmax", dt=dt, special=special)
        c[f"merge/{dt}"] = dict(op="merge", dt=dt)
        c[f"merge/{dt}/strided"] = dict(op="merge", dt=dt, gap=5, d=72)
        for adjacent in (False, True):
            t = f"/{dt}/{'adjacent' if adjacent else 'half'}"
            c["rope" + t] = dict(op="rope", dt=dt, adjacent=adjacent)
            c["rope/partial" + t] = dict(op="rope", dt=dt, adjacent=adjacent, d=96, rotary=40, gap=5, factors=True)
            c["rope/wide" + t] = dict(op="rope", dt=dt, adjacent=adjacent, d=512, heads=2)
            c["append/rope" + t] = dict(op="append", dt=dt, cache=dt, rotary=64, adjacent=adjacent, q_heads=6)
            c["append/rope/partial" + t] = dict(op="append", dt=dt, cache=dt, rotary=32, adjacent=adjacent, gap=5)
        c[f"rope/{dt}/position=-2"] = dict(op="rope", dt=dt, bad=-2, expect=(8, 1))
        c[f"rope/{dt}/rotary=0"] = dict(op="rope", dt=dt, rotary=0)
        for cache in ("f32", "f16", "bf16", "e4m3"):
            c[f"append/{dt}/{cache}"] = dict(op="append", dt=dt, cache=cache, scale=0.01 if cache == "e4m3" else 1.0)
        for layout in LAYOUTS:
            if layout != "shared":
                c[f"append/{dt}/layout={layout}"] = dict(op="append", dt=dt, cache=dt, layout=layout, page=5)
        c[f"append/{dt}/ranges"] = dict(op="append", dt=dt, cache=dt, ranges=True, lens=(20, 0, 33, 5, 1), page=4)
        c[f"append/{dt}/dims"] = dict(op="append", dt=dt, cache=dt, d=192, dv=128, gap=8)
        c[f"append/{dt}/position=max"] = dict(op="append", dt=dt, cache=dt, bad=("position", 16 * 5), expect=(8, 4))
        c[f"append/{dt}/position=-2"] = dict(op="append", dt=dt, cache=dt, bad=("position", -2), expect=(8, 4))
        c[f"append/{dt}/request=3"] = dict(op="append", dt=dt, cache=dt, bad=("request", 3), expect=(9, 4))
    c["append/e4m3/e4m3"] = dict(op="append", dt="e4m3", cache="e4m3")
    return c


# ---- linear and the engine's kernels ----

def linear_case(dev, rng, target, dt="bf16", rows=5, n_in=256, n_out=100, gap=0, bias=None, kernel=None):
    run = Run(dev, rng)
    try:
        dt, p = KIND[dt], P["LinearParams"]()
        x, xb, p.x_row = rows_of(run, dt, rows, n_in, gap)
        w, wb, p.weight_row = rows_of(run, dt, n_out, n_in, 2 * gap, n_in**-0.5)
        out = run.nan((rows, n_out), dt)
        b = 0
        if bias:
            bt = KIND[bias]
            b = bt.round(rng.standard_normal(n_out))
            p.bias, p.bias_f32 = run.put(bt.encode(b)).at, int(bt is F32 and dt is not F32)
        p.x, p.weight, p.out, p.rows, p.out_dim = xb.at, wb.at, out.at, rows, n_out
        setattr(p, "in", n_in)
        kernel = kernel or ("gemv" if rows <= 16 else "gemm")
        if kernel == "gemv":
            dev.launch(f"gemv_{dt.name}_{target}", (-(-n_out // 8),), 256, 0, p)
        else:
            dev.launch(f"gemm_{dt.name}_{target}", (-(-n_out // 128), -(-rows // 64)), 128, 0, p)
        e = near("out", dt.decode(out.get()), x @ w.T + b, dt, 1e-5)
        for y in run.buffers:
            y.get()
        return e
    finally:
        run.done()


def linear_cases():
    c = {}
    for dt in ("f32", "f16", "bf16"):
        for rows in (1, 2, 4, 7, 16):
            c[f"gemv/{dt}/rows={rows}"] = dict(dt=dt, rows=rows)
        c[f"gemv/{dt}/odd"] = dict(dt=dt, rows=3, n_in=77, n_out=13, gap=3, bias=dt)
        c[f"gemv/{dt}/wide"] = dict(dt=dt, rows=1, n_in=4096 + 8, n_out=9, gap=8, bias="f32")
        for rows in (17, 64, 130):
            c[f"gemm/{dt}/rows={rows}"] = dict(dt=dt, rows=rows, n_out=200, bias="f32")
        c[f"gemm/{dt}/odd"] = dict(dt=dt, rows=33, n_in=77, n_out=131, gap=3, bias=dt)
        c[f"gemm/{dt}/in=8"] = dict(dt=dt, rows=33, n_in=8, n_out=131)
        c[f"gemm/{dt}/few"] = dict(dt=dt, rows=1, n_in=256, n_out=131, kernel="gemm")
    return c


def engine_case(dev, rng, target, op, **kw):
    run = Run(dev, rng)
    try:
        f32 = lambda shape: rng.standard_normal(shape).astype(np.float32)
        if op == "matmul":
            m, n, k, at, bt = kw["m"], kw["n"], kw["k"], kw.get("at"), kw.get("bt")
            a, b = f32((m, k)), f32((k, n))
            p, out = P["MatMulParams"](), run.nan((m, n + 3), F32)
            p.a, p.b, p.c = run.put(a.T if at else a).at, run.put(b.T if bt else b).at, out.at
            p.a_row, p.a_col = (1, m) if at else (k, 1)
            p.b_row, p.b_col = (1, k) if bt else (n, 1)
            p.c_row, p.m, p.n, p.k = n + 3, m, n, k
            dev.launch(f"matmul_f32_{target}", (-(-n // 64), -(-m // 64)), 256, 0, p)
            got = out.get()
            if not (got[:, n:].view(np.uint32) == 0xFFFFFFFF).all():
                raise Failure("wrote past a row")
            compare("c", got[:, :n], a.astype(np.float64) @ b.astype(np.float64), F32, 0, 1e-5 * (1 + math.sqrt(k)), nmse=1e-10)
        elif op == "binary":
            fn, shape = kw["fn"], kw["shape"]
            p = P["BinaryParams"]()
            a, b, out = f32(shape), f32(kw.get("b_shape", shape)), run.nan(shape, F32)
            p.a, p.b, p.out, p.op, p.contiguous = run.put(a).at, run.put(b).at, out.at, fn, int(kw.get("contiguous", False))
            pad = (1,) * (4 - len(shape)) + tuple(shape)
            strides = lambda x: [0 if s == 1 else st // 4 for s, st in zip(x.shape, x.strides)]
            bb = np.broadcast_to(b, shape)
            for d in range(4):
                p.shape[d] = pad[d]
            for name, x in (("a_stride", a), ("b_stride", bb), ("out_stride", out.data)):
                st = [0] * (4 - len(shape)) + [s // 4 for s in x.strides]
                for d in range(4):
                    getattr(p, name)[d] = st[d]
            dev.launch(f"binary_f32_{target}", (2,), 256, 0, p)
            want = [a + bb, a - bb, a * bb, a / bb][fn]
            if not (out.get() == want).all():
                raise Failure("differs from IEEE f32")
        elif op == "copy":
            size, shape, perm = kw["size"], kw["shape"], kw["perm"]
            t = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size]
            x = rng.integers(0, 250, shape).astype(t)
            y = x.transpose(perm)
            p, out = P["CopyParams"](), run.put(np.full(y.shape, 255, t))
            p.x, p.out = run.put(x).at, out.at
            for d in range(4):
                p.shape[d], p.x_stride[d], p.out_stride[d] = y.shape[d], y.strides[d] // size, out.data.strides[d] // size
            dev.launch(f"copy_b{size}_{target}", (3,), 256, 0, p)
            if not (out.get() == y).all():
                raise Failure("copy differs")
        else:
            p, out = P["FillParams"](), run.put(np.zeros(1001, np.uint32))
            p.out, p.n, p.value = out.at, 1000, 0xFF800000
            dev.launch(f"fill_b4_{target}", (2,), 256, 0, p)
            if not (out.get()[:1000] == 0xFF800000).all() or out.get()[1000]:
                raise Failure("fill differs")
        for y in run.buffers:
            y.get()
    finally:
        run.done()


def engine_cases():
    c = {}
    for at in (False, True):
        for bt in (False, True):
            c[f"matmul/{at}/{bt}"] = dict(op="matmul", m=70, n=65, k=33, at=at, bt=bt)
    c["matmul/one"] = dict(op="matmul", m=1, n=1, k=1)
    for fn in range(4):
        c[f"binary/{fn}"] = dict(op="binary", fn=fn, shape=(3, 5, 7), contiguous=True)
        c[f"binary/{fn}/broadcast"] = dict(op="binary", fn=fn, shape=(3, 5, 7), b_shape=(5, 1))
        c[f"binary/{fn}/scalar"] = dict(op="binary", fn=fn, shape=(2, 3, 5, 7), b_shape=(1,))
    for size in (1, 2, 4, 8):
        c[f"copy/{size}"] = dict(op="copy", size=size, shape=(3, 4, 5, 6), perm=(2, 0, 3, 1))
    c["fill"] = dict(op="fill")
    return c


# ---- timing ----

# Seconds read once, by megabytes: kernels read this fast at best on the H200 of peers/RESULTS.md, launch included.
FLOOR = [(0, 4.2), (2, 6.9), (4, 7.3), (17, 10.3), (34, 14.6), (67, 22.8), (134, 39.2), (268, 71.5), (537, 134.4), (1074, 259.0), (2147, 500.2)]

DECODE = [(b, n, hq, hk, d, 16, {}) for (hq, hk, d) in [(32, 8, 128), (64, 8, 128), (64, 8, 64)]
          for (b, n) in [(1, 1024), (1, 8192), (1, 131072), (16, 1024), (16, 8192), (64, 1024), (64, 8192), (256, 2048)]] + [
    (64, 8192, 32, 8, 128, 64, {}), (64, 8192, 32, 8, 128, 16, {"ragged": True}), (64, 8192, 64, 8, 64, 16, {"window": 127}),
    (64, 128, 64, 8, 64, 16, {}), (16, 8192, 64, 8, 128, 16, {"q_len": 4}), (1024, 512, 32, 32, 128, 16, {}),
    (64, 2048, 9, 3, 64, 16, {}), (64, 2048, 40, 8, 128, 16, {})]
# The better FlashInfer path on 2026-11-29 (peers/RESULTS.md), for orientation: ratios that count come from one run.
DECODE_PEERS = dict(zip([f"b{b}_kv{n}_h{hq}/{hk}_d{d}_p{ps}_bf16" + "".join(f"_{k}{v}" for k, v in o.items()) for b, n, hq, hk, d, ps, o in DECODE],
                        [13.0, 22.6, 145.5, 30.9, 143.5, 84.7, 500.3, 508.4, 14.0, 23.5, 146.0, 31.0, 144.4, 84.5, 501.4, 513.0, 10.7, 16.9, 87.8, 19.4, 84.8, 53.6,
                         268.0, 278.2, 495.7, 307.0, 22.8, 22.2, 165.4, 1972.8]))
PREFILL = [(b, n, n, 32, 8, 128, c, ps) for (b, n) in [(16, 1024), (4, 4096), (1, 16384)] for c in (True, False) for ps in (16, 0)] + [
    (8, 512, 8192, 32, 8, 128, True, 16), (4, 4096, 4096, 32, 8, 64, True, 0), (4, 4096, 4096, 32, 8, 64, False, 0)]
PREFILL_PEERS = dict(zip(["b16_q1024_kv1024_causal_p16", "b16_q1024_kv1024_causal_ragged", "b16_q1024_kv1024_full_p16", "b16_q1024_kv1024_full_ragged",
                          "b4_q4096_kv4096_causal_p16", "b4_q4096_kv4096_causal_ragged", "b4_q4096_kv4096_full_p16", "b4_q4096_kv4096_full_ragged",
                          "b1_q16384_kv16384_causal_p16", "b1_q16384_kv16384_causal_ragged", "b1_q16384_kv16384_full_p16", "b1_q16384_kv16384_full_ragged",
                          "b8_q512_kv8192_causal_p16"],
                         [385, 297, 612, 490, 1194, 890, 2168, 1730, 4244, 3535, 8570, 6848, 1073]))


def replay_us(fn):
    """Median of event-timed replays of a graph of one call after the L2 flush, as bench_peers.py times peers."""
    import torch, triton.testing as tt
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        for _ in range(3):
            fn()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        fn()
    return tt.do_bench(lambda: g.replay(), warmup=20, rep=120, return_mode="median") * 1e3


def floor_us(nbytes):
    return float(np.interp(nbytes / 1e6, [m for m, _ in FLOOR], [t for _, t in FLOOR])) if nbytes < 2147e6 else nbytes / 2147e6 * 500.2


def launcher(dev, symbol, grid, threads, shared, p):
    import torch
    return lambda: dev.launch(symbol, grid, threads, shared, p, torch.cuda.current_stream().cuda_stream)


def words(*shape):
    import torch
    return torch.zeros(*shape, dtype=torch.int32, device="cuda")


def time_decode(dev, args):
    import torch
    for case in DECODE:
        b, n, hq, hk, d, ps, opt = case
        name = f"b{b}_kv{n}_h{hq}/{hk}_d{d}_p{ps}_bf16" + "".join(f"_{k}{v}" for k, v in opt.items())
        if args.match not in name:
            continue
        gen = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        pages, L, w = -(-n // ps), opt.get("q_len", 1), opt.get("window", -1)
        lens = torch.randint(1, n + 1, (b,), generator=gen, dtype=torch.int32) if "ragged" in opt else torch.full((b,), n, dtype=torch.int32)
        kv = torch.randn(b * pages, 2, hk, ps, d, device="cuda", dtype=torch.bfloat16)
        q = torch.randn(b * L, hq, d, device="cuda", dtype=torch.bfloat16)
        table = torch.randperm(b * pages, device="cuda", dtype=torch.int32).view(b, pages)
        out = torch.full_like(q, float("nan"))
        read = lens.clamp(max=w + 1) if w >= 0 else lens
        nbytes = 2 * int(read.sum()) * hk * d * 2 + 2 * q.numel() * 2
        dl = lens.cuda()
        threads, shared, most = launch_facts("DECODE", d, args.target)
        rows = next((r for r in (8, 16, 32) if r >= min(hq // hk * L, most)), most)
        ws, counters, fault = torch.full((2 * dev.sms * rows * (d + 2),), float("nan"), device="cuda"), words(dev.sms), words(8)
        p = P["DecodeParams"]()
        p.q, p.k, p.v = q.data_ptr(), kv.data_ptr(), kv.data_ptr() + hk * ps * d * 2
        p.block_tables, p.seq_lens, p.out, p.workspace, p.counters, p.fault = (x.data_ptr() for x in (table, dl, out, ws, counters, fault))
        p.q_token, p.q_head, p.k_page, p.k_head, p.k_token = hq * d, d, 2 * hk * ps * d, ps * d, d
        p.v_page, p.v_head, p.v_token, p.table_row, p.tokens, p.pages = 2 * hk * ps * d, ps * d, d, pages, b * L, b * pages
        p.bmm1_scale, p.bmm2_scale, p.batch, p.q_heads, p.kv_heads, p.q_len, p.max_q_len = 1 / math.sqrt(d), 1, b, hq, hk, L, L
        p.page_size, p.max_pages, p.max_seq_len, p.window_left, p.tile_rows = ps, pages, n, w, rows
        symbol = f"decode_h{d}_bf16_kvbf16_{args.target}"
        best = {}
        for m in args.min_units:
            p.min_units = m
            best[m] = replay_us(launcher(dev, symbol, (dev.sms,), threads, shared, p))
        worst = 0.0  # against float64 on the first and the last request
        for r in {0, b - 1}:
            s = int(lens[r])
            c = kv[table[r, : -(-s // ps)].long()].transpose(2, 3).flatten(0, 0)  # [pages, 2, P, Hkv, D]
            kk, vv = (c[:, i].reshape(-1, hk, d)[:s].double() for i in (0, 1))
            qq = q[r * L : (r + 1) * L].double().view(L, hk, hq // hk, d)
            sc = torch.einsum("lhgd,shd->lhgs", qq, kk) / math.sqrt(d)
            pos = torch.arange(s - L, s, device="cuda")[:, None]
            j = torch.arange(s, device="cuda")[None]
            see = (j <= pos) & ((j >= pos - w) if w >= 0 else (j >= 0))
            want = torch.einsum("lhgs,shd->lhgd", sc.masked_fill(~see[:, None, None], -math.inf).softmax(-1), vv).reshape(L, hq, d)
            err = (out[r * L : (r + 1) * L].double() - want).abs().amax(-1) / want.abs().amax(-1)
            worst = max(worst, float(err.max()) if not err.isnan().any() else math.inf)
        us = min(best.values())
        fl = floor_us(nbytes)
        line = dict(op="decode", case=name, symbol=symbol, us=round(us, 2), tbps=round(nbytes / us / 1e6, 3), floor_us=round(fl, 1),
                    of_floor=round(fl / us, 3), peer_us_recorded=DECODE_PEERS.get(name), row_err=round(worst, 5))
        if name in DECODE_PEERS:
            line["ratio_recorded"] = round(DECODE_PEERS[name] / us, 3)
        if len(best) > 1:
            line["min_units_us"] = {str(m): round(t, 2) for m, t in best.items()}
        if worst > 0.012 or int(fault[0]) or int(counters.abs().max()):
            line["WRONG"] = f"error {worst}, fault {fault.tolist()}, counters {int(counters.abs().max())}"
        print(json.dumps(line), flush=True)
        del kv, q, out, ws
        torch.cuda.empty_cache()


def time_prefill(dev, args, tma=False):
    import torch
    for b, nq, nk, hq, hk, d, causal, ps in PREFILL:
        name = f"b{b}_q{nq}_kv{nk}_h{hq}/{hk}_d{d}/{d}_{'causal' if causal else 'full'}_{'p%d' % ps if ps else 'ragged'}_bf16"
        if args.match not in name:
            continue
        torch.manual_seed(0)
        q = torch.randn(b * nq, hq, d, device="cuda", dtype=torch.bfloat16)
        out = torch.full_like(q, float("nan"))
        ql, kl = (torch.full((b,), n, dtype=torch.int32, device="cuda") for n in (nq, nk))
        counters, fault = words(2), words(8)
        p = P["PrefillParams"]()
        if ps:
            pages = -(-nk // ps)
            kv = torch.randn(b * pages, 2, hk, ps, d, device="cuda", dtype=torch.bfloat16)
            table = torch.randperm(b * pages, device="cuda", dtype=torch.int32).view(b, pages)
            p.k, p.v, p.block_tables = kv.data_ptr(), kv.data_ptr() + hk * ps * d * 2, table.data_ptr()
            p.k_page = p.v_page = 2 * hk * ps * d
            p.k_head = p.v_head = ps * d
            p.k_token = p.v_token = d
            p.table_row, p.pages, p.page_size, p.max_pages = pages, b * pages, ps, pages
        else:
            k, v = (torch.randn(b * nk, hk, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            p.k, p.v, p.kv_tokens = k.data_ptr(), v.data_ptr(), b * nk
            p.k_token = p.v_token = hk * d
            p.k_head = p.v_head = d
        p.q, p.q_lens, p.kv_lens, p.out, p.counters, p.fault = (x.data_ptr() for x in (q, ql, kl, out, counters, fault))
        p.q_token, p.q_head, p.tokens, p.scale, p.batch, p.q_heads, p.kv_heads = hq * d, d, b * nq, 1 / math.sqrt(d), b, hq, hk
        p.max_q_len, p.max_kv_len, p.causal = nq, nk, int(causal)
        threads, shared, per_sm = launch_facts("PREFILL" + "_TMA" * tma, d, args.target)
        symbol = f"prefill_h{d}_bf16{'_tma' * tma}_{args.target}"
        if tma:
            assert tma_maps(dev, p, BF16, d, d)
        us = replay_us(launcher(dev, symbol, (per_sm * dev.sms,), threads, shared, p))
        worst = 0.0  # 64 rows each of the first and the last request, two heads
        for r in {0, b - 1}:
            if ps:
                c = kv[table[r].long()].transpose(2, 3)
                kk, vv = (c[:, i].reshape(-1, hk, d)[:nk].double() for i in (0, 1))
            else:
                kk, vv = (x[r * nk : (r + 1) * nk].double() for x in (k, v))
            rows = torch.linspace(0, nq - 1, 64, device="cuda").long()
            for h in (0, hq - 1):
                sc = q[r * nq + rows, h].double() @ kk[:, h // (hq // hk)].T / math.sqrt(d)
                if causal:
                    sc.masked_fill_(torch.arange(nk, device="cuda")[None] > (rows + nk - nq)[:, None], -math.inf)
                want = sc.softmax(-1) @ vv[:, h // (hq // hk)]
                err = (out[r * nq + rows, h].double() - want).abs().amax(-1) / want.abs().amax(-1)
                worst = max(worst, float(err.max()) if not err.isnan().any() else math.inf)
        pairs = nq * nk - (nq * (nq - 1) // 2 if causal else 0)
        flops = 4 * d * hq * b * pairs
        line = dict(op="prefill", case=name, symbol=symbol, us=round(us, 1), tflops=round(flops / us / 1e6, 1), row_err=round(worst, 5))
        peer = PREFILL_PEERS.get(name.split("_h")[0] + ("_causal_" if causal else "_full_") + (f"p{ps}" if ps else "ragged")) if d == 128 else None
        if peer:
            line.update(peer_us_recorded=peer, ratio_recorded=round(peer / us, 3))
        if worst > 0.012 or int(fault[0]) or int(counters.abs().max()):
            line["WRONG"] = f"error {worst}, fault {fault.tolist()}, counters {int(counters.abs().max())}"
        print(json.dumps(line), flush=True)
        torch.cuda.empty_cache()


def time_layer(dev, args):
    """The other kernels on a Llama-3-8B layer's shapes, one token and 64, with the bytes they must move."""
    import torch
    rnd = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)

    def show(case, symbol, us, nbytes):
        print(json.dumps(dict(op=symbol.rsplit("_", 2)[0], case=case, symbol=symbol, us=round(us, 2), tbps=round(nbytes / us / 1e6, 3),
                              floor_us=round(floor_us(nbytes), 1))), flush=True)

    for T in (1, 64, 4096):
        x, y, w, out, tot = rnd(T, 4096), rnd(T, 4096), rnd(4096), rnd(T, 4096), rnd(T, 4096)
        p = P["RMSNormParams"]()
        p.x, p.residual, p.weight, p.out, p.sum, p.x_row, p.residual_row, p.rows, p.columns, p.eps = (
            x.data_ptr(), y.data_ptr(), w.data_ptr(), out.data_ptr(), tot.data_ptr(), 4096, 4096, T, 4096, 1e-5)
        sym = f"rmsnorm_bf16_{args.target}"
        show(f"t{T}_h4096_residual", sym, replay_us(launcher(dev, sym, (min(T, 8 * dev.sms),), 256, 0, p)), 8 * T * 4096)
        g, u, o = rnd(T, 14336), rnd(T, 14336), rnd(T, 14336)
        p2 = P["SiLUMulParams"]()
        p2.gate, p2.up, p2.out, p2.gate_row, p2.up_row, p2.rows, p2.columns = g.data_ptr(), u.data_ptr(), o.data_ptr(), 14336, 14336, T, 14336
        sym = f"silu_mul_bf16_{args.target}"
        show(f"t{T}_i14336", sym, replay_us(launcher(dev, sym, (min(-(-T * 14336 // 2048), 8 * dev.sms),), 256, 0, p2)), 6 * T * 14336)
        q, k, v, qo = rnd(T, 32, 128), rnd(T, 8, 128), rnd(T, 8, 128), rnd(T, 32, 128)
        cache = rnd(T, 2, 8, 16, 128)
        table = torch.arange(T, dtype=torch.int32, device="cuda").view(T, 1)
        pos, req, fault = words(T), torch.arange(T, dtype=torch.int32, device="cuda"), words(8)
        p3 = P["AppendParams"]()
        p3.k, p3.v, p3.q, p3.q_out, p3.k_cache, p3.v_cache = k.data_ptr(), v.data_ptr(), q.data_ptr(), qo.data_ptr(), cache.data_ptr(), cache.data_ptr() + 8 * 16 * 128 * 2
        p3.block_tables, p3.positions, p3.requests, p3.fault = table.data_ptr(), pos.data_ptr(), req.data_ptr(), fault.data_ptr()
        p3.k_row_token, p3.k_row_head, p3.v_row_token, p3.v_row_head, p3.q_token, p3.q_head = 1024, 128, 1024, 128, 4096, 128
        p3.k_page, p3.k_head, p3.k_token, p3.v_page, p3.v_head, p3.v_token = 2 * 8 * 16 * 128, 2048, 128, 2 * 8 * 16 * 128, 2048, 128
        p3.table_row, p3.tokens, p3.pages, p3.k_scale, p3.v_scale, p3.batch, p3.q_heads, p3.kv_heads = 1, T, T, 1, 1, T, 32, 8
        p3.k_dim, p3.v_dim, p3.page_size, p3.max_pages, p3.rotary = 128, 128, 16, 1, 128
        for i, t in enumerate(turns_of(128, 5e5)):
            p3.turns[i] = t
        sym = f"append_bf16_bf16_{args.target}"
        show(f"t{T}_h32/8_d128_rope", sym, replay_us(launcher(dev, sym, (min(-(-T * 6 // 8), 8 * dev.sms),), 256, 0, p3)), 4 * T * 48 * 128)
    logits, ids = rnd(1, 128256), words(1)
    p4 = P["ArgmaxParams"]()
    p4.x, p4.out, p4.x_row, p4.rows, p4.columns = logits.data_ptr(), ids.data_ptr(), 128256, 1, 128256
    sym = f"argmax_bf16_{args.target}"
    show("t1_v128256", sym, replay_us(launcher(dev, sym, (1,), 1024, 0, p4)), 2 * 128256)


def time_linear(dev, args):
    import torch
    rnd = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)
    for T, n_in, n_out in ((1, 4096, 6144), (1, 4096, 4096), (1, 4096, 28672), (1, 14336, 4096), (1, 4096, 128256), (8, 4096, 4096), (64, 4096, 4096), (4096, 4096, 4096)):
        x, w, o = rnd(T, n_in), rnd(n_out, n_in), rnd(T, n_out)
        p = P["LinearParams"]()
        p.x, p.weight, p.out, p.x_row, p.weight_row, p.rows, p.out_dim = x.data_ptr(), w.data_ptr(), o.data_ptr(), n_in, n_in, T, n_out
        setattr(p, "in", n_in)
        if T <= 16:
            sym = f"gemv_bf16_{args.target}"
            us = replay_us(launcher(dev, sym, (-(-n_out // 8),), 256, 0, p))
        else:
            sym = f"gemm_bf16_{args.target}"
            us = replay_us(launcher(dev, sym, (-(-n_out // 128), -(-T // 64)), 128, 0, p))
        lib = replay_us(lambda: torch.mm(x, w.T))
        nbytes = 2 * (T * n_in + n_out * n_in + T * n_out)
        err = float((o.double() - x.double() @ w.double().T).norm() / (x.double() @ w.double().T).norm()) if n_out <= 28672 else None
        print(json.dumps(dict(op="linear", case=f"t{T}_in{n_in}_out{n_out}", symbol=sym, us=round(us, 2), tbps=round(nbytes / us / 1e6, 3),
                              tflops=round(2 * T * n_in * n_out / us / 1e6, 1), cublas_us=round(lib, 2), floor_us=round(floor_us(nbytes), 1), rel_err=err)), flush=True)


# ---- running ----

def check(args, dev, part, cases, call):
    bad, n, start, worst = 0, 0, time.time(), 0.0
    for i, (name, kw) in enumerate(cases.items()):
        if args.match not in name:
            continue
        n += 1
        try:
            e = call(dev, np.random.default_rng(args.seed + i), args.target, **kw)
            worst = max(worst, e or 0.0)
            if args.verbose:
                print(f"ok {part}/{name} {e or 0:.2g}", flush=True)
        except (Failure, AssertionError, RuntimeError) as e:
            bad += 1
            print(f"FAIL {part}/{name}: {e}", flush=True)
            if "CUDA_ERROR" in str(e):
                sys.exit(1)
    print(json.dumps(dict(check=part, cases=n, failed=bad, worst_nmse=worst, seconds=round(time.time() - start, 1), seed=args.seed)), flush=True)
    return bad


PARTS = {"decode": (decode_cases, decode_case, time_decode), "prefill": (prefill_cases, prefill_case, time_prefill),
         "prefill_tma": (prefill_tma_cases, prefill_case, lambda dev, args: time_prefill(dev, args, True)),
         "layer": (layer_cases, layer_case, time_layer), "linear": (linear_cases, linear_case, time_linear), "engine": (engine_cases, engine_case, None)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--emu")
    ap.add_argument("--cubins")
    ap.add_argument("--target", default="sm90a")
    ap.add_argument("--only", help="parts; all, where not given")
    ap.add_argument("--match", default="")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--verbose", action="store_true")
    ap.add_argument("--no-check", action="store_true")
    ap.add_argument("--no-time", action="store_true")
    ap.add_argument("--min-units", type=lambda x: [int(n) for n in x.split(",")], default=[0], help="decode: values to time, the best counts")
    args = ap.parse_args()
    dev = Emu(args.emu) if args.emu else Cuda(args.cubins, args.target)
    bad = 0
    parts = args.only.split(",") if args.only else [x for x in PARTS if args.target == "sm90a" or not x.endswith("_tma")]
    for part in parts:
        cases, call, clock = PARTS[part]
        if not args.no_check:
            bad += check(args, dev, part, cases(), call)
        if clock and not args.emu and not args.no_time:
            clock(dev, args)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
