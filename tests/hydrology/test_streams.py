"""Channels of flow directions, block by block, against plain Python."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import Counter
from contextlib import contextmanager
from typing import get_args

import numpy as np
import pyarrow.parquet
import pyogrio
import pyogrio.raw
import pytest
import rasterio
import reference
from contract import FileContract, OperationContract, make_store
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import MB, within
from reference import border, drained, rooted
from strategies import WGS84, rasters, shapes
from test_accumulate import snake
from test_hand import add_layer
from test_network import rewrite

from terrain_gpu import (
    TileStore,
    accumulate,
    create_layer,
    flow_accumulation,
    flow_direction,
    hand,
    minimum_spanning_tree,
    shortest_paths,
    streams,
)
from terrain_gpu.arguments import StreamOrder
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.proof import Limits
from terrain_gpu.errors import InputError, OutputError, PlanError, StoreError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import cell_areas, step_lengths
from terrain_gpu.hydrology.streams import proof_links as link_graph
from terrain_gpu.hydrology.streams import proof_reaches as reaches
from terrain_gpu.hydrology.streams.base import OnChannels
from terrain_gpu.hydrology.streams.inputs import refuse_beyond_raster
from terrain_gpu.hydrology.streams.lines import LineState, StreamLines
from terrain_gpu.hydrology.streams.operation import StreamOrders, order_dtype
from terrain_gpu.hydrology.streams.proof import verify_orders
from terrain_gpu.store import paged

int16 = st.just(np.dtype("<i2"))
small = rasters(int16, shapes(200, 6000)).filter(
    lambda raster: reference.vertices(raster.cells, raster.nodata).any()
)


@pytest.fixture(scope="session", autouse=True)
def no_fsync_session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


def painted(links, values, shape, dtype):
    """A raster of a value for each link."""
    found = np.zeros(shape, dtype)
    for (cells, _), value in zip(links, values, strict=True):
        for cell in cells:
            found[cell] = value
    return found


class TestStreams(OperationContract):
    command = "streams s.zarr --threshold 20"
    rasters = small
    kind = "strahler"

    def prepare(self, store):
        minimum_spanning_tree(store, backend="cpu")
        accumulate(store, into="flow_accumulation", directions="flow_direction")

    def make(self, store):
        return StreamOrders(str(store), "flow_direction", "flow_accumulation", 1, self.kind)

    def expected(self, data, nodata, grid):
        outlets = border(reference.vertices(data, nodata))
        tree = rooted(data, "max", outlets, nodata)
        sums, codes = drained(data.shape, *tree, np.ones(len(data), int))
        links = reference.channel_links(codes, sums, 1)
        values = reference.stream_orders(links, sums)[self.kind]
        return [painted(links, values, data.shape, order_dtype(self.kind, grid))]


class TestStreamLinks(TestStreams):
    command = "streams s.zarr --threshold 20 --order link"
    kind = "link"


class TestHortonOrders(TestStreams):
    command = "streams s.zarr --threshold 20 --order horton"
    kind = "horton"


@contextmanager
def spilling(spilled=True):
    """Links are spilled, also by proofs, and their tables let go after every two pages."""
    with pytest.MonkeyPatch.context() as patch:
        if spilled:
            for operation in (OnChannels, StreamLines):
                patch.setattr(operation, "each", 2**62)
            for proof in (reaches, link_graph):
                patch.setattr(proof, "EACH", 2**62)
            patch.setattr(paged, "_MOST", 2)
        yield


def read(layer):
    return layer.read_window(*layer.grid.window)


def drains(shape, seed, outlets):
    """Random directions without loops, and sums of cells: a random tree grows from outlets."""
    rng = np.random.default_rng(seed)
    heights = rng.integers(0, 60, shape)
    places = [tuple(cell) for cell in rng.permutation(reference.listed(heights >= 0))[:outlets]]
    tree = rooted(heights, "max", places)
    sums, codes = drained(shape, *tree, np.ones(shape[0], int))
    return sums.astype((np.uint32, np.int64)[seed % 2]), codes


def make_flow(path, codes, sums, block=64, grid=None, **settings):
    """A store with the layers that streams are taken from."""
    grid = grid or GridSpec(*codes.shape)
    write(path, "flow_direction", codes, 255, block, grid, **settings)
    write(path, "flow_accumulation", sums, 0, block, grid, **settings)
    return path


@settings(max_examples=examples(60))
@given(
    shape=shapes(200, 6000),
    seed=st.integers(0, 10**6),
    outlets=st.sampled_from([1, 2, 10, 100]),
    threshold=st.sampled_from([1, 2, 3, 5, 20, 100, 1000]),
    block=st.sampled_from([64, 128]),
    kind=st.sampled_from(get_args(StreamOrder)),
    threads=st.sampled_from([1, 2]),
    spilled=st.booleans(),
)
def test_against_plain_python(
    folders, shape, seed, outlets, threshold, block, kind, threads, spilled
):
    sums, codes = drains(shape, seed, outlets)
    links = reference.channel_links(codes, sums, threshold)
    with folders() as folder, spilling(spilled):
        store = make_flow(folder / "s.zarr", codes, sums, block)
        how = {"order": kind, "threads": threads, "verify": True}
        if not links:
            with pytest.raises(InputError, match=f"the largest sum in .* is {sums.max():,}"):
                streams(store, threshold, **how)
            return
        found = streams(store, threshold, **how)
        values = reference.stream_orders(links, sums)[kind]
        right = painted(links, values, shape, order_dtype(kind, found.layer.grid))
        assert np.array_equal(read(found.layer), right)
        assert found.links == len(links)
        assert found.cells == (right > 0).sum()
        assert found.outlets == sum(beyond is None for _, beyond in links)
        assert found.heads == sum(k == 1 for k in reference.stream_orders(links, sums)["shreve"])


@settings(max_examples=examples(25))
@given(
    shape=shapes(200, 4000),
    seed=st.integers(0, 10**6),
    threshold=st.sampled_from([1, 3, 20]),
    lower=st.booleans(),
    spilled=st.booleans(),
)
def test_the_proof_refuses_a_link_of_another_horton_order(
    folders, shape, seed, threshold, lower, spilled
):
    """All its cells have it, so that none differs from its neighbours on the link."""
    sums, codes = drains(shape, seed, 3)
    links = reference.channel_links(codes, sums, threshold)
    if not links:
        return
    values = reference.stream_orders(links, sums)["horton"]
    k = seed % len(links)
    right = values[k]
    values[k] += -1 if lower and right > 1 else 1
    with folders() as folder:
        store = make_flow(folder / "s.zarr", codes, sums)
        write(store, "h", painted(links, values, shape, np.uint8), 0, 64, GridSpec(*shape))
        layers = [TileStore.open(store).layer(n) for n in ("flow_direction", "flow_accumulation")]
        streams = TileStore.open(store).layer("h")
        row, col = links[k][0][0]
        wrong = f"row {row}, column {col}: order {values[k]} should be {right}"
        with pytest.raises(VerificationError, match=wrong), spilling(spilled):
            verify_orders(*layers, streams, (threshold, "horton"), {}, Limits(), folder)


def test_the_proof_of_horton_orders_refuses_circles(tmp_path):
    """Sums of areas need not grow along every step."""
    for at in (20, 62):
        codes = np.zeros((130, 140), np.uint8)
        ring = np.array([[1, 1, 1, 4], [64, 0, 0, 4], [64, 0, 0, 4], [64, 16, 16, 16]])
        codes[at : at + 4, at : at + 4] = ring
        sums = np.where(codes > 0, 9.0, 1.0)
        store = make_flow(tmp_path / f"{at}.zarr", codes, sums)
        write(store, "h", (codes > 0).astype(np.uint8), 0, 64, GridSpec(*codes.shape))
        layers = [TileStore.open(store).layer(n) for n in ("flow_direction", "flow_accumulation")]
        streams = TileStore.open(store).layer("h")
        with pytest.raises(VerificationError, match=f"row {at}, column {at // 10}.: direction lea"):
            verify_orders(*layers, streams, (5, "horton"), {}, Limits())


# -- lines ---------------------------------------------------------------------------------------

GRID = (3.0, 0.0, 100.0, 0.0, -4.0, 50.0)


def drawn(path, cols, transform):
    """The lines of a GeoJSON file without CRS as `reference.stream_lines` gives them."""
    found = []
    a, _, c, _, e, f = transform
    for feature in json.loads(path.read_text())["features"]:
        own, geometry = feature["properties"], feature["geometry"]
        line = [divmod(own["start"], cols)]
        if geometry is not None:
            xy = np.array(geometry["coordinates"])
            cells = np.stack(((xy[:, 1] - f) / e - 0.5, (xy[:, 0] - c) / a - 0.5), axis=1)
            assert np.abs(cells - np.rint(cells)).max() < 1e-6
            line = [tuple(cell) for cell in np.rint(cells).astype(int).tolist()]
        found.append((line, own))
    return found


def rounded(lines):
    """Lines with figures that do not depend on the order of sums."""
    plain = []
    for line, own in lines:
        shown = {k: f"{v:.10g}" if isinstance(v, float) else str(v) for k, v in own.items()}
        plain.append((line, shown))
    return plain


def as_bytes(lines):
    return np.frombuffer(repr(rounded(lines)).encode(), np.uint8)


class TestStreamLines(FileContract):
    representative = True
    command = "streams s.zarr --threshold 20 --lines l.geojson"
    rasters = small
    identified = True

    def prepare(self, store):
        TestStreams.prepare(self, store)
        flow_accumulation(store, edge_cells=True)

    def make(self, store):
        path, layers = str(store.parent / "l.geojson"), ("flow_direction", "flow_accumulation")
        return StreamLines(str(store), *layers, 1, path, edge_cells=True)

    def outputs(self, store):
        grid, path = TileStore.open(store).grid, store.parent / "l.geojson"
        return {str(path): as_bytes(drawn(path, grid.cols, grid.transform))}

    def expected(self, data, nodata, grid):
        outlets = border(reference.vertices(data, nodata))
        tree = rooted(data, "max", outlets, nodata)
        sums, codes = drained(data.shape, *tree, np.ones(len(data), int))
        lengths, edge = step_lengths(grid), reference.edge_cells(codes)
        return [as_bytes(reference.stream_lines(codes, sums, data, 1, lengths, edge))]

    def counted(self, store):
        return TileStore.open(store).grid.cells

    def full(self, patch, after):
        left, kept = after, LineState.keep

        def full(*args):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")
            return kept(*args)

        patch.setattr(LineState, "keep", full)

    def spoil(self, file, cell):
        """Move a point of a line by a cell."""

        def move(features):
            drawn = [feature["geometry"] for feature in features if feature["geometry"]]
            points = drawn[sum(cell) % len(drawn)]["coordinates"]
            points[cell[0] % len(points)][0] += 10

        rewrite(file, move)


@settings(max_examples=examples(40))
@given(
    shape=shapes(200, 5000),
    seed=st.integers(0, 10**6),
    outlets=st.sampled_from([1, 2, 10, 100]),
    threshold=st.sampled_from([1, 2, 3, 5, 20]),
    block=st.sampled_from([64, 128]),
    degrees=st.booleans(),
    areas=st.booleans(),
    edge=st.booleans(),
    spilled=st.booleans(),
)
def test_lines_against_plain_python(
    folders, shape, seed, outlets, threshold, block, degrees, areas, edge, spilled
):
    sums, codes = drains(shape, seed, outlets)
    heights = np.random.default_rng(seed).normal(0, 50, shape)
    grid = GridSpec(*shape, GRID)
    if degrees:
        grid = GridSpec(*shape, (0.01, 0.0, 7.0, 0.0, -0.01, 50.0), WGS84)
    if areas:
        sums = sums * 0.7
        threshold *= 0.7
    lengths = step_lengths(grid)
    with folders() as folder, spilling(spilled):
        store = make_flow(folder / "s.zarr", codes, sums, block, grid)
        if not (sums >= threshold).any():
            return
        write(store, "elevation", heights, None, block, grid)
        found = streams(store, threshold, lines=folder / "l.gpkg", verify=True, edge_cells=edge)
        ends = reference.edge_cells(codes) if edge else None
        right = reference.stream_lines(codes, sums, heights, threshold, lengths, ends)
        _, _, geometries, columns = pyogrio.raw.read(folder / "l.gpkg", layer="streams")
        names = pyogrio.read_info(folder / "l.gpkg", layer="streams")["fields"]
        assert list(names) == list(right[0][1])
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        lines = [line for line, _ in right]
        assert rounded(zip(lines, rows, strict=True)) == rounded(right)
        a, _, c, _, e, f = grid.transform
        for line, wkb in zip(lines, geometries, strict=True):
            if len(line) == 1:
                assert wkb is None
                continue
            xy = np.frombuffer(wkb, "<f8", offset=9).reshape(-1, 2)
            assert np.allclose(xy, [(c + a * (q + 0.5), f + e * (p + 0.5)) for p, q in line])
        assert math.isclose(found.length, math.fsum(own["length"] for _, own in right))


def points_of(lines, heights, grid):
    """Where links begin, and outlets, with their attributes, from `reference.stream_lines`."""
    into = Counter(own["downstream"] for _, own in lines)
    found = []
    for line, own in lines:
        kind = "junction" if into[own["id"]] else "head"
        found.append((line[0], kind, into[own["id"]], own["id"]))
    found += [(line[-1], "outlet", 1, 0) for line, own in lines if own["downstream"] == 0]
    a, _, c, _, e, f = grid.transform
    return [
        ((c + a * (col + 0.5), f + e * (row + 0.5)), number, *more, heights[row, col])
        for number, ((row, col), *more) in enumerate(found, 1)
    ]


@settings(max_examples=examples(25))
@given(
    shape=shapes(200, 5000),
    seed=st.integers(0, 10**6),
    outlets=st.sampled_from([1, 2, 10, 100]),
    threshold=st.sampled_from([1, 3, 20]),
    degrees=st.booleans(),
)
def test_junctions_and_geoparquet(folders, shape, seed, outlets, threshold, degrees):
    sums, codes = drains(shape, seed, outlets)
    heights = np.random.default_rng(seed).normal(0, 50, shape)
    grid = GridSpec(*shape, GRID)
    if degrees:
        grid = GridSpec(*shape, (0.01, 0.0, 7.0, 0.0, -0.01, 50.0), WGS84)
    with folders() as folder:
        store = make_flow(folder / "s.zarr", codes, sums, 64, grid)
        if not (sums >= threshold).any():
            return
        write(store, "elevation", heights, None, 64, grid)
        for name in ("l.gpkg", "l.parquet"):
            streams(store, threshold, lines=folder / name, overwrite=True, verify=True)
        right = reference.stream_lines(codes, sums, heights, threshold, step_lengths(grid))
        names, kinds = pyogrio.list_layers(folder / "l.gpkg").T.tolist()
        assert (names, kinds) == (["streams", "junctions"], ["LineString", "Point"])
        meta, _, points, columns = pyogrio.raw.read(folder / "l.gpkg", layer="junctions")
        assert meta["fields"].tolist() == ["id", "kind", "upstream", "downstream", "elevation"]
        rows = zip(*columns, strict=True)
        places = [tuple(np.frombuffer(wkb, "<f8", offset=5).tolist()) for wkb in points]
        found = [(at, *row) for at, row in zip(places, rows, strict=True)]
        assert found == points_of(right, heights, grid)
        table = pyarrow.parquet.read_table(folder / "l.parquet")
        about = json.loads(table.schema.metadata[b"geo"])
        meta, _, lines, columns = pyogrio.raw.read(folder / "l.gpkg", layer="streams")
        assert table["geometry"].to_pylist() == lines.tolist()
        assert table.column_names == [*meta["fields"], "geometry"]
        for name, column in zip(table.column_names[:-1], columns, strict=True):
            assert table[name].to_pylist() == column.tolist()
        assert about["version"] == "1.1.0"
        own = about["columns"][about["primary_column"]]
        assert (own["encoding"], own["geometry_types"]) == ("WKB", ["LineString"])
        assert (own["crs"] is not None) == degrees
        if degrees:
            assert own["crs"]["type"] == "GeographicCRS"


def write(path, name, data, nodata, block, grid, **settings):
    """A layer of a store."""
    with create_layer(
        path, name, grid, data.dtype, nodata=nodata, block_size=block, settings=settings
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
        writer.commit()


# -- networks made by hand -----------------------------------------------------------------------

ARROWS = {">": 1, "\\": 2, "v": 4, "/": 8, "<": 16, "^": 64, "o": 0, ".": 255}


def drawing(text):
    """Codes and sums of cells from a drawing; every cell but "." is a channel."""
    codes = np.array([[ARROWS[mark] for mark in row] for row in text.split()], np.uint8)
    into = {}
    for row, col in reference.listed(codes != 255):
        into[row, col] = None
        if codes[row, col]:
            down, right = reference.TOWARD[int(codes[row, col]).bit_length() - 1]
            into[row, col] = row + down, col + right
    sums = np.zeros(codes.shape, np.int64)
    for start in list(into):
        at = start
        while at in into:
            sums[at] += 1
            at = into[at]
    return codes, sums


def ordered(folder, text, **more):
    """Orders of the links of a drawing by the row and column of their first cells."""
    codes, sums = drawing(text)
    store = make_flow(folder / "s.zarr", codes, sums)
    write(store, "elevation", np.zeros(codes.shape), None, 64, GridSpec(*codes.shape))
    streams(store, 1, lines=folder / "l.geojson", overwrite=True)
    lines = json.loads((folder / "l.geojson").read_text())["features"]
    cols = codes.shape[1]
    return {divmod(f["properties"]["start"], cols): f["properties"] for f in lines}


def test_a_classical_network(tmp_path):
    """Two streams of order 2 meet, and one of order 1 joins later; the right one is the larger."""
    text = """
        ........v
        v..v.v..v
        v..v.v..v
        >>v<.>v<<
        ..v...v..
        ..>>v<<..
        ....v...v
        ....v<<<<
        ....o....
    """
    found = ordered(tmp_path, text)
    names = ("strahler", "shreve", "horton", "hack", "topological", "pfafstetter", "accumulation")
    assert {cell: tuple(own[name] for name in names) for cell, own in found.items()} == {
        (0, 8): (1, 1, 3, 1, 4, "7", 5),
        (1, 0): (1, 1, 2, 2, 4, "43", 4),
        (1, 3): (1, 1, 1, 3, 4, "42", 3),
        (1, 5): (1, 1, 1, 2, 4, "6", 3),
        (3, 2): (2, 2, 2, 2, 3, "41", 11),
        (3, 6): (2, 2, 3, 1, 3, "5", 12),
        (5, 4): (3, 4, 3, 1, 2, "3", 25),
        (6, 8): (1, 1, 1, 2, 2, "2", 5),
        (7, 4): (3, 5, 3, 1, 1, "1", 32),
    }


def test_horton_streams_follow_strahler_orders(tmp_path):
    """A long stream of order 1 meets a short one of order 2: Hack follows it, Horton does not."""
    found = ordered(
        tmp_path,
        """
        v.......
        v.......
        v.......
        v.......
        v.v...v.
        v.>>v<<.
        >>>>v...
        ....o...
        """,
    )
    long, short, junction = found[0, 0], found[5, 4], found[6, 4]
    assert (junction["strahler"], long["accumulation"], short["accumulation"]) == (2, 10, 7)
    assert (long["hack"], short["hack"]) == (1, 2)
    assert (long["horton"], short["horton"]) == (1, 2)


def test_pfafstetter_takes_the_four_largest_tributaries(tmp_path):
    found = ordered(
        tmp_path,
        """
        ....v....
        ....v....
        ....v....
        ....v<<..
        .>>>v....
        ....v<...
        >>>>v....
        ....v<<<<
        ...>v....
        ....o....
        """,
    )
    stem = [found[row, 4]["pfafstetter"] for row in (8, 7, 6, 5, 4, 3, 0)]
    tributaries = {cell: own["pfafstetter"] for cell, own in found.items() if cell[1] != 4}
    assert tributaries == {
        (3, 6): "8",
        (4, 1): "6",
        (5, 5): "52",
        (6, 0): "4",
        (7, 8): "2",
        (8, 3): "12",
    }
    assert stem == ["11", "13", "3", "51", "53", "7", "9"]


def test_a_link_of_one_cell_at_an_outlet_has_no_line(tmp_path):
    found = ordered(tmp_path, ">o<")
    own = found[0, 1]
    assert (own["cells"], own["length"], own["slope"], own["sinuosity"]) == (1, 0, 0, 1)
    assert (own["start"], own["end"], own["downstream"]) == (1, 1, 0)
    assert own["strahler"] == 2
    text = json.loads((tmp_path / "l.geojson").read_text())["features"]
    assert [feature["geometry"] is None for feature in text] == [False, True, False]
    assert [len(f["geometry"]["coordinates"]) for f in text if f["geometry"]] == [2, 2]


def test_one_cell(tmp_path):
    (own,) = ordered(tmp_path, "o").values()
    assert (own["id"], own["cells"], own["pfafstetter"]) == (1, 1, "1")


def test_ways_end_where_the_next_cell_does_not_drain(tmp_path):
    found = ordered(tmp_path, ">>>. <<.< >>>>".replace(" ", "\n"))
    ends = {cell: own["end"] for cell, own in found.items()}
    assert ends == {(0, 0): 2, (1, 1): 4, (1, 3): 7, (2, 0): 11}


def test_a_link_through_all_blocks(tmp_path):
    """A corridor winds through 9 blocks, back and forth over their borders."""
    data, way = snake(139)
    codes = np.full(data.shape, 255, np.uint8)
    sums = np.zeros(data.shape, np.int64)
    for n, (cell, there) in enumerate(zip(way, [*way[1:], None], strict=True)):
        sums[cell] = n + 1
        codes[cell] = 0
        if there is not None:
            step = there[0] - cell[0], there[1] - cell[1]
            codes[cell] = 1 << reference.TOWARD.index(step)
    store = make_flow(tmp_path / "s.zarr", codes, sums)
    write(store, "elevation", -sums, None, 64, GridSpec(*codes.shape))
    found = streams(store, 10, order="link", lines=tmp_path / "l.geojson", verify=True)
    assert (found.links, found.heads, found.cells) == (1, 1, len(way) - 9)
    assert np.array_equal(read(found.layer), (sums >= 10).astype(np.uint32))
    ((line, own),) = drawn(tmp_path / "l.geojson", 139, GridSpec(139, 139).transform)
    assert line == way[9:]
    assert (own["length"], own["drop"]) == (len(way) - 10, len(way) - 10)


# -- thresholds and refusals ---------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    data = np.random.default_rng(7).integers(0, 99, (200, 300)).astype(np.int16)
    path = make_store(tmp_path / "s.zarr", data, None, 64)
    TestStreams().prepare(path)
    return path


UTM = rasterio.crs.CRS.from_epsg(32633).to_wkt()


@pytest.mark.parametrize(
    ("threshold", "cells"),
    [("9", 9), ("9 cells", 9), (9.0, 9), (8.5, 9), ("0.9 ha", 90), ("1km2", 10_000), ("950m2", 10)],
)
def test_thresholds(tmp_path, threshold, cells):
    """Cells of 10 by 10 metres, counted and as areas."""
    _, codes = drains((120, 130), 3, 1)
    sums = drains((120, 130), 3, 1)[0]
    grid = GridSpec(120, 130, (10.0, 0.0, 4e5, 0.0, -10.0, 5e6), UTM)
    right = (sums >= cells).sum()
    counts = make_flow(tmp_path / "c.zarr", codes, sums, 64, grid)
    assert streams(counts, threshold).cells == right
    areas = make_flow(tmp_path / "a.zarr", codes, sums * 100.0, 64, grid, areas=True)
    same = (sums >= (8.5 if threshold == 8.5 else 9.5 if threshold == "950m2" else cells)).sum()
    assert streams(areas, threshold).cells == same


@pytest.mark.parametrize(
    ("whole", "more"), [(15_600, 15_601), ("1.56km2", "1.57km2"), ("156 ha", "1560001 m2")]
)
def test_thresholds_beyond_the_raster(whole, more):
    """Of 120 by 130 cells of 10 by 10 metres."""
    grid = GridSpec(120, 130, (10.0, 0.0, 4e5, 0.0, -10.0, 5e6), UTM)
    refuse_beyond_raster(whole, grid)
    with pytest.raises(InputError, match=r"is more than the whole raster, 1[0-9,.]* .*; give less"):
        refuse_beyond_raster(more, grid)


def test_areas_in_degrees(tmp_path):
    sums, codes = drains((60, 70), 3, 1)
    grid = GridSpec(60, 70, (0.1, 0.0, 7.0, 0.0, -0.1, 50.0), WGS84)
    area = sums * float(cell_areas(grid).mean())
    counts = make_flow(tmp_path / "c.zarr", codes, sums, 64, grid)
    with pytest.raises(InputError, match=r"'5000km2': cells of this raster differ in area; give a"):
        streams(counts, "5000km2")
    areas = make_flow(tmp_path / "a.zarr", codes, area, 64, grid, areas=True)
    assert streams(areas, "5000 km2").cells == (area >= 5e9).sum()
    with pytest.raises(InputError, match="threshold 60: cells of this raster differ in area"):
        streams(areas, 60, overwrite=True)
    other = make_flow(tmp_path / "o.zarr", codes, area, 64, grid)
    with pytest.raises(InputError, match="is not recorded as holding areas"):
        streams(other, "5000 km2")
    assert streams(other, 5e9).cells == (area >= 5e9).sum()


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        (0, "threshold 0: must be positive"),
        ("-5", "threshold '-5': must be positive"),
        (math.nan, "must be positive and finite"),
        ("5 acres", "give a number of cells such as 1000, or an area such as 5km2"),
        (True, "give a number"),
        ("1e30", "is more than any sum of cells"),
        ("5km2", "has no coordinate system"),
        (
            10**9,
            r"a threshold of 1,000,000,000 leaves no channel; the largest sum in .*; give less$",
        ),
    ],
)
def test_no_thresholds(store, threshold, message):
    with pytest.raises(InputError, match=message):
        streams(store, threshold)
    assert "streams" not in TileStore.open(store).layers


def test_sums_of_nothing(tmp_path):
    """Of a raster without a value, and of weights that are all 0: no threshold would help."""
    store = make_store(tmp_path / "s.zarr", np.full((3, 3), -1, np.int16), -1, 64)
    add_layer(store, "codes", np.full((3, 3), 255, np.uint8), 64, nodata=255)
    add_layer(store, "sums", np.zeros((3, 3), np.int64), 64, nodata=0)
    add_layer(store, "nothing", np.zeros((3, 3), np.int64), 64)
    for sums, message in (
        ("sums", r"sums: has no valid cells, all are nodata \(0\); check"),
        ("nothing", "nothing: no sum is above 0, so there are no channels; check"),
    ):
        for find in streams, hand:
            with pytest.raises(InputError, match=message):
                find(store, 1, directions="codes", accumulation=sums)
    with pytest.raises(InputError, match=r"elevation: has no valid cells, all are nodata \(-1\)"):
        shortest_paths(store, [(0, 0)])


def test_missing_layers(store):
    with pytest.raises(StoreError, match=r"no layer 'd'; it has: .*; terrain-gpu flow-direc"):
        streams(store, 9, directions="d")
    with pytest.raises(StoreError, match=r"no layer 'a'; it has: .*; terrain-gpu flow-accum"):
        streams(store, 9, accumulation="a")
    with pytest.raises(StoreError, match="elevation: holds int16, but sums are"):
        streams(store, 9, accumulation="elevation")
    with pytest.raises(StoreError, match="holds uint32, but flow directions are"):
        streams(store, 9, directions="flow_accumulation")


def test_sums_along_other_directions(store):
    elsewhere = [(0, 0)]
    accumulate(store, elsewhere, into="sums", directions="other")
    for names in ({"accumulation": "sums"}, {"directions": "other"}):
        with pytest.raises(StoreError, match=r"not summed along the directions that .* holds now"):
            streams(store, 9, **names)
    streams(store, 9, accumulation="sums", directions="other")


def test_the_layers_of_flow_accumulation(store):
    minimum_spanning_tree(store, weight="flow", overwrite=True)
    flow_direction(store, into="codes")
    for areas in (False, True):
        into = "areas" if areas else "counts"
        flow_accumulation(store, directions="codes", areas=areas, into=into)
        names = {"directions": "codes", "accumulation": into}
        found = streams(store, 20, into=f"streams_{into}", verify=True, **names)
        assert found.cells == (read(TileStore.open(store).layer("counts")) >= 20).sum()
    flow_direction(store, into="codes", overwrite=True)
    streams(
        store, 20, overwrite=True, into="streams_counts", accumulation="counts", directions="codes"
    )
    with pytest.raises(StoreError, match="flow_direction: computed from other cells"):
        streams(store, 20, into="wrong", accumulation="counts")
    flow_direction(store, overwrite=True)
    with pytest.raises(StoreError, match="not summed along the directions"):
        streams(store, 20, into="wrong", accumulation="counts")


def test_sums_of_other_programs(tmp_path):
    """Nothing says along which directions they were summed, but they must grow downstream."""
    sums, codes = drains((70, 80), 3, 1)
    wrong = sums.copy()
    row, col = np.argwhere((sums > 100) & (codes == 4))[0]
    wrong[row + 1, col] = 0
    store = make_flow(tmp_path / "s.zarr", codes, wrong)
    message = f"row {row}, column {col}: less drains through the next cell"
    with pytest.raises(StoreError, match=message):
        streams(store, 50)


@pytest.mark.parametrize("at", [20, 62])
def test_circles(tmp_path, at):
    """Four cells within a block, and through four blocks."""
    codes, sums = np.zeros((130, 140), np.uint8), np.ones((130, 140), np.int64)
    codes[at : at + 4, at : at + 4] = [[1, 1, 1, 4], [64, 0, 0, 4], [64, 0, 0, 4], [64, 16, 16, 16]]
    sums[codes > 0] = 9
    store = make_flow(tmp_path / "s.zarr", codes, sums)
    with pytest.raises(
        StoreError,
        match=rf"row {at}, column {at}: .* loop of 12 cells: \({at}, {at}\), \({at}, {at + 1}\)",
    ):
        streams(store, 5)


def test_a_code_that_is_none(tmp_path):
    sums, codes = drains((70, 80), 3, 1)
    row, col = np.argwhere(sums > 100)[0]
    codes[row, col] = 3
    store = make_flow(tmp_path / "s.zarr", codes, sums)
    with pytest.raises(StoreError, match=f"row {row}, column {col}: 3 is not a D8 code"):
        streams(store, 50)


def test_elevations_are_needed_only_for_lines(tmp_path):
    codes, sums = drawing(">>>o")
    store = make_flow(tmp_path / "s.zarr", codes, sums)
    streams(store, 1)
    with pytest.raises(StoreError, match="elevation"):
        streams(store, 1, lines=tmp_path / "l.geojson", overwrite=True)
    heights = np.array([[-9.0, 3, 2, 1]])
    write(store, "elevation", heights, -9.0, 64, GridSpec(1, 4))
    with pytest.raises(InputError, match="row 0, column 0 is on a channel but is nodata"):
        streams(store, 1, lines=tmp_path / "l.geojson", overwrite=True)
    with pytest.raises(InputError, match=r"must end in .geojson"):
        streams(store, 1, lines=tmp_path / "l.shp", overwrite=True)
    assert not (tmp_path / "l.geojson").exists()


@settings(max_examples=examples(20))
@given(
    shape=shapes(200, 4000),
    seed=st.integers(0, 10**6),
    wrong=st.sampled_from([1, -1, 7]),
    block=st.sampled_from([64, 128]),
)
def test_the_proof_refuses_a_wrong_number_of_a_link(folders, shape, seed, wrong, block):
    """From some link on, all numbers are wrong, or only its own is."""
    sums, codes = drains(shape, seed, 3)
    links = reference.channel_links(codes, sums, 2)
    if not links:
        return
    values = np.arange(1, len(links) + 1)
    k = seed % len(links)
    values[k : None if seed % 2 else k + 1] += wrong
    if values[k] == 0:
        return
    with folders() as folder:
        store = make_flow(folder / "s.zarr", codes, sums, block)
        numbers = painted(links, values, shape, np.uint32)
        write(store, "n", numbers, 0, block, GridSpec(*shape))
        names = "flow_direction", "flow_accumulation", "n"
        layers = [TileStore.open(store).layer(name) for name in names]
        row, col = links[k][0][0]
        found = f"row {row}, column {col}: number {values[k]} of link {k + 1};"
        with pytest.raises(VerificationError, match=found):
            verify_orders(*layers, (2, "link"), {}, Limits())


def test_any_number_of_links_within_the_least_limit(tmp_path):
    """The tables of these do not fit beside what blocks need."""
    data = np.random.default_rng(1).random((640, 650), np.float32)
    store = make_store(tmp_path / "s.zarr", data, None, 128)
    minimum_spanning_tree(store, weight="flow", backend="cpu")
    flow_direction(store)
    flow_accumulation(store)
    right = streams(store, 1, order="link", into="right")
    command = "terrain-gpu streams s.zarr --threshold 1 --order link --threads 2 --verify "
    command += "--overwrite -q"
    limit, peak = within(tmp_path, command, 200 * MB)
    assert peak <= limit
    made = TileStore.open(store).layer("streams")
    assert np.array_equal(read(made), read(right.layer))
    assert made.info["result"] == right.layer.info["result"]
    assert right.links > 150_000
    assert not list(store.glob("*.spill"))


def test_a_full_disk_for_tables(tmp_path, monkeypatch):
    sums, codes = drains((130, 140), 5, 4)
    store = make_flow(tmp_path / "s.zarr", codes, sums)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with spilling(), pytest.raises(OutputError, match="no space left on the disk"):
        streams(store, 2)
    assert "streams" not in TileStore.open(store).layers


def test_sums_that_let_blocks_have_too_many_channels(tmp_path):
    """No cell can have a thousand cells upstream of its own, but another program says so."""
    codes = np.zeros((256, 256), np.uint8)
    store = make_flow(tmp_path / "s.zarr", codes, np.full(codes.shape, 1000, np.int64), 256)
    with pytest.raises(PlanError, match=r"at least \d+ MB") as least:
        streams(store, 1000, memory_limit="200MB", threads=1)
    limit = str(least.value).split("at least ")[1]
    with pytest.raises(PlanError, match=r"pieces of channels in a block; .*, or a larger --thresh"):
        streams(store, 1000, memory_limit=limit, threads=1)
    streams(store, 1000, memory_limit="400MB", threads=1)
    # What lines need in addition is refused before the layer is there.
    write(store, "elevation", np.zeros(codes.shape), None, 256, GridSpec(*codes.shape))
    how = {"memory_limit": limit, "threads": 1, "into": "other"}
    with pytest.raises(PlanError, match="too small"):
        streams(store, 1000, lines=tmp_path / "l.gpkg", **how)
    assert "other" not in TileStore.open(store).layers


def test_edge_cells_along_other_directions(tmp_path):
    """Counts are made where there are none; those along other directions are no counts of these."""
    codes, sums = drawing(">>>o")
    store = make_flow(tmp_path / "s.zarr", codes, sums)
    write(store, "elevation", np.array([[4.0, 3, 2, 1]]), None, 64, GridSpec(1, 4))
    how = {"lines": tmp_path / "l.geojson", "edge_cells": True, "overwrite": True}
    with pytest.raises(InputError, match="also give lines"):
        streams(store, 1, **{**how, "lines": None})
    assert "upstream_edge_cells" not in TileStore.open(store).layers
    found = streams(store, 1, **how)
    assert "before: upstream_edge_cells" in found.report.seconds
    own = json.loads((tmp_path / "l.geojson").read_text())["features"][0]["properties"]
    assert (own["accumulation"], own["edge_cells"]) == (4, 3)
    write(store, "codes", codes, 255, 64, GridSpec(1, 4))
    with pytest.raises(StoreError, match=r"not counted along .*--directions codes"):
        streams(store, 1, directions="codes", **how)
    shutil.rmtree(store / "upstream_edge_cells")
    write(store, "upstream_edge_cells", codes, 255, 64, GridSpec(1, 4))
    with pytest.raises(StoreError, match="does not count edge cells"):
        streams(store, 1, **how)


def test_the_command(store, tmp_path, capfd):
    words = f"streams {store} --threshold 20 --edge-cells -q"
    assert options._guarded(lambda: group.main(words.split(), standalone_mode=False)) == 2
    assert "also give --lines" in capfd.readouterr().err
    words = f"streams {store} --threshold 20 --verify --lines {tmp_path}/l.geojson --edge-cells "
    words += f"-o {tmp_path}/s.tif --json {tmp_path}/j"
    code = options._guarded(lambda: group.main(words.split(), standalone_mode=False))
    said = capfd.readouterr()
    assert code == 0, said.err
    report = json.loads((tmp_path / "j").read_text())
    found = report["result"]
    assert f"layer streams, {found['links']:,} links of {found['cells']:,} cells" in said.out
    assert f" s, verified\nwritten: {tmp_path}/l.geojson, {tmp_path}/s.tif" in said.out
    assert (report["command"], report["valid_cells"]) == ("streams", found["cells"])
    assert found["lines"] == f"{tmp_path}/l.geojson"
    lines = json.loads((tmp_path / "l.geojson").read_text())["features"]
    assert len(lines) == found["links"]
    counts = read(TileStore.open(store).layer("upstream_edge_cells")).ravel()
    for one in (line["properties"] for line in lines):
        if one["downstream"] == 0:  # its last cell is the outlet
            assert one["edge_cells"] == counts[one["end"]]
    layer = TileStore.open(store).layer("streams")
    with rasterio.open(tmp_path / "s.tif") as raster:
        assert np.array_equal(raster.read(1), read(layer))
    assert layer.info["settings"]["order"] == "strahler"
    words = f"streams {store} --threshold 20 --order horton --into h"
    assert options._guarded(lambda: group.main(words.split(), standalone_mode=False)) == 0
    words = f"verify {store}"
    assert options._guarded(lambda: group.main(words.split(), standalone_mode=False)) == 0
    assert f"layer h verified, {found['links']:,} links" in capfd.readouterr().out
