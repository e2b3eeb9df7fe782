"""Inland sinks of other programs: 255 (-1 in signed types) where another value is nodata."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
from contract import whole
from kills import die_at

from terrain_gpu import TileStore, basins, flow_accumulation, hand, streams, watershed
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group


def call(words):
    return options._guarded(lambda: group.main(words.split(), standalone_mode=False))


CODES = np.array(
    [
        [1, 1, 4, 16, 16],
        [1, 1, 4, 16, 16],
        [1, 1, 255, 16, 16],
        [1, 1, 64, 16, 16],
        [247, 0, 16, 16, 16],
    ]
)
"""As HydroSHEDS, MERIT Hydro and pyflwdir have them."""
SUMS = [[1, 2, 5, 2, 1], [1, 2, 10, 2, 1], [1, 2, 20, 2, 1], [1, 2, 5, 2, 1], [0, 4, 3, 2, 1]]
OURS = np.where(CODES == 247, 255, CODES * (CODES != 255))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(dtype, nodata, codes=CODES):
    """Write codes; -9 is nodata in signed types."""
    signed = np.where(codes == 247, -9, np.where(codes == 255, -1, codes))
    codes = (codes if dtype == "uint8" else signed).astype(dtype)
    where = {"crs": "EPSG:32632", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 55e5)}
    how = {"dtype": dtype, "width": codes.shape[1], "height": len(codes), "count": 1}
    with rasterio.open("x.tif", "w", nodata=nodata, **where, **how) as file:
        file.write(codes, 1)


@pytest.mark.parametrize(
    ("dtype", "nodata", "option"),
    [
        ("uint8", 247, ""),
        ("uint8", 247, " --encoding esri"),
        ("uint8", None, " --encoding esri --nodata 247"),
        ("int16", -9, " --encoding esri"),
        ("float32", -9, " --encoding esri"),
    ],
)
def test_all_readers_take_inland_sinks(dtype, nodata, option):
    write(dtype, nodata)
    assert call(f"convert-dataset x.tif s.zarr --layer codes --verify{option}") == 0
    for words in (
        "flow-accumulation s.zarr --into sums --verify",
        "basins s.zarr --verify",
        "watershed s.zarr --pour-point 500025,5499975 --verify",
        "streams s.zarr --accumulation sums --threshold 9 --order link --verify",
        "calc s.zarr codes*0+1 --into elevation",
        "hand s.zarr --streams streams --verify",
    ):
        along = "" if words.startswith("calc") else " --directions codes"
        assert call(words + along) == 0, words
    for encoding in ("grass", "nextxy"):
        words = f"export s.zarr {encoding}.tif --layer codes --encoding {encoding} --verify"
        assert call(words) == 0
        assert call(f"verify s.zarr --layer codes --file {encoding}.tif") == 0
    found = {name: whole(layer).tolist() for name, layer in TileStore.open("s.zarr").each()}
    assert found["sums"] == SUMS
    assert found["basins"] == [[1] * 5] * 4 + [[0, 2, 2, 2, 2]]
    assert found["watershed"] == [[1] * 5] * 4 + [[0] * 5]
    theirs = dict(zip([1, 4, 16, 64, 0, 255], [8, 6, 4, 2, 0, 255], strict=True))
    with rasterio.open("grass.tif") as file:
        assert file.nodata == 255
        assert file.read(1).tolist() == [[theirs[code] for code in row] for row in OURS.tolist()]
    with rasterio.open("nextxy.tif") as file:
        assert file.read(1)[2:, :3].tolist() == [[2, 3, -10], [2, 3, 3], [-9999, -9, 2]]
    assert call("verify s.zarr") == 0


def test_north_east_in_a_signed_byte():
    write("int8", -9, np.array([[247, 255], [-128, 16]]))
    assert call("convert-dataset x.tif s.zarr --layer codes --encoding esri --verify") == 0
    codes = TileStore.open("s.zarr").layer("codes")
    assert whole(codes).tolist() == [[255, 0], [128, 16]]


def test_without_nodata_255_is_no_direction_with_a_warning(caplog):
    write("uint8", None, OURS)
    assert call("convert-dataset x.tif s.zarr --layer codes --encoding esri --verify") == 0
    assert "x.tif: declares no nodata value, so 255 and -1 are treated as" in caplog.text
    assert np.array_equal(whole(TileStore.open("s.zarr").layer("codes")), OURS)


@pytest.mark.parametrize("encoding", ["whitebox", "ldd", "esri-backlink"])
@pytest.mark.parametrize("value", [255, -1])
def test_values_that_are_no_code_are_an_error(encoding, value, capsys):
    write("int16", -9, np.full((2, 2), 4))
    with rasterio.open("x.tif", "r+") as file:
        file.write(np.array([[4, 4], [4, value]], "int16"), 1)
    assert call(f"convert-dataset x.tif s.zarr --layer codes --encoding {encoding}") == 2
    assert f"row 1, column 1: value {value} is not a direction in" in capsys.readouterr().err


LINES = {
    "sums": "flow-accumulation s.zarr --into sums",
    "basins": "basins s.zarr",
    "watershed": "watershed s.zarr --pour-point 500025,5499975",
    "streams": "streams s.zarr --accumulation sums --threshold 9 --order link",
    "hand": "hand s.zarr --streams streams --distance far",
}
"""Commands over sinks that cross the edges of blocks, and the layer that each writes."""


def sinks_of_many_blocks():
    write("uint8", 247, np.tile(CODES, (28, 27)))
    assert call("convert-dataset x.tif s.zarr --layer codes --encoding esri --block-size 64") == 0
    assert call("calc s.zarr codes*0+1 --into elevation") == 0


def of_many_blocks():
    """What the commands make of them, and whether the layers are proven."""
    store = TileStore.open("s.zarr")
    found = {name: whole(store.layer(name)) for name in (*LINES, "far")}
    assert np.array_equal(found["sums"], np.tile(SUMS, (28, 27)))
    assert np.array_equal(found["basins"] == 0, np.tile(CODES, (28, 27)) == 247)
    assert len(np.unique(found["basins"])) == 1 + 2 * 28 * 27
    return found


def test_inland_sinks_on_workers(cluster):
    sinks_of_many_blocks()
    for words in LINES.values():
        assert call(f"{words} --directions codes") == 0
    one = of_many_blocks()
    how = {"directions": "codes", "overwrite": True, "client": cluster, "verify": True}
    flow_accumulation("s.zarr", into="sums", **how)
    basins("s.zarr", **how)
    watershed("s.zarr", [(2, 2)], **how)
    streams("s.zarr", 9, accumulation="sums", order="link", **how)
    hand("s.zarr", streams="streams", distance="far", **how)
    assert all(np.array_equal(one[name], layer) for name, layer in of_many_blocks().items())


def test_inland_sinks_after_a_kill(tmp_path, no_fsync):
    sinks_of_many_blocks()
    for count, (name, words) in enumerate(LINES.items(), 8):
        assert die_at(2 * count, tmp_path, lambda line=words: call(f"{line} --directions codes"))
        assert name not in TileStore.open("s.zarr").layers
        assert call(f"{words} --directions codes --resume --verify") == 0
    of_many_blocks()
