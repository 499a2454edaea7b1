"""python3 -m unittest beside_test.py, in this folder. The arithmetic is tested where there is NumPy."""
import contextlib
import io
import json
import math
import tempfile
import unittest
from itertools import islice
from pathlib import Path
from unittest import mock

from beside import cases, files, verdict

try:
    import numpy as np
except ImportError:
    np = None
else:
    from beside import oracle
    from beside.inputs import KIND, Inputs, halves, normals, pool

SEED = 7


def drawn(n, size=1 << 14):
    return list(islice(cases.cases(SEED, size=size), n))


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
        self.assertEqual([kind for _, kind, _ in islice(cases.cases(SEED, dropped), 3)], [kinds[0]] * 3)
        kept = {kind: name for name, kind, _ in drawn(len(kinds))}
        self.assertEqual(next(cases.cases(SEED, dropped, 1 << 14))[0], kept[kinds[0]], "what is dropped changes the others")
        dropped.add(kinds[0])
        self.assertEqual(list(cases.cases(SEED, dropped)), [])

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
        small = dict(q="bf16", out="e4m3")
        self.assertEqual(self.faults(dict(nmse=0.0154), dict(nmse=0.0164), 0.0154, small), [], "subnormal numbers of e4m3 have few digits")
        self.assertTrue(self.faults(dict(nmse=0.0309), dict(nmse=0.0164), 0.0154, small))

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

    def test_pieces(self):
        """The scores of a few rows at a time give what all at once give."""
        for name, _, c in drawn(len(cases.kinds()), 1 << 12):
            x = Inputs(c)
            whole = oracle.answer(x)
            with mock.patch.object(oracle, "SCORES", 3 * c["hq"] * max(c["kv_lens"])):
                for a, b in zip(whole, oracle.answer(x)):
                    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=name)

    def test_pool(self):
        """Every type's codes are of the same normal numbers, and a call's own are cut from them, beyond their end too."""
        for t in ("bf16", "f16", "e4m3"):
            x = KIND[t].decode(pool(t))
            np.testing.assert_array_equal(x, KIND[t].round(halves()), t)
            self.assertTrue(abs(x.mean()) < 0.01 and abs(x.std() - 1) < 0.01, t)
            long = normals(np.random.default_rng(SEED), t, 2, len(x) // 2 + 5)
            at = int(np.random.default_rng(SEED).integers(len(x)))
            np.testing.assert_array_equal(long.ravel(), np.tile(pool(t), 3)[at:][: long.size], t)

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


class Modules(unittest.TestCase):
    def test_link(self):
        """FlashInfer finds what was compiled here where it looks for what it need not compile; a carried module stays, and one that failed is none."""
        import flashinfer_modules

        class Spec:
            def __init__(self, folder, name):
                self.aot_path, self.jit_library_path = (Path(folder) / x / name / f"{name}.so" for x in ("aot", "jit"))

            @property
            def is_aot(self):
                return self.aot_path.exists()

        with tempfile.TemporaryDirectory() as d:
            built, carried, failed = specs = [Spec(d, name) for name in ("built", "carried", "failed")]
            for path, text in ((built.jit_library_path, "new"), (carried.jit_library_path, "new"), (carried.aot_path, "old")):
                path.parent.mkdir(parents=True)
                path.write_text(text)
            for _ in range(2):
                flashinfer_modules.link(specs)
                self.assertEqual([s.aot_path.read_text() for s in (built, carried)], ["new", "old"])
                self.assertFalse(failed.is_aot)


@unittest.skipUnless(np, "no NumPy")
class Run(unittest.TestCase):
    """Of the program, with the model as FlashInfer and, as ours, the right answer rounded."""

    def run_it(self, peer, most=60, batch=7, spoil=None, seconds=math.inf, status=0):
        """The comparison, its exit status, what it said, and how many lines that was before each batch of ours."""
        import beside_flashinfer as program

        dropped, rights, batches, said = set(), {}, [], io.StringIO()
        calls = {name.replace("/", "-"): c for name, _, c in drawn(4 * most, 1 << 10)}

        def right(x):
            rights[x.case["values"]] = answer = oracle.answer(x)
            return answer

        def ours(folder):
            batches.append(len(said.getvalue().splitlines()))
            for path in sorted(folder.glob("*.safetensors")):
                tensors = files.read(path)
                c = calls[path.stem]
                self.assertIn("block_tables" if c["form"] != "ragged" else "k_cache", tensors)
                if path.stem[:3] == spoil:
                    continue
                out, lse = rights[c["values"]]
                dtype = {"f16": "F16", "bf16": "BF16", "e4m3": "F8_E4M3"}[c["out"]]
                tensors = dict(out=(dtype, KIND[c["out"]].encode(out)))
                if c["lse"]:
                    tensors["lse"] = "F32", lse.astype(np.float32)
                files.write(path.with_suffix(".out"), tensors, {})
            return status

        with contextlib.redirect_stdout(said):
            run = program.Comparison(cases.cases(SEED, dropped, 1 << 10), dropped, peer, right, seconds)
            code = run.run(ours, most, batch)
        return run, code, [json.loads(line) for line in said.getvalue().splitlines()], batches

    def test_right(self):
        run, code, said, batches = self.run_it(oracle.modelled)
        self.assertEqual((run.compared, run.failed, code, len(said)), (60, 0, 0, 61))
        self.assertEqual(batches, list(range(0, 60, 7)), "a batch's verdicts come before the next is run")

    def test_batches(self):
        """The same calls, whatever the batches."""
        few, many = (self.run_it(oracle.modelled, 12, batch)[2][:-1] for batch in (5, 60))
        for line in few + many:
            del line["seconds"]
        self.assertEqual(few, many)

    def test_no_answer(self):
        run, code, said, _ = self.run_it(oracle.modelled, spoil="007")
        self.assertEqual((run.failed, code), (1, 1))
        self.assertEqual([i for i, x in enumerate(said) if "FAIL" in x], [7])

    def test_status(self):
        """A test binary that fails without a failing case fails the run, though a later batch runs well."""
        self.assertEqual(self.run_it(oracle.modelled, 3, 1, status=2)[1], 1)

    def test_seconds(self):
        """When the time is over, the calls that FlashInfer has answered are still judged."""
        run, code, said, _ = self.run_it(oracle.modelled, seconds=0)
        self.assertEqual((run.compared, code, len(said)), (0, 2, 1))

        import beside_flashinfer as program

        now, asked = 0, 0

        def peer(x):
            nonlocal now, asked
            asked += 1
            now += 1e7 * (asked == 10)
            return oracle.modelled(x)

        with mock.patch.object(program, "time", mock.Mock(perf_counter=lambda: now)):
            run, code, said, batches = self.run_it(peer, seconds=1e6)
        self.assertEqual((run.compared, run.failed, code, len(batches)), (10, 0, 2, 2))
        self.assertEqual((said[-1]["compared"], said[-1]["asked"]), (10, 60))

    def test_refusals(self):
        """A kind that the peer refuses twice comes no more, and others take its place."""
        asked = []

        def peer(x):
            if x.case["peer"] == "cudnn":
                asked.append((x.case["q"], x.case["dk"], x.case["mode"]))
                raise RuntimeError("no")
            return oracle.modelled(x)

        run, code, said, _ = self.run_it(peer)
        self.assertEqual((run.compared, run.failed, code), (60, 0, 0))
        self.assertTrue(asked and max(asked.count(k) for k in asked) <= 2)
        self.assertEqual(sum("peer_error" in x for x in said), len(asked))

    def test_nothing_left(self):
        def peer(x):
            raise RuntimeError("no")

        run, code, _, batches = self.run_it(peer)
        self.assertEqual((run.compared, code, batches), (0, 2, []))

    def test_lost_device(self):
        """After a CUDA error nothing of this process works: what was compared until then is still judged."""
        n = 0

        def peer(x):
            nonlocal n
            n += 1
            if n == 9:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return oracle.modelled(x)

        run, code, _, batches = self.run_it(peer)
        self.assertEqual((run.compared, run.failed, code, len(batches)), (8, 0, 2, 2))


if __name__ == "__main__":
    unittest.main()
