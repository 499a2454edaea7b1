#!/usr/bin/env python3
"""Our outputs beside FlashInfer's on random calls, both against the formula in float64: ours must never err more than twice as much.

    beside_flashinfer.py --ours bin/gpu.test [--seed N] [--cases 200] [--keep DIR]     on a GPU with PyTorch and FlashInfer
    beside_flashinfer.py --ours bin/gpu.test --cpu --cases 8                           without either: our CPU backend beside a model of FlashInfer

Draws calls of both functions from the seed (the clock's, printed, where none is given), across what FlashInfer can do on sm_90, gives each to one of
FlashInfer's paths (xqa, its fa2 and fa3 wrappers, cuDNN) and to ops.Decode or ops.Prefill, by TestBeside of the test binary: with NaN in all that nothing
may look at. Prints a JSON line a case and one for all; exit status 1 where a case fails (beside/verdict.py) or fewer than --cases could be compared.
A kind of call that FlashInfer refuses twice is drawn no more, which is printed too.
"""
import argparse, collections, json, os, random, subprocess, sys, tempfile, time
from pathlib import Path

import numpy as np

from beside import cases, files, oracle, verdict
from beside.inputs import KIND, Inputs

FROM_FILE = {"F16": "f16", "BF16": "bf16", "F8_E4M3": "e4m3", "F32": "f32"}


def say(**line):
    print(json.dumps(line), flush=True)


def stored(t):
    """A tensor of a file in float64."""
    dtype, shape, b = t
    k = KIND[FROM_FILE[dtype]]
    return k.decode(np.frombuffer(b, k.store)).reshape(shape)


class Refused(Exception):
    pass


def prepare(a, folder, peer, right):
    """Draws calls, lets the peer and the oracle answer, and writes them down for ours, until there are enough. flashinfer_off in a line: FlashInfer
    errs itself beyond what ops/opstest allows a GPU."""
    dropped, refusals, ready = set(), collections.Counter(), []
    kept = lambda kind: a.only in f"{kind[0]} {kind[1]}"
    dropped.update(k for k in cases.kinds() if not kept(k) or (a.skip and a.skip in f"{k[0]} {k[1]}"))
    for name, kind, c in cases.cases(random.Random(a.seed), dropped, a.size):
        if len(ready) == a.cases:
            break
        x = Inputs(c)
        start = time.perf_counter()
        try:
            out, lse = peer(x)
        except Exception as e:
            if "CUDA error" in str(e):  # nothing works on this context any more
                say(case=name, peer_error=str(e)[:300], **c)
                break
            refusals[kind] += 1
            say(case=name, peer_error=f"{type(e).__name__}: {e}"[:300], dropped=refusals[kind] > 1, kind=kind)
            if refusals[kind] > 1:
                dropped.add(kind)
            continue
        want, want_lse = right(x)
        files.write(folder / f"{name.replace('/', '-')}.safetensors", x.ours(), dict(call=json.dumps(x.scalars())))
        errors = oracle.errors(c, out, lse if c["lse"] else None, want, want_lse)
        ready.append((name, c, errors, oracle.rounding(c, want), want, want_lse, round(time.perf_counter() - start, 3)))
    return ready


def judge(folder, ready):
    """Reads what ours gave; returns how many of the cases fail."""
    bad = worst = 0
    for name, c, peer, rounding, want, want_lse, seconds in ready:
        base = folder / name.replace("/", "-")
        facts = dict(case=name, seconds=seconds, **{k: v for k, v in c.items() if v is not None and v is not False})
        try:
            got = files.read(base.with_name(base.name + ".out"))
        except FileNotFoundError:
            error = base.with_name(base.name + ".error")
            say(FAIL=error.read_text() if error.exists() else "no answer of ours", **facts)
            bad += 1
            continue
        ours = oracle.errors(c, stored(got["out"]), stored(got["lse"]) if "lse" in got else None, want, want_lse)
        faults = verdict.faults(c, ours, peer, rounding)
        ratio = ours["steps"] / max(peer["steps"], verdict.STEP / 2)
        bad, worst = bad + bool(faults), max(worst, ratio)
        notes = dict(FAIL="; ".join(faults)) if faults else {}
        if peer["bound"] > 1:
            notes["flashinfer_off"] = True
        say(**notes, ratio=round(ratio, 3), ours=ours, flashinfer=peer, rounding_nmse=rounding, **facts)
    return bad, worst


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--ours", required=True, help="the test binary of cudaops/hardware")
    ap.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    ap.add_argument("--cases", type=int, default=200)
    ap.add_argument("--size", type=int, default=1 << 20, help="elements of K; a tenth of the cases have four times as many")
    ap.add_argument("--only", default="", help="kinds whose text has it")
    ap.add_argument("--skip", default="")
    ap.add_argument("--cpu", action="store_true")
    ap.add_argument("--keep", type=Path, help="folder for the calls and our answers")
    a = ap.parse_args()
    if a.cpu:
        peer, right, facts = oracle.modelled, oracle.answer, dict(peer="a model of FlashInfer", device="cpu")
    else:
        import flashinfer, torch
        import flashinfer_modules
        from beside import peers

        flashinfer_modules.here()
        peer, right = peers.answer, peers.oracle
        facts = dict(peer=f"FlashInfer {flashinfer.__version__}", device=torch.cuda.get_device_name(0), torch=torch.__version__)
    say(seed=a.seed, cases=a.cases, **facts)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as temporary:
        folder = a.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        ready = prepare(a, folder, peer, right)
        middle = time.perf_counter()
        command = [a.ours, "-test.run", "^TestBeside$", "-beside", str(folder.absolute())] + ["-beside.cpu"] * a.cpu
        run = subprocess.run(command, env=os.environ | {"GAZE_REQUIRE_GPU": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode:
            print(run.stdout[-3000:], flush=True)
        bad, worst = judge(folder, ready)
    say(seed=a.seed, compared=len(ready), failed=bad, worst_ratio=round(worst, 3), flashinfer_off=sum(r[2]["bound"] > 1 for r in ready),
        decode=sum(r[1]["op"] == "decode" for r in ready), seconds=[round(middle - start, 1), round(time.perf_counter() - middle, 1)], status=run.returncode)
    sys.exit(bool(bad or run.returncode or len(ready) < a.cases))


if __name__ == "__main__":
    main()
