"""Cases of the rest of a decoder layer."""
import math
import numpy as np

from .attention import LAYOUTS, Cache
from .buffers import Failure, Run, compare
from .device import P
from .numbers import F8, F32, KIND


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


def rounded(name, got, want, dt):
    """Every element is what is wanted rounded once, but for errors of f32 on the way."""
    top = np.abs(np.where(np.isfinite(want), want, 0)).max(axis=-1, keepdims=True)
    return compare(name, got, want, dt, 0, dt.step(want) / 2 + 1e-5 * top, nmse=1)


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


def layer_embedding(run, dt, suffix, out="bf16", rows=7, cols=64, vocab=11, gap=0, bad=None, expect=None, far=0):
    """far: rows by which the table's base lies before its memory."""
    p, od = P["EmbeddingParams"](), KIND[out]
    w, wb, p.weight_row = rows_of(run, dt, vocab, cols, gap)
    ids = run.rng.integers(0, vocab, rows).astype(np.int32)
    want = w[ids]
    ids += far
    if bad is not None:
        ids[3] = bad
        want[3] = 0
    o = run.nan((rows, cols), od)
    p.ids, p.weight, p.out, p.fault, p.rows, p.columns, p.vocab = run.put(ids).at, (wb.at - far * p.weight_row * dt.size) % (1 << 64), o.at, run.fault.at, rows, cols, vocab + far
    run.dev.launch(f"embedding_{dt.name}_{out}" + suffix, (2,), 256, 0, p)
    return compare("out", od.decode(o.get()), od.round(want), od, 0, 0, nmse=1)


def layer_cast(run, dt, suffix, out="bf16", n=1000, skew=0):
    p, od = P["CastParams"](), KIND[out]
    x = run.rng.standard_normal((1, n + skew)) * np.exp2(run.rng.integers(-30, 20, (1, n + skew)))
    x[0, skew + n // 2 :][:2] = 1 + 2.0**-4 + 2.0**-23, np.nan  # the first lies beside a tie of e4m3 that rounding to 16 bits would make
    x, xb, _ = rows_of(run, dt, 1, n + skew, 0, x=x)
    o = run.nan((n + skew,), od)
    p.x, p.out, p.n = xb.at + skew * dt.size, o.at + skew * od.size, n
    run.dev.launch(f"cast_{dt.name}_{out}" + suffix, (2,), 256, 0, p)
    return compare("out", od.decode(o.get())[skew:], od.round(x[0, skew:]), od, 0, 0, nmse=1)


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
    if bad is not None:
        want[1] = 0
    return near("out", dt.decode(out.get()), want, dt, 1e-5 * np.abs(x).max())


def layer_append(run, dt, suffix, cache="bf16", lens=(20, 33, 5), hkv=2, d=64, dv=None, page=16, layout="hnd", ranges=False, rotary=0, adjacent=False, q_heads=0,
                 factors=False, gap=0, scale=1.0, expect=None, bad=None, nan=False, far=0):
    """New rows for the last positions of every request; the cache must change there and nowhere else. bad: ("position" or "request", value),
    ("page", value) for that of the last request's last row, ("sums", by how much the first or the last is off). far: pages by
    which the cache's base lies before its memory."""
    p, cd, dv = P["AppendParams"](), KIND[cache], dv or d
    c = Cache(run, cd, list(lens), hkv, page, d, dv, layout=layout)
    B = len(lens)
    counts = [min(3, s) for s in lens]
    where = [(b, lens[b] - counts[b] + i) for b in range(B) for i in range(counts[b])]
    if not ranges:
        where.insert(2, (-1, -1))
        where = [where[i] for i in run.rng.permutation(len(where))]
    T = len(where)
    k, v = (run.rng.standard_normal((T, hkv * n)) for n in (d, dv))
    if nan:
        k[4, 1], v[5, 2] = math.nan, math.nan
    k, kb, p.k_row_token = rows_of(run, dt, T, hkv * d, gap, x=k)
    v, vb, p.v_row_token = rows_of(run, dt, T, hkv * dv, 2 * gap, x=v)
    p.k, p.v, p.k_row_head, p.v_row_head = kb.at, vb.at, d, dv
    p.k_cache, p.v_cache, p.block_tables, p.fault = c.k_at, c.v_at, c.tdev.at, run.fault.at
    p.k_page, p.k_head, p.k_token = c.ks
    p.v_page, p.v_head, p.v_token = c.vs
    p.table_row, p.tokens, p.pages, p.k_scale, p.v_scale = c.table_row, T, c.pages, scale, scale / 2
    p.batch, p.kv_heads, p.k_dim, p.v_dim, p.page_size, p.max_pages, p.rotary, p.adjacent = B, hkv, d, dv, page, c.max_pages, rotary, int(adjacent)
    for i, t in enumerate(turns_of(rotary, 1e4) if rotary else []):
        p.turns[i] = t
    f = None
    if factors:
        f = 1 + 0.75 * (np.arange(rotary // 2) % 5)
        p.factors = run.put(f.astype(np.float32)).at
    if ranges:
        sums = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        if bad:  # rows before the first request, or behind the last, belong to none
            sums[0 if bad[1] > 0 else -1] += bad[1]
            for t in range(T):
                if not sums[0] <= t < sums[-1]:
                    where[t] = (-1, -2)
        p.cum_seq_lens = run.put(sums).at
        p.start_positions = run.put(np.asarray([lens[b] - counts[b] + (sums[b] if b == 0 else 0) for b in range(B)], np.int32)).at
    else:
        pos = np.asarray([w[1] for w in where], np.int32)
        req = np.asarray([w[0] if w[0] >= 0 else 1 << 30 for w in where], np.int32)
        if bad and bad[0] == "page":
            table, at = c.table.copy(), (lens[-1] - 1) // page
            table[-1, at] = bad[1]
            run.dev.write(c.tdev.at, table)
            where = [(-1, -2) if b == B - 1 and n // page == at else (b, n) for b, n in where]
        elif bad:
            pos[4], req[4] = 0, 0
            (pos if bad[0] == "position" else req)[4] = bad[1]
            where[4] = (-1, -2)
        p.positions, p.requests = run.put(pos).at, run.put(req).at
    if far:
        p.k_cache, p.v_cache = ((at - far * st[0] * cd.size) % (1 << 64) for at, st in ((c.k_at, c.ks), (c.v_at, c.vs)))
        p.pages += far
        run.dev.write(c.tdev.at, c.table + np.int32(far))
    q = None
    if q_heads:
        q, qb, p.q_token = rows_of(run, dt, T, q_heads * d, gap)
        qo = run.nan((T, q_heads, d), dt)
        p.q, p.q_out, p.q_head, p.q_heads = qb.at, qo.at, d, q_heads
    run.dev.launch(f"append_{dt.name}_{cache}" + suffix, (2,), 256, 0, p)
    kbuf, vbuf = c.kdev.data.copy(), c.vdev.data.copy()
    if c.vdev is c.kdev:
        vbuf = kbuf
    gk, gv = c.kdev.get(), c.vdev.get()
    for t, (b, pos) in enumerate(where):
        kr, vr = k[t].reshape(hkv, d), v[t].reshape(hkv, dv)
        if rotary and pos >= 0:
            kr = turned(kr, pos, rotary, 1e4, adjacent, f)
        if q_heads:
            qr = q[t].reshape(q_heads, d)
            want = turned(qr, pos, rotary, 1e4, adjacent, f) if pos >= 0 else qr if pos == -1 else 0 * qr
            rounded("q", dt.decode(qo.get()[t]), want, dt)
        if pos < 0:
            continue
        for h in range(hkv):
            for st, off, n, x, exp, got, sc in ((c.ks, c.koff, d, kr[h], kbuf, gk, scale), (c.vs, c.voff, dv, vr[h], vbuf, gv, scale / 2)):
                a = off + int(c.table[b, pos // page]) * st[0] + h * st[1] + pos % page * st[2]
                w = np.clip(x / float(np.float32(sc)), -448, 448) if cd is F8 else x
                g = cd.decode(got[a : a + n])
                if rotary or cd is F8:
                    rounded("cache", g, w, cd)
                elif not np.array_equal(g, cd.round(w), equal_nan=True):
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
        c[f"embedding/{dt}/far"] = dict(op="embedding", dt=dt, out=dt, far=1 << 30)
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
            c["append/rope/factors" + t] = dict(op="append", dt=dt, cache="e4m3", rotary=40, d=96, factors=True, adjacent=adjacent, q_heads=21, hkv=1, scale=0.02)
            c["append/rope/ranges" + t] = dict(op="append", dt=dt, cache=dt, rotary=64, adjacent=adjacent, q_heads=6, ranges=True, lens=(20, 0, 33, 5, 1), page=4)
            for bad in (("position", 16 * 5), ("position", -2), ("request", 3)):
                c[f"append/rope/{bad[0]}={bad[1]}" + t] = dict(op="append", dt=dt, cache=dt, rotary=64, adjacent=adjacent, q_heads=6, bad=bad, expect=(9 if bad[0] == "request" else 8, 4))
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
        for page in (-1, 1 << 20):
            c[f"append/{dt}/page={page}"] = dict(op="append", dt=dt, cache=dt, bad=("page", page), lens=(20, 33, 18), q_heads=3, rotary=64, expect=(7, 2))
        for off in (2, -2):
            c[f"append/{dt}/sums={off}"] = dict(op="append", dt=dt, cache=dt, ranges=True, bad=("sums", off), q_heads=3, rotary=64, expect=(6, -1))
        c[f"append/{dt}/request=3"] = dict(op="append", dt=dt, cache=dt, bad=("request", 3), expect=(9, 4))
    for dt in ("f32", "f16", "bf16", "e4m3"):
        for out in ("f32", "f16", "bf16", "e4m3"):
            c[f"cast/{dt}/{out}"] = dict(op="cast", dt=dt, out=out)
            c[f"cast/{dt}/{out}/askew"] = dict(op="cast", dt=dt, out=out, n=37, skew=3)
    # Into e4m3, values beyond 448 and NaN among them: every layout, rows by range and by position, with and without q, heads that differ.
    for dt in ("f32", "f16", "bf16", "e4m3"):
        kind = dict(op="append", dt=dt, cache="e4m3", scale=0.005, nan=True)
        c[f"append/{dt}/e4m3/plain"] = kind
        for layout in LAYOUTS:
            if layout != "shared":
                c[f"append/{dt}/e4m3/layout={layout}"] = dict(kind, layout=layout, page=5)
        for adjacent in (False, True):
            t = f"append/{dt}/e4m3/rope/{'adjacent' if adjacent else 'half'}"
            turn = dict(kind, rotary=64, adjacent=adjacent)
            c[t] = turn
            c[t + "/q"] = dict(turn, q_heads=6, gap=5)
            c[t + "/ranges"] = dict(turn, q_heads=6, ranges=True, lens=(20, 0, 33, 5, 1), page=4, layout="stacked_nhd")
            c[t + "/dims"] = dict(turn, d=192, dv=128, q_heads=9, layout="nhd")
            c[t + "/odd"] = dict(turn, d=96, dv=64, gap=3, q_heads=3, layout="odd")
    for dt, cache in (("bf16", "bf16"), ("f16", "e4m3")):
        for layout in ("hnd", "nhd"):
            c[f"append/{dt}/{cache}/far/{layout}"] = dict(op="append", dt=dt, cache=cache, far=1 << 30, layout=layout, rotary=64, q_heads=6)
    return c
