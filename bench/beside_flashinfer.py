#!/usr/bin/env python3
"""Our outputs beside FlashInfer's on random calls, both against the formula in float64: ours must never err more than twice as much.

    beside_flashinfer.py --ours bin/gpu.test [--seed N] [--cases 200] [--seconds S] [--keep DIR]     on a GPU with PyTorch and FlashInfer
    beside_flashinfer.py --ours bin/gpu.test --cpu --cases 8                                         without either: our CPU backend beside a model

Draws calls of both functions from the seed (the clock's, printed, where none is given), across what FlashInfer can do on sm_90, gives each to one of
FlashInfer's paths (xqa, its fa2 and fa3 wrappers, cuDNN) and to ops.Decode or ops.Prefill, by TestBeside of the test binary: with NaN in all that nothing
may look at. Works in batches; a batch's verdicts are printed, a JSON line a case, before the next is drawn, and what is drawn does not depend on them.
At last a line for all. Exit status 1 where a case fails (beside/verdict.py), 2 where none does but fewer than --cases could be compared, as --seconds
were over or FlashInfer lost the device. A kind of call whose module nobody has compiled (flashinfer_modules.py), or that FlashInfer refuses twice, is
not drawn, which is printed too.
"""
import argparse, collections, json, math, os, subprocess, sys, tempfile, time
from pathlib import Path

from beside import cases, files, oracle, verdict
from beside.inputs import KIND, Inputs
import numpy as np

FROM_FILE = {"F16": "f16", "BF16": "bf16", "F8_E4M3": "e4m3", "F32": "f32"}


def say(**line):
    print(json.dumps(line), flush=True)


def stored(t):
    """A tensor of a file in float64."""
    dtype, shape, b = t
    k = KIND[FROM_FILE[dtype]]
    return k.decode(np.frombuffer(b, k.store)).reshape(shape)


class Comparison:
    """A run: calls come from cases.cases, FlashInfer's answers from peer and the formula's from right, both functions of an Inputs."""

    def __init__(self, calls, dropped, peer, right, seconds=math.inf):
        self.calls, self.dropped, self.peer, self.right = calls, dropped, peer, right
        self.start, self.seconds = time.perf_counter(), seconds
        self.refusals, self.lost, self.done = collections.Counter(), False, False
        self.compared = self.failed = self.off = self.decode = 0
        self.worst = 0.0

    def over(self):
        return self.lost or self.done or time.perf_counter() - self.start >= self.seconds

    def prepare(self, folder, most):
        """Draws calls, lets the peer and the oracle answer, and writes them down for ours, until there are enough or the time is over."""
        ready = []
        while len(ready) < most and not self.over():
            name, kind, c = next(self.calls, (None,) * 3)
            if c is None:
                self.done = True
                break
            clock = [time.perf_counter()]
            lap = lambda: clock.append(time.perf_counter())
            x = Inputs(c)
            lap()
            try:
                out, lse = self.peer(x)
            except Exception as e:
                self.refused(name, kind, c, e)
                continue
            lap()
            want, want_lse = self.right(x)
            lap()
            files.write(folder / f"{name.replace('/', '-')}.safetensors", x.ours(), dict(call=json.dumps(x.scalars())))
            errors = oracle.errors(c, out, lse if c["lse"] else None, want, want_lse)
            rounding = oracle.rounding(c, want)
            lap()
            seconds = {k: round(b - a, 3) for k, a, b in zip(("inputs", "flashinfer", "oracle", "rest"), clock, clock[1:])}
            ready.append((name, c, errors, rounding, want, want_lse, seconds))
        return ready

    def refused(self, name, kind, c, e):
        if "CUDA error" in str(e):  # nothing works on this context any more
            self.lost = True
            say(case=name, peer_error=str(e)[:300], **c)
            return
        self.refusals[kind] += 1
        if self.refusals[kind] > 1:
            self.dropped.add(kind)
        say(case=name, peer_error=f"{type(e).__name__}: {e}"[:300], dropped=kind in self.dropped, kind=kind)

    def judge(self, folder, ready):
        """Reads what ours gave. flashinfer_off in a line: FlashInfer errs itself beyond what ops/opstest allows a GPU."""
        for name, c, peer, rounding, want, want_lse, seconds in ready:
            self.compared += 1
            self.decode += c["op"] == "decode"
            self.off += peer["bound"] > 1
            base = folder / name.replace("/", "-")
            facts = dict(case=name, seconds=seconds, **{k: v for k, v in c.items() if v is not None and v is not False})
            try:
                got = files.read(base.with_name(base.name + ".out"))
            except FileNotFoundError:
                error = base.with_name(base.name + ".error")
                say(FAIL=error.read_text() if error.exists() else "no answer of ours", **facts)
                self.failed += 1
                continue
            ours = oracle.errors(c, stored(got["out"]), stored(got["lse"]) if "lse" in got else None, want, want_lse)
            faults = verdict.faults(c, ours, peer, rounding)
            ratio = ours["steps"] / max(peer["steps"], verdict.STEP / 2)
            self.failed += bool(faults)
            self.worst = max(self.worst, ratio)
            notes = dict(FAIL="; ".join(faults)) if faults else {}
            if peer["bound"] > 1:
                notes["flashinfer_off"] = True
            say(**notes, ratio=round(ratio, 3), ours=ours, flashinfer=peer, rounding_nmse=rounding, **facts)

    def run(self, ours, cases, batch, keep=None):
        """ours lets our side answer a folder's calls and returns a status, 0: well. Returns the exit status."""
        status, seconds = 0, collections.Counter()
        while self.compared < cases and not self.over():
            with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as temporary:
                folder = keep / f"{self.compared:03}" if keep else Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                clock = [time.perf_counter()]
                ready = self.prepare(folder, min(batch, cases - self.compared))
                clock.append(time.perf_counter())
                if ready:
                    status = ours(folder) or status
                clock.append(time.perf_counter())
                self.judge(folder, ready)
                clock.append(time.perf_counter())
            seconds.update({k: b - a for k, a, b in zip(("prepare", "ours", "judge"), clock, clock[1:])})
        say(compared=self.compared, asked=cases, failed=self.failed, worst_ratio=round(self.worst, 3), flashinfer_off=self.off, decode=self.decode,
            seconds={k: round(v, 1) for k, v in seconds.items()}, status=status)
        return 1 if self.failed or status else 2 * (self.compared < cases)


def runner(binary, *flags):
    def ours(folder):
        command = [binary, "-test.run", "^TestBeside$", "-beside", str(folder.absolute()), *flags]
        run = subprocess.run(command, env=os.environ | {"GAZE_REQUIRE_GPU": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode:
            print(run.stdout[-3000:], flush=True)
        return run.returncode

    return ours


def main():
    start = time.perf_counter()
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--ours", required=True, help="the test binary of cudaops/hardware")
    ap.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    ap.add_argument("--cases", type=int, default=200)
    ap.add_argument("--batch", type=int, default=20)
    ap.add_argument("--seconds", type=float, default=math.inf, help="after which nothing more is drawn; loading PyTorch counts too")
    ap.add_argument("--size", type=int, default=1 << 20, help="elements of K; a tenth of the cases have four times as many")
    ap.add_argument("--only", default="", help="kinds whose text has it")
    ap.add_argument("--skip", default="")
    ap.add_argument("--cpu", action="store_true")
    ap.add_argument("--keep", type=Path, help="folder for the calls and our answers")
    a = ap.parse_args()
    text = lambda kind: f"{kind[0]} {kind[1]}"
    dropped = {k for k in cases.kinds() if a.only not in text(k) or (a.skip and a.skip in text(k))}
    if a.cpu:
        peer, right, facts = oracle.modelled, oracle.answer, dict(peer="a model of FlashInfer", device="cpu")
    else:
        import flashinfer, torch
        import flashinfer_modules
        from beside import peers

        have = flashinfer_modules.compiled()
        missing = [m for m in cases.MODULES if m not in have]
        dropped.update(k for k in cases.kinds() if k[0] in missing)
        peer, right = peers.answer, peers.oracle
        facts = dict(peer=f"FlashInfer {flashinfer.__version__}", device=torch.cuda.get_device_name(0), torch=torch.__version__, not_compiled=missing)
    say(seed=a.seed, cases=a.cases, **facts, loaded=round(time.perf_counter() - start, 1))
    run = Comparison(cases.cases(a.seed, dropped, a.size), dropped, peer, right, a.seconds - (time.perf_counter() - start))
    sys.exit(run.run(runner(a.ours, *["-beside.cpu"] * a.cpu), a.cases, a.batch, a.keep))


if __name__ == "__main__":
    main()
