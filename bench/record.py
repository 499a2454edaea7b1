#!/usr/bin/env python3
"""Joins the times of our kernels and of peers, taken in one run on one machine, into lines of bench/results/*.jsonl.

    record.py --ours ours.jsonl --peers peers.jsonl [--device NAME --driver VERSION --commit HASH --command TEXT]

ours: what cudaops/kernels/check.py prints, and Go benchmarks (once each, without -count); peers: a line a case and peer with op, case, peer and
us, graph_us or both. Lines that are neither are passed over; a line of ours that is WRONG, or a case timed twice, ends the run. A case without a peer is
recorded without one. Of several kernels for a case (prefill with and without bulk copies) each is a line, named by its symbol. A peer with
back_to_back_us alone is held against ours timed so; where that is the better peer, the line's us is that time too. Cases that one side alone has are
named on stderr. Floors are those of this run where the peers' lines have them (--ops limit).
"""
import argparse, datetime, json, re, subprocess, sys
from pathlib import Path


# BenchmarkDo/driver=none/op=decode-16   300000   401.0 ns/op
GO_LINE = re.compile(r"Benchmark(\w+)/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op")


def lines(path):
    """The JSON objects and Go benchmarks among a file's lines."""
    for text in Path(path).read_text().splitlines():
        if go := GO_LINE.match(text):
            yield dict(op=go[1].lower(), case=go[2], us=round(float(go[3]) / 1000, 4))
            continue
        try:
            x = json.loads(text)
        except ValueError:
            continue
        if isinstance(x, dict):
            yield x


def fastest(peers, *times):
    """The fastest peer of each (op, case), with the best of those times."""
    best = {}
    for x in peers:
        taken = [x[k] for k in times if isinstance(x.get(k), (int, float)) and x[k] > 0]
        if "peer" in x and "error" not in x and taken:
            key = x["op"], x["case"]
            best[key] = min(best.get(key, (float("inf"), "")), (min(taken), x["peer"]))
    return best


def floor(peers):
    """µs that reading so many MB once takes, by what the peers' benchmark (--ops limit) measured in this run; None where it did not."""
    points = sorted((float(m[1]), x["us"]) for x in peers if x.get("op") == "limit" and (m := re.fullmatch(r"read (\d+) MB once", x.get("case", ""))))
    if not points:
        return None

    def us(mb):
        for (m0, t0), (m1, t1) in zip(points, points[1:]):
            if m0 <= mb <= m1:
                return t0 + (t1 - t0) * (mb - m0) / (m1 - m0)
        return points[0][1] if mb < points[0][0] else points[-1][1] * mb / points[-1][0]

    return us


def join(ours, peers, facts):
    peers = list(peers)
    read = floor(peers)
    best, seen, out = fastest(peers, "us", "graph_us"), set(), []
    in_a_row = fastest((x for x in peers if "us" not in x), "back_to_back_us")
    for x in ours:
        if "us" not in x or "case" not in x:
            continue
        if "WRONG" in x:
            raise ValueError(f"{x['op']} {x['case']}: {x['WRONG']}")
        key = x["op"], x["case"], x.get("symbol")
        if key in seen:
            raise ValueError(f"{key} was timed twice")
        seen.add(key)
        line = {k: x[k] for k in ("op", "case", "symbol", "us", "tbps", "tflops") if x.get(k) is not None}
        pairs = []  # ratio, the peer's time and name, ours beside it
        if key[:2] in best:
            us, peer = best[key[:2]]
            pairs.append((us / x["us"], us, peer, x["us"]))
        if key[:2] in in_a_row and x.get("back_to_back_us"):
            us, peer = in_a_row[key[:2]]
            pairs.append((us / x["back_to_back_us"], us, peer, x["back_to_back_us"]))
        if pairs:  # the better peer counts
            ratio, line["peer_us"], line["peer"], own = min(pairs, key=lambda p: p[0])
            if own != x["us"]:
                line.update({k: round(line[k] * x["us"] / own, 3) for k in ("tbps", "tflops") if k in line}, us=own, timing="back to back")
            line["ratio"] = round(ratio, 3)
        if x.get("floor_us") is not None:
            line["floor_us"] = round(read(x["tbps"] * x["us"]), 1) if read and "tbps" in x else x["floor_us"]
        out.append(line | facts)
    if not out:
        raise ValueError("no times of ours")
    return out


def lonely(joined, peers):
    """What one side alone has timed, of decode and prefill."""
    mine, theirs = {(x["op"], x["case"]) for x in joined}, {(x["op"], x["case"]) for x in peers if "peer" in x}
    out = [f"{op} {case}: no time of ours" for op, case in sorted(theirs - mine)]
    return out + [f"{x['op']} {x['case']}: no peer" for x in joined if "peer" not in x and x["op"] in ("decode", "prefill")]


def said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--ours", required=True)
    ap.add_argument("--peers", required=True)
    ap.add_argument("--device", default=said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    ap.add_argument("--driver", default=said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"))
    ap.add_argument("--commit", default=said("git", "rev-parse", "--short=12", "HEAD"))
    ap.add_argument("--date", default=datetime.date.today().isoformat())
    ap.add_argument("--command", default="cudaops/kernels/check.py --cubins cudaops/kernels/bin --no-check")
    a = ap.parse_args()
    facts = dict(device=a.device, driver=a.driver, date=a.date, commit=a.commit, command=a.command)
    missing = [k for k, v in facts.items() if not v]
    if missing:
        sys.exit(f"record.py: give --{', --'.join(missing)}: this machine does not say")
    ours, peers = list(lines(a.ours)), list(lines(a.peers))
    try:
        joined = join(ours, peers, facts)
    except ValueError as e:
        sys.exit(f"record.py: {e}")
    for x in joined:
        print(json.dumps(x))
    for text in lonely(joined, peers):
        print(f"record.py: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
