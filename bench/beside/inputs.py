"""A drawn call's tensors: the elements' codes as NumPy arrays, and for our side a copy with poison wherever nothing may look."""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "cudaops/kernels"))
from checks.numbers import KIND  # element types: encode, decode, round, step


def prefix(lens):
    return np.concatenate([[0], np.cumsum(lens)]).astype(np.int32)


class Inputs:
    """q [T,Hq,Dk]; k, v pools [N,Hkv,P,D] or [N,P,Hkv,D] by layout, or ragged [Tkv,Hkv,D]; table [B,columns]; sinks [Hq] or None; see: what row i of
    request b sees of draft column j, bool [B,L,L] or None. Unused slots, pages and table entries hold ordinary numbers, as FlashInfer multiplies
    some by 0."""

    def __init__(self, c):
        rng = np.random.default_rng(c["values"])
        tq, tk = KIND[c["q"]], KIND[c["kv"]]
        normal = lambda *shape: rng.standard_normal(shape, np.float32)
        self.case, lens, hkv = c, c["kv_lens"], c["hkv"]
        self.q = tq.encode(normal(sum(c["q_lens"]), c["hq"], c["dk"]))
        if c["form"] == "ragged":
            self.k, self.v = (tk.encode(normal(sum(lens), hkv, d)) for d in (c["dk"], c["dv"]))
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
            self.k, self.v = (tk.encode(normal(pages, *middle, d)) for d in (c["dk"], c["dv"]))
        self.sinks = (2 * normal(c["hq"])) if c["sinks"] else None
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

    def rows(self, b):
        """Request b's q [L,Hq,Dk], k and v [S,Hkv,D] in float64."""
        c = self.case
        tq, tk = KIND[c["q"]], KIND[c["kv"]]
        at, s = prefix(c["q_lens"]), c["kv_lens"][b]
        q = tq.decode(self.q[at[b] : at[b + 1]])
        if self.table is None:
            at = prefix(c["kv_lens"])
            return q, tk.decode(self.k[at[b] : at[b + 1]]), tk.decode(self.v[at[b] : at[b + 1]])
        pages = self.table[b, : -(-s // c["page"])]
        order = (0, 2, 1, 3) if c["layout"] == "HND" else (0, 1, 2, 3)
        return q, *(tk.decode(x[pages]).transpose(order).reshape(-1, c["hkv"], x.shape[-1])[:s] for x in (self.k, self.v))

    def visible(self, b):
        """bool [L,S]."""
        c = self.case
        n, s = c["q_lens"][b], c["kv_lens"][b]
        j, pos = np.arange(s)[None], np.arange(s - n, s)[:, None]
        see = j <= pos if c["causal"] else np.ones((n, s), bool)
        if self.see is not None:
            see = np.concatenate([np.ones((n, s - n), bool), self.see[b]], 1)
        return see & (j >= pos - c["window"]) if c["window"] >= 0 else see

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
        k, v = self.k.copy(), self.v.copy()
        if self.table is not None:
            for x in (k, v):  # all bits set: a NaN of every type
                (x.transpose(0, 2, 1, 3) if c["layout"] == "HND" else x)[~self.used] = np.iinfo(f"u{x.itemsize}").max if x.dtype.kind == "u" else np.nan
            table = self.table.copy()
            for b, s in enumerate(c["kv_lens"]):
                table[b, -(-s // c["page"]) :] = (-1, 1 << 30)[b % 2]
            out["block_tables"] = "I32", table
        if c["form"] == "stacked":
            out["kv_cache"] = kv, np.stack([k, v], 1)
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
