#!/usr/bin/env python3
"""Checks the compiled kernels against float64, on a GPU or on the CPU stand-in of emu/, and times them.

    check.py --emu LIB.so [--only PART]                 correctness on a CPU (emu/build.sh makes LIB.so)
    check.py --cubins DIR [--only PART] [--no-time]     correctness on the GPU, then the cases of the peers' benchmark

PART: decode, decode_large (on a GPU), prefill, prefill_tma, layer, sampling, linear, engine (comma-separated). --match TEXT runs the cases
whose name has it, --each N no more than N of each kernel. One JSON line per timed case, a summary line per part, exit status 1 when
anything is wrong. It needs Python, NumPy and a driver; for timing PyTorch with Triton. Everything a kernel must not touch is poisoned: NaN
in unused page slots, in pages no table names and in outputs before the call, absurd ids in unused table entries, guard bytes around every
buffer.
"""
import argparse, collections, json, sys, time, zlib
import numpy as np

from checks import decode, engine, layer, prefill, sampling, timing
from checks.buffers import Failure
from checks.device import Cuda, Emu


class Enough(Exception):
    """The case's kernel has had its share."""


class Rationed:
    """A device on which every kernel runs in so many cases; later ones end at their launch."""

    def __init__(self, dev, most):
        self.dev, self.most, self.cases, self.mine = dev, most, collections.Counter(), set()

    def __getattr__(self, name):
        return getattr(self.dev, name)

    def launch(self, symbol, *args):
        if symbol not in self.mine:
            if self.cases[symbol] >= self.most:
                raise Enough
            self.cases[symbol] += 1
            self.mine.add(symbol)
        self.dev.launch(symbol, *args)


def check(args, dev, part, cases, call):
    bad, n, start, worst = 0, 0, time.time(), 0.0
    for name, kw in cases.items():
        if args.match not in name:
            continue
        n += 1
        if args.each:
            dev.mine = set()
        try:
            e = call(dev, np.random.default_rng([args.seed, zlib.crc32(name.encode())]), args.target, **kw)
            worst = max(worst, e or 0.0)
            if args.verbose:
                print(f"ok {part}/{name} {e or 0:.2g}", flush=True)
        except Enough:
            n -= 1
        except (Failure, AssertionError, RuntimeError) as e:
            bad += 1
            print(f"FAIL {part}/{name}: {e}", flush=True)
            if "CUDA_ERROR" in str(e):
                sys.exit(1)
    print(json.dumps(dict(check=part, cases=n, failed=bad, worst_nmse=worst, seconds=round(time.time() - start, 1), seed=args.seed)), flush=True)
    return bad


# name → cases, what runs one, what times the kernels
PARTS = {
    "decode": (decode.decode_cases, decode.decode_case, timing.time_decode),
    "decode_large": (lambda: {"batch=70000": {}}, decode.large_case, None),
    "prefill": (prefill.prefill_cases, prefill.prefill_case, timing.time_prefill),
    "prefill_tma": (prefill.prefill_tma_cases, prefill.prefill_case, lambda dev, args: timing.time_prefill(dev, args, True)),
    "layer": (layer.layer_cases, layer.layer_case, timing.time_layer),
    "sampling": (sampling.sampling_cases, sampling.sampling_case, timing.time_sampling),
    "linear": (engine.linear_cases, engine.linear_case, timing.time_linear),
    "engine": (engine.engine_cases, engine.engine_case, None),
}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--emu")
    ap.add_argument("--cubins")
    ap.add_argument("--target", default="sm90a")
    ap.add_argument("--only", help="parts; all, where not given")
    ap.add_argument("--match", default="")
    ap.add_argument("--each", type=int, default=0, help="cases of each kernel: enough for a sanitizer")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--verbose", action="store_true")
    ap.add_argument("--no-check", action="store_true")
    ap.add_argument("--no-time", action="store_true")
    ap.add_argument("--min-units", type=lambda x: [int(n) for n in x.split(",")], default=[0], help="decode: values to time, the best counts")
    ap.add_argument("--blocks", type=int, default=0, help="decode: blocks a multiprocessor when timing, not launch.h's")
    args = ap.parse_args()
    dev = Emu(args.emu) if args.emu else Cuda(args.cubins, args.target)
    if args.each:
        dev = Rationed(dev, args.each)
    bad = 0
    parts = args.only.split(",") if args.only else [x for x in PARTS if (args.target == "sm90a" or not x.endswith("_tma")) and (x != "decode_large" or not args.emu)]
    for part in parts:
        cases, call, clock = PARTS[part]
        if not args.no_check:
            bad += check(args, dev, part, cases(), call)
        if clock and not args.emu and not args.no_time:
            clock(dev, args)
    if args.each:
        print(json.dumps(dict(kernels=len(dev.cases))))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
