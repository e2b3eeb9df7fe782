"""Shortest paths over 16 neighbours."""

from __future__ import annotations

import math
import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import rasterio
import strategies
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from test_paths import (
    assert_same,
    fields_in_memory,
    make_store,
    solve,
    solve_store,
    within_reach,
)

from terrain_gpu import (
    GridSpec,
    InputError,
    VerificationError,
    export_layer,
    shortest_paths,
    tied_steps,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.compute_sssp import command as compute_sssp
from terrain_gpu.cli.main import group
from terrain_gpu.engine.proof import Limits
from terrain_gpu.grid import neighbours
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.io.proof.raster import verify_exported
from terrain_gpu.paths.proof import ring_of, verify_paths
from terrain_gpu.paths.proof.roots import KnownRoots
from terrain_gpu.paths.proof.stored import RecordedPaths, verify_stored
from terrain_gpu.paths.relax.relaxation import Relaxation
from terrain_gpu.store import TileStore, create_layer


@pytest.fixture(scope="module")
def no_fsync_session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


problems = strategies.cost_problems(
    strategies.rasters(shape=strategies.shapes(200, 4000)), connectivities=(16,)
)


@given(
    strategies.cost_problems(
        strategies.rasters(shape=strategies.shapes(200, 4000)),
        geographic=False,
        connectivities=(16,),
    ),
    st.sampled_from([64, 128]),
    st.sampled_from([1, 2, 4]),
)
def test_arrays(problem, block, threads):
    hypothesis.assume(problem.sources)
    within_reach(problem)
    assert_same(solve(problem, block_size=block, threads=threads, verify=True), problem)


@given(problems, st.sampled_from([64, 128]), st.sampled_from([1, 2, 100]), st.booleans())
def test_stores(folders, no_fsync_session, problem, block, fields, linked):
    """With spilled fields; the proof of what is stored, with backlinks and without."""
    hypothesis.assume(problem.sources)
    within_reach(problem)
    with folders() as folder, fields_in_memory(fields):
        store = make_store(folder / "s.zarr", problem, block)
        assert_same(solve_store(store, problem, threads=2), problem)
        if linked:
            assert verify_stored(TileStore.open(store))["backend"] == "cpu"


@given(
    shape=strategies.shapes(150, 3000),
    cost=st.sampled_from(
        ["length*(1 + slope*slope)", "friction_from*length", "length*exp(3.5*abs(slope+0.05))"]
    ),
    reverse=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_formulas(shape, cost, reverse, seed):
    """`verify` compares every step with the interpreted formula."""
    rng = np.random.default_rng(seed)
    z, f = rng.integers(0, 50, shape).astype(np.float32), rng.uniform(1, 5, shape)
    friction = f if "friction" in cost else None
    how = {"friction": friction, "reverse": reverse, "connectivity": 16, "verify": True}
    found = shortest_paths(z, [(0, 0)], cost=cost, block_size=64, max_slope=40.0, **how)
    assert found.reached > 0


def test_a_formula_equals_its_model():
    """Bits of the friction model, by a formula and by the compiled function."""
    f = np.random.default_rng(3).uniform(1, 9, (90, 70))
    f[np.random.default_rng(4).random(f.shape) < 0.1] = np.nan
    f[0, 0] = 1
    both = [
        shortest_paths(f, [(0, 0)], cost=cost, friction=f, connectivity=16).distance()
        for cost in ("friction", "friction * length")
    ]
    np.testing.assert_array_equal(*both)


FRICTIONS = """
4.59 7.46 3.53 1.74 9.73 nan 6.80 6.19 5.28 2.10 nan 7.63 9.17 9.00 9.53 1.23 7.64 7.05 6.63 nan
nan nan 8.08 1.07 9.29 2.18 4.38 5.96 6.47 5.94 nan 8.92 4.57 8.86 3.97 6.63 8.65 2.08 2.54 nan
2.13 1.15 2.72 nan 7.32 7.30 2.93 3.02 nan 1.20 2.21 7.77 4.06 2.50 4.11 3.17 9.47 9.47 9.39
7.48 6.86 6.17 4.68 7.27 nan 7.77 7.61 6.56 5.38 nan 7.78 7.39 2.40 3.27 7.05 7.17 6.33 6.97
9.31 1.65 5.59 3.99 1.18 7.12 1.43 1.35 3.34 nan 7.58 1.05 6.84 4.02 9.84 6.19 7.01 8.74 3.01
3.16 8.24 9.99 5.50 nan nan 2.17 1.92 7.81 6.87 4.38
"""
COSTS = """
26.9866110165 20.9616110165 15.4666110165 13.5857827381 19.3207827381 nan 20.1392289914
23.3234411743 29.0584411743 32.7484411743 nan 37.5554617358 25.4700602232 23.0343982567
17.4807827381 12.1007827381 13.6761602807 11.865 14.2583322395 nan nan nan 35.6666435586
33.2054617358 23.1793982567 17.4443982567 14.1643982567 8.99439825669 6.84795818109 5.37 nan
11.9218203308 18.6668203308 25.3818203308 29.6416435586 33.3168741275 22.0895003005
17.2184880913 15.0048058968 nan 3.27390439689 1.825 3.69109739779 nan 14.3625501346
21.6725501346 26.7875501346 29.7625501346 nan 15.89 14.185 9.195 3.28 0 3.305 6.945 13.265
22.735 32.165 34.1485317268 21.5892806564 19.575 16.5734241262 11.2915198308 nan 5.135
7.1488495578 10.8498293553 12.9907629791 nan 26.6813535189 28.2612586336 25.0299230367
22.1949230367 21.4172889374 18.5115198308 15.1052056147 12.505 15.1996720771 13.6966583516
17.3166583516 19.6163535189 22.2013535189 26.3513535189 25.5183249082 24.5049230367
25.1719118012 nan 20.83 16.515 19.6999949239 16.5316583516 21.8213152674 24.7063535189
26.2963535189 29.2158527882 27.2596170057 26.7599230367 30.9619118012 28.8915494168
21.1465494168 nan nan 19.6266583516 20.7318726318 25.5968726318 32.9368726318 34.114005669
"""
"""What r.cost -k of GRASS 8.2.1 makes of them, from row 4, column 5, over cells of 1 x 1."""


OUTDIR = """
360 360 315 270 180 -1 247.5 225 180 180 -1 270 315 270 360 292.5 292.5 270 225 -1 -1 -1 270 225
360 360 360 315 292.5 270 -1 225 180 180 225 202.5 337.5 315 45 -1 315 270 225 -1 225 180 180 180
-1 360 360 360 360 -1 180 180 180 180 180 135 45 90 22.5 45 -1 90 135 135 135 -1 270 225
360 45 45 90 45 90 112.5 135 180 135 180 180 45 90 67.5 -1 360 90 45 90 135 90 90 135
67.5 90 90 360 45 -1 -1 90 135 180 180 112.5
"""
"""Its directions; -1 is null."""


def test_r_cost_with_knights_agrees(tmp_path):
    f, costs, outdir = (
        np.array(text.split(), float).reshape(9, 12) for text in (FRICTIONS, COSTS, OUTDIR)
    )
    outdir[4, 5] = 0  # the source, null there
    store = str(tmp_path / "s.zarr")
    with create_layer(store, "elevation", GridSpec(*f.shape), f.dtype, nodata=np.nan) as writer:
        writer.write_block(0, 0, f)
        writer.commit()
    how = {"cost": "friction", "friction": "elevation", "connectivity": 16, "backlink": True}
    found = shortest_paths(store, [(4, 5)], **how)
    np.testing.assert_allclose(found.distance(), costs, rtol=1e-11)
    for cog in (False, True):
        how = {"layer": "backlink", "encoding": "r.cost", "cog": cog, "overwrite": True}
        export_layer(store, tmp_path / "d.tif", verify=True, **how)
        with rasterio.open(tmp_path / "d.tif") as file:
            assert (file.dtypes[0], file.nodata) == ("float32", -1)
            np.testing.assert_array_equal(file.read(1), outdir)
        limits = Limits.of(1 << 30, 1)
        verify_exported(tmp_path / "d.tif", TileStore.open(store).layer("backlink"), limits)


@pytest.mark.parametrize(("connectivity", "most"), [(4, 0.4143), (8, 0.0824), (16, 0.0275)])
def test_relative_errors_on_a_plain(connectivity, most):
    """The error of a distance is largest between two directions of steps."""
    plain = np.ones((201, 201))
    found = shortest_paths(
        plain, [(100, 100)], cost="friction", friction=plain, connectivity=connectivity
    ).distance()
    row, col = np.indices(plain.shape) - 100
    right = np.hypot(row, col)
    errors = found[right > 0] / right[right > 0] - 1
    assert errors.min() > -1e-12
    assert most - 0.0005 < errors.max() <= most


def test_barriers_cannot_be_jumped():
    """A wall of one cell, a diagonal one too where corners are closed."""
    z, wall = np.ones((9, 9), np.float32), np.zeros((9, 9), np.uint8)
    wall[:, 4] = 1
    how = {"cost": "surface", "connectivity": 16}
    assert np.isnan(shortest_paths(z, [(4, 0)], barriers=wall, **how).distance()[:, 4:]).all()
    diagonal = np.eye(9, dtype=np.uint8)
    closed = shortest_paths(z, [(8, 0)], barriers=diagonal, corner_cutting=False, **how).distance()
    assert np.isnan(closed[np.triu_indices(9)]).all()
    opened = shortest_paths(z, [(8, 0)], barriers=diagonal, **how).distance()
    assert np.isfinite(opened[0, 8])


def test_paths_have_the_lengths_of_their_steps():
    f = np.ones((70, 70))
    found = shortest_paths(
        f, [(0, 0)], cost="friction", friction=f, connectivity=16, backlink=True, block_size=64
    )
    (path,) = found.paths([(64, 32)], [(0, 0)])
    assert len(path.cells) == 33
    assert path.length == pytest.approx(32 * math.sqrt(5))
    assert path.cost == pytest.approx(path.length)


def test_lengths_of_moves():
    """On the ellipsoid: twice the parallel beside one row, or once beside two."""
    grid = GridSpec(3, 2, (0.125, 0.0, 7.0, 0.0, -0.125, 50.0), strategies.WGS84)
    lengths = step_lengths(grid, 16)
    np.testing.assert_array_equal(lengths[:4], step_lengths(grid))
    across, _, down, _, flat, steep, *_ = lengths
    mean = (across[0] + across[1]) / 2
    assert flat[0] == pytest.approx(math.hypot(2 * mean, down[0]), rel=1e-6)
    assert steep[0] == pytest.approx(math.hypot(across[1], down[0] + down[1]), rel=1e-6)
    planar = step_lengths(GridSpec(3, 2, (2.0, 0.0, 0.0, 0.0, -3.0, 0.0)), 16)[:, 0]
    assert planar[4:].tolist() == [5, math.hypot(2, 6), math.hypot(2, 6), 5]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"method": "dijkstra"}, "method 'dijkstra' supports 4 or 8 neighbours; use method relax"),
        ({"connectivity": 32}, "connectivity 32 is not 8 or 4 or 16"),
    ],
)
def test_refusals(how, words):
    with pytest.raises(InputError, match=words):
        shortest_paths(np.ones((4, 4)), [(0, 0)], **{"connectivity": 16, **how})


@pytest.fixture
def stored(tmp_path):
    z = np.random.default_rng(5).integers(0, 99, (150, 140)).astype(np.int16)
    path = tmp_path / "s.zarr"
    with create_layer(path, "elevation", GridSpec(*z.shape), z.dtype, block_size=64) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(z[r0:r1, c0:c1]))
        writer.commit()
    shortest_paths(path, [(3, 5)], connectivity=16, backlink=True, allocation=True)
    return path


def test_ties_and_encodings_are_refused(stored):
    with pytest.raises(InputError, match="tied-steps needs steps to 4 or 8 neighbours"):
        tied_steps(stored)
    for encoding in ("taudem", "esri-degrees", "nextxy"):
        with pytest.raises(InputError, match=r"16 neighbours, for which encoding .* use 'r.cost'"):
            export_layer(stored, stored.parent / "b.tif", layer="backlink", encoding=encoding)


def test_overviews_have_no_averages_of_degrees(tmp_path):
    z = np.arange(600, dtype=np.int16) % 7 + np.zeros((600, 1), np.int16)
    with create_layer(tmp_path / "s.zarr", "elevation", GridSpec(*z.shape), z.dtype) as writer:
        writer.write_block(0, 0, z)
        writer.commit()
    shortest_paths(tmp_path / "s.zarr", [(300, 200)], connectivity=16, backlink=True)
    file = tmp_path / "b.tif"
    export_layer(tmp_path / "s.zarr", file, layer="backlink", encoding="r.cost", cog=True)
    with rasterio.open(file) as data, rasterio.open(file, overview_level=0) as coarse:
        assert {*coarse.read(1).ravel().tolist()} <= {*data.read(1).ravel().tolist()}


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("change", [0.5, -0.5])
def test_the_proof_finds_a_wrong_cell(stored, linked, change):
    """Proofs of this store, and of one with a cell that is too near or too far."""
    store = TileStore.open(stored)
    assert verify_stored(store)["checked_steps"] > 15 * 150 * 140 * 0.95
    layers = store.layer("distance"), store.layer("backlink")
    problem = RecordedPaths(layers[0])
    terrain, farthest = problem.problem(store)
    distances, codes = (layer.read_window(*layer.grid.window) for layer in layers)
    distances[70, 70] += change
    read = ring_of(distances, math.nan)
    backlinks = ring_of(codes, 255) if linked else None
    roots = KnownRoots(terrain, linked=linked)
    how = terrain.model.kernel, problem.options, distances.dtype, read, backlinks
    with pytest.raises(VerificationError) as error:
        verify_paths(roots, *how, farthest=farthest, threads=2)
    assert abs(error.value.row - 70) <= 2
    assert abs(error.value.col - 70) <= 2


def test_resume_gives_the_same_bits(stored, tmp_path, monkeypatch):
    """A run that is interrupted, with its fields spilled, and goes on with other threads."""
    whole = TileStore.open(stored).layer("distance").read_window(0, 150, 0, 140)
    usual, count = Relaxation._visit, [0]

    def visit(self, at, work):
        count[0] += 1
        if count[0] == 5:
            raise KeyboardInterrupt
        usual(self, at, work)

    how = {"connectivity": 16, "backlink": True, "into": "again"}
    with fields_in_memory(1), monkeypatch.context() as patch:
        patch.setattr(Relaxation, "_visit", visit)
        with pytest.raises(KeyboardInterrupt):
            shortest_paths(stored, [(3, 5)], threads=1, **how)
    found = shortest_paths(stored, [(3, 5)], threads=2, resume=True, **how)
    assert found.report.result["blocks_resumed"] > 0
    np.testing.assert_array_equal(found.distance(), whole)


def test_the_command(stored):
    command = f"{stored} --source-rowcol 3,5 --connectivity 16 --overwrite --verify"
    command += f" --target-rowcol 149,70 --path {stored.parent / 'way.geojson'} -q"
    done = CliRunner().invoke(compute_sssp, command.split())
    assert done.exit_code == 0, done.output
    assert '"type": "LineString"' in (stored.parent / "way.geojson").read_text()


def test_the_format_tells_the_codes():
    """The tables of docs/format.md are those of the kernels."""
    text = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
    rows = {kind: [x for row in lines if row[0] == kind for x in row[1:]]
            for kind in ("direction", "code", "rows, columns")}  # fmt: skip
    steps = zip(neighbours.ROW_STEP_16.tolist(), neighbours.COL_STEP_16.tolist(), strict=True)
    assert rows["direction"] == neighbours.NAMES_16
    assert rows["code"] == [str(code) for code in neighbours.CODE_16.tolist()]
    assert rows["rows, columns"] == [f"{down}, {right}" for down, right in steps]
    assert f'"{neighbours.KNIGHT_BACKLINKS}"' in text


def test_the_index_says_where_16_neighbours_are(capfd):
    words = ["build-index", "s.zarr", "--connectivity", "16"]
    code = options._guarded(lambda: group.main(words, standalone_mode=False))
    assert code == 2
    assert "16 neighbours are for cost distances; use 8 or 4 here" in capfd.readouterr().err
