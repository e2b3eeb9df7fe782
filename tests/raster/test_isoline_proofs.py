"""The proof of contour lines: right files pass, and every change is found and named."""

from __future__ import annotations

import pickle
import shutil
import tracemalloc
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from strategies import rasters, shapes, transforms
from test_contours import LEVELS, PLAIN, surfaces, write
from test_polygon_proofs import ENDINGS, call, rewritten, store_of

from terrain_gpu import TileStore, contours, create_layer, polygons
from terrain_gpu.cells import is_nodata
from terrain_gpu.engine.plan import Excess
from terrain_gpu.engine.proof import Limits
from terrain_gpu.errors import InputError, VerificationError
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.io.proof.line_files import LineFile
from terrain_gpu.raster.contours import proof as isolines_proof
from terrain_gpu.raster.contours.proof import IsolineProof
from terrain_gpu.raster.drawing.levels import ContourLevels

pytestmark = pytest.mark.usefixtures("no_fsync")


@settings(max_examples=examples(60))
@given(surfaces(), LEVELS, transforms(), st.sampled_from([64, 128, 256]), ENDINGS)
def test_right_lines_pass(folders, data, levels, transform, block, ending):
    with folders() as folder:
        store = write(folder / "s.zarr", data, transform, 99, block)
        found = contours(store, folder / f"c{ending}", breaks=levels, verify=True)
        assert found.report.result["verified_lines"] == found.features


@given(rasters(shape=shapes(130, 2500)), st.floats(-3000, 9000), ENDINGS)
def test_right_lines_of_any_type_pass(folders, raster, base, ending):
    good = ~is_nodata(raster.cells, raster.nodata)
    spread = float(np.abs(raster.cells[good].astype(np.float64)).max(initial=1.0))
    with folders() as folder:
        store = store_of(folder, raster.cells, nodata=raster.nodata)
        with suppress(InputError):  # an interval that is small beside the values
            found = contours(store, folder / f"c{ending}", layer="labels", base=base, verify=True,
                             interval=max(spread / 9, 1e-300))  # fmt: skip
            assert found.report.result["verified_lines"] == found.features


@pytest.mark.parametrize(
    ("epsg", "west", "side", "north"),
    [
        (3857, 1.9e7, 5e4, 1e6),
        (3857, 0.0, 1e6, 1e7),  # from 0 to 360 degrees
        (4326, 170.0, 0.5, 10.0),
        (4326, 10.0, 2.0**-28, 10.0),  # nine decimals do not tell all vertices from each other
    ],
)
@pytest.mark.parametrize("ending", [".geojson", ".fgb"])
def test_lines_past_180_degrees(tmp_path, epsg, west, side, north, ending):
    data = np.random.default_rng(0).integers(0, 9, (20, 40)).astype(np.int16)
    data[::7, ::5] = 0
    transform = side, 0.0, west, 0.0, -side, north
    store = store_of(tmp_path, data, transform, crs=CRS.from_epsg(epsg).to_wkt())
    found = contours(store, tmp_path / f"c{ending}", layer="labels", interval=1, verify=True)
    assert found.report.result["verified_lines"] == found.features > 100


@pytest.mark.parametrize(("epsg", "side"), [(4326, 2.5e-9), (32633, 3e-4), (2263, 1e-3)])
def test_cells_too_fine_for_geojson(tmp_path, epsg, side):
    """Below a third of a millimetre. 2263 has feet."""
    data = np.random.default_rng(0).integers(1, 9, (9, 8)).astype(np.int16)
    for side_, fine in ((side, True), (2 * side, False)):
        transform = side_, 0.0, 10.0, 0.0, -side_, 10.0
        crs = CRS.from_epsg(epsg).to_wkt()
        store = store_of(tmp_path / f"{fine}", data, transform, crs=crs)
        for draw, how in ((contours, {"interval": 1}), (polygons, {})):
            for ending in (".geojson", ".fgb"):
                file = tmp_path / f"{fine}-{draw.__name__}{ending}"
                with (
                    pytest.raises(InputError, match=r"nine decimals .* write a GeoPackage")
                    if fine and ending == ".geojson"
                    else nullcontext()
                ):
                    draw(store, file, layer="labels", verify=True, **how)


def test_strips_and_ranges_of_levels_do_not_matter(tmp_path, monkeypatch):
    """Of rows in strips, and where so many levels cross that they are looked at in parts."""
    data = np.random.default_rng(3).integers(0, 4000, (70, 66)).astype(np.int16)
    store = write(tmp_path / "s.zarr", data, PLAIN, 99)
    for strip in (1, 1000):
        monkeypatch.setattr(isolines_proof, "_STRIP", strip)
        contours(store, tmp_path / "c.fgb", interval=400, verify=True, overwrite=True)


# -- mutations ---------------------------------------------------------------------------------

CELLS = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
        [1, 5, 1, 5, 1, 2, 2, 2, 1],
        [1, 1, 5, 1, 1, 2, 3, 2, 1],
        [1, 5, 1, 5, 1, 2, 2, 9, 1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
        [3, 4, 5, 6, 7, 8, 7, 6, 5],
    ],
    np.int16,
)
"""Saddles; a flat top at a level, with a void; a slope with lines to the edge."""

GRID = (2.0, 0.0, 10.0, 0.0, -2.0, 50.0)
LEVELS_OF = ContourLevels((2.0, 3.5, 5.5))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    write(folder / "s.zarr", CELLS, GRID, 9)
    contours(folder / "s.zarr", folder / "c.geojson", breaks=LEVELS_OF.breaks, verify=True)
    return folder


def prove(folder, file, levels=LEVELS_OF):
    layer = TileStore.open(folder / "s.zarr").layer("elevation")
    of = LineFile(file, file, layer.grid, "contours", ("level",))
    return IsolineProof(of, layer, levels).run(Limits.of(threads=1))


def line_of(found, level, *, ring):
    """A long line of a level."""
    lines = [one["geometry"]["coordinates"] for one in found if one["properties"]["level"] == level]
    return max((one for one in lines if (one[0] == one[-1]) == ring), key=len)


def moved(found):
    line_of(found, 3.5, ring=False)[1][0] += 2.0**-40


def dropped(found):
    del found[1]


def dropped_last(found):
    del found[-1]


def doubled(found):
    found.insert(2, found[1])


def of_another_level(found):
    """A line of the first level gets the second one's."""
    found[[one["properties"]["level"] for one in found].index(3.5) - 1]["properties"]["level"] = 3.5


def cut_out(found):
    del line_of(found, 3.5, ring=True)[2]


def shortened(found):
    del line_of(found, 3.5, ring=False)[-1]


def opened(found):
    del line_of(found, 3.5, ring=True)[-1]


def turned(found):
    line_of(found, 3.5, ring=False).reverse()


def turned_ring(found):
    line_of(found, 3.5, ring=True).reverse()


def repeated(found):
    line = line_of(found, 5.5, ring=False)
    line.insert(1, line[1])


def twice_round(found):
    line = line_of(found, 3.5, ring=True)
    line += line[1:]


def in_two(found):
    """A line is cut at a vertex: its steps are the same."""
    line = line_of(found, 3.5, ring=False)
    one = next(one for one in found if one["geometry"]["coordinates"] is line)
    more = {"type": "LineString", "coordinates": line[1:]}
    found.insert(found.index(one), {**one, "geometry": more})
    del line[2:]


def in_two_at_a_cell(found):
    """The same at the centre of a cell, where the level is its value and lines may touch."""
    one, k = next(
        (one, k)
        for one in found
        for k, (x, y) in enumerate(one["geometry"]["coordinates"][1:-1], 1)
        if (x % 2, y % 2) == (1, 1) and one["properties"]["level"] == 2
    )
    line = one["geometry"]["coordinates"]
    more = {"type": "LineString", "coordinates": line[k:]}
    found.insert(found.index(one), {**one, "geometry": more})
    del line[k + 1 :]


def other_saddle(found):
    """What two lines do in a saddle is exchanged: their vertices are the same."""
    lines = [one["geometry"]["coordinates"] for one in found if one["properties"]["level"] == 3.5]
    rings = [one[:-1] for one in lines if one[0] == one[-1] and len(one) == 5]
    one, other = rings[0], rings[1]
    near = min(
        ((j, k) for j in range(len(one)) for k in range(len(other))),
        key=lambda at: np.hypot(*np.subtract(one[at[0]], other[at[1]])),
    )
    joined = one[near[0] :] + one[: near[0]] + other[near[1] :] + other[: near[1]]
    for line, own in zip([k for k in lines if k[:-1] in (one, other)], (joined, None), strict=True):
        if own is None:
            found[:] = [k for k in found if k["geometry"]["coordinates"] is not line]
        else:
            line[:] = [*own, own[0]]


def descending(found):
    found.append(found.pop(0))


def valued(name, value):
    def change(found):
        found[1]["properties"][name] = value

    change.__name__ = f"wrong_{name}"
    return change


AS_NONE = r"line \d+: does not pass \(.*\) as contours of level 3\.5 do"

MUTATIONS = [
    (moved, AS_NONE),
    (dropped, r"no line passes \(.*\) as a contour of level 2\.0 does"),
    (dropped_last, r"no line passes \(.*\) as a contour of level 5\.5 does"),
    (doubled, r"line \d: passes \(.*\) once more than contours of level 2\.0 do"),
    (of_another_level, AS_NONE),
    (cut_out, AS_NONE),
    (shortened, AS_NONE),
    (opened, AS_NONE),
    (turned, AS_NONE),
    (turned_ring, AS_NONE),
    (repeated, r"line \d+: does not pass \(.*\) as contours of level 5\.5 do"),
    (twice_round, r"line \d+: passes \(.*\) once more than contours of level 3\.5 do"),
    (in_two, AS_NONE),
    (in_two_at_a_cell, r"line \d+: does not pass .* as contours of level 2\.0 do"),
    (other_saddle, AS_NONE),
    (descending, r"line \d+: level 2\.0 is less than that of the line before"),
    (valued("level", 2.5), r"line 2: level 2\.5 is none of those asked for"),
    (valued("level", 2), r"line 2: level 2 is none of those asked for"),
    (valued("more", 3), "line 2: has other attributes"),
]


@pytest.mark.parametrize(
    ("change", "message"), MUTATIONS, ids=lambda one: getattr(one, "__name__", "-")
)
def test_every_change_is_found(drawn, tmp_path, change, message):
    file = tmp_path / "c.geojson"
    rewritten(drawn / "c.geojson", file, lambda found: None)
    assert prove(drawn, file)["lines"] > 5
    rewritten(drawn / "c.geojson", file, change)
    with pytest.raises(VerificationError, match=message) as error:
        prove(drawn, file)
    assert "c.geojson" in str(error.value)


def test_lines_of_other_levels(drawn):
    file = drawn / "c.geojson"
    with pytest.raises(VerificationError, match=r"no line passes .* level 4\.0 does"):
        prove(drawn, file, ContourLevels((2.0, 3.5, 4.0, 5.5)))
    with pytest.raises(VerificationError, match=r"line \d+: level 3\.5 is none of those"):
        prove(drawn, file, ContourLevels((), 1.75, 0.25))


def test_a_line_that_ends_where_it_begins(tmp_path):
    """Round a flat top at a level, from beside a void: in the file it looks like a ring."""
    data = np.ones((5, 5), np.int16)
    data[1:4, 1:4], data[0, 0] = 2, 9
    store = write(tmp_path / "s.zarr", data, PLAIN, 9)
    found = contours(store, tmp_path / "c.geojson", breaks=[2], verify=True)
    assert (found.features, found.report.result["closed"]) == (1, 0)
    levels = ContourLevels((2.0,))

    def begun_elsewhere(found):
        line = found[0]["geometry"]["coordinates"]
        assert line[0] == line[-1]
        line[:] = [*line[1:], line[1]]

    rewritten(tmp_path / "c.geojson", tmp_path / "d.geojson", begun_elsewhere)
    with pytest.raises(VerificationError, match=r"line 1: does not pass \(1\.5, -1\.5\)"):
        prove(tmp_path, tmp_path / "d.geojson", levels)
    # Without the void, the ring may begin anywhere.
    data[0, 0] = 1
    write(tmp_path / "o" / "s.zarr", data, PLAIN, 9)
    for file in ("c.geojson", "d.geojson"):
        assert prove(tmp_path / "o", tmp_path / file, levels) == {"lines": 1, "vertices": 8}


@settings(max_examples=examples(60))
@given(surfaces(), LEVELS, st.integers(0, 2**32 - 1))
def test_every_vertex_counts(folders, data, levels, seed):
    """Wherever a line is cut, changed or left out, of any raster."""
    rng = np.random.default_rng(seed)

    def change(found):
        k = int(rng.integers(len(found)))
        line = found[k]["geometry"]["coordinates"]
        at = int(rng.integers(len(line)))
        kind = rng.integers(5)
        if kind == 0:
            line[at][int(rng.integers(2))] += 2.0**-30
        elif kind == 1:
            del found[k]
        elif kind == 2:
            found.insert(k, found[k])
        elif kind == 3 and 0 < at < len(line) - 1:
            more = {"type": "LineString", "coordinates": line[at:]}
            found.insert(k, {**found[k], "geometry": more})
            del line[at + 1 :]
        elif len(line) > 2:
            del line[at]
        else:
            line.reverse()

    with folders() as folder:
        store = write(folder / "s.zarr", data, PLAIN, 99)
        if not contours(store, folder / "c.geojson", breaks=levels).features:
            return
        rewritten(folder / "c.geojson", folder / "d.geojson", change)
        with pytest.raises(VerificationError, match=r"d\.geojson: "):
            prove(folder, folder / "d.geojson", ContourLevels(tuple(levels)))


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [64, 1024])
def test_the_plan_counts_what_a_block_takes(block):
    data = np.random.default_rng(0).integers(0, 4000, (64, block)).astype(np.float32)
    blocks = BlockGrid(*data.shape, block)
    finder = isolines_proof._TurnsOf(
        ContourLevels((), 500.0), GridSpec(*data.shape, PLAIN), blocks, None, False
    )
    finder = pickle.loads(pickle.dumps(finder))
    tracemalloc.start()
    try:
        finder((0, 0), [np.pad(data, 1)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < isolines_proof._worker_bytes(block)


@pytest.mark.parametrize("ending", [".geojson", ".gpkg", ".fgb"])
@pytest.mark.parametrize("epsg", [4326, 32632])
def test_room_for_lines(tmp_path, monkeypatch, ending, epsg):
    """What is asked for bounds what is allocated."""
    data = np.zeros((300, 300), np.int16)
    data[1:-1, ::2] = data[1] = 9  # a comb, with one line
    crs, file = CRS.from_epsg(epsg).to_wkt(), tmp_path / f"c{ending}"
    store = store_of(tmp_path, data, (0.01, 0.0, 5.0, 0.0, -0.01, 50.0), 256, nodata=99, crs=crs)
    contours(store, file, layer="labels", breaks=[5], verify=True)
    layer, limits, asked = TileStore.open(store).layer("labels"), Limits.of(threads=1), []
    proof = IsolineProof(
        LineFile(file, file, layer.grid, "contours", ("level",)), layer, ContourLevels((5.0,))
    )
    plan = IsolineProof.plan(layer, limits)
    monkeypatch.setattr(
        Excess, "has_room", lambda self, more=0, what="": asked.append(more) or True
    )
    tracemalloc.start()
    try:
        for _ in proof._of_file(plan, limits, np.empty(0, np.uint64)):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < max(asked) + isolines_proof._BATCH * isolines_proof._VERTEX_BYTES


# -- the command -------------------------------------------------------------------------------


def test_a_wrong_file_does_not_get_its_name(drawn, tmp_path, monkeypatch, capfd):
    from terrain_gpu.raster.contours import kernels

    words = f"contours {drawn / 's.zarr'} {tmp_path / 'c.geojson'} --breaks 2,3.5 --verify"
    assert call(words) == 0
    assert "verified" in capfd.readouterr().out
    right, place = (tmp_path / "c.geojson").read_bytes(), kernels.place

    def shifted(*how):
        place(*how)
        how[-1][:1] += 0.25

    monkeypatch.setattr(kernels, "place", shifted)
    assert call(f"{words} --overwrite") == 1
    assert "c.geojson: line" in capfd.readouterr().err
    assert (tmp_path / "c.geojson").read_bytes() == right


@pytest.mark.parametrize("kind", ["geojson", "gpkg", "parquet", "fgb"])
def test_files_that_were_drawn_earlier(drawn, tmp_path, capfd, kind):
    store, file = tmp_path / "s.zarr", tmp_path / f"c.{kind}"
    shutil.copytree(drawn / "s.zarr", store)
    how = {
        "--breaks 2,3.5,5.5": "10 lines of 3 levels of layer elevation",
        "--interval 0.5 --base 0.2": "lines of 14 levels of layer elevation",
        "--breaks 2,3.5,inf --polygons": "9 polygons of layer elevation",
        "--breaks 0,1.5,2.5,3.5 --polygons --cumulative": "polygons of layer elevation",
        "--interval 1 --polygons": "polygons of layer elevation",
        None: "polygons of layer elevation",
    }
    for words, told in how.items():
        if words is None:
            polygons(store, file, layer="elevation", names={1: "one", 2: "two"}, overwrite=True)
        else:
            assert call(f"contours {store} {file} {words} --overwrite -q") == 0
        capfd.readouterr()
        assert call(f"verify {store} --file {file}") == 0
        assert told in capfd.readouterr().out
    # Of other cells; and not as the others say.
    with create_layer(store, "other", GridSpec(*CELLS.shape, GRID), np.int16, nodata=9) as writer:
        writer.write_block(0, 0, np.where(CELLS == 3, 4, CELLS).astype(np.int16))
        writer.commit()
    for words in list(how)[:-1]:
        assert call(f"contours {store} {file} {words} --overwrite -q") == 0
        assert call(f"verify {store} --file {file} --layer other -q") == 1
        assert file.name in capfd.readouterr().err
    assert call(f"verify {store} --file {file} --heights elevation -q") == 2


def test_what_hinders_several_proofs_is_told_once(drawn, tmp_path, capfd):
    store = tmp_path / "s.zarr"
    shutil.copytree(drawn / "s.zarr", store)
    for name in ("a", "b"):
        assert call(f"slope {store} --into {name} -q") == 0
    shutil.rmtree(store / "elevation")
    assert call(f"verify {store} -q") == 2
    assert capfd.readouterr().err.count("no layer 'elevation'") == 1


@pytest.mark.parametrize("ending", ["geojson", "gpkg"])
def test_files_that_are_no_drawing_are_told(tmp_path, capsys, ending):
    path = write(tmp_path / "s.zarr", np.zeros((70, 80), np.float32), block=64)
    file = tmp_path / f"l.{ending}"
    assert call(f"verify {path} --file {file} -q") == 2
    assert f"{file}: no such file" in capsys.readouterr().err
    assert not file.exists()
    file.write_text('{"type": "FeatureCollection", "features": []}')  # by another program
    assert call(f"verify {path} --file {file} -q") == 2
    assert "is not a file as contours or polygons write it" in capsys.readouterr().err
