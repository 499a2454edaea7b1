"""python3 -m unittest bench/record_test.py"""
import tempfile
import unittest

import record

FACTS = dict(device="d", driver="1", date="2026-01-01", commit="c", command="x")


class Join(unittest.TestCase):
    ours = [{"check": "decode", "cases": 3}, {"op": "decode", "case": "a", "symbol": "s", "us": 20.0, "tbps": 3.0, "floor_us": 9.0, "row_err": 0.1},
            {"op": "decode", "case": "b", "symbol": "s", "us": 10.0, "peer_us_recorded": 3}]
    peers = [{"device": "d"}, {"op": "decode", "case": "a", "peer": "slow", "us": 30.0, "graph_us": 28.0}, {"op": "prefill", "case": "b", "peer": "p", "us": 1.0},
             {"op": "decode", "case": "a", "peer": "fast", "us": 19.0, "graph_us": 15.0}, {"op": "decode", "case": "a", "peer": "none", "error": "no"},
             {"op": "decode", "case": "a", "peer": "eager", "us": 16.0, "graph_us": None}]

    def test_fastest_peer(self):
        a, b = record.join(self.ours, self.peers, FACTS)
        self.assertEqual(a, dict(op="decode", case="a", symbol="s", us=20.0, tbps=3.0, peer="fast", peer_us=15.0, ratio=0.75, floor_us=9.0) | FACTS)
        self.assertEqual(b, dict(op="decode", case="b", symbol="s", us=10.0) | FACTS)

    def test_back_to_back(self):
        """A peer that is timed in a row alone is held against ours in a row, and counts where it is the better one."""
        ours = [dict(op="prefill", case=c, us=100.0, back_to_back_us=80.0, tflops=400.0) for c in "ab"] + [dict(op="prefill", case="c", us=100.0, tflops=400.0)]
        peers = [dict(op="prefill", case=c, peer="event", us=90.0, back_to_back_us=10.0) for c in "abc"] + [
            dict(op="prefill", case=c, peer="row", back_to_back_us=us) for c, us in (("a", 60.0), ("b", 76.0), ("c", 1.0))]
        a, b, c = record.join(ours, peers, {})
        self.assertEqual(a, dict(op="prefill", case="a", us=80.0, tflops=500.0, timing="back to back", peer="row", peer_us=60.0, ratio=0.75))
        self.assertEqual(b, dict(op="prefill", case="b", us=100.0, tflops=400.0, peer="event", peer_us=90.0, ratio=0.9))
        self.assertEqual(c["peer"], "event")

    def test_floor(self):
        limits = [dict(op="limit", case=f"read {mb} MB once", us=us) for mb, us in ((100, 30.0), (20, 10.0), (200, 60.0))]
        at = record.floor(limits + [dict(op="limit", case="copy 4 GiB", us=1.0)])
        self.assertEqual([at(mb) for mb in (1, 20, 60, 150, 200, 400)], [10, 10, 20, 45, 60, 120])
        self.assertIsNone(record.floor(self.peers))
        self.assertEqual(record.join(self.ours, self.peers + limits, {})[0]["floor_us"], 20.0)  # 60 MB in 20 µs

    def test_lonely(self):
        joined = record.join(self.ours, self.peers + [dict(op="decode", case="z", peer="p", error="no")], FACTS)
        self.assertEqual(record.lonely(joined, self.peers + [dict(op="decode", case="z", peer="p", error="no")]),
                         ["decode z: no time of ours", "prefill b: no time of ours", "decode b: no peer"])

    def test_go(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("goos: linux\nBenchmarkDo/driver=none/op=decode-16  \t 300000\t 401.5 ns/op\t 304 B/op\nPASS\n" + '{"op": "decode", "us": 1}\n')
            f.flush()
            self.assertEqual(list(record.lines(f.name)), [dict(op="do", case="driver=none/op=decode", us=0.4015), dict(op="decode", us=1)])

    def test_refuses(self):
        for bad in (self.ours + [self.ours[1]], [self.ours[1] | {"WRONG": "error 1"}], []):
            with self.assertRaises(ValueError):
                record.join(bad, self.peers, FACTS)


if __name__ == "__main__":
    unittest.main()
