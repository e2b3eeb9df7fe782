"""Progress adds up: a constant total, never exceeded, and reached at the end."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import terrain_gpu
from terrain_gpu.progress import Bar


class Recorded:
    """A progress callback that checks what it is told."""

    def __init__(self) -> None:
        self.seen, self.total = 0, None

    def __call__(self, cells: int, total: int) -> None:
        assert self.total in (None, total), "the total changed"
        self.total = total
        self.seen += cells
        assert 0 <= self.seen <= total


def make(path, dtype):
    """A store with heights, and a hole in them."""
    rng = np.random.default_rng(5)
    data = rng.integers(0, 9, (150, 170)).astype(dtype)
    data[40:60, 30:90] = -1
    grid = terrain_gpu.GridSpec(*data.shape, (10.0, 0.0, 0.0, 0.0, -10.0, 0.0), "", "")
    with terrain_gpu.create_layer(path, "elevation", grid, dtype, nodata=-1, block_size=64) as w:
        for i, j in w.blocks.ids():
            r0, r1, c0, c1 = w.block_window(i, j)
            w.write_block(i, j, data[r0:r1, c0:c1])
        w.commit()
    return path


@pytest.fixture
def store(tmp_path):
    return make(tmp_path / "dem.zarr", "int16")


RUNS = {
    "tree": lambda s, p: terrain_gpu.minimum_spanning_tree(s, progress=p),
    "tree, verified": lambda s, p: terrain_gpu.minimum_spanning_tree(s, verify=True, progress=p),
    "contract": lambda s, p: terrain_gpu.minimum_spanning_tree(s, method="contract", progress=p),
    "paths": lambda s, p: terrain_gpu.shortest_paths(s, [(0, 0)], progress=p),
    "paths, verified": lambda s, p: terrain_gpu.shortest_paths(
        s, [(0, 0)], cost="absdiff", backlink=True, allocation=True, verify=True, progress=p
    ),
    "dijkstra": lambda s, p: terrain_gpu.shortest_paths(
        s, [(0, 0)], cost="surface", method="dijkstra", verify=True, progress=p
    ),
    "index": lambda s, p: terrain_gpu.shortest_paths(
        s, [(0, 0)], cost="surface", build_index=True, progress=p
    ),
    "components": lambda s, p: terrain_gpu.label_components(s, "elevation > 3", progress=p),
    "accumulate": lambda s, p: terrain_gpu.accumulate(s, progress=p),
    "directions": lambda s, p: terrain_gpu.flow_direction(s, verify=True, progress=p),
    "flow": lambda s, p: terrain_gpu.flow_accumulation(s, verify=True, progress=p),
    "divided": lambda s, p: terrain_gpu.flow_accumulation(s, method="mfd", verify=True, progress=p),
    "fill": lambda s, p: terrain_gpu.fill(s, verify=True, progress=p),
    "epsilon": lambda s, p: terrain_gpu.fill(s, epsilon=True, verify=True, progress=p),
    "lakes": lambda s, p: terrain_gpu.fill(s, keep_deeper_than=2, verify=True, progress=p),
    "gradient": lambda s, p: terrain_gpu.flow_direction(
        s, flats="gradient", into="gradient", verify=True, progress=p
    ),
    "mean": lambda s, p: terrain_gpu.flow_accumulation(
        s, weights="elevation", statistic="mean", verify=True, progress=p
    ),
    "breach": lambda s, p: terrain_gpu.breach(s, verify=True, progress=p),
    "breach lines": lambda s, p: terrain_gpu.breach(s, lines=s.parent / "b.geojson", progress=p),
    "burn": lambda s, p: terrain_gpu.burn(s, [(0, 0)], depth=1, verify=True, progress=p),
    "depressions": lambda s, p: terrain_gpu.depressions(s, verify=True, progress=p),
    "large": lambda s, p: terrain_gpu.depressions(s, min_area=9, verify=True, progress=p),
    "rain": lambda s, p: terrain_gpu.fill_spill_merge(s, rain=0.5, verify=True, progress=p),
    "basins": lambda s, p: terrain_gpu.basins(s, verify=True, progress=p),
    "watershed": lambda s, p: terrain_gpu.watershed(s, [(0, 0)], verify=True, progress=p),
    "hand": lambda s, p: terrain_gpu.hand(s, streams="elevation", verify=True, progress=p),
    "averages": lambda s, p: terrain_gpu.hand(
        s, to_outlets=True, method="dinf", verify=True, progress=p
    ),
    "streams": lambda s, p: terrain_gpu.streams(s, 9, verify=True, progress=p),
    "stream lines": lambda s, p: terrain_gpu.streams(
        s, 9, lines=s.parent / "s.geojson", verify=True, progress=p
    ),
    "links": lambda s, p: terrain_gpu.watershed(s, links="components", verify=True, progress=p),
    "indices": lambda s, p: terrain_gpu.terrain_indices(s, ls="ls", verify=True, progress=p),
    "network": lambda s, p: terrain_gpu.extract_network(
        s, s.parent / "n.geojson", min_length=50, progress=p
    ),
    "polygons": lambda s, p: terrain_gpu.polygons(
        s, s.parent / "p.geojson", layer="elevation", progress=p
    ),
    "contours": lambda s, p: terrain_gpu.contours(
        s, s.parent / "c.geojson", interval=10, progress=p
    ),
    "bands": lambda s, p: terrain_gpu.contours(
        s, s.parent / "b.geojson", interval=10, polygons=True, progress=p
    ),
    "matrix": lambda s, p: terrain_gpu.cost_matrix(
        s, [(0, 0), (9, 9), (70, 80)], paths=s.parent / "m.geojson", verify=True, progress=p
    ),
    "paths between": lambda s, p: terrain_gpu.least_cost_network(
        s, [(0, 0), (9, 9)], s.parent / "l.geojson", pairs="all", verify=True, progress=p
    ),
    "export": lambda s, p: terrain_gpu.export_layer(s, s.parent / "x.tif", progress=p),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_counts_to_its_total(name, store):
    along = ("flow", "divided", "fill", "hand", "basins", "watershed", "indices", "depressions")
    along += ("large", "averages", "epsilon", "lakes", "mean", "streams", "stream lines", "links")
    along += ("rain",)
    if name == "epsilon":
        store = make(store.parent / "floats.zarr", "float32")
    if name in ("accumulate", "network", "directions", "gradient", *along):
        terrain_gpu.minimum_spanning_tree(store, weight="flow")
    if name in along:
        terrain_gpu.flow_direction(store)
    if name == "gradient":
        terrain_gpu.flow_direction(store, into="flow_direction_tree")
        terrain_gpu.fill(store, directions="flow_direction_tree")
    if name in ("divided", "averages"):
        terrain_gpu.fill(store)
    if name in ("indices", "streams", "stream lines"):
        terrain_gpu.flow_accumulation(store)
    if name == "indices":
        terrain_gpu.slope(store)
    if name == "links":
        terrain_gpu.label_components(store, "elevation > 3")
    told = Recorded()
    RUNS[name](store, told)
    assert told.seen == told.total


def test_a_run_that_starts_again_with_more_bits_counts_from_the_beginning(tmp_path):
    heights = np.arange(200 * 200, dtype=np.uint32).reshape(200, 200) % 7 * 2**29
    told = Recorded()
    found = terrain_gpu.shortest_paths(
        heights, [(0, 0)], backend="cpu", backlink=True, verify=True, progress=told
    )
    assert found.distance().dtype == np.uint64
    assert told.seen == told.total


@pytest.mark.parametrize("name", ["tree, verified", "paths, verified"])
def test_resuming_what_is_finished_counts_to_its_total(name, store):
    RUNS[name](store, Recorded())
    told = Recorded()
    if name.startswith("tree"):
        found = terrain_gpu.minimum_spanning_tree(store, verify=True, resume=True, progress=told)
    else:
        found = terrain_gpu.shortest_paths(
            store,
            [(0, 0)],
            cost="absdiff",
            backlink=True,
            allocation=True,
            verify=True,
            resume=True,
            progress=told,
        )
    assert told.seen == told.total == 150 * 170
    assert found.report.valid_cells == 150 * 170 - 20 * 60


def test_a_bar_is_shown_on_a_terminal_only(monkeypatch):
    """It closes when all is done, and may go back."""
    for terminal in (False, True):
        written = io.StringIO()
        monkeypatch.setattr(written, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr(sys, "stderr", written)
        shown = Bar()
        for cells in (600, 400, -400, 800, 600):
            shown(cells, 2000)
        assert bool(written.getvalue()) == terminal
        assert shown._shown is None
