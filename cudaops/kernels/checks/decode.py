"""Cases of paged decode."""
import math
import numpy as np

from .attention import FAR, LAYOUTS, Cache, attend, far_keys, far_keys_e4m3, far_query, far_query_e4m3, huge_keys, inf_keys, inf_query, one_key, one_query
from .buffers import Failure, Run, compare
from .device import P, decode_facts, set_divisors
from .numbers import BF16, E4M3, F16, F32, F8, HALVES, KIND, LOG2E, e4m3_encode

TYPES = {"f16": 1, "bf16": 2, "e4m3": 3, "nvfp4": 4}  # enum ElementType


class Codes:
    """An output of nvfp4: pairs of e2m1 codes, and block scales in the swizzled layout from row `start` on, between rows that stay as they were."""

    start, encode = 37, 300.0

    def __init__(self, run, p, T, hq, d, shift):
        self.T, self.hq, self.d = T, hq, d
        self.columns = -(-hq * d // 16 // 4) * 4
        self.shift, self.codes = shift, run.put(np.full(shift + T * hq * d // 2, 0xFF, np.uint8))
        self.scales = run.put(np.full(-(-(self.start + T) // 128) * 128 * self.columns, 0xA5, np.uint8))
        p.out, p.out_scale = self.codes.at + shift, self.scales.at
        p.out_sf_scale, p.out_sf_start, p.out_sf_columns = self.encode, self.start, self.columns

    def check(self, want):
        """The scale is that of the largest element, or a neighbour; codes are the nearest for it; both but for what f32 sums may differ in."""
        if not self.T:
            return 0.0
        blocks = want.reshape(self.T, self.hq * self.d // 16, 16) * self.encode
        row, column = np.meshgrid(self.start + np.arange(self.T), np.arange(blocks.shape[1]), indexing="ij")
        at = (row // 128 * (self.columns // 4) + column // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
        raw = self.scales.get()
        rest = np.ones(raw.size, bool)
        rest[at] = False
        if (raw[rest] != 0xA5).any():
            raise Failure("wrote scales of other rows or columns")
        got, bits = raw[at], self.codes.get()[self.shift :].reshape(self.T, -1)
        code = np.stack([bits & 15, bits >> 4], -1).reshape(blocks.shape)
        nan = np.isnan(blocks).any(-1)
        if ((got == 127) != nan).any() or (code[nan] != 7).any():
            raise Failure(f"NaN: scales {got[nan]}, codes {code[nan]}")
        top = np.where(nan, 0, np.abs(np.where(nan[..., None], 0, blocks)).max(-1))
        if (np.abs(got.astype(int) - e4m3_encode(top / 6)) > 1)[~nan].any():
            raise Failure(f"scales {got}, want {e4m3_encode(top / 6)}")
        scale = E4M3[got]
        if (code[scale == 0] != 0).any():
            raise Failure("codes beside a scale of 0")
        live = ~nan & (scale != 0)
        x, s = blocks[live], scale[live][:, None]
        value = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        y = value[code[live] & 7] * np.where(code[live] & 8, -1, 1)
        best = np.abs(np.clip(x / s, -6, 6)[..., None] - np.concatenate([value, -value])).min(-1)
        err = np.abs(np.clip(x / s, -6, 6) - y)
        slack = 0.01 * np.abs(x).max(-1, keepdims=True) / s
        if (err > best + slack).any():
            raise Failure(f"{np.count_nonzero(err > best + slack)} of {err.size} codes are not the nearest")
        return 0.0


def decode_case(dev, rng, target, dt=BF16, kv=None, out=None, d=128, lens=(37,), hq=8, hkv=2, page=16, L=1, qlens=None, layout="hnd", window=-1, sinks=None, mask=None,
                c1=None, c2=1.0, device_scales=False, q_gap=0, q_head_gap=0, max_seq=None, grid=None, min_units=0, lse=True, values=None, table_gap=0,
                break_it=None, expect=None, rounds=1, values_q=None, max_q=None, far_pages=0, unsure=(), shift=0, many=False):
    run = Run(dev, rng)
    try:
        lens = list(lens)
        B, G = len(lens), hq // hkv
        ql = list(qlens) if qlens is not None else [L] * B
        T = sum(ql)
        kv = kv or dt
        out_type = out or dt.name
        cache = Cache(run, kv, lens, hkv, page, d, layout=layout, values=values, table_gap=table_gap)
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
        maxL = max(ql, default=1) if qlens is not None else L
        maxL = max_q or max(maxL, 1)
        threads, shared, rows, _ = decode_facts(d, kv is F8, G * maxL, target)
        grid = grid or dev.sms
        p = P["DecodeParams"]()
        p.q_type, p.out_type = TYPES[dt.name] if kv is F8 else 0, TYPES[out] if out else 0
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
        p.workspace, p.counters, p.fault = ws.at, counters.at, run.fault.at
        if out_type == "nvfp4":
            codes = Codes(run, p, T, hq, d, shift)
        else:
            odt = KIND[out_type]
            result = run.nan((shift + T * hq * d,), odt)  # the output begins `shift` elements off the allocation's start
            p.out = result.at + shift * odt.size
            answer = lambda: odt.decode(result.get()[shift:]).reshape(T, hq, d)
        if lse:
            p.lse, p.lse2 = l1.at, l2.at
        p.q_token, p.q_head = ts, hs
        p.k_page, p.k_head, p.k_token = cache.ks
        p.v_page, p.v_head, p.v_token = cache.vs
        p.table_row, p.tokens, p.pages = cache.table_row, T, cache.pages
        p.batch, p.q_heads, p.kv_heads, p.q_len, p.max_q_len = B, hq, hkv, L if qlens is None else maxL, maxL
        p.page_size, p.max_pages, p.max_seq_len = page, cache.max_pages, max_seq or cache.max_pages * page
        p.window_left, p.min_units, p.op = window, min_units, 77
        set_divisors(p)
        if far_pages:  # the pages have ids so much higher, and the pool begins so much lower: nothing lies there
            table = cache.table.copy()
            for b, used in enumerate(cache.used):
                table[b, : len(used)] += far_pages
            dev.write(cache.tdev.at, table)
            p.pages += far_pages
            p.k -= far_pages * cache.ks[0] * kv.size
            p.v -= far_pages * cache.vs[0] * kv.size
        bad = set()
        if break_it:
            bad = break_it(dict(run=run, p=p, table=cache.table, tdev=cache.tdev, lens=lens, sl=sl, cum=cum, cache=cache)) or set()
        name = f"decode_h{d}_r{rows}_" + (f"kve4m3_{target}" if kv is F8 else f"{dt.name}_kv{dt.name}_{target}")
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
                    see = np.array([[jj < S - n or mask(b, i, jj - (S - n)) for jj in range(S)] for i in range(n)], bool).reshape(n, S)
                if window >= 0:
                    see &= j >= pos - window
                want[at : at + n], wl[at : at + n] = attend(q[at : at + n], cache.k[b], cache.v[b], c1r, c2r, see, sinks)
            at += n
        sure = np.setdiff1d(np.arange(T), unsure)  # rows that no two requests claim
        if out_type == "nvfp4":
            e = codes.check(want)
        elif odt is F8:  # what f32 sums to the right of the point rounds to: half a step, and what the sums may differ in
            got = answer()
            sat = np.clip(want, -448, 448)
            top = np.abs(np.where(np.isfinite(sat), sat, 0)).max(axis=-1, keepdims=True, initial=0)
            e = compare("out", got, sat, odt, 0, 0.5 * odt.step(sat) + 1e-3 * top)
        else:
            cut = max(lens) * 2.0**-25 * np.abs(np.nan_to_num(want)).max() if many and dev.cuts else 0
            e = compare("out", answer()[sure], want[sure], odt, floor=cut, nmse=(cut + 2e-3) ** 2 if cut else None)
        if lse:
            wl = wl[sure]
            compare("lse", l1.get()[sure][..., None], F32.round(wl)[..., None], F32, 0, 3e-3 + 1e-3 * np.abs(np.where(np.isfinite(wl), wl, 0))[..., None], nmse=1)
            compare("lse2", l2.get()[sure][..., None], F32.round(wl * LOG2E)[..., None], F32, 0, 5e-3 + 1e-3 * np.abs(np.where(np.isfinite(wl), wl, 0))[..., None], nmse=1)
        if (counters.get() != 0).any():
            raise Failure(f"counters are left at {counters.get()}")
        reason, rest = run.faults()
        if expect is None and reason:
            raise Failure(f"fault {reason} {rest} without cause")
        found = (reason, *rest)
        if expect is not None and all(found[: len(e)] != e for e in (expect if isinstance(expect, set) else {expect})):
            raise Failure(f"fault {found}, want reason and request, and maybe what was got and wanted: {expect}")
        if reason and run.fault.get()[4:8].view(np.uint32)[0] != p.op:
            raise Failure("the fault names another op")
        for b in run.buffers:
            b.get()
        return e
    finally:
        run.done()


def decode_cases():
    """name → arguments of decode_case."""
    c = {}
    for d in DIMS:
        for dt in HALVES:
            c[f"{dt.name}/d={d}"] = dict(dt=dt, d=d, lens=(37, 5, 0, 130))
        for g, L in ((3, 4), (8, 3)):  # tiles of 16 rows and of the most
            c[f"d={d}/group={g}/q_len={L}"] = dict(d=d, lens=(70, 150, 3), L=L, hq=2 * g, page=(16, 5)[g == 3], layout=("nhd", "odd")[g == 3], dt=F16)
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
    # Rows that see no key are 0 whatever the scales, also where their segment is cut between blocks, and where a sink has all the weight.
    for n, d in (("", 64), ("/d=128", 128)):
        c["nan_scale/cut" + n] = dict(lens=(100, 5), L=140, hq=1, hkv=1, c1=math.nan, device_scales=True, d=d, grid=13, min_units=1)
        for c2 in math.nan, math.inf:
            c[f"sink_alone/c2={c2}{n}"] = dict(lens=(0, 5), L=7, hq=2, hkv=1, c2=c2, device_scales=True, d=d, sinks=(1, -2), values=lambda k, v: (k, [abs(x) for x in v]))
    c["nan_scale/cut/e4m3"] = dict(kv=F8, lens=(100, 5), L=140, hq=1, hkv=1, c1=math.nan, device_scales=True, d=64, grid=13, min_units=1)
    for shift in 1, 2, 4:
        c[f"shift={shift}"] = dict(lens=(37, 12), d=64, shift=shift)
        c[f"shift={shift}/nvfp4"] = dict(kv=F8, out="nvfp4", lens=(37, 12), d=64, shift=shift)
        c[f"shift={shift}/e4m3"] = dict(kv=F8, out="e4m3", lens=(37, 12), d=64, shift=shift)
    c["q_strided"] = dict(lens=(21, 7), q_gap=1024, hq=8)
    c["q_heads_apart"] = dict(lens=(21, 7), q_gap=40, q_head_gap=8, hq=8)
    c["q_odd"] = dict(lens=(21, 7), q_gap=3, q_head_gap=1, hq=8, d=64)
    for n in (1 << 20, 5 << 20):  # elements past 2^31 and 2^33 of the first
        c[f"far_pages={n}"] = dict(lens=(70, 21), far_pages=n, d=64)
        c[f"far_pages={n}/page=5"] = dict(lens=(70, 21), far_pages=4 * n, d=64, page=5, layout="nhd")
        c[f"far_pages={n}/e4m3"] = dict(lens=(70, 21), far_pages=n, kv=F8)
    c["table_slice"] = dict(lens=(21, 70), table_gap=5, d=64)
    c["no_lse"] = dict(lens=(21, 70), lse=False, d=64)
    c["rounds"] = dict(lens=(400, 70), hq=4, hkv=1, rounds=3, d=64)
    for B, L in ((3, 70), (2, 33)):  # masks of several words
        c[f"mask/words/q_len={L}"] = dict(lens=(100, L, 90)[:B], L=L, hq=2, hkv=1, d=64, mask=lambda b, i, x: (i * 5 + x * 3 + b) % 7 < 4)
    far = dict(values=far_keys, values_q=far_query, c1=1.25, hq=4, d=64)
    for dt in HALVES:
        c[f"far_scores/{dt.name}"] = dict(far, dt=dt, lens=(300, 37, 2))
    c["far_scores/d=128"] = dict(far, d=128, lens=(700, 20), L=3)
    c["far_scores/sinks"] = dict(far, lens=(300, 37, 2), sinks=(FAR + 2, FAR - 1, FAR + 40, FAR + 300))
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
        c[f"bad/table={value}"] = dict(lens=(37, 5, 33), hq=4, d=64, L=2, break_it=table(2, 1, value), expect=(7, 2, value, 10))
    c["bad/table/page=5"] = dict(lens=(37, 5, 33), hq=4, d=64, page=5, break_it=table(0, 3, -7), expect=(7, 0))
    c["bad/table/split"] = dict(lens=(900, 5, 33), hq=4, hkv=1, d=64, break_it=table(0, 20, -7), expect=(7, 0))
    c["bad/table/one_block"] = dict(lens=(100, 200, 150), hq=4, d=64, grid=1, break_it=table(0, 1, -7), expect=(7, 0, -7, 33))  # whose places in the ring are used again
    c["bad/table/window"] = dict(lens=(37, 5, 73), hq=4, d=64, window=37, break_it=table(2, 2, 1 << 20), expect=(7, 2))  # of that page a half is seen
    c["bad/len=-1"] = dict(lens=(37, 5, 33), hq=4, d=64, break_it=lengths(1, -1), expect=(1, 1, -1, 0), sinks=(0, 1, 2, 3))
    c["bad/len_over_table"] = dict(lens=(37, 5, 33), hq=4, d=64, break_it=lengths(1, 16 * 5 + 1), expect=(2, 1, 81, 80), max_seq=1 << 20)
    c["bad/len_over_max"] = dict(lens=(37, 5, 33), hq=4, d=64, break_it=lengths(2, 38), expect=(3, 2, 38, 37), max_seq=37)
    def sums(b, values):
        def f(x):
            x["run"].dev.write(x["cum"].at, np.asarray(values, np.int32))
            return {b}
        return f

    q = dict(lens=(37, 25, 33), qlens=(2, 5, 3), hq=4, d=64)
    c["bad/q_len_over_max"] = dict(q, max_q=4, break_it=lambda x: {1}, expect=(4, 1, 5, 4))
    c["bad/q_len_negative"] = dict(q, max_q=9, break_it=sums(1, (0, 7, 4, 10)), expect=(5, 1, 4, 7), unsure=range(10))
    c["bad/q_rows"] = dict(q, break_it=sums(2, (0, 2, 7, 1 << 30)), expect={(6, 2), (6, -1)})
    c["bad/q_rows/start"] = dict(q, break_it=sums(0, (-3000, 2, 7, 10)), expect={(6, 0), (6, -1)})
    c["bad/q_rows/end"] = dict(q, break_it=sums(2, (0, 2, 7, 9)), expect=(6, -1, 9, 10), unsure=range(7, 10))
    c.update(e4m3_cases(plant, one_nan, nan_q, table, lengths))
    every = lambda x: x["run"].dev.write(x["sl"].at, np.full(len(x["lens"]), -5, np.int32)) or set(range(len(x["lens"])))
    for B in (32, 33, 128, 129):  # requests that a warp scans, or a block, one a thread and then two
        c[f"batch={B}"] = dict(lens=tuple((i * 7) % 40 for i in range(B)), hq=2, hkv=1, d=64)
        c[f"bad/batch={B}"] = dict(lens=tuple((i * 7) % 40 for i in range(B)), hq=2, hkv=1, d=64, break_it=every, expect={(1, b, -5, 0) for b in range(B)})
    for d in DIMS:  # more parts of a segment than one batch of a merge
        for L in (1, 3, 7):
            c[f"parts/d={d}/q_len={L}"] = dict(d=d, lens=(9, 700), hq=4, hkv=1, L=L, grid=41, min_units=1, sinks=(1, -1, 0, -math.inf))
    c["ragged/first_empty"] = dict(lens=(40, 20, 0, 7), qlens=(0, 3, 0, 1), hq=4, d=64)
    for gap in 17.0, 17.5:
        one = dict(dt=F16, d=64, lens=(40000,), hq=1, hkv=1, page=64, c1=1.0, grid=1, values=one_key(True), values_q=one_query(gap), many=True)
        c[f"one_key/gap={gap}"] = one
        c[f"one_key/gap={gap}/cut"] = dict(one, grid=5, values=one_key(False))
        c[f"one_key/gap={gap}/e4m3"] = dict(one, kv=F8)
        c[f"one_key/gap={gap}/sinks"] = dict(one, sinks=(gap - 1,))
    for c1 in 3e38, -3e38, 1e-45:  # whose products with log2(e) are beyond float32, and nearly 0
        for n, more in (("", {}), ("/e4m3", dict(kv=F8)), ("/device", dict(device_scales=True))):
            c[f"scale={c1}{n}"] = dict(dict(lens=(37, 12), L=2, d=64, hq=4, c1=c1, values_q=lambda q: q * (np.arange(q.shape[0]) % 2)[:, None, None]), **more)
    for n, more in (("", {}), ("/e4m3", dict(kv=F8)), ("/cut", dict(kv=F8, grid=13, min_units=1))):
        c["c2=1e-37" + n] = dict(dict(lens=(150, 1000), hq=4, d=64, c2=1e-37, values=lambda k, v, dt=more.get("kv", BF16): (k, [dt.round(64 * x) for x in v])), **more)
    largest = float(np.finfo(np.float32).max)  # whose natural logarithm's base-2 twin is beyond it
    c["sinks/large"] = dict(lens=(37, 0, 2), L=3, sinks=(-largest, largest, -3e38, 3e38), hq=4, hkv=2, d=64)
    nan = dict(lens=(40, 0), L=2, hq=2, hkv=1, d=64, dt=F16, c1=math.nan, device_scales=True, sinks=(1, -2))
    c["nan_scale/sinks"] = nan
    c["nan_scale/sinks/neg_inf"] = dict(nan, values=inf_keys(), values_q=inf_query)
    for dt in HALVES:
        for size, ramp in ((2, 300), (4, 1), (4, 300)):
            c[f"huge/{dt.name}/size={size}/ramp={ramp}"] = dict(dt=dt, lens=(300, 17), L=3, hq=4, d=64, values=huge_keys(dt, size, ramp),
                                                                values_q=lambda q, dt=dt, size=size: dt.round(q * 10.0 ** size))
    positive_keys = lambda dt: lambda k, v: ([dt.round(abs(x) + 0.5) for x in k], v)
    # A row all of whose scores are -inf is NaN, unless a finite sink takes its weight; one without keys is 0.
    for n, more in (("", {}), ("/d=128", dict(d=128)), ("/e4m3", dict(kv=F8))):
        inf = dict(dict(lens=(40, 2, 0, 90), L=4, hq=4, d=64, dt=F16, values=inf_keys(2), values_q=inf_query), **more)
        if "kv" in more:  # which has no infinity: q has
            inf.update(values=positive_keys(F8), values_q=lambda q: np.where(np.arange(q.shape[0])[:, None, None] % 3 == 1, -np.inf, q))
        c["neg_inf" + n] = inf
        c["neg_inf/one_row" + n] = dict(inf, L=1, lens=(40, 2, 0, 90, 1), values=inf.get("values") if "kv" in more else inf_keys())
        c["neg_inf/sinks" + n] = dict(inf, sinks=(1, -math.inf, math.inf, math.nan))
        c["neg_inf/window" + n] = dict(inf, window=1)
        c["neg_inf/mask" + n] = dict(inf, mask=lambda b, i, x: i > 1 and x >= 4 - i, window=2)
        c["neg_inf/cut" + n] = dict(inf, lens=(100, 300, 5), L=140, hq=1, hkv=1, grid=13, min_units=1)
        c["neg_inf/scale" + n] = dict(inf, c1=-math.inf, device_scales=True, values=positive_keys(inf.get("kv", F16)), values_q=lambda q: F16.round(abs(q) + 0.5))
        c["neg_inf/scale=0" + n] = dict(inf, c1=0.0)
    c["sinks/inf"] = dict(lens=(0, 0), sinks=(math.inf, 2, -math.inf, 80), hq=4, hkv=2, d=64)
    c["sinks/special"] = dict(lens=(37, 0, 300, 2), L=3, sinks=(math.inf, math.nan, -math.inf, 80), hq=4, hkv=2, d=64)
    c["batch=300"] = dict(lens=tuple((i * 7) % 40 for i in range(300)), hq=2, hkv=1, d=64)
    c["batch=600/ragged"] = dict(lens=tuple((i * 7) % 40 for i in range(600)), qlens=tuple(i % 3 for i in range(600)), hq=2, hkv=1, d=64)
    return c


DIMS = (64, 96, 128, 192, 256)


def e4m3_cases(plant, one_nan, nan_q, table, lengths):
    """Caches of e4m3 under every type of q and out."""
    c = {}
    for dt in (BF16, F16, F8):
        e = dict(dt=dt, kv=F8)
        n = f"e4m3/q={dt.name}"
        outs = ("f16", "bf16", "e4m3", "nvfp4") if dt is F8 else (dt.name, "e4m3")
        for out in outs:
            c[f"{n}/out={out}"] = dict(e, out=out, d=64, lens=(37, 5, 0, 130), L=2, c2=1.5)
            c[f"{n}/out={out}/split"] = dict(e, out=out, d=64, lens=(700, 9), hq=6, hkv=2, c2=-0.5, min_units=1, sinks=(1, 0, -2, 3, 1, -math.inf))
            c[f"{n}/out={out}/nan"] = dict(e, out=out, d=64, lens=(20, 33), L=2, hq=4, values=one_nan("v"), values_q=nan_q)
        c[f"{n}/out=e4m3/large"] = dict(e, out="e4m3", d=64, lens=(20, 33), c2=700.0)
        c[f"{n}/one"] = dict(e, lens=(1000,), hq=4, hkv=2)
        c[f"{n}/strided"] = dict(e, lens=(21, 7), q_gap=1024, hq=8)
        c[f"{n}/odd"] = dict(e, lens=(21, 7), q_gap=3, q_head_gap=1, hq=8, d=64)
        c[f"{n}/negative"] = dict(e, lens=(70, 12), c1=-0.125, c2=-2.0, d=64)
        c[f"{n}/far"] = dict(e, lens=(300, 37, 2), values=far_keys_e4m3, values_q=far_query_e4m3 if dt is not F8 else None, c1=1.25, hq=4, d=64)
    e = dict(kv=F8)
    for d in DIMS:
        for dt, out in ((BF16, None), (F16, "e4m3"), (F8, "nvfp4")):
            for g, L in ((1, 1), (4, 2), (3, 5), (8, 4)):
                c[f"e4m3/d={d}/q={dt.name}/group={g}/q_len={L}"] = dict(e, dt=dt, out=out, d=d, lens=(70, 150, 3), L=L, hq=2 * g)
    for page in (1, 3, 8, 16, 32, 48, 64, 100):
        c[f"e4m3/page={page}"] = dict(e, lens=(70, 64, 1, 33), page=page, d=64, hq=4)
    for layout in LAYOUTS:
        for d in (64, 96, 128):
            c[f"e4m3/layout={layout}/d={d}"] = dict(e, lens=(70, 21, 1), layout=layout, L=2, d=d)
        c[f"e4m3/layout={layout}/page=5"] = dict(e, lens=(70, 21, 1), layout=layout, page=5)
    for w in (0, 3, 15, 16, 20, 31, 33, 127):
        for L in (1, 4):
            c[f"e4m3/window={w}/q_len={L}"] = dict(e, lens=(20, 200, 1), window=w, d=64, hq=4, L=L)
    for L in (4, 17, 33):
        c[f"e4m3/mask/q_len={L}"] = dict(e, lens=(100, L, 70, 2), L=L, hq=4, d=64, mask=lambda b, i, x: (i * 7 + x * 3 + b) % 5 < 3)
    c["e4m3/mask/window"] = dict(e, lens=(100, 6, 70), L=4, hq=4, d=64, window=2, mask=lambda b, i, x: (i + x) % 3 < 2)
    c["e4m3/ragged"] = dict(e, lens=(90, 33, 0, 5, 64, 7), qlens=(5, 1, 2, 7, 0, 3), hq=6, hkv=2, d=64, sinks=(1, -1, 0, 2, -3, 4), max_q=9)
    c["e4m3/ragged/windows"] = dict(e, lens=(90, 33, 2), qlens=(5, 1, 2), hq=6, hkv=2, d=64, window=1)
    c["e4m3/sinks"] = dict(e, lens=(37, 0, 300, 2), window=7, sinks=(math.log(8), math.log(24), -math.inf, 80), hq=4, hkv=2, d=64)
    c["e4m3/scale=0"] = dict(e, lens=(37, 70), L=3, c1=0.0, d=64, window=7)
    c["e4m3/rounds"] = dict(e, lens=(400, 70), hq=4, hkv=1, rounds=3, d=64)

    def reach(q):  # rows of any size, of zeros, and with an element far above the others
        q *= np.exp2(np.array([0, -120, -40, 4, 0, 3])[np.arange(q.shape[1]) % 6])[:, None]
        q[0, 1] = 0
        q[0, 4, 9] = 2.0**20
        q[-1, 4, 9] = -(2.0**-120)
        return BF16.round(q)

    def without_nine(k, v):
        for x in k:
            x[..., 9] = 0
        return k, v

    c["e4m3/q/reach"] = dict(e, lens=(60, 33), hq=12, hkv=2, values=without_nine, values_q=reach)

    def extremes(q):
        q[0, 0], q[0, 1, 3], q[1, 2, 5], q[2, 3] = 0, math.inf, -math.inf, -0.0
        q[2, 1, 0] = math.nan
        return q

    for dt in HALVES:
        c[f"e4m3/q/extremes/{dt.name}"] = dict(e, dt=dt, lens=(20, 33, 40), L=2, hq=4, d=64, values_q=extremes)
    c["e4m3/nan/key"] = dict(e, lens=(20, 33), L=2, hq=4, d=64, values=one_nan("k"))
    c["e4m3/nan/hidden"] = dict(e, lens=(40, 9), L=3, hq=4, d=64, values=plant(lambda b, j: b == 0 and j == 39, math.nan))
    c["e4m3/nan/window"] = dict(e, lens=(70, 9), L=2, hq=4, d=64, window=20, values=plant(lambda b, j: b == 0 and j < 48, math.nan))
    c["e4m3/nan/mask"] = dict(e, lens=(40, 9), L=3, hq=4, d=64, values=plant(lambda b, j: j == 39, math.nan), mask=lambda b, i, x: x <= min(i, 1) and (i != 2 or x == 0))
    for out, dt in (("nvfp4", F8), ("e4m3", F16), (None, BF16)):
        c[f"e4m3/bad/table/out={out}"] = dict(e, dt=dt, out=out, lens=(37, 5, 70), hq=4, d=64, L=2, break_it=table(2, 3, -1), expect=(7, 2))
    c["e4m3/bad/table/page=5"] = dict(e, lens=(37, 5, 33), hq=4, d=64, page=5, break_it=table(0, 3, -7), expect=(7, 0))
    c["e4m3/bad/table/split"] = dict(e, lens=(900, 5, 33), hq=4, hkv=1, d=64, break_it=table(0, 20, -7), expect=(7, 0))
    c["e4m3/bad/table/one_block"] = dict(e, lens=(100, 200, 150), hq=4, d=64, grid=1, break_it=table(0, 1, -7), expect=(7, 0, -7, 33))
    c["e4m3/bad/len"] = dict(e, lens=(37, 5, 33), hq=4, d=64, break_it=lengths(1, -1), expect=(1, 1), sinks=(0, 1, 2, 3))
    return c


def large_case(dev, rng, target, hq=256, hkv=2, d=128, batch=70000):
    """An output past 2^31 elements, of a batch of many requests: all see the first of at most 16 keys of one page, by a table of one
    column, and q is one row with a stride of 0. On a GPU only."""
    import torch
    T = batch
    threads, shared, most, per_sm = decode_facts(d, False, 32, target)
    grid = per_sm * dev.sms
    new = lambda *s, dtype=torch.bfloat16: torch.randn(*s, device="cuda", generator=gen).to(dtype)
    gen = torch.Generator("cuda").manual_seed(int(rng.integers(1 << 30)))
    q, kv = new(1, hq, d), new(1, 2, hkv, 16, d)
    lens = (torch.arange(T, device="cuda") * 7 % 17).int()
    table, out = torch.zeros(T, 1, dtype=torch.int32, device="cuda"), torch.full((T, hq, d), math.nan, dtype=torch.bfloat16, device="cuda")
    ws, counters, fault = torch.empty(2 * grid * most * (d + 2), device="cuda"), torch.zeros(grid, dtype=torch.int32, device="cuda"), torch.zeros(8, dtype=torch.int32, device="cuda")
    p = P["DecodeParams"]()
    p.q, p.k, p.v, p.block_tables, p.seq_lens, p.out = q.data_ptr(), kv.data_ptr(), kv[:, 1].data_ptr(), table.data_ptr(), lens.data_ptr(), out.data_ptr()
    p.workspace, p.counters, p.fault = ws.data_ptr(), counters.data_ptr(), fault.data_ptr()
    p.q_token, p.q_head, p.k_page, p.k_head, p.k_token = 0, d, 2 * hkv * 16 * d, 16 * d, d
    p.v_page, p.v_head, p.v_token, p.table_row, p.tokens, p.pages = 2 * hkv * 16 * d, 16 * d, d, 1, T, 1
    p.bmm1_scale, p.bmm2_scale, p.batch, p.q_heads, p.kv_heads, p.q_len, p.max_q_len = 1 / math.sqrt(d), 1, T, hq, hkv, 1, 1
    p.page_size, p.max_pages, p.max_seq_len, p.window_left = 16, 1, 16, -1
    set_divisors(p)
    torch.cuda.synchronize()
    dev.launch(f"decode_h{d}_r{most}_bf16_kvbf16_{target}", (grid,), threads, shared, p)
    torch.cuda.synchronize()
    qq, kk, vv = q[0].double().view(hkv, hq // hkv, d), kv[0, 0].double(), kv[0, 1].double()
    for n in range(17):
        w = (torch.einsum("hgd,hsd->hgs", qq, kk[:, :n]) / math.sqrt(d)).softmax(-1) if n else torch.zeros(hkv, hq // hkv, 0, device="cuda", dtype=torch.double)
        want = torch.einsum("hgs,hsd->hgd", w, vv[:, :n]).reshape(hq, d)
        got = out[lens == n]
        if not ((got - want.to(got.dtype)).abs().amax((0, 2)) <= 0.02 * want.abs().amax(-1) + 1e-6).all():
            raise Failure(f"rows of {n} keys are wrong")
    if int(fault[0]) or int(counters.abs().max()):
        raise Failure(f"fault {fault.tolist()}, counters {int(counters.abs().max())}")
    return 0.0
