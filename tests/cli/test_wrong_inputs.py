"""Wrong inputs, one by one: the exit code, the one-line message, and that nothing is lost.

Every case starts in a copy of one small world: `dem.tif` (int16), `real.tif` (float32, the same
grid), `s.zarr` (a store with one layer in nine blocks) and `old.tif` (an earlier export). It then
spoils something, runs a command, and finds every file as it was and none added.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import rasterio
from rasterio.control import GroundControlPoint
from rasterio.transform import Affine, from_origin

from terrain_gpu.cli import options
from terrain_gpu.cli.main import group

ROWS, COLS, BLOCK = 150, 130, 64
ORIGIN = (500_000.0, 5_000_000.0)


def write_tif(path, data, *, origin=ORIGIN, cell=30.0, crs="EPSG:32633", transform=None, **profile):
    """A GeoTIFF of a 2-D or 3-D array."""
    data = data if data.ndim == 3 else data[None]
    placed = transform or from_origin(*origin, cell, cell)
    with rasterio.open(
        path,
        "w",
        driver=profile.pop("driver", "GTiff"),
        height=data.shape[1],
        width=data.shape[2],
        count=len(data),
        dtype=data.dtype,
        crs=crs,
        transform=placed,
        **profile,
    ) as out:
        out.write(data)


def numbers(dtype="int16", shape=(ROWS, COLS)):
    return np.random.default_rng(7).integers(1, 3000, shape).astype(dtype)


def quietly(command: str) -> int:
    """Run a command line in this process; its exit code."""
    arguments = shlex.split(command)
    return options._guarded(lambda: group.main(arguments, standalone_mode=False))


def call(capfd, command: str) -> tuple[int, str, str]:
    """Run a command line in this process: exit code, standard output, standard error."""
    capfd.readouterr()
    code = quietly(command)
    return (code, *capfd.readouterr())


def snapshot(folder: Path) -> dict[str, str]:
    """Every path below `folder` with a digest of its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder"
    return found


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    world = tmp_path_factory.mktemp("world")
    write_tif(world / "dem.tif", numbers(), nodata=-32768)
    write_tif(world / "real.tif", numbers("float32") / 7, nodata=-9999)
    before = os.getcwd()
    os.chdir(world)
    try:
        for command in (
            f"convert-dataset real.tif s.zarr --block-size {BLOCK}",
            "export s.zarr old.tif",
        ):
            assert quietly(command) == 0
    finally:
        os.chdir(before)
    return world


@pytest.fixture
def world(template, tmp_path, monkeypatch):
    """A fresh copy of the world, as the current folder."""
    shutil.copytree(template, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


# -- what is spoilt ------------------------------------------------------------------------------


def nothing() -> None:
    """Only the command line is wrong."""


def text(path: str, content: str | bytes) -> Callable[[], None]:
    def build() -> None:
        Path(path).write_bytes(content.encode() if isinstance(content, str) else content)

    return build


def folder(path: str, *files: str) -> Callable[[], None]:
    def build() -> None:
        Path(path).mkdir()
        for file in files:
            (Path(path) / file).write_text("mine")

    return build


def tif(path: str = "bad.tif", data: np.ndarray | None = None, **profile) -> Callable[[], None]:
    def build() -> None:
        write_tif(path, numbers() if data is None else data, **profile)

    return build


def cell(row: int, col: int, value: float, dtype="float32", **profile) -> Callable[[], None]:
    """bad.tif, ordinary except for one cell."""

    def build() -> None:
        data = numbers(dtype)
        data[row, col] = value
        write_tif("bad.tif", data, **profile)

    return build


def cut(size: float, rows: int = ROWS, **profile) -> Callable[[], None]:
    """bad.tif, of which only the first part is left."""

    def build() -> None:
        write_tif("bad.tif", numbers(shape=(rows, COLS)), blockysize=16, **profile)
        os.truncate("bad.tif", int(os.path.getsize("bad.tif") * size))

    return build


def other_format(driver: str) -> Callable[[], None]:
    """bad.tif, the first half of a file of another format."""

    def build() -> None:
        write_tif("whole", numbers("uint8"), driver=driver, crs=None)
        data = Path("whole").read_bytes()
        Path("bad.tif").write_bytes(data[: len(data) // 2])

    return build


def lost_source() -> None:
    """bad.tif, a GDAL virtual mosaic of a file that is gone."""
    Path("bad.tif").write_text(
        '<VRTDataset rasterXSize="9" rasterYSize="9"><GeoTransform>0,1,0,0,0,-1</GeoTransform>'
        '<VRTRasterBand dataType="Int16" band="1"><SimpleSource><SourceFilename>nix.tif'
        "</SourceFilename></SimpleSource></VRTRasterBand></VRTDataset>"
    )


def garbled() -> None:
    """bad.tif, whose compressed bytes are wrong in the middle."""
    write_tif("bad.tif", numbers(), compress="deflate", blockysize=16)
    data = bytearray(Path("bad.tif").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = b"\xff" * 4096
    Path("bad.tif").write_bytes(data)


def patched_tag(tag: int, value: int) -> Callable[[], None]:
    """bad.tif with another value of a short or long tag in its directory."""

    def build() -> None:
        write_tif("bad.tif", numbers())
        data = bytearray(Path("bad.tif").read_bytes())
        start = struct.unpack_from("<I", data, 4)[0]
        for k in range(struct.unpack_from("<H", data, start)[0]):
            entry = start + 2 + 12 * k
            if struct.unpack_from("<H", data, entry)[0] == tag:
                struct.pack_into("<I", data, entry + 8, value)
                break
        else:
            raise AssertionError(tag)
        Path("bad.tif").write_bytes(data)

    return build


def control_points() -> None:
    points = [GroundControlPoint(r, c, 10.0 + c, 50.0 - r) for r, c in ((0, 0), (0, 9), (9, 0))]
    profile = {"height": 9, "width": 9, "count": 1, "dtype": "uint8"}
    profile |= {"driver": "GTiff", "gcps": points, "crs": "EPSG:4326"}
    with rasterio.open("bad.tif", "w", **profile) as out:
        out.write(np.ones((1, 9, 9), "uint8"))


def masked() -> None:
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        write_tif("bad.tif", np.full((ROWS, COLS), 255, np.uint8))
        with rasterio.open("bad.tif", "r+") as data:
            data.write_mask(np.eye(ROWS, COLS) < 1)


def ascii_grid(last: str) -> Callable[[], None]:
    header = "ncols 3\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 1\n"
    return text("bad.asc", f"{header}1 2 3\n4 5 {last}\n")


def grass(rows: object = 2, body: str = "1 2 3\n4 5 6\n", north: object = 20) -> Callable[[], None]:
    header = f"north: {north}\nsouth: 0\neast: 30\nwest: 0\nrows: {rows}\ncols: 3\n"
    return text("bad.txt", header + body)


def second(**profile) -> Callable[[], None]:
    """east.tif, which begins where dem.tif ends."""
    east = (ORIGIN[0] + COLS * 30.0, ORIGIN[1])

    def build() -> None:
        data = profile.pop("data", numbers()) if "data" in profile else numbers()
        write_tif("east.tif", data, **{"origin": east, "nodata": -32768, **profile})

    return build


def two(*steps: Callable[[], None]) -> Callable[[], None]:
    def build() -> None:
        for step in steps:
            step()

    return build


def meta(file: str, *keys: str | int, to: object) -> Callable[[], None]:
    """Change a value in a zarr.json of the store; `del` as `to` removes the key.

    The checksum is removed too, as by anyone who changes metadata on purpose.
    """

    def build() -> None:
        path = Path("s.zarr") / file
        found = json.loads(path.read_text())
        inner = found["attributes"]["terrain_gpu"]
        inner.pop("checksum", None)
        inner = found
        for key in keys[:-1]:
            inner = inner[key]
        if to == "del":
            del inner[keys[-1]]
        else:
            inner[keys[-1]] = to
        path.write_text(json.dumps(found))

    return build


def without_checksums(layer: str) -> Callable[[], None]:
    """The layer as another program would have made it: nothing is recorded about its cells."""

    def build() -> None:
        path = Path("s.zarr") / layer / "zarr.json"
        found = json.loads(path.read_text())
        for key in ("checksum", "digest"):
            found["attributes"]["terrain_gpu"].pop(key, None)
        path.write_text(json.dumps(found))

    return build


ROOT, LAYER = "zarr.json", "elevation/zarr.json"
OWN = ("attributes", "terrain_gpu")
SHARDING = ("codecs", 0, "configuration")
SHARD = Path("s.zarr/elevation/c/1/0")


def shard(change: Callable[[bytearray], bytes]) -> Callable[[], None]:
    def build() -> None:
        SHARD.write_bytes(change(bytearray(SHARD.read_bytes())))

    return build


def lie(offset: int, length: int) -> Callable[[bytearray], bytes]:
    """A shard index with a valid checksum whose tile lies elsewhere."""

    def change(data: bytearray) -> bytes:
        index = struct.pack("<QQ", offset, length)
        return bytes(data[:-20]) + index + struct.pack("<I", google_crc32c.value(index))

    return change


def unfinished() -> Callable[[], None]:
    """A run of layer `slope` in s.zarr that stopped at the last row of blocks: a truncated input.

    With two buffers, the third row of blocks is read after the first is written.
    """

    def build() -> None:
        write_tif("bad.tif", numbers("float32"), nodata=-9999, blockysize=16)
        os.truncate("bad.tif", os.path.getsize("bad.tif") * 92 // 100)
        command = f"convert-dataset bad.tif s.zarr --layer slope --block-size {BLOCK} --threads 1"
        assert quietly(command) == 2
        assert Path("s.zarr/.incomplete/slope.jsonl").exists()

    return build


def solved() -> None:
    """s.zarr with its spanning tree."""
    assert quietly("compute-mst s.zarr -q") == 0


def stopped() -> None:
    """A spanning tree of s.zarr that stopped at the last block: its shard was truncated."""
    last = Path("s.zarr/elevation/c/2/2")
    whole = last.read_bytes()
    last.write_bytes(whole[:99])
    assert quietly("compute-mst s.zarr --threads 1 -q") == 2
    assert Path("s.zarr/.incomplete/mst.jsonl").exists()
    last.write_bytes(whole)


def reconverted() -> None:
    """s.zarr with other heights."""
    assert quietly(f"convert-dataset dem.tif s.zarr --block-size {BLOCK} --overwrite -q") == 0


@contextmanager
def mounted(path: Path, choices: str):
    """A tmpfs at `path`; the test is skipped where mounting is not allowed."""
    path.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", choices, "tmpfs", str(path)]
    if (
        not shutil.which("mount")
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("may not mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@dataclass(frozen=True)
class Case:
    """A wrong input.

    Attributes
    ----------
    name
        Of the test.
    build
        Spoils the world.
    command
        The command line.
    says
        Regular expressions, all of which must match the message: file, value, remedy.
    code
        Exit code.
    leaves
        The paths that may appear: none, unless the message promises that a run can resume.
    """

    name: str
    build: Callable[[], None]
    command: str
    says: tuple[str, ...]
    code: int = 2
    leaves: tuple[str, ...] = ()


CONVERT = "convert-dataset"
BAD = "convert-dataset bad.tif new.zarr"

INPUTS = [
    Case("missing", nothing, f"{CONVERT} nix.tif new.zarr", ("nix.tif: no such file",)),
    Case(
        "one of many missing", nothing, f"{CONVERT} dem.tif nix.tif new.zarr", ("nix.tif: no such",)
    ),
    Case("empty file", text("bad.tif", ""), BAD, ("bad.tif: the file is empty",)),
    Case("folder", folder("bad.tif"), BAD, ("bad.tif: a folder, not a raster",)),
    Case(
        "store as input", nothing, f"{CONVERT} s.zarr new.zarr", ("s.zarr: a Zarr group, .*export",)
    ),
    Case("text", text("bad.tif", "hello\n" * 99), BAD, ("bad.tif: not a raster",)),
    Case("header only", text("bad.tif", b"II*\0\xff\0\0\0"), BAD, ("bad.tif: not a raster",)),
    Case(
        "name not UTF-8",
        text("b\udcff.tif", "x"),
        f"{CONVERT} 'b\udcff.tif' new.zarr",
        (r"b\\udcff.tif: its name is not UTF-8", "rename"),
    ),
    Case("truncated strips", cut(0.5), BAD, (r"bad.tif: rows 0 to 149 cannot", "truncated")),
    Case("truncated deflate", cut(0.5, compress="deflate"), BAD, ("bad.tif: rows .* truncated",)),
    Case("truncated tiles", cut(0.4, tiled=True, blockxsize=16), BAD, ("bad.tif: rows .* trunc",)),
    Case("damaged deflate", garbled, BAD, ("bad.tif: rows .* damaged",)),
    Case(
        "truncated late",
        cut(0.9, rows=900),
        f"{BAD} --block-size 64 --threads 1",
        ("bad.tif: rows 768 to 831 .* truncated", "kept: --resume continues, --overwrite starts"),
        leaves=("new.zarr.incomplete",),
    ),
    Case("pipe", lambda: os.mkfifo("bad.tif"), BAD, ("bad.tif: a pipe or device; save it",)),
    Case("device", nothing, f"{CONVERT} /dev/zero new.zarr", ("/dev/zero: a pipe or device",)),
    Case("truncated PNG", other_format("PNG"), BAD, ("bad.tif: rows 0 to 149 .* truncated",)),
    Case("truncated JPEG", other_format("JPEG"), BAD, ("bad.tif: rows 0 to 149 .* truncated",)),
    Case("part of a mosaic file missing", lost_source, BAD, ("bad.tif: rows .* nix.tif",)),
    Case(
        "transform beyond numbers",
        tif(transform=Affine(1e307, 0, 0, 0, -1e307, 0)),
        BAD,
        ("bad.tif: .*1e.307.* overflow",),
    ),
    Case(
        "transform NaN in the raster",
        tif(transform=Affine(1, 0, float("nan"), 0, -1, 0)),
        BAD,
        ("bad.tif: .*nan.* not invertible",),
    ),
    Case("zero width", patched_tag(256, 0), BAD, ("bad.tif: not a raster",)),
    Case("absurd width", patched_tag(256, 2**31 - 1), BAD, ("bad.tif|memory limit",)),
    Case("bands", tif(data=numbers(shape=(3, 9, 9))), BAD, ("bad.tif: has 3 bands", "--band")),
    Case(
        "band too high",
        nothing,
        f"{CONVERT} dem.tif new.zarr --band 2",
        (r"dem.tif: has no band 2; its last band is 1",),
    ),
    Case("band 0", nothing, f"{CONVERT} dem.tif new.zarr --band 0", ("'--band': 0 is not in",)),
    Case(
        "complex",
        tif(data=numbers("complex64")),
        BAD,
        ("bad.tif: its cells are complex numbers; write their real parts",),
    ),
    Case(
        "rotated",
        tif(transform=Affine(30, 5, 0, 5, -30, 0)),
        BAD,
        ("bad.tif: .*30.0, 5.0.* rotated", "gdalwarp"),
    ),
    Case("control points", control_points, BAD, ("bad.tif: .*control points", "gdalwarp")),
    Case(
        "mask, nodata valid",
        masked,
        BAD,
        ("bad.tif: row 0, column 1: .*value 255 is valid", "choose a value .*--nodata"),
    ),
    Case(
        "GRASS truncated",
        grass(body="1 2 3\n4 5\n"),
        f"{CONVERT} bad.txt new.zarr",
        ("bad.txt: ends in row 1 of 2", "truncated"),
    ),
    Case(
        "GRASS word",
        grass(body="1 2 3\n4 five 6\n"),
        f"{CONVERT} bad.txt new.zarr",
        ("bad.txt: near row .*'five' is not a number",),
    ),
    Case(
        "GRASS upside down",
        grass(north=-1),
        f"{CONVERT} bad.txt new.zarr",
        ("bad.txt: .*empty area: north -1.0, south 0.0",),
    ),
    Case("GRASS no rows", grass(rows=0), f"{CONVERT} bad.txt new.zarr", ("bad.txt: .* 0 rows",)),
    Case(
        "GRASS absurd rows",
        grass(rows=10**12),
        f"{CONVERT} bad.txt new.zarr",
        ("bad.txt: .*1000000000000 x 3 cells",),
    ),
    Case(
        "GRASS rows no number",
        grass(rows="many"),
        f"{CONVERT} bad.txt new.zarr",
        ("bad.txt: .*'many'",),
    ),
    Case(
        "GRASS field missing",
        text("bad.txt", "north: 1\nsouth: 0\n1 2\n"),
        f"{CONVERT} bad.txt new.zarr",
        ("bad.txt: .*'rows' is missing", "it needs north, south"),
    ),
    Case(
        "GRASS band 2", grass(), f"{CONVERT} bad.txt new.zarr --band 2", ("bad.txt: has no band 2",)
    ),
    Case(
        "AAIGrid short",
        text("bad.asc", "ncols 3\nnrows 9\nxllcorner 0\nyllcorner 0\ncellsize 1\n1 2 3\n4 5\n"),
        f"{CONVERT} bad.asc new.zarr",
        ("bad.asc: has 5 values, not 9 x 3; .*truncated",),
    ),
    Case(
        "XYZ word",
        text("bad.xyz", "x y z note\n0 1 5 a\n1 1 6 b\n0 0 #N/A c\n1 0 8 d\n"),
        f"{CONVERT} bad.xyz new.zarr",
        ("bad.xyz: line 4: '#N/A' is not a number",),
    ),
    *(
        Case(f"AAIGrid {word}", ascii_grid(word), f"{CONVERT} bad.asc new.zarr", (says,))
        for word, says in (
            ("", "bad.asc: has 5 values, not 2 x 3; .*truncated"),
            ("6 7", "bad.asc: has 7 values, not 2 x 3; correct its header"),
            *(
                (
                    word,
                    f"bad.asc: line 7: {re.escape(repr(word))}, at row 1, column 2.*NODATA_value",
                )
                for word in (
                    "#VALUE!",
                    "x",
                    "*",
                    "1.5.2",
                    "0x10",
                    "1_0",
                    "inf",
                    "null",
                    "2e",
                    "-nan",
                    "NAN",
                    "1.#IND",
                )
            ),
        )
    ),
]

VALUES = [
    Case(
        "nodata out of range",
        nothing,
        f"{CONVERT} dem.tif new.zarr --nodata 70000",
        ("dem.tif: nodata value 70000 .*int16",),
    ),
    Case(
        "nodata NaN of integers",
        nothing,
        f"{CONVERT} dem.tif new.zarr --nodata nan",
        ("dem.tif: nodata value nan .*int16",),
    ),
    Case(
        "nodata a fraction",
        nothing,
        f"{CONVERT} dem.tif new.zarr --nodata 0.5",
        ("dem.tif: nodata value 0.5 .*int16",),
    ),
    Case(
        "nodata a word",
        nothing,
        f"{CONVERT} dem.tif new.zarr --nodata none",
        ("'none' is not a n",),
    ),
    Case(
        "nodata of rounded cells",
        nothing,
        f"{CONVERT} real.tif new.zarr --round --nodata 1e10",
        ("real.tif: .*nodata .*10000000000.0 .*int32",),
    ),
    Case(
        "clamp out of range",
        nothing,
        f"{CONVERT} dem.tif new.zarr --clamp-min 40000",
        ("dem.tif: --clamp-min 40000 does not fit .*int16",),
    ),
    Case(
        "clamp NaN",
        nothing,
        f"{CONVERT} real.tif new.zarr --clamp-min nan",
        ("real.tif: --clamp-min nan must be a finite number",),
    ),
    Case(
        "clamp infinite",
        nothing,
        f"{CONVERT} real.tif new.zarr --clamp-min inf",
        ("real.tif: --clamp-min inf must be a finite number",),
    ),
    Case(
        "clamp onto nodata",
        nothing,
        f"{CONVERT} dem.tif new.zarr --nodata 5000 --clamp-min 5000",
        ("dem.tif: row 0, column 0: value .* nodata value 5000", "--nodata"),
    ),
    Case(
        "rounding overflow",
        cell(141, 97, 1e20),
        f"{BAD} --round --block-size 64",
        (r"bad.tif: row 141, column 97: value 1e\+20 does not fit int32", "--round"),
    ),
    # 2^31 - 1 is not a float32: the least value that does not fit is 2^31 itself.
    Case(
        "rounding overflow by one",
        cell(3, 4, 2.0**31),
        f"{BAD} --round",
        ("bad.tif: row 3, column 4: value 2.147",),
    ),
    Case(
        "rounding onto nodata",
        cell(140, 2, 7.4),
        f"{BAD} --round --nodata 7 --block-size 64",
        ("bad.tif: row [0-9]+, column [0-9]+: value 7.* become the nodata value 7", "--nodata"),
    ),
    Case(
        "overflow under bounds",
        cell(50, 60, 1e20),
        f"{BAD} --round --bounds {ORIGIN[0] + 900} 4990000 {ORIGIN[0] + 2700} {ORIGIN[1] - 600}",
        ("bad.tif: row 50, column 60",),
    ),
    Case(
        "overflow in the second input",
        two(
            cell(0, 0, 1, nodata=-32768),
            tif(
                "bad2.tif",
                np.full((9, 9), 1e20, "f4"),
                nodata=-32768,
                origin=(ORIGIN[0], ORIGIN[1] - ROWS * 30),
            ),
        ),
        f"{CONVERT} bad.tif bad2.tif new.zarr --round",
        ("bad2.tif: row 0, column 0: value 1e.20",),
    ),
    Case(
        "bounds outside",
        nothing,
        f"{CONVERT} dem.tif new.zarr --bounds 1 2 3 4",
        (r"dem.tif: --bounds \(1.0, 2.0, 3.0, 4.0\) do not touch", "covers .*500000.0"),
    ),
    Case(
        "bounds reversed",
        nothing,
        f"{CONVERT} dem.tif new.zarr --bounds 3 4 1 2",
        ("dem.tif: --bounds .* are empty; give WEST SOUTH EAST NORTH",),
    ),
    Case(
        "bounds NaN", nothing, f"{CONVERT} dem.tif new.zarr --bounds nan 2 3 4", ("nan, .*empty",)
    ),
    Case(
        "bounds too few", nothing, f"{CONVERT} dem.tif new.zarr --bounds 1 2", ("--bounds.*4 arg",)
    ),
    Case(
        "bounds words", nothing, f"{CONVERT} dem.tif new.zarr --bounds a b c d", ("--bounds.*'a'",)
    ),
]

EAST = f"{CONVERT} dem.tif east.tif new.zarr"
MOSAICS = [
    Case(
        "other CRS",
        second(crs="EPSG:32632"),
        EAST,
        ("dem.tif and east.tif: coordinate.*EPSG:32633 and EPSG:32632", "gdalwarp"),
    ),
    Case("no CRS in one", second(crs=None), EAST, ("dem.tif and east.tif: .*32633 and none",)),
    Case(
        "other cell size",
        second(cell=31.0),
        EAST,
        ("dem.tif and east.tif: cell sizes .*30.0.*31.0",),
    ),
    Case(
        "not aligned",
        second(origin=(ORIGIN[0] + 7.5, ORIGIN[1])),
        EAST,
        (r"dem.tif and east.tif: .*not aligned.* 0\.2500 columns",),
    ),
    Case(
        "other type",
        second(data=numbers("int32")),
        EAST,
        ("dem.tif and east.tif: cells are int16 and int32",),
    ),
    Case(
        "gaps",
        two(tif("bad.tif"), second(nodata=None, origin=(ORIGIN[0] + 9000, ORIGIN[1]))),
        f"{CONVERT} bad.tif east.tif new.zarr",
        ("bad.tif and .* leave gaps", "--nodata"),
    ),
]

NEW = f"{CONVERT} dem.tif new.zarr"
SETTINGS = [
    Case("layer ../x", nothing, f"{NEW} --layer ../x", (r"layer name '\.\./x': use letters",)),
    Case("layer x", nothing, f"{NEW} --layer x", ("layer name 'x': .*none of x, y, spatial_ref",)),
    Case("layer spatial_ref", nothing, f"{NEW} --layer spatial_ref", ("layer name 'spatial_ref'",)),
    Case("layer empty", nothing, f"{NEW} --layer ''", ("layer name '': use letters",)),
    Case(
        "layer of 65 letters",
        nothing,
        f"{NEW} --layer {'a' * 65}",
        ("layer name 'a{65}' has 65 characters, .* at most 64",),
    ),
    Case("block size 100", nothing, f"{NEW} --block-size 100", ("block size 100 .*power of two",)),
    Case("block size 32", nothing, f"{NEW} --block-size 32", ("'--block-size': 32 .*64",)),
    Case(
        "block size 16384", nothing, f"{NEW} --block-size 16384", ("'--block-size': 16384 .*8192",)
    ),
    Case(
        "limit in parsecs",
        nothing,
        f"{NEW} --memory-limit '12 parsecs'",
        ("'12 parsecs' is not a size; write for example 512MB",),
    ),
    Case("limit 0", nothing, f"{NEW} --memory-limit 0", ("'0' is not a positive size",)),
    Case("limit negative", nothing, f"{NEW} --memory-limit -5GB", ("'-5GB' is not a size",)),
    Case(
        "limit infinite",
        nothing,
        f"{NEW} --memory-limit 1e400",
        ("'1e400' is not a positive size",),
    ),
    Case(
        "limit too small",
        nothing,
        f"{NEW} --memory-limit 10MB",
        ("limit of 10 MB is too small for 150 x 130 .*int16; give at least [0-9]+ MB",),
    ),
    Case("threads 0", nothing, f"{NEW} --threads 0", ("'--threads': 0 is not in",)),
    Case("compression unknown", nothing, f"{NEW} --compress brotli", ("'brotli' is not .*zstd",)),
    Case(
        "option unknown", nothing, f"{NEW} --frobnicate", ("No such option.*--frobnicate", "--help")
    ),
    Case("command unknown", nothing, "frobnicate", ("No such command 'frobnicate'", "--help")),
    Case("no arguments", nothing, CONVERT, ("Missing argument 'STORE'",)),
    Case("no store", nothing, f"{CONVERT} dem.tif", ("'dem.tif' given: give INPUT .* STORE last",)),
    Case(
        "report into no folder",
        nothing,
        f"{NEW} --json nix/r.json",
        ("'--json': the folder of 'nix/r.json' does not exist",),
    ),
    Case(
        "report onto a folder", nothing, f"{NEW} --json s.zarr", ("'--json': 's.zarr' is a folder",)
    ),
    Case(
        "report onto an input",
        nothing,
        f"{CONVERT} --json dem.tif real.tif new.zarr",
        ("'--json': 'dem.tif' exists and is not a report; remove it or name another",),
    ),
]

STORES = [
    Case(
        "store is a file",
        nothing,
        f"{CONVERT} dem.tif old.tif",
        ("old.tif: is a file; the last arg",),
    ),
    Case(
        "store below a file",
        nothing,
        f"{CONVERT} dem.tif old.tif/s.zarr",
        ("old.tif/s.zarr: its folder old.tif does not exist",),
    ),
    Case(
        "store in no folder",
        nothing,
        f"{CONVERT} dem.tif nix/s.zarr",
        ("nix/s.zarr: its folder nix does not exist; make it first",),
    ),
    Case(
        "store in a folder of mine",
        folder("mine", "notes.txt"),
        f"{CONVERT} dem.tif mine",
        ("mine: is a folder, but not a store; name",),
    ),
    Case("store is /", nothing, f"{CONVERT} dem.tif /", ("/: is a folder, but not a store",)),
    Case(
        "store a dangling link",
        lambda: os.symlink("nowhere", "l.zarr"),
        f"{CONVERT} dem.tif l.zarr",
        ("l.zarr: is a broken link; remove it",),
    ),
    Case(
        "store a foreign group",
        two(
            folder("g"),
            text("g/zarr.json", '{"zarr_format": 3, "node_type": "group", "attributes": {}}'),
        ),
        f"{CONVERT} dem.tif g",
        ("/g: a Zarr group, but not a store of this program",),
    ),
    Case(
        "something else in the way",
        folder("new.zarr.incomplete", "notes.txt"),
        NEW,
        ("new.zarr.incomplete: exists and is not a store of this program; move it",),
    ),
    Case(
        "layer exists",
        nothing,
        f"{CONVERT} real.tif s.zarr",
        ("s.zarr: layer 'elevation' exists; --overwrite replaces it",),
    ),
    Case(
        "layer's place taken",
        folder("s.zarr/slope", "notes.txt"),
        f"{CONVERT} real.tif s.zarr --layer slope --overwrite",
        ("s.zarr/slope: exists and is not a layer", "move it"),
    ),
    Case(
        "other grid",
        tif(cell=25.0),
        f"{CONVERT} bad.tif s.zarr --layer b",
        (
            "s.zarr: has a different grid .*30.0.* than bad.tif .*25.0.*; warp it to fit .gdalwarp",
            "choose another store",
        ),
    ),
    Case(
        "other grid, overwriting one of two",
        two(tif(cell=25.0), folder("s.zarr/notes")),
        f"{CONVERT} bad.tif s.zarr --overwrite",
        ("s.zarr: has a different grid", "--overwrite would lose 'notes'"),
    ),
    Case(
        "no CRS",
        tif(),
        f"{CONVERT} bad.tif t.zarr --crs utm33",
        ("--crs 'utm33' is not a coordinate system; give a code such as EPSG:32611",),
    ),
    Case(
        "another CRS than the input's",
        tif(crs="EPSG:32632"),
        f"{CONVERT} bad.tif t.zarr --crs EPSG:32633",
        ("bad.tif: is in EPSG:32632, not in EPSG:32633; leave out --crs, or warp the raster",),
    ),
    Case(
        "other CRS than the store",
        tif(crs="EPSG:32632"),
        f"{CONVERT} bad.tif s.zarr --layer b",
        ("bad.tif and s.zarr: coordinate systems differ .EPSG:32632 and EPSG:32633",),
    ),
    Case(
        "unfinished run in the way",
        unfinished(),
        f"{CONVERT} real.tif s.zarr --layer slope",
        (
            "s.zarr: has an unfinished run of layer 'slope'",
            "--resume continues it, --overwrite starts",
        ),
    ),
    Case(
        "resumed with another input",
        unfinished(),
        f"{CONVERT} real.tif s.zarr --layer slope --resume --block-size 64",
        ("s.zarr: cannot resume: ", "--overwrite"),
    ),
    Case(
        "resumed with a changed input",
        two(unfinished(), lambda: os.utime("bad.tif", (1, 1))),
        f"{CONVERT} bad.tif s.zarr --layer slope --resume",
        ("s.zarr: cannot resume: bad.tif differs from what", "time", "--overwrite starts again"),
    ),
    Case(
        "resumed with other settings",
        unfinished(),
        f"{CONVERT} bad.tif s.zarr --layer slope --resume --clamp-min 3",
        ("cannot resume: clamp_min was None and is now 3; use the same value, or --overwrite",),
    ),
]

SECOND = f"{CONVERT} real.tif s.zarr --layer b"
METADATA = [
    Case(
        "info of no store", nothing, "info nix", ("/nix: no such store; convert-dataset makes one",)
    ),
    Case("info of a text", text("a.txt", "hello"), "info a.txt", ("a.txt: not a raster",)),
    Case(
        "info of a folder",
        folder("mine"),
        "info mine",
        ("/mine: not a store .it has no zarr.json",),
    ),
    Case(
        "group no JSON",
        text("s.zarr/zarr.json", "{"),
        "info s.zarr",
        ("s.zarr/zarr.json: damaged",),
    ),
    Case(
        "group no object",
        text("s.zarr/zarr.json", "5"),
        "info s.zarr",
        ("s.zarr/zarr.json: damag",),
    ),
    Case(
        "group not ours",
        meta(ROOT, "attributes", to={}),
        SECOND,
        ("s.zarr: a Zarr group, but not",),
    ),
    Case(
        "format 99",
        meta(ROOT, *OWN, "format", to=99),
        "info s.zarr",
        ("s.zarr: store format 99; this program reads 1",),
    ),
    Case(
        "shape negative",
        meta(ROOT, *OWN, "shape", to=[-150, 130]),
        "info s.zarr",
        ("s.zarr/zarr.json: damaged .*-150 x 130",),
    ),
    Case(
        "shape of words",
        meta(ROOT, *OWN, "shape", to=["150", "130"]),
        SECOND,
        ("s.zarr/zarr.json: damaged .*'150' is not a whole number",),
    ),
    Case(
        "shape huge",
        meta(ROOT, *OWN, "shape", to=[10**15, 130]),
        "export s.zarr new.tif",
        ("s.zarr/zarr.json: damaged .*1000000000000000 x 130",),
    ),
    Case(
        "shape of another raster",
        meta(ROOT, *OWN, "shape", to=[150, 131]),
        "export s.zarr new.tif",
        (r"elevation/zarr.json: shape \(150, 130\) differs from the store's \(150, 131\)",),
    ),
    Case(
        "shape missing", meta(ROOT, *OWN, "shape", to="del"), "info s.zarr", ("it lacks 'shape'",)
    ),
    Case(
        "transform NaN",
        meta(ROOT, *OWN, "transform", 0, to=float("nan")),
        "info s.zarr",
        ("s.zarr/zarr.json: damaged .*nan",),
    ),
    Case(
        "transform short",
        meta(ROOT, *OWN, "transform", to=[1, 0, 0]),
        "info s.zarr",
        ("s.zarr/zarr.json: damaged .*values",),
    ),
    Case(
        "CRS garbage",
        two(
            meta(ROOT, *OWN, "crs_wkt", to="PROJCRS[oops"),
            without_checksums("elevation"),
        ),
        "export s.zarr new.tif",
        ("s.zarr/elevation: the raster.s coordinate system .*PROJCRS.oops. cannot be read",),
    ),
    Case(
        "layer no JSON",
        text("s.zarr/elevation/zarr.json", "{]"),
        "export s.zarr new.tif",
        ("elevation/zarr.json: damaged", "convert"),
    ),
    Case(
        "layer shape huge",
        meta(LAYER, "shape", to=[2**40, 2**40]),
        "export s.zarr new.tif",
        ("elevation/zarr.json: shape .*differs",),
    ),
    Case(
        "layer shape negative",
        meta(LAYER, "shape", to=[-1, 130]),
        "export s.zarr new.tif",
        ("zarr.json: ",),
    ),
    Case(
        "blocks of 100",
        meta(LAYER, "chunk_grid", "configuration", "chunk_shape", to=[100, 100]),
        "export s.zarr new.tif",
        ("elevation/zarr.json: .*",),
    ),
    Case(
        "blocks huge",
        meta(LAYER, "chunk_grid", "configuration", "chunk_shape", to=[2**40, 2**40]),
        "export s.zarr new.tif",
        ("elevation/zarr.json: block size 1099511627776 .*8192",),
    ),
    Case(
        "blocks not square",
        meta(LAYER, "chunk_grid", "configuration", "chunk_shape", to=[64, 128]),
        "export s.zarr new.tif",
        ("elevation/zarr.json: blocks of 64 x 128 are not square",),
    ),
    Case(
        "tiles of 32",
        meta(LAYER, *SHARDING, "chunk_shape", to=[32, 32]),
        "export s.zarr new.tif",
        (r"elevation/zarr.json: tiles of \(32, 32\), not 64 x 64",),
    ),
    Case(
        "not sharded",
        meta(LAYER, "codecs", to=[{"name": "bytes", "configuration": {"endian": "little"}}]),
        "export s.zarr new.tif",
        ("zarr.json: .*not sharded",),
    ),
    Case(
        "index at the start",
        meta(LAYER, *SHARDING, "index_location", to="start"),
        "export s.zarr new.tif",
        ("elevation/zarr.json: the shard index is not at the end",),
    ),
    Case(
        "index without checksum",
        meta(
            LAYER,
            *SHARDING,
            "index_codecs",
            to=[{"name": "bytes", "configuration": {"endian": "little"}}],
        ),
        "export s.zarr new.tif",
        ("zarr.json: the shard index .*crc32c",),
    ),
    Case(
        "big-endian",
        meta(LAYER, *SHARDING, "codecs", 0, "configuration", "endian", to="big"),
        "export s.zarr new.tif",
        ("elevation/zarr.json: cells are not little-endian",),
    ),
    Case(
        "type complex",
        two(meta(LAYER, "data_type", to="complex64"), meta(LAYER, "fill_value", to=[0.0, 0.0])),
        "export s.zarr new.tif",
        ("elevation/zarr.json: .*complex64 are not supported",),
    ),
    Case(
        "fill value differs",
        meta(LAYER, "fill_value", to=5.0),
        "export s.zarr new.tif",
        ("elevation/zarr.json: fill value 5.0 is not the nodata value -9999.0",),
    ),
    Case(
        "nodata a list",
        meta(LAYER, *OWN, "nodata", to=[1]),
        "export s.zarr new.tif",
        (r"\[1\] is not a number",),
    ),
    Case(
        "statistics of words",
        meta(LAYER, *OWN, "valid_cells", to="lots"),
        "export s.zarr new.tif",
        ("elevation/zarr.json: damaged .*'lots' is not a whole number",),
    ),
    Case(
        "statistics not finite",
        meta(LAYER, *OWN, "max", to=float("inf")),
        "export s.zarr new.tif",
        ("elevation/zarr.json: damaged .*JSON compliant",),
    ),
    Case(
        "stored bytes of words",
        meta(LAYER, *OWN, "stored_bytes", to="1e3"),
        "export s.zarr new.tif",
        ("elevation/zarr.json: damaged .*'1e3'",),
    ),
    Case(
        "scale a word",
        meta(LAYER, "attributes", "scale_factor", to="big"),
        "export s.zarr new.tif",
        ("s.zarr/elevation: invalid units, scale or offset: .*'big'",),
    ),
    Case(
        "plan of nonsense", nothing, "plan nonsense", ("nonsense: neither a store nor .*ROWSxCOLS",)
    ),
    Case("plan of no rows", nothing, "plan 0x5", ("0x5: a side must have 1 to 2147483647",)),
    Case("plan of too many", nothing, "plan 5x99999999999", ("5x99999999999: a side must",)),
    Case(
        "plan of 5000 digits",
        nothing,
        f"plan {'9' * 5000}x1",
        ("9: neither a store nor ROWSxCOLS",),
    ),
    Case("plan of a type", nothing, "plan 9x9 --dtype foo", ("'foo' is not a cell type",)),
    Case(
        "plan of complex", nothing, "plan 9x9 --dtype complex64", ("complex64 .*use one of uint8",)
    ),
    Case(
        "plan of block size 96",
        nothing,
        "plan 9x9 --block-size 96",
        ("block size 96 is not a power",),
    ),
    Case(
        "plan too small", nothing, "plan 99999x99999 --memory-limit 150MB", ("at least [0-9]+ MB",)
    ),
    Case(
        "plan of a tree too small",
        nothing,
        "plan 9999x9999 --for mst --block-size 4096 --memory-limit 200MB",
        ("spanning tree of 9999 x 9999 .*at least [0-9]+ MB, or convert with a smaller --block",),
    ),
    Case("plan for tea", nothing, "plan 9x9 --for tea", ("'--for': 'tea' is not one of",)),
    Case(
        "plan of a layer",
        nothing,
        "plan s.zarr --layer nix",
        ("no layer 'nix'; it has: elevation",),
    ),
]

EXPORTS = (
    [
        Case(
            "layer unknown",
            nothing,
            "export s.zarr new.tif --layer nix",
            ("s.zarr: no layer 'nix'; it has: elevation",),
        ),
        Case(
            "target exists",
            nothing,
            "export s.zarr old.tif",
            ("old.tif: exists; --overwrite replaces it",),
        ),
        Case(
            "target in no folder",
            nothing,
            "export s.zarr nix/new.tif",
            ("nix/new.tif: its folder does not exist; make it first",),
        ),
        Case(
            "target below a file",
            nothing,
            "export s.zarr dem.tif/new.tif",
            ("dem.tif/new.tif: its folder",),
        ),
        Case(
            "target a PNG",
            nothing,
            "export s.zarr new.png",
            ("new.png: the name of the output must end",),
        ),
        Case(
            "target a folder",
            folder("new.tif"),
            "export s.zarr new.tif --overwrite",
            ("new.tif: is a fol",),
        ),
        Case(
            "target name too long",
            nothing,
            f"export s.zarr {'n' * 300}.tif",
            ("nnn.tif: File name too long",),
        ),
        Case(
            "export of no store",
            nothing,
            "export nix old.tif --overwrite",
            ("/nix: no such store",),
        ),
        Case(
            "export of bounds outside",
            nothing,
            "export s.zarr new.tif --bounds 1 2 3 4",
            (r"s.zarr: --bounds \(1.0, 2.0, 3.0, 4.0\) do not touch",),
        ),
        Case(
            "export compression",
            nothing,
            "export s.zarr new.tif --compress jpeg",
            ("'jpeg' is not one",),
        ),
        Case(
            "export limit",
            nothing,
            "export s.zarr new.tif --memory-limit 1MB",
            ("1 MB is too small", "MB"),
        ),
        Case(
            "demo below a file",
            nothing,
            "demo dem.tif",
            ("dem.tif: is a file or inside one; name anoth",),
        ),
        Case(
            "demo on my files",
            two(folder("mine"), text("mine/jacksboro.tif", "mine")),
            "demo mine",
            ("mine/jacksboro.tif: exists; --overwrite replaces it, or name",),
        ),
    ]
    + [
        Case(
            f"shard {name}",
            shard(change),
            "export s.zarr old.tif --overwrite",
            ("s.zarr/elevation/c/1/0: ", *says),
        )
        for name, change, says in (
            (
                "index corrupt",
                lambda d: bytes(d[:-9]) + bytes([d[-9] ^ 1]) + bytes(d[-8:]),
                ("corrupt shard index .crc32c differs", "convert it again"),
            ),
            ("empty", lambda d: b"", ("truncated: no room for its index", "convert it again")),
            ("truncated", lambda d: bytes(d[: len(d) // 2]), ("corrupt shard index",)),
            (
                "offset outside",
                lie(1 << 40, BLOCK * BLOCK * 4),
                ("is not the recorded block",),
            ),
            ("offset overflowing", lie(2**64 - 2, 16), ("is not the recorded block",)),
            ("length absurd", lie(0, 1 << 50), ("is not the recorded block",)),
        )
    ]
    + [
        Case(
            "shard a folder",
            lambda: (SHARD.unlink(), SHARD.mkdir()),
            "export s.zarr old.tif --overwrite",
            ("elevation/c/1/0: cannot be read: Is a directory",),
        ),
    ]
)

MST = "compute-mst s.zarr"
TREES = [
    Case(
        "tree of nothing", nothing, "compute-mst", (r"Missing argument 'STORE\|RASTER'", "--help")
    ),
    Case(
        "tree of no store",
        nothing,
        "compute-mst nix",
        ("/nix: no such store; convert-dataset makes one",),
    ),
    Case(
        "tree of a raster",
        nothing,
        "compute-mst dem.tif",
        ("dem.tif is a raster: give -o for the result, or --store to keep it",),
    ),
    Case(
        "tree of a folder",
        folder("mine"),
        "compute-mst mine",
        ("/mine: not a store .it has no zarr.json.; convert-dataset makes one",),
    ),
    Case(
        "tree of the folder of a layer",
        nothing,
        f"{MST}/elevation",
        ("s.zarr/elevation: an array, not a store; name the folder above it",),
    ),
    Case(
        "tree of a foreign group",
        two(
            folder("g"),
            text("g/zarr.json", '{"zarr_format": 3, "node_type": "group", "attributes": {}}'),
        ),
        "compute-mst g",
        ("/g: a Zarr group, but not a store of this program; choose another path",),
    ),
    Case(
        "tree of a damaged store",
        text("s.zarr/zarr.json", "{"),
        MST,
        ("s.zarr/zarr.json: damaged .*convert again",),
    ),
    Case(
        "tree of a damaged layer",
        text("s.zarr/elevation/zarr.json", "{]"),
        MST,
        ("elevation/zarr.json: damaged .*convert again",),
    ),
    Case(
        "tree of a damaged type",
        meta(LAYER, *OWN, "stored_bytes", to=[]),
        MST,
        (r"elevation/zarr.json: damaged .*\[\] is not a whole number.*; convert it again",),
    ),
    Case(
        "tree of an unknown layer",
        nothing,
        f"{MST} --layer nix",
        ("s.zarr: no layer 'nix'; it has: elevation",),
    ),
    Case(
        "tree of a tree",
        solved,
        f"{MST} --layer mst --overwrite",
        ("s.zarr: 'mst' is the result layer; name a layer of elevations",),
    ),
    Case(
        "layer of spaces",
        nothing,
        "slope s.zarr --into 'length - 100'",
        (r"s.zarr: layer name 'length - 100': use letters",),
    ),
    Case("tree exists", solved, MST, ("s.zarr: layer 'mst' exists; --overwrite replaces it",)),
    Case(
        "finished tree resumed with another weight",
        solved,
        f"{MST} --resume --weight absdiff",
        ("s.zarr: layer 'mst' exists; --overwrite replaces it",),
    ),
    Case(
        "finished tree resumed over other heights",
        two(solved, reconverted),
        f"{MST} --resume",
        ("s.zarr: layer 'mst' exists; --overwrite replaces it",),
    ),
    Case(
        "tree's place taken",
        folder("s.zarr/mst", "notes.txt"),
        f"{MST} --overwrite",
        ("s.zarr/mst: exists and is not a layer of this program; move it",),
    ),
    Case(
        "unfinished tree in the way",
        stopped,
        MST,
        ("s.zarr: has an unfinished run of layer 'mst'; --resume .* --overwrite starts",),
    ),
    Case(
        "tree resumed with another weight",
        stopped,
        f"{MST} --resume --weight absdiff",
        ("s.zarr: cannot resume: weight was 'max' and is now 'absdiff'; .*--overwrite",),
    ),
    Case(
        "tree resumed over other heights",
        two(stopped, reconverted),
        f"{MST} --resume",
        (
            "s.zarr: cannot resume: layer 'elevation' differs from what the unfinished run read; "
            "--overwrite starts again",
        ),
    ),
    Case("tree output exists", nothing, f"{MST} -o old.tif", ("old.tif: exists; --overwrite rep",)),
    Case(
        "tree output in no folder",
        nothing,
        f"{MST} -o nix/new.tif",
        ("nix/new.tif: its folder does not exist; make it first",),
    ),
    Case(
        "tree output a PNG",
        nothing,
        f"{MST} -o new.png",
        ("new.png: the name of the output must end",),
    ),
    Case(
        "tree output a store", nothing, f"{MST} -o new.zarr", ("the raster with --store new.zarr",)
    ),
    Case(
        "tree output a folder",
        folder("new.tif"),
        f"{MST} -o new.tif --overwrite",
        ("new.tif: is a folder",),
    ),
    Case(
        "tree weight", nothing, f"{MST} --weight mean", ("'mean' is not one of 'max', 'absdiff'",)
    ),
    Case("tree connectivity", nothing, f"{MST} --connectivity 6", ("'6' is not one of '8', '4'",)),
    Case(
        "tree method", nothing, f"{MST} --method prim", ("'prim' is not one of 'frozen', 'contr",)
    ),
    Case(
        "tree limit in parsecs",
        nothing,
        f"{MST} --memory-limit '12 parsecs'",
        ("'12 parsecs' is not a size; write for example 512MB",),
    ),
    Case(
        "tree limit too small",
        nothing,
        f"{MST} --memory-limit 100MB",
        ("limit of 100 MB is too small for .* 150 x 130 .*blocks of 64; give at least [0-9]+ MB",),
    ),
    Case("tree threads 0", nothing, f"{MST} --threads 0", ("'--threads': 0 is not in the range",)),
    Case(
        "tree threads two", nothing, f"{MST} --threads two", ("'--threads': 'two' is not a valid",)
    ),
    Case(
        "tree backend tpu", nothing, f"{MST} --backend tpu", ("'tpu' is not one of 'auto', 'cpu'",)
    ),
    Case(
        "tree report onto an input",
        nothing,
        f"{MST} --json dem.tif",
        ("'--json': 'dem.tif' exists and is not a report; remove it or name another",),
    ),
    Case(
        "tree report onto the store",
        nothing,
        f"{MST} --json s.zarr/zarr.json",
        ("'--json': 's.zarr/zarr.json' exists and is not a report; remove it or name another",),
    ),
]


def frictions() -> None:
    """s.zarr with a layer of frictions that has lost a shard."""
    assert quietly(f"convert-dataset dem.tif s.zarr --layer f --block-size {BLOCK} -q") == 0
    Path("s.zarr/f/c/1/0").unlink()


LOST = (r"c/1/0: missing from layer '\w+' .*copy or convert the layer again",)
LOSSES = [
    Case(
        f"lost shard for {command.split()[0]}",
        two(before, SHARD.unlink),
        command,
        ("s.zarr/elevation/" + LOST[0],),
    )
    for before, command in (
        (nothing, "export s.zarr new.tif"),
        (nothing, "compute-sssp s.zarr --source-rowcol 5,5"),
        (nothing, "label-components s.zarr --where 'elevation > 100'"),
        (solved, "accumulate s.zarr"),
        (solved, "verify s.zarr"),
    )
] + [
    Case(
        "lost frictions",
        frictions,
        "compute-sssp s.zarr --source-rowcol 5,5 --cost friction --friction f",
        ("s.zarr/f/" + LOST[0],),
    ),
    Case(
        "a formula of frictions without them",
        frictions,
        "compute-sssp s.zarr --source-rowcol 5,5 --cost 'friction * length'",
        ("formula uses friction", "name its layer with --friction"),
    ),
    Case(
        "lost frictions of a formula",
        frictions,
        "compute-sssp s.zarr --source-rowcol 5,5 --cost 'friction * length' --friction f",
        ("s.zarr/f/" + LOST[0],),
    ),
    Case(
        "lost barriers",
        frictions,
        "compute-sssp s.zarr --source-rowcol 5,5 --barriers f",
        ("s.zarr/f/" + LOST[0],),
    ),
]

OUTSIDE = "/s.zarr; choose a path outside"
INSIDE = [
    Case(
        "export into the store",
        nothing,
        "export s.zarr s.zarr/elevation/my.tif",
        (f"s.zarr/elevation/my.tif: is inside the store .*{OUTSIDE}",),
    ),
    Case(
        "export into the store by a link",
        lambda: os.symlink("s.zarr/elevation", "link"),
        "export s.zarr link/my.tif",
        (f"link/my.tif: is inside the store .*{OUTSIDE}",),
    ),
    Case(
        "table into the store",
        nothing,
        "label-components s.zarr --where 'elevation > 9' --table s.zarr/t.csv",
        (f"s.zarr/t.csv: is inside the store .*{OUTSIDE}",),
    ),
    Case(
        "report into the store",
        nothing,
        "compute-mst s.zarr --json s.zarr/r.json",
        (f"s.zarr/r.json: is inside the store .*{OUTSIDE}",),
    ),
    Case(
        "store in a store",
        nothing,
        f"{CONVERT} dem.tif s.zarr/inner",
        (f"s.zarr/inner: is inside the store .*{OUTSIDE}",),
    ),
    Case(
        "store in a layer",
        nothing,
        f"{CONVERT} dem.tif s.zarr/elevation/inner.zarr --overwrite",
        (f"s.zarr/elevation/inner.zarr: is inside the store .*{OUTSIDE}",),
    ),
]

MINUS = '; an expression that begins with - comes last, after --, or is written "0 - ..."'
LEFT = [
    Case(
        "two bands of a raster in place of a store",
        tif("two bands.tif", numbers("int16", (2, 9, 9))),
        "fill 'two bands.tif' -o x.tif",
        (
            "two bands.tif: has 2 bands; choose one with --band of convert-dataset",
            "convert-dataset 'two bands.tif' dem.zarr --band 1",
        ),
    ),
    *(
        Case(
            f"GeoParquet as {command}",
            text("p.parquet", "PAR1"),
            f"{command} p.parquet",
            ("p.parquet: GeoParquet cannot be read here; convert it to .gpkg first",),
        )
        for command in (
            "rasterize s.zarr --field num --features",
            "compute-sssp s.zarr --cost-field num --sources",
            "compute-sssp s.zarr --source-rowcol 1,2 --barriers",
            "watershed s.zarr --pour-points",
        )
    ),
    Case("minus", nothing, "calc s.zarr -elevation", (f"No such option:? '?-e'?{MINUS}",)),
    Case("minus and letter", nothing, "calc s.zarr -other", (f"argument 'EXPRESSION'{MINUS}",)),
    Case("misspelt", nothing, "calc s.zarr a --inta b", (r"--inta(?!.* begins with -).*--into",)),
    Case(
        "part of a row",
        nothing,
        "compute-sssp s.zarr --source-rowcol 1.5,2",
        ("'1.5,2': rows and columns are whole numbers; coordinates go to --source",),
    ),
    Case(
        "links and pour points",
        nothing,
        "watershed s.zarr --pour-point-rowcol 3,3 --links w1",
        ("--links replaces --pour-point-rowcol: leave out one of them",),
    ),
    Case(
        "two kinds of streams",
        nothing,
        "hand s.zarr --threshold 5 --to-outlets",
        ("--threshold and --to-outlets exclude each other: leave out all but one",),
    ),
    Case(
        "reserved name",
        nothing,
        "layers s.zarr rename elevation y",
        ("s.zarr: layer name 'y': .*none of x, y, spatial_ref",),
    ),
]

CASES = INPUTS + VALUES + MOSAICS + SETTINGS + STORES + METADATA + EXPORTS + TREES + LEFT
CASES += LOSSES + INSIDE


def check(code: int, out: str, err: str, case: Case) -> None:
    """One line on standard error that says what it should, and the exit code."""
    assert code == case.code, err
    assert out == ""
    assert re.fullmatch(r"Error: [^\n]{10,1200}\n", err), err
    assert "Traceback" not in err
    assert "unexpected" not in err
    for pattern in case.says:
        assert re.search(pattern, err), (pattern, err)


@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])
def test_wrong(case, world, capfd):
    case.build()
    before = snapshot(world)
    code, out, err = call(capfd, case.command)
    check(code, out, err, case)
    after = snapshot(world)
    new = {name: value for name, value in after.items() if name.split("/")[0] not in case.leaves}
    assert new == before
    assert all((world / name).exists() for name in case.leaves)


def test_a_tree_goes_on_when_a_lost_shard_is_back(world, capfd):
    solved()
    before, shard = snapshot(world), SHARD.read_bytes()
    SHARD.unlink()
    code, out, err = call(capfd, f"{MST} --overwrite --verify")
    assert (code, out) == (2, "")
    assert re.search(f"s.zarr/elevation/{LOST[0]}", err)
    SHARD.write_bytes(shard)
    # Finished blocks may be there for --resume; all else is as before.
    after = snapshot(world)
    assert {name: after[name] for name in after if "s.zarr/.incomplete" not in name} == before
    assert call(capfd, f"{MST} --resume --overwrite --verify -q") == (0, "", "")
    assert {n: d for n, d in snapshot(world).items() if n.startswith("s.zarr/mst/c")} == {
        n: d for n, d in before.items() if n.startswith("s.zarr/mst/c")
    }


FULL = "disk/.*: no space left on the disk"
ON_A_FULL_DISK = [
    Case("new store", nothing, f"{CONVERT} dem.tif disk/new.zarr", (FULL, "free some"), 1),
    Case("export", nothing, "export s.zarr disk/new.tif", (FULL, "needed, 0 B free"), 1),
    Case(
        "export over", nothing, "export s.zarr disk/old.tif --overwrite", (FULL, "nothing was"), 1
    ),
    Case(
        "raster",
        nothing,
        "slope dem.tif -o disk/new.tif",
        ("disk: the temporary store of dem.tif .*: no space left .* --scratch, or .* --store",),
        1,
    ),
    Case("export store", nothing, "export s.zarr disk/n.zarr", (FULL, "free some and run"), 1),
    Case(
        "report",
        nothing,
        "plan 9x9 --json disk/r.json",
        ("--json disk/r.json: cannot be written: No space",),
        1,
    ),
]


@pytest.mark.parametrize("case", ON_A_FULL_DISK, ids=lambda case: case.name.replace(" ", "-"))
def test_full_disk(case, world, capfd):
    with mounted(world / "disk", "size=8k"):
        (world / "disk/old.tif").write_bytes(b"old" * 2730)
        before = snapshot(world)
        check(*call(capfd, case.command), case)
        assert snapshot(world) == before


READ_ONLY = [
    Case(
        "new store",
        nothing,
        f"{CONVERT} dem.tif disk/new.zarr",
        ("disk/new.zarr: cannot be written: Read-only",),
        1,
    ),
    Case("new layer", nothing, f"{CONVERT} dem.tif disk/s.zarr --layer b", ("Read-only",), 1),
    Case("new tree", nothing, "compute-mst disk/s.zarr", ("disk/s.zarr: .*written: Read-only",), 1),
    Case("export", nothing, "export s.zarr disk/new.tif", ("disk/new.tif: its folder is not",), 1),
    Case(
        "export store",
        nothing,
        "export s.zarr disk/new.zarr",
        ("disk/new.zarr: its folder is not writable",),
        1,
    ),
    Case(
        "lines of a raster",
        nothing,
        "contours dem.tif disk/a.gpkg --interval 20",
        ("Error: disk/a.gpkg: its folder is not writable",),
        1,
    ),
    Case("report", nothing, "info s.zarr --json disk/r.json", ("'disk/r.json' cannot be written",)),
    Case("demo", nothing, "demo disk/demo", ("disk/demo: cannot be created: Read-only",), 1),
]


@pytest.mark.parametrize("case", READ_ONLY, ids=lambda case: case.name.replace(" ", "-"))
def test_read_only_disk(case, world, capfd):
    with mounted(world / "disk", "size=9m"):
        shutil.copytree("s.zarr", "disk/s.zarr")
        subprocess.run(["mount", "-o", "remount,ro", str(world / "disk")], check=True)
        assert quietly("info disk/s.zarr") == 0
        capfd.readouterr()
        before = snapshot(world)
        check(*call(capfd, case.command), case)
        assert snapshot(world) == before


NOBODY = 65534
AS_NOBODY = """
import os, sys, tempfile
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group

def run(*words):
    return options._guarded(lambda: group.main(list(words), standalone_mode=False))

# First everything once as root: the other user may be unable to read Python's own files.
with tempfile.TemporaryDirectory() as warm:
    assert not run("convert-dataset", "-q", "dem.tif", f"{warm}/s.zarr")
    assert not run("export", "-q", f"{warm}/s.zarr", f"{warm}/o.tif")
    assert not run("compute-mst", "-q", f"{warm}/s.zarr")
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
sys.exit(run(*sys.argv[2:]))
"""
READING = """
import os, sys
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group

def read(folder):
    for line in (
        "info s.zarr", "verify s.zarr --data", "layers s.zarr", f"export s.zarr {folder}/e.tif",
        f"label-components dem.tif --where elevation>1 -o {folder}/l.tif",
        f"slope dem.tif -o {folder}/s.tif --progress json",
    ):
        assert not options._guarded(lambda: group.main(line.split(), standalone_mode=False)), line

read("warm")  # the other user may be unable to read Python's own files
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
read("free")
"""
FORBIDDEN = [
    Case(
        "unreadable input",
        nothing,
        "convert-dataset secret.tif free/new.zarr",
        ("secret.tif: permission denied",),
    ),
    Case(
        "unwritable folder", nothing, "convert-dataset dem.tif new.zarr", ("Permission denied",), 1
    ),
    Case(
        "unwritable store",
        nothing,
        "convert-dataset dem.tif s.zarr --layer b",
        ("s.zarr.*: cannot be written: Permission denied",),
        1,
    ),
    Case(
        "unwritable store for a tree",
        nothing,
        "compute-mst s.zarr",
        ("s.zarr.*: cannot be written: Permission denied",),
        1,
    ),
    Case(
        "unreadable shard",
        nothing,
        "export s.zarr free/new.tif",
        ("c/1/0: cannot be read: Permission denied",),
    ),
    Case(
        "unreadable layer",
        nothing,
        "export s.zarr free/new.tif --layer hidden",
        ("s.zarr/hidden: cannot be read: Permission denied",),
    ),
    Case(
        "unwritable export",
        nothing,
        "export s.zarr new.tif",
        ("new.tif: its folder is not writable",),
        1,
    ),
]


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root becomes another user"
)
@pytest.mark.parametrize("case", FORBIDDEN, ids=lambda case: case.name.replace(" ", "-"))
def test_permissions(case, template):
    """As another user, in a process of its own: root may do everything."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        world = Path(name)
        world.chmod(0o755)
        shutil.copytree(template, world, dirs_exist_ok=True)
        world.chmod(0o755)
        shutil.copy("/dev/null", world / "secret.tif")
        (world / "secret.tif").chmod(0)
        (world / SHARD).chmod(0)
        shutil.copytree(world / "s.zarr/elevation", world / "s.zarr/hidden")
        (world / "s.zarr/hidden").chmod(0)
        (world / "free").mkdir(mode=0o777)
        (world / "free").chmod(0o777)
        before = snapshot(world)
        words = [sys.executable, "-c", AS_NOBODY, str(NOBODY), *case.command.split()]
        done = subprocess.run(words, check=False, cwd=world, capture_output=True, text=True)
        check(done.returncode, done.stdout, done.stderr, case)
        assert snapshot(world) == before


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root becomes another user"
)
def test_what_may_only_be_read(template):
    """A store and a raster in folders of somebody else, by a user without a home."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        world = Path(name)
        shutil.copytree(template, world, dirs_exist_ok=True)
        world.chmod(0o755)
        for folder in "warm", "free":
            (world / folder).mkdir()
            (world / folder).chmod(0o777)
        before = snapshot(world / "s.zarr")
        done = subprocess.run(
            [sys.executable, "-c", READING, str(NOBODY)],
            check=False,
            cwd=world,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert snapshot(world / "s.zarr") == before
        for path in (world / "warm").iterdir():
            assert (world / "free" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("command", "layer"), [(SECOND, "b"), (MST, "mst")], ids=["b", "mst"])
def test_another_run_is_writing(world, capfd, command, layer):
    with open_run(world / "s.zarr", layer):
        before = snapshot(world)
        for more in ("", " --resume", " --overwrite"):
            says = (f"s.zarr: another run is writing '{layer}'; wait until it ends",)
            case = Case("", nothing, command + more, says)
            check(*call(capfd, case.command), case)
            assert snapshot(world) == before


@contextmanager
def open_run(store: Path, layer: str):
    """A run in another process that has written a block and is not finished."""
    program = (
        "import sys, numpy as np; from terrain_gpu.store import TileStore, create_layer\n"
        f"grid = TileStore.open({str(store)!r}).grid\n"
        f"w = create_layer({str(store)!r}, {layer!r}, grid, 'f4', block_size=64)\n"
        "w.write_block(0, 0, np.zeros((64, 64), 'f4')); print('on', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        assert process.stdout.readline() == "on\n"
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("declared", ["nan", "9e9"])
def test_declared_nodata_that_no_cell_can_hold(world, capfd, declared):
    """GDAL carries it along in integer rasters; no cell is nodata, and none is lost."""
    write_tif("bad.tif", numbers(), nodata=-99)
    data = Path("bad.tif").read_bytes()
    assert data.count(b"-99\0") == 1
    Path("bad.tif").write_bytes(data.replace(b"-99\0", declared.encode() + b"\0"))
    assert call(capfd, BAD)[0] == 0
    assert quietly("export new.zarr new.tif") == 0
    with rasterio.open("new.tif") as out, rasterio.open("bad.tif") as source:
        assert out.nodata is None
        assert np.array_equal(out.read(1), source.read(1))


def test_each_damaged_byte_of_a_header(world, capfd):
    """Whatever a TIFF header says: success, or one line and exit code 2; nothing left behind."""
    write_tif("good.tif", numbers(shape=(70, 65)), compress="deflate", nodata=-1)
    good = Path("good.tif").read_bytes()
    random = np.random.default_rng(3)
    before = None
    codes = set()
    for _ in range(60):
        data = bytearray(good)
        for place in random.integers(0, 420, 2):
            data[place] = random.choice([0, 1, 127, 255])
        Path("bad.tif").write_bytes(data)
        before = set(os.listdir())
        code, out, err = call(capfd, BAD)
        codes.add(code)
        if code:
            check(code, out, err, Case("", nothing, "", ()))
        else:
            shutil.rmtree("new.zarr")
        assert set(os.listdir()) == before
    assert codes == {0, 2}


def test_each_damaged_value_of_metadata(world, capfd):
    """Whatever a zarr.json says: success, or one line and exit code 2; nothing left behind."""
    values = [None, -1, 0, 2**63, 1e308, float("inf"), "word", [], {}, [1, 2], ["a"], True]
    codes = set()
    for file in (ROOT, LAYER):
        path = Path("s.zarr") / file
        good = path.read_text()
        for k, keys in enumerate(key_paths(json.loads(good))):
            meta(file, *keys, to=values[k % len(values)])()
            before = snapshot(world)
            for command in ("info s.zarr --json -", "plan s.zarr", "export s.zarr new.tif"):
                code, out, err = call(capfd, command)
                codes.add(code)
                if code:
                    check(code, out, err, Case("", nothing, "", ()))
                Path("new.tif").unlink(missing_ok=True)
            assert snapshot(world) == before
            path.write_text(good)
    assert codes == {0, 2}


def key_paths(node, prefix=()):
    """Every path to a value of a JSON document except through long texts."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in pairs:
        yield (*prefix, key)
        if isinstance(value, dict | list):
            yield from key_paths(value, (*prefix, key))


def test_the_list_is_long():
    assert len(CASES) >= 100
    assert len({case.name for case in CASES}) == len(CASES)


def test_options_after_the_end_of_options(world, capfd):
    code, _, err = call(capfd, "calc s.zarr -- -elevation --into b")
    assert (code, "extra arguments (--into b); options come before --" in err) == (2, True), err
    assert quietly("calc s.zarr --into b -- -elevation") == 0
