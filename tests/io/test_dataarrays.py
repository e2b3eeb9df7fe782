"""DataArrays, masked arrays and geometries into functions, and lazy DataArrays out of them."""

import copy
import gc
import inspect
import itertools
import logging
import os
import pickle
import sys
import types

import numpy as np
import pytest
import rasterio
from rasterio.crs import CRS

import terrain_gpu
from terrain_gpu.errors import InputError, StoreError, logged_as
from terrain_gpu.io.array_input import grid_of, nodata_of
from terrain_gpu.io.labelled import OF_ARRAYS
from terrain_gpu.io.places import as_places
from terrain_gpu.paths.corridor import ends as ends_of_corridors

xarray = pytest.importorskip("xarray")
ROWS, COLS = 90, 130
RNG = np.random.default_rng(3)
HEIGHTS = (100 * RNG.random((ROWS, COLS))).astype(np.float32)
HEIGHTS[3:6, 4:9] = np.nan
SOURCES = [(1, 1), (70, 100)]


def array(cells=HEIGHTS, *, names=("y", "x"), up=False, wkt=True):
    """A DataArray of cells of 30 m, whose y ascends or descends."""
    rows, cols = cells.shape
    y = 4e6 + (30 if up else -30) * np.arange(float(rows))
    x = 5e5 + 30 * np.arange(float(cols))
    found = xarray.DataArray(cells, dims=names, coords=dict(zip(names, (y, x), strict=True)))
    if wkt:
        reference = {"crs_wkt": CRS.from_epsg(32633).to_wkt(), "note": "kept"}
        found = found.assign_coords(spatial_ref=((), 0, reference))
    return found.assign_attrs(units="m")


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("TERRAIN_GPU_SCRATCH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("names", [("y", "x"), ("lat", "lon")])
@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_distances_are_those_of_the_array(names, up, lazy):
    given = array(names=names, up=up)
    if lazy:
        pytest.importorskip("dask")
    found = terrain_gpu.shortest_paths(
        given.chunk(40) if lazy else given, SOURCES, cost="tobler", backlink=True
    )
    plain = terrain_gpu.shortest_paths(HEIGHTS, SOURCES, cost="tobler", cell_size=30, backlink=True)
    distance = found.distance()
    assert np.array_equal(distance, plain.distance(), equal_nan=True)
    assert distance.dims == names
    assert distance.name == "distance"
    for name in names:
        assert distance[name].variable.identical(given[name].variable)
    assert distance.spatial_ref.attrs["note"] == "kept"
    assert CRS.from_wkt(distance.spatial_ref.attrs["crs_wkt"]) == CRS.from_epsg(32633)
    assert grid_of(distance) == grid_of(given)
    assert found.path(60, 60).tolist() == plain.path(60, 60).tolist()


def test_a_crs_of_parameters_is_not_lost(monkeypatch):
    monkeypatch.setattr(xarray.DataArray, "rio", None, raising=False)  # without rioxarray
    given = array(wkt=False).assign_coords(
        crs=((), 0, {"grid_mapping_name": "transverse_mercator", "false_easting": 5e5})
    )
    given.encoding["grid_mapping"] = "crs"
    with pytest.raises(InputError, match="CF grid-mapping parameters; import rioxarray"):
        grid_of(given)


def test_the_working_store_lives_as_long_as_the_result(scratch):
    found = terrain_gpu.slope(array()).layers["slope"].to_xarray()
    assert len(os.listdir(scratch)) == 1
    assert float(found.max()) > 0
    del found
    gc.collect()
    assert not os.listdir(scratch)


def test_lazy_cells_are_indexed_like_an_array():
    result = terrain_gpu.slope(array()).layers["slope"]
    right = result.to_xarray().to_numpy()
    keys = 0, -1, slice(None), slice(3, 20), slice(5, 2), slice(None, None, -3), slice(30, 1, -7)
    for rows, cols in itertools.product(keys, repeat=2):
        found = result.to_xarray()[rows, cols].to_numpy()
        assert np.array_equal(found, right[rows, cols], equal_nan=True)


@pytest.mark.parametrize("chunks", [None, 64])
@pytest.mark.parametrize(
    "again", [copy.deepcopy, copy.copy, lambda a: pickle.loads(pickle.dumps(a))]
)
def test_copies_keep_the_working_store(scratch, chunks, again):
    found = terrain_gpu.slope(array()).to_xarray(chunks).slope
    right = found.to_numpy()
    found = terrain_gpu.slope(array()).to_xarray(chunks).slope
    other = again(found)
    del found
    gc.collect()
    assert np.array_equal(other.to_numpy(), right, equal_nan=True)
    del other
    gc.collect()
    assert not os.listdir(scratch)


def test_latitudes_without_units_are_degrees(caplog):
    given = array(names=("lat", "lon"), wkt=False)
    assert grid_of(given).crs_wkt == ""  # these are metres
    degrees = given.assign_coords(lat=40 - 0.01 * np.arange(ROWS), lon=7 + 0.01 * np.arange(COLS))
    assert grid_of(degrees).crs_code == "EPSG:4326"
    assert "lat and lon are interpreted as degrees in WGS 84" in caplog.text


def test_attributes_of_an_array_that_cannot_be_read():
    one = array().assign_attrs(_FillValue=np.array([0], np.float32))
    assert nodata_of(one, one.dtype) == 0
    for key, value in (("_FillValue", "0"), ("scale_factor", "abc")):
        with pytest.raises(InputError, match=f"its {key} '{value}' is not a number"):
            terrain_gpu.slope(array().assign_attrs({key: value}))
    with pytest.raises(InputError, match="has no cells"):
        terrain_gpu.slope(array()[:0])


def test_messages_name_the_friction(scratch):
    message = r"^DataArray: has a different grid .* than DataArray 'friction'.*; resample one"
    with pytest.raises(StoreError, match=message) as error:
        terrain_gpu.shortest_paths(array(), SOURCES, cost="friction", friction=array(up=True))
    assert str(scratch) not in str(error.value)


def test_a_lazy_array_is_never_computed_whole(tmp_path):
    dask = pytest.importorskip("dask.array")
    rows, cols = 4096, 2048
    asked = []

    def piece(block_info=None):
        (r0, r1), (c0, c1) = block_info[None]["array-location"]
        asked.append((r1 - r0) * (c1 - c0))
        return np.add.outer(np.arange(r0, r1), np.arange(c0, c1)).astype(np.int32)

    cells = dask.map_blocks(
        piece, chunks=((256,) * 16, (256,) * 8), dtype=np.int32, meta=np.empty((0, 0), np.int32)
    )
    store = tmp_path / "s.zarr"
    given = xarray.DataArray(cells, dims=("y", "x"))
    terrain_gpu.convert_dataset(given, store, block_size=512)
    assert sum(asked) == rows * cols  # each chunk once
    data = terrain_gpu.open(store)
    assert data.elevation.chunks == ((1024,) * 4, (1024,) * 2)
    assert int(data.elevation[4000, 2000]) == 6000
    expected = np.add.outer(np.arange(rows), np.arange(cols))
    assert np.array_equal(data.elevation[::-17, 5:9], expected[::-17, 5:9])


def test_warnings_are_seen(monkeypatch, capsys):
    """Where a program configures no logging, Python writes them to standard error."""
    ours = logging.getLogger("terrain_gpu")  # commands in this process may have added others
    quiet = [one for one in ours.handlers if isinstance(one, logging.NullHandler)]
    monkeypatch.setattr(ours, "handlers", quiet)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    side = np.arange(4.0)
    grid_of(xarray.DataArray(np.zeros((4, 4)), coords={"lat": -side, "lon": side}))
    assert "lat and lon are interpreted as degrees in WGS 84" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["_FillValue", "missing_value", "fill_value", "nodata"])
@pytest.mark.parametrize("where", ["attrs", "encoding"])
@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_what_says_that_a_value_is_nodata(key, where, dtype):
    """Floats whose encoding tells it are decoded: their 5 is a value. So it is of Zarr."""
    given = array(np.array([[5, 1, 2], [3, 4, 5]], dtype))
    getattr(given, where)[key] = 5
    told = where == "attrs" or (dtype == "int16" and key != "fill_value")
    found = nodata_of(given, given.dtype)
    assert found == 5 if told else found is None or (dtype == "float32" and np.isnan(found))
    assert terrain_gpu.calc(given, "elevation").report.valid_cells == (4 if told else 6)


def test_both_values_of_cf_are_nodata():
    given = array(np.array([[5, 1, -3.4e38], [7, 8, 5]], "float32"))
    given.attrs |= {"_FillValue": np.float32(5), "missing_value": np.array([7.0, -3.40000001e38])}
    found = terrain_gpu.calc(given, "elevation + 0")
    assert found.report.valid_cells == 2
    assert np.isnan(found.to_xarray().calc.to_numpy()).sum() == 4


def test_zeros_of_a_zarr_array_are_values(tmp_path):
    """xarray tells the fill value of every array in `encoding`, 0 where nobody has set one."""
    given = array(np.array([[0, 1, 2], [3, 0, 5]], "int16"))
    given.to_dataset(name="dem").to_zarr(tmp_path / "x.zarr", zarr_format=3)
    with xarray.open_zarr(tmp_path / "x.zarr") as opened:
        assert nodata_of(opened.dem, opened.dem.dtype) is None
        assert terrain_gpu.calc(opened.dem, "elevation").report.valid_cells == 6


def test_open_masks_nodata_as_xarray_does(tmp_path):
    cells = np.arange(12, dtype=np.int16).reshape(3, 4)
    given = array(cells).assign_attrs(_FillValue=np.int16(5))
    terrain_gpu.convert_dataset(given, tmp_path / "s.zarr")
    ours = terrain_gpu.open(tmp_path / "s.zarr").elevation
    theirs = xarray.open_zarr(tmp_path / "s.zarr", consolidated=False).elevation
    assert np.array_equal(ours, theirs, equal_nan=True)
    assert ours.dtype == theirs.dtype
    assert ours.attrs["units"] == "m"
    raw = terrain_gpu.open(tmp_path / "s.zarr", chunks=None, masked=False).elevation
    assert np.array_equal(raw, cells)
    assert raw.attrs["_FillValue"] == 5


def test_a_slice_lies_where_its_coordinates_are():
    whole = array()
    reference = {**whole.spatial_ref.attrs, "GeoTransform": "499985 30 0 4000015 0 -30"}
    whole = whole.assign_coords(spatial_ref=((), 0, reference))
    assert grid_of(whole).transform == (30, 0, 499985, 0, -30, 4000015)
    part = terrain_gpu.slope(whole[5:30, 7:40]).to_xarray().slope
    assert part.spatial_ref.attrs["GeoTransform"] == "500195.0 30.0 0.0 3999865.0 0.0 -30.0"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda a: a.transpose(), "columns first"),
        (lambda a: a.rename(y="row"), "has the dimensions row, x"),
        (lambda a: a.assign_coords(y=np.arange(float(ROWS)) ** 2), "y are not evenly spaced"),
        (lambda a: a.drop_vars("y"), "no coordinates along y"),
        (lambda a: a[:1], "one cell along y, so its cell size"),
        (lambda a: a.expand_dims(band=2), "2 entries along band"),
        (lambda a: a.assign_coords(spatial_ref=((), 0, {"crs_wkt": "no"})), "cannot parse"),
    ],
)
def test_what_has_no_grid_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        terrain_gpu.slope(given(array()))


def test_what_reads_files_again_is_refused(tmp_path):
    with pytest.raises(InputError, match="verify reads files again"):
        terrain_gpu.convert_dataset(array(), tmp_path / "s.zarr", verify=True)
    with pytest.raises(InputError, match="resume needs a store"):
        terrain_gpu.slope(array(), resume=True)


def test_friction_may_be_a_dataarray_or_an_array():
    friction = 1 + RNG.random((ROWS, COLS))
    how = {"cost": "friction", "barriers": np.isnan(HEIGHTS)}
    plain = terrain_gpu.shortest_paths(HEIGHTS, SOURCES, friction=friction, cell_size=30, **how)
    for one in (friction, array(friction)):
        found = terrain_gpu.shortest_paths(array(), SOURCES, friction=one, **how)
        assert np.array_equal(found.distance(), plain.distance(), equal_nan=True)


def test_friction_is_the_cost_where_none_is_given():
    friction = 1 + RNG.random((ROWS, COLS))
    for call, result in (
        (terrain_gpu.shortest_paths, lambda found: found.distance()),
        (terrain_gpu.cost_matrix, lambda found: found.columns()["cost"]),
        (terrain_gpu.least_cost_network, lambda found: found.report.result["cost"]),
    ):
        own, stated = (
            np.asarray(result(call(array(), SOURCES, friction=friction, **how)))
            for how in ({}, {"cost": "friction"})
        )
        assert own.tobytes() == stated.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8])
def test_masked_cells_are_absent(dtype):
    cells = RNG.integers(0, 256, (ROWS, COLS)).astype(dtype)
    cells[0, :100] = 0 if dtype != np.uint8 else np.delete(np.arange(256), 77)[:100]
    cells[cells == 77] = 78
    mask = RNG.random(cells.shape) < 0.3
    mask[SOURCES[0]] = False
    masked, plain = np.ma.MaskedArray(cells, mask), np.where(mask, np.nan, cells.astype(float))
    how = {"cost": "surface", "backlink": True, "allocation": True, "max_cost": 90.0}
    found, expected = (
        terrain_gpu.shortest_paths(one, SOURCES[:1], **how) for one in (masked, plain)
    )
    reached = np.isfinite(expected.distance())
    assert 0 < reached.sum() < (~mask).sum()
    for name, absent in (("distance", np.nan), ("backlink", 255), ("allocation", 0)):
        of_masked, wanted = getattr(found, name)(), getattr(expected, name)()
        assert np.array_equal(of_masked.mask, ~reached)
        assert np.array_equal(of_masked.filled(), wanted, equal_nan=name == "distance")
        assert np.array_equal(of_masked.fill_value, absent, equal_nan=name == "distance")
    edges = terrain_gpu.minimum_spanning_tree(masked).edges()
    assert np.array_equal(edges.mask, mask)
    assert np.array_equal(edges.data, terrain_gpu.minimum_spanning_tree(plain).edges())


def test_integer_distances_of_masked_cells_are_masked():
    cells = np.ma.masked_less(np.arange(20, dtype=np.int16).reshape(4, 5), 3)
    found = terrain_gpu.shortest_paths(cells, [(3, 4)], cost="absdiff").distance()
    assert found.dtype == np.uint32
    assert np.array_equal(found.mask, cells.mask)
    assert found.max() == 16


def test_masked_cells_need_a_value_that_none_has():
    cells = np.ma.MaskedArray(np.arange(256, dtype=np.uint8).reshape(16, 16), False)
    with pytest.raises(InputError, match="every value of uint8"):
        terrain_gpu.minimum_spanning_tree(cells)


class Shape:
    """As a geometry of shapely is."""

    def __init__(self, **geometry):
        self.__geo_interface__ = geometry


def test_geometries_and_tables_are_places():
    grid = grid_of(array(wkt=False))
    points = [Shape(type="Point", coordinates=(5e5 + 30 * c, 4e6 - 30 * r)) for r, c in SOURCES]
    expected = as_places(grid, SOURCES, "sources")
    assert np.array_equal(as_places(grid, points, "sources").places, expected.places)
    line = Shape(type="LineString", coordinates=((5e5, 4e6), (5e5 + 90, 4e6)))
    assert as_places(grid, line, "sources").places.tolist() == [[0, c] for c in range(4)]
    pandas = pytest.importorskip("pandas")
    xy = [p.__geo_interface__["coordinates"] for p in points]
    table = pandas.DataFrame(xy, columns=["x", "y"]).assign(id=[9, 7], cost=[0.5, 2])
    found = as_places(grid, table, "sources")
    assert (found.ids.tolist(), found.costs.tolist()) == ([9, 7], [0.5, 2.0])
    with pytest.raises(InputError, match="columns x and y, but its columns are y, id, cost"):
        as_places(grid, table.drop(columns="x"), "sources")


def test_which_functions_take_arrays():
    every = {name: getattr(terrain_gpu, name) for name in terrain_gpu.__all__}
    firsts = {
        name: next(iter(inspect.signature(one).parameters.values()))
        for name, one in every.items()
        if inspect.isfunction(one)
    }
    taking = {name for name, one in firsts.items() if one.annotation == "RasterLike"}
    assert set(OF_ARRAYS.replace(" and", ",").split(", ")) == taking
    cells = np.ma.masked_invalid(HEIGHTS)
    with pytest.raises(
        InputError, match=r"DataArray\(array, dims=.*; arrays are accepted by shortest_pa"
    ):
        terrain_gpu.slope(cells)
    found = terrain_gpu.slope(xarray.DataArray(cells, dims=("y", "x"))).to_xarray()["slope"]
    assert found.isnull().values[np.isnan(HEIGHTS)].all()
    assert found.notnull().sum() > 0.9 * HEIGHTS.size


EMPTY = {
    "collection": lambda: Shape(type="FeatureCollection", features=[]),
    "table": lambda: pytest.importorskip("pandas").DataFrame({"x": [], "y": []}),
    "GeoDataFrame": lambda: pytest.importorskip("geopandas").GeoDataFrame(geometry=[], crs=4326),
    "GeoSeries": lambda: pytest.importorskip("geopandas").GeoSeries([], crs=4326),
}


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sources", lambda of, none: of.cost_distance(none)),
        ("targets", lambda of, none: of.cost_distance(SOURCES, targets=none)),
        ("targets", lambda of, none: of.least_cost_paths(SOURCES, none)),
        ("places", lambda of, none: of.least_cost_network(none)),
        ("pour_points", lambda of, none: of.watershed(none)),
        ("features", lambda of, none: of.rasterize(none)),
        ("streams", lambda of, none: of.burn(none, depth=2)),
        ("outlets", lambda of, none: of.flow_direction(none)),
    ],
)
def test_tables_without_rows(kind, name, call):
    import terrain_gpu.xarray  # noqa: F401 - registers the accessor

    with pytest.raises(InputError, match=f"^{name}: has no features$"):
        call(array().terrain, EMPTY[kind]())


def test_a_geodataframe_is_reprojected():
    grid = grid_of(array())
    towns = Shape(type="Point", coordinates=(15.0, 36.0))
    towns.crs = CRS.from_epsg(4326)
    x, y = (5e5, 3984103.9)  # of 36 degrees north on the central meridian
    with pytest.raises(InputError, match=r"sources.*not inside the raster"):
        as_places(grid, towns, "sources")
    near = terrain_gpu.GridSpec(3, 3, (1e4, 0, x - 15e3, 0, -1e4, y + 15e3), grid.crs_wkt)
    assert as_places(near, towns, "sources").places.tolist() == [[1, 1]]


def test_arrays_of_geometries():
    """Of NumPy as of GeoPandas, whose coordinate system counts."""
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    grid = grid_of(array())
    points = [shapely.Point(500_300, 3_999_700), shapely.Point(502_000, 3_998_000)]
    towns = geopandas.GeoSeries(points, crs=32633)
    given = points, np.array(points), towns, towns.array, towns.to_crs(4326).array
    first, *others = (as_places(grid, one, "sources").places for one in given)
    assert len(first) == 2
    assert all(np.array_equal(first, one) for one in others)


def test_every_method_of_the_accessor_gives_dataarrays():
    import terrain_gpu.xarray as accessor

    given = array()
    arguments = {
        "burn": [SOURCES],
        "calc": ["elevation + 1"],
        "components": ["elevation > 50"],
        "cost_distance": [SOURCES],
        "hand": [20],
        "rasterize": [SOURCES],
        "streams": [20],
        "watershed": [SOURCES],
    }
    named = {
        "burn": {"depth": 2},
        "fill_spill_merge": {"rain": 0.1},
        "indices": {"twi": "twi", "ls": "ls"},
    }
    for name in accessor.METHODS:
        more = named.get(name, {})
        found = getattr(given.terrain, name)(*arguments.get(name, []), **more)
        assert isinstance(found, xarray.DataArray) == (name not in ("indices", "watershed")), name
        assert found.x.variable.identical(given.x.variable)
        assert found.sizes == given.sizes
    assert np.array_equal(
        given.terrain.calc("elevation + 1"), given.astype(float) + 1, equal_nan=True
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_a_corridor_between_places(monkeypatch, reverse):
    """Of directed costs, there and then on to the targets, over frictions of an array."""
    import terrain_gpu.xarray  # registers the accessor

    given, friction = array(), np.full((ROWS, COLS), 2.0)
    ends, how = ([(1, 1)], [(70, 100), (80, 9)]), {"cost": "tobler", "friction": friction}
    found = given.terrain.corridor(*ends, within="10%", reverse=reverse, **how)
    gc.collect()  # its cells are read from a store that the result keeps
    begin, end = (
        given.terrain.cost_distance(place, reverse=back, **how).to_numpy()
        for place, back in zip(ends, (reverse, not reverse), strict=True)
    )
    total = begin + end
    total -= (least := np.nanmin(total))
    total[~(total <= 0.1 * least)] = np.nan
    assert np.array_equal(found, total, equal_nan=True)
    assert (found.name, found.units, found.sizes) == ("corridor", "s", given.sizes)
    assert found.x.variable.identical(given.x.variable)
    for cost in ("minimax", terrain_gpu.Cost("minimax")):
        with pytest.raises(InputError, match="minimax: the cost of a path is its highest cell"):
            given.terrain.corridor(*ends, cost=cost)
    with monkeypatch.context() as patch:
        patch.setattr(ends_of_corridors, "run", None)  # refused before any search
        with pytest.raises(
            InputError, match=r"targets: 1 has a start cost of 5, .*; leave it out$"
        ):
            given.terrain.corridor(ends[0], [(70, 100, 5)], **how)


def test_messages_name_the_dataarray():
    with pytest.raises(InputError, match=r"^DataArray 'dem': elevations are int64, but epsilon"):
        array(HEIGHTS.astype(np.int64)).rename("dem").pipe(terrain_gpu.fill, epsilon=True)


def test_results_are_shown_without_their_cells():
    found = terrain_gpu.minimum_spanning_tree(HEIGHTS)
    assert len(repr(found)) < 200
    assert "<th>edge_count</th>" in found._repr_html_()
    assert "&lt;" in found._repr_html_()
    grid = grid_of(array())
    assert len(repr(as_places(grid, SOURCES, "sources"))) < 200
    assert len(repr(grid)) < 200


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"units": "km"}, "x are in km, but .* are in metre; multiply them by 1000"),
        ({"units": "degrees"}, "x are in degrees, .* write the coordinate system"),
    ],
)
def test_coordinates_in_another_unit_are_refused(attributes, message):
    given = array()
    given.x.attrs = {"units": "m"}
    assert grid_of(given).crs_wkt
    given.x.attrs = attributes
    with pytest.raises(InputError, match=message):
        grid_of(given)


@pytest.mark.parametrize("crs", [False, True])
def test_a_place_without_coordinates_may_be_that_of_a_larger_array(crs):
    told = {"spatial_ref": ((), 0, {"GeoTransform": "499985 30 0 4000015 0 -30"})}
    bare = array(wkt=crs).drop_vars(["y", "x"]).assign_coords({} if crs else told)
    with pytest.raises(InputError, match="no coordinates, so it may be a part of a larger array"):
        grid_of(bare.isel(y=slice(5, None)))


def test_results_have_their_units():
    given = array()
    per_metre = array(np.ones_like(HEIGHTS)).assign_attrs(units="s/m")
    layers = terrain_gpu.slope(given).layers
    assert layers["slope"].to_xarray().attrs["units"] == "degree"
    for cost, friction, unit in (
        ("absdiff", None, "m"),
        ("tobler", None, "s"),
        ("friction", per_metre, "s"),
        ("friction", per_metre.assign_attrs(units="m"), "m2"),
        ("friction", per_metre.assign_attrs(units="s per metre"), "s"),
        ("friction", per_metre.assign_attrs(units="metres"), "m2"),
        ("friction", per_metre.assign_attrs(units=""), "friction x m"),
        ("friction", per_metre.assign_attrs(units=None), "friction x m"),
        ("length * 2", None, None),
    ):
        found = terrain_gpu.shortest_paths(given, SOURCES, cost=cost, friction=friction)
        assert found.to_xarray().distance.attrs.get("units") == unit
        assert found.unit == (unit or "")


def test_units_of_heights_follow_them(tmp_path, caplog):
    scaled = array().assign_attrs(units="hours", scale_factor=0.5)
    terrain_gpu.convert_dataset(scaled, tmp_path / "s.zarr")
    assert "DataArray: its values are stored as cells with scale 0.5 and offset 0" in caplog.text
    filled = terrain_gpu.fill(tmp_path / "s.zarr").layers["filled"]
    assert filled.attributes["scale_factor"] == 0.5
    found = filled.to_xarray()
    assert found.dtype.kind == "f"  # hours are no time spans
    assert found.attrs["units"] == "hours"
    terrain_gpu.shortest_paths(tmp_path / "s.zarr", SOURCES, cost="tobler", verify=False)
    assert "elevations in metres, but their unit is 'hours'" in caplog.text
    raster = tmp_path / "d.tif"
    terrain_gpu.export_layer(tmp_path / "s.zarr", raster, layer="distance")
    with rasterio.open(raster) as file:
        assert file.units == ("s",)


@pytest.fixture
def frames():
    pytest.importorskip("geopandas")
    import terrain_gpu.xarray  # noqa: F401 - registers the accessor


@pytest.mark.usefixtures("frames")
def test_paths_are_geodataframes():
    found = array().terrain.least_cost_paths(SOURCES[:1], SOURCES, cost="tobler")
    assert found.crs == CRS.from_epsg(32633).to_wkt()
    assert found.attrs["units"] == {"cost": "s", "length": "m"}
    plain = terrain_gpu.shortest_paths(
        HEIGHTS, SOURCES[:1], cost="tobler", cell_size=30, backlink=True
    )
    paths = plain.paths(SOURCES, SOURCES[:1])
    assert found.cost.tolist() == [one.cost for one in paths]
    for line, path in zip(found.geometry, paths, strict=True):
        rows, cols = path.cells.T if len(path.cells) > 1 else path.cells.T.repeat(2, axis=1)
        assert line.coords[:] == list(zip(5e5 + 30 * cols, 4e6 - 30 * rows, strict=True))
    assert not len(plain.paths([], SOURCES).to_geodataframe())


@pytest.mark.usefixtures("frames")
def test_drawn_features_are_geodataframes(scratch):
    given = array()
    labels = xarray.zeros_like(given, np.int32)
    labels[:40] = 7
    found = labels.assign_attrs(_FillValue=0).terrain.polygons(names={7: "north"})
    assert found[["label", "name", "cells"]].to_numpy().tolist() == [[7, "north", 40 * COLS]]
    assert found.area.tolist() == [40 * COLS * 900.0]
    levels = given.terrain.contours(interval=50)
    assert sorted(set(levels.level)) == [50]
    assert levels.crs == CRS.from_epsg(32633).to_wkt()
    drawn = terrain_gpu.contours(given, scratch / "lines.geojson", interval=50)
    assert len(drawn.to_geodataframe()) == len(levels)
    written = given.terrain.contours(scratch / "lines.fgb", interval=50)
    assert written.equals(levels)
    del drawn
    gc.collect()
    assert sorted(os.listdir(scratch)) == ["lines.fgb", "lines.geojson"]


def test_labels_of_results_are_whole_numbers_again():
    from terrain_gpu.xarray import _whole_numbers

    layer = terrain_gpu.label_components(array(), "elevation > 50").to_xarray().components
    whole = _whole_numbers(layer)
    assert layer.dtype.kind == "f"
    assert whole.dtype == layer.encoding["dtype"]
    assert np.array_equal(whole, layer.fillna(0))


def test_geopandas_is_needed_only_for_frames(monkeypatch):
    monkeypatch.setitem(sys.modules, "geopandas", None)
    with pytest.raises(InputError, match=r"pip install 'terrain_gpu\[geopandas\]'"):
        terrain_gpu.contours(array(), interval=50)


class OnDevice:
    """As an array of CuPy is."""

    def __init__(self, cells):
        self.get = cells.copy
        self.__cuda_array_interface__ = {"version": 3}


def test_arrays_on_a_gpu_are_copied():
    friction = 1 + RNG.random((ROWS, COLS))
    cells = np.nan_to_num(HEIGHTS)
    how = {"cost": "friction", "friction": friction, "cell_size": 2.0}
    plain = terrain_gpu.shortest_paths(cells, SOURCES, **how).distance()
    how["friction"] = OnDevice(friction)
    found = terrain_gpu.shortest_paths(OnDevice(cells), SOURCES, **how).distance()
    assert np.array_equal(found, plain)
    del how["cell_size"]  # beside a DataArray, of cells of 30 m
    found = terrain_gpu.shortest_paths(array(cells), SOURCES, **how).distance()
    assert np.allclose(found, 15 * plain)


def test_nodata_of_heights_does_not_concern_the_arrays_beside_them():
    """What `encoding` or attributes of the heights tell is theirs alone."""
    heights = array(np.arange(12, dtype="int16").reshape(3, 4))
    walls = np.zeros((3, 4), np.uint8)
    walls[:2, 2] = 1
    plain = terrain_gpu.shortest_paths(heights, [(0, 0)], barriers=walls).distance()
    for where in (heights.encoding, heights.attrs):
        for value in (1, 200):  # 1 is a barrier, and the height of one cell
            where["_FillValue"] = value
            found = terrain_gpu.shortest_paths(heights, [(0, 0)], barriers=walls).distance()
            assert np.isnan(np.asarray(found)[:2, 2]).all()
            if value == 200:
                assert np.array_equal(found, plain, equal_nan=True)
        where.clear()


def test_results_of_cupy_arrays_are_cupy_arrays_there(monkeypatch):
    """With a stand-in for CuPy; tests/paths/test_cuda_paths.py has the real one."""
    used = []

    class Device:
        def __init__(self, number):
            self.id = number

        def __enter__(self):
            used.append(self.id)

        def __exit__(self, *error):
            used.append(None)

    class Array(OnDevice):
        def __init__(self, cells, number=1):
            super().__init__(cells)
            self.device = Device(number)

    cupy = types.ModuleType("cupy")
    cupy.ndarray, cupy.asarray = Array, lambda cells: Array(cells, used[-1])
    cupy.cuda = types.SimpleNamespace(Device=Device)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    cells = np.nan_to_num(HEIGHTS)
    how = {"backlink": True, "allocation": True, "backend": "cpu"}
    plain = terrain_gpu.shortest_paths(cells, SOURCES, **how)
    found = terrain_gpu.shortest_paths(Array(cells), SOURCES, **how)
    for name in ("distance", "backlink", "allocation"):
        there = getattr(found, name)()
        assert isinstance(there, Array)
        assert there.device.id == 1
        assert np.array_equal(there.get(), getattr(plain, name)())
        assert used[-1] is None
    assert np.array_equal(found.path(70, 100), plain.path(70, 100))
    again = pickle.loads(pickle.dumps(found)).distance()
    assert np.array_equal(again.get(), plain.distance())
    trees = [terrain_gpu.minimum_spanning_tree(one, backend="cpu") for one in (cells, Array(cells))]
    assert np.array_equal(trees[1].edges().get(), trees[0].edges())
    beside = terrain_gpu.shortest_paths(cells, SOURCES, friction=Array(cells + 1), **how)
    assert isinstance(beside.distance(), np.ndarray)  # as the heights are


@pytest.mark.parametrize("function", ["shortest_paths", "cost_matrix", "least_cost_network"])
def test_arrays_beside_the_path_of_a_raster(scratch, function):
    terrain_gpu.convert_dataset(array(), scratch / "s.zarr")
    terrain_gpu.export_layer(scratch / "s.zarr", scratch / "dem.tif")
    friction = (1 + RNG.random((ROWS, COLS))).astype(">f4")
    friction[20:30, 20:30] = np.nan
    barriers = np.zeros((ROWS, COLS), bool)
    barriers[40, :100] = True
    how = {"cost": "friction", "barriers": barriers}

    def costs(data, friction):
        out = (scratch / "out.geojson",) if function == "least_cost_network" else ()
        more = {"overwrite": True} if out else {}
        found = getattr(terrain_gpu, function)(
            data, SOURCES, *out, friction=friction, **how, **more
        )
        if out:
            return out[0].read_text()
        if function == "cost_matrix":
            return found.columns()["cost"].tolist()
        return np.asarray(found.distance()).tobytes()

    expected = costs(array(), friction)
    assert costs(scratch / "dem.tif", friction) == expected
    assert costs(str(scratch / "dem.tif"), OnDevice(friction)) == expected
    with pytest.raises(InputError, match=r"shape \(90, 130\), like the cells of .*dem.tif, not"):
        costs(scratch / "dem.tif", friction[1:])
    with pytest.raises(InputError, match="friction is a masked array"):
        costs(scratch / "dem.tif", np.ma.masked_invalid(friction))
    with pytest.raises(
        InputError, match="create_layer makes a layer of an array, and convert_dataset"
    ):
        costs(scratch / "s.zarr", friction)


def test_what_is_logged_names_the_argument(caplog):
    """Not the store that it is written to; and other loggers are left alone."""
    cells = xarray.DataArray(np.add.outer(np.arange(9.0), np.arange(7.0)), dims=("y", "x"))
    with caplog.at_level("INFO", "terrain_gpu"):
        terrain_gpu.terrain_indices(cells.rename("dem"), twi="twi")
    said = [record.getMessage() for record in caplog.records]
    assert "DataArray 'dem': compute-mst first, whose layer is missing" in said
    assert any(one.startswith("DataArray 'dem': no CRS") for one in said)
    assert not any("store.zarr" in one for one in said)
    before = [*caplog.handler.filters]
    with logged_as(str.upper):
        logging.getLogger("terrain_gpu.some").warning("%s is %s", "this", "ours")
        logging.getLogger("terrain_gpus").warning("not ours")
    assert [record.getMessage() for record in caplog.records[-2:]] == ["THIS IS OURS", "not ours"]
    assert caplog.handler.filters == before
