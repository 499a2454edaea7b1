"""Paged caches, their poison, and attention in float64."""
import numpy as np

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
                if len(keys) == 0 and not np.isfinite(sink):  # without keys only a finite sink counts
                    continue
                e = np.exp(s - m)
                den = e.sum() + (np.exp(sink - m) if sink != -np.inf else 0)
                lse[i, h] = m + np.log(den)
                out[i, h] = c2 * (e @ v[keys, h // g]) / den if len(keys) else 0
    return out, lse


# One key whose score is a query's element 0, `gap`, among so many of score 0 that they count: beside values of 1 the answer is 1.
def one_key(first):
    def f(k, v):
        for x, y in zip(k, v):
            x[:], y[:] = 0, 1
            x[0 if first else -1, :, 0] = 1
        return k, v
    return f


def one_query(gap):
    def f(q):
        q[:] = 0
        q[..., 0] = gap
        return q
    return f


# Scores up to some 10^size², of which a block of keys has larger ones than the next: `ramp` keys on they are as large as at most.
def huge_keys(dt, size, ramp):
    def f(k, v):
        return [dt.round(x * 10.0 ** (size * np.minimum(1, (1 + np.arange(len(x))) / ramp))[:, None, None]) for x in k], v
    return f


# Scores of -inf: element 0 of all keys in front of the last `but` of each request, beside a positive one of every query.
def inf_keys(but=0):
    def f(k, v):
        for x in k:
            x[: max(0, len(x) - but), :, 0] = -np.inf
        return k, v
    return f


def inf_query(q):
    q[..., 0] = 1 + np.abs(q[..., 0])
    return q


# Scores of some -299,520 that are a few units apart, exactly representable and summed: what is left of a softmax that takes a rounded
# maximum off rounded products. For scale 1.25.
FAR = -299520


def far_keys(k, v):
    for x in k:
        x[:] = 0
        x[..., 0] = -29952
        x[..., 1] = (np.arange(len(x)) * 37 % 53 + np.arange(len(x)) // 40)[:, None] / 64
    return k, v


def far_query(q):
    q[:] = 0
    q[..., 0] = 8
    q[..., 1] = 4 * (1 + (np.arange(q.shape[0])[:, None] * 7 + np.arange(q.shape[1])) % 3)
    return q


def far_keys_e4m3(k, v):
    """The same scores as far_keys, from bits."""
    for x in k:
        n = np.arange(len(x)) * 37 % 53 + np.arange(len(x)) // 40
        x[:] = 0
        x[..., 0] = -416
        x[..., 1:7] = (n[:, None] >> np.arange(6) & 1)[:, None] * np.exp2(np.arange(6) - 6)
    return k, v


def far_query_e4m3(q):
    q[:] = 0
    q[..., 0] = 576
    q[..., 1:7] = 4 * (1 + (np.arange(q.shape[0])[:, None, None] * 7 + np.arange(q.shape[1])[:, None]) % 3)
    return q
