"""The hierarchy of depressions, block by block, against plain Python."""

from __future__ import annotations

import csv
import heapq
import json
import os

import numpy as np
import pytest
import rasterio
import reference
from contract import TRANSFORM, make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from strategies import rasters, shapes
from test_flow import AlongDirections, call, store_of_codes

from terrain_gpu import TileStore, depressions, fill, flow_direction
from terrain_gpu import minimum_spanning_tree as spanning_tree
from terrain_gpu.engine.proof import Limits
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.hydrology.depressions.operation import DepressionLabels
from terrain_gpu.hydrology.depressions.proof import verify_stored_depressions


def right(data, nodata=None, connectivity=8, outlets=None):
    """The depressions by their pits, and their numbers."""
    if outlets is None:
        outlets = reference.edge(reference.vertices(data, nodata))
    found = reference.depressions(data, set(outlets), nodata, connectivity)
    return found, {pit: 1 + k for k, pit in enumerate(sorted(found))}


def conditioned(data, nodata, found, numbers, kept, connectivity=8):
    """Labels of those that are kept, and heights without the others."""
    labels = {pit: 1 + k for k, pit in enumerate(kept)}
    smallest = reference.smallest_depressions(data, found, numbers, nodata, connectivity)
    by_number = dict(zip(numbers.values(), numbers, strict=True))
    expected, filled = np.zeros(data.shape, np.uint32), data.copy()
    for cell in reference.listed(smallest != 0):
        chain = list(within(found, by_number[smallest[cell]]))
        expected[cell] = next((labels[pit] for pit in chain if pit in labels), 0)
        gone = [pit for pit in chain if pit not in labels]
        filled[cell] = found[gone[-1]][0] if gone else data[cell]
    return expected, filled


class TestDepressionsContract(AlongDirections):
    command = "depressions s.zarr --table t.csv --conditioned c --min-depth 20"
    proven_by_workers = False

    def make(self, store):
        table = str(store.parent / "t.csv")
        return DepressionLabels(str(store), table=table, conditioned="c", min_depth=20.0)

    def expected(self, data, nodata, grid):
        found, numbers = right(data, nodata)
        kept = [pit for pit in sorted(found) if found[pit][0] - data[pit].item() >= 20]
        return list(conditioned(data, nodata, found, numbers, kept))


def rows_of(table):
    with open(table, newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def within(found, pit):
    """A pit and those into whose depressions water spills; one that never spills has none."""
    while pit in found:
        yield pit
        pit = found[pit][1]


@settings(max_examples=examples(60))
@given(
    raster=rasters(st.sampled_from(["<i2", "<f4", "<u4"]).map(np.dtype), shapes(200, 4000)),
    connectivity=st.sampled_from([8, 4]),
    ends=st.sampled_from(["low_edge", "edge", "border", "one"]),
    least=st.sampled_from([(0, 0, 0), (2, 0, 0), (0, 600, 0), (1, 0, 900), (3, 800, 2000)]),
    threads=st.integers(1, 3),
)
def test_tables_and_conditioned_heights(folders, raster, connectivity, ends, least, threads):
    data, nodata = raster.cells, raster.nodata
    good = reference.vertices(data, nodata)
    if np.abs(data[good].astype(float)).max(initial=0) > 1e30:
        return
    cells = reference.listed(good)
    if ends == "one" and cells:
        outlets = ends = [cells[len(cells) // 3]]
    else:
        ends = "low_edge" if ends == "one" else ends
        beside = ndimage.binary_dilation(np.pad(~good, 1, constant_values=True), np.ones((3, 3)))
        coast = reference.listed(good & beside[1:-1, 1:-1])
        outlets = coast if ends == "border" else reference.edge(good)
    found, numbers = right(data, nodata, connectivity, outlets)
    inside = {pit: [] for pit in found}  # cells by all depressions that hold them
    smallest = reference.smallest_depressions(data, found, numbers, nodata, connectivity)
    by_number = dict(zip(numbers.values(), numbers, strict=True))
    for cell in reference.listed(smallest != 0):
        for pit in within(found, by_number[smallest[cell]]):
            inside[pit].append(float(data[cell]))
    area = abs(np.linalg.det(np.reshape(TRANSFORM, (2, 3))[:, :2]))
    sizes = {}
    for pit, (spill, _) in found.items():
        volume = sum(float(spill) - z for z in inside[pit]) * area
        sizes[pit] = spill - data[pit].item(), len(inside[pit]) * area, volume
        if least[2] and abs(volume - least[2]) < 1e-6 * (volume + least[2]):
            return
    kept = [pit for pit in sorted(found) if all(np.array(sizes[pit]) >= least)]
    labels, texts, tables = {pit: 1 + k for k, pit in enumerate(kept)}, set(), []
    expected, filled = conditioned(data, nodata, found, numbers, kept, connectivity)
    with folders() as folder:
        for block in (64, 256):
            store = make_store(folder / f"{block}.zarr", data, nodata, block)
            spanning_tree(store, weight="flow", connectivity=connectivity, backend="cpu")
            flow_direction(store, ends)
            result = depressions(
                store,
                conditioned="conditioned",
                table=folder / f"{block}.csv",
                threads=threads,
                **dict(zip(("min_depth", "min_area", "min_volume"), least, strict=True)),
            )
            assert same(whole(result.layers["depressions"]), expected)
            assert same(whole(result.layers["conditioned"]), filled)
            assert result.found["depressions"] == len(kept)
            for layer in result.layers.values():
                verify_stored_depressions(TileStore.open(store), layer, Limits.of(threads=threads))
            texts.add((folder / f"{block}.csv").read_text())
            tables.append(rows_of(folder / f"{block}.csv"))
    assert len(texts) == 1
    assert [(row["row"], row["col"]) for row in tables[0]] == kept
    for row, pit in zip(tables[0], kept, strict=True):
        spill, parent = found[pit]
        assert row["id"] == labels[pit]
        assert row["parent"] == labels.get(parent, 0)
        assert (row["height"], row["spill_height"]) == (data[pit], spill)
        assert data[int(row["spill_row"]), int(row["spill_col"])] == spill
        assert (row["depth"], row["cells"]) == (spill - data[pit].item(), len(inside[pit]))
        np.testing.assert_allclose(row["area"], sizes[pit][1], rtol=1e-9)
        np.testing.assert_allclose(row["volume"], sizes[pit][2], rtol=1e-6)


def test_nested_depressions(tmp_path):
    """A valley in profile, across blocks; water leaves it on the right."""
    profile = np.repeat([9, 1, 4, 2, 7, 0, 5, 3, 8, 1, 3, 2, 9, 0], 11).astype(np.int16)
    data = np.vstack([np.full_like(profile, 99), profile, np.full_like(profile, 99)])
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    spanning_tree(store, weight="flow")
    flow_direction(store, [(1, data.shape[1] - 1)])
    table = tmp_path / "t.csv"
    found = depressions(store, table=table)
    assert found.found["depressions"] == 6
    rows = [(int(row["col"]) // 11, row["parent"], row["spill_height"]) for row in rows_of(table)]
    names = {int(row["id"]): int(row["col"]) // 11 for row in rows_of(table)} | {0: None}
    assert [(pit, names[int(parent)], spill) for pit, parent, spill in rows] == [
        (1, 5, 7), (3, 1, 4), (5, None, 9), (7, 5, 5), (9, 5, 8), (11, 9, 3)
    ]  # fmt: skip
    assert [row["volume"] / 200 / 11 for row in rows_of(table)] == [14, 2, 63, 2, 18, 1]


def prominence_of(z, peak):
    """The least descent on any way to higher land, or to the edge as if higher land followed."""
    seen, ways = {peak}, [(-z[peak], peak)]
    lowest = z[peak]
    while ways:
        height, cell = heapq.heappop(ways)
        lowest = min(lowest, -height)
        if (-height, tuple(-k for k in cell)) > (z[peak], tuple(-k for k in peak)):
            return z[peak] - lowest
        if 0 in cell or cell[0] == z.shape[0] - 1 or cell[1] == z.shape[1] - 1:
            return z[peak] - lowest
        for down, right in reference.TOWARD:
            there = cell[0] + down, cell[1] + right
            if there not in seen:
                seen.add(there)
                heapq.heappush(ways, (-z[there], there))
    raise AssertionError("there is an edge")


@pytest.mark.parametrize("seed", range(4))
def test_the_prominence_of_peaks(tmp_path, seed):
    """Peaks are the pits of the raster turned upside down, and their depths the prominences."""
    rng = np.random.default_rng(seed)
    z = ndimage.gaussian_filter(rng.normal(0, 300, (70, 131)), 1 + seed)
    z = (z if seed % 2 else np.round(z)).astype(np.float32)  # with ties
    store = make_store(tmp_path / "s.zarr", -z, None, 64)
    spanning_tree(store, weight="flow")
    flow_direction(store)
    depressions(store, table=tmp_path / "t.csv", verify=True)
    found = {
        (int(row["row"]), int(row["col"])): row["depth"] for row in rows_of(tmp_path / "t.csv")
    }
    inner = [cell for cell in np.ndindex(z.shape) if min(cell) > 0]
    inner = [(row, col) for row, col in inner if row < 69 and col < 130]
    right = {cell: float(prominence_of(z.astype(float), cell)) for cell in inner}
    assert found == {cell: height for cell, height in right.items() if height > 0}


def test_a_pit_that_spills_towards_the_last_cell_of_its_block(tmp_path):
    data = np.full((64, 128), 100.0, np.float32)
    data[:, 63] = np.arange(64)  # the last cell of the block is the last at its rim under water
    data[:, 64:] = -1
    data[10, 10] = 50
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    spanning_tree(store, weight="flow")
    flow_direction(store, outlets=[(5, 127)])
    assert depressions(store, verify=True).found["depressions"] == 1


def test_depressions_of_a_raster(dem, tmp_path, capsys):
    assert call("depressions dem.tif -o numbers.tif --table t.csv --json r.json") == 0
    found, numbers = right(dem)
    said = capsys.readouterr().out
    assert f"{len(numbers):,} depressions, depth up to" in said
    assert "written: t.csv, numbers.tif" in said
    with rasterio.open("numbers.tif") as file:
        assert same(file.read(1), reference.smallest_depressions(dem, found, numbers))
    report = json.loads((tmp_path / "r.json").read_text())
    codes = np.full(dem.shape, 1, np.uint8)  # outlets at the edge
    codes[[0, -1]] = codes[:, [0, -1]] = 0
    filled = reference.filled(dem, codes)
    assert report["result"]["volume"] == pytest.approx(float((filled - dem).sum()) * 900)
    assert call("convert-dataset dem.tif s.zarr") == 0
    assert call("depressions s.zarr --min-depth 1000") == 0
    assert "0 depressions, " in capsys.readouterr().out


@pytest.mark.parametrize("key", ["depressions", "deepest", "area", "volume"])
def test_wrong_totals_of_depressions(dem, monkeypatch, key):
    assert call("convert-dataset dem.tif s.zarr") == 0
    assert call("flow-direction s.zarr") == 0
    execute = DepressionLabels.execute

    def more(operation, own):
        found = execute(operation, own)
        return {**found, key: found[key] + (1 if key == "depressions" else 1e-6)}

    monkeypatch.setattr(DepressionLabels, "execute", more)
    with pytest.raises(VerificationError, match=f"wrong totals: .* {key}"):
        depressions("s.zarr", min_depth=1, verify=True)


def test_depressions_that_cannot_be(dem, tmp_path, capsys):
    assert call("convert-dataset dem.tif s.zarr --block-size 64") == 0
    with pytest.raises(StoreError, match="no layer 'ways'; it has: "):
        depressions("s.zarr", directions="ways")
    assert call("depressions s.zarr --min-depth=-1") == 2
    assert "'--min-depth': -1.0 is not in the range x>=0" in capsys.readouterr().err
    for name in ("min_depth", "min_area", "min_volume"):
        with pytest.raises(InputError, match=f"{name} nan is not a finite number of at least 0"):
            depressions("s.zarr", **{name: float("nan")})
    assert call("depressions s.zarr --table t.csv") == 0
    os.remove("t.csv")
    assert call("depressions s.zarr --table t.csv --resume") == 2
    assert "'depressions' is complete but" in capsys.readouterr().err
    assert call("depressions s.zarr --into elevation --overwrite") == 2
    store_of_codes("s.zarr", np.zeros(dem.shape, np.uint8), grid=TileStore.open("s.zarr").grid)
    with pytest.raises(StoreError, match="codes: not made by flow-direction; depressions need"):
        depressions("s.zarr", directions="codes", overwrite=True)


RING = np.full((9, 13), 20, np.float32)
RING[1:-1, 1:-1] = -9999
RING[2:-2, 2:-2] = 9
RING[4, 4], RING[4, 8] = 5, 3
"""An island with two pits in an inner void: its water reaches no outlet."""


def test_what_reaches_no_outlet_is_in_no_depression(tmp_path, caplog):
    store = make_store(tmp_path / "s.zarr", RING, -9999, 64)
    spanning_tree(store, weight="flow")
    flow_direction(store)
    table = tmp_path / "t.csv"
    found = depressions(store, table=table, verify=True).found
    assert (found["depressions"], found["area"], found["volume"]) == (0, 0, 0)
    assert len(table.read_text().splitlines()) == 1
    assert same(whole(fill(store, keep_deeper_than=5, verify=True).layers["filled"]), RING)
    assert caplog.text.count("flow_direction: 45 cells reach no outlet") == 1
    flow_direction(store, "border", overwrite=True, verify=True)
    found = depressions(store, overwrite=True, verify=True, table=table).found
    assert (found["depressions"], found["volume"]) == (2, 200 * (4 + 6))
