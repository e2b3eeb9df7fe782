"""Compressed layers on a GPU: read and written as on the CPU, in the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
import region_plans
from strategies import Raster

from terrain_gpu import (
    GridSpec,
    TileStore,
    create_layer,
    fill,
    flow_accumulation,
    flow_direction,
    minimum_spanning_tree,
    shortest_paths,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.spanning_tree.gpu import plan
from terrain_gpu.store.coding import NAMES

pytestmark = pytest.mark.gpu

HEIGHTS = {
    "integers": Raster(np.dtype("<i2"), (300, 407), -1, "hills", "lakes").cells,
    "floats": Raster(np.dtype("<f4"), (257, 320), -1, "hills", "dense").cells,
}


def computed(store, heights, compress, backend):
    """The shards of all layers, by name of file: heights, and what follows from them."""
    grid = GridSpec(*heights.shape, (30.0, 0.0, 0.0, 0.0, -30.0, 0.0))
    with create_layer(
        store, "elevation", grid, heights.dtype, nodata=-1, block_size=128, compress=compress
    ) as writer:
        for at in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(*at)
            writer.write_block(*at, heights[r0:r1, c0:c1])
        writer.commit()
    how = {"backend": backend, "compress": compress, "verify": True}
    start = [tuple(int(n) for n in np.argwhere(heights != -1)[k]) for k in (0, -1)]
    runs = [
        minimum_spanning_tree(store, weight="flow", **how),
        shortest_paths(store, start, cost="surface", backlink=True, allocation=True, **how),
        flow_direction(store, **how),
        flow_accumulation(store, **how),
        fill(store, **how),
    ]
    assert {run.report.settings["backend"] for run in runs} == {backend}
    opened = TileStore.open(store)
    assert len(opened.layers) == 8
    assert {opened.layer(name).compress for name in opened.layers} == {compress}
    return {p.relative_to(store): p.read_bytes() for p in store.rglob("c/*/*")}


@pytest.mark.parametrize("in_regions", [True, False], ids=["regions", "whole"])
@pytest.mark.parametrize("kind", HEIGHTS)
@pytest.mark.parametrize("compress", NAMES)
def test_the_same_files_as_the_cpu(tmp_path, monkeypatch, compress, kind, in_regions):
    if in_regions:
        monkeypatch.setattr(plan, "MOST_SIDE", 128)
        region_plans.in_regions(monkeypatch, 1)
    stores = [tmp_path / backend for backend in ("cpu", "cuda")]
    cpu, gpu = (computed(store, HEIGHTS[kind], compress, store.name) for store in stores)
    assert cpu == gpu
    words = ["verify", str(stores[1]), "--backend", "cuda"]
    options._guarded(lambda: group.main(words, standalone_mode=False))
