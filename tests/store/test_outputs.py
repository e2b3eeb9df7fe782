"""Output files: whole or absent, whatever kills the writer; any name; the same bytes."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import rasterio

import terrain_gpu
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, OutputError
from terrain_gpu.grid import GridSpec
from terrain_gpu.io.export import export_layer
from terrain_gpu.io.places import from_raster, from_vector
from terrain_gpu.store import Layer, create_layer, files
from terrain_gpu.store.file_writer import FileWriter
from terrain_gpu.store.outputs import Output, add_complete, together, whole_file

UTM = rasterio.CRS.from_epsg(32633).to_wkt(version="WKT2_2019")
GRID = GridSpec(60, 90, (30.0, 0.0, 500_000.0, 0.0, -30.0, 5_000_000.0), UTM, "EPSG:32633")
OURS = r"\.terrain_gpu-[0-9a-f]{16}-[0-9a-f]{8}"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store with a tree and distances."""
    store = tmp_path_factory.mktemp("outputs") / "s.zarr"
    z = np.random.default_rng(3).integers(0, 300, GRID.shape).astype(np.int16)
    with create_layer(store, "elevation", GRID, z.dtype, block_size=64) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, z[r0:r1, c0:c1])
        writer.commit()
    terrain_gpu.minimum_spanning_tree(store)
    terrain_gpu.shortest_paths(store, [(5, 5)], backlink=True)
    return store


@pytest.fixture
def store(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path / "s.zarr")
    monkeypatch.chdir(tmp_path)
    return Path("s.zarr")


def call(*words: str) -> int:
    return options._guarded(lambda: group.main(list(words), standalone_mode=False))


OUTPUTS = {
    "raster": (".tif", "export s.zarr -- {}"),
    "cog": (".tif", "export s.zarr --cog -- {}"),
    "backlink": (".tif", "compute-sssp s.zarr --source-rowcol 5,5 --overwrite --backlink={}"),
    "tree": (".tif", "compute-mst s.zarr --overwrite --output={}"),
    "sums": (".tif", "accumulate s.zarr --overwrite --output={}"),
    "path.geojson": (".geojson", "compute-sssp s.zarr --source-rowcol 5,5 --target-rowcol 50,80 "
                                 "--overwrite --path={}"),
    "path.gpkg": (".gpkg", "compute-sssp s.zarr --source-rowcol 5,5 --target-rowcol 50,80 "
                           "--overwrite --path={}"),
    "network.geojson": (".json", "network s.zarr --min-length 300 -- {}"),
    "network.gpkg": (".gpkg", "network s.zarr --min-length 300 -- {}"),
    "table.csv": (".csv", "label-components s.zarr --overwrite --where elevation>100 --table={}"),
    "table.parquet": (".parquet", "label-components s.zarr --overwrite --where elevation>100 "
                                  "--table={}"),
    "table.geojson": (".geojson", "label-components s.zarr --overwrite --where elevation>100 "
                                  "--table={}"),
    "report": (".json", "info s.zarr --json={}"),
}  # fmt: skip


def words_of(kind: str, file: str) -> list[str]:
    command, *words = OUTPUTS[kind][1].split()
    return [command, "-q", *(word.replace("{}", file) for word in words)]


def sound(path: Path) -> bool:
    """Whether a file can be read, under a plain name."""
    plain = Path("plain" + path.suffix)
    shutil.copy(path, plain)
    try:
        if path.suffix == ".tif":
            with rasterio.open(plain) as data:
                return data.read(1).shape == GRID.shape
        if path.suffix == ".gpkg":
            return pyogrio.read_info(plain)["features"] > 0
        if path.suffix in (".geojson", ".json"):
            return bool(json.loads(plain.read_bytes()))
        return plain.stat().st_size > 100
    finally:
        plain.unlink()


# -- kills ---------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from terrain_gpu.store import outputs
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
outputs.Output.publish = lambda self, part: os.kill(os.getpid(), signal.SIGKILL)
options._guarded(lambda: group.main(sys.argv[1:], standalone_mode=False))
"""


@pytest.mark.parametrize(
    "kind", ["raster", "cog", "path.gpkg", "network.geojson", "table.parquet", "report"]
)
def test_what_a_killed_writer_leaves_goes_with_the_next(store, kind):
    name = "a file" + OUTPUTS[kind][0]
    before = {*os.listdir()}
    run = [sys.executable, "-c", KILLED, *words_of(kind, name)]
    assert subprocess.run(run, check=False).returncode == -signal.SIGKILL
    (left,) = {*os.listdir()} - before
    assert re.fullmatch(OURS, left)
    assert os.listdir(left)
    assert call(*words_of(kind, name.replace("a file", "another"))) == 0
    assert left in os.listdir()  # it belongs to another file
    assert call(*words_of(kind, name)) == 0
    assert {*os.listdir()} - before == {name, name.replace("a file", "another")}
    assert sound(Path(name))


def test_what_a_living_writer_has_stays(tmp_path):
    target = tmp_path / "a.csv"
    with Output(target) as first:
        (first.folder / "x").write_text("one")
        with Output(target) as second:
            assert len(os.listdir(tmp_path)) == 2
            (second.folder / "x").write_text("two")
            second.publish(second.folder / "x")
        assert (first.folder / "x").read_text() == "one"
        code = (
            "import sys; from pathlib import Path\n"
            "from terrain_gpu.store.outputs import whole_file\n"
            "with whole_file(Path(sys.argv[1])) as part: part.write_text('three')"
        )
        subprocess.run([sys.executable, "-c", code, str(target)], check=True)
        assert target.read_text() == "three"
        first.publish(first.folder / "x")
    assert target.read_text() == "one"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_what_is_not_ours_stays(tmp_path):
    target, precious = tmp_path / "a.csv", tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("mine")
    with Output(target) as output:
        stem = output.shared_folder.name.rpartition("-")[0]
    (tmp_path / f"{stem}-0123456z").mkdir()
    (tmp_path / f"{stem}-01234567-1").mkdir()
    (tmp_path / f"{stem}-aaaaaaaa").write_text("a file")
    (tmp_path / f"{stem}-bbbbbbbb").symlink_to(precious, target_is_directory=True)
    (tmp_path / ".a.csv.1234").write_text("of another program")
    before = {*os.listdir(tmp_path)}
    (tmp_path / f"{stem}-cccccccc").mkdir()
    with whole_file(target) as part:
        part.write_text("new")
    assert {*os.listdir(tmp_path)} == before | {"a.csv"}
    assert (precious / "data").read_text() == "mine"


def test_data_then_name_then_folder_reach_the_disk(tmp_path, monkeypatch):
    """Without fsync of its folder a rename may be lost, without that of the file its bytes."""
    done = []
    usual = {name: getattr(os, name) for name in ("fsync", "replace")}

    def fsync(number):
        done.append(("fsync", os.fstat(number).st_ino))
        usual["fsync"](number)

    def replace(a, b):
        done.append(("replace", os.stat(a).st_ino))
        usual["replace"](a, b)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    with whole_file(tmp_path / "a.csv") as part:
        part.write_text("data")
        file = part.stat().st_ino
    assert done == [("fsync", file), ("replace", file), ("fsync", tmp_path.stat().st_ino)]


def test_an_error_leaves_the_old_file(tmp_path):
    target = tmp_path / "a.csv"
    target.write_text("old")

    def write(error):
        with whole_file(target) as part:
            if error:
                part.write_text("half")
                raise error

    with pytest.raises(OutputError, match=r"a\.csv: cannot be written: No such file.*nothing was"):
        write(None)  # no file at all
    with pytest.raises(OutputError, match=r"a\.csv: no space left on the disk; nothing was repl"):
        write(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(ZeroDivisionError):
        write(ZeroDivisionError())
    assert (target.read_text(), os.listdir(tmp_path)) == ("old", ["a.csv"])
    with pytest.raises(OutputError, match="cannot be written: No such file or directory"):
        Output(tmp_path / "none/a.csv")


def write(target: Path, text: str = "new") -> None:
    with whole_file(target) as part:
        part.write_text(text)


def test_files_are_moved_together(tmp_path):
    one, other = tmp_path / "a.csv", tmp_path / "b.csv"
    one.write_text("old")

    def fail():
        with together():
            write(one)
            with together():
                write(other)
            assert (one.read_text(), other.exists()) == ("old", False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (one.read_text(), os.listdir(tmp_path)) == ("old", ["a.csv"])
    with together():
        write(one)
        with together(apart=True):
            write(other)
        assert (one.read_text(), other.read_text()) == ("old", "new")
        with whole_file(tmp_path / "c.csv", alone=True) as part:
            part.write_text("at once")
        assert (tmp_path / "c.csv").read_text() == "at once"
    assert one.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "b.csv", "c.csv"]


def test_an_error_says_which_files_are_complete(tmp_path, monkeypatch):
    named = [tmp_path / f"{name}.csv" for name in "abc"]
    for file in named:
        file.write_text("old")
    usual = os.replace

    def replace(part, target):
        if target == named[2]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        usual(part, target)

    def write_all(again=""):
        with together(again):
            for file in named:
                write(file)

    monkeypatch.setattr(os, "replace", replace)
    begin = re.escape(f"{named[2]}: cannot be written: Input/output error; {named[0]}, {named[1]}")
    with pytest.raises(OutputError, match=f"^{begin} are complete; other files are unchanged$"):
        write_all()
    assert [file.read_text() for file in named] == ["new", "new", "old"]
    with pytest.raises(OutputError, match=f"^{begin} are complete; start again$"):
        write_all("start again")
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "b.csv", "c.csv"]

    def write_last():
        with together("start again", passing=tmp_path):
            add_complete("s.zarr/mst")
            add_complete(tmp_path / "gone")
            write(named[2])

    with pytest.raises(OutputError, match=r"error; s\.zarr/mst is complete; start again$"):
        write_last()


def test_errors_do_not_name_the_temporary_folder(tmp_path):
    target = tmp_path / "a.gpkg"
    with (
        pytest.raises(OutputError, match=r"/a\.gpkg: no space left on the disk; nothing was repl"),
        FileWriter(target, (1, 1)) as writer,
        writer.errors(),
        files.output_errors(writer.spill / "lists"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not os.listdir(tmp_path)


def test_errors_of_another_file_keep_its_name(tmp_path):
    with FileWriter(tmp_path / "a.gpkg", (1, 1)) as writer:
        assert writer.spill.is_dir()
        with pytest.raises(OutputError, match=r"^b\.csv: it is full$"), writer.errors():
            raise OutputError("b.csv: it is full")


@pytest.mark.parametrize(
    ("kind", "endings"),
    [
        ("raster", [".aux.xml", ".ovr", ".msk"]),
        ("cog", [".aux.xml", ".ovr", ".msk"]),
        ("path.gpkg", ["-journal", "-wal", "-shm"]),
        ("network.gpkg", ["-journal", "-wal", "-shm"]),
    ],
)
def test_what_belongs_to_an_older_file_is_not_read_with_the_new(store, capfd, kind, endings):
    """GDAL goes by the place in an .aux.xml, SQLite by a journal, before the file itself."""
    path = Path("a" + OUTPUTS[kind][0])
    for end in endings:
        Path(f"{path}{end}").write_text("of another file")
        assert call(*words_of(kind, str(path))) == 2
        assert f"{path}{end}: belongs to an earlier {path}" in capfd.readouterr().err
        assert not path.exists()
        Path(f"{path}{end}").unlink()
    path.write_text("old")
    for end in endings:
        Path(f"{path}{end}").write_text("of the old file")
    (path.with_name("a.tfw")).write_text("mine")
    command, *words = words_of(kind, str(path))
    if "--overwrite" not in words:
        words.insert(0, "--overwrite")
    assert call(command, *words) == 0
    assert {*os.listdir()} == {"s.zarr", str(path), "a.tfw"}
    assert sound(path)


# -- names ---------------------------------------------------------------------------------

NAMES = [
    "n!b", "!", "a b", " a", "it's", 'q"q', "100%41%", "w?x=1", "h#1", "c,d", "s;t", "-dash",
    "--overwrite", "a&b", "*[0]", "$HOME`id`", "back\\slash", "new\nline", "tab\t", "\x1b[31m",
    "t\u00e4st-\u6771\u4eac-\U0001f3d4", "C:x", "zip:x", "a.zip!b", "<VRTDataset",
    os.fsdecode(b"caf\xe9"), ".hidden", "x.tif.gpkg",
]  # fmt: skip
REFUSED = {"<VRTDataset", os.fsdecode(b"caf\xe9"), "back\\slash"}
"""What GDAL does not read; the last, VRTs only."""


@pytest.mark.parametrize("kind", OUTPUTS)
def test_any_name_of_an_output(store, no_fsync, capfd, kind):
    """Of a file and of its folder; a name near the limit of 255 bytes has room for no addition."""
    suffix = OUTPUTS[kind][0]
    names = [*NAMES, "x" * (255 - len(suffix)), "\u00e9" * ((255 - len(suffix)) // 2)]
    for number, name in enumerate(names):
        folder = Path(f"f{number}")
        if len(os.fsencode(name)) < 200:
            folder /= name
        folder.mkdir(parents=True)
        path = folder / (name + suffix)
        code = call(*words_of(kind, str(path)))
        assert code == 0, (name, capfd.readouterr().err)
        assert sound(path), name
        assert os.listdir(folder) == [path.name]
        assert os.listdir(f"f{number}") == [path.relative_to(f"f{number}").parts[0]]
        shutil.rmtree(f"f{number}")


@pytest.mark.parametrize("kind", OUTPUTS)
def test_names_that_cannot_be(store, capfd, kind):
    suffix = OUTPUTS[kind][0]
    Path("folder" + suffix).mkdir()
    for name, code, reason in (
        ("x" * 256 + suffix, 2, "File name too long"),
        ("folder" + suffix, 2, "folder"),
        ("none/a" + suffix, 2, "folder .*does not exist"),
        ("s.zarr/a" + suffix, 2, "inside"),
    ):
        found = call(*words_of(kind, name))
        err = capfd.readouterr().err
        assert (found, err.count("\n")) == (code, 1), err
        assert name in err
        assert re.search(reason, err), err


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_name_of_an_input(store, no_fsync, capfd, name):
    """Read correctly, or refused in one line with its name; never another file."""
    z = np.arange(1, 1 + 60 * 90, dtype=np.int32).reshape(60, 90)
    how = {"height": 60, "width": 90, "count": 1, "dtype": "int32", "crs": "EPSG:32633"}
    with rasterio.open("plain.tif", "w", transform=GRID.transform, **how) as out:
        out.write(z, 1)
    rasterio.shutil.copy("plain.tif", "plain.vrt", driver="VRT")
    rasterio.shutil.copy("plain.tif", "plain.asc", driver="AAIGrid")
    shape = {"type": "Point", "coordinates": [500_100.0, 4_999_900.0]}
    crs = {"type": "name", "properties": {"name": "EPSG:32633"}}
    Path("plain.geojson").write_text(json.dumps({**shape, "crs": crs}))
    # What the name would be cut to is there as well, and is another file.
    for cut in {name.split(c)[k] for c in "!;?#:" for k in (0, -1)} - {name, ""}:
        if "/" not in cut:
            Path(cut + ".gpkg").write_bytes(b"another file")
            Path(cut + ".tif").write_bytes(b"another file")
    assert call("compute-sssp", "s.zarr", "--source-rowcol", "5,5", "--target-rowcol", "3,3",
                "--overwrite", "--path", "plain.gpkg", "-q") == 0  # fmt: skip
    grid = terrain_gpu.TileStore.open("s.zarr").grid
    cells = len(from_vector(grid, "plain.gpkg"))
    for suffix in (".tif", ".vrt", ".asc"):
        shutil.copy("plain" + suffix, name + suffix)
        if suffix == ".asc":
            shutil.copy("plain.prj", name + ".prj")
        code = call("convert-dataset", "--overwrite", "-q", "--", name + suffix, "new.zarr")
        err = capfd.readouterr().err
        if code == 0:
            layer = terrain_gpu.TileStore.open("new.zarr").layer("elevation")
            assert np.array_equal(layer.read_window(*layer.grid.window), z)
            shutil.rmtree("new.zarr")
        else:
            assert name in REFUSED
            assert (code, err.count("\n")) == (2, 1)
            assert ascii(name + suffix)[1:-1].replace("\\\\", "\\") in err
    if name not in REFUSED:
        assert len(from_raster(grid, name + ".tif")) == z.size
    for suffix, wanted in ((".geojson", 1), (".gpkg", cells)):
        shutil.copy("plain" + suffix, name + suffix)
        try:
            assert len(from_vector(grid, name + suffix)) == wanted
        except InputError as error:
            message = str(error)
            assert message.startswith(f"{name}.gpkg: ")
            assert "rename it" in message


# -- the same bytes ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k in OUTPUTS if k != "report"])
def test_equal_runs_write_equal_bytes(store, kind, no_fsync):
    """Whatever the time, the folder, the name and the number of threads."""
    suffix = OUTPUTS[kind][0]
    Path("other").mkdir()
    first, second = Path("a" + suffix), Path("other/b" + suffix)
    assert call(*words_of(kind, str(first))) == 0
    time.sleep(1.1)
    command, *words = words_of(kind, str(second))
    assert call(command, "--threads", "1", *words) == 0
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("how", [{}, {"compress": "zstd"}, {"compress": "deflate"}, {"cog": True}])
def test_rasters_do_not_depend_on_which_thread_is_first(tmp_path, no_fsync, monkeypatch, how):
    """Compressed tiles lie in the file in order of arrival, so they are written in order."""
    z = np.random.default_rng(1).integers(0, 100, (500, 600)).astype(np.int16)
    with create_layer(tmp_path / "s.zarr", "elevation", GridSpec(*z.shape), z.dtype,
                      block_size=64) as writer:  # fmt: skip
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(z[r0:r1, c0:c1]))
        writer.commit()
    usual, found = Layer.read_window, set()

    def late(self, *args, **more):
        time.sleep(random.random() / 100)
        return usual(self, *args, **more)

    monkeypatch.setattr(Layer, "read_window", late)
    for threads in (1, 4, 4):
        path = tmp_path / "a.tif"
        export_layer(tmp_path / "s.zarr", path, threads=threads, overwrite=True, **how)
        found.add(path.read_bytes())
    assert len(found) == 1
