"""Features become a layer: every cell that they touch, and no way through a line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio.features
from contract import TRANSFORM, OperationContract, Stop, make_store, stop_at, whole

import terrain_gpu
from terrain_gpu import rasterize
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.run import Here, run
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.io.places import from_vector
from terrain_gpu.raster.rasterize.operation import FeatureCells
from terrain_gpu.store import TileStore


class TestRasterize(OperationContract):
    command = "rasterize s.zarr --onto elevation --value 3 --features f.geojson"

    @pytest.fixture(autouse=True)
    def features(self, tmp_path):
        save(tmp_path / "f.geojson", ([(1, 1), (40, 30)], {}))
        self.command = f"rasterize s.zarr --onto elevation --features {tmp_path}/f.geojson"

    def marked(self, rows, cols):
        """Every seventh cell, with values that all types hold."""
        ids = np.arange(0, rows * cols, 7)
        return ids, (ids % 5 + 3).astype(np.float64)

    def make(self, store):
        ids, values = self.marked(*TileStore.open(store).grid.shape)
        own = "7", "elevation", "elevation", "rasterized"
        return FeatureCells(str(store), *own, cells=ids, values=values)

    def expected(self, data, nodata, grid):
        found = data.copy()
        ids, values = self.marked(*data.shape)
        for k, value in zip(ids.tolist(), values.tolist(), strict=True):
            found[divmod(k, data.shape[1])] = value
        return [found]

    def provable(self, store):
        before = whole(TileStore.open(store).layer("elevation"))
        (after,) = self.outputs(store).values()
        return {int(np.count_nonzero(after != before))}


def save(path, *lines):
    """Lines in columns and rows, with properties."""
    a, _, c, _, e, f = TRANSFORM
    shapes = [
        {
            "type": "Feature",
            "properties": own,
            "geometry": {
                "type": "LineString",
                "coordinates": [[c + a * x, f + e * y] for x, y in line],
            },
        }
        for line, own in lines
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "crs": None, "features": shapes}))
    return path


@pytest.fixture
def store(tmp_path, no_fsync, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = np.full((70, 90), 5, np.int16)
    cells[3, 3] = -1
    return make_store(tmp_path / "s.zarr", cells, -1, 64)


def call(capfd, words: str) -> tuple[int, str, str]:
    code = options._guarded(lambda: group.main(words.split(), standalone_mode=False))
    return code, *capfd.readouterr()


def test_the_command(store, capfd):
    save(
        Path("f.geojson"),
        ([(0.2, 0.3), (80.7, 66.1)], {"cost": "none", "f": 2}),
        ([(0.5, 60.5), (80.5, 3.5)], {"cost": "none", "f": 7.5}),
    )
    code, out, _ = call(capfd, "rasterize s.zarr --features f.geojson --into rivers -o r.tif")
    assert (code, "layer rivers, " in out, "cells covered" in out) == (0, True, True)
    layer = TileStore.open(store).layer("rivers")
    shapes = json.loads(Path("f.geojson").read_text())["features"]
    touched = rasterio.features.rasterize(
        [(one["geometry"], 1) for one in shapes],
        (70, 90),
        transform=rasterio.Affine(*TRANSFORM),
        all_touched=True,
        dtype="uint8",
    )
    assert layer.dtype == np.uint8
    assert np.array_equal(whole(layer), touched)
    assert TileStore.open(store).stale(layer) == []
    assert call(capfd, "rasterize s.zarr --features f.geojson --field f --into values")[0] == 0
    layer = TileStore.open(store).layer("values")
    assert layer.dtype == np.float64
    cells = whole(layer)
    assert set(np.unique(cells).tolist()) == {0.0, 2.0, 7.5}
    second = rasterio.features.rasterize(
        [(shapes[1]["geometry"], 1)],
        (70, 90),
        transform=rasterio.Affine(*TRANSFORM),
        all_touched=True,
    )
    assert (cells[second == 1] == 7.5).all()
    words = "rasterize s.zarr --features f.geojson --onto elevation --into open --value NoData"
    assert call(capfd, words)[0] == 0
    layer = TileStore.open(store).layer("open")
    assert (layer.dtype, layer.nodata) == (np.int16, -1)
    assert np.array_equal(whole(layer) == -1, (touched == 1) | (np.mgrid[:70, :90] == 3).all(0))
    for words, what in (
        ("--value 1 --field f", "--value and --field both say"),
        ("--field g", "--features: f.geojson: its features have no field 'g', only cost, f"),
        ("--value nodata", "give --onto, a layer that has a nodata value"),
        ("--value 0.5 --onto elevation", "is int16 with nodata -1, which cannot hold it"),
        ("--value -1 --onto elevation", "which cannot hold it as a valid value"),
        ("--into elevation", "--layer already names this layer"),
    ):
        code, _, err = call(capfd, f"rasterize s.zarr --features f.geojson {words}")
        assert (code, what in err) == (2, True), err
    assert "--value VALUE|nodata" in call(capfd, "rasterize --help")[1]
    with pytest.raises(InputError, match="features: have no cells"):
        rasterize(store, [])


def test_features_that_leave_no_mark_are_told(store, caplog):
    """Without a value they become their costs, which are 0 where none is given."""
    for how in ({"value": 0}, {"onto": "elevation"}):
        rasterize(store, [(1, 1)], into="quiet", overwrite=True, **how)
    rasterize(store, [(1, 1), (2, 2, 5.0)])
    assert not caplog.messages
    rasterize(store, [(1, 1)], overwrite=True)
    assert caplog.messages == [
        "features: without value, cells receive the start costs, which are all 0, like other "
        "cells; give value=1, or read a field with from_vector(cost_field=...)"
    ]


@pytest.mark.parametrize("line", [[(0, 0), (90, 70)], [(-0.0, 35), (90, 35)], [(0, 0), (70, 70)]])
def test_no_path_crosses_a_line(store, line):
    """Not even at a corner through which the line passes exactly."""
    grid = TileStore.open(store).grid
    save(Path("f.geojson"), (line, {}))
    cells = from_vector(grid, "f.geojson", all_touched=True, fields=False)
    rasterize(store, cells, value=1, into="rivers")
    blocked = whole(TileStore.open(store).layer("rivers")) != 0
    how = {"barriers": "rivers", "corner_cutting": False, "backend": "cpu", "cost": "surface"}
    found = terrain_gpu.shortest_paths(store, [(69, 0)], **how)
    reached = np.isfinite(found.distance())
    x = (np.arange(90) + 0.5)[None, :]
    y = (np.arange(70) + 0.5)[:, None]
    (x0, y0), (x1, y1) = line
    side = (x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)
    below = side * ((0.5 - x0) * (y1 - y0) - (69.5 - y0) * (x1 - x0)) > 0
    if line[1] == (70, 70):  # the line ends before the edge, and paths go around
        below[:] = True
    assert reached.any()
    assert not (reached & ~below).any()
    assert not (reached & blocked).any()


CELLS = np.array([[0, 0], [3, 3], [20, 64], [65, 10], [69, 89]])


@pytest.mark.parametrize("onto", [None, "elevation"])
def test_proofs_know_cells_and_values(store, monkeypatch, onto):
    """Consistent but wrong: values that changed places, and a feature in another cell."""
    places = [(r, c, v) for (r, c), v in zip(CELLS.tolist(), [5, 7, 8, 5, 9], strict=True)]
    found = rasterize(store, places, onto=onto, verify=True).found
    assert (found["covered"], found["changed"]) == (5, 5 if onto is None else 3)
    solve, swapped = FeatureCells.solve, ((0, 0), (0, 0))

    def wrong(operation, phase, at, cells, out, given, work):
        solved = solve(operation, phase, at, cells, out, given, work)
        r0, r1, c0, c1 = operation.blocks.window(*at)
        (data,) = solved.arrays
        for (row, col), other in (swapped, swapped[::-1]):
            if r0 <= row < r1 and c0 <= col < c1:
                data[row - r0, col - c0] = values[other]
        return solved

    values = {(r, c): v for r, c, v in places} | {(4, 4): 0 if onto is None else 5}
    monkeypatch.setattr(FeatureCells, "solve", wrong)
    for pair in (((20, 64), (69, 89)), ((69, 89), (4, 4))):
        swapped = pair
        with pytest.raises(VerificationError, match="the cells of features, or their values"):
            rasterize(store, places, onto=onto, verify=True, overwrite=True)


@pytest.mark.parametrize("onto", [None, "elevation"])
def test_changes_add_up_over_runs(store, onto):
    places = [(r, c) for r in range(0, 70, 7) for c in range(0, 90, 7)]
    ids = np.array([r * 90 + c for r, c in places])
    values = np.full(len(ids), 3.0)
    made = FeatureCells(str(store), "7", "elevation", onto, into="r", cells=ids, values=values)
    whole_run = run(made).found
    with pytest.raises(Stop):
        run(made, overwrite=True, threads=1, place=Here(stop_at(0.6)))
    assert run(made, overwrite=True, resume=True, verify=True).found == whole_run


@pytest.mark.parametrize(
    ("key", "value"), [("changed", None), ("digest", "z"), ("digest", 3), ("changed", "5")]
)
def test_a_damaged_record(store, capfd, key, value):
    rasterize(store, [(1, 1)])
    file = store / "rasterized" / "zarr.json"
    text = json.loads(file.read_text())
    own = next(v for v in text["attributes"].values() if isinstance(v, dict) and "result" in v)
    own["result"][key] = value
    del own["checksum"]
    file.write_text(json.dumps(text))
    code, _, err = call(capfd, "verify s.zarr")
    assert (code, f"{key} is recorded as {value!r}" in err) == (2, True), err
    with pytest.raises(StoreError):
        rasterize(store, [(1, 1)])


def test_values_that_float64_rounds_are_refused(tmp_path, no_fsync):
    big = make_store(tmp_path / "b.zarr", np.zeros((4, 4), np.int64), None, 64)
    for value in (2**53, 2**60):
        how = {"value": value, "onto": "elevation", "overwrite": True}
        assert whole(rasterize(big, [(1, 2)], **how).layers["rasterized"])[1, 2] == value
    with pytest.raises(InputError, match=f"value {2**53 + 1}: give a number that float64 holds"):
        rasterize(big, [(1, 2)], value=2**53 + 1, onto="elevation", into="other")
    with pytest.raises(InputError, match="does not hold all integers from 2\\^53 on"):
        rasterize(big, [(1, 2, 2**53 + 1)], onto="elevation", into="other")
