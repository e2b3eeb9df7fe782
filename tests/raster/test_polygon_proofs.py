"""The proof of polygons: right files pass, and every change is found and named."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rasterio.crs import CRS
from strategies import rasters, shapes, transforms

from terrain_gpu import TileStore, contours, create_layer, polygons
from terrain_gpu.cells import is_nodata
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.machine import MB
from terrain_gpu.engine.plan import Excess
from terrain_gpu.engine.proof import Limits
from terrain_gpu.errors import InputError, PlanError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.raster.drawing.levels import ContourLevels
from terrain_gpu.raster.polygons import proof as polygons_proof
from terrain_gpu.raster.polygons.proof import (
    BandClasses,
    LabelClasses,
    PolygonProof,
    polygon_file,
)

pytestmark = pytest.mark.usefixtures("no_fsync")

ENDINGS = st.sampled_from([".gpkg", ".geojson", ".parquet", ".fgb"])
WHOLE = st.sampled_from([np.dtype(f"<{name}") for name in ("u1", "u2", "i4", "i8")])
FIELDS = "label", "cells", "area"


@st.composite
def few_labels(draw):
    """A raster of few labels, so that parts have holes and touch in corners."""
    shape = draw(shapes(150, 3000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.1, 0.4, 0.6, 0.9]))
    found = (rng.random(shape) < share) * rng.integers(1, 1 + draw(st.integers(1, 3)), shape)
    return found.astype(np.int16)


def store_of(folder, cells, transform=(1.0, 0.0, 0.0, 0.0, -1.0, 0.0), block=64, nodata=0, crs=""):
    with create_layer(
        folder / "s.zarr", "labels", GridSpec(*cells.shape, transform, crs), cells.dtype,
        nodata=nodata, block_size=block,
    ) as writer:  # fmt: skip
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(cells[r0:r1, c0:c1]))
        writer.commit()
    return folder / "s.zarr"


@given(few_labels(), transforms(), st.sampled_from([64, 128]), ENDINGS, st.booleans())
def test_right_polygons_pass(folders, cells, transform, block, ending, named):
    with folders() as folder:
        store = store_of(folder, cells, transform, block)
        how = {"layer": "labels", "names": {1: "one"} if named else None}
        found = polygons(store, folder / f"p{ending}", verify=True, **how)
        assert found.report.result["verified_polygons"] == found.polygons


@pytest.mark.parametrize(
    ("epsg", "west", "side", "north"),
    [
        (3857, 1.9e7, 5e4, 1e6),
        (3857, -2.1e7, 5e4, 1e6),
        (3857, 0.0, 1e6, 1e7),  # from 0 to 360 degrees
        (6933, 1.7e7, 5e4, 7e6),
        (4326, 170.0, 0.5, 10.0),
        (4326, 0.0, 9.0, 90.0),
    ],
)
@pytest.mark.parametrize("ending", [".geojson", ".fgb"])
def test_rasters_past_180_degrees(tmp_path, epsg, west, side, north, ending):
    cells = np.random.default_rng(0).integers(0, 3, (20, 40)).astype(np.int16)
    transform = side, 0.0, west, 0.0, -side, north
    store = store_of(tmp_path, cells, transform, crs=CRS.from_epsg(epsg).to_wkt())
    found = polygons(store, tmp_path / f"p{ending}", layer="labels", verify=True)
    assert found.report.result["verified_polygons"] == found.polygons > 100


@given(
    rasters(shape=shapes(130, 2500)),
    st.lists(st.floats(-3000, 9000), min_size=1, max_size=4, unique=True).map(sorted),
    st.sampled_from(["breaks", "cumulative", "interval"]),
    ENDINGS,
)
def test_right_bands_pass(folders, raster, breaks, kind, ending):
    with folders() as folder:
        store = store_of(folder, raster.cells, nodata=raster.nodata)
        how = {"breaks": [*breaks, np.inf], "cumulative": kind == "cumulative"}
        if kind == "interval":
            good = ~is_nodata(raster.cells, raster.nodata)
            reals = raster.cells[good].astype(np.float64)
            spread = float(np.abs(reals).max(initial=1.0))
            how = {"interval": max(spread / 9, 1e-300), "base": breaks[0]}
        with suppress(InputError):  # an interval that is small beside the values
            found = contours(store, folder / f"p{ending}", layer="labels", polygons=True,
                             verify=True, **how)  # fmt: skip
            assert "verified_polygons" in found.report.result


# -- mutations ---------------------------------------------------------------------------------

CELLS = """
1111111.22
1.....1.2.
1.333.1.22
1.3.3.1...
1.333.1.44
1.....1444
1111111.4.
5.........
.5....6666
......6666
"""
"""Nested rings, holes, and cells that touch in corners."""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    rows = CELLS.replace(".", "0").split()
    cells = np.array([list(map(int, row)) for row in rows], np.int16)
    store = store_of(folder, cells, (2.0, 0.0, 10.0, 0.0, -2.0, 50.0))
    polygons(store, folder / "p.geojson", layer="labels", verify=True)
    return folder


def prove(folder, file, classes=None):
    layer = TileStore.open(folder / "s.zarr").layer("labels")
    of = polygon_file(file, file, layer.grid, "polygons", FIELDS)
    return PolygonProof(of, layer, classes or LabelClasses()).run(Limits.of(threads=1))


def corner(row, col):
    return [10.0 + 2 * col, 50.0 - 2 * row]


def parts_of(found, label):
    return found[label - 1]["geometry"]["coordinates"]


def moved(found):
    parts_of(found, 6)[0][0][1][0] += 0.25


def moved_by_a_cell(found):
    """The upper side of a rectangle, one row down."""
    for xy in parts_of(found, 6)[0][0]:
        xy[1] -= 2 * (xy[1] == 34)
    found[5]["properties"] |= {"cells": 4, "area": 16.0}


def slanted(found):
    del parts_of(found, 6)[0][0][1]


def dropped_hole(found):
    del parts_of(found, 3)[0][1]
    found[2]["properties"] |= {"cells": 9, "area": 36.0}


def dropped_polygon(found):
    del parts_of(found, 5)[1]
    found[4]["properties"] |= {"cells": 1, "area": 4.0}


def dropped_feature(found):
    del found[3]


def swapped(found):
    """Two features have each other's label."""
    one, other = found[4:6]
    one["properties"]["label"], other["properties"]["label"] = 6, 5
    found[4:6] = other, one


def relabelled(found):
    found[5]["properties"]["label"] = 7


def turned(found):
    parts_of(found, 6)[0][0].reverse()


def turned_hole(found):
    parts_of(found, 1)[0][1].reverse()


def opened(found):
    del parts_of(found, 6)[0][0][-1]


def hole_of_another(found):
    """The hole of one polygon of a class moves to another one's."""
    found[1]["geometry"]["coordinates"] = found[1]["geometry"]["coordinates"]
    parts = parts_of(found, 1)
    parts.append(parts[0][1:])
    del parts[0][1:]


def touching(found):
    """Cells that touch in a corner, as one ring that meets it twice."""
    one, other = (part[0][:-1] for part in parts_of(found, 5))
    meet = corner(8, 1)
    one, other = (ring[ring.index(meet) :] + ring[: ring.index(meet)] for ring in (one, other))
    found[4]["geometry"]["coordinates"] = [[[*one, *other, meet]]]


def valued(name, value):
    def change(found):
        found[3]["properties"][name] = value

    change.__name__ = f"wrong_{name}"
    return change


MUTATIONS = [
    (moved, "feature 6: positions are not corners of cells"),
    (
        moved_by_a_cell,
        "side of row [89], column [69] for the class of label 6",
    ),
    (slanted, "feature 6: the corner above row .*: an edge does not follow"),
    (dropped_hole, "no ring leads along the .* side of row .*, column .* for the class of label 3"),
    (
        dropped_polygon,
        "no ring leads along the .* side of row 8, column 1 for .* label 5",
    ),
    (dropped_feature, "no ring leads along the .* side of row 4, column 8 for .* label 4"),
    (swapped, "for the class of label [56]"),
    (relabelled, "for the class of label [67]"),
    (turned, "feature 6: .*(has the outside on its left|leads round a hole|cells is)"),
    (turned_hole, "feature 1: cells is 24 instead of"),
    (opened, "feature 6: a ring is not closed"),
    (hole_of_another, "feature 1: .* is the first of its polygon, but leads round a hole"),
    (
        touching,
        "feature 5: the corner above row .*: the ring meets a corner twice",
    ),
    (valued("cells", 3), "feature 4: cells is 3 instead of 6"),
    (valued("area", 3.0), "feature 4: area is 3.0 instead of 24.0"),
    (valued("more", 3), "feature 4: has other attributes"),
    (valued("label", 1), "feature 4: its class is none that follows"),
    (valued("label", "x"), "feature 4: its class is none that follows"),
]


def rewritten(source, target, change):
    head, *lines, _ = source.read_text().split("\n")
    first = next(k for k, line in enumerate(lines) if line.startswith('{"type": "Feature",'))
    found = [json.loads(line.rstrip(",")) for line in lines[first:] if line != "]}"]
    change(found)
    target.write_text("\n".join([head, *lines[:first], ",\n".join(map(json.dumps, found)), "]}\n"]))


@pytest.mark.parametrize(
    ("change", "message"), MUTATIONS, ids=lambda one: getattr(one, "__name__", "-")
)
def test_every_change_is_found(drawn, tmp_path, change, message):
    file = tmp_path / "p.geojson"
    rewritten(drawn / "p.geojson", file, lambda found: None)
    assert prove(drawn, file)["polygons"] == 7
    rewritten(drawn / "p.geojson", file, change)
    with pytest.raises(VerificationError, match=message) as error:
        prove(drawn, file)
    assert "p.geojson" in str(error.value)


def test_holes_of_other_polygons_of_a_class(tmp_path):
    """Of two nested parts of a class, each with a hole, the holes are exchanged."""
    cells = np.ones((9, 9), np.int16)
    cells[1:8, 1:8] = 0
    cells[2:7, 2:7] = 1
    cells[4, 4] = 0
    polygons(store_of(tmp_path, cells), tmp_path / "p.geojson", layer="labels", verify=True)

    def exchanged(found):
        (outer, far), (inner, near) = parts_of(found, 1)
        found[0]["geometry"]["coordinates"] = [[outer, near], [inner, far]]

    rewritten(tmp_path / "p.geojson", tmp_path / "q.geojson", exchanged)
    with pytest.raises(VerificationError, match=r"feature 1: .* is a hole of another polygon"):
        prove(tmp_path, tmp_path / "q.geojson")


def test_two_parts_as_one_polygon(tmp_path):
    """Parts that touch in two corners, as one ring round both, and one round what they enclose."""
    cells = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], np.int16)
    polygons(store_of(tmp_path, cells), tmp_path / "p.geojson", layer="labels", verify=True)

    def joined(found):
        around = [(0, 0), (2, 0), (2, 1), (3, 1), (3, 3), (1, 3), (1, 2), (0, 2), (0, 0)]
        hole = [(1, 1), (1, 2), (2, 2), (2, 1), (1, 1)]
        rings = [[[float(col), float(-row)] for row, col in ring] for ring in (around, hole)]
        found[0]["geometry"]["coordinates"] = [rings]

    rewritten(tmp_path / "p.geojson", tmp_path / "q.geojson", joined)
    layer = TileStore.open(tmp_path / "s.zarr").layer("labels")
    of = polygon_file(tmp_path / "q.geojson", tmp_path / "q.geojson", layer.grid, "p", FIELDS)
    with pytest.raises(VerificationError, match="holds 1 polygon, but the cells are 2 parts"):
        PolygonProof(of, layer, LabelClasses()).run(Limits.of(threads=1))


def test_bands_of_other_levels(drawn, tmp_path):
    file = tmp_path / "b.geojson"
    contours(drawn / "s.zarr", file, layer="labels", polygons=True, breaks=[2, 5])
    layer = TileStore.open(drawn / "s.zarr").layer("labels")
    of = polygon_file(file, file, layer.grid, "contours", ("lower", "upper", "cells", "area"))
    PolygonProof(of, layer, BandClasses(ContourLevels((2.0, 5.0)))).run(Limits())
    with pytest.raises(VerificationError, match=r"lower is None instead of 1\.0"):
        PolygonProof(of, layer, BandClasses(ContourLevels((1.0, 2.0, 5.0)))).run(Limits())


@pytest.mark.parametrize("count", [1, 20])
def test_the_plan_counts_the_classes_of_a_cell(tmp_path, count):
    """Where all cells belong to all classes, links at the rims of blocks are kept for each."""
    store = store_of(tmp_path, np.random.default_rng(0).integers(1, 9, (192, 192)).astype("i2"))
    layer, limits = TileStore.open(store).layer("labels"), Limits.of(threads=1)
    classes = BandClasses(ContourLevels(tuple(range(1000, 1000 + count))), cumulative=True)
    cells = layer.read_ring((64, 128, 64, 128), halo=1)
    one = polygons_proof._SidesOf(classes, layer.blocks, 0)((1, 1), [cells])
    more = [
        PolygonProof.plan(layer, limits, classes.cell_bytes, most).memory
        for most in (classes.most, 0)
    ]
    assert more[0] - more[1] > 2 * layer.blocks.count * (one.links.nbytes + one.rim.nbytes)


@pytest.mark.parametrize("ending", [".geojson", ".gpkg", ".fgb"])
@pytest.mark.parametrize("epsg", [4326, 32632])
def test_room_for_features(tmp_path, monkeypatch, ending, epsg):
    """What is asked for bounds what is allocated, and is at most twice that."""
    cells = np.random.default_rng(0).integers(1, 3, (200, 200)).astype(np.int16)
    crs, file = CRS.from_epsg(epsg).to_wkt(), tmp_path / f"p{ending}"
    store = store_of(tmp_path, cells, (0.01, 0.0, 5.0, 0.0, -0.01, 50.0), 256, crs=crs)
    polygons(store, file, layer="labels", verify=True)
    layer, limits = TileStore.open(store).layer("labels"), Limits.of(threads=1)
    proof = PolygonProof(
        polygon_file(file, file, layer.grid, "polygons", FIELDS), layer, LabelClasses()
    )
    plan, asked = PolygonProof.plan(layer, limits, LabelClasses.cell_bytes), []
    monkeypatch.setattr(
        Excess, "has_room", lambda self, more=0, what="": asked.append(more) or True
    )
    tracemalloc.start()
    try:
        proof._read_file(plan, limits, lambda pairs: None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < max(asked) < 2 * peak


@pytest.mark.parametrize("ending", [".geojson", ".gpkg"])
def test_a_refused_limit_names_one_that_suffices(tmp_path, ending):
    """For all features: the first too large one is not the largest."""
    cells = np.zeros((400, 400), np.int16)
    some = np.random.default_rng(0).random(cells.shape) < 0.5
    for label, width in enumerate((150, 390, 250, 399), 1):
        rows = np.s_[100 * label - 100 : 100 * label, :width]
        cells[rows] = label * some[rows]
    store, file = store_of(tmp_path, cells, block=256), tmp_path / f"p{ending}"
    polygons(store, file, layer="labels")
    layer = TileStore.open(store).layer("labels")
    of = polygon_file(file, file, layer.grid, "polygons", FIELDS)

    def verified(limit):
        return PolygonProof(of, layer, LabelClasses()).run(Limits.of(limit, 1))

    asked = [1]
    for _ in range(2):
        with pytest.raises(PlanError, match="to verify") as refused:
            verified(asked[-1] * MB)
        asked.append(int(str(refused.value).split("at least ")[1].split()[0]))
    assert "to verify a feature of" in str(refused.value)
    assert verified(asked[-1] * MB)["features"] == 4
    with pytest.raises(PlanError):
        verified(0.97 * asked[-1] * MB)


# -- the commands ------------------------------------------------------------------------------


def call(words):
    return options._guarded(lambda: group.main(words.split(), standalone_mode=False))


@pytest.mark.parametrize(
    "words",
    [
        "polygons s.zarr p.geojson --layer labels",
        "contours s.zarr p.geojson --layer labels --polygons --breaks 2,6",
    ],
)
def test_a_wrong_file_does_not_get_its_name(drawn, tmp_path, monkeypatch, capfd, words):
    from terrain_gpu.raster.polygons import outlines

    shutil.copytree(drawn / "s.zarr", tmp_path / "s.zarr")
    monkeypatch.chdir(tmp_path)
    assert call(f"{words} --verify") == 0
    assert "verified" in capfd.readouterr().out
    right = (tmp_path / "p.geojson").read_bytes()

    def lost(*how):
        found = outlines_measured(*how)
        outer = found.outer.copy()
        outer[-1] = True  # a hole becomes a polygon
        return found._replace(outer=outer, starts=found.starts, corners=found.corners + 1)

    from terrain_gpu.raster.polygons import operation as polygon_problem

    outlines_measured = outlines.assemble
    monkeypatch.setattr(polygon_problem, "assemble", lost)
    assert call(f"{words} --verify --overwrite") == 1
    assert "p.geojson" in capfd.readouterr().err
    assert (tmp_path / "p.geojson").read_bytes() == right
