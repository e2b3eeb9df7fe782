"""Least-cost corridors: against sums in plain numpy, and what a way through a cell costs."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import rasterio
from contract import TRANSFORM, OperationContract, make_store, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes

import terrain_gpu
from terrain_gpu import TileStore, corridor, shortest_paths
from terrain_gpu.cells import is_nodata
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, VerificationError
from terrain_gpu.paths.corridor import operation as corridors
from terrain_gpu.paths.corridor.operation import Corridor

pytestmark = pytest.mark.usefixtures("no_fsync")


def plain(layers, within=None, share=None):
    """The corridor of distances, which are inf where a cell is not reached."""
    found = np.full(layers[0].shape, np.inf)
    for one, other in combinations(layers, 2):
        total = one + other
        if np.isfinite(least := total.min()):
            with np.errstate(over="ignore"):
                excess = total - least
            most = np.inf if within is None and share is None else within
            if share is not None:
                most = share * least
            found = np.fmin(found, np.where(excess <= most, excess, np.inf))
    return np.where(np.isfinite(found), found, np.nan)


def natural(data, nodata):
    """Without negative values, which are no distances."""
    return np.where(is_nodata(data, nodata), data, np.maximum(data, 0))


def costs(data, nodata):
    return np.where(is_nodata(data, nodata), np.inf, data.astype(np.float64))


class TestCorridor(OperationContract):
    """Of two layers, of which the second one is the first one mirrored."""

    command = "corridor s.zarr one other --within 50%"
    rasters = rasters(shape=shapes(200, 20_000), special=False)

    def prepare(self, store):
        layer = TileStore.open(store).layer("elevation")
        one = natural(whole(layer), layer.nodata)
        for name, cells in {"one": one, "other": one[::-1, ::-1]}.items():
            with terrain_gpu.create_layer(
                store, name, layer.grid, cells.dtype, nodata=layer.nodata,
                block_size=layer.block_size,
            ) as made:  # fmt: skip
                for at in made.blocks.ids():
                    r0, r1, c0, c1 = made.block_window(*at)
                    made.write_block(*at, np.ascontiguousarray(cells[r0:r1, c0:c1]))
                made.commit()

    def make(self, store):
        return Corridor(str(store), ("one", "other"), share=0.5)

    def expected(self, data, nodata, grid):
        one = costs(natural(data, nodata), nodata)
        return [plain([one, one[::-1, ::-1]], share=0.5)]


@settings(max_examples=examples(30))
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 4),
    within=st.sampled_from([None, 0, 40.0, "0%", "12.5%", "300%"]),
    real=st.booleans(),
)
def test_every_cell_is_on_a_way_of_that_cost(folders, seed, count, within, real):
    """The distances between places, through each cell, of the reference's own sums."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 60, (70, 66)).astype(np.float32 if real else np.int16)
    cells[rng.random(cells.shape) < 0.2] = -1
    good = np.argwhere(cells >= 0)
    with folders() as folder:
        store = make_store(folder / "s.zarr", cells, -1, 64)
        names, layers = [], []
        for k in range(count):
            place = tuple(good[rng.integers(len(good))].tolist())
            shortest_paths(store, [place], into=f"d{k}")
            layer = TileStore.open(store).layer(f"d{k}")
            names.append(f"d{k}")
            layers.append(costs(whole(layer), layer.nodata))
        percent = isinstance(within, str)
        share = float(within[:-1]) / 100 if percent else None
        right = plain(layers, None if percent else within, share)
        found = corridor(store, names, within=within, threads=2, verify=True)
        np.testing.assert_array_equal(whole(found.layers["corridor"]), right)
        pairs = found.report.result["pairs"]
    assert [(one["from"], one["to"]) for one in pairs] == list(combinations(names, 2))
    for told, (one, other) in zip(pairs, combinations(layers, 2), strict=True):
        least = (one + other).min()
        assert told["optimum"] == (least if np.isfinite(least) else None)
        assert not np.isfinite(least) or (right == 0).any()


def test_a_wrong_optimum_is_refused(tmp_path, monkeypatch):
    """Also where all cells agree with it."""
    store = make_store(tmp_path / "s.zarr", np.full((70, 66), 3, np.int16), -1, 64)
    for k, place in enumerate([(0, 0), (69, 65)]):
        shortest_paths(store, [place], cost="friction", friction="elevation", into=f"d{k}")
    add = corridors._Optima.add
    monkeypatch.setattr(
        corridors._Optima, "add", lambda self, phase, at, known: add(self, phase, at, known - 1)
        if phase == corridors.OPTIMUM else None,
    )  # fmt: skip
    with pytest.raises(VerificationError, match=r"wrong totals: .* from d0 to d1"):
        corridor(store, ["d0", "d1"], verify=True)
    assert "corridor" not in TileStore.open(store).layers


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("corridor_of", ["d0", "d0"]),
        ("corridor_of", [1, "d0"]),
        ("within", -1),
        ("within", 10**400),
        ("share", "5%"),
        ("pairs", []),
        ("pairs", [{"from": "d0", "to": "d1", "optimum": "0"}]),
        ("pairs", [{"from": "d1", "to": "d0", "optimum": 0.0}]),
        ("pairs", [{"from": "d0", "to": "d1", "optimum": 10**400}]),
        ("pairs", [7]),
    ],
)
def test_a_damaged_record(corridor_store, capfd, key, value):
    file = corridor_store / "corridor" / "zarr.json"
    before = file.read_text()
    text = json.loads(before)
    own = next(v for v in text["attributes"].values() if isinstance(v, dict) and "settings" in v)
    own["result" if key == "pairs" else "settings"][key] = value
    del own["checksum"]
    file.write_text(json.dumps(text))
    code, _, err = call(capfd, f"verify {corridor_store} --backend cpu")
    file.write_text(before)
    assert (code, f"{key} is recorded as" in err) == (2, True), err


@pytest.fixture(scope="module")
def corridor_store(tmp_path_factory):
    store = make_store(
        tmp_path_factory.mktemp("c") / "s.zarr", np.full((5, 9), 3, np.int16), -1, 64
    )
    for k, place in enumerate([(0, 0), (4, 8)]):
        shortest_paths(store, [place], into=f"d{k}")
    corridor(store, ["d0", "d1"])
    return store


def call(capfd, words):
    code = options._guarded(lambda: group.main(words.split(), standalone_mode=False))
    return code, *capfd.readouterr()


def test_the_command_and_what_it_refuses(tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.chdir(tmp_path)
    cells = np.full((5, 9), 3, np.int16)
    cells[:, 4] = -1
    make_store(tmp_path / "s.zarr", cells, -1, 64)
    shortest_paths("s.zarr", [(0, 0)], into="west")
    shortest_paths("s.zarr", [(4, 3)], into="south")
    shortest_paths("s.zarr", [(0, 8)], into="east")
    code, out, _ = call(capfd, "corridor s.zarr west south east --json r.json")
    assert (code, "least costs: west to south 0, west to east without a way" in out) == (0, True)
    assert "there is no path between the sources of west and east" in caplog.text
    pairs = json.loads((tmp_path / "r.json").read_text())["result"]["pairs"]
    assert [one["optimum"] for one in pairs] == [0, None, None]
    bad = {
        "west --into a": "west: one layer of distances; give two or more, or --sources and --targ",
        "west west --into a": "give a list of two or more different layers",
        "west south --into a --within -1": "within -1: give a number of at least 0, or a perc",
        "west south --into a --within -1%": "within '-1%': give",
        "west south --into a --within nan": "within nan: give",
        "west norht --into a": "no layer 'norht'; it has: ",
        "west south --into west": "west",
    }
    for words, message in bad.items():
        code, _, err = call(capfd, f"corridor s.zarr {words}")
        assert (code, message in err) == (2, True), err
    assert set(TileStore.open("s.zarr").layers) == {
        "corridor", "east", "elevation", "south", "west",
    }  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("given", ["dem.tif", "s.zarr", "dem.tif --store k.zarr"])
def test_between_places(tmp_path, monkeypatch, capfd, given, reverse):
    """One command gives the bits of three, where costs differ by direction."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(8)
    cells = (50 * rng.random((70, 66))).astype(np.float32)
    make_store(tmp_path / "s.zarr", cells, None, 64)
    terrain_gpu.export_layer("s.zarr", "dem.tif")
    a, b = [(3, 4), (9, 1)], [(60, 60), (66, 40), (69, 65)]
    own = make_store(tmp_path / "own.zarr", cells, None, 64)
    for name, places, back in (("a", a, reverse), ("b", b, not reverse)):
        shortest_paths(own, places, cost="tobler", connectivity=4, reverse=back, into=name)
    expected = corridor(own, ["a", "b"], within="20%")
    words = [f"--source-rowcol {row},{col}" for row, col in a]
    words += [f"--target-rowcol {row},{col}" for row, col in b]
    words += ["--reverse"] * reverse
    line = f"corridor {given} {' '.join(words)} --cost tobler --connectivity 4 --within 20%"
    code, out, err = call(capfd, f"{line} -o c.tif --verify --json r.json")
    assert code == 0, err
    (pair,) = expected.report.result["pairs"]
    assert f"sources to targets {pair['optimum']:.10g}; " in out
    told = json.loads((tmp_path / "r.json").read_text())["result"]["pairs"]
    assert told == [{"from": "sources", "to": "targets", "optimum": pair["optimum"]}]
    with rasterio.open("c.tif") as file:
        assert file.read(1).tobytes() == whole(expected.layers["corridor"]).tobytes()
    assert not [*tmp_path.glob(".terrain-gpu*")]
    if given == "dem.tif":
        return
    store = given.split()[-1]
    assert {"corridor", "corridor_from", "corridor_to"} < set(TileStore.open(store).layers)
    code, _, err = call(capfd, f"{line} -o d.tif")
    assert (code, "--overwrite replaces it" in err) == (2, True), err
    narrow = f"{line.replace('20%', '5%')} -o c.tif --overwrite"
    assert call(capfd, f"{narrow} --resume")[0] == 0
    with rasterio.open("c.tif") as file:
        near = whole(corridor(own, ["a", "b"], within="5%", overwrite=True).layers["corridor"])
        assert file.read(1).tobytes() == near.tobytes()


def test_the_plan_counts_the_searches(tmp_path, capfd):
    """Of a corridor between places: both searches, and the corridor of what they find."""
    cells = (50 * np.random.default_rng(8).random((170, 266))).astype(np.float32)
    store = make_store(tmp_path / "s.zarr", cells, None, 64)
    how = {"memory_limit": 10**9, "threads": 2}
    of_paths = {"cost": "tobler", "connectivity": 4, "backend": "cpu", **how}
    runs = [shortest_paths(store, [(3, 4)], into="a", **of_paths)]
    runs += [shortest_paths(store, [(90, 80)], into="b", reverse=True, **of_paths)]
    runs += [corridor(store, ["a", "b"], **how)]
    plans = [run.report.settings["plan"] for run in runs]
    line = f"plan {store} --for corridor --memory-limit 1GB --threads 2"
    code, out, err = call(capfd, f"{line} --cost tobler --connectivity 4 --json -")
    assert code == 0, err
    planned = json.loads(out)["result"]
    assert planned["memory"] == max(plan["memory"] for plan in plans)
    for key in ("bytes_read", "bytes_written"):
        assert planned[key] == sum(plan[key] for plan in plans)
    code, out, err = call(capfd, f"{line} --layers 2 --dtype float64 --json -")
    assert json.loads(out)["result"] == plans[2]
    bad = {
        "--cost minimax": "so the costs of its parts do not add up",
        "--layers 2 --friction elevation": "--friction is for a corridor between places",
        "--layers 1": "a corridor needs two or more",
        "--points 3": "--points needs --for cost-matrix",
    }
    for words, message in bad.items():
        code, _, err = call(capfd, f"{line} {words}")
        assert (code, message in err) == (2, True), err
    line = "plan 900x900 --for corridor --workers 4"
    assert "add two of --for sssp" in call(capfd, line)[1]
    assert "scheduler" in call(capfd, f"{line} --layers 2")[1]


def test_what_is_refused_between_places(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    cells = np.full((5, 9), 3, np.int16)
    cells[2, 4] = -1
    make_store(tmp_path / "s.zarr", cells, -1, 64)
    ends = "--source-rowcol 0,0 --target-rowcol 4,8"
    bad = {
        "": "no source: give --source X,Y, --source-rowcol ROW,COL or --sources FILE; or two",
        "--source-rowcol 0,0": "no target: give --target X,Y",
        f"{ends} --cost minimax": "so the costs of its parts do not add up",
        f"a b {ends}": "--source-rowcol is for distances that are computed here; leave it out",
        "a b --backend cpu": "--backend is for distances that are computed here",
        "--source-rowcol 0,0 --target-rowcol 2,4": "1 of 1 given cells are nodata: row 2, column 4",
        f"{ends} --into elevation": "--into elevation: --layer already names this layer",
        f"{ends} --target-rowcol 5,8": "--target-rowcol: ",
        f"{ends} --within x%": "--within 'x%': give a number of at least 0, or a perc",
        f"{ends} --friction f.tif": "--friction: f.tif: no such file",
        "--sources no.gpkg --target-rowcol 4,8": "--sources: no.gpkg: no such file",
        f"{ends} --target-rowcol 0,0": "--source-rowcol and --target-rowcol share 1 cell, such as",
    }
    for words, message in bad.items():
        code, _, err = call(capfd, f"corridor s.zarr {words}")
        assert (code, message in err) == (2, True), err
    assert set(TileStore.open("s.zarr").layers) == {"elevation"}


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_field_called_cost_is_refused(tmp_path, monkeypatch, capfd, end):
    """Start costs would be part of the least cost, and so of a percentage of it."""
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path / "s.zarr", np.full((5, 9), 3, np.int16), -1, 64)
    x, y = (TRANSFORM[2] + 15, TRANSFORM[5] - 30)
    feature = {"type": "Feature", "properties": {"cost": 5000}}
    feature["geometry"] = {"type": "Point", "coordinates": [x, y]}
    shops = {"type": "FeatureCollection", "crs": None, "features": [feature]}
    (tmp_path / "shops.geojson").write_text(json.dumps(shops))
    other = "target" if end == "source" else "source"
    line = f"corridor s.zarr --{end}s shops.geojson --{other}-rowcol 4,8 --cost surface"
    code, _, err = call(capfd, line)
    assert code == 2
    assert f"{end}s: 1 has a start cost of 5000, which cannot be used for paths" in err
    assert "or rename the field cost of shops.geojson" in err
    assert set(TileStore.open("s.zarr").layers) == {"elevation"}


def test_places_and_cost_are_told(tmp_path, monkeypatch, capfd):
    """The summary names a cost that --friction chose, and places in another CRS."""
    monkeypatch.chdir(tmp_path)
    how = {"driver": "GTiff", "count": 1, "dtype": "int16", "height": 5, "width": 9}
    where = rasterio.transform.from_origin(0, 0, 10, 10)
    with rasterio.open("dem.tif", "w", crs="EPSG:3857", transform=where, **how) as file:
        file.write(np.full((5, 9), 3, np.int16), 1)
    point = '{"type": "Point", "coordinates": [4.5e-5, -4.5e-5]}'
    (tmp_path / "a.geojson").write_text(
        f'{{"type": "Feature", "properties": {{}}, "geometry": {point}}}'
    )
    words = "--sources a.geojson --target-rowcol 4,8 --friction dem.tif -o c.tif --json r.json"
    code, out, err = call(capfd, f"corridor dem.tif {words}")
    assert code == 0, err
    assert ", cost friction, sources reprojected from " in out
    assert "sources" in json.loads((tmp_path / "r.json").read_text())["result"]["reprojected"]


def test_distances_with_other_steps_are_told(tmp_path, caplog):
    store = make_store(tmp_path / "s.zarr", np.arange(36.0).reshape(6, 6), None, 64)
    shortest_paths(store, [(0, 0)], cost="surface", into="a")
    shortest_paths(store, [(5, 5)], cost="surface", into="b", reverse=True, max_cost=99)
    corridor(store, ["a", "b"])
    assert "steps" not in caplog.text
    shortest_paths(store, [(5, 4)], cost="tobler", into="c", connectivity=4, reverse=True)
    corridor(store, ["a", "b", "c"], overwrite=True)
    (told,) = [one.getMessage() for one in caplog.records if "steps" in one.getMessage()]
    assert told.startswith(
        "a and c were computed with different steps (cost surface and tobler, connectivity 8 and 4)"
    )


@pytest.mark.parametrize(
    ("cost", "directed"),
    [
        ("tobler", True),
        ("langmuir", True),
        ("length + max(0, dz)", True),
        ("surface", False),
        ("length * (1 + abs(dz))", False),
    ],
)
def test_two_directed_layers_of_the_same_direction_are_told(tmp_path, caplog, cost, directed):
    """Their least sum is not the cost of a way, which it is with one of each direction."""
    heights = np.random.default_rng(3).uniform(0, 9, (24, 30))
    store = make_store(tmp_path / "s.zarr", heights, None, 64)
    ends = {"a": (2, 3), "b": (20, 25)}
    for name, cell in ends.items():
        for reverse in (False, True):
            into = f"{'to' if reverse else 'from'}_{name}"
            shortest_paths(store, [cell], cost=cost, into=into, reverse=reverse, backend="cpu")
    best = float(TileStore.open(store).layer("from_a").read_window(20, 21, 25, 26)[0, 0])
    for one in ("from_a", "to_a"):
        for other in ("from_b", "to_b"):
            caplog.clear()
            found = corridor(store, [one, other], overwrite=True).report.result["pairs"][0]
            same = one[:2] == other[:2]
            told = [text for text in caplog.messages if "differs uphill and downhill" in text]
            assert len(told) == (directed and same), (one, other)
            if told:
                way, how = ("to", "without") if one == "to_a" else ("from", "with")
                assert told[0].startswith(f"{one} and {other} both hold costs {way} their sources")
                assert told[0].endswith(f"compute one of them {how} reverse (--reverse)")
            if (one, other) == ("from_a", "to_b") or not directed:
                assert found["optimum"] == pytest.approx(best)
    if directed:
        assert corridor(store, ["from_a", "from_b"], overwrite=True).report.result["pairs"][0][
            "optimum"
        ] != pytest.approx(best)


def test_two_layers_of_the_same_sources_are_refused(tmp_path, caplog):
    store = make_store(tmp_path / "s.zarr", np.arange(36.0).reshape(6, 6), None, 64)
    shortest_paths(store, [(0, 0), (3, 3)], into="a", backend="cpu")
    shortest_paths(store, [(0, 0), (3, 3)], into="b", max_cost=99, backend="cpu")
    shortest_paths(store, [(3, 3), (5, 5)], into="c", backend="cpu")
    with pytest.raises(InputError, match="a and b hold costs from the same sources"):
        corridor(store, ["a", "b"])
    corridor(store, ["a", "c"])
    assert "a and c are both 0 at a cell" in caplog.text


def test_layers_that_hold_no_distances(tmp_path, caplog):
    heights = np.arange(36.0).reshape(6, 6)
    store = make_store(tmp_path / "s.zarr", heights, None, 64)
    shortest_paths(store, [(0, 0)], into="a", backlink=True, cost="surface")
    shortest_paths(store, [(5, 5)], into="b", cost="surface")
    shortest_paths(store, [(5, 5)], into="pass", cost="minimax")
    terrain_gpu.tied_steps(store, "a")
    terrain_gpu.calc(store, "a * 2", into="twice")
    terrain_gpu.calc(store, "where(a > 9, 9 - a, a)", into="low")
    caplog.clear()
    corridor(store, ["a", "b"], into="way")
    assert not caplog.messages
    for other, why in {
        "elevation": "s.zarr/elevation: is an input of the costs in layer a",
        "a_backlink": "s.zarr/a_backlink: is not the layer of distances, which",
        "a_ties": "s.zarr/a_ties: is not the layer of distances, which",
        "way": "s.zarr/way: was made by corridor",
        "pass": "s.zarr/pass: has cost minimax",
        "low": r"s.zarr/low: has -1\.0\d* at row 0, column 1, which is not a distance",
    }.items():
        for names in (["a", other], [other, "a"]):
            with pytest.raises(InputError, match=why):
                corridor(store, names)
    caplog.clear()
    corridor(store, ["a", "twice"])
    assert [text.split(";")[0] for text in caplog.messages] == [
        "twice has no record of being distances made by compute-sssp",
        "a and twice are both 0 at a cell, which is a source of both or is reached at no cost",
    ]


def test_a_negative_value_is_named_with_its_cell(tmp_path, monkeypatch):
    heights = np.ones((70, 66), np.int32)
    heights[[67, 68], [65, 1]] = -3, -4
    store = make_store(tmp_path / "s.zarr", heights, -4, 64)
    terrain_gpu.calc(store, "elevation * 0 + 1", into="ones")
    monkeypatch.setattr(corridors, "_STRIP", 4)
    with pytest.raises(InputError, match="elevation: has -3 at row 67, column 65, which is not"):
        corridor(store, ["ones", "elevation"])
