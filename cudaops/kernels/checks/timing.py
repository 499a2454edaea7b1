"""Times on a GPU, as the peers' benchmark takes them: medians of event-timed replays of a graph of one call after the L2 flush."""
import json, math
import numpy as np

from .device import P, decode_facts, launch_facts, set_divisors
from .layer import turns_of
from .numbers import BF16
from .prefill import TYPES, tma_maps

# Seconds read once, by megabytes: kernels read this fast at best on the H200 of peers/RESULTS.md, launch included.
FLOOR = [(0, 4.2), (2, 6.9), (4, 7.3), (17, 10.3), (34, 14.6), (67, 22.8), (134, 39.2), (268, 71.5), (537, 134.4), (1074, 259.0), (2147, 500.2)]

# The cases of the peers' benchmark. batch, keys, q heads, KV heads, head dim, page size, type of K and V, then any of ragged, window, q_len.
# batch, kv_len, q heads, kv heads, head dim, page size, dtype of the cache, then any of: ragged, window, q_len
DECODE = [(b, n, hq, hk, d, 16, "bf16", {}) for (hq, hk, d) in [(32, 8, 128), (64, 8, 128), (64, 8, 64)]
          for (b, n) in [(1, 1024), (1, 8192), (1, 131072), (16, 1024), (16, 8192), (64, 1024), (64, 8192), (256, 2048)]] + [
    (64, 8192, 32, 8, 128, 64, "bf16", {}), (64, 8192, 32, 8, 128, 16, "bf16", {"ragged": True}), (64, 8192, 64, 8, 64, 16, "bf16", {"window": 127}),
    (64, 128, 64, 8, 64, 16, "bf16", {}), (16, 8192, 64, 8, 128, 16, "bf16", {"q_len": 4}), (1024, 512, 32, 32, 128, 16, "bf16", {}),
    (64, 8192, 32, 8, 128, 16, "fp8", {}), (64, 8192, 32, 8, 128, 64, "fp8", {}), (16, 8192, 64, 8, 128, 16, "fp8", {}), (64, 4096, 8, 4, 256, 16, "bf16", {}),
    (64, 2048, 9, 3, 64, 16, "bf16", {}), (64, 2048, 40, 8, 128, 16, "bf16", {}),
    (1, 8192, 32, 8, 128, 16, "fp8", {}), (16, 1024, 32, 8, 128, 16, "fp8", {}), (64, 4096, 8, 4, 256, 16, "fp8", {})]


def decode_name(b, n, hq, hk, d, ps, dt, opt):
    return f"b{b}_kv{n}_h{hq}/{hk}_d{d}_p{ps}_{dt}" + "".join(f"_{k}{v}" for k, v in opt.items())


# The better FlashInfer path on 2026-11-29 (peers/RESULTS.md), for orientation: ratios that count come from one run.
DECODE_PEERS = dict(zip([decode_name(*c) for c in DECODE],
                        [13.0, 22.6, 145.5, 30.9, 143.5, 84.7, 500.3, 508.4, 14.0, 23.5, 146.0, 31.0, 144.4, 84.5, 501.4, 513.0, 10.7, 16.9, 87.8, 19.4, 84.8, 53.6,
                         268.0, 278.2, 495.7, 307.0, 22.8, 22.2, 165.4, 1972.8, 320.8, 311.6, 99.8, 262.4]))
PREFILL = [(16, 1024, 1024, 32, 8, 128, 128, True, 16, 385), (16, 1024, 1024, 32, 8, 128, 128, True, 0, 297),
           (16, 1024, 1024, 32, 8, 128, 128, False, 16, 612), (16, 1024, 1024, 32, 8, 128, 128, False, 0, 490),
           (4, 4096, 4096, 32, 8, 128, 128, True, 16, 1194), (4, 4096, 4096, 32, 8, 128, 128, True, 0, 890),
           (4, 4096, 4096, 32, 8, 128, 128, False, 16, 2168), (4, 4096, 4096, 32, 8, 128, 128, False, 0, 1730),
           (1, 16384, 16384, 32, 8, 128, 128, True, 16, 4244), (1, 16384, 16384, 32, 8, 128, 128, True, 0, 3535),
           (1, 16384, 16384, 32, 8, 128, 128, False, 16, 8570), (1, 16384, 16384, 32, 8, 128, 128, False, 0, 6848),
           (16, 1024, 1024, 128, 128, 192, 128, True, 0, 1586), (16, 1024, 1024, 128, 128, 192, 128, False, 0, 2475),
           (4, 4096, 4096, 128, 128, 192, 128, True, 0, 4630), (4, 4096, 4096, 128, 128, 192, 128, False, 0, 8501),
           (1, 16384, 16384, 128, 128, 192, 128, True, 0, 17136), (1, 16384, 16384, 128, 128, 192, 128, False, 0, 32590),
           (8, 512, 8192, 32, 8, 128, 128, True, 16, 1073),
           (4, 4096, 4096, 32, 8, 64, 64, True, 0, None), (4, 4096, 4096, 32, 8, 64, 64, False, 0, None),
           (4, 4096, 4096, 16, 8, 256, 256, True, 0, 919), (4, 4096, 4096, 16, 8, 256, 256, False, 0, 1671),
           (4, 4096, 4096, 16, 8, 256, 256, True, 16, None), (4, 4096, 4096, 16, 8, 192, 192, True, 0, None),
           (4, 4096, 4096, 32, 8, 96, 96, True, 0, None)]


def replay_us(fn):
    """Median of event-timed replays of a graph of one call after the L2 flush, as the peers' benchmark does."""
    import torch, triton.testing as tt
    torch.cuda.synchronize()  # the stream below does not wait for what fills the operands
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        for _ in range(3):
            fn()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        fn()
    return tt.do_bench(lambda: g.replay(), warmup=20, rep=120, return_mode="median") * 1e3


def back_to_back_us(fn, reps=30):
    """Mean of calls enqueued one behind the other, L2 warm: the only way in which FlashAttention-3's wheel is timed."""
    import time, torch
    fn()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(reps):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / reps * 1e6


def floor_us(nbytes):
    return float(np.interp(nbytes / 1e6, [m for m, _ in FLOOR], [t for _, t in FLOOR])) if nbytes < 2147e6 else nbytes / 2147e6 * 500.2


def launcher(dev, symbol, grid, threads, shared, p):
    import torch
    return lambda: dev.launch(symbol, grid, threads, shared, p, torch.cuda.current_stream().cuda_stream)


def words(*shape):
    import torch
    return torch.zeros(*shape, dtype=torch.int32, device="cuda")


class DecodeBench:
    """One case of the decode benchmark: its tensors, parameters and launch."""

    def __init__(self, dev, args, case):
        import torch
        b, n, hq, hk, d, ps, dt, opt = self.case = case
        gen = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        pages, L, w = -(-n // ps), opt.get("q_len", 1), opt.get("window", -1)
        self.lens = torch.randint(1, n + 1, (b,), generator=gen, dtype=torch.int32) if "ragged" in opt else torch.full((b,), n, dtype=torch.int32)
        kv = torch.randn(b * pages, 2, hk, ps, d, device="cuda", dtype=torch.bfloat16)
        self.kv = kv.to(torch.float8_e4m3fn) if dt == "fp8" else kv
        self.q = torch.randn(b * L, hq, d, device="cuda", dtype=torch.bfloat16)
        self.table = torch.randperm(b * pages, device="cuda", dtype=torch.int32).view(b, pages)
        self.out = torch.full_like(self.q, float("nan"))
        size = self.kv.element_size()
        self.nbytes = 2 * int((self.lens.clamp(max=w + 1) if w >= 0 else self.lens).sum()) * hk * d * size + 2 * self.q.numel() * 2
        threads, shared, rows, per_sm = decode_facts(d, dt == "fp8", hq // hk * L, args.target)
        grid = (args.blocks or per_sm) * dev.sms
        self.ws, self.counters, self.fault = torch.full((2 * grid * rows * (d + 2),), float("nan"), device="cuda"), words(grid), words(8)
        self.device_lens = self.lens.cuda()
        p = self.p = P["DecodeParams"]()
        p.q, p.k, p.v = self.q.data_ptr(), self.kv.data_ptr(), self.kv.data_ptr() + hk * ps * d * size
        p.block_tables, p.seq_lens, p.out, p.workspace, p.counters, p.fault = (x.data_ptr() for x in (self.table, self.device_lens, self.out, self.ws, self.counters, self.fault))
        p.q_token, p.q_head, p.k_page, p.k_head, p.k_token = hq * d, d, 2 * hk * ps * d, ps * d, d
        p.v_page, p.v_head, p.v_token, p.table_row, p.tokens, p.pages = 2 * hk * ps * d, ps * d, d, pages, b * L, b * pages
        p.bmm1_scale, p.bmm2_scale, p.batch, p.q_heads, p.kv_heads, p.q_len, p.max_q_len = 1 / math.sqrt(d), 1, b, hq, hk, L, L
        p.page_size, p.max_pages, p.max_seq_len, p.window_left = ps, pages, n, w
        set_divisors(p)
        if dt == "fp8":
            p.q_type = p.out_type = 2
        self.symbol = f"decode_h{d}_r{rows}_" + (f"kve4m3_{args.target}" if dt == "fp8" else f"bf16_kvbf16_{args.target}")
        self.run = launcher(dev, self.symbol, (grid,), threads, shared, p)

    def error(self):
        """The largest error of a row over its largest element, against float64 on the first and the last request."""
        import torch
        b, n, hq, hk, d, ps, dt, opt = self.case
        L, w, worst = opt.get("q_len", 1), opt.get("window", -1), 0.0
        for r in {0, b - 1}:
            s = int(self.lens[r])
            c = self.kv.view(torch.uint8)[self.table[r, : -(-s // ps)].long()].view(self.kv.dtype).transpose(2, 3)  # [pages, 2, P, Hkv, D]
            kk, vv = (c[:, i].reshape(-1, hk, d)[:s].double() for i in (0, 1))
            qq = self.q[r * L : (r + 1) * L].double().view(L, hk, hq // hk, d)
            sc = torch.einsum("lhgd,shd->lhgs", qq, kk) / math.sqrt(d)
            pos = torch.arange(s - L, s, device="cuda")[:, None]
            j = torch.arange(s, device="cuda")[None]
            see = (j <= pos) & ((j >= pos - w) if w >= 0 else (j >= 0))
            want = torch.einsum("lhgs,shd->lhgd", sc.masked_fill(~see[:, None, None], -math.inf).softmax(-1), vv).reshape(L, hq, d)
            err = (self.out[r * L : (r + 1) * L].double() - want).abs().amax(-1) / want.abs().amax(-1)
            worst = max(worst, float(err.max()) if not err.isnan().any() else math.inf)
        return worst


def time_decode(dev, args):
    import torch
    for case in DECODE:
        name = decode_name(*case)
        if not any(m in name for m in args.match.split(",")):
            continue
        bench = DecodeBench(dev, args, case)
        best = {}
        for m in args.min_units:
            bench.p.min_units = m
            best[m] = replay_us(bench.run)
        us, worst = min(best.values()), bench.error()
        fl = floor_us(bench.nbytes)
        line = dict(op="decode", case=name, symbol=bench.symbol, us=round(us, 2), tbps=round(bench.nbytes / us / 1e6, 3), floor_us=round(fl, 1),
                    of_floor=round(fl / us, 3), peer_us_recorded=DECODE_PEERS.get(name), row_err=round(worst, 5))
        if name in DECODE_PEERS:
            line["ratio_recorded"] = round(DECODE_PEERS[name] / us, 3)
        if len(best) > 1:
            line["min_units_us"] = {str(m): round(t, 2) for m, t in best.items()}
        if worst > 0.012 or int(bench.fault[0]) or int(bench.counters.abs().max()):
            line["WRONG"] = f"error {worst}, fault {bench.fault.tolist()}, counters {int(bench.counters.abs().max())}"
        print(json.dumps(line), flush=True)
        del bench
        torch.cuda.empty_cache()


def time_prefill(dev, args, tma=False):
    """bf16, and e4m3 with a bf16 output where there is a kernel for it."""
    import torch
    for (b, nq, nk, hq, hk, d, dv, causal, ps, peer), kind in [(c, k) for k in ("bf16", "e4m3") for c in PREFILL]:
        name = f"b{b}_q{nq}_kv{nk}_h{hq}/{hk}_d{d}/{dv}_{'causal' if causal else 'full'}_{'p%d' % ps if ps else 'ragged'}_{kind}"
        dims = str(d) if d == dv else f"{d}x{dv}"
        symbol = f"prefill_h{dims}_{kind}{'_tma' * tma}_{args.target}"
        if args.match not in name or not dev.has(symbol):
            continue
        torch.manual_seed(0)
        e4m3 = kind == "e4m3"
        size, dt = (1, torch.float8_e4m3fn) if e4m3 else (2, torch.bfloat16)
        normal = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16).to(dt)
        q = normal(b * nq, hq, d)
        out = torch.full((b * nq, hq, dv), float("nan"), device="cuda", dtype=torch.bfloat16)
        ql, kl = (torch.full((b,), n, dtype=torch.int32, device="cuda") for n in (nq, nk))
        counters, fault = words(2), words(8)
        p = P["PrefillParams"]()
        if ps:
            pages = -(-nk // ps)
            kv = normal(b * pages, 2, hk, ps, d)
            table = torch.randperm(b * pages, device="cuda", dtype=torch.int32).view(b, pages)
            p.k, p.v, p.block_tables = kv.data_ptr(), kv.data_ptr() + hk * ps * d * size, table.data_ptr()
            p.k_page = p.v_page = 2 * hk * ps * d
            p.k_head = p.v_head = ps * d
            p.k_token = p.v_token = d
            p.table_row, p.pages, p.page_size, p.max_pages = pages, b * pages, ps, pages
        else:
            k, v = (normal(b * nk, hk, n) for n in (d, dv))
            p.k, p.v, p.kv_tokens = k.data_ptr(), v.data_ptr(), b * nk
            p.k_token, p.v_token = hk * d, hk * dv
            p.k_head, p.v_head = d, dv
        p.q, p.q_lens, p.kv_lens, p.out, p.counters, p.fault = (x.data_ptr() for x in (q, ql, kl, out, counters, fault))
        p.q_token, p.q_head, p.tokens, p.scale, p.batch, p.q_heads, p.kv_heads = hq * d, d, b * nq, 1 / math.sqrt(d), b, hq, hk
        p.max_q_len, p.max_kv_len, p.causal = nq, nk, int(causal)
        if e4m3:
            one = torch.ones(1, device="cuda")
            p.q_scale = p.k_scale = p.v_scale = one.data_ptr()
            p.out_type = TYPES["bf16"]
        threads, shared, _, per_sm = launch_facts("PREFILL" + "_E4M3" * e4m3 + "_TMA" * tma, dims.upper(), args.target)
        if tma:
            assert tma_maps(dev, p, BF16, d, dv)
        launch = launcher(dev, symbol, (per_sm * dev.sms,), threads, shared, p)
        us, in_a_row = replay_us(launch), back_to_back_us(launch)
        worst = 0.0  # 64 rows each of the first and the last request, two heads
        for r in {0, b - 1}:
            if ps:
                c = kv.view(torch.int8 if e4m3 else dt)[table[r].long()].view(dt).transpose(2, 3)
                kk, vv = (c[:, i].reshape(-1, hk, d)[:nk] for i in (0, 1))
            else:
                kk, vv = (x[r * nk : (r + 1) * nk] for x in (k, v))
            rows = torch.linspace(0, nq - 1, 64, device="cuda").long()
            for h in (0, hq - 1):
                sc = q[r * nq : (r + 1) * nq, h].double()[rows] @ kk[:, h // (hq // hk)].double().T / math.sqrt(d)
                if causal:
                    sc.masked_fill_(torch.arange(nk, device="cuda")[None] > (rows + nk - nq)[:, None], -math.inf)
                want = sc.softmax(-1) @ vv[:, h // (hq // hk)].double()
                err = (out[r * nq + rows, h].double() - want).abs().amax(-1) / want.abs().amax(-1)
                worst = max(worst, float(err.max()) if not err.isnan().any() else math.inf)
        pairs = nq * nk - (nq * (nq - 1) // 2 if causal else 0)
        flops = 2 * (d + dv) * hq * b * pairs
        line = dict(op="prefill", case=name, symbol=symbol, us=round(us, 1), tflops=round(flops / us / 1e6, 1), back_to_back_us=round(in_a_row, 1), row_err=round(worst, 5))
        if peer and not e4m3:
            line.update(peer_us_recorded=peer, ratio_recorded=round(peer / us, 3))
        if worst > 0.012 or int(fault[0]) or int(counters.abs().max()):
            line["WRONG"] = f"error {worst}, fault {fault.tolist()}, counters {int(counters.abs().max())}"
        print(json.dumps(line), flush=True)
        del q, out
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
        show(f"t{T}_h32/8_d128_rope", sym, replay_us(launcher(dev, sym, (min(6 * T, 8 * dev.sms),), 256, 0, p3)), 4 * T * 48 * 128)
    logits, ids = rnd(1, 128256), words(1)
    p4 = P["ArgmaxParams"]()
    p4.x, p4.out, p4.x_row, p4.rows, p4.columns = logits.data_ptr(), ids.data_ptr(), 128256, 1, 128256
    sym = f"argmax_bf16_{args.target}"
    show("t1_v128256", sym, replay_us(launcher(dev, sym, (1,), 1024, 0, p4)), 2 * 128256)


def time_sampling(dev, args):
    """Softmax and top-k over a vocabulary of 128256, beside PyTorch's."""
    import torch
    V = 128256
    for T in (1, 64):
        x, probs = 4 * torch.randn(T, V, device="cuda", dtype=torch.bfloat16), torch.empty(T, V, device="cuda")

        def show(case, symbol, params, peer, nbytes):
            us = replay_us(launcher(dev, symbol, (T,), 1024, 0, params))
            print(json.dumps(dict(op=symbol.split("_")[0], case=f"t{T}_v{V}{case}", symbol=symbol, us=round(us, 2), torch_us=round(replay_us(peer), 2),
                                  floor_us=round(floor_us(nbytes), 1))), flush=True)

        p = P["SoftmaxParams"]()
        p.logits, p.out, p.logits_row, p.rows, p.columns, p.scale = x.data_ptr(), probs.data_ptr(), V, T, V, 1 / math.log(2)
        show("", f"softmax_bf16_{args.target}", p, lambda: torch.softmax(x, -1, dtype=torch.float32), 6 * T * V)
        for k in (1, 40, 1024):
            values, indices = torch.empty(T, k, device="cuda"), torch.empty(T, k, dtype=torch.int32, device="cuda")
            p = P["TopKParams"]()
            p.logits, p.values, p.indices, p.logits_row, p.rows, p.columns, p.k = x.data_ptr(), values.data_ptr(), indices.data_ptr(), V, T, V, k
            show(f"_k{k}", f"topk_bf16_{args.target}", p, lambda: torch.topk(x, k), 2 * T * V)


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
