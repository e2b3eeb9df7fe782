"""Natural mistakes: each argument of each public function, with many wrong values.

Whatever comes in, a function works or raises a `TerrainError` of one line that names the argument.
"""

from __future__ import annotations

import decimal
import fractions
import inspect
import json
import pathlib
import pickle
import re

import click
import numpy as np
import pytest
import xarray
from affine import Affine

import terrain_gpu
from terrain_gpu import (
    Cost,
    GridSpec,
    InputError,
    PlanError,
    TerrainError,
    arguments,
    build_index,
    primitives,
    shortest_paths,
)
from terrain_gpu.cli.main import group
from terrain_gpu.cli.options import spelled
from terrain_gpu.cuda import backend as cuda
from terrain_gpu.errors import ArgumentError
from terrain_gpu.io import places
from terrain_gpu.running import refuse_cuda
from terrain_gpu.tool import PlacesLike, options_of
from terrain_gpu.tools import TOOLS, tool_of

GRID = GridSpec(5, 6, (10.0, 0.0, 0.0, 0.0, -10.0, 0.0))
HEIGHTS = np.arange(30, dtype=np.int16).reshape(5, 6)


class Features:
    """What GeoDataFrames have."""

    __geo_interface__ = {"type": "FeatureCollection", "features": []}  # noqa: RUF012


FEATURES = Features()


class Opaque:
    """A type that nothing knows."""

    def __repr__(self):
        return "<opaque>"


WRONG = {
    "none": None,
    "true": True,
    "zero": 0,
    "one": 1,
    "negative": -5,
    "huge": 10**400,
    "beyond int64": 2**63,
    "float": 2.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "complex": 1 + 2j,
    "decimal": decimal.Decimal("1.5"),
    "fraction": fractions.Fraction(1, 3),
    "numpy float": np.float32(1.5),
    "numpy bool": np.bool_(True),
    "numpy date": np.datetime64("2020-01-01"),
    "string": "nonsense",
    "empty string": "",
    "null byte": "a\0b",
    "bytes": b"elevation",
    "path": pathlib.Path("no-such-thing"),
    "list": [1, 2, 3],
    "empty list": [],
    "ragged": [[1, 2], [3]],
    "pairs": [(1, 1), (2, 2)],
    "none inside": [None, None],
    "dict": {"a": 1},
    "set": {1, 2},
    "tuple": (),
    "generator": lambda: (pair for pair in [(1, 1), (2, 2)]),
    "0-d": np.array(5.0),
    "1-d": np.arange(4.0),
    "2-d": np.arange(12.0).reshape(3, 4),
    "3-d": np.zeros((2, 2, 2)),
    "no rows": np.empty((0, 5)),
    "objects": np.array([[None, 1], [2, "x"]], dtype=object),
    "strings": np.array([["a", "b"]]),
    "dates": np.array([["2020-01-01"]], "datetime64[D]"),
    "complexes": np.ones((5, 6), complex),
    "bools": np.ones((5, 6), bool),
    "masked": np.ma.masked_equal(HEIGHTS, 3),
    "data array": xarray.DataArray(HEIGHTS.astype(float), dims=("y", "x")),
    "data set": xarray.Dataset({"elevation": (("y", "x"), HEIGHTS)}),
    "function": lambda *_: None,
    "type": int,
    "opaque": Opaque(),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with heights, a spanning tree and flow directions."""
    path = tmp_path_factory.mktemp("arguments") / "s.zarr"
    with terrain_gpu.create_layer(path, "elevation", GRID, "int16", block_size=64) as writer:
        writer.write_block(0, 0, HEIGHTS)
        writer.commit()
    terrain_gpu.minimum_spanning_tree(path, weight="flow", backend="cpu")
    terrain_gpu.flow_direction(path)
    terrain_gpu.flow_accumulation(path)
    terrain_gpu.slope(path)
    terrain_gpu.calc(path, "elevation + 1", into="higher")
    return path


def tree():
    """An Euler tour."""
    return primitives.euler_tour([0, 0, 1], backend="cpu")


def indexed(folder):
    """The store, with an index."""
    build_index(folder / "s.zarr", backend="cpu", overwrite=True)
    return folder / "s.zarr"


CALLS = {
    "open": (terrain_gpu.open, lambda s: {"store": s / "s.zarr"}),
    "slope": (terrain_gpu.slope, lambda s: {"store": s}),
    "list_layers": (terrain_gpu.list_layers, lambda s: {"store": s / "s.zarr"}),
    "rename_layer": (
        terrain_gpu.rename_layer,
        lambda s: {"store": s / "s.zarr", "old": "nothing", "new": "something"},
    ),
    "remove_layers": (
        terrain_gpu.remove_layers,
        lambda s: {"store": s / "s.zarr", "names": ["nothing"]},
    ),
    "GridSpec": (GridSpec, lambda s: {"rows": 3, "cols": 4}),
    "minimum_spanning_tree": (
        terrain_gpu.minimum_spanning_tree,
        lambda s: {"data": HEIGHTS, "backend": "cpu"},
    ),
    "minimum_spanning_tree of a store": (
        terrain_gpu.minimum_spanning_tree,
        lambda s: {"data": s / "s.zarr", "backend": "cpu", "overwrite": True},
    ),
    "shortest_paths": (
        shortest_paths,
        lambda s: {"data": HEIGHTS, "sources": [(0, 0)], "backend": "cpu"},
    ),
    "shortest_paths of a store": (
        shortest_paths,
        lambda s: {
            "data": s / "s.zarr",
            "sources": [(0, 0)],
            "backend": "cpu",
            "overwrite": True,
        },
    ),
    "calc": (
        terrain_gpu.calc,
        lambda s: {"store": s / "s.zarr", "expression": "elevation + 1", "overwrite": True},
    ),
    "cost_matrix": (
        terrain_gpu.cost_matrix,
        lambda s: {"data": s / "s.zarr", "sources": [(0, 0), (1, 1)], "overwrite": True},
    ),
    "least_cost_network": (
        terrain_gpu.least_cost_network,
        lambda s: {
            "store": s / "s.zarr",
            "places": [(0, 0), (1, 1)],
            "output": s / "network.geojson",
            "backend": "cpu",
            "overwrite": True,
        },
    ),
    "corridor": (
        terrain_gpu.corridor,
        lambda s: {
            "store": s / "s.zarr",
            "sources": [(0, 0)],
            "targets": [(1, 1)],
            "backend": "cpu",
            "overwrite": True,
        },
    ),
    "tied_steps": (terrain_gpu.tied_steps, lambda s: {"store": s / "s.zarr", "overwrite": True}),
    "rasterize": (
        terrain_gpu.rasterize,
        lambda s: {"store": s / "s.zarr", "features": [(0, 0)], "value": 1, "overwrite": True},
    ),
    "label_components": (
        terrain_gpu.label_components,
        lambda s: {"store": s / "s.zarr", "where": "elevation > 3", "overwrite": True},
    ),
    "accumulate": (
        terrain_gpu.accumulate,
        lambda s: {"store": s / "s.zarr", "overwrite": True},
    ),
    "flow_direction": (
        terrain_gpu.flow_direction,
        lambda s: {"store": s / "s.zarr", "into": "toward", "overwrite": True},
    ),
    "flow_accumulation": (
        terrain_gpu.flow_accumulation,
        lambda s: {"store": s / "s.zarr", "overwrite": True},
    ),
    "fill": (terrain_gpu.fill, lambda s: {"store": s / "s.zarr", "overwrite": True}),
    "breach": (terrain_gpu.breach, lambda s: {"store": s / "s.zarr", "overwrite": True}),
    "burn": (
        terrain_gpu.burn,
        lambda s: {"store": s / "s.zarr", "streams": [(0, 0)], "depth": 1, "overwrite": True},
    ),
    "streams": (
        terrain_gpu.streams,
        lambda s: {"store": s / "s.zarr", "threshold": 1, "overwrite": True},
    ),
    "depressions": (
        terrain_gpu.depressions,
        lambda s: {"store": s / "s.zarr", "overwrite": True},
    ),
    "fill_spill_merge": (
        terrain_gpu.fill_spill_merge,
        lambda s: {"store": s / "s.zarr", "rain": 1.5, "overwrite": True},
    ),
    "basins": (terrain_gpu.basins, lambda s: {"store": s / "s.zarr", "overwrite": True}),
    "watershed": (
        terrain_gpu.watershed,
        lambda s: {"store": s / "s.zarr", "pour_points": [(0, 0)], "overwrite": True},
    ),
    "hand": (
        terrain_gpu.hand,
        lambda s: {"store": s / "s.zarr", "streams": "elevation", "overwrite": True},
    ),
    "terrain_indices": (
        terrain_gpu.terrain_indices,
        lambda s: {"store": s / "s.zarr", "twi": "twi", "overwrite": True},
    ),
    "extract_network": (
        terrain_gpu.extract_network,
        lambda s: {
            "store": s / "s.zarr",
            "path": s / "n.geojson",
            "min_length": 1,
            "overwrite": True,
        },
    ),
    "polygons": (
        terrain_gpu.polygons,
        lambda s: {
            "store": s / "s.zarr",
            "path": s / "p.geojson",
            "layer": "mst",
            "overwrite": True,
        },
    ),
    "contours": (
        terrain_gpu.contours,
        lambda s: {
            "store": s / "s.zarr",
            "path": s / "c.geojson",
            "breaks": [2.0],
            "overwrite": True,
        },
    ),
    "export_layer": (
        terrain_gpu.export_layer,
        lambda s: {"store": s / "s.zarr", "path": s / "x.tif", "overwrite": True},
    ),
    "convert_dataset": (
        terrain_gpu.convert_dataset,
        lambda s: {"inputs": s / "in.tif", "store": s / "c.zarr", "overwrite": True},
    ),
    "build_index": (
        build_index,
        lambda s: {"data": s / "s.zarr", "backend": "cpu", "overwrite": True},
    ),
    "build_overviews": (
        terrain_gpu.build_overviews,
        lambda s: {"store": s / "s.zarr", "overwrite": True},
    ),
    "query_index": (
        terrain_gpu.query_index,
        lambda s: {"data": indexed(s), "starts": [(0, 0)], "ends": [(1, 1)], "overwrite": True},
    ),
    "list_ranking": (
        primitives.list_ranking,
        lambda s: {"succ": [1, 2, 2], "backend": "cpu"},
    ),
    "connected_components": (
        primitives.connected_components,
        lambda s: {"edges": [(0, 1), (2, 3)], "backend": "cpu"},
    ),
    "euler_tour": (primitives.euler_tour, lambda s: {"parent": [0, 0, 1], "backend": "cpu"}),
    "contract_tree": (
        primitives.contract_tree,
        lambda s: {"tour": tree(), "keep": [0, 2], "backend": "cpu"},
    ),
    "spanning_forest": (
        primitives.spanning_forest,
        lambda s: {"edges": [(0, 1), (2, 3)], "weights": [1, 2], "backend": "cpu"},
    ),
    "from_xy": (places.from_xy, lambda s: {"grid": GRID, "points": [(5.0, -5.0)]}),
    "from_rowcol": (places.from_rowcol, lambda s: {"grid": GRID, "points": [(1, 1)]}),
    "from_vector": (places.from_vector, lambda s: {"grid": GRID, "path": s / "p.geojson"}),
    "from_raster": (places.from_raster, lambda s: {"grid": GRID, "path": s / "in.tif"}),
    "window_of": (GRID.window_of, lambda s: {"bounds": (0, -20, 20, 0)}),
}
"""Public functions, and arguments with which they work."""

NO_WORDS = {"grid"}
"""Arguments of helpers that only a `GridSpec` can be."""


@pytest.fixture(scope="module")
def folder(store, tmp_path_factory):
    """That store beside a raster and a vector file."""
    folder = store.parent
    terrain_gpu.export_layer(store, folder / "in.tif")
    point = {"type": "Point", "coordinates": [5.0, -5.0]}
    (folder / "p.geojson").write_text(json.dumps({**point, "crs": None}))
    return folder


def cases():
    return [
        pytest.param(name, argument, id=f"{name}: {argument}")
        for name, (function, _) in CALLS.items()
        for argument in inspect.signature(function).parameters
        if argument not in NO_WORDS
    ]


@pytest.mark.parametrize(("name", "argument"), cases())
def test_wrong_values_are_refused_in_our_words(
    name, argument, folder, tmp_path, monkeypatch, no_fsync
):
    monkeypatch.chdir(tmp_path)  # a name that works makes a file
    function, good = CALLS[name]
    for kind, value in WRONG.items():
        if (argument, kind) == ("progress", "type"):
            continue  # it can be called; what happens then is up to the caller
        given = value() if kind == "generator" else value
        try:
            function(**{**good(folder), argument: given})
        except TerrainError as error:
            message = str(error)
            assert "\n" not in message, (kind, message)
            assert len(message) < 600, (kind, message)
            assert "np." not in message, (kind, message)
        except Exception as error:
            error.add_note(f"{name}({argument}={kind})")
            raise


PROGRAMS = {
    "build_overviews": "overviews",
    "export_layer": "export",
    "extract_network": "network",
    "minimum_spanning_tree": "compute-mst",
    "shortest_paths": "compute-sssp",
}
"""Commands of functions with another name."""

RENAMED = {"client", "corner_cutting", "data", "ends", "path", "paths", "places", "starts"}
"""Parameters whose options have another name, where a command has them."""

PLACES = {
    (tool.function, name)
    for tool in map(tool_of, TOOLS)
    for name, one in options_of(tool).items()
    if one.type in (PlacesLike, PlacesLike | str)
}
"""Places, which are checked where the raster is known."""


@pytest.mark.parametrize("name", [name for name in CALLS if hasattr(CALLS[name][0], "checks")])
def test_errors_name_the_parameter_and_in_a_command_its_option(name):
    function = name.partition(" ")[0]
    command = group.commands.get(PROGRAMS.get(function, function.replace("_", "-")))
    options = {} if command is None else {one.name: one for one in command.params}
    for argument, check in CALLS[name][0].checks.items():
        if (function, argument) in PLACES:
            continue
        with pytest.raises(ArgumentError) as refused:
            check(argument, WRONG["opaque"])
        assert refused.value.names[0] == argument
        assert str(refused.value).startswith(f"{argument} ")
        if command is None:
            continue
        with click.Context(command):
            message = refused.value.spelled(spelled)
        if isinstance(option := options.get(argument), click.Option):
            assert message.startswith(f"{option.opts[-1]} ")
        elif argument in RENAMED:
            assert not message.startswith(argument)


FILES = {"friction", "barriers", "rain", "reclass", "vertical_factor", "weights"}
"""Arguments that may name a file or a layer, beside the first one of a function."""


FIRST = ("data", "inputs", "store")
"""Names of arguments that are a raster or a store."""


def of_files():
    for name, (function, _) in CALLS.items():
        first, *others = inspect.signature(function).parameters
        named = [first] if first in FIRST else []
        named += ["path"] if name in ("from_vector", "from_raster") else []
        for argument in (*named, *[other for other in others if named and other in FILES]):
            yield pytest.param(name, argument, id=f"{name}: {argument}")


@pytest.mark.parametrize(("name", "argument"), [*of_files()])
def test_a_file_that_is_not_there_is_named(name, argument, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, good = CALLS[name]
    given = good(folder)
    if argument in ("friction", "barriers") and isinstance(given.get("data"), np.ndarray):
        pytest.skip("arrays beside arrays")
    for path in ("nothere.tif", "sub/nothere.tif", tmp_path / "nothere.tif"):
        if isinstance(path, pathlib.Path) and argument in FILES - {"reclass", "vertical_factor"}:
            continue  # the name of a layer is a string
        with pytest.raises(TerrainError) as error:
            function(**{**given, argument: path})
        message = str(error.value)
        assert str(path) in message
        assert "no such file" in message.lower(), message
        assert "no such store" not in message


ONLY_STORES = (
    "build_index", "build_overviews", "export_layer", "list_layers", "open",
    "query_index", "remove_layers", "rename_layer", "tied_steps",
)  # fmt: skip
"""Functions that take no array."""


@pytest.mark.parametrize("name", [case.values[0] for case in of_files() if case.values[1] in FIRST])
def test_an_array_in_place_of_a_store_is_refused_with_a_remedy(name, folder):
    function, good = CALLS[name]
    first = next(iter(inspect.signature(function).parameters))
    remedies = {"data set": "dataset['elevation']"}
    if first != "data" or name in ONLY_STORES:
        remedies["2-d"] = "xarray.DataArray(array, dims=('y', 'x'))"
    if name in ONLY_STORES:
        remedies["data array"] = "convert_dataset(array, 'dem.zarr') makes one"
    for kind, remedy in remedies.items():
        with pytest.raises(InputError) as error:
            function(**{**good(folder), first: WRONG[kind]})
        assert str(error.value).startswith(f"{first} of type")
        assert remedy in str(error.value)


def test_all_public_functions_are_tried():
    functions = {CALLS[name][0] for name in CALLS}
    for module in (terrain_gpu, primitives):
        for name in module.__all__:
            found = getattr(module, name)
            assert inspect.isclass(found) or found in functions or name == "create_layer", name


RUN = {
    "memory_limit": "2GB",
    "threads": 2,
    "backend": "cpu",
    "device": 0,
    "gpu_memory_limit": "1GB",
    "progress": lambda cells, total: None,
}
"""What `set_options` sets."""


@pytest.mark.parametrize("name", CALLS)
def test_every_function_takes_what_set_options_set(name, folder, monkeypatch):
    """A value that it refuses shows that it takes it; one of the call itself goes before it."""
    function, good = CALLS[name]
    given, parameters = good(folder), inspect.signature(function).parameters
    for option in filter(parameters.__contains__, RUN):
        with monkeypatch.context() as patch:
            patch.setitem(arguments.DEFAULTS, option, Opaque())
            with pytest.raises(InputError, match=rf"^{option} of type \S*Opaque"):
                function(**{k: v for k, v in given.items() if k != option})
            with pytest.raises(InputError, match=f"^{option} -7"):
                function(**{**given, option: -7})


COSTS = {name: call for name, call in CALLS.items()
         if "cost" in inspect.signature(call[0]).parameters}  # fmt: skip
RULES = {"parameters": {"a": 0.7}, "connectivity": 4, "max_slope": 3.0, "corner_cutting": False,
         "vertical_factor": [(-90, 1), (90, 2)]}  # fmt: skip


@pytest.mark.parametrize("name", COSTS)
def test_a_cost_stands_for_its_rules(name):
    """The arguments of the call are those that one would give without it."""
    signature = inspect.signature(COSTS[name][0])
    metric = {"metric": "continuous"} if "metric" in signature.parameters else {}
    for rules in ({}, {"max_slope": 0.5}, {**RULES, **metric}):
        call = signature.bind_partial(cost=Cost("langmuir", **rules))
        given = arguments.with_defaults(call).arguments
        assert given["cost"] == "langmuir"
        assert {key: given[key] for key in given.keys() & {*RULES, "metric"}} == rules
    if not metric:
        with pytest.raises(InputError, match="cost has metric='continuous', which is not possible"):
            arguments.with_defaults(
                signature.bind_partial(cost=Cost("friction", metric="continuous"))
            )
    for own in ({"max_slope": 1}, {}):  # its rules are also those that it leaves at the usual
        twice = signature.bind_partial(cost=Cost("tobler", **own), max_slope=2)
        with pytest.raises(InputError, match="max_slope is part of the cost, a Cost: give it"):
            arguments.with_defaults(twice)


def test_distances_of_a_cost():
    walk = Cost("tobler", max_slope=40.0, connectivity=16)
    found = shortest_paths(HEIGHTS, [(0, 0)], cost=walk).distance()
    rules = {"cost": "tobler", "max_slope": 40.0, "connectivity": 16}
    assert np.array_equal(found, shortest_paths(HEIGHTS, [(0, 0)], **rules).distance())
    wrongs = {"connectivity": 5}, {"metric": "near"}, {"max_slope": -1}, {"model": 3}
    for wrong in (*wrongs, {"corner_cutting": 1}, {"connectivity": None}):
        with pytest.raises(InputError, match=f"^{next(iter(wrong))} "):
            Cost(**{"model": "tobler", **wrong})


def test_a_cost_keeps_its_rules():
    """Whatever held them: an array, an iterator, or a dict that changes afterwards."""
    pairs, given = [(-45.0, 3.0), (0.0, 1.0), (45.0, 2.0)], {"k": 3.0}
    costs = [Cost("surface", given, vertical_factor=of) for of in (np.array(pairs), iter(pairs))]
    given["k"] = 5.0
    assert costs == [Cost("surface", {"k": 3.0}, vertical_factor=pairs)] * 2
    assert len({*costs, pickle.loads(pickle.dumps(costs[0]))}) == 1
    with pytest.raises(InputError, match=r"^cost of type type is not known"):
        shortest_paths(HEIGHTS, [(0, 0)], cost=Cost)


def test_threads_that_are_set_are_not_those_of_a_client(monkeypatch):
    """And a client that is set is for stores, as its workers are."""

    @arguments.checked(data=lambda name, value: value, client=lambda name, value: value)
    def run(data, *, threads=None, client=None):
        return threads, client

    terrain_gpu.set_options(threads=2)
    try:
        assert run("s.zarr") == (2, None)
        assert run("s.zarr", client="one") == (None, "one")
        monkeypatch.setitem(arguments.DEFAULTS, "client", "all")
        assert run("s.zarr") == (None, "all")
        assert run("s.zarr", client=None) == (2, None)
        assert run(HEIGHTS) == run(__file__) == (2, None)
    finally:
        arguments.DEFAULTS.clear()


def test_a_backend_that_is_set_is_for_what_can_run_there(monkeypatch):
    """Only one that a call gives is refused, in the functions that it calls, too."""
    monkeypatch.setattr(cuda, "choose", lambda backend, device: ("cpu", f"{backend} it was"))

    @arguments.checked()
    def inner(store, *, backend="auto"):
        refuse_cuda(backend, "epsilon runs")
        with pytest.raises(InputError, match="relax-array' runs on a GPU only: auto it was"):
            cuda.gpu_for("relax-array", backend, 0, None)
        return backend

    @arguments.checked()
    def outer(store, *, backend="auto"):
        return inner(store, backend=backend)

    @arguments.checked()
    def cuda_only(store, *, backend="auto"):
        cuda.gpu_for("relax-array", backend, 0, None)

    for name in ("cuda", "cpu"):
        with terrain_gpu.set_options(backend=name):
            assert inner("s.zarr") == outer("s.zarr") == name
    for function in (inner, outer):
        with terrain_gpu.set_options(backend="cuda"):
            with pytest.raises(InputError, match="backend cuda: epsilon runs on the CPU only"):
                function("s.zarr", backend="cuda")
            with pytest.raises(InputError, match="only: cpu it was"):
                cuda_only("s.zarr", backend="cpu")
    cells = xarray.DataArray(HEIGHTS.astype("float32"), dims=("y", "x"))
    found = terrain_gpu.flow_direction(cells, backend="cpu")
    codes = found.report.result["store"]
    with terrain_gpu.set_options(backend="cuda"):
        assert terrain_gpu.fill(codes, epsilon=True).report.settings["backend"] == "cpu"
        shortest_paths(HEIGHTS, [(0, 0)], method="dijkstra")


def test_a_call_goes_before_options_also_in_the_functions_that_it_calls():
    """A DataArray is converted first, by a function that also takes options."""
    cells, seen = xarray.DataArray(HEIGHTS, dims=("y", "x")), []
    with terrain_gpu.set_options(progress=lambda cells, total: seen.append(cells)):
        terrain_gpu.slope(cells, progress=lambda cells, total: None)
        assert not seen
        terrain_gpu.slope(cells)
        assert sum(seen) == HEIGHTS.size  # as if given in the call


def test_options_that_change_do_not_disturb_calls_of_other_threads():
    """Which go through the options: these are replaced, and none changes."""
    options = {"threads": 2, "memory_limit": "1GB"}
    with terrain_gpu.set_options(**options):
        before = arguments.DEFAULTS
        with terrain_gpu.set_options(threads=1):
            assert before == options


def test_options_are_set_for_good_or_within_with(store):
    seen = []
    terrain_gpu.set_options(**RUN)
    try:
        with terrain_gpu.set_options(threads=1, progress=lambda cells, total: seen.append(cells)):
            assert arguments.DEFAULTS["threads"] == 1
            terrain_gpu.slope(store, overwrite=True)
        assert sum(seen) == HEIGHTS.size
        assert arguments.DEFAULTS == RUN
        again = terrain_gpu.set_options(threads=3)
        for _ in range(2):  # like any other, it holds each time
            with again:
                assert arguments.DEFAULTS["threads"] == 3
            assert arguments.DEFAULTS == RUN
        for name, value in {"threads": 0, "backend": "gpu", "progress": 5}.items():
            with pytest.raises(InputError, match=f"^{name}"):
                terrain_gpu.set_options(**{name: value})
        assert arguments.DEFAULTS == RUN
    finally:
        terrain_gpu.set_options(**dict.fromkeys(RUN))
    assert not arguments.DEFAULTS
    with pytest.raises(TypeError):
        terrain_gpu.set_options(verify=True)


REFUSED = [
    (shortest_paths, {"max_cost": float("nan")}, "max_cost nan is not a number of at least 0"),
    (shortest_paths, {"max_cost": -1}, "max_cost -1 is not a number of at least 0"),
    (shortest_paths, {"connectivity": "8"}, "connectivity '8' is not 8 or 4 or 16"),
    (shortest_paths, {"threads": 2.0}, "threads 2.0: give a whole number from 1 to 1024"),
    (shortest_paths, {"threads": True}, "threads True: give a whole number"),
    (shortest_paths, {"threads": 0}, "threads 0: give a whole number from 1"),
    (shortest_paths, {"backlink": "no"}, "backlink 'no': give True or False"),
    (shortest_paths, {"block_size": 100}, "block size 100 is not a power of two"),
    (shortest_paths, {"progress": 5}, "progress 5: give a function"),
    (shortest_paths, {"layer": None}, "layer None: give a string"),
    (shortest_paths, {"memory_limit": "lots"}, "memory_limit 'lots' is not a size"),
    (shortest_paths, {"memory_limit": -1}, "memory_limit -1: give a positive number of bytes"),
    (shortest_paths, {"cell_size": 0}, "cell_size 0 is not two positive numbers"),
    (shortest_paths, {"cell_size": "30"}, "cell_size '30': give two positive numbers"),
    (shortest_paths, {"cost": ["absdiff"]}, r"cost \['absdiff'\] is not known; use one of absdiff"),
    (shortest_paths, {"sources": 5}, "sources 5: give .row, column. pairs"),
    (shortest_paths, {"sources": HEIGHTS > 9}, r"sources of type numpy.ndarray: .*argwhere\(mask"),
    (shortest_paths, {"sources": {"type": "Point"}}, "sources of type dict: give .*, shapely geom"),
    (shortest_paths, {"sources": (1, 1)}, "sources: cell 1: 1 is neither row, column"),
    (shortest_paths, {"sources": "p.gpkg"}, "sources 'p.gpkg': read a file with .*from_vector"),
    (shortest_paths, {"targets": [(9, 9)]}, "targets: outside the raster, .* cell 1 .row 9"),
    (
        shortest_paths,
        {"data": b"s.zarr"},
        "data b's.zarr': give a numpy array, a store or its",
    ),
    (shortest_paths, {"data": [1, 2]}, r"data: an array of shape \(2,\) is not a raster"),
    (shortest_paths, {"data": [["a"]]}, "cells of type str.* are not supported"),
    (shortest_paths, {"barriers": 3}, "barriers 3: give a numpy array"),
    (shortest_paths, {"barriers": FEATURES}, "barriers of type .*: give cells; rasterize converts"),
    (shortest_paths, {"sources": [(1.5, 2.5)]}, "whole numbers: .*; give coordinates as shapely"),
    (shortest_paths, {"cost": "toblers"}, "cost 'toblers' is not known; use one of absdiff"),
    (terrain_gpu.convert_dataset, {"inputs": HEIGHTS}, "inputs of type numpy.ndarray: give the pa"),
    (terrain_gpu.convert_dataset, {"inputs": []}, "inputs is empty; give the path"),
    (terrain_gpu.convert_dataset, {"store": None}, "store None: give a path"),
    (terrain_gpu.label_components, {"store": None}, "store None: give a store or its path"),
    (terrain_gpu.watershed, {"snap": 9, "snap_area": {1: "wide"}}, "snap_area of 1 'wide': give a"),
]


@pytest.mark.parametrize(("function", "change", "message"), REFUSED)
def test_messages_name_argument_value_and_remedy(function, change, message, folder):
    good = next(good for other, good in CALLS.values() if other is function)(folder)
    with pytest.raises(InputError, match=message):
        function(**{**good, **change})


def test_what_is_natural_works():
    expected = shortest_paths(HEIGHTS, [(1, 1)], cell_size=(30, 30), cost="surface").distance()
    for data in (
        HEIGHTS.tolist(),
        HEIGHTS.astype(">i2"),
        np.asfortranarray(HEIGHTS),
        np.repeat(HEIGHTS, 2, axis=1)[:, ::2],
        np.frombuffer(HEIGHTS.tobytes(), np.int16).reshape(5, 6),  # read-only
        np.matrix(HEIGHTS),
    ):
        for start in ([(1, 1)], np.array([[1, 1]]), iter([[1, 1]]), np.array([[1.0, 1.0, 0.0]])):
            found = shortest_paths(data, start, cell_size=30, cost="surface", progress=None)
            assert np.array_equal(found.distance(), expected)
            assert type(found.distance()) is np.ndarray
        mst = terrain_gpu.minimum_spanning_tree(data, memory_limit="1GB", threads=np.int64(2))
        assert mst.edge_count == 29
    affine = Affine(10, 0, 500, 0, -10, 700)
    assert GridSpec(np.int64(5), 6, affine) == GridSpec(5, 6, tuple(affine)[:6])


def test_targets_are_given_as_sources_are():
    given = {"stop_at_targets": True, "backlink": True}
    targets = places.from_rowcol(GRID, [(1, 1), (2, 3)])
    expected = shortest_paths(HEIGHTS, [(0, 0)], targets=targets, **given)
    for same in ([(2, 3), (1, 1)], np.array([[1, 1], [2, 3]]), iter([(1, 1), (2, 3)])):
        found = shortest_paths(HEIGHTS, [(0, 0)], targets=same, **given)
        assert np.array_equal(found.distance(), expected.distance(), equal_nan=True)
    starts = places.from_rowcol(GRID, [(0, 0)])
    lines = expected.paths(targets, starts)
    for one, other in zip(lines, expected.paths([(1, 1), (2, 3)], [(0, 0)]), strict=True):
        assert (one.source, one.target, one.cost) == (other.source, other.target, other.cost)
        assert np.array_equal(one.cells, other.cells)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([9], [0], [1], [0.0]), "sources: outside the raster, .* row 9, column 0"),
        (([0], [-1], [1], [0.0]), "sources: outside the raster"),
        (([0], [0], [0], [0.0]), "an id is not a whole number from 1"),
        (([0], [0], [2**32 - 1], [0.0]), "an id is not a whole number from 1"),
        (
            ([0], [0], [1], [-1.0]),
            "the start cost -1 at row 0, column 0 is negative; give 0 or more",
        ),
        (([0, 1], [0], [1], [0.0]), "need one dimension and one length"),
        (([0.5], [0], [1], [0.0]), "rows are of type float64, but must be"),
    ],
)
def test_sources_that_a_caller_made(columns, message):
    with pytest.raises(InputError, match=message):
        shortest_paths(HEIGHTS, places.Places(*map(np.array, columns)))


def test_a_negative_start_cost_is_a_height():
    made = places.Places(*map(np.array, ([0], [0], [1], [-5.0])))
    assert shortest_paths(HEIGHTS - 9, made, cost="minimax").distance()[0, 0] == -5


def test_sources_that_a_caller_made_in_another_order():
    made = places.Places(*map(np.array, ([4, 0], [4, 0], [7, 3], [0, 0])))
    found = shortest_paths(HEIGHTS, made, allocation=True)
    assert found.allocation()[4, 5] == 7
    assert found.allocation()[0, 0] == 3


@pytest.mark.parametrize("function", ["minimum_spanning_tree", "shortest_paths"])
def test_a_limit_holds_for_arrays_too(function):
    data = np.random.default_rng(1).integers(0, 1000, (1100, 1300))
    more = {} if function == "minimum_spanning_tree" else {"sources": [(0, 0)], "allocation": True}
    run = getattr(terrain_gpu, function)
    with pytest.raises(PlanError, match=r"a memory limit of 1 B is too small") as caught:
        run(data, memory_limit=1, **more)
    least = int(re.search(r"give at least ([0-9]+) MB", str(caught.value))[1])
    with pytest.raises(PlanError):
        run(data, memory_limit=f"{least - 1}MB", **more)
    found = run(data, memory_limit=f"{least}MB", threads=1, **more)
    assert found.report.settings["plan"]["memory"] <= least * 10**6
    free = run(data, **more)
    if function == "minimum_spanning_tree":
        assert np.array_equal(found.edges(), free.edges())
    else:
        assert np.array_equal(found.distance(), free.distance())
