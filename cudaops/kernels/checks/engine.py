"""Cases of Linear's plain kernels and of those that the tensor.Engine uses."""
import math
import numpy as np

from .buffers import Failure, Run, compare
from .device import P
from .layer import near, rows_of
from .numbers import F32, KIND


def linear_case(dev, rng, target, dt="bf16", rows=5, n_in=256, n_out=100, gap=0, bias=None, kernel=None):
    run = Run(dev, rng)
    try:
        dt, p = KIND[dt], P["LinearParams"]()
        x, xb, p.x_row = rows_of(run, dt, rows, n_in, gap)
        w, wb, p.weight_row = rows_of(run, dt, n_out, n_in, 2 * gap, n_in**-0.5)
        out = run.nan((rows, n_out), dt)
        b = 0
        if bias:
            bt = KIND[bias]
            b = bt.round(rng.standard_normal(n_out))
            p.bias, p.bias_f32 = run.put(bt.encode(b)).at, int(bt is F32 and dt is not F32)
        p.x, p.weight, p.out, p.rows, p.out_dim = xb.at, wb.at, out.at, rows, n_out
        setattr(p, "in", n_in)
        kernel = kernel or ("gemv" if rows <= 16 else "gemm")
        if kernel == "gemv":
            dev.launch(f"gemv_{dt.name}_{target}", (-(-n_out // 8),), 256, 0, p)
        else:
            dev.launch(f"gemm_{dt.name}_{target}", (-(-n_out // 128), -(-rows // 64)), 128, 0, p)
        e = near("out", dt.decode(out.get()), x @ w.T + b, dt, 1e-5)
        for y in run.buffers:
            y.get()
        return e
    finally:
        run.done()


def linear_cases():
    c = {}
    for dt in ("f32", "f16", "bf16"):
        for rows in (1, 2, 4, 7, 16):
            c[f"gemv/{dt}/rows={rows}"] = dict(dt=dt, rows=rows)
        c[f"gemv/{dt}/odd"] = dict(dt=dt, rows=3, n_in=77, n_out=13, gap=3, bias=dt)
        c[f"gemv/{dt}/wide"] = dict(dt=dt, rows=1, n_in=4096 + 8, n_out=9, gap=8, bias="f32")
        for rows in (17, 64, 130):
            c[f"gemm/{dt}/rows={rows}"] = dict(dt=dt, rows=rows, n_out=200, bias="f32")
        c[f"gemm/{dt}/odd"] = dict(dt=dt, rows=33, n_in=77, n_out=131, gap=3, bias=dt)
        c[f"gemm/{dt}/in=8"] = dict(dt=dt, rows=33, n_in=8, n_out=131)
        c[f"gemm/{dt}/few"] = dict(dt=dt, rows=1, n_in=256, n_out=131, kernel="gemm")
    return c


def engine_case(dev, rng, target, op, **kw):
    run = Run(dev, rng)
    try:
        f32 = lambda shape: rng.standard_normal(shape).astype(np.float32)
        if op == "matmul":
            m, n, k, at, bt = kw["m"], kw["n"], kw["k"], kw.get("at"), kw.get("bt")
            a, b = f32((m, k)), f32((k, n))
            p, out = P["MatMulParams"](), run.nan((m, n + 3), F32)
            p.a, p.b, p.c = run.put(a.T if at else a).at, run.put(b.T if bt else b).at, out.at
            p.a_row, p.a_col = (1, m) if at else (k, 1)
            p.b_row, p.b_col = (1, k) if bt else (n, 1)
            p.c_row, p.m, p.n, p.k = n + 3, m, n, k
            dev.launch(f"matmul_f32_{target}", (-(-n // 64), -(-m // 64)), 256, 0, p)
            got = out.get()
            if not (got[:, n:].view(np.uint32) == 0xFFFFFFFF).all():
                raise Failure("wrote past a row")
            compare("c", got[:, :n], a.astype(np.float64) @ b.astype(np.float64), F32, 0, 1e-5 * (1 + math.sqrt(k)), nmse=1e-10)
        elif op == "binary":
            fn, shape = kw["fn"], kw["shape"]
            p = P["BinaryParams"]()
            a, b, out = f32(shape), f32(kw.get("b_shape", shape)), run.nan(shape, F32)
            p.a, p.b, p.out, p.op, p.contiguous = run.put(a).at, run.put(b).at, out.at, fn, int(kw.get("contiguous", False))
            pad = (1,) * (4 - len(shape)) + tuple(shape)
            bb = np.broadcast_to(b, shape)
            for d in range(4):
                p.shape[d] = pad[d]
            for name, x in (("a_stride", a), ("b_stride", bb), ("out_stride", out.data)):
                st = [0] * (4 - len(shape)) + [s // 4 for s in x.strides]
                for d in range(4):
                    getattr(p, name)[d] = st[d]
            dev.launch(f"binary_f32_{target}", (2,), 256, 0, p)
            want = [a + bb, a - bb, a * bb, a / bb][fn]
            if not (out.get() == want).all():
                raise Failure("differs from IEEE f32")
        elif op == "copy":
            size, shape, perm = kw["size"], kw["shape"], kw["perm"]
            t = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size]
            x = rng.integers(0, 250, shape).astype(t)
            y = x.transpose(perm)
            p, out = P["CopyParams"](), run.put(np.full(y.shape, 255, t))
            p.x, p.out = run.put(x).at, out.at
            for d in range(4):
                p.shape[d], p.x_stride[d], p.out_stride[d] = y.shape[d], y.strides[d] // size, out.data.strides[d] // size
            dev.launch(f"copy_b{size}_{target}", (3,), 256, 0, p)
            if not (out.get() == y).all():
                raise Failure("copy differs")
        else:
            p, out = P["FillParams"](), run.put(np.zeros(1001, np.uint32))
            p.out, p.n, p.value = out.at, 1000, 0xFF800000
            dev.launch(f"fill_b4_{target}", (2,), 256, 0, p)
            if not (out.get()[:1000] == 0xFF800000).all() or out.get()[1000]:
                raise Failure("fill differs")
        for y in run.buffers:
            y.get()
    finally:
        run.done()


def engine_cases():
    c = {}
    for at in (False, True):
        for bt in (False, True):
            c[f"matmul/{at}/{bt}"] = dict(op="matmul", m=70, n=65, k=33, at=at, bt=bt)
    c["matmul/one"] = dict(op="matmul", m=1, n=1, k=1)
    for fn in range(4):
        c[f"binary/{fn}"] = dict(op="binary", fn=fn, shape=(3, 5, 7), contiguous=True)
        c[f"binary/{fn}/broadcast"] = dict(op="binary", fn=fn, shape=(3, 5, 7), b_shape=(5, 1))
        c[f"binary/{fn}/scalar"] = dict(op="binary", fn=fn, shape=(2, 3, 5, 7), b_shape=(1,))
    for size in (1, 2, 4, 8):
        c[f"copy/{size}"] = dict(op="copy", size=size, shape=(3, 4, 5, 6), perm=(2, 0, 3, 1))
    c["fill"] = dict(op="fill")
    return c
