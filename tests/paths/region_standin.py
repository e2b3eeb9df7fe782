"""A stand-in for a GPU: what `paths/relax/gpu/regions.py` needs of CuPy and the kernels, in NumPy.

For heights of 16 bits, distances of absdiff in uint32, 8 neighbours, and distances alone. A tile is
relaxed to its end, in the order of the keys.
"""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import numpy as np

from terrain_gpu.paths.cost_distance.operation import CostDistance
from terrain_gpu.paths.relax.gpu import lanes, piece, regions, solve
from terrain_gpu.paths.relax.gpu.memory import NOTES
from terrain_gpu.paths.relax.gpu.relaxing import AWAY, CHANGED
from terrain_gpu.paths.relax.gpu.variants import SIDE

TOP, ABSENT, NONE = 2**31 - 1, 2**32 - 1, 2**32 - 1
REACHED = NOTES.index("reached")
STEPS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]


class Array(np.ndarray):
    def get(self):
        return np.array(self)


def array(data, dtype=None):
    return np.array(data, dtype).view(Array)


def full(size, value, dtype):
    return np.full(size, value, dtype).view(Array)


class Buffer:
    """Memory of the device; its cells are those of the host's buffer."""

    cells = np.empty(0)


class Device:
    def __init__(self, *_):
        pass

    def synchronize(self):
        pass

    __enter__, __exit__ = (lambda self: self), (lambda self, *error: None)


class Staging:
    """One buffer is both: of the host and of the device."""

    def __init__(self, size):
        self.host = np.empty(size, np.uint8)
        self.device = Buffer()

    def array(self, shape, dtype):
        found = self.host[: shape[0] * shape[1] * dtype.itemsize].view(dtype).reshape(shape)
        self.device.cells = found.reshape(-1)
        return found

    def copy(self, size, *, back):
        assert size == self.device.cells.nbytes

    __enter__, __exit__ = (lambda self: self), (lambda self, *error: None)


class Relaxing:
    """Pending tiles, as `relaxing.Relaxing`."""

    macros = ()

    def __init__(self, shape, cost, cell, friction, dtype, options, farthest, planes):
        self.shape, self.farthest, self.visits = shape, farthest, 0
        self.keys = full(shape.tiles[0] * shape.tiles[1], NONE, np.uint32)
        self.flags = full(len(self.keys), 0, np.uint32)

    @property
    def pending(self):
        return (self,)

    def begin(self, row, col, key, flags=0):
        down, across = self.shape.tiles
        for i in {(row + k) // SIDE for k in (-1, 0, 1)}:
            for j in {(col + k) // SIDE for k in (-1, 0, 1)}:
                if 0 <= i < down and 0 <= j < across:
                    at = i * across + j
                    self.keys[at] = min(self.keys[at], key)
                    self.flags[at] |= flags if (i, j) == (row // SIDE, col // SIDE) else 0

    def send_away(self):
        self.flags[:] = AWAY

    def flagged(self, flag):
        return (self.flags & flag).astype(bool).reshape(self.shape.tiles)

    def waiting(self):
        return self.flagged(AWAY) & (self.keys != NONE).reshape(self.shape.tiles)

    def state(self):
        return {"visits": self.visits, "number": self.visits}

    def run(self, heights, frictions, lengths, distances, guard, *_):
        size = self.shape.padded, self.shape.pitch
        z, d = (a[: size[0] * size[1]].reshape(size) for a in (heights, distances))
        z = z.astype(np.int64)
        while True:
            due = ~self.flagged(AWAY).ravel() & (self.keys != NONE) & (self.keys <= self.farthest)
            if not due.any():
                return self.state()
            at = int(np.where(due, self.keys, NONE).argmin())
            self.keys[at], self.visits = NONE, self.visits + 1
            i, j = (k * SIDE for k in divmod(at, self.shape.tiles[1]))
            part = np.s_[i : i + SIDE + 2, j : j + SIDE + 2]
            lowered = relax_tile(z[part], d[part])
            self.flags[at] |= CHANGED * lowered.any()
            for row, col in np.argwhere(lowered):
                self.begin(i + row, j + col, d[part][row + 1, col + 1])


def relax_tile(z, d):
    """Relax the inside of a window to its end; return which cells were lowered."""
    before, there = d[1:-1, 1:-1].copy(), d[1:-1, 1:-1] != ABSENT
    best = before.astype(np.int64)
    while True:
        for i, j in STEPS:
            beside = np.s_[1 + i : 1 + i + SIDE, 1 + j : 1 + j + SIDE]
            through = d[beside] + np.abs(z[beside] - z[1:-1, 1:-1])
            best = np.where(there & (d[beside] < TOP), np.minimum(best, through), best)
        if (best == d[1:-1, 1:-1]).all():
            return best < before
        d[1:-1, 1:-1] = best


class Kernel:
    """Kernels by name: of `fields.cu` and `read.cu`."""

    lock = threading.Lock()

    def __init__(self, name):
        self.work = getattr(self, name)

    def __call__(self, grid, block, arguments):
        self.work(*arguments)

    @staticmethod
    def cells(h, w, row, col, pitch):
        """Where the cells of a window lie in a padded array."""
        rows, cols = np.arange(row, row + h) + 1, np.arange(col, col + w) + 1
        return (rows[:, None] * pitch + cols).ravel()

    def place(self, block, *given):
        *where, _, _, pitch, cells, distances, known, nodata, appear, _, _ = given
        at = self.cells(*where, pitch)
        good = (block.cells != nodata) | (not known)
        cells[at] = np.where(good, block.cells, 0)
        distances[at] = np.where(good, TOP if appear else distances[at], ABSENT)

    def sources(self, ids, costs, count, cols, pitch, heights, distances, pending, notes):
        for k, cost in zip(ids.tolist(), costs.tolist(), strict=True):
            row, col = divmod(k, cols)
            distances[(row + 1) * pitch + col + 1] = cost
            pending.begin(row, col, cost, CHANGED)

    def receive(self, ring, seen, h, w, pitch, distances, pending):
        rows, cols = np.r_[[-1] * (w + 2), [h] * (w + 2)], np.tile(np.arange(-1, w + 1), 2)
        rows, cols = np.r_[rows, np.tile(np.arange(h), 2)], np.r_[cols, [-1] * h, [w] * h]
        at = (rows + 1) * pitch + cols + 1
        known = (ring < TOP) & (distances[at] != ABSENT)
        distances[at[known]] = ring[known]
        for k in np.flatnonzero(known & (ring < seen)):
            pending.begin(rows[k], cols[k], ring[k])

    def wake(self, distances, pitch, pending):
        down, across = pending.shape.tiles
        for i, j in np.ndindex(down, across):
            d = distances[self.cells(SIDE, SIDE, i * SIDE, j * SIDE, pitch)].min()
            if d < TOP:
                for k, m in (-1, -1), (-1, SIDE), (SIDE, -1), (SIDE, SIDE):
                    pending.begin(i * SIDE + k, j * SIDE + m, d)

    def rim(self, distances, h, w, pitch, rim):
        d = distances[self.cells(h, w, 0, 0, pitch)].reshape(h, w)
        sides = np.concatenate((d[0], d[-1], d[:, 0], d[:, -1]))
        rim[:] = np.where(sides == ABSENT, TOP, sides)

    def admit(self, ready, pending):
        pending.flags[ready.ravel()] &= ~np.uint32(AWAY)

    def save(self, distances, h, w, row, col, pitch, block):
        block.cells[:] = distances[self.cells(h, w, row, col, pitch)]

    def restore(self, distances, h, w, row, col, pitch, block):
        at = self.cells(h, w, row, col, pitch)
        distances[at] = np.where(distances[at] == ABSENT, ABSENT, block.cells)

    def finish(self, distances, h, w, row, col, pitch, farthest, block, notes):
        given = distances.cells if isinstance(distances, Buffer) else distances
        d = given[self.cells(h, w, row, col, pitch)]
        there = (d < TOP) & (d <= farthest)
        with Kernel.lock:
            notes[REACHED : REACHED + 2] += np.uint64([there.sum(), (d != ABSENT).sum()])
        block.cells[:] = np.where(there, d, ABSENT)


def install(monkeypatch, *sides):
    """Runs on a GPU are done by the stand-in, in regions of so many rows and columns of blocks."""
    fake = SimpleNamespace(array=array, full=full, empty=lambda n, dtype: full(n, 0, dtype))
    fake.cuda = SimpleNamespace(Device=Device)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(piece, "Relaxing", Relaxing)
    monkeypatch.setattr(piece, "module", lambda *_: SimpleNamespace(get_function=Kernel))
    monkeypatch.setattr(lanes, "BlockStaging", Staging)
    run = regions.Regions
    monkeypatch.setattr(solve, "solve", lambda problem, *how: run(problem, sides, *how).run())
    execute = CostDistance.execute

    def on_gpu(self, run):
        run.gpu = SimpleNamespace(memory=2**40, given=False, devices=[0], workers=())
        return execute(self, run)

    monkeypatch.setattr(CostDistance, "execute", on_gpu)
