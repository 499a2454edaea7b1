"""FlashInfer's own answer to a drawn call, on the GPU."""
import inspect, math

import numpy as np
import torch

from .inputs import prefix
from .oracle import answer as formula

DEV = "cuda"
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
LN2 = math.log(2)


def put(a):
    """A host array's copy on the device; torch lacks most unsigned types."""
    return torch.from_numpy(np.ascontiguousarray(a).view({"uint16": np.int16, "uint32": np.int32}.get(a.dtype.name, a.dtype))).to(DEV)


def typed(a, t):
    """Codes of one of our types as a tensor of torch's."""
    return put(a.view(np.int16 if a.itemsize == 2 else np.uint8)).view(TYPES[t])


def host(x):
    return None if x is None else x.double().cpu().numpy()


class Call:
    """The tensors of an Inputs on the device."""

    def __init__(self, x):
        c = self.c = x.case
        self.x, self.q = x, typed(x.q, c["q"])
        k, v = (typed(a, c["kv"]) for a in (x.k, x.v))
        self.k, self.v = k, v
        self.kv = (k, v)
        if c["form"] == "stacked":
            self.kv = torch.stack([k.view(torch.uint8), v.view(torch.uint8)], 1).view(TYPES[c["kv"]])
            self.k, self.v = self.kv.unbind(1)
        self.scale, self.out_scale = x.factors()
        self.q_start = put(prefix(c["q_lens"]))
        self.out = torch.full((self.q.shape[0], c["hq"], c["dv"]), math.nan, dtype=torch.float32, device=DEV).to(TYPES[c["out"]])
        self.space = torch.zeros(128 << 20, dtype=torch.uint8, device=DEV)  # xqa wants it zero
        if x.table is not None:
            used = [-(-s // c["page"]) for s in c["kv_lens"]]
            self.pages = put(prefix(used)), put(np.concatenate([x.table[b, :n] for b, n in enumerate(used)])), put(np.int32([(s - 1) % c["page"] + 1 for s in c["kv_lens"]]))


def xqa(call):
    import flashinfer

    c, x = call.c, call.x
    number = lambda v: torch.full((1,), v, dtype=torch.float32, device=DEV) if c["device_scales"] else v
    flashinfer.decode.trtllm_batch_decode_with_kv_cache(
        call.q, call.kv, call.space, put(x.table), put(np.int32(c["kv_lens"])).view(torch.uint32), max(c["kv_lens"]), bmm1_scale=number(call.scale),
        bmm2_scale=number(call.out_scale), window_left=c["window"], out=call.out, sinks=None if x.sinks is None else put(x.sinks), kv_layout=c["layout"], backend="xqa",
        q_len_per_req=c["q_lens"][0], mask=None if x.see is None else put(x.mask_words()).view(torch.uint16))
    return call.out, None


def decode(call):
    """The wrapper of one query a request, with tensor cores (fa2) or without."""
    import flashinfer

    c = call.c
    w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(call.space, c["layout"], use_tensor_cores=c["peer"] != "decode", backend="auto" if c["peer"] == "decode" else c["peer"])
    w.plan(*call.pages, c["hq"], c["hkv"], c["dk"], c["page"], window_left=c["window"], q_data_type=call.q.dtype, kv_data_type=call.k.dtype, sm_scale=call.scale)
    out, lse = w.run(call.q, call.kv, v_scale=call.out_scale, out=call.out, return_lse=True)
    return out, lse * LN2


def head_scales(c):
    return (torch.full((c[heads],), c[scale], dtype=torch.float32, device=DEV) for heads, scale in (("hq", "q_scale"), ("hkv", "k_scale"), ("hkv", "v_scale")))


def paged(call):
    import flashinfer

    c = call.c
    w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(call.space, c["layout"], backend=c["peer"])
    fp8 = c["q"] == "e4m3"
    w.plan(call.q_start, *call.pages, c["hq"], c["hkv"], c["dk"], c["page"], causal=c["causal"], window_left=c["window"], q_data_type=call.q.dtype, kv_data_type=call.k.dtype,
           o_data_type=call.out.dtype, sm_scale=c["scale"] if fp8 else call.scale)
    if fp8:
        out, lse = w.run(call.q, call.kv, *head_scales(c), out=call.out, return_lse=True)
    else:
        out, lse = w.run(call.q, call.kv, v_scale=call.out_scale, out=call.out, return_lse=True)
    return out, lse * LN2


def ragged(call):
    import flashinfer

    c = call.c
    w = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(call.space, "NHD", backend=c["peer"])
    w.plan(call.q_start, put(prefix(c["kv_lens"])), c["hq"], c["hkv"], c["dk"], head_dim_vo=c["dv"], causal=c["causal"], q_data_type=call.q.dtype, kv_data_type=call.k.dtype,
           o_data_type=call.out.dtype, sm_scale=c["scale"])
    out, lse = w.run(call.q, call.k, call.v, *(head_scales(c) if c["q"] == "e4m3" else ()), out=call.out, return_lse=True)
    return out, lse * LN2


def cudnn(call):
    """The function that our prefill is named after. Its plans are cached by a key without the scale and the strides, so the cache is emptied."""
    from flashinfer.cudnn import prefill

    plans = prefill._build_prefill_graph.__wrapped__
    inspect.getclosurevars(plans).nonlocals["cache"].clear()
    c, x = call.c, call.x
    lens = lambda name: put(np.int32(c[name])).view(-1, 1, 1, 1)
    more = dict(block_tables=put(x.table)) if x.table is not None else dict(
        batch_offsets_k=put(prefix(c["kv_lens"]) * np.int32(c["hkv"] * c["dk"])), batch_offsets_v=put(prefix(c["kv_lens"]) * np.int32(c["hkv"] * c["dv"])))
    k, v = (a.transpose(1, 2) if x.table is not None and c["layout"] == "NHD" else a for a in (call.k, call.v))
    out, lse = prefill.cudnn_batch_prefill_with_kv_cache(
        call.q, k, v, call.scale, call.space, max_token_per_sequence=max(c["q_lens"]), max_sequence_kv=max(c["kv_lens"]), actual_seq_lens_q=lens("q_lens"),
        actual_seq_lens_kv=lens("kv_lens"), causal=c["causal"], return_lse=True, batch_offsets_q=call.q_start * (c["hq"] * c["dk"]), batch_offsets_o=call.q_start * (c["hq"] * c["dv"]),
        out=call.out, **more)
    return out, torch.cat([lse[b, :n] for b, n in enumerate(c["q_lens"])])


def answer(x):
    """Out [T,Hq,Dv] and, where this path of FlashInfer gives it, the natural LSE [T,Hq]; float64 on the host."""
    c, call = x.case, Call(x)
    run = {"xqa": xqa, "cudnn": cudnn}.get(c["peer"]) or {"decode": decode, "append": paged, "paged": paged, "ragged": ragged}[c["mode"]]
    out, lse = run(call)
    torch.cuda.synchronize()
    return host(out), host(lse)


class Device:
    """Where oracle.answer computes the formula."""

    xp = torch
    put = staticmethod(put)
    get = staticmethod(host)
    decode = staticmethod(lambda codes, dtype: codes.view(TYPES[dtype]).double())


def oracle(x):
    return formula(x, Device)
