"""Real rasters, whole: a GPU and the CPU write the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from samples import DEMS

from terrain_gpu import TileStore, convert_dataset, minimum_spanning_tree, shortest_paths
from terrain_gpu.spanning_tree.weights import valid_cells

NAMES = sorted(p.name for p in DEMS.glob("*.*") if p.suffix != ".md")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not NAMES, reason=f"no rasters in {DEMS}"),
]


@pytest.fixture(scope="module", params=NAMES)
def store(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("dems") / "dem.zarr"
    convert_dataset([DEMS / request.param], path, block_size=256)
    return path


def written(store, *layers):
    """All cells of layers, as bits."""
    opened = [TileStore.open(store).layer(name) for name in layers]
    return [x.read_window(*x.grid.window).view(f"u{x.dtype.itemsize}") for x in opened]


def same(store, run, *layers):
    found = []
    for backend in ("cpu", "cuda"):
        run(backend=backend, overwrite=True)
        found.append(written(store, *layers))
    for name, cpu, gpu in zip(layers, *found, strict=True):
        np.testing.assert_array_equal(cpu, gpu, err_msg=name)


@pytest.mark.parametrize("weight", ["absdiff", "max", "flow"])
def test_spanning_tree(store, weight):
    same(store, lambda **how: minimum_spanning_tree(store, weight=weight, **how), "mst")


@pytest.mark.parametrize("cost", ["absdiff", "surface", "tobler", "minimax"])
def test_cost_distance(store, cost):
    layer = TileStore.open(store).layer("elevation")
    cells = layer.read_window(*layer.grid.window)
    valid = np.argwhere(valid_cells(cells, layer.nodata))
    sources = [tuple(map(int, valid[k])) for k in (0, len(valid) // 2)]
    same(
        store,
        lambda **how: shortest_paths(
            store, sources, cost=cost, backlink=True, allocation=True, **how
        ),
        "distance",
        "backlink",
        "allocation",
    )
