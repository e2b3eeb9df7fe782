"""Distances by the continuous metric: against plain Python, the closed form, and its proof."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import reference
from contract import Stop, change, make_store, stop_at, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from samples import make_layers, round_the_earth
from test_paths import fields_in_memory

from terrain_gpu import GridSpec, create_layer, shortest_paths, tied_steps
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.paths.cost_distance.operation import CostDistance
from terrain_gpu.paths.proof.stored import verify_stored
from terrain_gpu.store import TileStore

pytestmark = pytest.mark.usefixtures("no_fsync")

HOW = {"cost": "friction", "metric": "continuous", "backend": "cpu"}


def unreached_as_nan(found):
    return np.where(np.isinf(found), np.nan, found)


@settings(max_examples=examples(12))
@given(
    seed=st.integers(0, 10**6),
    shape=st.sampled_from([(1, 90), (70, 3), (13, 40), (2, 131), (66, 9)]),
    kind=st.sampled_from(["even", "classes", "wild"]),
    cutting=st.booleans(),
    size=st.sampled_from([(1.0, 1.0), (0.25, 3.0)]),
    limited=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_the_bits_of_plain_python(seed, shape, kind, cutting, size, limited, threads):
    rng = np.random.default_rng(seed)
    f = {
        "even": np.full(shape, 2.0),
        "classes": rng.integers(1, 4, shape).astype(float),
        "wild": 10.0 ** rng.integers(-9, 9, shape),
    }[kind]
    f[rng.random(shape) < 0.2] = np.nan
    barriers = rng.random(shape) < 0.1
    good = np.argwhere(~np.isnan(f) & ~barriers)
    if not len(good):
        return
    chosen = good[rng.integers(len(good), size=2)].tolist()
    sources = [(*chosen[0], 0), (*chosen[1], 3.5)]
    lengths = step_lengths(GridSpec(*shape, (size[0], 0, 0, 0, -size[1], 0)))
    how = {"corner_cutting": cutting, "max_cost": 20.0 if limited else None}
    right = reference.continuous(
        f, ~np.isnan(f) & ~barriers, sources, lengths,
        corner_cutting=cutting, max_cost=20.0 if limited else math.inf,
    )  # fmt: skip
    found = shortest_paths(
        f, sources, friction=f, barriers=barriers, cell_size=size, block_size=64,
        threads=threads, verify=True, **HOW, **how,
    )  # fmt: skip
    np.testing.assert_array_equal(found.distance(), unreached_as_nan(right))


def test_errors_and_steps():
    """On a plain they vanish with the distance; no distance exceeds that by steps."""
    plain = np.ones((150, 150))
    found = shortest_paths(plain, [(0, 0)], friction=plain, **HOW).distance()
    radius = np.hypot(*np.mgrid[:150, :150])
    off = found / np.where(radius == 0, 1, radius) - 1
    assert off[radius > 0].min() > -1e-12
    assert off[radius >= 100].max() < 0.008
    assert off[radius > 0].max() < 0.05
    rough = np.random.default_rng(1).integers(1, 9, plain.shape).astype(float)
    found = shortest_paths(rough, [(9, 9)], friction=rough, **HOW).distance()
    steps = shortest_paths(rough, [(9, 9)], cost="friction", friction=rough).distance()
    assert (found <= steps).all()
    assert found.sum() < 0.995 * steps.sum()


@pytest.fixture(scope="module")
def geographic(tmp_path_factory):
    """A store around 60 degrees, and its distances by plain Python."""
    rng = np.random.default_rng(4)
    f = rng.random((100, 130)) + 0.1
    f[rng.random(f.shape) < 0.1] = -1
    f[3, 5] = f[99, 129] = 1
    grid = GridSpec(*f.shape, (0.01, 0, 7, 0, -0.01, 60.5), CRS.from_epsg(4326).to_wkt(), "")
    store = tmp_path_factory.mktemp("front") / "s.zarr"
    with create_layer(store, "elevation", grid, f.dtype, nodata=-1, block_size=64) as made:
        for at in made.blocks.ids():
            r0, r1, c0, c1 = made.block_window(*at)
            made.write_block(*at, np.ascontiguousarray(f[r0:r1, c0:c1]))
        made.commit()
    grid = TileStore.open(store).grid
    sources = [(3, 5, 0), (99, 129, 0)]
    return store, unreached_as_nan(reference.continuous(f, f != -1, sources, step_lengths(grid)))


def run(store, **more):
    return shortest_paths(store, [(3, 5), (99, 129)], friction="elevation", **HOW, **more)


def test_stores(geographic, cluster):
    """With spilled fields, stopped and resumed, in workers; and the proof of what is stored."""
    store, right = geographic
    with fields_in_memory(1):
        found = run(store)
    np.testing.assert_array_equal(whole(found.layers["distance"]), right)
    told = verify_stored(TileStore.open(store))
    assert (told["reached"], told["sources"]) == (np.isfinite(right).sum(), 2)
    with pytest.raises(Stop):
        run(store, overwrite=True, threads=1, progress=stop_at(0.6))
    run(store, overwrite=True, resume=True, verify=True)
    np.testing.assert_array_equal(whole(TileStore.open(store).layer("distance")), right)
    run(store, into="remote", client=cluster, verify=True)
    np.testing.assert_array_equal(whole(TileStore.open(store).layer("remote")), right)
    with pytest.raises(InputError, match="needs steps between neighbours"):
        tied_steps(store)


@pytest.mark.parametrize("shape", [(65, 129), (30, 63), (5, 3)])
def test_across_the_seam(shape):
    """What a raster that is unrolled gives, and what a rolled one gives, rolled."""
    f = 10.0 ** np.random.default_rng(2).integers(-1, 3, shape)
    f[np.random.default_rng(5).random(shape) < 0.1] = np.nan
    sources = [tuple(map(int, cell)) for cell in np.argwhere(~np.isnan(f))[[1, -1]]]
    how = {**HOW, "verify": True, "block_size": 64, "threads": 1, "corner_cutting": False}
    found = shortest_paths(f, sources, friction=f, wrap="yes", **how).distance()
    cols = shape[1]
    moved = [(row, (col + 2) % cols) for row, col in sources]
    rolled = np.roll(f, 2, axis=1)
    again = shortest_paths(rolled, moved, friction=rolled, wrap="yes", **how).distance()
    np.testing.assert_array_equal(again, np.roll(found, 2, axis=1))
    turns = 9 if cols == 3 else 3
    unrolled = np.tile(f, (1, turns))
    copies = [(row, col + k * cols) for row, col in sources for k in range(turns)]
    middle = np.s_[:, turns // 2 * cols : (turns // 2 + 1) * cols]
    right = shortest_paths(unrolled, copies, friction=unrolled, **how).distance()[middle]
    np.testing.assert_array_equal(found, right)


def test_a_store_of_the_whole_earth(tmp_path):
    f = np.random.default_rng(1).random((70, 100)) + 0.1
    make_layers(tmp_path / "s.zarr", round_the_earth(f.shape), {"elevation": f})
    found = shortest_paths(tmp_path / "s.zarr", [(30, 1)], friction="elevation", **HOW)
    assert found.report.result["wrap"] is True
    store = TileStore.open(tmp_path / "s.zarr")
    assert verify_stored(store)["reached"] == f.size
    assert whole(store.layer("distance"))[30, 99] < 0.1 * whole(store.layer("distance"))[30, 50]


@pytest.mark.parametrize("cell", [(3, 5), (20, 20), (64, 100), (0, 0)])
def test_its_proof_refuses_mutations(geographic, monkeypatch, cell):
    """A bit of one cell: a source, inside a block, on its rim, and where there is no value."""
    store = geographic[0]
    change(monkeypatch, CostDistance, "wrong", cell)
    with pytest.raises(VerificationError):
        run(store, into="wrong", overwrite=True, verify=True)
    run(store, into="wrong", overwrite=True)
    with pytest.raises(VerificationError):
        verify_stored(TileStore.open(store), "wrong")


@pytest.mark.parametrize(
    ("key", "value"),
    [("cost", "absdiff"), ("connectivity", 16), ("max_slope", 2.0), ("wrap", 2)],
)
def test_a_damaged_record(tmp_path, key, value):
    store = make_store(tmp_path / "s.zarr", np.ones((70, 70)), -1, 64)
    shortest_paths(store, [(0, 0)], friction="elevation", **HOW)
    file = store / "distance" / "zarr.json"
    text = json.loads(file.read_text())
    del text["attributes"]["terrain_gpu"]["checksum"]
    text["attributes"]["terrain_gpu"]["settings"][key] = value
    file.write_text(json.dumps(text))
    with pytest.raises(StoreError, match=f"{key} is recorded as"):
        verify_stored(TileStore.open(store))


def call(capfd, words):
    code = options._guarded(lambda: group.main(words.split(), standalone_mode=False))
    return code, *capfd.readouterr()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cost": "absdiff"}, "does not support cost 'absdiff': use cost friction"),
        ({"connectivity": 16}, "connectivity 16"),
        ({"method": "dijkstra"}, "method 'dijkstra'"),
        ({"backlink": True}, "backlinks, allocation, ties or paths"),
        ({"allocation": True}, "backlinks, allocation, ties or paths"),
        ({"metric": "euclidean"}, "metric 'euclidean'"),
    ],
)
def test_what_it_refuses(more, message):
    f = np.ones((4, 5))
    with pytest.raises(InputError, match=message):
        shortest_paths(f, [(0, 0)], friction=f, **{**HOW, **more})


def test_no_friction_is_refused(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = np.ones((70, 70))
    cells[65, 3] = 0
    make_store(tmp_path / "s.zarr", cells, -1, 64)
    words = "compute-sssp s.zarr --source-rowcol 0,0 --cost friction --friction elevation"
    code, _, err = call(capfd, f"{words} --metric continuous --backend cpu")
    assert (code, "the friction at row 65, column 3 is less than 1e-30" in err) == (2, True), err
    assert "distance" not in TileStore.open("s.zarr").layers
    code, _, err = call(capfd, f"{words} --metric continuous --path p.gpkg --target-rowcol 9,9")
    assert (code, "does not support backlinks, allocation, ties or paths" in err) == (2, True), err
