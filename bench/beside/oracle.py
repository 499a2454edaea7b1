"""The formula in float64, errors against it, and what they may be."""
import math

import numpy as np

from .inputs import KIND


def attend(xp, q, k, v, c1, c2, see, sinks):
    """q [L,Hq,D], k and v [S,Hkv,·], see [L,S] bool, sinks [Hq] or None, all of xp (numpy or torch) → out [L,Hq,Dv], LSE [L,Hq], natural.
    Every row sees a key."""
    n, hq, _ = q.shape
    hkv, g = k.shape[1], hq // k.shape[1]
    s = xp.einsum("lhgd,shd->lhgs", q.reshape(n, hkv, g, -1), k) * c1
    s = xp.where(see[:, None, None], s, -math.inf)
    m = xp.amax(s, -1)
    if sinks is not None:
        m = xp.maximum(m, sinks.reshape(1, hkv, g))
    e = xp.exp(s - m[..., None])
    total = e.sum(-1)
    if sinks is not None:
        total = total + xp.exp(sinks.reshape(1, hkv, g) - m)
    out = c2 * xp.einsum("lhgs,shd->lhgd", e, v) / total[..., None]
    return out.reshape(n, hq, -1), (m + xp.log(total)).reshape(n, hq)


def answer(x, xp=np, put=lambda a: a, get=lambda a: a):
    """Of an Inputs: out [T,Hq,Dv] and LSE [T,Hq] in float64, computed where put places arrays."""
    outs, lses = [], []
    sinks = None if x.sinks is None else put(x.sinks.astype(np.float64))
    for b in range(len(x.case["kv_lens"])):
        out, lse = attend(xp, *map(put, x.rows(b)), *x.factors(), put(x.visible(b)), sinks)
        outs.append(get(out))
        lses.append(get(lse))
    return np.concatenate(outs), np.concatenate(lses)


def modelled(x):
    """What a kernel of FlashInfer's kind gives: scores and sums in float32, probabilities rounded to the query's type (bfloat16 for e4m3),
    the output rounded. A stand-in for FlashInfer where there is no GPU."""
    p, dt = KIND["bf16" if x.case["q"] == "e4m3" else x.case["q"]], KIND[x.case["out"]]
    outs, lses = [], []
    for b in range(len(x.case["kv_lens"])):
        q, k, v = x.rows(b)
        c1, c2 = x.factors()
        n, hq, _ = q.shape
        g = hq // k.shape[1]
        s = np.einsum("lhgd,shd->lhgs", q.reshape(n, -1, g, q.shape[-1]), k).astype(np.float32) * np.float32(c1)
        s = np.where(x.visible(b)[:, None, None], s, -np.inf)
        m = s.max(-1, keepdims=True)
        sink = 0
        if x.sinks is not None:
            sinks = x.sinks.reshape(1, -1, g, 1)
            m = np.maximum(m, sinks)
            sink = np.exp(sinks - m)
        e = np.exp(s - m)
        total = e.sum(-1, keepdims=True, dtype=np.float32) + sink
        outs.append(dt.round(c2 * np.einsum("lhgs,shd->lhgd", p.round(e), v) / total).reshape(n, hq, -1))
        lses.append((m + np.log(total)).reshape(n, hq))
    return np.concatenate(outs), np.concatenate(lses)


def errors(c, got, lse, want, want_lse):
    """steps: the largest error, in rounding steps of the output's type at the largest value of its row. nmse: Σ(got-want)²/Σwant². bound: the
    largest error over what ops/opstest allows a GPU. lse: the largest error over 1+|want|; None where lse is."""
    dt = KIND[c["out"]]
    err = np.abs(got - want)
    top = np.abs(want).max(-1, keepdims=True)
    if c["q"] == "e4m3":  # FlashInfer's own tests'
        bound = 7e-2 + (5e-2 if c["out"] == "e4m3" else 4e-2) * np.abs(want)
    elif c["out"] == "e4m3":
        bound = dt.step(want) + 2 * KIND["bf16"].step(top)
    else:
        bound = 2 * dt.step(top)
    worst = lambda x: float(x.max()) if not np.isnan(x).any() else math.inf
    e = dict(steps=worst(err / dt.step(top)), nmse=float((err**2).sum() / (want**2).sum()) if np.isfinite(got).all() else math.inf, bound=worst(err / bound), lse=None)
    if lse is not None:
        e["lse"] = worst(np.abs(lse - want_lse) / (1 + np.abs(want_lse)))
    return e


def rounding(c, want):
    """The nmse of the right answer, rounded."""
    return float(((KIND[c["out"]].round(want) - want) ** 2).sum() / (want**2).sum())
