"""The proofs of paths as lines: right files pass, whatever the costs, and every change is found."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise

import hypothesis
import numpy as np
import pytest
import strategies
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from test_least_cost_network import steps_of
from test_paths import make_store, within_reach
from test_paths_matrix import as_places

from terrain_gpu import cost_matrix, shortest_paths
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import StoreError, VerificationError
from terrain_gpu.grid import cell_centres
from terrain_gpu.io.places import as_places as valid
from terrain_gpu.paths.cost_distance import output
from terrain_gpu.paths.cost_distance.output import write_paths
from terrain_gpu.paths.cost_matrix import table
from terrain_gpu.paths.least_cost_network import files
from terrain_gpu.paths.proof.lines import KnownEnds, verify_stored_paths
from terrain_gpu.store import TileStore, create_layer

pytestmark = pytest.mark.usefixtures("no_fsync")

ENDINGS = [".geojson", ".gpkg", ".parquet", ".fgb"]


@st.composite
def problems(draw):
    """A `CostProblem`, and targets anywhere."""
    small = strategies.rasters(shape=strategies.shapes(130, 2500))
    problem = draw(strategies.cost_problems(small, connectivities=(8, 4, 16)))
    within_reach(problem)
    hypothesis.assume(problem.sources)
    good = problem.valid if problem.barriers is None else problem.valid & ~problem.barriers
    rows, cols = np.nonzero(good)
    chosen = draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9))
    return problem, [(int(rows[k]), int(cols[k]), None, n + 1) for n, k in enumerate(chosen)]


@given(problems(), st.sampled_from([64, 256]), st.sampled_from(ENDINGS), st.booleans())
def test_paths_of_one_search(folders, question, block, ending, allocation):
    problem, targets = question
    both = (problem.sources, "sources"), (targets, "targets")
    starts, ends = (valid(problem.grid, as_places(given), name) for given, name in both)
    with folders() as folder:
        store = TileStore.open(make_store(folder / "s.zarr", problem, block))
        how = {**steps_of(problem), "max_cost": problem.max_cost, "verify": True}
        found = shortest_paths(store, starts, backlink=True, allocation=allocation, **how)
        paths = found.paths(ends, starts)
        file, checked, told = folder / f"p{ending}", [], []

        def prove(part):
            given = {"part": part, "ends": KnownEnds(starts, ends)}
            given["progress"] = lambda *seen: told.append(seen)
            checked.append(verify_stored_paths(store, "distance", file, **given))

        write_paths(file, paths, problem.grid, prove=prove)
        steps = sum(len(path.cells) - 1 for path in paths)
        assert checked == [{"paths": len(paths), "steps": steps}]
        assert sum(done for done, _ in told) == len(paths)
        assert {total for _, total in told} == {len(paths)} - {0}
        if paths or ending != ".fgb":
            assert verify_stored_paths(store, "distance", file) == checked[0]


@settings(max_examples=examples(20))
@given(problems(), st.sampled_from(ENDINGS), st.sampled_from([None, 1]))
def test_paths_of_a_matrix(folders, question, ending, nearest):
    problem, targets = question
    with folders() as folder:
        store = make_store(folder / "s.zarr", problem, 64)
        file = folder / f"p{ending}"
        found = cost_matrix(
            store, as_places(problem.sources), as_places(targets), paths=file, nearest=nearest,
            verify=True, **steps_of(problem),
        )  # fmt: skip
        steps = found.report.result["verified_path_steps"]
        columns = cost_matrix(
            store, as_places(problem.sources), as_places(targets), nearest=nearest,
            **steps_of(problem),
        ).columns()  # fmt: skip
        assert found.report.result["paths"] == columns["length"].count()
        assert (steps > 0) == bool((columns["length"].filled(0) > 0).any())


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("epsg", "west"), [(3857, 1.9e7), (3857, -2.1e7), (6933, 1.7e7)])
def test_paths_past_180_degrees(tmp_path, ending, epsg, west):
    grid = strategies.GridSpec(
        20, 40, (5e4, 0.0, west, 0.0, -5e4, 1e6), CRS.from_epsg(epsg).to_wkt()
    )
    with create_layer(tmp_path / "s.zarr", "elevation", grid, np.int16, block_size=64) as writer:
        writer.write_block(0, 0, np.random.default_rng(0).integers(0, 99, (20, 40)).astype("i2"))
        writer.commit()
    found = cost_matrix(
        tmp_path / "s.zarr", as_places([(2, 2, None, 1)]),
        as_places([(15, 38, None, 1), (0, 30, None, 2)]), paths=tmp_path / f"p{ending}",
        verify=True,
    )  # fmt: skip
    assert found.report.result["verified_path_steps"] > 60


# -- mutations ---------------------------------------------------------------------------------

SHAPE = 40, 50


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A store with distances, and a file of paths to three targets."""
    folder = tmp_path_factory.mktemp("searched")
    rng = np.random.default_rng(3)
    heights = (rng.random(SHAPE) * 90).astype(np.float32)
    with create_layer(
        folder / "s.zarr", "elevation", strategies.GridSpec(*SHAPE, (9.0, 0, 3, 0, -9.0, 4)),
        np.float32, block_size=64,
    ) as writer:  # fmt: skip
        writer.write_block(0, 0, heights)
        writer.commit()
    store = TileStore.open(folder / "s.zarr")
    starts, ends = (
        as_places([(*cell, None, k + 1) for k, cell in enumerate(cells)])
        for cells in ([(2, 3), (30, 40)], [(10, 20), (20, 1), (39, 49)])
    )
    found = shortest_paths(
        store, starts, cost="tobler", backlink=True, allocation=True, verify=True
    )
    for ending in ENDINGS:
        write_paths(folder / f"p{ending}", found.paths(ends, starts), store.grid)
    return store, KnownEnds(starts, ends), folder


def line_of(features, k=0):
    return features[k]["geometry"]["coordinates"]


def moved(features):
    line_of(features)[3][0] += 0.5


def moved_by_a_cell(features):
    line_of(features)[3][0] += 900


def detoured(features):
    """The first step that has another cell beside both its ends goes over that."""
    line = line_of(features)
    for k, (one, other) in enumerate(pairwise(line)):
        if one[0] != other[0] and one[1] != other[1]:
            line.insert(k + 1, [one[0], other[1]])
            features[0]["properties"]["cells"] += 1
            return
    raise AssertionError


def shortened(features):
    del line_of(features)[0]


def ended_early(features):
    del line_of(features)[-1]


def backwards(features):
    line_of(features).reverse()


def dropped(features):
    del features[1]


def dropped_last(features):
    del features[-1]


def twice(features):
    features.append(features[-1])


def swapped(features):
    features[:2] = features[1::-1]


def valued(name, value):
    def change(features):
        features[1]["properties"][name] = value

    change.__name__ = f"wrong_{name}"
    return change


MUTATIONS = [
    (moved, "line 1: positions are not the centres of cells"),
    (moved_by_a_cell, "line 1: positions are not"),
    (detoured, "line 1: its steps up to row .* cost .*, but the distance there is"),
    (shortened, "line 1: begins at row .*, not at a source"),
    (ended_early, "line 1: ends at row .*, not at target 1 at row 10, column 20"),
    (backwards, "line 1: begins at row 10, column 20, not at a source"),
    (dropped, "line 2: ends at row .*, not at target 2 at"),
    (dropped_last, "no line to target 3, which is reached"),
    (twice, "line 4: has no target: all reached targets"),
    (swapped, "line 1: ends at row 20, column 1, not at target 1"),
    (valued("source", 7), "line 2: source is 7 instead of [12]"),
    (valued("target", 1), "line 2: target is 1 instead of 2"),
    (valued("cost", 5.0), "line 2: cost is 5.0 instead of "),
    (valued("length", 5.0), "line 2: length is 5.0 instead of"),
    (valued("cells", 5), "line 2: cells is 5 instead of"),
    (valued("more", 5), "line 2: has other attributes"),
]
UNKNOWN_ENDS = (ended_early, dropped, dropped_last, twice, swapped)
"""What `terrain-gpu verify` cannot know, except that an earlier end has another cost."""


def rewritten(source, target, change):
    head, *lines, tail = source.read_text().split("\n")
    first = next(k for k, line in enumerate(lines) if line.startswith('{"type": "Feature",'))
    features = [json.loads(line.rstrip(",")) for line in lines[first:] if line != "]}"]
    change(features)
    body = ",\n".join(map(json.dumps, features))
    target.write_text("\n".join([head, *lines[:first], body, "]}", tail]))


@pytest.mark.parametrize(
    ("change", "message"), MUTATIONS, ids=lambda one: getattr(one, "__name__", "")
)
def test_every_change_is_found(searched, tmp_path, change, message):
    store, ends, folder = searched
    file = tmp_path / "p.geojson"
    rewritten(folder / "p.geojson", file, lambda features: None)
    verify_stored_paths(store, "distance", file, ends=ends)
    rewritten(folder / "p.geojson", file, change)
    with pytest.raises(VerificationError, match=message):
        verify_stored_paths(store, "distance", file, ends=ends)
    if change not in UNKNOWN_ENDS and change.__name__ != "wrong_target":
        with pytest.raises(VerificationError, match=r"p\.geojson: line"):
            verify_stored_paths(store, "distance", file)


@pytest.mark.parametrize("name", ["cost", "length", "cells", "source"])
def test_changes_of_a_geopackage(searched, tmp_path, name):
    store, ends, folder = searched
    file = tmp_path / "p.gpkg"
    shutil.copy(folder / "p.gpkg", file)
    with closing(sqlite3.connect(file)) as base:
        for name_of in ("ST_IsEmpty", "ST_MinX", "ST_MaxX", "ST_MinY", "ST_MaxY"):
            base.create_function(name_of, 1, lambda geometry: 0)  # of triggers
        base.execute(f"UPDATE paths SET {name} = {name} + 1 WHERE fid = 2")
        base.commit()
    for known in (ends, None):
        with pytest.raises(VerificationError, match=f"line 2: {name} is"):
            verify_stored_paths(store, "distance", file, ends=known)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_damaged_file_is_named(searched, tmp_path, ending):
    store, _, folder = searched
    file = tmp_path / f"p{ending}"
    data = (folder / f"p{ending}").read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(VerificationError, match=f"p{ending}"):
        verify_stored_paths(store, "distance", file)


def test_a_layer_without_backlinks(searched, tmp_path):
    store, ends, folder = searched
    other = tmp_path / "s.zarr"
    shutil.copytree(store.path, other)
    opened = TileStore.open(other)
    shortest_paths(opened, ends.sources, cost="tobler", into="walk")
    with pytest.raises(StoreError, match=r"walk_backlink.*--backlink or --path"):
        verify_stored_paths(TileStore.open(other), "walk", folder / "p.geojson")


# -- the commands ------------------------------------------------------------------------------

PLACES = "--source-rowcol 2,3 --source-rowcol 30,40"
COMMANDS = {
    "compute-sssp": (
        f"s.zarr {PLACES} --target-rowcol 9,9 --into walk --path p.geojson --verify",
        "line 1: its steps up to row",
    ),
    "cost-matrix": (
        f"s.zarr {PLACES} -o m.csv --path p.geojson --verify",
        "line 1: the steps of the path from 1 to 2, as far as row 30, column 40, cost",
    ),
    "least-cost-network": (
        f"s.zarr {PLACES} -o p.geojson --pairs all --verify",
        "line 1: the steps of the path from 1 to 2, as far as row 30, column 40, cost",
    ),
}


def call(name, words):
    line = [name, *words.split(), "--cost", "tobler", "--overwrite"]
    if name == "least-cost-network":
        line[-3:-1] = ["--cost", "surface"]
    return options._guarded(lambda: group.main(line, standalone_mode=False))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_file_does_not_get_its_name(searched, tmp_path, monkeypatch, capfd, name):
    words, message = COMMANDS[name]
    shutil.copytree(searched[0].path, tmp_path / "s.zarr")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "p.geojson"
    assert call(name, words) == 0
    right = file.read_bytes()

    def around(grid, cells):
        """The same way, but over another cell where it goes askew."""
        askew = np.flatnonzero((np.diff(cells, axis=0) != 0).all(axis=1))[0]
        beside = cells[askew, 0], cells[askew + 1, 1]
        return cell_centres(grid, np.insert(cells, askew + 1, beside, axis=0))

    module = {"compute-sssp": output, "cost-matrix": table, "least-cost-network": files}[name]
    monkeypatch.setattr(module, "cell_centres", around)
    assert call(name, words) == 1
    shown = capfd.readouterr().err
    assert message in shown
    assert file.read_bytes() == right
