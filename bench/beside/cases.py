"""What is drawn: which FlashInfer kernels, and random calls that both sides can run, as plain values."""
import math, random

# FlashInfer's modules, each compiled at first use. xqa: dtypes of q, KV and out, page size, head dim, group, window, q_len. fa2, fa3 (prefill
# kernels, which decode takes too) and decode (no tensor cores): dtypes of q, KV and out, head dims, window.
MODULES = [
    ("xqa", "bf16", "bf16", "bf16", 16, 128, 4, False, 1),
    ("xqa", "bf16", "bf16", "bf16", 16, 128, 8, False, 1),
    ("xqa", "bf16", "bf16", "bf16", 16, 64, 8, True, 1),
    ("xqa", "bf16", "bf16", "bf16", 64, 128, 4, False, 1),
    ("xqa", "bf16", "bf16", "bf16", 16, 128, 5, False, 1),
    ("xqa", "bf16", "bf16", "bf16", 16, 64, 3, False, 1),
    ("xqa", "bf16", "bf16", "bf16", 16, 256, 2, False, 1),
    ("xqa", "bf16", "bf16", "bf16", 16, 96, 4, False, 1),
    ("xqa", "f16", "f16", "f16", 32, 192, 2, False, 1),
    ("xqa", "f16", "f16", "f16", 32, 128, 8, True, 1),
    ("xqa", "f16", "f16", "f16", 128, 64, 7, False, 1),
    ("xqa", "bf16", "bf16", "bf16", 16, 128, 8, False, 4),
    ("xqa", "bf16", "bf16", "bf16", 32, 64, 5, False, 3),
    ("xqa", "f16", "f16", "f16", 16, 128, 3, False, 17),
    ("xqa", "bf16", "e4m3", "bf16", 16, 128, 4, False, 1),
    ("xqa", "bf16", "e4m3", "bf16", 64, 128, 4, False, 1),
    ("xqa", "f16", "e4m3", "f16", 32, 64, 8, True, 1),
    ("xqa", "bf16", "e4m3", "e4m3", 16, 128, 4, False, 1),
    ("xqa", "bf16", "e4m3", "bf16", 16, 128, 8, False, 2),
    ("fa2", "bf16", "bf16", "bf16", 128, 128, False),
    ("fa2", "bf16", "bf16", "bf16", 64, 64, True),
    ("fa2", "f16", "f16", "f16", 128, 128, True),
    ("fa2", "bf16", "e4m3", "bf16", 128, 128, False),
    ("fa3", "bf16", "bf16", "bf16", 128, 128, False),
    ("fa3", "bf16", "bf16", "bf16", 64, 64, False),
    ("fa3", "bf16", "bf16", "bf16", 192, 128, False),
    ("fa3", "bf16", "bf16", "bf16", 256, 256, False),
    ("fa3", "e4m3", "e4m3", "bf16", 128, 128, False),
    ("decode", "bf16", "bf16", "bf16", 128, 128, False),
]

# What the cases of the peers' benchmark need.
PEER_MODULES = [("xqa", "bf16", kv, "bf16", page, d, group, window, q_len) for kv, page, d, group, window, q_len in [
    ("bf16", 16, 128, 4, False, 1), ("bf16", 16, 128, 8, False, 1), ("bf16", 16, 64, 8, False, 1), ("bf16", 64, 128, 4, False, 1), ("e4m3", 16, 128, 4, False, 1),
    ("e4m3", 64, 128, 4, False, 1), ("e4m3", 16, 128, 8, False, 1), ("bf16", 16, 64, 8, True, 1), ("bf16", 16, 128, 8, False, 4), ("bf16", 16, 128, 1, False, 1),
    ("bf16", 16, 256, 2, False, 1), ("bf16", 16, 64, 3, False, 1), ("bf16", 16, 128, 5, False, 1)]] + [
    ("decode", "bf16", "bf16", "bf16", 128, 128, False)] + [(kind, "bf16", kv, "bf16", dk, dv, window) for kind, kv, dk, dv, window in [
        ("fa2", "bf16", 128, 128, False), ("fa2", "bf16", 64, 64, False), ("fa2", "bf16", 64, 64, True), ("fa2", "bf16", 256, 256, False), ("fa2", "e4m3", 128, 128, False),
        ("fa3", "bf16", 128, 128, False), ("fa3", "bf16", 64, 64, False), ("fa3", "bf16", 192, 128, False), ("fa3", "bf16", 256, 256, False)]]

# cuDNN compiles nothing ahead; the shape of the tuples is fa3's.
CUDNN = [("cudnn", t, t, t, dk, 128, False) for t, dk in (("bf16", 128), ("f16", 128), ("bf16", 192))]


def kinds():
    """Pairs of a module and how it is called: decode (one query a request), append (causal queries of any length over pages, our decode with
    cum_seq_lens_q), paged and ragged prefill."""
    out = []
    for m in MODULES + CUDNN:
        peer, q, dk, dv = m[0], m[1], m[4], m[5]
        if peer in ("xqa", "decode"):
            out.append((m, "decode"))
        elif peer == "cudnn":
            out += [(m, "paged")] * (dk == dv) + [(m, "ragged")]
        elif m[2] != q:  # an e4m3 cache under 16-bit queries is decode's
            out += [(m, "decode"), (m, "append")]
        elif dk != dv:
            out.append((m, "ragged"))
        else:
            out += [(m, "decode")] * (peer == "fa2") + [(m, "append")] + ([] if m[6] else [(m, "paged"), (m, "ragged")])
    return out


def lengths(rng, n, page, least, cap):
    """KV lengths: about the edges of pages, of any size, one long among short ones, or all the same."""
    small = lambda: min(cap, round(math.exp(rng.uniform(math.log(least), math.log(max(least, min(cap, 600)))))))
    edge = lambda: min(cap, max(least, page * rng.randint(1, 4) + rng.choice((-1, 0, 1))))
    pattern = rng.choice(("edges", "any", "long", "same"))
    if pattern == "same":
        return [rng.choice((small, edge))()] * n
    lens = [(edge if pattern == "edges" else small)() for _ in range(n)]
    if pattern == "long":
        lens[rng.randrange(n)] = cap
    return lens


def f32(x):
    """The nearest number of four significant digits, so that float32 and float64 hold one value to 1e-8, and a log is short."""
    return float(f"{x:.4g}")


def draw(rng, kind, size=1 << 20):
    """One call of a kind: K and V of at most about size elements each."""
    module, mode = kind
    peer, q, kv, out = module[:4]
    c = dict(peer=peer, mode=mode, op="prefill" if mode in ("paged", "ragged") else "decode", q=q, kv=kv, out=out, window=-1, sinks=False, mask=None, varlen=mode == "append",
             causal=True, device_scales=False)
    if peer == "xqa":
        c["page"], dk, group, window, q_len = module[4:]
        dv = dk
    else:
        dk, dv, window = module[4:]
        q_len = 1
        c["page"] = rng.choice((8, 16, 64)) if peer == "cudnn" else rng.choice((1, 5, 8, 16, 32, 64))
        group = rng.choice((1, 2, 3, 4, 8) if peer == "decode" else (1, 2, 3, 4, 5, 6, 7, 8, 16))
    c.update(dk=dk, dv=dv, hkv=rng.choice((1, 2, 3, 4, 8)))
    c["hq"] = c["hkv"] * group
    n = rng.choice((1, 2, 3, 4, 5, 8, 13, 17))
    c["layout"], c["form"] = rng.choice(("HND", "NHD")), "ragged" if mode == "ragged" else rng.choice(("stacked", "pair"))
    if dk != dv:
        c["form"] = "ragged"
    cap = max(q_len + 1, size // (n * c["hkv"] * max(dk, dv)))
    c["kv_lens"] = lengths(rng, n, c["page"], q_len, cap)
    rows = max(1, size // (n * c["hq"] * max(dk, dv)) // 2)
    if c["op"] == "prefill":
        c["causal"] = rng.random() < 0.7
        whole = rng.random() < 0.4
        c["q_lens"] = [min(s, rows) if whole else rng.randint(1, min(s, rows)) for s in c["kv_lens"]]
    elif c["varlen"]:
        c["q_lens"] = [rng.randint(1, min(s, rows, rng.choice((1, 4, 40)))) for s in c["kv_lens"]]
    else:
        c["q_lens"] = [q_len] * n
    if window:
        c["window"] = min(max(c["kv_lens"]) - 1, rng.choice((0, 1, 7, 31, 63, 127, rng.randint(0, max(c["kv_lens"])))))
    if peer == "xqa":
        c["sinks"] = rng.random() < 0.4
        if q_len > 1:  # Hopper's e4m3 kernel takes every mask for the causal one
            c["mask"] = "causal" if kv == "e4m3" else rng.choice(("causal", "tree"))
        c["device_scales"] = rng.random() < 0.3
    c["lse"] = mode != "decode" or peer != "xqa"
    c["peaked"] = f32(math.exp(rng.uniform(math.log(0.3), math.log(4))))  # the spread of the logits
    c["k_scale"], c["v_scale"], c["q_scale"] = 1.0, 1.0, 1.0
    if kv == "e4m3":
        c["k_scale"], c["v_scale"] = f32(rng.uniform(0.2, 2)), f32(rng.uniform(0.2, 2))
        if q == "e4m3":
            c["q_scale"] = f32(rng.uniform(0.2, 2))
    c["scale"] = f32(c["peaked"] / math.sqrt(dk) / (c["q_scale"] * c["k_scale"]))
    c["columns"] = -(-max(c["kv_lens"]) // c["page"]) + rng.randint(0, 3)
    c["spare_pages"] = rng.randint(0, 5)
    c["values"] = rng.getrandbits(32)
    return c


def name(i, c):
    """Short, for people; the line of a case holds all of it."""
    heads = f"h{c['hq']}/{c['hkv']}_d{c['dk']}" + (f"/{c['dv']}" if c["dk"] != c["dv"] else "")
    types = "_".join(dict.fromkeys((c["q"], "kv" + c["kv"], "out" + c["out"]))) if len({c["q"], c["kv"], c["out"]}) > 1 else c["q"]
    page = "" if c["form"] == "ragged" else f"_p{c['page']}_{c['layout'].lower()}"
    return f"{i:03}_{c['peer']}_{c['mode']}_b{len(c['kv_lens'])}_{heads}{page}_{types}"


def cases(seed, dropped=(), size=1 << 20):
    """Calls without end: every kind comes once before any comes twice, in a new order each time. A tenth are of four times the size. dropped
    may grow meanwhile; the others stay what they are, for each is drawn from the seed and its own number."""
    every = kinds()
    i = 0
    while not all(k in dropped for k in every):
        order = random.Random(f"{seed} {i}").sample(every, len(every))
        for kind in order:
            if kind not in dropped:
                rng = random.Random(f"{seed} call {i}")
                yield name(i, c := draw(rng, kind, size * rng.choice((1,) * 9 + (4,)))), kind, c
            i += 1
