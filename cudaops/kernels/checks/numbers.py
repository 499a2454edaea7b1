"""The element types: rounding, storage, distance of neighbours."""
import math
import numpy as np

LOG2E = 1.4426950408889634


def bf16_bits(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    r = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, r).astype(np.uint16)


class DType:
    def __init__(self, name, store, step):
        self.name, self.store, self.size, self.steps = name, np.dtype(store), np.dtype(store).itemsize, step

    def encode(self, x):
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "bf16":
                return bf16_bits(np.asarray(x, np.float32))
            if self.name == "e4m3":
                return e4m3_encode(np.asarray(x, np.float64))
            return np.asarray(x, np.float32).astype(self.store)

    def decode(self, b):
        with np.errstate(invalid="ignore"):
            if self.name == "bf16":
                return (b.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
            if self.name == "e4m3":
                return E4M3[b]
            return b.astype(np.float64)

    def round(self, x):
        return self.decode(self.encode(x))

    def step(self, x):
        """Distance of neighbours at |x|."""
        m, least = {"f16": (10, -24), "bf16": (7, -133), "f32": (23, -149), "e4m3": (3, -9)}[self.name]
        with np.errstate(divide="ignore", invalid="ignore"):
            e = np.floor(np.log2(np.abs(x)))
        return np.exp2(np.maximum(np.where(np.isfinite(e), e, -999) - m, least))


def e4m3_table():
    t = np.zeros(256)
    for i in range(256):
        e, m = i >> 3 & 15, i & 7
        v = m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
        t[i] = (-1 if i & 128 else 1) * (math.nan if i & 127 == 127 else v)
    return t


E4M3 = e4m3_table()


def e4m3_encode(x):
    mags = E4M3[:127]
    a = np.minimum(np.abs(x), 448.0)
    i = np.clip(np.searchsorted(mags, a), 1, 126)
    lo, hi = mags[i - 1], mags[i]
    up = (a - lo > hi - a) | ((a - lo == hi - a) & (i % 2 == 0))
    code = np.where(up, i, i - 1)
    return np.where(np.isnan(x), 127, code | np.where(np.signbit(x), 128, 0)).astype(np.uint8)


F32, F16, BF16, F8 = DType("f32", np.float32, 23), DType("f16", np.float16, 10), DType("bf16", np.uint16, 7), DType("e4m3", np.uint8, 3)
HALVES = [BF16, F16]
KIND = {x.name: x for x in (F32, F16, BF16, F8)}
