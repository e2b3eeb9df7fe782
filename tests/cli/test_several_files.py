"""Commands with several output files: when one cannot be written, no other is replaced."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine import run as engine
from terrain_gpu.errors import VerificationError
from terrain_gpu.store import files

SHAPE = 40, 50
PLACES = "--source-rowcol 3,3 --source-rowcol 30,40 --source-rowcol 20,5"
START = "--source-rowcol 3,3"
ONE = f"{START} --target-rowcol 30,40"

CASES = {
    "rasters": f"compute-sssp D {START} -o ok/d.tif --backlink full/b.tif --allocation ok/a.tif",
    "first raster": f"compute-sssp D {ONE} -o full/d.tif --backlink ok/b.tif --path ok/p.gpkg",
    "path": f"compute-sssp D {ONE} -o ok/d.tif --path full/p.geojson",
    "store": f"compute-sssp D {START} -o ok/d.zarr --backlink full/b.tif",
    "matrix": f"cost-matrix D {PLACES} --cost surface -o ok/a.csv --path full/b.geojson",
    "tree": f"least-cost-network D {PLACES} --cost surface -o ok/n.gpkg --table full/n.csv",
    "tree lines": f"least-cost-network D {PLACES} --cost surface -o full/n.fgb --table ok/n.csv",
    "pairs": f"least-cost-network D {PLACES} --pairs all -o ok/n.gpkg --table full/n.csv",
    "basins": "basins D --table ok/w.csv -o full/w.tif",
    "table": "basins D --table full/w.csv -o ok/w.tif",
    "streams": "streams D --threshold 20 --lines ok/l.gpkg -o full/s.tif",
    "stream lines": "streams D --threshold 20 --lines full/l.geojson -o ok/s.tif",
    "breach": "breach D --max-depth 50 --lines full/l.gpkg -o ok/s.tif",
}
WITH_ITS_LAYER = "ok/w.csv"
"""A table that is complete before its layer is, and so before the raster is written."""

NO_RESULTS = {"elevation", "spatial_ref", "x", "y"}
"""Arrays of the store that no command has computed."""


def call(capfd, command: str) -> tuple[int, str]:
    """Run a command line in this process: exit code and standard error."""
    capfd.readouterr()
    words = shlex.split(command)
    code = options._guarded(lambda: group.main(words, standalone_mode=False))
    return code, capfd.readouterr().err


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several") / "w"
    for name in ("ok", "full"):
        (folder / name).mkdir(parents=True)
    rough = np.random.default_rng(5).normal(size=SHAPE).cumsum(0).astype(np.float32) + 100
    with rasterio.open(
        folder / "dem.tif", "w", driver="GTiff", height=SHAPE[0], width=SHAPE[1], count=1,
        dtype="float32", crs="EPSG:32633", nodata=-9999,
        transform=rasterio.Affine(30, 0, 500_000, 0, -30, 5_000_000),
    ) as data:  # fmt: skip
        data.write(rough, 1)
    words = ["convert-dataset", "-q", str(folder / "dem.tif"), str(folder / "s.zarr")]
    assert options._guarded(lambda: group.main(words, standalone_mode=False)) == 0
    return folder


@pytest.fixture
def world(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("TERRAIN_GPU_SCRATCH", "")  # which --scratch sets
    return tmp_path / "w"


@contextmanager
def a_full_disk(folder: str = "/full/"):
    """Let no file be made or synced in folders of that name, as on a disk that fills up."""
    usual = os.fsync

    def fsync(number: int) -> None:
        if folder in os.readlink(f"/proc/self/fd/{number}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        usual(number)

    opened = files._opened

    def refused(path: Path, buffering: int) -> Any:
        if folder in str(path.absolute()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, buffering)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(files, "_opened", refused)
        yield


def files_of(command: str) -> list[Path]:
    """The output files that a command names."""
    return [Path(word) for word in command.split() if word.startswith(("ok/", "full/"))]


def old(named: list[Path]) -> None:
    for file in named:
        if file.suffix != ".zarr":
            file.write_text("old")


@pytest.mark.parametrize("case", CASES)
def test_all_files_are_replaced_or_none(world, capfd, case):
    command = CASES[case].replace(" D ", " s.zarr ")
    named = files_of(command)
    old(named)
    with a_full_disk():
        code, err = call(capfd, f"{command} -q --overwrite")
    (failed,) = (file for file in named if file.parts[0] == "full")
    assert code == 1
    assert re.fullmatch(rf"Error: \S+/{failed}: no space left on the disk; [^\n]+\n", err), err
    for file in named:
        if str(file) == WITH_ITS_LAYER:
            assert f"/{file}" in err
        else:
            assert file.read_text() == "old" if file.suffix != ".zarr" else not file.exists()
            assert f"/{file}" not in err.removeprefix(f"Error: {world}/{failed}")
    assert {str(file) for file in named} >= {
        str(found) for name in ("ok", "full") for found in Path(name).iterdir()
        if not found.name.endswith(".unfinished")
    }  # fmt: skip
    layers = {path.parent.name for path in Path("s.zarr").glob("*/zarr.json")} - NO_RESULTS
    if layers:
        assert err.endswith(" complete; --resume --overwrite writes the rest\n"), err
        assert {name for name in layers if f"s.zarr/{name}" in err} == layers
    else:
        assert err.endswith("; nothing was replaced\n"), err
    assert call(capfd, f"{command} -q --resume --overwrite") == (0, "")
    again = {file: file.read_bytes() for file in named if file.suffix != ".zarr"}
    assert call(capfd, f"{command} -q --overwrite") == (0, "")
    assert again == {file: file.read_bytes() for file in again}
    assert b"old" not in again.values()


@pytest.mark.parametrize("case", ["rasters", "streams", "basins"])
def test_layers_of_a_temporary_store_do_not_count(world, capfd, case):
    command = CASES[case].replace(" D ", " dem.tif ")
    old(files_of(command))
    with a_full_disk():
        code, err = call(capfd, f"{command} -q --overwrite --scratch .")
    assert (code, err.count("nothing was replaced")) == (1, 1), err
    assert all(file.read_text() == "old" for file in files_of(command))


def test_stores_come_last(world, capfd):
    """They are in place at once, the files when all are complete."""
    command = f"compute-sssp s.zarr {START} -o full/d.zarr --backlink ok/b.tif -q"
    old([Path("ok/b.tif")])
    with a_full_disk():
        code, err = call(capfd, f"{command} --overwrite")
    assert code == 1
    assert re.fullmatch(r"Error: \S+/full/d\.zarr\S*: no space left on the disk; free .*\n", err)
    assert Path("ok/b.tif").read_text() == "old"
    assert call(capfd, f"{command} --resume --overwrite") == (0, "")


def test_the_files_of_a_query(world, capfd):
    assert call(capfd, "build-index s.zarr -q") == (0, "")
    command = (
        "query-index s.zarr --from-rowcol 3,3 --to-rowcol 30,40 -o {} --path {} -q --overwrite"
    )
    for names in (("ok/a.csv", "full/p.gpkg"), ("full/a.csv", "ok/p.gpkg")):
        pair = [Path(name) for name in names]
        old(pair)
        with a_full_disk():
            code, err = call(capfd, command.format(*pair))
        assert code == 1
        assert re.fullmatch(r"Error: \S+/full/\S+: no space left .*; nothing was replaced\n", err)
        assert [file.read_text() for file in pair] == ["old", "old"]
        assert call(capfd, command.format(*pair)) == (0, "")
        assert all(file.read_bytes() != b"old" for file in pair)


def test_a_failed_proof_leaves_the_table(world, capfd, monkeypatch):
    old([Path("w.csv")])

    def wrong(*_):
        raise VerificationError("basins: wrong", "cells")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_verify", wrong)
        command = "basins s.zarr --table w.csv -q --overwrite"
        assert call(capfd, f"{command} --verify") == (1, "Error: basins: wrong\n")
    assert Path("w.csv").read_text() == "old"
    assert call(capfd, command) == (0, "")
    assert Path("w.csv").read_text() != "old"


# -- the temporary store of a raster ---------------------------------------------------------------

ELSEWHERE = "name another folder with --scratch, or a store with --store\n"


TO_CONVERT = "slope dem.tif -o {}/o.tif", "contours dem.tif {}/o.gpkg --interval 5"


@pytest.mark.parametrize("command", TO_CONVERT)
def test_a_temporary_store_without_room(world, capfd, command):
    for place, output in (("full", "full"), ("full", "ok --scratch full")):
        where, _, scratch = output.partition(" ")
        with a_full_disk():
            code, err = call(capfd, f"{command.format(where)} {scratch} -q")
        assert code == 1
        assert re.fullmatch(
            rf"Error: (\S+/)?{place}: the temporary store of dem.tif cannot be written: no space "
            rf"left on the disk; free some, or {ELSEWHERE}",
            err,
        ), err
        assert not os.listdir("full")
        assert not os.listdir("ok")


def test_a_temporary_store_in_no_folder(world, capfd):
    code, err = call(capfd, "slope dem.tif -o ok/o.tif --scratch dem.tif/none -q")
    assert code in (1, 2)
    assert ".terrain-gpu-" not in err


def test_commands_without_resume_do_not_advise_it(world, capfd):
    with a_full_disk():
        code, err = call(capfd, "export s.zarr full/a.zarr -q")
    assert code == 1
    assert re.fullmatch(r"Error: \S+/full/a\.zarr\S*: no space left on the disk; free some and run "
                        r"the command again\n", err), err  # fmt: skip
    assert call(capfd, "export s.zarr full/a.zarr -q") == (0, "")
