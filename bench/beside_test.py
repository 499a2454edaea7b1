"""python3 -m unittest beside_test.py, in this folder. The arithmetic is tested where there is NumPy."""
import argparse
import contextlib
import io
import json
import math
import random
import tempfile
import unittest
from itertools import islice
from pathlib import Path

from beside import cases, files, verdict

try:
    import numpy as np
except ImportError:
    np = None
else:
    from beside import oracle
    from beside.inputs import KIND, Inputs

SEED = 7


def drawn(n, size=1 << 14):
    return list(islice(cases.cases(random.Random(SEED), size=size), n))


class Cases(unittest.TestCase):
    def test_seed(self):
        self.assertEqual(drawn(99), drawn(99))

    def test_kinds(self):
        """Every kind once before any twice, and none that is dropped."""
        kinds = cases.kinds()
        self.assertEqual(len(set(kinds)), len(kinds))
        got = [kind for _, kind, _ in drawn(2 * len(kinds))]
        self.assertEqual(set(got[: len(kinds)]), set(kinds))
        self.assertEqual(set(got[len(kinds) :]), set(kinds))
        dropped = set(kinds[1:])
        self.assertEqual([kind for _, kind, _ in islice(cases.cases(random.Random(SEED), dropped), 3)], [kinds[0]] * 3)
        dropped.add(kinds[0])
        self.assertEqual(list(cases.cases(random.Random(SEED), dropped)), [])

    def test_runnable(self):
        for name, (module, _), c in drawn(400):
            with self.subTest(name):
                self.assertIn(module, cases.MODULES + cases.CUDNN)
                self.assertEqual(c["hq"] % c["hkv"], 0)
                self.assertEqual(len(c["q_lens"]), len(c["kv_lens"]))
                self.assertTrue(all(1 <= n <= s for n, s in zip(c["q_lens"], c["kv_lens"])), "a row without a key")
                self.assertGreaterEqual(c["columns"] * c["page"], max(c["kv_lens"]))
                self.assertLess(c["window"], max(c["kv_lens"]))
                if c["op"] == "decode":
                    self.assertTrue(c["causal"] and c["form"] != "ragged")
                    self.assertTrue(c["varlen"] or len(set(c["q_lens"])) == 1)

    def test_features(self):
        """200 cases have all that both sides can do."""
        all_ = [c for _, _, c in drawn(200)]
        for what, of in {
            "op": {"decode", "prefill"}, "layout": {"HND", "NHD"}, "form": {"stacked", "pair", "ragged"}, "q": {"f16", "bf16", "e4m3"}, "kv": {"f16", "bf16", "e4m3"},
            "out": {"f16", "bf16", "e4m3"}, "sinks": {True, False}, "mask": {None, "causal", "tree"}, "causal": {True, False}, "varlen": {True, False}, "device_scales": {True, False},
            "lse": {True, False}, "dk": {64, 96, 128, 192, 256}, "peer": {"xqa", "fa2", "fa3", "decode", "cudnn"},
        }.items():
            self.assertEqual({c[what] for c in all_}, of, what)
        self.assertTrue(any(c["dk"] != c["dv"] for c in all_))
        groups = {c["hq"] // c["hkv"] for c in all_}
        self.assertTrue({1, 2, 3, 4, 5, 7, 8} <= groups, groups)
        for edge in (-1, 0, 1):
            self.assertTrue(any(c["form"] != "ragged" and c["page"] > 2 and s > c["page"] and s % c["page"] == edge % c["page"] for c in all_ for s in c["kv_lens"]), f"edge {edge}")
        self.assertTrue(any(c["window"] >= 0 and any(s > c["window"] + n for s, n in zip(c["kv_lens"], c["q_lens"])) for c in all_), "no window cuts")
        self.assertTrue(any(len(set(c["kv_lens"])) > 2 for c in all_), "no ragged batch")


class Verdict(unittest.TestCase):
    case = dict(q="bf16", out="bf16")
    good = dict(steps=0.5, nmse=3e-6, bound=0.25, lse=1e-7)

    def faults(self, ours, peer=good, rounding=3e-6, case=case):
        return verdict.faults(case, self.good | ours, self.good | peer, rounding)

    def test_right(self):
        self.assertEqual(self.faults({}), [])
        self.assertEqual(self.faults(dict(steps=1.0), dict(steps=0.1)), [], "one step is what rounding may cost")
        self.assertEqual(self.faults(dict(steps=1.6, bound=0.8), dict(steps=0.8)), [])
        self.assertEqual(self.faults(dict(nmse=1.2e-5), dict(nmse=1e-7)), [], "rounding alone costs as much")
        self.assertEqual(self.faults(dict(lse=None), dict(lse=None)), [])

    def test_wrong(self):
        for ours, peer in [
            (dict(steps=1.7), dict(steps=0.8)), (dict(steps=math.inf), {}), (dict(steps=math.nan), {}), (dict(nmse=1.3e-5), {}), (dict(nmse=math.inf), {}),
            (dict(bound=1.01), dict(steps=9.0, bound=5.0)),  # FlashInfer's being off is no excuse
            (dict(nmse=2.1e-5), dict(nmse=1.0)), (dict(lse=2.1e-5), {}), (dict(lse=math.nan), dict(lse=1.0)), (dict(lse=None), {}),
        ]:
            with self.subTest(ours=ours, peer=peer):
                self.assertTrue(self.faults(ours, peer))


class Bytes:
    shape = (2, 3)

    def tobytes(self):
        return bytes(range(6))


class Files(unittest.TestCase):
    def test_round_trip(self):
        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "x.safetensors"
            files.write(path, {"b": ("U8", Bytes()), "a": ("F8_E4M3", Bytes())}, dict(call="{}"))
            self.assertEqual(files.read(path), {name: (dtype, [2, 3], bytes(range(6))) for name, dtype in (("a", "F8_E4M3"), ("b", "U8"))})
            self.assertEqual((8 + int.from_bytes(path.read_bytes()[:8], "little")) % 8, 0)


@unittest.skipUnless(np, "no NumPy")
class Arithmetic(unittest.TestCase):
    def test_oracle(self):
        """Against loops over scalars, which take what is visible from its definition."""
        for name, _, c in drawn(len(cases.kinds()), 1 << 9):
            x = Inputs(c)
            out, lse = oracle.answer(x)
            c1, c2 = x.factors()
            row = 0
            for b, (n, s) in enumerate(zip(c["q_lens"], c["kv_lens"])):
                q, k, v = x.rows(b)
                words = x.mask_words() if x.see is not None else None
                for i in range(n):
                    h = (7 * row) % c["hq"]
                    see = []
                    for j in range(s):
                        ok = j <= s - n + i or not c["causal"]
                        if words is not None:
                            draft = j - (s - n)
                            ok = draft < 0 or words[b, i, draft // 16] >> draft % 16 & 1
                        if ok and (c["window"] < 0 or s - n + i - c["window"] <= j):
                            see.append(j)
                    g = h // (c["hq"] // c["hkv"])
                    weights = [math.exp(c1 * float(q[i, h] @ k[j, g])) for j in see]
                    total = sum(weights) + (math.exp(x.sinks[h]) if x.sinks is not None else 0)
                    want = c2 * sum(w * v[j, g] for w, j in zip(weights, see)) / total
                    np.testing.assert_allclose(out[row, h], want, rtol=1e-9, atol=1e-12, err_msg=name)
                    self.assertAlmostEqual(lse[row, h], math.log(total), 9, name)
                    row += 1

    def test_poison(self):
        """Ours is given the same rows, and nothing else that is a number."""
        for name, _, c in drawn(len(cases.kinds()), 1 << 12):
            if c["form"] == "ragged":
                continue
            x, t = Inputs(c), Inputs(c).ours()
            k, v = (t["kv_cache"][1][:, i] for i in (0, 1)) if c["form"] == "stacked" else (t["k_cache"][1], t["v_cache"][1])
            for pool, mine in ((x.k, k), (x.v, v)):
                numbers = np.isfinite(KIND[c["kv"]].decode(mine)).all(-1).sum()
                self.assertEqual(numbers, sum(c["kv_lens"]) * c["hkv"], name)
            y = Inputs(c)
            y.k, y.v, y.table = k, v, t["block_tables"][1]
            for b in range(len(c["kv_lens"])):
                for a, z in zip(x.rows(b), y.rows(b)):
                    np.testing.assert_array_equal(a, z, name)

    def test_errors(self):
        c = dict(q="bf16", out="bf16", kv="bf16")
        want = np.array([[[1.0, 0.5], [0.25, 0.1]]])
        got = want + np.array([[[0, 3 / 128], [0, 0]]])
        e = oracle.errors(c, got, np.zeros((1, 2)), want, np.full((1, 2), 1e-3))
        self.assertAlmostEqual(e["steps"], 3)
        self.assertAlmostEqual(e["bound"], 1.5)
        self.assertAlmostEqual(e["nmse"], (3 / 128) ** 2 / (want**2).sum())
        self.assertAlmostEqual(e["lse"], 1e-3 / 1.001)
        self.assertEqual(oracle.errors(c, got * np.nan, None, want, None)["steps"], math.inf)

    def test_judged(self):
        """The stand-in for FlashInfer is right beside itself, and wrong when a row is another's, a key is missed, or the LSE is in base 2."""
        for name, _, c in drawn(len(cases.kinds()), 1 << 12):
            x = Inputs(c)
            want, want_lse = oracle.answer(x)
            out, lse = oracle.modelled(x)
            rounding = oracle.rounding(c, want)
            peer = oracle.errors(c, out, lse, want, want_lse)
            judge = lambda o, l: verdict.faults(c, oracle.errors(c, o, l, want, want_lse), peer, rounding)
            self.assertEqual(judge(out, lse), [], name)
            if len(out) > 1 and max(c["kv_lens"]) > 1 and c["window"]:
                self.assertNotEqual(judge(np.roll(out, 1, 0), lse), [], name)
            self.assertNotEqual(judge(out, lse / math.log(2) + 1e-3), [], name)


@unittest.skipUnless(np, "no NumPy")
class Run(unittest.TestCase):
    """Of the program, with the model as FlashInfer and, as ours, the right answer rounded."""

    def run_it(self, peer, spoil=None):
        import beside_flashinfer as program

        a = argparse.Namespace(seed=SEED, cases=60, size=1 << 10, only="", skip="")
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as d, contextlib.redirect_stdout(said):
            folder = Path(d)
            ready = program.prepare(a, folder, peer, oracle.answer)
            for i, (name, c, _, _, want, lse, _) in enumerate(ready):
                base = folder / name.replace("/", "-")
                self.assertIn("block_tables" if c["form"] != "ragged" else "k_cache", files.read(base.with_name(base.name + ".safetensors")))
                if i == spoil:
                    continue
                dtype = {"f16": "F16", "bf16": "BF16", "e4m3": "F8_E4M3"}[c["out"]]
                tensors = dict(out=(dtype, KIND[c["out"]].encode(want)))
                if c["lse"]:
                    tensors["lse"] = "F32", lse.astype(np.float32)
                files.write(base.with_name(base.name + ".out"), tensors, {})
            bad, _ = program.judge(folder, ready)
        return ready, bad, [json.loads(line) for line in said.getvalue().splitlines()]

    def test_right(self):
        ready, bad, said = self.run_it(oracle.modelled)
        self.assertEqual((len(ready), bad, len(said)), (60, 0, 60))

    def test_no_answer(self):
        _, bad, said = self.run_it(oracle.modelled, spoil=7)
        self.assertEqual(bad, 1)
        self.assertEqual([i for i, x in enumerate(said) if "FAIL" in x], [7])

    def test_refusals(self):
        """A kind that the peer refuses twice comes no more, and others take its place."""
        asked = []

        def peer(x):
            if x.case["peer"] == "cudnn":
                asked.append((x.case["q"], x.case["dk"], x.case["mode"]))
                raise RuntimeError("no")
            return oracle.modelled(x)

        ready, bad, said = self.run_it(peer)
        self.assertEqual((len(ready), bad), (60, 0))
        self.assertTrue(asked and max(asked.count(k) for k in asked) <= 2)
        self.assertEqual(sum("peer_error" in x for x in said), len(asked))

    def test_lost_device(self):
        """After a CUDA error nothing of this process works: what was compared until then is still judged."""
        n = 0

        def peer(x):
            nonlocal n
            n += 1
            if n == 9:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return oracle.modelled(x)

        ready, bad, _ = self.run_it(peer)
        self.assertEqual((len(ready), bad), (8, 0))


if __name__ == "__main__":
    unittest.main()
