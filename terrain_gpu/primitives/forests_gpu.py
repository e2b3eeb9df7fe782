"""The minimum spanning forest on a GPU, see `forests`: launches of ``cuda/kernels/forests.cu``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from ..cuda.arrays import DeviceArray
from ..cuda.device import CELL_TYPES, module
from ..facts import Settings
from .components_gpu import TYPES, launch
from .edge_components import label_dtype


def variants() -> list[Settings]:
    """Return the macros of all types."""
    ends, words = [np.dtype(t) for t in TYPES], [np.dtype(np.uint32), np.dtype(np.uint64)]
    return [macros(*types) for types in product(ends, ends, words, words)]


def macros(edge: np.dtype, label: np.dtype, key: np.dtype, index: np.dtype) -> Settings:
    """Return the macros of ``cuda/kernels/forests.cu``."""
    types = {"EDGE": edge, "LABEL": label, "KEY": key, "ID": index}
    return {name: CELL_TYPES[dtype.name] for name, dtype in types.items()}


def index_dtype(m: int) -> np.dtype:
    """Return the type of the indices of m edges."""
    return np.dtype(np.uint32 if m < 2**32 else np.uint64)


@dataclass(frozen=True)
class GpuEdges:
    """Ends of edges, at the latest roots, and their ids; in any order."""

    pairs: DeviceArray
    ids: DeviceArray

    def __len__(self) -> int:
        return len(self.ids)


class GpuForest:
    """Trees that grow together; see `forests_cpu.CpuForest`.

    Attributes
    ----------
    best, best_id
        The least edge of each root, reset after each round: key and id in one word, or apart.
    """

    GROUP = 2
    """Most edges per vertex in a list that is joined without being split."""

    def __init__(self, edges: DeviceArray, keys: DeviceArray, n: int) -> None:
        import cupy

        # Kernels read both ends at once.
        self.edges = edges.copy() if edges.data.ptr % (2 * edges.itemsize) else edges
        self.keys, self.n = keys, n
        label, m = label_dtype(n), len(edges)
        self.index = index_dtype(m)
        self.wide = keys.itemsize + self.index.itemsize > 8
        self.parent = cupy.arange(n, dtype=label)
        self.best = cupy.empty(n, np.uint64)
        self.best_id = cupy.empty(n if self.wide else 1, self.index)
        self.chosen = cupy.zeros(m, np.uint8)
        self._kernels = module("forests", macros(edges.dtype, label, keys.dtype, self.index))
        self._launch("finish_round", n, n, self.parent, self.best, self.best_id)

    def to_host(self, array: DeviceArray) -> np.ndarray:
        return array.get()

    def _launch(self, name: str, count: int, *arguments: object) -> None:
        launch(name, self._kernels, count, *arguments)

    def _over(self, name: str, edges: GpuEdges, *arguments: object) -> None:
        self._launch(name, len(edges), edges.pairs, edges.ids, len(edges), *arguments)

    def _new_list(self, count: int) -> tuple[DeviceArray, DeviceArray]:
        import cupy

        return cupy.empty((count, 2), self.parent.dtype), cupy.empty(count, self.index)

    def all_edges(self) -> GpuEdges:
        import cupy

        count, m = cupy.zeros(1, np.uint64), len(self.edges)
        pairs, ids = self._new_list(m)
        self._launch("start", m, self.edges, m, pairs, ids, count)
        size = int(count[0])
        return GpuEdges(pairs[:size], ids[:size])

    def split(
        self, edges: GpuEdges, key: DeviceArray, last: DeviceArray
    ) -> tuple[GpuEdges, GpuEdges]:
        """Split a list after an edge, given by its key and id."""
        import cupy

        counts = cupy.zeros(2, np.uint64)
        pairs, ids = self._new_list(len(edges))
        self._over("split", edges, self.keys, key, last, pairs, ids, counts)
        light = int(counts[0])
        return GpuEdges(pairs[:light], ids[:light]), GpuEdges(pairs[light:], ids[light:])

    def between_trees(self, edges: GpuEdges, best: DeviceArray = None) -> GpuEdges:
        """Return the edges between different trees; with `best`, find the least of each root."""
        import cupy

        count = cupy.zeros(1, np.uint64)
        pairs, ids = self._new_list(len(edges))
        self._over("between_trees", edges, self.parent, self.keys, best, pairs, ids, count)
        size = int(count[0])
        return GpuEdges(pairs[:size], ids[:size])

    def join(self, edges: GpuEdges) -> None:
        """Join the trees across these edges, in rounds."""
        while len(edges := self.between_trees(edges, self.best)):
            if self.wide:
                self._over("least_ids", edges, self.keys, self.best, self.best_id)
            least = self.best, self.best_id
            self._over("hook", edges, self.keys, *least, self.parent, self.chosen)
            self._launch("finish_round", self.n, self.n, self.parent, *least)
