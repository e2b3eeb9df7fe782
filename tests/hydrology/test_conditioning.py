"""Directions over heights that are carved, filled, breached or burned first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio
import reference
from contract import make_store, same, whole
from test_breach import right as breached
from test_burn import right as burned
from test_burn import vector
from test_flow import call, right_codes

from terrain_gpu import (
    GridSpec,
    TileStore,
    breach,
    create_layer,
    fill,
    flow_direction,
    minimum_spanning_tree,
)
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.hydrology.conditioning import heights_in
from terrain_gpu.hydrology.flow_direction.operation import methods_of
from terrain_gpu.hydrology.forest.source import heights_of
from terrain_gpu.io.places import from_vector


def terrain(shape=(130, 150)):
    rng = np.random.default_rng(5)
    row, col = np.indices(shape)
    found = (row + 2 * col + rng.integers(0, 40, shape)).astype(np.int16)
    found[60:70, 50:90] = 30  # a lake
    return found


@pytest.fixture
def store(tmp_path, monkeypatch, no_fsync):
    monkeypatch.chdir(tmp_path)
    return make_store(Path("s.zarr"), terrain(), -1, 64)


def layer(name):
    return whole(TileStore.open("s.zarr").layer(name))


def grid():
    return TileStore.open("s.zarr").grid


# -- which ways go together ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((None, None), ("carve", "tree")),
        ((None, "tree"), ("carve", "tree")),
        ((None, "gradient"), ("fill", "gradient")),
        (("carve", None), ("carve", "tree")),
        (("carve", "tree"), ("carve", "tree")),
        (("fill", None), ("fill", "gradient")),
        (("fill", "gradient"), ("fill", "gradient")),
        (("breach", None), ("breach", "tree")),
        (("breach", "tree"), ("breach", "tree")),
        (("breach", "gradient"), ("breach", "gradient")),
        (("fill", "tree"), "filled depressions are flats, which drain by gradients"),
        (("carve", "gradient"), "gradients need filled depressions"),
    ],
)
def test_depressions_and_flats(store, capsys, given, found):
    if isinstance(found, tuple):
        assert methods_of(*given) == found
        return
    with pytest.raises(InputError, match=found):
        flow_direction(store, depressions=given[0], flats=given[1])
    depressions, flats = given
    assert call(f"flow-direction s.zarr --depressions {depressions} --flats {flats}") == 2
    assert found in capsys.readouterr().err
    assert TileStore.open(store).layers == ["elevation"]


def test_old_calls_give_the_same(store):
    for words, into in (("", "a"), ("--depressions carve", "b"), ("--flats tree", "c"),
                        ("--flats gradient", "d"), ("--depressions fill", "e")):  # fmt: skip
        assert call(f"flow-direction s.zarr {words} --into {into} --verify -q") == 0
    right = right_codes(terrain(), -1, grid())
    assert all(same(layer(name), right) for name in "abc")
    assert same(layer("d"), layer("e"))
    assert not same(layer("d"), right)


# -- breached --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reach", "depth"),
    [("", 50, None), (" --max-depth 9 --max-distance 5", 5, 9.0), (" --max-depth 3", 50, 3.0)],
)
def test_what_is_left_is_carved_or_filled(store, words, reach, depth):
    words = f"flow-direction s.zarr --depressions breach{words}"
    assert call(f"{words} --json r.json --verify -q") == 0
    expected, _ = breached(terrain(), -1, reach, depth)
    assert same(layer("breached"), expected)
    right = right_codes(expected, -1, grid())
    assert same(layer("flow_direction"), right)
    seconds = json.loads(Path("r.json").read_text())["seconds"]
    assert {"before: breached", "before: mst"} <= seconds.keys()

    assert call(f"{words} --flats gradient --into filled_way --json r.json --verify -q") == 0
    seconds = json.loads(Path("r.json").read_text())["seconds"]
    assert not {"before: breached", "before: mst"} & seconds.keys()  # reused
    assert same(layer("filled"), reference.filled(expected, right))
    assert call("verify s.zarr --backend cpu -q") == 0


def test_from_python(store):
    breach(store, max_depth=9)
    minimum_spanning_tree(store, weight="flow", backend="cpu")
    with pytest.raises(StoreError, match="mst: the tree of the elevations of layer elevation, not"):
        flow_direction(store, depressions="breach", max_depth=9)
    minimum_spanning_tree(store, weight="flow", layer="breached", overwrite=True, backend="cpu")
    flow_direction(store, into="flow_direction_tree", layer="breached")
    fill(store, directions="flow_direction_tree")
    for depressions in ("carve", "fill"):
        with pytest.raises(StoreError, match=r"breached elevations; flow-direction --dep"):
            flow_direction(store, depressions=depressions, layer="breached")
    with pytest.raises(StoreError, match=r"breached: made with max_depth 9\.0, not"):
        flow_direction(store, depressions="breach")
    asked = flow_direction(store, depressions="breach", max_depth=9, verify=True)
    left = flow_direction(store, layer="breached", into="other")
    assert same(whole(asked.layers["flow_direction"]), whole(left.layers["other"]))
    filled = flow_direction(
        store, depressions="breach", max_depth=9, flats="gradient", into="third", verify=True
    )
    assert filled.found == asked.found


def test_from_a_raster(dem, capsys):
    words = "flow-direction dem.tif --depressions breach --max-depth 7 --max-distance 9"
    assert call(f"{words} -o codes.tif --verify") == 0
    with rasterio.open("dem.tif") as file, rasterio.open("codes.tif") as made:
        z, nodata, found = file.read(1), file.nodata, made.read(1)
    from terrain_gpu.grid import GridSpec

    with rasterio.open("dem.tif") as file:
        own = GridSpec(*z.shape, tuple(file.transform)[:6], file.crs.to_wkt() if file.crs else "")
    assert same(found, right_codes(breached(z, nodata, 9, 7.0)[0], nodata, own))


def test_layers_of_other_settings_are_replaced_only_when_asked(store, capsys):
    words = "flow-direction s.zarr --depressions breach --max-depth 9 -q"
    assert call(words) == 0
    before = layer("breached")
    for more, told in (
        ("--max-depth 5", "breached: made with max_depth 9.0, not 5.0; --overwrite replaces it"),
        ("--max-distance 7", "breached: made with max_distance 50, not 7; --overwrite"),
        ("--inner-voids", "breached: made with outlets edge, not border; --overwrite"),
    ):
        assert call(f"{words} {more} --into other") == 2
        assert told in capsys.readouterr().err
    assert same(layer("breached"), before)
    assert call(f"{words} --max-depth 5 --flats gradient --overwrite --into filled_way") == 0
    assert same(layer("breached"), breached(terrain(), -1, 50, 5.0)[0])
    assert call(f"{words} --max-depth 3 --flats gradient --overwrite --into filled_way") == 0
    expected = breached(terrain(), -1, 50, 3.0)[0]
    assert same(layer("filled"), reference.filled(expected, right_codes(expected, -1, grid())))
    assert call("verify s.zarr --backend cpu -q") == 2  # flow_direction is stale
    assert "flow_direction: computed from other cells than" in capsys.readouterr().err


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("flow-direction s.zarr --depressions breach --max-depth -1", "--max-depth -1.0: give a"),
        ("flow-direction s.zarr --depressions breach --max-depth inf", "--max-depth inf: give a"),
        ("flow-direction s.zarr --burn no.gpkg --burn-depth 2", "--burn: no.gpkg: no such file"),
        ("flow-direction s.zarr --burn r.geojson --burn-depth -2", "--burn-depth -2.0: give a"),
        ("flow-direction s.zarr --burn r.geojson --burn-depth 2.5", "--burn-depth 2.5: the ele"),
        ("flow-direction s.zarr --depressions breach --outlets no.gpkg", "--outlets: no.gpkg: no "),
        ("burn s.zarr --streams r.geojson --depth 0", "--depth 0.0: give a height above 0"),
        ("breach s.zarr --max-depth nan", "--max-depth nan: give a height above 0"),
        ("flow-accumulation s.zarr --method mfd --exponent -1", "--exponent -1.0 is not a finite"),
        (
            "flow-accumulation s.zarr --exponent 2",
            "--exponent 2.0 cannot be used with d8, which takes no pow",
        ),
        ("flow-accumulation s.zarr --weights rain", "no layer 'rain'; it has: elevation"),
        ("hand s.zarr --streams rivers", "no layer 'rivers'; it has: elevation"),
        ("fill-spill-merge s.zarr --rain -1", "--rain -1.0 is not a finite number of at least 0"),
        ("fill-spill-merge s.zarr --rain wet", "no layer 'wet'; it has: elevation"),
        ("hand s.zarr --threshold 1e12", "--threshold '1e12': is more than the whole raster, 19,5"),
        ("streams s.zarr --threshold 1000000km2", "the raster has no coordinate system, so its"),
        ("watershed s.zarr --pour-point-rowcol 9,9 --snap 9 --snap-area 1e12", "--snap-area '1e1"),
        ("hand s.zarr --threshold 9 --layer own", "no layer 'own'; it has: elevation"),
        ("hand s.zarr --threshold 9 --accumulation own", "no layer 'own'; it has: elevation"),
        ("hand s.zarr --threshold 9 --into mst", "--into mst: that is the spanning tree"),
        ("hand s.zarr --threshold 9 --into flow_accumulation", "--accumulation already names this"),
        ("streams s.zarr --threshold 9 --heights own --lines l.gpkg", "no layer 'own'; it has: el"),
        (
            "streams s.zarr --threshold 9 --accumulation own",
            "no layer 'own'; it has: elevation",
        ),
        ("terrain-indices s.zarr --twi t --slope own", "no layer 'own'; it has: elevation"),
        ("flow-accumulation s.zarr --method mfd --filled own", "no layer 'own'; it has: elevation"),
        ("fill s.zarr --epsilon", "elevations are int16, but --epsilon raises cells by the"),
        ("fill s.zarr --keep-larger-than 5x", "--keep-larger-than '5x': give a number of cells"),
    ],
)
def test_values_and_files_are_refused_before_trees_and_work(store, capsys, words, told, tree):
    vector(Path("r.geojson"), ("LineString", [[500011, 5499990], [501400, 5497500]]))
    if tree:
        assert call("compute-mst s.zarr --weight flow") == 0
    before = list(TileStore.open(store).layers)
    capsys.readouterr()
    assert call(words) == 2
    assert f"{told}" in capsys.readouterr().err
    assert list(TileStore.open(store).layers) == before


def test_a_tree_of_other_heights_is_refused_before_the_work(store, capsys):
    assert call("flow-direction s.zarr -q") == 0
    assert call("flow-direction s.zarr --depressions breach --into other -q") == 2
    told = capsys.readouterr().err
    assert "mst: the tree of the elevations of layer elevation, not of breached; flow-d" in told
    assert "--layer" not in told
    assert "breached" not in TileStore.open(store).layers
    assert call("flow-direction s.zarr --depressions breach --into other --overwrite -q") == 0
    assert call("flow-direction s.zarr --layer breached --depressions carve --into third -q") == 2
    assert "--depressions breach follows it, or compute it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("conditioning", "name"),
    [("--burn r.geojson --burn-depth 6", "burned"), ("--depressions breach", "breached")],
)
def test_a_tree_of_other_heights_is_not_taken_for_that_of_the_elevation(
    store, capsys, conditioning, name
):
    vector(Path("r.geojson"), ("LineString", [[500011, 5499990], [501400, 5497500]]))
    assert call(f"flow-direction s.zarr {conditioning} --into own") == 0
    over = f"from the elevations of layer {name}"
    assert over in capsys.readouterr().out
    before = TileStore.open(store).layers
    refused = f"mst: the tree of the elevations of layer {name}, not of elevation; flow-direction"
    for words in (
        *("flow-direction s.zarr", "flow-direction s.zarr --depressions carve --into other"),
        *("flow-direction s.zarr --flats gradient --into other", "hand s.zarr --to-outlets"),
        *("fill s.zarr", "depressions s.zarr", "fill-spill-merge s.zarr --rain 1"),
        *("flow-accumulation s.zarr", "streams s.zarr --threshold 9", "basins s.zarr"),
    ):
        assert call(words) == 2
        assert refused in capsys.readouterr().err
    with pytest.raises(StoreError, match=refused):
        fill(store)
    with pytest.raises(StoreError, match=refused):
        flow_direction(store)
    assert TileStore.open(store).layers == before

    for words in (
        *("fill s.zarr --into f", "depressions s.zarr", "fill-spill-merge s.zarr --rain 1"),
        f"flow-direction s.zarr --layer {name} --flats gradient --into other",
    ):
        assert call(f"{words} --directions own" if "--layer" not in words else words) == 0
        assert over in capsys.readouterr().out
    assert call(f"flow-direction s.zarr --layer {name} --into same") == 0
    assert same(layer("same"), layer("own"))
    assert call("flow-direction s.zarr --overwrite") == 0
    assert same(layer("flow_direction"), right_codes(terrain(), -1, grid()))
    assert "from the elevations" not in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("way", ["", "--depressions breach"])
def test_a_tree_of_another_weight_is_replaced_as_told(store, capsys, way):
    assert call("compute-mst s.zarr --weight max -q") == 0
    assert call(f"flow-direction s.zarr {way}") == 2
    told = "mst: of weight max, not flow; flow-direction --overwrite replaces it\n"
    assert capsys.readouterr().err.endswith(told)
    assert call(f"flow-direction s.zarr {way} --overwrite") == 0


def test_heights_of_another_name_follow_the_only_tree(tmp_path, monkeypatch, no_fsync, capsys):
    monkeypatch.chdir(tmp_path)
    make_store(Path("s.zarr"), terrain().astype(np.float32), -1, 64, name="dem")
    for words in ("flow-direction s.zarr", "fill s.zarr", "flow-direction s.zarr --overwrite"):
        assert call(words) == 2
        assert "no layer 'elevation'; it has: dem; name the elevations (flow-direction --layer" in (
            capsys.readouterr().err
        )
    assert call("compute-mst s.zarr --layer dem --weight flow -q") == 0
    assert call("fill s.zarr --epsilon") == 0
    assert "from the elevations of layer dem" in capsys.readouterr().out
    expected = right_codes(terrain().astype(np.float32), -1, grid())
    for words in ("flow-direction s.zarr --into own", "flow-direction s.zarr --overwrite"):
        assert call(words) == 0
        assert "from the elevations of layer dem" in capsys.readouterr().out
    assert same(layer("own"), expected)
    assert same(layer("flow_direction"), expected)
    assert call("flow-direction s.zarr --layer elevation --into other") == 2
    assert "no layer 'elevation'; it has: dem" in capsys.readouterr().err
    for _ in range(2):  # the tree is then that of the breached heights
        assert call("flow-direction s.zarr --depressions breach --overwrite") == 0
    assert TileStore.open("s.zarr").layer("breached").info["settings"]["breach_of"] == "dem"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (None, "elevation"),
        ({}, "elevation"),
        ({"of": {"a": "1", "b": "2"}}, "elevation"),
        ({"filled": "none"}, "elevation"),
        ({"of": {"mst": "1", "dem": "2"}}, "dem"),
        ({"fill_of": "dem", "of": {"a": "1", "b": "2"}}, "dem"),
    ],
)
def test_heights_of_results_that_say_little(store, settings, name):
    opened = TileStore.open(store).layer("elevation")
    opened.info["settings"] = settings
    assert heights_of(opened) == name


def test_backlinks_are_not_taken_for_heights(store, capsys):
    assert call("compute-sssp s.zarr --source-rowcol 5,5 --cost absdiff --backlink b.tif -q") == 0
    assert call("flow-direction s.zarr --layer backlink") == 2
    assert (
        "backlink: holds backlinks, not elevations; name the elevations" in capsys.readouterr().err
    )


# -- burned ----------------------------------------------------------------------------------------


def test_burned_then_breached(store):
    vector(Path("r.geojson"), ("LineString", [[500011, 5499990], [501400, 5497500]]))
    assert call("burn s.zarr --streams r.geojson --depth 6 --into own -q") == 0
    lowered = layer("own")
    cells = np.argwhere(lowered != terrain()).tolist()
    assert len(cells) > 100
    assert same(lowered, burned(terrain(), -1, cells, 6))
    words = "flow-direction s.zarr --burn r.geojson --burn-depth 6"
    assert call(f"{words} --verify -q") == 0
    assert same(layer("burned"), lowered)
    assert same(layer("flow_direction"), right_codes(lowered, -1, grid()))
    assert call(f"{words} --depressions fill --into filled_way --verify -q") == 0
    assert same(layer("filled"), reference.filled(lowered, layer("flow_direction")))
    assert call(f"{words} --depressions breach --into other --overwrite --verify -q") == 0
    expected, _ = breached(lowered, -1, 50)
    assert same(layer("breached"), expected)
    assert same(layer("other"), right_codes(expected, -1, grid()))


def test_python_burns_and_breaches_too(store, capsys):
    """With the layers of the command, by the same rules."""
    vector(Path("r.geojson"), ("LineString", [[500011, 5499990], [501400, 5497500]]))
    shutil.copytree("s.zarr", "p.zarr")
    words = "flow-direction s.zarr --burn r.geojson --burn-depth 6 --depressions breach"
    assert call(f"{words} --max-distance 9 --max-depth 8 -q") == 0
    grid = TileStore.open("p.zarr").grid
    streams = from_vector(grid, "r.geojson", all_touched=True, fields=False)
    asked = {"burn": streams, "burn_depth": 6, "depressions": "breach"}
    made = flow_direction("p.zarr", **asked, max_distance=9, max_depth=8)
    assert {"before: burned", "before: breached", "before: mst"} <= made.report.seconds.keys()
    for name in ("burned", "breached", "flow_direction"):
        one, other = (TileStore.open(path).layer(name) for path in ("s.zarr", "p.zarr"))
        assert one.identity == other.identity
        assert one.info["settings"] == other.info["settings"]
    with pytest.raises(StoreError, match="breached: made with max_distance 9, not 50"):
        flow_direction("p.zarr", **asked, max_depth=8, into="other")
    for layer_of in ({"layer": "elevation"}, {}):
        with pytest.raises(
            StoreError, match="mst: the tree of the elevations of layer breached, not"
        ):
            flow_direction("p.zarr", **layer_of, into="other")
    flow_direction("p.zarr", layer="breached", into="other")
    with pytest.raises(InputError, match="max_depth needs depressions breach"):
        flow_direction("p.zarr", max_depth=8)
    with pytest.raises(InputError, match="burn and burn_depth need each other"):
        flow_direction("p.zarr", burn=streams)
    with pytest.raises(InputError, match="burn: has no cells"):
        flow_direction("p.zarr", burn=[], burn_depth=3, overwrite=True)
    given = flow_direction("p.zarr", np.array([[40, 50]]), depressions="breach", overwrite=True)
    assert given.found["outlets"] == 1


def test_elevations_that_were_filled_are_not_changed(store):
    """What would change others is refused, and nothing is computed for it."""
    flow_direction(store)
    fill(store, into="own")
    gradient = {"flats": "gradient", "filled": "own", "into": "other"}
    burning = {"burn": [(5, 5)], "burn_depth": 3}
    for more, name in ((burning, "burn"), ({"depressions": "breach", "max_depth": 4}, "max_depth")):
        with pytest.raises(InputError, match=f"filled already, which {name} would not change"):
            flow_direction(store, **gradient, **more)
    with pytest.raises(
        InputError, match="filled own was filled from elevation, not from layer own"
    ):
        flow_direction(store, **gradient, layer="own")
    with pytest.raises(StoreError, match=r"no layer 'none'; .*; terrain-gpu fill makes one"):
        flow_direction(store, **gradient | {"filled": "none"})
    before = TileStore.open(store).layers
    assert flow_direction(store, **gradient).report.valid_cells
    assert TileStore.open(store).layers == sorted([*before, "other"])


def test_other_streams_are_replaced_only_when_asked(store, capsys):
    vector(Path("r.geojson"), ("LineString", [[500011, 5499990], [501400, 5497500]]))
    vector(Path("q.geojson"), ("LineString", [[500011, 5499990], [500400, 5497500]]))
    words = "flow-direction s.zarr --burn-depth 6 -q"
    assert call(f"{words} --burn r.geojson") == 0
    assert call(f"{words} --burn q.geojson --into other") == 2
    assert "burned: made with other streams; --overwrite replaces it" in capsys.readouterr().err
    assert call(f"{words} --burn r.geojson --burn-depth 7 --into other") == 2
    assert "burned: made with depth 6, not 7; --overwrite" in capsys.readouterr().err
    assert call(f"{words} --burn q.geojson --into other --overwrite") == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--max-depth 5", "--max-depth needs --depressions breach"),
        ("--depressions fill --max-distance 5", "--max-distance needs --depressions breach"),
        ("--burn r.geojson", "--burn and --burn-depth need each other"),
        ("--burn-depth 5", "--burn and --burn-depth need each other"),
        ("--burn no.gpkg --burn-depth 5", "--burn: no.gpkg"),
        ("--burn r.geojson --burn-depth 5.5", "Error: --burn-depth 5.5: the elevations are int16"),
        ("--depressions breach --max-depth 0", "--max-depth 0.0: give a height above 0"),
        ("--depressions drain", "'drain' is not one of"),
        ("--burn r.geojson --burn-depth 5 -o r.geojson", "--burn already names this file"),
    ],
)
def test_wrong_words(store, capsys, words, told):
    vector(Path("r.geojson"), ("LineString", [[500011, 5499990], [501400, 5497500]]))
    assert call(f"flow-direction s.zarr {words}") == 2
    assert told in capsys.readouterr().err
    assert TileStore.open(store).layers == ["elevation"]


def test_heights_that_are_made_from_each_other(tmp_path):
    """Metadata of another program may say so; following them ends."""
    store = tmp_path / "s.zarr"
    cells = np.random.default_rng(1).random((70, 80), np.float32)
    for name, before in (("one", "two"), ("two", "one")):
        with create_layer(store, name, GridSpec(*cells.shape), cells.dtype) as writer:
            writer.write_block(0, 0, cells)
            writer.commit({"settings": {"breach_of": before}})
    minimum_spanning_tree(store, layer="one", weight="flow")
    opened = TileStore.open(store)
    assert heights_in(opened).name == "one"
    assert heights_in(opened, plain=True).name in ("one", "two")
