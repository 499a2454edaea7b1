"""Cases of what chooses tokens from logits."""
import math
import numpy as np

from .buffers import Failure, Run
from .device import P
from .layer import rows_of
from .numbers import F32, KIND


def sampling_case(dev, rng, target, op, dt="bf16", **kw):
    run = Run(dev, rng)
    try:
        {"softmax": softmax, "topk": topk}[op](run, KIND[dt], f"_{target}", **kw)
        for b in run.buffers:
            b.get()
    finally:
        run.done()


def softmax(run, dt, suffix, rows=5, cols=999, gap=0, temperature=1.0, special=None, alias=False):
    p = P["SoftmaxParams"]()
    x = 4 * run.rng.standard_normal((rows, cols))
    if special:
        x = special(x)
    x, xb, p.logits_row = rows_of(run, dt, rows, cols, gap, x=dt.round(x))
    out = xb if alias else run.nan((rows, cols), F32)
    p.logits, p.out, p.rows, p.columns, p.scale = xb.at, out.at, rows, cols, 1 / (math.log(2) * temperature)
    run.dev.launch("softmax_" + dt.name + suffix, (3,), 1024, 0, p)
    got = F32.decode(out.get())
    with np.errstate(invalid="ignore"):
        top = x.max(axis=1, keepdims=True)
        e = np.exp((x - np.where(np.isneginf(top), 0, top)) / temperature)
        total = e.sum(axis=1, keepdims=True)
        want = np.where(total == 0, 0, e / np.where(total == 0, 1, total))
        far = np.where(want > 0, np.abs(x - top) / temperature, 0)
        wrong = (np.isnan(got) != np.isnan(want)) | (np.abs(got - want) > 1e-6 * want * (2 + far) + 1e-37)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise Failure(f"{wrong.sum()} wrong, first at {at}: got {got[at]}, want {want[at]}")


def topk(run, dt, suffix, rows=5, cols=999, k=40, gap=0, special=None):
    p = P["TopKParams"]()
    x = run.rng.standard_normal((rows, cols))
    if special:
        x = special(x)
    x, xb, p.logits_row = rows_of(run, dt, rows, cols, gap, x=dt.round(x))
    values, indices = run.nan((rows, k), F32), run.put(np.full((rows, k), -7, np.int32))
    p.logits, p.values, p.indices, p.rows, p.columns, p.k = xb.at, values.at, indices.at, rows, cols, k
    run.dev.launch("topk_" + dt.name + suffix, (3,), 1024, 0, p)
    # NaN last, equals in the order of their columns.
    want = np.stack([np.lexsort((np.arange(cols), -np.where(np.isnan(r), 0, r), np.isnan(r)))[:k] for r in x])
    if (indices.get() != want).any():
        at = tuple(np.argwhere(indices.get() != want)[0])
        raise Failure(f"row {at[0]} place {at[1]}: got {indices.get()[at]}, want {want[at]}")
    got, chosen = F32.decode(values.get()), np.take_along_axis(x, want, 1)
    if not ((got == chosen) & (np.signbit(got) == np.signbit(chosen)) | np.isnan(got) & np.isnan(chosen)).all():
        raise Failure(f"values {got}, want {chosen}")


def special(x):
    x[0, 5], x[1, :], x[2, 7], x[2, 900], x[3, :] = math.nan, math.nan, 9, 9, -math.inf
    x[4, 100], x[4, 3] = math.inf, math.nan
    return x


def near(x):
    """Values that differ in the last bits of f32, of one sign a row."""
    return np.sign(x[:, :1]) * (1 + np.argsort(x, axis=1) * 2.0**-23)


def zeros(x):
    """Negative numbers and, on top, zeros of both signs."""
    return np.where(x > 1, np.copysign(0, np.sin(1e6 * x)), -abs(x))


def sampling_cases():
    c = {}
    for dt in ("f32", "f16", "bf16"):
        for temperature in (0.1, 1, 3):
            c[f"softmax/{dt}/temperature={temperature}"] = dict(op="softmax", dt=dt, temperature=temperature)
        c[f"softmax/{dt}/wide"] = dict(op="softmax", dt=dt, cols=49152, rows=2, gap=8)
        for cols in (1, 7, 33):
            c[f"softmax/{dt}/columns={cols}"] = dict(op="softmax", dt=dt, cols=cols, gap=3)
        c[f"softmax/{dt}/special"] = dict(op="softmax", dt=dt, special=special)
        c[f"topk/{dt}"] = dict(op="topk", dt=dt)
        for k in (1, 2, 33, 1000, 1024):
            c[f"topk/{dt}/wide/k={k}"] = dict(op="topk", dt=dt, cols=49152, rows=2, gap=8, k=k)
        for cols in (1, 2, 7, 33, 1024):
            c[f"topk/{dt}/whole/{cols}"] = dict(op="topk", dt=dt, cols=cols, k=cols, gap=3)
        c[f"topk/{dt}/ties"] = dict(op="topk", dt=dt, cols=5003, k=100, special=lambda x: np.round(x * 2) / 4)
        c[f"topk/{dt}/alike"] = dict(op="topk", dt=dt, cols=70000, rows=2, k=65, special=lambda x: 0 * x)
        c[f"topk/{dt}/near"] = dict(op="topk", dt=dt, cols=5000, k=200, special=near)
        c[f"topk/{dt}/special"] = dict(op="topk", dt=dt, k=999, special=special)
        c[f"topk/{dt}/zeros"] = dict(op="topk", dt=dt, k=200, special=zeros)
    c["softmax/f32/in_place"] = dict(op="softmax", dt="f32", alias=True, cols=4096)
    return c
