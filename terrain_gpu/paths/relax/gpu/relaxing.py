"""Relaxation on a GPU: the pending tiles, and the kernel that relaxes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ....cuda.arrays import DeviceArray
from ....cuda.device import module, shared_memory
from ...cost.knights import Options
from ...cost.models import cuda_parameters
from ..relaxation import Overflow
from .memory import Shape
from .variants import variant

LISTED, WHOLE, AWAY, CHANGED = 1, 2, 4, 8
"""Flags of tiles, as in kernels/pending.cuh."""

_FILL, _FILL_PLANES = 1.0, 4.0
"""Approximate number of tiles per warp in a wave; more cost visits of one plane, and of several
save a third of the time."""

LAUNCH = 0.1
"""Target duration of a launch of `relax` in seconds; Ctrl-C and targets are checked between."""


def key_dtype(distance: np.dtype) -> np.dtype:
    """Of the keys of pending tiles, `order` in kernels/pending.cuh."""
    return np.dtype(np.uint32 if distance == np.uint32 else np.uint64)


def keys_of(distances: np.ndarray) -> np.ndarray:
    """Keys of distances: integers in the same order, `order_of` in kernels/pending.cuh."""
    if distances.dtype.kind == "u":
        return distances
    bits, sign = distances.view(np.uint64), np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _state_dtype(distance: np.dtype) -> np.dtype:
    """Layout of the struct State in kernels/pending.cuh."""
    wave = np.dtype(
        [("sum", np.float64), ("least", key_dtype(distance))]
        + [(n, np.uint32) for n in ("candidates", "chosen", "taken", "overflow")],
        align=True,
    )
    return np.dtype(
        [("waves", wave, 3)]
        + [(n, np.uint64) for n in ("number", "visits", "steps")]
        + [(n, np.uint32) for n in ("arrived", "overflow")],
        align=True,
    )


def _pending(state: Any) -> bool:
    return bool(state["waves"][int(state["number"]) % 3]["candidates"])


class Relaxing:
    """Pending tiles, and the kernel that relaxes them.

    Parameters
    ----------
    cell, friction
        Dtypes of the arrays given to `run`.
    farthest
        Larger distances are not propagated; one bound, or one for each plane.
    planes
        Rasters of distances over the same cells that are relaxed together.
    """

    def __init__(
        self,
        shape: Shape,
        cost: Any,
        cell: np.dtype,
        friction: np.dtype | None,
        distance: np.dtype,
        options: Options,
        farthest: float,
        planes: int = 1,
    ) -> None:
        import cupy

        device = cupy.cuda.Device()
        self.shape, self.dtype, self.device, self.planes = shape, distance, device.id, planes
        self._multiprocessors = device.attributes["MultiProcessorCount"]
        limit = shared_memory(device.id)
        self.macros = variant(cost, cell, friction, distance, options, limit)
        self.module = module("paths", self.macros)
        self._kernel = self.module.get_function("relax")
        self._shared = self.macros["WARPS"] * self.macros["TILE_BYTES"]
        self._kernel.max_dynamic_shared_size_bytes = self._shared
        self.parameters = cupy.array(cuda_parameters(cost))
        key, tiles = key_dtype(distance), planes * shape.tiles[0] * shape.tiles[1]
        self._keys = cupy.full(tiles, np.iinfo(key).max, key)
        self._flags = cupy.zeros(tiles, np.uint32)
        self._lists = cupy.empty(3 * tiles, np.uint32)
        self._layout = _state_dtype(distance)
        state = np.zeros((), self._layout)
        state["waves"]["least"] = np.iinfo(key).max
        self._state = cupy.array(state[None].view(np.uint8))
        self._limits = cupy.empty(planes, distance)
        self.farthest = farthest

    @property
    def pending(self) -> tuple[Any, ...]:
        """Arguments of kernels that make tiles pending."""
        down, across = self.shape.tiles
        return (self.planes * down, across, self._keys, self._flags, self._lists, self._state)

    def restart(self, tiles: np.ndarray, values: np.ndarray, whole: np.ndarray) -> None:
        """Forget what is pending, and make tiles pending.

        Parameters
        ----------
        tiles
            Their numbers, each once, counted through all planes.
        values
            The least distance that is to be propagated into each.
        whole
            Whether cells inside the tile were set, not only beside it.
        """
        import cupy

        keys, state = keys_of(values.astype(self.dtype)), np.zeros((), self._layout)
        none, first = np.iinfo(keys.dtype).max, state["waves"][0]
        state["waves"]["least"] = none
        first["least"], first["candidates"] = keys.min(initial=none), len(tiles)
        first["sum"] = values.sum(dtype=np.float64)
        self._keys.fill(none)
        self._flags.fill(0)
        at = cupy.array(tiles)
        self._keys[at] = cupy.array(keys)
        self._flags[at] = cupy.array(np.where(whole, LISTED | WHOLE | CHANGED, LISTED), np.uint32)
        self._lists[: len(tiles)] = cupy.array(tiles.astype(np.uint32))
        self._state[:] = cupy.array(state[None].view(np.uint8))

    def send_away(self) -> None:
        """Mark all tiles as not loaded; they keep their keys until `admit` in kernels/fields.cu."""
        self._flags.fill(AWAY)

    def waiting(self) -> np.ndarray:
        """Tiles that are pending but not loaded, (down, across)."""
        keys = self._keys.get()
        return self.flagged(AWAY) & (keys != np.iinfo(keys.dtype).max).reshape(self.shape.tiles)

    def flagged(self, flag: int) -> np.ndarray:
        """Tiles with a flag, (down, across)."""
        return (self._flags.get() & flag).astype(bool).reshape(self.shape.tiles)

    @property
    def farthest(self) -> Any:
        return self._farthest

    @farthest.setter
    def farthest(self, value: Any) -> None:
        import cupy

        self._farthest = value
        self._limits[:] = cupy.array(np.full(self.planes, value, self.dtype))

    def state(self) -> Any:
        """The state of the kernel after it has finished."""
        return self._state.get().view(self._layout)[0]

    def is_pending(self) -> bool:
        """Whether `run` would relax a tile."""
        return _pending(self.state())

    def saved(self) -> None:
        """Count all tiles as unchanged from now on."""
        self._flags &= np.uint32(LISTED | WHOLE | AWAY)

    def run(
        self,
        heights: DeviceArray,
        frictions: DeviceArray,
        lengths: DeviceArray,
        distances: DeviceArray,
        guard: Any,
        between: Callable[[], object] = lambda: None,
        seam: Callable[[], None] | None = None,
        every: float = LAUNCH,
    ) -> Any:
        """Relax until no tile is pending.

        Parameters
        ----------
        between
            Called from time to time; ends it if it returns something true.
        seam
            Called after each launch: passes distances across the seam, see `Piece.seam`.
        every
            Seconds from one call of `between` to the next, roughly.

        Raises
        ------
        Overflow
            when an integer distance exceeds `guard`.
        """
        grid = (self._multiprocessors,)
        fill = _FILL if self.planes == 1 else _FILL_PLANES
        target = float(fill * grid[0] * self.macros["WARPS"])
        at = self._layout.fields["arrived"][1]  # type: ignore[index]
        waves = 64
        while True:
            start = time.perf_counter()
            self._state[at : at + 4] = 0
            self._kernel.kernel(
                grid,
                (32 * self.macros["WARPS"],),
                (
                    heights,
                    frictions,
                    lengths,
                    self.shape.padded,
                    self.shape.pitch,
                    distances,
                    *self.pending,
                    self.shape.tiles[0] * self.shape.tiles[1],
                    self._limits,
                    self.parameters,
                    self.dtype.type(guard),
                    target,
                    waves,
                ),
                shared_mem=self._shared,
                enable_cooperative_groups=True,
            )
            state = self.state()
            if state["overflow"]:
                raise Overflow
            if seam is not None:
                seam()
                state = self.state()
            if not _pending(state):
                return state
            seconds = time.perf_counter() - start
            # Launches between seams are short, and many: without a bound it would leave 64 bits.
            waves = min(int(np.clip(waves * every / seconds, waves / 2, waves * 4)) + 1, 1 << 40)
            if between():
                return state
