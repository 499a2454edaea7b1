"""The formula in float64, errors against it, and what they may be."""
import math

import numpy as np

from .inputs import KIND


class Host:
    """Where the formula is computed: a namespace of NumPy's names, and how arrays and codes get there and back."""

    xp = np
    put = get = staticmethod(lambda a: a)
    decode = staticmethod(lambda codes, dtype: KIND[dtype].decode(codes))


same = lambda x: x
SCORES = 1 << 25  # that are held at a time


def attend(xp, q, k, v, c1, c2, see, sinks, score=same, weight=same):
    """q [L,Hq,D], k and v [S,Hkv,·], see [L,S] bool, sinks [Hq] or None, all of xp (numpy or torch) → out [L,Hq,Dv], LSE [L,Hq], natural.
    Every row sees a key. score and weight round the scores and the probabilities."""
    n, hq, d = q.shape
    s, hkv, dv = v.shape
    g = hq // hkv
    scores = score(xp.matmul(q.reshape(n, hkv, g, d).swapaxes(0, 1).reshape(hkv, n * g, d), k.swapaxes(0, 1).swapaxes(1, 2)))
    x = xp.where(see[:, None], c1 * scores.reshape(hkv, n, g, s), -math.inf)
    m = xp.amax(x, -1)
    if sinks is not None:
        sinks = sinks.reshape(hkv, 1, g)
        m = xp.maximum(m, sinks)
    e = xp.exp(x - m[..., None])
    total = e.sum(-1)
    if sinks is not None:
        total = total + xp.exp(sinks - m)
    out = c2 * xp.matmul(weight(e).reshape(hkv, n * g, s), v.swapaxes(0, 1)).reshape(hkv, n, g, dv) / total[..., None]
    return out.swapaxes(0, 1).reshape(n, hq, dv), (m + xp.log(total)).swapaxes(0, 1).reshape(n, hq)


def answer(x, on=Host, **rounded):
    """Of an Inputs: out [T,Hq,Dv] and LSE [T,Hq] in float64 on the host."""
    c, outs, lses = x.case, [], []
    tensors = [on.put(a) for a in (x.q, x.k, x.v)]
    sinks = None if x.sinks is None else on.put(x.sinks)
    for b, s in enumerate(c["kv_lens"]):
        q, k, v = (on.decode(a, c[t]) for t, a in zip(("q", "kv", "kv"), x.codes(b, *tensors)))
        see = x.visible(b, on.put)
        step = max(1, SCORES // (c["hq"] * s))
        for i in range(0, len(q), step):
            out, lse = attend(on.xp, q[i : i + step], k, v, *x.factors(), see[i : i + step], sinks, **rounded)
            outs.append(out)
            lses.append(lse)
    return on.get(on.xp.concatenate(outs)), on.get(on.xp.concatenate(lses))


def modelled(x):
    """What a kernel of FlashInfer's kind gives: scores and sums in float32, probabilities rounded to the query's type (bfloat16 for e4m3),
    the output rounded. A stand-in for FlashInfer where there is no GPU."""
    p = KIND["bf16" if x.case["q"] == "e4m3" else x.case["q"]]
    out, lse = answer(x, score=lambda s: s.astype(np.float32), weight=p.round)
    return KIND[x.case["out"]].round(out), lse


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
