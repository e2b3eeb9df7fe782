"""Shortest paths by formulas: the whole way, from the option to the proof."""

from __future__ import annotations

import json
import logging
import math

import numpy as np
import pytest
import reference
import strategies
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import make_layers
from strategies import cost_problems
from test_mst import make_store
from test_paths import make_store as store_of

from terrain_gpu import TileStore, build_index, query_index, shortest_paths
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.paths.cost import models as costs
from terrain_gpu.paths.cost.models import MODELS, CostModel
from terrain_gpu.paths.cost.proof import interpreted, wrong_price
from terrain_gpu.paths.proof.stored import verify_stored

CPU = {"backend": "cpu"}
ALL = {**CPU, "backlink": True, "allocation": True}


def hills(rows=150, cols=170, seed=0):
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.normal(0, 2, (rows, cols)), axis=1)


# -- the results -----------------------------------------------------------------------------------


@given(cost_problems(models=("friction", "surface", "tobler", "langmuir")), st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_a_formula_equals_its_model(tmp_path_factory, problem, verify):
    """And so Dijkstra's algorithm, with which all models are compared."""
    if not problem.sources or problem.exact:
        return
    store = store_of(tmp_path_factory.mktemp("s") / "s.zarr", problem, 64)
    model, text = MODELS[problem.model], MODELS[problem.model].formula
    with_friction = problem.friction is not None
    own = {}
    if problem.model == "langmuir":
        own = dict(model.kernel()._asdict())
        if not with_friction:
            text = text.removesuffix(" + lam * friction * length")
            own.pop("lam")
    elif with_friction and problem.model != "friction":
        text = f"({text}) * friction"
    how = {
        "friction": "friction" if with_friction else None,
        "barriers": None if problem.barriers is None else "barriers",
        "connectivity": problem.connectivity,
        "corner_cutting": problem.corner_cutting,
        "reverse": problem.reverse,
        "max_cost": problem.max_cost,
        "overwrite": True,
        **ALL,
    }
    sources = [(r, c, cost or 0) for r, c, cost, _ in problem.sources]
    expected = shortest_paths(store, sources, cost=problem.model, **how)
    expected = [expected.distance(), expected.backlink(), expected.allocation()]
    found = shortest_paths(store, sources, cost=text, parameters=own, verify=verify, **how)
    for mine, right in zip(
        (found.distance(), found.backlink(), found.allocation()), expected, strict=True
    ):
        np.testing.assert_array_equal(mine, right)
    assert found.report.settings["parameters"] == own


@pytest.mark.parametrize("method", ["relax", "dijkstra"])
@pytest.mark.parametrize("reverse", [False, True])
def test_as_dijkstra(method, reverse):
    """A cost that no model has, with a limit of the slope."""
    z, f = hills(70, 90), np.random.default_rng(1).uniform(0, 2, (70, 90))

    def cost(za, zb, fa, fb, length):
        if abs(zb - za) > 0.5 * length:
            return math.inf
        return max(0.0, length + 3 * (zb - za)) * (fa + 2 * fb)

    expected = reference.dijkstra(z, cost, [(4, 5, 0, 1)], f=f, reverse=reverse)
    found = shortest_paths(
        z,
        [(4, 5)],
        cost="max(0, length + 3 * dz) * (friction_from + 2 * friction_to)",
        friction=f,
        max_slope=0.5,
        reverse=reverse,
        method=method,
        verify=True,
        **CPU,
    ).distance()
    expected = expected.astype(float)
    expected[np.isinf(expected)] = np.nan
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(found, expected)


def test_slopes_at_the_limit_are_passable():
    z = np.array([[0, 1, 3, 3, 4.001]])
    found = shortest_paths(z, [(0, 0)], cost="absdiff", max_slope=1, cell_size=2, **CPU)
    assert found.distance().tolist()[0][:4] == [0, 1, 3, 3]
    assert found.reached == 5
    found = shortest_paths(z, [(0, 0)], cost="absdiff", max_slope=0.5, cell_size=2, **CPU)
    assert found.reached == 2
    whole = shortest_paths(z.astype(int), [(0, 0)], max_slope=1, cell_size=2, **CPU).distance()
    assert whole.dtype == np.float64


def test_a_step_without_a_number_does_not_exist():
    """Length 0, roots and logarithms of negative numbers: as infinite costs."""
    z = np.array([[0.0, 1.0, 0.0, 5.0]])
    found = shortest_paths(z, [(0, 0)], cost="sqrt(dz)", verify=True, **CPU)
    np.testing.assert_array_equal(found.distance(), [[0, 1, np.nan, np.nan]])
    found = shortest_paths(z, [(0, 0)], cost="length / (dz - 1)**2", verify=True, **CPU)
    np.testing.assert_array_equal(found.distance(), [[0, np.nan, np.nan, np.nan]])
    assert shortest_paths(z, [(0, 0)], cost="0", verify=True, **CPU).distance().tolist() == [
        [0] * 4
    ]


@pytest.mark.parametrize(
    "options_", [(True, True, False), (False, True, True), (True, False, True)]
)
def test_interpreted_steps_are_those_of_kernels(options_):
    from terrain_gpu.grid import BlockGrid
    from terrain_gpu.grid.lengths import step_lengths
    from terrain_gpu.io.places import NO_PLACES
    from terrain_gpu.paths.cost.terrain import Raster, Terrain

    z = hills(100, 70)
    z[np.random.default_rng(2).random(z.shape) < 0.3] = np.nan
    model = CostModel("max(0, length + dz) * exp(slope)", False, {})
    grid, blocks = GridSpec(*z.shape), BlockGrid(*z.shape, 128)
    dtype = np.dtype(np.float64)
    lengths = step_lengths(grid)
    ground = Terrain(blocks, model, Raster(z, "z"), None, None, lengths, NO_PLACES, dtype)
    field = ground.load((0, 0))
    assert wrong_price(model.tree, model.kernel, field, options_) is None
    assert np.isfinite(interpreted(model.tree, field, 0, 0, options_)).any()
    other = model.kernel._replace(constants=model.kernel.constants + 0.5)
    row, col, _, found, right = wrong_price(model.tree, other, field, options_)
    assert found != right
    assert not np.isnan(z[row, col])


def test_the_proof_finds_a_wrong_program(monkeypatch):
    usual = costs.compiled

    def wrong(tree):
        found = usual(tree)
        return found._replace(constants=found.constants * (1 + 1e-15))

    monkeypatch.setattr(costs, "compiled", wrong)
    how = {"cost": "length * exp(0.3 * abs(slope))", **CPU}
    shortest_paths(hills(), [(4, 5)], **how)
    with pytest.raises(VerificationError, match="but the formula gives") as caught:
        shortest_paths(hills(), [(4, 5)], verify=True, **how)
    assert caught.value.check == "cost"


# -- negative costs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "length / friction",
        "length / friction_from",
        "length / max(friction, 0)",
        "length / (0 * dz + friction)",
        "length / sqrt(0 * dz * friction) + length",
        "where(friction_to > 0, length / friction_to, 1 / friction_to)",
    ],
)
def test_a_negative_zero_divides_as_zero(text):
    heights, friction = hills(4, 6), np.ones((4, 6))
    friction[1, 2:4] = np.round(-0.2)
    assert np.signbit(friction).sum() == 2
    found = [
        shortest_paths(heights, [(0, 0)], cost=text, friction=layer, verify=True, **CPU).distance()
        for layer in (friction, friction + 0.0)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.nanmin(found[0]) == 0


def test_downhill_of_a_table_of_roots_does_not_exist():
    """The square root of a negative height difference is NaN, and so is `interp` of it."""
    heights = np.array([[3.0, 2.0, 0.0, 1.0]])
    found = shortest_paths(heights, [(0, 2)], cost="1 / interp(sqrt(dz), 0, 1, 9, 1)", **CPU)
    assert np.array_equal(found.distance(), [[2, 1, 0, 1]])
    found = shortest_paths(heights, [(0, 0)], cost="1 / interp(sqrt(dz), 0, 1, 9, 1)", **CPU)
    assert np.array_equal(found.distance(), [[0, np.nan, np.nan, np.nan]], equal_nan=True)


def test_negative_costs_are_refused():
    z = np.full((100, 130), 5.0)
    z[70, 90] = 8
    message = r"the step from row 70, column 90 to row 69, column 89 costs -1.58"
    for block in (None, 64):
        with pytest.raises(InputError, match=message):
            shortest_paths(z, [(1, 1)], cost="length + dz", block_size=block, **CPU)
    # Only of steps that exist.
    with pytest.raises(InputError, match="row 70, column 90 to row 69, column 90 costs -2"):
        shortest_paths(z, [(1, 1)], cost="length + dz", connectivity=4, **CPU)
    with pytest.raises(InputError, match="row 70, column 91 to row 70, column 90 costs -2"):
        shortest_paths(z, [(1, 1)], cost="length - dz", **CPU)
    barriers = z == 8
    assert shortest_paths(z, [(1, 1)], cost="length + dz", barriers=barriers, **CPU).reached
    found = shortest_paths(z, [(1, 1)], cost="length + 0.3 * dz", verify=True, **CPU)
    assert found.reached == z.size


def test_negative_costs_are_refused_in_stores(tmp_path):
    store = make_store(tmp_path / "s.zarr", hills(), None, 64)
    with pytest.raises(InputError, match=r"elevation: the step from .* must be at least 0"):
        shortest_paths(store, [(1, 1)], cost="dz", **CPU)
    assert list(TileStore.open(store).layers) == ["elevation"]


# -- stores ----------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "s.zarr", hills(), None, 64)


def test_the_store_records_the_formula(store):
    shortest_paths(store, [(1, 1)], cost="length*k*(1+slope**2)", parameters={"k": 2}, **CPU)
    recorded = TileStore.open(store).layer("distance").info["settings"]
    assert recorded["cost"] == "length * k * (1 + slope ** 2)"
    assert recorded["parameters"] == {"k": 2.0}
    assert "max_slope" not in recorded
    verify_stored(TileStore.open(store))
    shortest_paths(store, [(1, 1)], cost="herzog", max_slope=0.4, overwrite=True, **CPU)
    recorded = TileStore.open(store).layer("distance").info["settings"]
    assert (recorded["cost"], recorded["max_slope"]) == ("herzog", 0.4)
    verify_stored(TileStore.open(store))


@pytest.mark.parametrize(
    ("factor", "farthest"),
    [
        ("(0.75 - friction)", 37.5),  # negative over ones
        ("(friction - 0.125)", 9.375),  # over zeros
        ("(0.75 - friction) * (friction - 0.125)", 4.6875),  # over both, and over hundreds
    ],
)
def test_a_formula_is_only_asked_for_what_the_raster_holds(tmp_path, factor, farthest):
    """Kernels are compiled over a small raster of one value, which this one need not have."""
    friction = np.full((70, 80), 0.25)
    layers = {"elevation": np.zeros((70, 80)), "friction": friction}
    make_layers(tmp_path / "f.zarr", GridSpec(70, 80), layers)
    how = {"cost": f"length * {factor}", "friction": "friction", **CPU}
    found = shortest_paths(tmp_path / "f.zarr", [(3, 4)], **how)
    assert found.distance()[3, 79] == farthest


def test_a_negative_cost_names_the_layer(tmp_path):
    """Also one that is negative over whatever kernels are compiled with."""
    store = make_store(tmp_path / "s.zarr", hills(), None, 64)
    with pytest.raises(InputError, match=rf"{store.name}/elevation: the step from .* costs -7"):
        shortest_paths(store, [(1, 1)], cost="length - length - 7", **CPU)


def _without_checksum(metadata):
    del metadata["attributes"]["terrain_gpu"]["checksum"]
    return metadata


def test_damage_to_the_recorded_formula_is_found(store):
    shortest_paths(store, [(1, 1)], cost="length * 2", max_slope=9.0, **CPU)
    file = store / "distance" / "zarr.json"
    text = json.dumps(_without_checksum(json.loads(file.read_text())))
    for old, new, message in (
        ("length * 2", "length * 3", "no step gives exactly this distance"),
        ("length * 2", "length * oops", "unknown name 'oops'"),
        ('"max_slope": 9.0', '"max_slope": 0.1', "no step gives exactly this distance"),
        ('"max_slope": 9.0', '"max_slope": -1', "max_slope -1"),
    ):
        assert old in text
        file.write_text(text.replace(old, new))
        with pytest.raises((StoreError, VerificationError), match=message):
            verify_stored(TileStore.open(store))
    file.write_text(text)
    verify_stored(TileStore.open(store))


def test_a_run_is_resumed_with_the_same_formula_only(store, monkeypatch):
    from terrain_gpu.store.writer import LayerWriter

    usual, calls = LayerWriter.write_block, []

    def failing(self, *args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return usual(self, *args)

    how = {"backlink": True, **CPU, "threads": 1}
    with monkeypatch.context() as patch:
        patch.setattr(LayerWriter, "write_block", failing)
        with pytest.raises(KeyboardInterrupt):
            shortest_paths(store, [(1, 1)], cost="length * (1 + slope ** 2)", **how)
    with pytest.raises(StoreError):
        shortest_paths(store, [(1, 1)], cost="length * (2 + slope ** 2)", resume=True, **how)
    found = shortest_paths(store, [(1, 1)], cost="length*(1 + slope**2)", resume=True, **how)
    assert found.report.result["blocks_resumed"] > 0
    again = shortest_paths(hills(), [(1, 1)], cost="length * (1 + slope ** 2)", **how)
    assert strategies.same_bits(found.distance(), again.distance())


def test_an_index_for_a_formula(store):
    how = {"cost": "length * (1 + slope ** 2)", **CPU}
    build_index(store, verify=True, max_slope=2.0, **how)
    found = shortest_paths(store, [(5, 6)], method="index", max_slope=2.0, **how).distance()
    right = shortest_paths(hills(), [(5, 6)], max_slope=2.0, **how).distance()
    np.testing.assert_allclose(found, right, rtol=1e-12)
    with pytest.raises(StoreError, match="no distance index for these costs"):
        shortest_paths(store, [(5, 6)], method="index", overwrite=True, **how)


# -- the command -----------------------------------------------------------------------------------


def test_the_command(store, capfd):
    def call(*words):
        code = options._guarded(lambda: group.main(words, standalone_mode=False))
        return code, capfd.readouterr().err

    start = ["compute-sssp", str(store), "--source-rowcol", "5,5", "--overwrite", "--cost"]
    code, told = call(*start, "length * frction")
    assert code == 2
    assert told.splitlines()[1:] == ["  length * frction", "           ^"]
    code, told = call(*start, "length * k", "--parameter", "k=2", "--max-slope", "3", "--verify")
    assert code == 0, told
    assert call(*start, "herzog", "--max-slope", "-3")[0] == 2
    assert call(*start, "friction")[0] == 2
    assert call("plan", str(store), "--for", "sssp", "--cost", "herzog")[0] == 0
    code, told = call("build-index", str(store), "--cost", "length * 2", "--json", "-")
    assert code == 0


# -- lengths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("crs", "stretch"), [("EPSG:3857", "1.73"), ("EPSG:3395", "1.73"), ("EPSG:32650", None)]
)
def test_a_warning_for_mercator(tmp_path, caplog, crs, stretch):
    from rasterio.crs import CRS

    grid = GridSpec(
        40, 50, (30.0, 0.0, 0.0, 0.0, -30.0, 7.3e6 + 1200), CRS.from_string(crs).to_wkt()
    )
    raster = strategies.Raster(np.dtype(np.float32), (40, 50), terrain="hills")
    problem = strategies.CostProblem(raster, grid, "surface")
    store = store_of(tmp_path / "s.zarr", problem, 64)
    with caplog.at_level(logging.WARNING):
        shortest_paths(store, [(1, 1)], cost="surface", **CPU)
    found = [r.message for r in caplog.records if "Mercator" in r.message]
    assert bool(found) == bool(stretch)
    if stretch:
        assert f"up to {stretch}" in found[0]
        caplog.clear()
        shortest_paths(store, [(1, 1)], cost="absdiff", overwrite=True, **CPU)
        assert "Mercator" not in caplog.text


@pytest.mark.parametrize("feet", [False, True])
def test_the_index_warns_as_distances_do(tmp_path, caplog, feet):
    """Once in each command, also where compute-sssp builds the index."""
    from rasterio.crs import CRS

    wkt = CRS.from_string("EPSG:2264" if feet else "EPSG:3857").to_wkt()
    grid = GridSpec(40, 50, (30.0, 0.0, 0.0, 0.0, -30.0, 7.3e6 + 1200), wkt)
    raster = strategies.Raster(np.dtype(np.float32), (40, 50), terrain="hills")
    store = store_of(tmp_path / "s.zarr", strategies.CostProblem(raster, grid, "tobler"), 64)
    told = "cost tobler needs elevations in metres, but their unit is" if feet else "Mercator"
    for run in (
        lambda: build_index(store, cost="tobler", **CPU),
        lambda: query_index(store, [(1, 1)], [(9, 9)]),
        lambda: shortest_paths(store, [(1, 1)], cost="tobler", method="index", **CPU),
        lambda: shortest_paths(
            store, [(1, 1)], cost="tobler", reverse=True, build_index=True, into="b", **CPU
        ),
    ):
        caplog.clear()
        run()
        assert caplog.text.count(told) == 1, caplog.text
