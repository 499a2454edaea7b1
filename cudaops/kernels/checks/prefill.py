"""Cases of prefill, by the portable kernel and by the one of bulk tensor copies."""
import math
from itertools import accumulate
import numpy as np

from .attention import LAYOUTS, Cache, attend, far_keys, far_query, huge_keys, inf_keys, inf_query, one_key, one_query
from .buffers import Failure, Run, compare
from .device import P, launch_facts
from .numbers import BF16, F16, F32, F8, HALVES, KIND, LOG2E

TYPES = {"f16": 1, "bf16": 2, "e4m3": 3}  # enum ElementType


def tma_maps(dev, p, dt, d, dv):
    """Fills in what the tma kernel needs; False where it cannot take the call."""
    st = [p.k_token, p.k_head, p.v_token, p.v_head] + ([p.k_page, p.v_page] if p.block_tables else [])
    if any(s % 8 for s in st) or (p.k or 0) % 16 or (p.v or 0) % 16 or p.offsets_k or p.offsets_v or (p.block_tables and p.page_size % 8):
        return False
    n = p.pages if p.block_tables else 1
    rows = p.page_size if p.block_tables else p.kv_tokens
    if not n or not rows:
        return False
    keys = launch_facts("PREFILL_TMA", d if d == dv else f"{d}X{dv}", "sm90a")[2]
    p.box_rows = math.gcd(p.page_size & -p.page_size, keys) if p.block_tables else keys
    for name, at, w, token, head, page in (("k_map", p.k, d, p.k_token, p.k_head, p.k_page), ("v_map", p.v, dv, p.v_token, p.v_head, p.v_page)):
        m = dev.tensor_map(at, dt, [w, rows, p.kv_heads, n], [2 * token, 2 * head, 2 * (page if p.block_tables else 8)], [64, p.box_rows, 1, 1])
        for i in range(16):
            getattr(p, name)[i] = int(m[i])
    return True


def prefill_case(dev, rng, target, dt=BF16, d=128, dv=None, qlens=(37,), lens=(70,), hq=8, hkv=2, page=16, layout="hnd", causal=True, scale=None, q_gap=0,
                 kv_gap=0, extra_rows=0, extra_kv=0, offsets=0, gap=0, stats=False, max_q=None, max_kv=None, grid=None, values=None, break_it=None,
                 expect=None, rounds=1, table_gap=0, tma=False, values_q=None, out_type=None, scales=(0.75, 0.5, 1.5), shift=0, far=0, unsure=(), many=False):
    """page 0: ragged keys. offsets: bytes of explicit batch offsets, with `gap` unused rows before each request. out_type, and scales of q, k
    and v: for e4m3, whose own type is the output's where none is given. shift: elements by which the output is off the allocation's start. far:
    elements by which bases lie before the allocations, and that offsets, page numbers or requests before the last make up for. unsure: requests
    that claim rows of each other's, or other rows than they have. many: so many keys that what tensor cores cut off their sums shows."""
    run = Run(dev, rng)
    try:
        dv = dv or d
        od = KIND[out_type] if out_type else dt
        B = len(qlens)
        scale = scale if scale is not None else 1 / math.sqrt(d)
        packed = lambda ls: list(accumulate(ls, initial=0))
        starts = lambda ls: [n + (gap * (b + 1) if offsets else 0) for b, n in enumerate(packed(ls))]
        q0, k0, stat0 = starts(qlens), starts(lens), packed(qlens)
        T = sum(qlens) + (gap * B if offsets else 0) + extra_rows
        ts = hq * d + q_gap
        q = [dt.round(rng.standard_normal((n, hq, d))) for n in qlens]
        if values_q:
            q = [values_q(x) for x in q]
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
                offs[name] = run.put(np.asarray([x * st + far for x in o[:B]], np.int64 if offsets == 8 else np.int32))
                setattr(p, "offsets_" + name, offs[name].at)
                setattr(p, "offset_bytes_" + name, offsets)
        max_q = max_q or max(qlens, default=1) or 1
        out = run.nan((shift + T * hq * dv,), od)
        if dt is F8:
            p.q_scale, p.k_scale, p.v_scale = (run.put(np.asarray([x], np.float32)).at for x in scales)
        if out_type:
            p.out_type = TYPES[out_type]
        lse_requests = 1 if far and not stats else B
        fill = lambda: run.put(np.full((lse_requests, max_q, hq), -np.inf, np.float32))
        l1, l2 = fill(), fill()
        if stats:
            offs["stats"] = run.put(np.asarray([n * hq + far for n in stat0[:B]], np.int64 if far else np.int32))
            p.offsets_stats, p.offset_bytes_stats = offs["stats"].at, 8 if far else 4
        ql, kl = run.put(np.asarray(qlens, np.int32)), run.put(np.asarray(lens, np.int32))
        counters = run.put(np.zeros(2, np.uint32))
        p.q_lens, p.kv_lens, p.out, p.lse, p.lse2, p.counters, p.fault = ql.at, kl.at, out.at + shift * od.size, l1.at, l2.at, counters.at, run.fault.at
        p.q_token, p.q_head, p.tokens, p.scale, p.batch, p.q_heads, p.kv_heads = ts, d, T, scale, B, hq, hkv
        p.max_q_len, p.max_kv_len, p.causal = max_q, max_kv or max(lens, default=1), int(causal)
        if far:
            back = lambda at, n: (at - n) % (1 << 64)
            n = 1 << 30  # pages
            if page:
                table = c.table.copy()
                for b, u in enumerate(c.used):
                    table[b, : len(u)] += n
                dev.write(c.tdev.at, table)
                p.k, p.v, p.pages = back(p.k, n * p.k_page * dt.size), back(p.v, n * p.v_page * dt.size), p.pages + n
            else:
                p.k, p.v, p.kv_tokens = back(p.k, far * dt.size), back(p.v, far * dt.size), p.kv_tokens + far
            p.q, p.out, p.tokens = back(p.q, far * dt.size), back(p.out, far * od.size), T + far // (hq * dv)
            p.max_q_len = (1 << 31) - 1
            before = far if stats else (B - 1) * p.max_q_len * hq  # only the last request has rows, then
            p.lse, p.lse2 = back(p.lse, 4 * before), back(p.lse2, 4 * before)
        bad = set()
        if break_it:
            bad = break_it(dict(run=run, p=p, ql=ql, kl=kl, offs=offs, cache=c if page else None)) or set()
        name = f"prefill_h{d}{'' if d == dv else 'x%d' % dv}_{dt.name}{'_tma' * tma}_{target}"
        if tma and not (dev.has(name) and tma_maps(dev, p, dt, d, dv)):
            return None
        threads, shared, _, _ = launch_facts("PREFILL" + "_E4M3" * (dt is F8) + "_TMA" * tma, d if d == dv else f"{d}X{dv}", target)
        for _ in range(rounds):
            dev.launch(name, (grid or dev.sms,), threads, shared, p)
        want = np.zeros((T, hq, dv))
        wl = np.full((lse_requests * max_q, hq), -np.inf)
        owned = np.zeros(T, bool)
        sq, sk, sv = (float(np.float32(x)) for x in scales) if dt is F8 else (1.0, 1.0, 1.0)
        c1 = float(np.float32(scale)) * sq * sk
        for b in range(B):
            n, S = qlens[b], lens[b]
            owned[q0[b] : q0[b] + n] = True
            if b in bad or not n:
                continue
            see = np.arange(S)[None] <= np.arange(n)[:, None] + (S - n if causal else S)
            o, ls = attend(q[b], K[b], V[b], c1, sv, see, None)
            want[q0[b] : q0[b] + n] = o
            at = stat0[b] if stats else (b - B + lse_requests) * max_q
            wl[at : at + n] = ls
        raw = out.get()
        if not (raw[:shift].view(np.uint8) == 0xFF).all():
            raise Failure("elements before the output were written")
        raw = raw[shift : shift + T * hq * dv].reshape(T, hq, dv)
        got = od.decode(raw)
        if offsets:
            owned[max((q0[b] + n for b, n in enumerate(qlens) if n), default=0) :] = True  # rows past the last request
            if T and not (raw.view(np.uint8).reshape(T, -1)[~owned] == 0xFF).all():
                raise Failure("rows between requests were written")
            for b in unsure:
                owned[q0[b] : q0[b] + qlens[b]] = False
            got, want = got[owned], want[owned]
        if od is F8:  # one rounding, of what is off by that of the weights to f16
            want = np.clip(want, -448, 448)
            e = compare("out", got, want, F8, 0, F8.step(want) / 2 + 1e-3 * np.abs(np.nan_to_num(want)).max(axis=-1, keepdims=True), nmse=2e-3)
        else:
            cut = max(lens) * 2.0**-25 * np.abs(np.nan_to_num(want)).max() if many and dev.cuts else 0
            e = compare("out", got, want, od, floor=cut, nmse=(cut + 2e-3) ** 2 if cut else None)
        sure = np.setdiff1d(np.arange(len(wl)), [b * max_q + i for b in unsure for i in range(max_q)])
        wl, of = wl[sure], lambda l: l.get().reshape(-1, hq)[sure][..., None]
        tol = 3e-3 + 1e-3 * np.abs(np.where(np.isfinite(wl), wl, 0))
        compare("lse", of(l1), F32.round(wl)[..., None], F32, 0, tol[..., None], nmse=1)
        compare("lse2", of(l2), F32.round(wl * LOG2E)[..., None], F32, 0, 2 * tol[..., None], nmse=1)
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


def nan_tail(first, what=math.nan):
    """From there on all of the first request's keys and values."""
    def f(k, v):
        for j in range(first, len(k[0])):
            k[0][j], v[0][j] = what, what
        return k, v
    return f


def nan_at(key, which):
    """One element of one key of the second request, or of a value."""
    def f(*kv):
        kv[which][1][key, 0, 5] = math.nan
        return kv
    return f


def nan_row(q, i):
    q[i, 1, 7] = math.nan
    return q


DIMS = [(64, 64), (96, 96), (128, 128), (192, 192), (256, 256), (192, 128)]


def prefill_cases():
    c = {}
    for d, dv in DIMS:
        for dt, out in ((BF16, None), (F16, None), (F8, None), (F8, "f16"), (F8, "bf16")):
            t = f"dims={d}-{dv}/{dt.name}" + (f"-{out}" if out else "")
            kind = dict(d=d, dv=dv, dt=dt, out_type=out, hq=4)
            c[t] = dict(kind, qlens=(37, 3, 0, 70), lens=(70, 0, 9, 70))
            c[t + "/odd"] = dict(kind, qlens=(21, 4), lens=(33, 16), layout="odd", q_gap=3, page=5, causal=False)
            c[t + "/ragged"] = dict(kind, qlens=(40, 5, 130), lens=(33, 70, 150), page=0, stats=True, extra_rows=2)
            c[t + "/ragged/odd"] = dict(kind, qlens=(2, 9, 0, 4), lens=(5, 9, 4, 8), page=0, offsets=8, gap=2, q_gap=24, kv_gap=5, extra_kv=3)
            c[t + "/nan_tail"] = dict(kind, qlens=(90, 9), lens=(90, 9), values=nan_tail(50))
    outs = ("e4m3", "f16", "bf16")
    for out in outs:
        t = f"e4m3-{out}"
        kind = dict(d=64, dt=F8, out_type=out, hq=4)
        for page in (0, 16):
            c[f"{t}/rows_past_end/page={page}"] = dict(kind, qlens=(2, 3), lens=(5, 3), page=page, extra_rows=5, max_q=17)
            c[f"{t}/offsets/page={page}"] = dict(kind, qlens=(2, 9, 0, 4), lens=(5, 9, 4, 8), page=page, offsets=4, gap=2, stats=True)
        c[f"{t}/long"] = dict(kind, qlens=(130, 70), lens=(300, 129), d=128)
        c[f"{t}/full"] = dict(kind, qlens=(130, 70), lens=(300, 129), d=128, causal=False)
        c[f"{t}/negative"] = dict(kind, qlens=(17, 5), lens=(37, 5), scale=-0.3)
        c[f"{t}/negative_k"] = dict(kind, qlens=(17, 5), lens=(37, 5), scales=(1.0, -0.5, 2.0))
        c[f"{t}/saturated"] = dict(kind, qlens=(17, 5), lens=(37, 5), scales=(1.0, 1.0, 400.0))
        for i, name in enumerate("qkv"):
            scales = tuple(math.nan if i == n else 0.5 for n in range(3))
            c[f"{t}/nan_{name}_scale"] = dict(kind, qlens=(17, 5, 3), lens=(37, 3, 0), scales=scales, extra_rows=1)
        for page in (3, 8, 64):
            c[f"{t}/page={page}"] = dict(kind, qlens=(37, 5, 64), lens=(70, 5, 64), page=page)
        for layout in LAYOUTS:
            c[f"{t}/layout={layout}"] = dict(kind, qlens=(21, 40, 1), lens=(21, 70, 1), layout=layout)
        c[f"{t}/shift"] = dict(kind, qlens=(21, 40, 1), lens=(21, 70, 1), shift=1, extra_rows=3)
    for dt in HALVES + [F8]:
        c[f"nan_query/{dt.name}"] = dict(dt=dt, d=64, qlens=(21, 40), lens=(70, 33), hq=4, values_q=lambda x: nan_row(x, 13))
        c[f"nan_query/{dt.name}/full"] = dict(dt=dt, d=64, qlens=(21, 40), lens=(70, 33), hq=4, values_q=lambda x: nan_row(x, 13), causal=False)
        c[f"nan_key/{dt.name}"] = dict(dt=dt, d=64, qlens=(21, 40), lens=(70, 40), hq=4, values=nan_at(30, 0))
        c[f"nan_value/{dt.name}"] = dict(dt=dt, d=64, qlens=(21, 40), lens=(70, 40), hq=4, values=nan_at(30, 1))
    for dt in (BF16, F8):
        for page in (0, 16):
            kind = dict(dt=dt, d=64, hq=4, page=page, offsets=8, gap=1, far=1 << 33)
            c[f"far/{dt.name}/page={page}/stats"] = dict(kind, qlens=(21, 4, 40), lens=(70, 33, 40), stats=True)
            c[f"far/{dt.name}/page={page}/dense"] = dict(kind, qlens=(0, 0, 21), lens=(9, 3, 70))
    many = 70_000  # requests, of which a few have rows
    rows = {n: 1 + n % 3 for n in range(30_001, many, 9_999)}
    c["batch=70000"] = dict(d=64, hq=2, qlens=[rows.get(n, 0) for n in range(many)], lens=[rows.get(n, -1) + 1 for n in range(many)], max_q=4)
    c["shift"] = dict(d=64, qlens=(21, 40, 1), lens=(21, 70, 1), shift=1, extra_rows=3)
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
            c[f"offsets={n}{t}"] = dict(qlens=(2, 9, 0, 4), lens=(5, 9, 4, 8), page=page, hq=4, d=64, offsets=n, gap=2, q_gap=24, kv_gap=16, extra_kv=3, extra_rows=2)
        c["odd_strides" + t] = dict(qlens=(21, 4), lens=(33, 16), page=page, hq=4, d=64, q_gap=3, kv_gap=5, layout="odd")
        c["scale=-0.3" + t] = dict(qlens=(17, 5), lens=(37, 5), page=page, hq=4, d=64, scale=-0.3)
        c["scale=0" + t] = dict(qlens=(17, 5), lens=(37, 5), page=page, hq=4, d=64, scale=0.0)
        c["tails" + t] = dict(qlens=(1, 5, 33, 64, 65), lens=(33, 70, 33, 128, 129), page=page, hq=4, d=64)
        c["batch=70" + t] = dict(qlens=tuple(i % 5 for i in range(70)), lens=tuple(i * 3 % 40 for i in range(70)), page=page, hq=2, hkv=1, d=64)
        c["rounds" + t] = dict(qlens=(60, 5, 90), lens=(60, 17, 90), page=page, hq=4, d=64, rounds=3, grid=3)

        for gap in 17.0, 17.5:
            one = dict(dt=F16, d=64, qlens=(1,), lens=(40000,), hq=1, hkv=1, page=4 * page, scale=1.0, values=one_key(False), values_q=one_query(gap), many=True)
            c[f"one_key/gap={gap}{t}"] = one
            c[f"one_key/gap={gap}/e4m3{t}"] = dict(one, dt=F8, out_type="f16", scales=(gap / 18, 1.0, 1.0), values_q=one_query(18))
        for scale in 3e38, -3e38, 1e-45:
            c[f"scale={scale}{t}"] = dict(qlens=(17, 5), lens=(37, 5), page=page, hq=4, d=64, scale=scale, values_q=lambda q: q * (np.arange(q.shape[0]) % 2)[:, None, None])
        c["v_scale=1e-37" + t] = dict(dt=F8, out_type="bf16", qlens=(17, 5), lens=(200, 5), page=page, hq=4, d=64, scales=(1.0, 1.0, 1e-37), causal=False,
                                      values=lambda k, v: (k, [F8.round(64 * x) for x in v]))
        c["scale=1/e4m3" + t] = dict(dt=F8, qlens=(17, 5), lens=(37, 5), page=page, hq=4, d=64, scale=1e20, scales=(1e20, 1e-40, 1.0))
        for dt in HALVES:
            for size, ramp in ((2, 300), (4, 1), (4, 300)):
                c[f"huge/{dt.name}/size={size}/ramp={ramp}{t}"] = dict(dt=dt, qlens=(9, 150), lens=(300, 450), page=page, hq=4, d=64, values=huge_keys(dt, size, ramp),
                                                                       values_q=lambda q, dt=dt, size=size: dt.round(q * 10.0 ** size))
            c[f"far_scores/{dt.name}{t}"] = dict(dt=dt, qlens=(9, 150), lens=(300, 200), page=page, hq=4, d=64, scale=1.25, values=far_keys, values_q=far_query)
        for causal in True, False:
            for n, more in (("", {}), ("/scale=0", dict(scale=0.0)), ("/d=128", dict(d=128))):  # a row all of whose scores are -inf is NaN
                c[f"neg_inf/causal={causal}{n}{t}"] = dict(dict(qlens=(20, 9, 3, 150), lens=(40, 9, 0, 200), page=page, hq=4, d=64, causal=causal,
                                                               values=inf_keys(2 if causal else 0), values_q=inf_query), **more)
        c["hidden_nan" + t] = dict(qlens=(20, 9), lens=(40, 9), page=page, hq=4, d=64, values=nan_tail(38))
        c["hidden_nan/group" + t] = dict(qlens=(4, 3), lens=(40, 4), page=page, hq=128, hkv=1, d=64, values=nan_tail(38))  # tiles of one query row
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
        c["bad/kv=-1" + t] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=page, hq=4, d=64, break_it=lens_to("kl", 1, -1), expect=(1, 1), max_kv=99) if page else \
            dict(qlens=(7, 3, 5), lens=(17, 33, 0), page=page, hq=4, d=64, break_it=lens_to("kl", 2, -1), expect=(1, 2), max_kv=99)
        c["bad/kv_over_max" + t] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=page, hq=4, d=64, break_it=lens_to("kl", 2, 34), expect=(3, 2), extra_kv=9)
        if page:  # over both limits: the order of the host's checks
            c["bad/kv_over_both"] = dict(qlens=(7, 5), lens=(17, 9), page=page, hq=4, d=64, max_kv=17, break_it=lens_to("kl", 1, 1000), expect=(2, 1))
        # What a request claims beyond its own rows of the output is another's; what it has is 0.
        for n in 12, 20:
            c[f"bad/q_over_max={n}{t}"] = dict(qlens=(7, 5, 8, 6), lens=(17, 9, 33, 8), page=page, hq=4, d=64, offsets=4, max_q=8, break_it=lens_to("ql", 1, n), expect=(4, 1))
        c["bad/q_rows" + t] = dict(qlens=(7, 5, 8, 6), lens=(17, 9, 33, 8), page=page, hq=4, d=64, offsets=4, max_q=8, unsure=(1, 2),
                                       break_it=lambda x: lens_to("ql", 1, 7)(x) and {3}, expect=(6, 3))
        def claims(own, off):  # request 1 claims 12 rows of the 5 it has, from row `own` on, and request 2, which has as many as it says, begins at `off`
            def f(x):
                a = x["offs"]["o"].data.copy()
                a[1], a[2] = own * 4 * 64, off * 4 * 64
                x["run"].dev.write(x["offs"]["o"].at, a)
                return lens_to("ql", 1, 12)(x)
            return f
        # A neighbour that begins where it does keeps its rows; one without rows takes none from it.
        c["bad/q_over_max/same" + t] = dict(qlens=(7, 5, 8, 6), lens=(17, 9, 33, 8), page=page, hq=4, d=64, offsets=4, max_q=8, unsure=(1,), break_it=claims(12, 12), expect=(4, 1))
        c["bad/q_over_max/no_rows" + t] = dict(qlens=(7, 5, 0, 6), lens=(17, 9, 33, 8), page=page, hq=4, d=64, offsets=4, max_q=8, break_it=claims(7, 9), expect=(4, 1))
        c["bad/offset_q" + t] = dict(qlens=(7, 5, 3), lens=(17, 5, 33), page=page, hq=4, d=64, offsets=8, break_it=off_to("q", 2, 12 * 4 * 64 + 1), expect=(12, 2))
        if not page:
            def share(x):  # the second request's keys are the first ones of the first
                off_to("k", 1, 0)(x), off_to("v", 1, 0)(x)
                x["p"].kv_tokens = 40
            def one_offset(x):
                share(x)
                x["p"].offsets_v = 0
                return {1}
            c["bad/kv_rows/one_offset"] = dict(qlens=(7, 5), lens=(40, 33), page=0, hq=4, d=64, offsets=8, break_it=one_offset, expect=(11, 1))
            c["no_rows/offset_k"] = dict(qlens=(7, 0, 3), lens=(17, 5, 33), page=0, hq=4, d=64, offsets=8, break_it=lambda x: [off_to(w, 1, -1)(x) for w in "kv"] and None)
            c["shared_keys"] = dict(qlens=(7, 5), lens=(40, 33), page=0, hq=4, d=64, offsets=8, values=lambda k, v: ([k[0], k[0][:33]], [v[0], v[0][:33]]), break_it=share)
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
    c = {"tma/" + k: dict(v, tma=True) for k, v in prefill_cases().items() if not v.get("far") and v.get("dt") is not F8}
    for d, dv in DIMS:  # many blocks of keys, whose size differs, by boxes of every size, and NaN in a row of V that some see
        kind = dict(d=d, dv=dv, qlens=(9, 120), lens=(300, 330), hq=2, hkv=1, grid=2, tma=True)
        for page in (0, 8, 16, 48, 64, 128):
            for dt, causal in ((BF16, True), (F16, False)):
                c[f"tma/blocks/dims={d}-{dv}/page={page}/causal={causal}"] = dict(kind, dt=dt, page=page, causal=causal)
        for page in (0, 16):
            c[f"tma/blocks/dims={d}-{dv}/page={page}/nan"] = dict(kind, page=page, values=nan_at(250, 1))
            c[f"tma/blocks/dims={d}-{dv}/page={page}/tiles"] = dict(kind, page=page, qlens=(140, 300), lens=(140, 300), hq=2, hkv=2, grid=3)
    return c
