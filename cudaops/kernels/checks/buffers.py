"""Guarded device memory of a case, and the comparison of results."""
import numpy as np

from .device import Emu

GUARD = 256


class Buffer:
    """Guarded device memory holding a NumPy array of storage type."""

    def __init__(self, run, data):
        self.run, self.data = run, np.ascontiguousarray(data)
        n = self.data.nbytes
        pad = 0 if isinstance(run.dev, Emu) else GUARD
        self.pad, self.base = pad, run.dev.alloc(n + 2 * pad)
        if pad:
            run.dev.write(self.base, np.full(n + 2 * pad, 0xA5, np.uint8))
        self.at = self.base + pad
        if n:
            run.dev.write(self.at, self.data)
        run.buffers.append(self)

    def get(self):
        raw = self.run.dev.read(self.base, self.data.nbytes + 2 * self.pad)
        n = self.data.nbytes
        if self.pad:
            assert (raw[: self.pad] == 0xA5).all() and (raw[self.pad + n :] == 0xA5).all(), "wrote outside a buffer"
        return raw[self.pad : self.pad + n].view(self.data.dtype).reshape(self.data.shape)

    def free(self):
        self.run.dev.free(self.base)


class Run:
    """One case: its buffers, freed at the end, and the fault record."""

    def __init__(self, dev, rng):
        self.dev, self.rng, self.buffers = dev, rng, []
        self.fault = self.put(np.zeros(32, np.uint8))

    def put(self, data):
        return Buffer(self, data)

    def nan(self, shape, dt):
        return self.put(np.full(shape, 0xFF, np.uint8).repeat(dt.size, axis=-1).view(dt.store) if shape else np.zeros(0, dt.store))

    def faults(self):
        r = self.fault.get()
        return int(r[:4].view(np.uint32)[0]), [int(x) for x in r[8:32].view(np.int64)]

    def done(self):
        for b in self.buffers:
            b.free()


class Failure(Exception):
    pass


def compare(name, got, want, dt, rtol_steps=2.0, floor=0.0, nmse=None):
    """|got - want| ≤ 2 rounding steps of the row's largest |want| (H11), NaN and infinities in the same places."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape:
        raise Failure(f"{name}: shape {got.shape}, want {want.shape}")
    if not got.size:
        return 0.0
    same = np.isnan(got) == np.isnan(want)
    inf = np.isinf(want) | np.isinf(got)
    same &= ~inf | (got == want)
    if not same.all():
        at = tuple(int(i[0]) for i in np.nonzero(~same))
        raise Failure(f"{name}: {np.count_nonzero(~same)} of {got.size} wrong, first at {at}: got {got[at]}, want {want[at]}")
    good = np.isfinite(want)
    w = np.where(good, want, 0)
    err = np.where(good, np.abs(np.where(good, got, 0) - w), 0)
    top = np.abs(w).max(axis=-1, keepdims=True)
    bound = rtol_steps * dt.step(top) + floor
    if (err > bound).any():
        at = np.unravel_index(np.argmax(err / bound), err.shape)
        raise Failure(f"{name}: {np.count_nonzero(err > bound)} of {got.size} off, worst at {tuple(map(int, at))}: got {got[at]}, want {want[at]}")
    den = (w * w).sum()
    e = float((err * err).sum() / den) if den else 0.0
    limit = nmse if nmse is not None else {"bf16": 2e-5, "f16": 1e-7, "f32": 1e-10}.get(dt.name, 1)
    if e > limit:
        raise Failure(f"{name}: NMSE {e:.3g} above {limit}")
    return e
