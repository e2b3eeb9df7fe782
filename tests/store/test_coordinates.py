"""What other programs read of a store besides cells: in chunks, and covered by `verify --data`."""

from __future__ import annotations

import json
import shlex
import tracemalloc

import numpy as np
import pytest
from strategies import without_checksums

from terrain_gpu import GridSpec, TileStore, create_layer
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.store.coordinates import group_files

TRANSFORM = (10.0, 0.0, 500000.0, 0.0, -10.0, 5500000.0)


def made(path, rows, cols, dtype=np.float32, block=64):
    from rasterio.crs import CRS

    grid = GridSpec(rows, cols, TRANSFORM, CRS.from_epsg(32633).to_wkt(), "EPSG:32633")
    with create_layer(path, "elevation", grid, dtype, nodata=-1, block_size=block) as writer:
        for at in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(*at)
            writer.write_block(*at, np.ones((r1 - r0, c1 - c0), dtype))
        writer.commit()
    return grid


def call(capfd, command):
    capfd.readouterr()
    code = options._guarded(lambda: group.main(shlex.split(command), standalone_mode=False))
    return (code, *capfd.readouterr())


def test_coordinates_of_long_sides_are_made_in_chunks():
    side = 2**27 + 3
    tracemalloc.start()
    written = sum(len(data) for name, data in group_files(GridSpec(1, side)) if name[:4] == "x/c/")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 8 * side <= written < 8 * side + 2**21
    assert peak < 20e6


@pytest.mark.parametrize("shape", [(2, 2**18 + 5), (2**18 + 5, 1)])
def test_other_programs_find_coordinates_in_several_chunks(shape, tmp_path, no_fsync, capfd):
    xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    path = tmp_path / "s.zarr"
    grid = made(path, *shape, block=8192)
    opened = xarray.open_zarr(path, consolidated=False, chunks=None)
    raw = zarr.open_group(path, mode="r")
    for name, want in (("x", grid.x_centres()), ("y", grid.y_centres())):
        assert np.array_equal(opened[name].values, want)
        assert np.array_equal(raw[name][...], want)
    assert call(capfd, f"verify {path} --data")[0] == 0


def edited(file, *keys, to):
    """Set, or delete with `...`, one value in the JSON of a file."""
    found = json.loads(file.read_text())
    there = found
    for key in keys[:-1]:
        there = there[key]
    if to is ...:
        del there[keys[-1]]
    else:
        there[keys[-1]] = to
    file.write_text(json.dumps(found))


def shifted(file):
    values = np.fromfile(file)
    values[7] += 10
    values.tofile(file)


ATTRIBUTES = "attributes"
DAMAGE = {
    "x": [
        lambda s: shifted(s / "x/c/0"),
        lambda s: (s / "x/c/0").unlink(),
        lambda s: (s / "x/c/0").write_bytes((s / "x/c/0").read_bytes()[:-8]),
        lambda s: (s / "x/zarr.json").unlink(),
        lambda s: edited(s / "x/zarr.json", "dimension_names", to=["y"]),
        lambda s: edited(s / "x/zarr.json", ATTRIBUTES, "standard_name", to="longitude"),
        lambda s: edited(s / "x/zarr.json", "shape", to=[60]),
    ],
    "y": [lambda s: shifted(s / "y/c/0"), lambda s: edited(s / "y/zarr.json", "node_type", to="x")],
    "spatial_ref": [
        lambda s: edited(s / "spatial_ref/zarr.json", ATTRIBUTES, "GeoTransform", to="0 1 0 0 0 1"),
        lambda s: edited(s / "spatial_ref/zarr.json", ATTRIBUTES, "crs_wkt", to=...),
    ],
    "elevation": [
        lambda s: edited(s / "elevation/zarr.json", "dimension_names", to=["x", "y"]),
        lambda s: edited(s / "elevation/zarr.json", ATTRIBUTES, "_FillValue", to=...),
        lambda s: edited(s / "elevation/zarr.json", ATTRIBUTES, "grid_mapping", to="crs"),
        lambda s: edited(s / "elevation/zarr.json", ATTRIBUTES, "spatial:transform", to=[0] * 6),
        lambda s: edited(s / "elevation/zarr.json", ATTRIBUTES, "proj:wkt2", to="no"),
    ],
    "": [
        lambda s: edited(s / "zarr.json", ATTRIBUTES, "spatial:bbox", to=[0, 0, 1, 1]),
        lambda s: edited(s / "elevation/zarr.json", "fill_value", to=3.0),
        lambda s: edited(s / "overviews/2/x/zarr.json", ATTRIBUTES, "axis", to="Y"),
        lambda s: shifted(s / "overviews/2/y/c/0"),
    ],
}


def test_verify_data_finds_what_misleads_other_programs(tmp_path, monkeypatch, no_fsync, capfd):
    monkeypatch.chdir(tmp_path)
    made("s.zarr", 300, 70)
    assert call(capfd, "overviews s.zarr -q")[0] == 0
    store = tmp_path / "s.zarr"
    code, out, _ = call(capfd, "verify s.zarr --data")
    assert code == 0
    assert "s.zarr: coordinates match the grid" in out
    assert "s.zarr: overviews 1:2, coordinates match the grid" in out
    for name, damages in DAMAGE.items():
        for number, damage in enumerate(damages):
            kept = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
            damage(store)
            code, _, err = call(capfd, "verify s.zarr --data")
            assert (code, err[:7], err.count("\n")) == (2, "Error: ", 1), (name, number, err)
            if name:  # can be written again
                assert f"--accept-changes {name}" in err or "zarr.json: damaged metadata" in err
                assert call(capfd, f"verify s.zarr --accept-changes {name}")[0] == 0, (name, number)
                code, _, err = call(capfd, "verify s.zarr --data")
                assert code == 0, (name, number, err)
            for file, data in kept.items():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
    TileStore.open("s.zarr").layer("elevation")


def test_a_store_of_an_earlier_version(tmp_path, no_fsync, capfd):
    """Without checksums, and with coordinates in one chunk: it is read, proven and added to."""
    zarr, path = pytest.importorskip("zarr"), tmp_path / "s.zarr"
    grid = made(path, 3, 2**18 + 5, block=8192)
    without_checksums(TileStore.open(path).layer("elevation"))
    group = zarr.open_group(path, mode="r+")
    for name, data in (("x", grid.x_centres()), ("y", grid.y_centres())):
        about = dict(group[name].attrs)
        how = {"chunks": data.shape, "compressors": None, "dimension_names": [name]}
        group.create_array(name, data=data, attributes=about, fill_value=0, overwrite=True, **how)
    assert not (path / "x" / "c" / "1").exists()
    for command in ("verify {} --data", "slope {} --verify", "verify {} --data", "info {}"):
        code, _, said = call(capfd, command.format(path))
        assert code == 0, said
    assert call(capfd, f"export {path} {tmp_path}/o.tif --layer slope --verify")[0] == 0
    assert (TileStore.open(path).layer("elevation").read_window(0, 3, 0, 9) == 1).all()


def test_every_check_of_data_counts_to_its_total(tmp_path, no_fsync, capfd):
    """Also the last one, of coordinates, so that none is without a bar."""
    made(tmp_path / "s.zarr", 100, 70)
    code, _, told = call(capfd, f"verify {tmp_path}/s.zarr --data --progress json")
    last = {one["phase"]: (one["done"], one["total"]) for one in map(json.loads, told.splitlines())}
    assert code == 0
    assert last == {"verify elevation": (7000, 7000), "verify spatial_ref": (170, 170)}
