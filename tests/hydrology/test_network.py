"""The spanning forest as lines, streamed by blocks, against plain Python."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pyogrio
import pyogrio.raw
import pytest
import reference
from contract import FileContract
from effort import examples, only_long
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import MB, within
from rasterio.crs import CRS
from strategies import _spiral, rasters, shapes
from test_mst import has_no_largest

from terrain_gpu import TileStore, create_layer, extract_network, minimum_spanning_tree
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.plan import Excess
from terrain_gpu.errors import InputError, PlanError, StoreError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths, whole_lengths
from terrain_gpu.hydrology.forest import lines
from terrain_gpu.hydrology.network import prune
from terrain_gpu.hydrology.network.operation import NetworkLines
from terrain_gpu.io.places import NO_PLACES, from_rowcol

TRANSFORM = (3.0, 0.0, 100.0, 0.0, -4.0, 50.0)
"""Steps of 3, 4 and 5."""

int16 = st.just(np.dtype("<i2"))
small = rasters(int16, shapes(200, 6000)).filter(has_no_largest)


@pytest.fixture(scope="session", autouse=True)
def no_fsync_session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


def make_store(path, data, nodata, block, transform=TRANSFORM, crs=""):
    grid = GridSpec(*data.shape, transform, crs)
    with create_layer(
        path, "elevation", grid, data.dtype, nodata=nodata, block_size=block, overwrite=True
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, data[r0:r1, c0:c1])
        writer.commit()
    return path


def forest(z, weight, nodata):
    """Neighbours of every cell in the spanning forest."""
    mask, _, _ = reference.kruskal(z, weight, nodata)
    beside = {tuple(cell): [] for cell in np.argwhere(reference.vertices(z, nodata)).tolist()}
    for row, col in np.argwhere(mask).tolist():
        for d, (down, right) in enumerate(reference.FORWARD):
            if mask[row, col] >> d & 1:
                beside[row, col].append((row + down, col + right))
                beside[row + down, col + right].append((row, col))
    return beside


STEPS = step_lengths(GridSpec(1, 1, TRANSFORM))[:, 0].tolist()
"""Lengths of steps E, SW, S and SE on every row."""


def step(u, v, steps):
    """The length of a step, to be added without rounding."""
    return Fraction(steps[0 if u[0] == v[0] else 2 if u[1] == v[1] else 3])


def longest(beside, kept, steps):
    """{(u, v): length of the longest path that starts with this step}; infinite through `kept`.

    A path from u to v continues from v, never back to u.
    """
    found = {}
    for u in beside:
        for v in beside[u]:
            stack = [(u, v)]
            while stack:
                a, b = stack[-1]
                onward = [(b, c) for c in beside[b] if c != a]
                missing = [edge for edge in onward if edge not in found]
                if missing:
                    stack += missing
                    continue
                stack.pop()
                rest = max((found[edge] for edge in onward), default=0)
                found[a, b] = math.inf if b in kept else step(a, b, steps) + rest
    return found


def network(z, weight, nodata, least, kept, steps=STEPS):
    """Lines as (cells, weight, pass height, length), from the lesser end, in order."""
    beside = forest(z, weight, nodata)
    reach = longest(beside, kept, steps)
    chosen = {u: [v for v in beside[u] if min(reach[u, v], reach[v, u]) >= least] for u in beside}
    ends = [(u, None) for u in chosen if len(chosen[u]) == 1 and u not in kept]
    core = {u: list(near) for u, near in chosen.items()}
    for u, before in ends:
        onward = [v for v in beside[u] if v != before and v not in core[u]]
        for v in onward:
            if reach[u, v] == max(reach[u, w] for w in onward):
                chosen[u].append(v)
                chosen[v].append(u)
                ends.append((v, u))
    nodes = {u for u in chosen if chosen[u] and (len(chosen[u]) != 2 or u in kept)}
    lines: list = []
    for first in nodes:
        for v in chosen[first]:
            line = [first, v]
            while line[-1] not in nodes:
                line.append(next(w for w in chosen[line[-1]] if w != line[-2]))
            if line[0] < line[-1]:
                lines.append(line)
    found = []
    for line in sorted(lines, key=lambda line: (line[0], line[-1])):
        for part in without_crossings(line):
            pairs = list(pairwise(part))
            found.append(
                (
                    part,
                    sum(reference.weight_of(z[u], z[v], weight) for u, v in pairs),
                    max(z[u].item() for u in part),
                    float(sum(step(u, v, steps) for u, v in pairs)),
                )
            )
    return found


def middles(line):
    """Doubled midpoints of a line's steps; two steps cross where they share one."""
    return [(a + c, b + d) for (a, b), (c, d) in pairwise(line)]


def without_crossings(line):
    """A line in as few parts as do not cross themselves, each from its lesser end."""
    parts, part = [], line[:1]
    for cell in line[1:]:
        if len(set(middles([*part, cell]))) < len(part):
            parts.append(part)
            part = part[-1:]
        part = [*part, cell]
    return [min(p, p[::-1], key=lambda way: way[0]) for p in [*parts, part]]


def read(path, cols, transform=TRANSFORM):
    """The lines of a file, as `network` gives them."""
    lines = []
    for feature in json.loads(path.read_text())["features"]:
        xy = np.array(feature["geometry"]["coordinates"])
        a, _, c, _, e, f = transform
        cells = np.stack(((xy[:, 1] - f) / e - 0.5, (xy[:, 0] - c) / a - 0.5), axis=1)
        assert np.abs(cells - np.rint(cells)).max() < 1e-9
        line = [tuple(cell) for cell in np.rint(cells).astype(int).tolist()]
        found = feature["properties"]
        assert found["cells"] == len(line)
        assert (found["start"], found["end"]) == tuple(r * cols + c for r, c in (line[0], line[-1]))
        lines.append((line, found["weight"], found["pass_height"], found["length"]))
    return lines


def check(folder, data, nodata, weight, least, kept, threads=1):
    store = make_store(folder / "s.zarr", data, nodata, 64)
    minimum_spanning_tree(store, weight=weight, threads=threads)
    path = folder / "lines.geojson"
    found = extract_network(
        store,
        path,
        min_length=least,
        keep=from_rowcol(GridSpec(*data.shape), kept) if kept else None,
        threads=threads,
        verify=True,
    )
    expected = network(data, weight, nodata, math.inf if least is None else least, set(kept))
    assert read(path, data.shape[1]) == expected
    assert found.lines == len(expected)
    assert found.cells == sum(len(line[0]) for line in expected)
    assert found.length == sum(line[3] for line in expected)
    assert sorted(os.listdir(folder)) == ["lines.geojson", "s.zarr"]


def as_bytes(lines):
    plain = [(line, float(weight), float(top), float(far)) for line, weight, top, far in lines]
    return np.frombuffer(repr(plain).encode(), np.uint8)


class TestContract(FileContract):
    command = "network s.zarr lines.geojson --min-length 60 --verify"
    rasters = small
    identified = True

    def prepare(self, store):
        minimum_spanning_tree(store, backend="cpu")

    def kept(self, valid):
        """Some cells that lines end at."""
        return list(map(tuple, np.argwhere(valid)[7::1009].tolist()))

    def make(self, store):
        layer = TileStore.open(store).layer("elevation")
        try:
            valid = reference.vertices(layer.read_window(*layer.grid.window), layer.nodata)
        except StoreError:  # a damaged layer, which the operation must find
            valid = np.zeros(layer.grid.shape, bool)
        kept = from_rowcol(layer.grid, self.kept(valid)) if valid.sum() > 7 else NO_PLACES
        return NetworkLines(str(store), str(store.parent / "lines.geojson"), 60.0, kept)

    def outputs(self, store):
        grid, path = TileStore.open(store).grid, store.parent / "lines.geojson"
        return {str(path): as_bytes(read(path, grid.cols, grid.transform))}

    def expected(self, data, nodata, grid):
        steps = step_lengths(grid)[:, 0].tolist()
        kept = self.kept(reference.vertices(data, nodata))
        return [as_bytes(network(data, "max", nodata, 60, set(kept), steps))]

    def counted(self, store):
        return TileStore.open(store).grid.cells

    def full(self, patch, after):
        left, put = after, lines.PieceFile.put

        def full(*args):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")
            return put(*args)

        patch.setattr(lines.PieceFile, "put", full)

    def spoil(self, file, cell):
        """Move a point of a line by a cell."""

        def move(features):
            points = features[sum(cell) % len(features)]["geometry"]["coordinates"]
            points[cell[0] % len(points)][0] += 10

        rewrite(file, move)


def rewrite(file, how):
    """Change the features of a file."""
    head, text = file.read_text().split('"features": [\n')
    features = [json.loads(line.rstrip(",")) for line in text.splitlines()[:-1]]
    how(features)
    body = ",\n".join(json.dumps(feature) for feature in features)
    file.write_text(f'{head}"features": [\n{body}' + "\n" * bool(body) + "]}\n")


def some(cells, count, seed):
    """`count` of the true cells, or all of them."""
    good = np.argwhere(cells)
    chosen = np.random.default_rng(seed).permutation(good)[:count]
    return [tuple(cell) for cell in chosen.tolist()]


@settings(max_examples=examples(30))
@given(
    raster=small,
    weight=st.sampled_from(["max", "absdiff"]),
    least=st.sampled_from([None, 0, 4, 9, 20, 100]),
    count=st.sampled_from([0, 1, 2, 5, 30]),
    seed=st.integers(0, 99),
    threads=st.sampled_from([1, 2]),
)
def test_against_plain_python(folders, raster, weight, least, count, seed, threads):
    kept = some(reference.vertices(raster.cells, raster.nodata), count, seed)
    if least is None and not kept:
        return
    with folders() as folder:
        check(folder, raster.cells, raster.nodata, weight, least, kept, threads)


@settings(max_examples=examples(40))
@given(
    rows=st.integers(1, 9),
    cols=st.one_of(st.integers(65, 70), st.integers(120, 140)),
    heights=st.sampled_from([2, 10, 10_000]),
    tall=st.booleans(),
    least=st.integers(1, 80),
    count=st.sampled_from([0, 0, 1, 3]),
    seed=st.integers(0, 10**6),
)
def test_strips(folders, rows, cols, heights, tall, least, count, seed):
    """Blocks with few cells, so that lengths on either side of a border are alike."""
    data = np.random.default_rng(seed).integers(0, heights, (rows, cols)).astype(np.int16)
    if tall:
        data = np.ascontiguousarray(data.T)
    kept = some(data >= 0, count, seed)
    told = []

    real = prune.solve

    def solve(*problem):
        told.append(real(*problem))
        return told[0]

    with folders() as folder, mock.patch.object(prune, "solve", solve):
        check(folder, data, None, "max", least, kept)
    # What blocks are told of each other is seldom decisive for the lines, so it is compared itself.
    reach = longest(forest(data, "max", None), set(kept), STEPS)
    _, unit = whole_lengths(grid := GridSpec(*data.shape, TRANSFORM), step_lengths(grid))
    cells, steps, far, _ = told[0]._columns
    borders = {
        (u, v) for u, v in reach if any(a // 64 != b // 64 for a, b in zip(u, v, strict=True))
    }
    assert len(cells) == len(borders)
    for cell, k, length in zip(cells.tolist(), steps.tolist(), far.tolist(), strict=True):
        u = divmod(cell, data.shape[1])
        v = (u[0] + reference.TOWARD[k][0], u[1] + reference.TOWARD[k][1])
        if reach[u, v] == math.inf:
            assert length >= prune.ENDLESS
        else:
            assert length * unit == reach[u, v]


def test_no_line_crosses_itself(tmp_path, monkeypatch):
    """Both diagonals of a square may be in a tree; the parts of a cut line join as before."""
    rng, cut = np.random.default_rng(0), 0
    for _ in range(40):
        data = rng.integers(0, 4, (70, 80)).astype(np.int16)
        with monkeypatch.context() as patch, tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            whole = Path(folder) / "whole.geojson"
            store = make_store(Path(folder) / "s.zarr", data, None, 64)
            weight = ["max", "absdiff"][cut % 2]
            minimum_spanning_tree(store, weight=weight)
            kept = from_rowcol(GridSpec(*data.shape), some(data >= 0, 2, cut))
            extract_network(store, whole.with_name("a.geojson"), keep=kept, min_length=30)
            patch.setattr("terrain_gpu.hydrology.forest.features._crossings", lambda line, cols: [])
            extract_network(store, whole, keep=kept, min_length=30)
            found, plain = (read(p, 80) for p in (whole.with_name("a.geojson"), whole))
        cut += len(found) - len(plain)
        for line, *_ in found:
            assert len(set(line)) == len(line)
            assert len(set(middles(line))) == len(line) - 1
        edges = [
            sorted(tuple(sorted(pair)) for line, *_ in lines for pair in pairwise(line))
            for lines in (found, plain)
        ]
        assert edges[0] == edges[1]
        assert len(set(edges[0])) == len(edges[0])
        for k in (1, 3):  # weights and lengths
            assert sum(line[k] for line in found) == sum(line[k] for line in plain)
    assert cut > 5


@pytest.fixture
def store(tmp_path):
    data = np.random.default_rng(7).integers(0, 99, (200, 300)).astype(np.int16)
    path = make_store(tmp_path / "s.zarr", data, None, 64)
    minimum_spanning_tree(path)
    return path


def test_files_do_not_depend_on_blocks(tmp_path):
    """Real heights, and lengths in a geographic CRS."""
    data = np.random.default_rng(7).random((200, 300)).astype(np.float32)
    grid = GridSpec(200, 300, (0.01, 0, 7, 0, -0.01, 47), CRS.from_epsg(4326).to_wkt())
    files = []
    for block, threads in ((64, 2), (128, 1), (512, 1)):
        store, path = tmp_path / f"{block}.zarr", tmp_path / f"{block}.geojson"
        with create_layer(store, "elevation", grid, data.dtype, block_size=block) as writer:
            for i, j in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(i, j)
                writer.write_block(i, j, data[r0:r1, c0:c1])
            writer.commit()
        minimum_spanning_tree(store, weight="absdiff")
        found = extract_network(store, path, min_length=20_000.0, threads=threads, verify=True)
        assert found.lines > 20
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]
    line = json.loads(files[0])["features"][0]
    lonlat = np.array(line["geometry"]["coordinates"])
    east, north = np.cos(np.radians((lonlat[1:, 1] + lonlat[:-1, 1]) / 2)), 1.0
    steps = np.diff(lonlat, axis=0) * np.stack((east, np.full_like(east, north)), axis=1)
    assert math.isclose(
        line["properties"]["length"], 111_320 * np.hypot(*steps.T).sum(), rel_tol=0.01
    )


def test_a_tree_that_does_not_follow_valleys(store, tmp_path, caplog):
    for weight, warns in (("max", False), ("flow", False), ("absdiff", True)):
        caplog.clear()
        minimum_spanning_tree(store, weight=weight, overwrite=True)
        extract_network(store, tmp_path / f"{weight}.geojson", min_length=50)
        assert ("its lines follow the least climb, not valleys" in caplog.text) == warns


def test_geopackage(store, tmp_path, monkeypatch):
    """The lines of the GeoJSON, written in several batches; with no lines, an empty layer."""
    monkeypatch.setattr(lines, "BATCH", 1000)
    extract_network(store, tmp_path / "a.geojson", min_length=50)
    found = extract_network(store, tmp_path / "a.gpkg", min_length=50, verify=True)
    expected = json.loads((tmp_path / "a.geojson").read_text())["features"]
    meta, _, wkb, columns = pyogrio.raw.read(tmp_path / "a.gpkg", layer="network")
    assert found.lines == len(expected) == len(wkb)
    names = meta["fields"].tolist()
    for k, feature in enumerate(expected):
        assert {name: columns[n][k] for n, name in enumerate(names)} == feature["properties"]
        xy = np.frombuffer(wkb[k], "<f8", offset=9).reshape(-1, 2)
        assert xy.tolist() == feature["geometry"]["coordinates"]
    none = extract_network(store, tmp_path / "b.gpkg", min_length=1e9, verify=True)
    assert none.lines == 0
    assert pyogrio.read_info(tmp_path / "b.gpkg", layer="network")["features"] == 0


def test_refusals(store, tmp_path):
    target = tmp_path / "a.geojson"
    with pytest.raises(InputError, match="give at least one of min_length and keep"):
        extract_network(store, target)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match=f"min_length {wrong} is not a finite number"):
            extract_network(store, target, min_length=wrong)
    with pytest.raises(InputError, match=r"must end in \.geojson"):
        extract_network(store, tmp_path / "a.shp", min_length=1)
    with pytest.raises(PlanError, match="too small to extract the network of 200 x 300"):
        extract_network(store, target, min_length=1, memory_limit=300 * 10**6)
    target.touch()
    with pytest.raises(InputError, match="exists"):
        extract_network(store, target, min_length=1)
    edges = TileStore.open(store).layer("mst")
    os.truncate(edges.shard_path(0, 0), 100)
    with pytest.raises(StoreError, match="corrupt shard index"):
        extract_network(store, target, min_length=1, overwrite=True)
    assert target.read_bytes() == b""
    assert sorted(os.listdir(tmp_path)) == ["a.geojson", "s.zarr"]


def test_more_lines_than_the_limit_allows(store, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PIECE_BYTES", 10**9)
    with pytest.raises(PlanError, match=r"network of [\d,]+ lines; give at least"):
        extract_network(store, tmp_path / "a.geojson", min_length=0)
    monkeypatch.setattr(lines, "PIECE_BYTES", 200)
    monkeypatch.setattr(lines, "BATCH", 0)
    monkeypatch.setattr(lines, "CELL_BYTES", 10**10)
    with pytest.raises(PlanError, match="or a larger --min-length"):
        extract_network(store, tmp_path / "a.geojson", min_length=0)
    assert os.listdir(tmp_path) == ["s.zarr"]


def test_keeping_pieces_does_not_look_at_those_of_other_blocks(tmp_path):
    class Tables(dict):
        def values(self):
            raise AssertionError("quadratic in blocks")

        items = __iter__ = values

    nothing = np.zeros(0, np.int64)
    none = lines.Pieces(nothing, nothing, np.zeros(1, np.int64), nothing.reshape(0, 2), nothing)
    ends = np.full((1, 2), lines.NODE, np.int64)
    one = lines.Pieces(np.arange(3), np.zeros(3), np.array([0, 3]), ends, np.array([-1]))
    with contextlib.closing(lines.PieceFile(tmp_path, np.dtype(float), Excess(0, 10**9))) as pieces:
        pieces._tables = Tables()
        for _ in range(2):  # the second round replaces the first
            for k in range(5):
                pieces.put((k, 0), one)
        pieces.put((0, 0), none)
        pieces._tables = dict(dict.items(pieces._tables))
        assert sum(len(cells) for cells, _ in pieces.lines()) == 4
    few = 4 * lines.PIECE_BYTES
    with contextlib.closing(lines.PieceFile(tmp_path, np.dtype(float), Excess(0, few))) as pieces:
        for k in [0, 1, 2, 3, 0, 1]:
            pieces.put((k, 0), one)
        for k in (4, 5, 6):
            pieces.put((k, 0), one)
        with pytest.raises(PlanError, match="a network of 7 lines; give at least 1 MB"):
            pieces.choose(np.empty(0, np.int64))
    maybe = lines.Pieces(np.arange(3), np.zeros(3), np.array([0, 3]), ends, np.array([5]))
    with contextlib.closing(lines.PieceFile(tmp_path, np.dtype(float), Excess(0, few))) as pieces:
        for k in range(20):
            pieces.put((k, 0), maybe)
        with pytest.raises(PlanError, match="a network of 20 lines"):  # if all turn out to be
            pieces.choose(np.array([5]))
        assert pieces._excess.more == 20 * lines.PIECE_BYTES


def test_a_killed_run_leaves_nothing(store, tmp_path):
    code = (
        "import os, signal, sys, terrain_gpu\n"
        "def stop(cells, total):\n"
        "    stop.seen += cells\n"
        "    if stop.seen > 0.6 * total:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "stop.seen = 0\n"
        "terrain_gpu.extract_network(*sys.argv[1:], min_length=0, progress=stop)\n"
    )
    run = [sys.executable, "-c", code, str(store), str(tmp_path / "a.geojson")]
    assert subprocess.run(run, check=False).returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["s.zarr"]


def test_the_plan(store, tmp_path, capfd):
    line = f"plan {store} --for network --memory-limit 1GB --threads 3 --json -".split()
    assert options._guarded(lambda: group.main(line, standalone_mode=False)) == 0
    planned = json.loads(capfd.readouterr().out)["result"]
    limits = {"memory_limit": 10**9, "threads": 3}
    found = extract_network(store, tmp_path / "lines.gpkg", min_length=1, **limits)
    assert planned == found.report.settings["plan"]


def test_the_command(store, tmp_path, capfd):
    def call(command):
        code = options._guarded(lambda: group.main(command.split(), standalone_mode=False))
        return (code, *capfd.readouterr())

    points = {"type": "MultiPoint", "coordinates": [[101, 49], [900, -700]]}
    (tmp_path / "p.geojson").write_text(json.dumps({**points, "crs": None}))
    path = tmp_path / "l.geojson"
    code, said, _ = call(f"network {store} {path} --keep {tmp_path}/p.geojson --json {tmp_path}/j")
    assert (code, ": 1 line over " in said) == (0, True)
    ((line, *_),) = read(path, 300)
    assert (line[0], line[-1]) == ((0, 0), (187, 266))
    assert json.loads((tmp_path / "j").read_text())["result"]["cells"] == len(line)
    code, _, wrong = call(f"network {store} {path}")
    assert (code, "give at least one of --min-length and --keep" in wrong) == (2, True)
    code, _, wrong = call(f"network {store} {tmp_path}/m.geojson --keep {tmp_path}/none.geojson")
    assert (code, "--keep: " in wrong, "no such file" in wrong) == (2, True, True)
    points, new = tmp_path / "p.geojson", tmp_path / "n.geojson"
    for wrong, message in (
        (
            f"{points} --keep {points} --overwrite",
            f"LINES {points}: --keep already names this file; name",
        ),
        (f"{new} --keep {points} --json {points}", "p.geojson' exists and is not a report; remove"),
        (
            f"{new} --min-length 0 --json {new}",
            f"--json {new}: LINES already names this file; name another",
        ),
    ):
        code, _, error = call(f"network {store} {wrong}")
        assert (code, message in error) == (2, True)
    assert "MultiPoint" in points.read_text()
    assert not new.exists()
    code, said, _ = call(f"network {store} {new} --min-length 1e308")
    assert (code, ": 0 lines over 0 cells" in said) == (0, True)
    code, said, _ = call(f"network {store} {tmp_path}/m.geojson --min-length 0")
    assert code == 0
    assert sum(len(line) - 1 for line, *_ in read(tmp_path / "m.geojson", 300)) == 200 * 300 - 1


# -- what the proof must refuse ----------------------------------------------------------------


def whole_lines(features, grid):
    """Cells of the lines of a file."""
    a, _, c, _, e, f = grid.transform
    lines = []
    for feature in features:
        x, y = np.array(feature["geometry"]["coordinates"]).T
        rows, cols = (y - f) / e - 0.5, (x - c) / a - 0.5
        lines.append(list(zip(np.rint(rows).tolist(), np.rint(cols).tolist(), strict=True)))
    return lines


def moved(cells, down, right, transform=TRANSFORM):
    a, _, c, _, e, f = transform
    return [[c + a * (col + right + 0.5), f + e * (row + down + 0.5)] for row, col in cells]


def parts_of(features, k, at, grid):
    """A line as two, with the attributes of each but for its weight and height."""
    cells = whole_lines([features[k]], grid)[0]
    found = []
    for way in (cells[: at + 1], cells[at:]):
        part = min(way, way[::-1], key=lambda cells: cells[0])
        ids = [int(r * grid.cols + c) for r, c in part]
        steps = step_lengths(grid)[:, 0]
        length = math.fsum(float(step(u, v, steps)) for u, v in pairwise(part))
        own = {"start": ids[0], "end": ids[-1], "length": length, "cells": len(part)}
        line = {"type": "LineString", "coordinates": moved(part, 0, 0)}
        properties = {**features[k]["properties"], **own}
        found.append({"type": "Feature", "properties": properties, "geometry": line})
    return found


def longest_of(features):
    return max(range(len(features)), key=lambda k: features[k]["properties"]["cells"])


def shifted(features, grid):
    k = next(k for k, cells in enumerate(whole_lines(features, grid)) if min(cells)[0] > 0)
    features[k]["geometry"]["coordinates"] = moved(whole_lines(features, grid)[k], -1, 0)


def nudged(features, grid):
    features[3]["geometry"]["coordinates"][1][0] += 1e-9


def with_a_detour(features, grid):
    """One cell of the longest line beside where it was, both steps still possible."""
    k = longest_of(features)
    cells = whole_lines(features, grid)[k]
    n, cell = next(
        (n, (r, c))
        for n, (u, v, w) in enumerate(zip(cells, cells[1:], cells[2:], strict=False), 1)
        for r in (v[0] - 1, v[0], v[0] + 1)
        for c in (v[1] - 1, v[1], v[1] + 1)
        if (r, c) not in cells and all(max(abs(r - a), abs(c - b)) == 1 for a, b in (u, w))
    )
    cells[n] = cell
    features[k]["geometry"]["coordinates"] = moved(cells, 0, 0)


def shortened(features, grid):
    """Without the last cell, at an end that is no junction."""
    ends = [end for f in features for end in (f["properties"]["start"], f["properties"]["end"])]
    k = next(
        k
        for k, f in enumerate(features)
        if ends.count(f["properties"]["end"]) == 1 and f["properties"]["cells"] > 4
    )
    one, _ = parts_of(features, k, features[k]["properties"]["cells"] - 2, grid)
    features[k] = one


def turned(features, grid):
    own, line = features[5]["properties"], features[5]["geometry"]["coordinates"]
    own["start"], own["end"] = own["end"], own["start"]
    line.reverse()


def cut(features, grid):
    k = longest_of(features)
    features[k : k + 1] = parts_of(features, k, 5, grid)


def joined(features, grid):
    """Two lines that meet, as one."""
    lines = whole_lines(features, grid)
    for k, one in enumerate(lines):
        for m, other in enumerate(lines):
            if k != m and one[-1] == other[0] and one[0] < other[-1]:
                cells = one + other[1:]
                own = features[k]["properties"]
                own["end"], own["cells"] = features[m]["properties"]["end"], len(cells)
                own["length"] = math.fsum(
                    float(step(u, v, step_lengths(grid)[:, 0])) for u, v in pairwise(cells)
                )
                for name, of in (("weight", sum), ("pass_height", max)):
                    own[name] = float(of((own[name], features[m]["properties"][name])))
                features[k]["geometry"]["coordinates"] = moved(cells, 0, 0)
                del features[m]
                return
    raise AssertionError


def change(features, grid, name):
    """An attribute becomes the next number."""
    own = features[4]["properties"]
    old = own[name]
    own[name] = old + 1 if isinstance(old, int) else float(np.nextafter(old, np.inf))


MUTATIONS = {
    "removed": (lambda f, g: f.pop(2), "an edge of the network is on no line"),
    "the last removed": (lambda f, g: f.pop(), "an edge of the network is on no line"),
    "all removed": (lambda f, g: f.clear(), "an edge of the network is on no line"),
    "twice": (lambda f, g: f.insert(2, f[2]), "an edge is on two lines"),
    "swapped": (lambda f, g: f.insert(2, f.pop(3)), "not in the order of its nodes"),
    "shifted": (shifted, "start is|not an edge of the forest|no line|not in the network|two lines"),
    "nudged": (nudged, "not the centres of cells"),
    "a detour": (with_a_detour, "not an edge of the forest|no line|not in the network|two lines"),
    "shortened": (shortened, "an edge of the network is on no line"),
    "turned": (turned, "does not begin at its end with the smaller id"),
    "cut": (cut, "weight is|pass_height is|cut too early"),
    "joined": (joined, "a node lies between its ends"),
    "a cell twice": (
        lambda f, g: f[1]["geometry"]["coordinates"].insert(1, f[1]["geometry"]["coordinates"][1]),
        "not neighbours",
    ),
    "one cell": (
        lambda f, g: f[1]["geometry"].update(coordinates=f[1]["geometry"]["coordinates"][:1]),
        "has fewer than two cells",
    ),
    "another attribute": (lambda f, g: f[0]["properties"].update(colour=1), "other attributes"),
    "an attribute less": (lambda f, g: f[0]["properties"].pop("cells"), "cells is None"),
    "no geometry": (lambda f, g: f[0].pop("geometry"), "cannot be read"),
    "a whole number": (
        lambda f, g: f[0]["properties"].update(weight=int(f[0]["properties"]["weight"])),
        "weight is",
    ),
    **{
        name: (partial(change, name=name), f"{name} is")
        for name in ("start", "end", "weight", "pass_height", "length", "cells")
    },
}


def mutate(patch, how):
    """Let runs change the features of the file that they have written."""
    execute = NetworkLines.execute

    def wrong(self, run):
        found = execute(self, run)
        (writer,) = run.writers.values()
        rewrite(writer.part, lambda features: how(features, self.grid))
        return found

    patch.setattr(NetworkLines, "execute", wrong)


@pytest.mark.parametrize("name", MUTATIONS)
def test_its_proof_refuses(store, tmp_path, monkeypatch, name):
    how, words = MUTATIONS[name]
    path = tmp_path / "lines.geojson"
    path.write_text("an older file")
    extract = partial(extract_network, store, path, min_length=60, overwrite=True)
    with monkeypatch.context() as patch:
        mutate(patch, how)
        with pytest.raises(VerificationError, match=words) as error:
            extract(verify=True)
        assert str(path) in str(error.value)
        assert path.read_text() == "an older file"
        assert sorted(os.listdir(tmp_path)) == ["lines.geojson", "s.zarr"]
    assert extract(verify=True).lines > 20


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE network SET weight = weight + 1 WHERE fid = 7", "line 7: weight is"),
        ("UPDATE network SET geom = (SELECT geom FROM network WHERE fid = 8) WHERE fid = 7", "two"),
        ("UPDATE network SET geom = NULL WHERE fid = 7", "line 7: is not a line"),
        ("DELETE FROM network WHERE fid = 7", "an edge of the network is on no line"),
        ("ALTER TABLE network RENAME TO other", "cannot be read back"),
    ],
)
def test_its_proof_refuses_geopackages(store, tmp_path, monkeypatch, sql, words):
    execute = NetworkLines.execute

    def wrong(self, run):
        found = execute(self, run)
        (writer,) = run.writers.values()
        with contextlib.closing(sqlite3.connect(writer.part)) as base, base:
            for trigger in ("insert", "update1", "update2", "update3", "update4", "update5"):
                base.execute(f"DROP TRIGGER IF EXISTS rtree_network_geom_{trigger}")
            for trigger in ("update6", "update7", "delete"):
                base.execute(f"DROP TRIGGER IF EXISTS rtree_network_geom_{trigger}")
            base.execute(sql)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(NetworkLines, "execute", wrong)
        with pytest.raises(VerificationError, match=words):
            extract_network(store, tmp_path / "a.gpkg", min_length=60, verify=True)
    assert os.listdir(tmp_path) == ["s.zarr"]
    assert extract_network(store, tmp_path / "a.gpkg", min_length=60, verify=True).lines > 20


@pytest.mark.parametrize("name", ["a.geojson", only_long("a.gpkg")])
def test_memory_of_a_long_line(tmp_path, name):
    """A million cells, in GeoJSON in longitude and latitude: written, and verified."""
    data = np.where(_spiral((1449, 1449)), -1, 0).astype(np.int16)
    grid = 3.0, 0.0, 500000.0, 0.0, -4.0, 5500000.0
    store = make_store(tmp_path / "s.zarr", data, -1, 256, grid, CRS.from_epsg(32632).to_wkt())
    minimum_spanning_tree(store)
    command = f"terrain-gpu network s.zarr {name} --min-length 100 --threads 1 --overwrite"
    for words in ("", " --verify"):
        limit, peak = within(tmp_path, command + words, MB)
        assert peak <= limit


@pytest.mark.parametrize(
    ("code", "transform", "cut"),
    [
        (32660, (1000.0, 0, 690_000, 0, -1000, 5_600_000), True),
        (3832, (1000.0, 0, 3_330_000, 0, -1000, 1_000_000), True),
        (4326, (0.01, 0, 179.5, 0, -0.01, 10), None),
        (4326, (3.0, 0, 0, 0, -3, 60), None),
        (3031, (90_000.0, 0, -4e6, 0, -90_000, 2e6), True),
        (3857, (0.001, 0, 1e6, 0, -0.001, 6e6), False),
    ],
)
def test_its_proof_accepts_longitude_and_latitude(tmp_path, code, transform, cut):
    """Also where lines cross the antimeridian, or a cell is a millimetre wide."""
    data = np.random.default_rng(code).integers(0, 99, (40, 120)).astype(np.int16)
    crs = CRS.from_epsg(code).to_wkt()
    store = make_store(tmp_path / "s.zarr", data, None, 64, transform, crs)
    minimum_spanning_tree(store, weight=("max", "absdiff", "flow")[code % 3])
    for name in ("a.geojson", "a.gpkg"):
        found = extract_network(store, tmp_path / name, min_length=0, verify=True)
        assert found.report.result["verified_lines"] == found.lines > 1000
    if cut is not None:
        assert cut == ("MultiLineString" in (tmp_path / "a.geojson").read_text())
