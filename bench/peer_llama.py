#!/usr/bin/env python3
"""Times llama.cpp (llama-cpp-python) on a GGUF file as Go benchmark lines, for a run beside `llama -bench`.

    python3 bench/peer_llama.py MODEL.gguf [--threads 2] [--prompt 512] [--decode 128] [--rounds 5]

Greedy, batch 1, prompt tokens drawn from a fixed seed. Each line is one round: benchstat takes the median.
"""
import argparse
import random
import time

import llama_cpp


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--decode", type=int, default=128)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    m = llama_cpp.Llama(a.model, n_ctx=a.prompt + a.decode + 64, n_threads=a.threads, n_threads_batch=a.threads,
                        n_batch=512, verbose=False, logits_all=False)
    rnd = random.Random(1)
    ids = [rnd.randrange(100, m.n_vocab() - 100) for _ in range(a.prompt)]
    print(f"llama-cpp-python: {llama_cpp.__version__}")
    for round_ in range(a.rounds + 1):
        m.reset()
        t = time.perf_counter()
        m.eval(ids)
        prefill = time.perf_counter() - t
        m.reset()
        m.eval(ids[:8])
        t = time.perf_counter()
        for _ in range(a.decode):
            m.eval([m.sample(temp=0.0)])
        decode = time.perf_counter() - t
        if round_ == 0:  # warm-up
            continue
        print(f"BenchmarkLlama/phase=prefill/tokens={a.prompt}/impl=llama.cpp 1 {prefill * 1e9:.0f} ns/op {a.prompt / prefill:.1f} tokens/s")
        print(f"BenchmarkLlama/phase=decode/tokens={a.decode}/impl=llama.cpp 1 {decode * 1e9:.0f} ns/op {a.decode / decode:.1f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
