"""A drawn call's tensors: the elements' codes as NumPy arrays, and for our side a copy with poison wherever nothing may look."""
import functools, sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "cudaops/kernels"))
from checks.numbers import KIND  # element types: encode, decode, round, step


def prefix(lens):
    return np.concatenate([[0], np.cumsum(lens)]).astype(np.int32)


@functools.cache
def halves():
    """2²² normal numbers in float16, which every call's tensors are cut from: to draw and encode them anew would cost more than all else on the host."""
    return np.random.default_rng(0).standard_normal(1 << 22, np.float32).astype(np.float16)


@functools.cache
def pool(dtype):
    """Codes of halves, by a table of all of float16."""
    table = KIND[dtype].encode(KIND["f16"].decode(np.arange(1 << 16, dtype=np.uint16).view(np.float16)))
    return table[halves().view(np.uint16)]


def normals(rng, dtype, *shape):
    """Codes from a random place of the pool on, which repeats; not to be written to."""
    codes, n = pool(dtype), int(np.prod(shape))
    at = int(rng.integers(codes.size))
    return (codes[at : at + n] if at + n <= codes.size else np.resize(codes, at + n)[at:]).reshape(shape)


class Inputs:
    """q [T,Hq,Dk]; k, v pools [N,Hkv,P,D] or [N,P,Hkv,D] by layout, or ragged [Tkv,Hkv,D]; table [B,columns]; sinks [Hq] or None; see: what row i of
    request b sees of draft column j, bool [B,L,L] or None. Unused slots, pages and table entries hold ordinary numbers, as FlashInfer multiplies
    some by 0."""

    def __init__(self, c):
        rng = np.random.default_rng(c["values"])
        self.case, lens, hkv = c, c["kv_lens"], c["hkv"]
        self.q = normals(rng, c["q"], sum(c["q_lens"]), c["hq"], c["dk"])
        if c["form"] == "ragged":
            self.k, self.v = (normals(rng, c["kv"], sum(lens), hkv, d) for d in (c["dk"], c["dv"]))
            self.used = self.table = None
        else:
            page = c["page"]
            used = [-(-s // page) for s in lens]
            pages = sum(used) + c["spare_pages"]
            ids = rng.permutation(pages).astype(np.int32)
            self.table = np.zeros((len(lens), c["columns"]), np.int32)
            self.used = np.zeros((pages, page), bool)
            for b, at in enumerate(prefix(used)[:-1]):
                self.table[b, : used[b]] = ids[at : at + used[b]]
                for i, p in enumerate(self.table[b, : used[b]]):
                    self.used[p, : lens[b] - i * page] = True
            middle = (hkv, page) if c["layout"] == "HND" else (page, hkv)
            self.k, self.v = (normals(rng, c["kv"], pages, *middle, d) for d in (c["dk"], c["dv"]))
        self.sinks = 2 * rng.standard_normal(c["hq"], np.float32) if c["sinks"] else None
        self.see = None
        if c["mask"]:
            n = c["q_lens"][0]
            self.see = np.tril(np.ones((len(lens), n, n), bool))
            if c["mask"] == "tree":  # every draft token sees itself
                self.see = rng.random(self.see.shape) < 0.5
                self.see |= np.eye(n, dtype=bool)

    def mask_words(self):
        """uint16 [B,L,2·ceil(L/32)], bit c%16 of word c/16."""
        b, n, _ = self.see.shape
        bits = np.zeros((b, n, -(-n // 32) * 32), np.uint8)
        bits[:, :, :n] = self.see
        return np.packbits(bits, axis=-1, bitorder="little").view("<u2")

    def codes(self, b, q, k, v):
        """Request b's rows of q, k and v, arrays of NumPy or PyTorch made of this one's: [L,Hq,Dk], [S,Hkv,Dk], [S,Hkv,Dv]."""
        c = self.case
        at, s = prefix(c["q_lens"]).tolist(), c["kv_lens"][b]
        q = q[at[b] : at[b + 1]]
        if self.table is None:
            at = prefix(c["kv_lens"]).tolist()
            return q, k[at[b] : at[b + 1]], v[at[b] : at[b + 1]]
        pages = self.table[b, : -(-s // c["page"])].tolist()
        tokens = lambda x: x[pages].swapaxes(1, 2) if c["layout"] == "HND" else x[pages]
        return q, *(tokens(x).reshape(-1, c["hkv"], x.shape[-1])[:s] for x in (k, v))

    def rows(self, b):
        """The same in float64."""
        return [KIND[self.case[t]].decode(a) for t, a in zip(("q", "kv", "kv"), self.codes(b, self.q, self.k, self.v))]

    def visible(self, b, put=lambda a: a):
        """bool [L,S], computed where put places arrays."""
        c = self.case
        n, s = c["q_lens"][b], c["kv_lens"][b]
        j, pos = put(np.arange(s))[None], put(np.arange(s - n, s))[:, None]
        see = j <= (pos if c["causal"] else pos + s)
        if self.see is not None:
            see[:, s - n :] = put(self.see[b])
        if c["window"] >= 0:
            see &= j >= pos - c["window"]
        return see

    def factors(self):
        """The whole factors on q·k and on the output, of the float32 numbers that the calls are given."""
        c = self.case
        one = lambda x: float(np.float32(x))
        return one(c["scale"]) * one(c["q_scale"]) * one(c["k_scale"]), one(c["v_scale"])

    def ours(self):
        """name → (dtype of safetensors, array) as cudaops/hardware reads them; scalars are the case's own."""
        c = self.case
        code = {"f16": "F16", "bf16": "BF16", "e4m3": "F8_E4M3"}
        out, kv = {}, code[c["kv"]]
        k, v = self.k, self.v
        if c["form"] == "stacked":
            both = np.stack([k, v], 1)
            k, v = both[:, 0], both[:, 1]
        elif self.table is not None:
            k, v = k.copy(), v.copy()
        if self.table is not None:
            for x in (k, v):  # all bits set: a NaN of every type
                (x.transpose(0, 2, 1, 3) if c["layout"] == "HND" else x)[~self.used] = np.iinfo(f"u{x.itemsize}").max if x.dtype.kind == "u" else np.nan
            table = self.table.copy()
            for b, s in enumerate(c["kv_lens"]):
                table[b, -(-s // c["page"]) :] = (-1, 1 << 30)[b % 2]
            out["block_tables"] = "I32", table
        if c["form"] == "stacked":
            out["kv_cache"] = kv, both
        else:
            out["k_cache"], out["v_cache"] = (kv, k), (kv, v)
        out["q" if c["op"] == "prefill" else "query"] = code[c["q"]], self.q
        number = lambda x: ("F32", np.full(1, x, np.float32))
        if c["op"] == "prefill":
            out["actual_seq_lens_q"], out["actual_seq_lens_kv"] = ("I32", np.int32(c["q_lens"])), ("I32", np.int32(c["kv_lens"]))
            if c["q"] == "e4m3":
                out["q_scale"], out["k_scale"], out["v_scale"] = (number(c[x]) for x in ("q_scale", "k_scale", "v_scale"))
            return out
        out["seq_lens"] = "U32" if c["values"] % 2 else "I32", np.int32(c["kv_lens"])
        if c["device_scales"]:
            c1, c2 = self.factors()
            out["bmm1_scale"], out["bmm2_scale"] = number(c1), number(c2)
        if c["varlen"]:
            out["cum_seq_lens_q"] = "I32", prefix(c["q_lens"])
        if self.sinks is not None:
            out["sinks"] = "F32", self.sinks
        if self.see is not None:
            out["mask"] = "U16", self.mask_words()
        return out

    def scalars(self):
        """The arguments that are no tensors, by FlashInfer's names."""
        c = self.case
        c1, c2 = self.factors()
        names = {"f16": "F16", "bf16": "BF16", "e4m3": "F8_E4M3"}
        s = dict(op=c["op"], kv_layout=c["layout"], out_dtype=names[c["out"]], lse=c["lse"])
        if c["op"] == "prefill":
            return s | dict(scale=c["scale"], causal=c["causal"], max_token_per_sequence=max(c["q_lens"]), max_sequence_kv=max(c["kv_lens"]))
        q_len, most = (1, max(c["q_lens"])) if c["varlen"] else (c["q_lens"][0], 0)
        return s | dict(bmm1_scale=c1, bmm2_scale=c2, window_left=c["window"], q_len_per_req=q_len, max_q_len=most,
                        max_seq_len=(0, max(c["kv_lens"]))[c["values"] % 2])
