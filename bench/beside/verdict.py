"""When our error is right: never worse than twice FlashInfer's."""

# Below these an error says nothing of a kernel. One rounding step: an output must be rounded, which costs up to half a step, and a last step of the
# sum before it may turn the rounding over, so of two right kernels one can be nearly exact on a few rows where the other errs by a step. For the
# LSE, float32 arithmetic's own bound in the suite.
STEP = 1.0
LSE = 2e-5
# What ops/opstest allows a GPU: Σ(got-want)²/Σwant² of a 16-bit output under a 16-bit query.
NMSE = {"bf16": 2e-5, "f16": 1e-7}


def faults(c, ours, peer, rounding):
    """What is wrong with our errors, as text; nothing: an empty list. ours and peer are oracle.errors', rounding is what rounding the right answer
    alone costs in nmse. A peer that errs beyond H11 itself is no excuse: that bound holds anyway."""
    out = []
    if not ours["steps"] <= max(2 * peer["steps"], STEP):
        out.append(f"{ours['steps']:.3g} steps beside {peer['steps']:.3g}")
    if not ours["nmse"] <= 4 * max(peer["nmse"], rounding):  # of squares
        out.append(f"nmse {ours['nmse']:.3g} beside {peer['nmse']:.3g}, {rounding:.3g} by rounding")
    if not ours["bound"] <= 1:
        out.append(f"{ours['bound']:.3g} of the bound")
    # Where most values are below e4m3's normal numbers (a mean of 8,192 values: seed 382442818), rounding alone costs more than that.
    if c["q"] != "e4m3" and not ours["nmse"] <= max(NMSE.get(c["out"], 5e-3), 2 * rounding):
        out.append(f"nmse {ours['nmse']:.3g}")
    if (ours["lse"] is None) != (peer["lse"] is None):
        out.append("an LSE is missing")
    elif ours["lse"] is not None and not ours["lse"] <= max(2 * peer["lse"], LSE):
        out.append(f"lse {ours['lse']:.3g} beside {peer['lse']:.3g}")
    return out
