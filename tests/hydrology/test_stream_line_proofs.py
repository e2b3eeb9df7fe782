"""What the proof of lines of streams must accept and refuse."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
from functools import partial

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from effort import examples, only_long
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import MB, measured, within
from rasterio.crs import CRS
from strategies import shapes
from test_flow import call
from test_network import rewrite
from test_streams import GRID, drains, make_flow, spilling, write

from terrain_gpu import TileStore, flow_accumulation, streams
from terrain_gpu.engine.machine import Machine
from terrain_gpu.engine.run import run
from terrain_gpu.errors import PlanError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.hydrology.streams.lines import StreamLines
from terrain_gpu.hydrology.streams.proof_lines import EDGE_CELLS, FIELDS
from terrain_gpu.hydrology.streams.proof_links import EACH, HELD

NAMES = "flow_direction", "flow_accumulation"
DEGREES = (0.01, 0.0, 7.0, 0.0, -0.01, 50.0), CRS.from_epsg(4326).to_wkt()


@pytest.fixture(scope="session", autouse=True)
def no_fsync_session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """At some of its outlets links meet, so that they are links of their own."""
    folder = tmp_path_factory.mktemp("lines")
    sums, codes = drains((150, 170), 3, 60)
    grid = GridSpec(150, 170, GRID)
    path = make_flow(folder / "s.zarr", codes, sums, 64, grid)
    heights = np.random.default_rng(1).normal(0, 50, codes.shape)
    write(path, "elevation", heights, None, 64, grid)
    flow_accumulation(path, edge_cells=True)
    return path


def draw(store, path, **more):
    return run(StreamLines(str(store), *NAMES, 5, str(path), edge_cells=True), verify=True, **more)


@settings(max_examples=examples(60))
@given(
    shape=shapes(200, 4000),
    seed=st.integers(0, 10**6),
    outlets=st.sampled_from([1, 2, 10, 100]),
    threshold=st.sampled_from([1, 2, 5, 20]),
    block=st.sampled_from([64, 128, 256]),
    kind=st.sampled_from(["geojson", "gpkg", "parquet", "fgb"]),
    how=st.sampled_from(["", "degrees", "areas", "ties", "flat", "voids"]),
    edge=st.booleans(),
    spilled=st.booleans(),
)
def test_it_accepts_right_files(
    folders, shape, seed, outlets, threshold, block, kind, how, edge, spilled
):
    sums, codes = drains(shape, seed, outlets)
    heights = np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)
    if how == "ties":  # sums that never differ by much, and often not at all
        sums = np.ceil(np.sqrt(sums))
    if how == "areas":
        sums = sums * 0.7
    if how == "flat":  # zeros of both signs
        heights = np.where(heights > 0, np.float32(-0.0), np.float32(0))
    if how == "voids":
        codes[np.random.default_rng(seed).random(shape) < 0.1] = 255
    if not ((codes != 255) & (sums >= threshold)).any():
        return
    grid = GridSpec(*shape, *(DEGREES if how == "degrees" else (GRID,)))
    with folders() as folder, spilling(spilled):
        store = make_flow(folder / "s.zarr", codes, sums, block, grid)
        write(store, "elevation", heights, None, 64, grid)
        lines = folder / f"l.{kind}"
        found = streams(store, threshold, lines=lines, verify=True, edge_cells=edge)
        assert found.report.result["verified_lines"] == found.links
        assert sorted(os.listdir(folder)) == [f"l.{kind}", "s.zarr"]


# -- lines that are wrong ------------------------------------------------------------------------


def long(features, least=6):
    """The first line with so many positions that ends at a junction."""
    return next(
        k
        for k, f in enumerate(features)
        if f["geometry"]
        and len(f["geometry"]["coordinates"]) >= least
        and f["properties"]["downstream"]
    )


def points(features, k):
    return features[k]["geometry"]["coordinates"]


def cut(features):
    k = long(features)
    whole = points(features, k)
    other = {**features[k], "geometry": {"type": "LineString", "coordinates": whole[3:]}}
    features[k]["geometry"]["coordinates"] = whole[:4]
    features.append(other)


def joined(features):
    """A line goes on along the next one."""
    k = long(features)
    points(features, k).extend(points(features, features[k]["properties"]["downstream"] - 1)[1:])


def shifted(features):
    for point in points(features, long(features)):
        point[0] += GRID[0]


def a_detour(features):
    """A cell beside where it was."""
    way = points(features, long(features))
    way[2] = [way[2][0] + GRID[0], way[2][1]]


def undrawn(features):
    """A line becomes one without positions."""
    features[long(features)]["geometry"] = None


def drawn(features):
    """A line without positions gets some."""
    k = next(k for k, f in enumerate(features) if f["geometry"] is None)
    features[k]["geometry"] = features[long(features)]["geometry"]


def moved(features, start):
    """A line without positions, elsewhere."""
    own = next(f["properties"] for f in features if f["geometry"] is None)
    own["start"] = start


def swapped(features):
    features[4], features[5] = features[5], features[4]


def swapped_attributes(features):
    features[4]["geometry"], features[5]["geometry"] = (
        features[5]["geometry"],
        features[4]["geometry"],
    )


def change(features, name):
    """An attribute becomes the next number, or a longer text."""
    own = features[6]["properties"]
    old = own[name]
    own[name] = old + "1" if isinstance(old, str) else old + 1
    if isinstance(old, float):
        own[name] = float(np.nextafter(old, np.inf))


APART = "successive cells are not neighbours|follow the directions|not on a channel|no link does"
MUTATIONS = {
    "dropped": (lambda f: f.pop(3), r"row \d+, column \d+: is on a channel but on no line"),
    "the last dropped": (lambda f: f.pop(), "is on a channel but on no line"),
    "all dropped": (lambda f: f.clear(), "is on a channel but on no line"),
    "twice": (lambda f: f.insert(3, f[3]), "line 5: begins where the one before it does"),
    "twice, at the end": (lambda f: f.append(f[3]), "is not in row-major order"),
    "swapped": (swapped, "line 6: is not in row-major order of first cells"),
    "swapped positions": (swapped_attributes, "line 6: is not in row-major order of first cells"),
    "cut": (cut, "is not in row-major order|ends where no link|begins where no link"),
    "joined": (joined, "passes a cell where a link begins"),
    "shifted": (shifted, APART + "|row-major order|another line"),
    "a detour": (a_detour, APART),
    "nudged": (
        lambda f: points(f, 4)[1].__setitem__(0, 1e-9 + points(f, 4)[1][0]),
        "not the centr",
    ),
    "without its first cell": (
        lambda f: points(f, long(f)).pop(0),
        "begins where no link|row-major order",
    ),
    "without its last cell": (
        lambda f: points(f, long(f)).pop(),
        "line .* ends where no link",
    ),
    "turned": (lambda f: points(f, long(f)).reverse(), APART + "|row-major order"),
    "one cell": (lambda f: points(f, long(f)).__delitem__(slice(1, None)), "fewer than two cells"),
    "undrawn": (undrawn, "line .*: ends where no link"),
    "drawn": (drawn, "row-major order|another line"),
    "moved": (partial(moved, start=-1), "line .*: start is -1, which is not a cell"),
    "moved to another cell": (
        partial(moved, start=0),
        "row-major order|no link does|not on a channel",
    ),
    "another attribute": (lambda f: f[2]["properties"].update(colour=1), "line 3: has other attr"),
    "an attribute less": (lambda f: f[2]["properties"].pop("hack"), "line 3: hack is None"),
    "a number as text": (
        lambda f: f[2]["properties"].update(id="3"),
        "line 3: id is '3' instead of 3",
    ),
    "a code as a number": (
        lambda f: f[2]["properties"].update(pfafstetter=1),
        "line 3: pfafstetter",
    ),
    **{name: (partial(change, name=name), f"line 7: {name} is") for name in (*FIELDS, EDGE_CELLS)},
}


def spoil(patch, how):
    """Let runs change the file that they have written."""
    execute = StreamLines.execute

    def wrong(self, run):
        found = execute(self, run)
        (writer,) = run.writers.values()
        how(writer.part)
        return found

    patch.setattr(StreamLines, "execute", wrong)


@pytest.mark.parametrize("name", MUTATIONS)
def test_it_refuses(store, tmp_path, monkeypatch, name):
    how, words = MUTATIONS[name]
    path = tmp_path / "l.geojson"
    path.write_text("an older file")
    spoil(monkeypatch, lambda file: rewrite(file, how))
    with pytest.raises(VerificationError, match=words) as error, spilling():
        draw(store, path, overwrite=True)
    assert str(path) in str(error.value)
    assert path.read_text() == "an older file"
    assert os.listdir(tmp_path) == ["l.geojson"]


def test_no_other_step_leads_to_the_next_junction(store, tmp_path, monkeypatch):
    """Of a line, any inner cell beside where it was, with both steps possible, is refused."""

    def detour(features):
        for k, feature in enumerate(features):
            way = feature["geometry"]["coordinates"] if feature["geometry"] else []
            for n in range(1, len(way) - 1):
                for dx, dy in ((3, 0), (-3, 0), (0, 4), (0, -4)):
                    x, y = way[n][0] + dx, way[n][1] + dy
                    ends = way[n - 1], way[n + 1]
                    near = all(abs(x - a) <= 3 and abs(y - b) <= 4 for a, b in ends)
                    if near and [x, y] not in ends:
                        way[n] = [x, y]
                        changed.append(k + 1)
                        return

    changed = []
    spoil(monkeypatch, lambda file: rewrite(file, detour))
    with pytest.raises(
        VerificationError, match=r"follow the directions|not on a channel|another line"
    ):
        draw(store, tmp_path / "l.geojson")
    assert changed


ROWS = "UPDATE {} SET {} WHERE rowid = {}"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (ROWS.format("streams", "drop = drop + 1", 7).replace("drop", '"drop"'), "line 7: drop is"),
        (ROWS.format("streams", "pfafstetter = '1'", 7), "line 7: pfafstetter is '1'"),
        (
            ROWS.format("streams", "geom = (SELECT geom FROM streams WHERE rowid = 8)", 7),
            "line 8: be",
        ),
        (ROWS.format("streams", "geom = x'00'", 7), "line 7: is not a line|cannot be read back"),
        ("DELETE FROM streams WHERE rowid = 7", "on no line"),
        ("ALTER TABLE streams RENAME TO other", "cannot be read back"),
        ("DROP TABLE junctions", "cannot be read back"),
        (ROWS.format("junctions", "kind = 'outlet'", 9), "junction 9: kind is 'outlet' but should"),
        (ROWS.format("junctions", "upstream = 7", 9), "junction 9: upstream is 7"),
        (ROWS.format("junctions", "downstream = 0", 9), "junction 9: downstream is 0 but should"),
        (ROWS.format("junctions", "elevation = 0.5", 9), "junction 9: elevation is 0.5"),
        (ROWS.format("junctions", "id = 8", 9), "junction 9: id is 8 but should be 9"),
        (
            ROWS.format("junctions", "geom = (SELECT geom FROM junctions WHERE rowid = 8)", 9),
            "junction 9: is not at the centre of its cell",
        ),
        (
            ROWS.format("junctions", "geom = NULL", 9),
            "junction 9: is not at|junction 9: is missing",
        ),
        ("DELETE FROM junctions WHERE rowid = 9", "junction 9: "),
        (
            "DELETE FROM junctions WHERE kind = 'outlet' AND rowid > 9",
            "is missing; there must be [0-9,]+",
        ),
        (
            "INSERT INTO junctions (geom, id, kind, upstream, downstream, elevation) "
            "SELECT geom, id, kind, upstream, downstream, elevation FROM junctions WHERE id = 9",
            "is one too many",
        ),
    ],
)
def test_it_refuses_geopackages(store, tmp_path, monkeypatch, sql, words):
    def wrong(file):
        with contextlib.closing(sqlite3.connect(file)) as base, base:
            triggers = base.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
            for (trigger,) in triggers.fetchall():
                base.execute(f'DROP TRIGGER "{trigger}"')
            base.execute(sql)

    with monkeypatch.context() as patch:
        spoil(patch, wrong)
        with pytest.raises(VerificationError, match=words):
            draw(store, tmp_path / "l.gpkg")
    assert os.listdir(tmp_path) == []


def emptied(table):
    return table.slice(0, 0)


def without_a_column(table):
    return table.drop_columns(["hack"])


def renumbered(table):
    ids = pyarrow.array(table["id"].to_numpy()[::-1])
    return table.set_column(0, "id", ids)


def reversed_rows(table):
    return table.take(np.arange(len(table))[::-1])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (emptied, "on no line"),
        (without_a_column, "line 1: hack is None"),
        (renumbered, "line 1: id is"),
        (reversed_rows, "line 2: is not in row-major order"),
        (None, "cannot be read back"),
    ],
)
def test_it_refuses_geoparquet(store, tmp_path, monkeypatch, how, words):
    def wrong(file):
        if how is None:
            file.write_bytes(file.read_bytes()[:-100])
        else:
            pyarrow.parquet.write_table(how(pyarrow.parquet.read_table(file)), file)

    spoil(monkeypatch, wrong)
    with pytest.raises(VerificationError, match=words):
        draw(store, tmp_path / "l.parquet")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["links", "cells", "heads", "outlets", "length", "strahler"])
def test_it_compares_totals(store, tmp_path, monkeypatch, name):
    execute = StreamLines.execute

    def wrong(self, run):
        found = execute(self, run)
        return {**found, name: found[name] + 1}

    monkeypatch.setattr(StreamLines, "execute", wrong)
    with pytest.raises(VerificationError, match=f"wrong totals: .* {name}"):
        draw(store, tmp_path / "l.geojson")


def test_other_sums_directions_and_thresholds(store, tmp_path):
    """A right file of one threshold is not that of another."""
    kept = draw(store, tmp_path / "l.geojson")
    assert kept.report.result["verified_lines"] == kept.found["links"] > 100
    with pytest.MonkeyPatch.context() as patch:
        spoil(patch, lambda file: shutil.copy(tmp_path / "l.geojson", file))
        other = StreamLines(str(store), *NAMES, 6, str(tmp_path / "m.geojson"), edge_cells=True)
        with pytest.raises(
            VerificationError, match=r"not on a channel|no link does|row-major order"
        ):
            run(other, verify=True)


@pytest.mark.parametrize("kind", ["geojson", "gpkg", "parquet", "fgb"])
def test_files_are_verified_later(folders, capsys, kind):
    """Against a layer of any order of the same channels, by the command."""
    sums, codes = drains((150, 140), 3, 5)
    with folders() as folder:
        path, file = make_flow(folder / "s.zarr", codes, sums, 64), str(folder / f"l.{kind}")
        write(path, "elevation", np.zeros(codes.shape), None, 64, GridSpec(150, 140))
        write(
            path,
            "turned",
            np.where(codes == 0, 0, 255).astype(np.uint8),
            255,
            64,
            GridSpec(150, 140),
        )
        write(path, "other", -sums.astype(float), None, 64, GridSpec(150, 140))
        how = {"lines": file, "edge_cells": True}
        links = streams(path, 5, order="hack", **how).links
        assert call(f"verify {path} --file {file}") == 0
        assert f"l.{kind} verified, {links:,} links of layer streams" in capsys.readouterr().out
        assert call(f"verify {path} --file {file} --heights other -q") == 1
        flow_accumulation(path, edge_cells=True, directions="turned", overwrite=True)
        assert call(f"verify {path} --file {file} -q") == 2
        assert "not counted along" in capsys.readouterr().err
        flow_accumulation(path, edge_cells=True, overwrite=True)
        streams(path, 6, into="fewer")
        assert call(f"verify {path} --file {file} --layer fewer -q") == 1
        assert call(f"verify {path} --file {file} --layer elevation -q") == 2
        assert "not a layer of streams" in capsys.readouterr().err
        assert call(f"verify {path} --file {folder}/no.{kind} -q") == 2
        assert "no such file" in capsys.readouterr().err
        assert call(f"verify {path} --file {folder}/o.tif --heights other -q") == 2


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [only_long("l.geojson"), "l.gpkg", only_long("l.parquet")])
def test_memory(tmp_path, name):
    """Many short links, then one of 300 000 cells: written, and verified."""
    sums, codes = drains((500, 400), 5, 300)
    store = make_flow(tmp_path / "s.zarr", codes, sums, 256, GridSpec(500, 400, GRID))
    write(store, "elevation", np.zeros(codes.shape), None, 256, GridSpec(500, 400, GRID))
    command = f"terrain-gpu streams s.zarr --threshold 20 --lines {name} --threads 2 --overwrite -q"
    limit, peak = within(tmp_path, f"{command} --verify", MB)
    assert peak <= limit
    turns = np.full((600, 500), 1, np.uint8)  # back and forth over all rows
    turns[1::2], turns[::2, -1], turns[1::2, 0] = 16, 4, 4
    turns[-1, 0] = 0
    along = np.arange(1, turns.size + 1).reshape(turns.shape)
    along[1::2] = along[1::2, ::-1]
    shutil.rmtree(store)
    make_flow(store, turns, along, 256, GridSpec(600, 500, *DEGREES))
    write(store, "elevation", -along, None, 256, GridSpec(600, 500, *DEGREES))
    limit, peak = within(tmp_path, f"{command} --verify", MB)
    assert peak <= limit


def test_memory_is_refused_beforehand_and_holds_any_number_of_links(tmp_path):
    """The links of these, 300 bytes each, do not fit what is planned for them."""
    sums, codes = drains((1000, 300), 5, 400)
    store = make_flow(tmp_path / "s.zarr", codes, sums, 256)
    write(store, "elevation", np.zeros(codes.shape), None, 256, GridSpec(1000, 300))
    lines = StreamLines(str(store), *NAMES, 1, str(tmp_path / "l.geojson"))
    with pytest.raises(PlanError, match=r"to verify.*at least \d+ MB") as refused:
        lines.plan_verify(Machine.of(150 * MB, 1))
    assert "streams" not in TileStore.open(store).layers
    links = streams(store, 1, order="horton", lines=lines.path).links
    limit = int(re.search(r"at least (\d+) MB", str(refused.value))[1]) * MB
    assert links * EACH > 3 * HELD
    command = f"terrain-gpu verify s.zarr --file l.geojson --threads 1 --memory-limit {limit}B"
    code, peak, err = measured(tmp_path, command, limit)
    assert code == 0, err
    assert peak <= limit
    assert sorted(os.listdir(tmp_path)) == ["l.geojson", "s.zarr"]
