"""The ways out of pits as lines, against Dijkstra's algorithm from each pit on the whole raster."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyogrio
import pytest
from contract import FileContract, make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from test_breach import dam, none, per_unit, right, rough
from test_flats import lakes
from test_flow import call, moderate, store_of_codes
from test_streams import GRID, WGS84, as_bytes, rounded

from terrain_gpu import TileStore, breach
from terrain_gpu.engine.run import run
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.hydrology.breach import Breach
from terrain_gpu.hydrology.breach import lines as line_module
from terrain_gpu.hydrology.breach.lines import FIELDS, BreachLines
from terrain_gpu.hydrology.breach.pits import BlockFiles


def expected(z, ways, lengths, scale):
    """Cells and attributes of the lines, by pits; `scale` is of costs, see `per_unit`."""
    found, cols = [], z.shape[1]
    for pit, way in sorted(ways.items()):
        if way is None:
            continue
        line = way[::-1]
        cuts = [max(float(z[cell]) - float(z[pit]), 0.0) for cell in line]
        high = [cell for cell in line if z[cell] > z[pit]]
        units = [round(float(z[cell]) * scale - float(z[pit]) * scale) for cell in high]
        length = 0.0
        for (r, c), (y, x) in pairwise(line):
            kind = 0 if r == y else 2 if c == x else 1
            length += lengths[kind, min(r, y)]
        own = {
            "pit": pit[0] * cols + pit[1],
            "end": line[-1][0] * cols + line[-1][1],
            "cells": len(line),
            "length": length,
            "cost": sum(units) / scale,
            "largest_cut": max(cuts),
            "height": float(z[pit]) + 0.0,
            "end_height": float(z[line[-1]]) + 0.0,
        }
        found.append((line, own))
    return found


def drawn(path, grid):
    """The lines of a GeoJSON file without CRS."""
    a, _, c, _, e, f = grid.transform
    found = []
    for feature in json.loads(path.read_text())["features"]:
        xy = np.array(feature["geometry"]["coordinates"])
        cells = np.stack(((xy[:, 1] - f) / e - 0.5, (xy[:, 0] - c) / a - 0.5), axis=1)
        assert np.abs(cells - np.rint(cells)).max() < 1e-6
        line = [tuple(cell) for cell in np.rint(cells).astype(int).tolist()]
        found.append((line, feature["properties"]))
    return found


class TestBreachLines(FileContract):
    command = "breach s.zarr --max-distance 9 --lines l.geojson"
    rasters = moderate
    identified = True
    test_its_proof_accepts_it = test_its_proof_refuses_mutations = None
    test_workers_prove_it = test_workers_refuse_mutations = None

    def make(self, store):
        asked = Breach(max_distance=9, lines=store.parent / "l.geojson")
        return BreachLines(str(store), asked)

    def outputs(self, store):
        path = store.parent / "l.geojson"
        return {str(path): as_bytes(drawn(path, TileStore.open(store).grid))}

    def expected(self, data, nodata, grid):
        return [
            as_bytes(
                expected(
                    data, right(data, nodata, 9)[1], step_lengths(grid), per_unit(data, nodata, 9)
                )
            )
        ]

    def counted(self, store):
        return TileStore.open(store).grid.cells

    def full(self, patch, after):
        left, save = after, BlockFiles.save_marks

        def full(*args):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")
            return save(*args)

        patch.setattr(BlockFiles, "save_marks", full)


@settings(max_examples=examples(25))
@given(
    z=st.one_of(rough(), lakes()),
    block=st.sampled_from([64, 128, 512]),
    threads=st.integers(1, 3),
    reach=st.sampled_from([1, 2, 9, 70]),
    depth=st.sampled_from([None, 1.0, 3.5, 100.0]),
    inner_voids=st.booleans(),
    degrees=st.booleans(),
    batch=st.sampled_from([1, 7, 1 << 13]),
)
def test_all_ways(folders, z, block, threads, reach, depth, inner_voids, degrees, batch):
    nodata = none(z)
    asked = {"max_distance": reach, "max_depth": depth, "inner_voids": inner_voids}
    grid = GridSpec(*z.shape, GRID)
    if degrees:
        grid = GridSpec(*z.shape, (0.01, 0.0, 7.0, 0.0, -0.01, 50.0), WGS84)
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_module, "_LINES", batch)
        store = store_of_codes(folder / "s.zarr", z, block, nodata, grid, "elevation")
        path = folder / "l.gpkg"
        found = breach(store, threads=threads, lines=path, **asked)
        lowered, ways = right(z, nodata, reach, depth, inner_voids=inner_voids)
        assert same(whole(found.layers["breached"]), lowered)
        good = expected(z, ways, step_lengths(grid), per_unit(z, nodata, reach))
        assert found.found["breached"] == len(good)
        _, _, geometries, columns = pyogrio.raw.read(path, layer="breach_lines")
        names = pyogrio.read_info(path, layer="breach_lines")["fields"]
        assert list(names) == list(FIELDS)
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        assert rounded(zip([line for line, _ in good], rows, strict=True)) == rounded(good)
        a, _, c, _, e, f = grid.transform
        for (line, _), wkb in zip(good, geometries, strict=True):
            xy = np.frombuffer(wkb, "<f8", offset=9).reshape(-1, 2)
            assert np.allclose(xy, [(c + a * (q + 0.5), f + e * (p + 0.5)) for p, q in line])


@pytest.mark.parametrize("name", ["l.geojson", "l.gpkg", "l.parquet"])
def test_the_same_bytes_for_all_blocks(tmp_path, monkeypatch, no_fsync, name):
    """Batches do not depend on blocks, and neither does what is read together."""
    z = np.random.default_rng(1).integers(0, 40, (200, 210)).astype(np.int16)
    monkeypatch.setattr(line_module, "_LINES", 100)
    made = []
    for block in (64, 128, 256):
        store = make_store(tmp_path / f"{block}.zarr", z, None, block)
        path = tmp_path / f"{block}-{name}"
        found = run(BreachLines(str(store), Breach(max_distance=9, lines=path)))
        made.append((path.read_bytes(), found.found))
    assert made[0] == made[1] == made[2]
    if name.endswith("parquet"):
        table = parquet.read_table(path)
        lengths = step_lengths(TileStore.open(store).grid)
        good = expected(z, right(z, None, 9)[1], lengths, 1)
        assert table["pit"].to_pylist() == [own["pit"] for _, own in good]
        assert parquet.ParquetFile(path).num_row_groups == -(-len(good) // 100)


def test_the_lines_of_a_dam(tmp_path):
    store, _ = dam(tmp_path)
    found = breach(store, lines=tmp_path / "l.geojson", verify=True)
    pits = [line[0] for line, _ in drawn(tmp_path / "l.geojson", TileStore.open(store).grid)]
    assert pits == sorted(pits)
    assert len(pits) == 2
    assert found.report.result["lines"] == str(tmp_path / "l.geojson")
    assert found.report.seconds["write"] > 0


def test_a_limit_too_small_for_lines_is_refused_before_there_are_heights(tmp_path, no_fsync):
    store = make_store(tmp_path / "s.zarr", np.zeros((300, 300), np.float32), None, 256)
    with pytest.raises(PlanError, match=r"at least \d+ MB") as least:
        breach(store, memory_limit="100MB", threads=1)
    limit = str(least.value).split("at least ")[1]
    with pytest.raises(PlanError, match=r"at least \d+ MB"):
        breach(store, lines=tmp_path / "l.gpkg", memory_limit=limit, threads=1)
    assert TileStore.open(store).layers == ["elevation"]
    breach(store, memory_limit=limit, threads=1)


def test_no_lines_where_nothing_is_breached(tmp_path):
    store = make_store(tmp_path / "s.zarr", np.arange(80, dtype="i2").reshape(8, 10), None, 64)
    for name in ("l.geojson", "l.gpkg", "l.parquet"):
        breach(store, lines=tmp_path / name, overwrite=True)
    assert json.loads((tmp_path / "l.geojson").read_text())["features"] == []
    assert pyogrio.read_info(tmp_path / "l.gpkg")["features"] == 0
    assert parquet.read_table(tmp_path / "l.parquet").num_rows == 0


def test_progress_counts_the_lines_too(tmp_path):
    store, _ = dam(tmp_path)
    seen = []
    tell = lambda cells, total: seen.append((cells, total))  # noqa: E731
    breach(store, lines=tmp_path / "l.geojson", verify=True, progress=tell)
    assert sum(cells for cells, _ in seen) == seen[-1][1]


def test_lines_of_a_finished_layer_are_drawn_by_resume(tmp_path, no_fsync):
    store, _ = dam(tmp_path)
    breach(store)
    breach(store, lines=tmp_path / "l.geojson", resume=True)
    assert len(json.loads((tmp_path / "l.geojson").read_text())["features"]) == 2


# -- the command -----------------------------------------------------------------------------------


def test_from_a_raster_without_another_output(dem, capsys):
    assert call("breach dem.tif --lines l.geojson --max-distance 5 --json r.json") == 0
    assert "written: l.geojson" in capsys.readouterr().out
    report = json.loads(Path("r.json").read_text())
    count = len(json.loads(Path("l.geojson").read_text())["features"])
    assert report["result"]["breached"] == count > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--lines l.shp", "l.shp: the name must end in .geojson"),
        ("--lines no/l.gpkg", "its folder does not exist"),
        ("--lines s.zarr", "s.zarr: STORE already names this file"),
        ("--lines there.gpkg", "there.gpkg: exists; --overwrite replaces it"),
    ],
)
def test_lines_that_cannot_be_written(dem, capsys, words, told):
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    Path("there.gpkg").write_text("mine")
    assert call(f"breach s.zarr {words}") == 2
    assert told in capsys.readouterr().err
    assert TileStore.open("s.zarr").layers == ["elevation"]
    assert Path("there.gpkg").read_text() == "mine"
    with pytest.raises(InputError):
        breach("s.zarr", lines="l.txt")
