"""The programs as a new user meets them: help, reports, progress, quiet, and the demo."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path

import click
import numba
import numpy as np
import pytest
import rasterio
from pauses import HANGS
from programs import forked, program, spawn
from rasterio.transform import from_origin
from samples import SAMPLE

import terrain_gpu
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.spanning_tree import levels
from terrain_gpu.spanning_tree.weights import WEIGHTS, Weight

ROWS, COLS = 300, 500
VOID = -9999
KEYS = [
    "command",
    "version",
    "cells",
    "valid_cells",
    "seconds",
    "bytes_read",
    "bytes_written",
    "peak_rss_bytes",
    "settings",
    "result",
]


def call(capfd, command: str) -> tuple[int, str, str]:
    """Run a command of the group in this process: exit code, standard output, standard error."""
    capfd.readouterr()
    code = options._guarded(lambda: group.main(shlex.split(command), standalone_mode=False))
    return (code, *capfd.readouterr())


def terrain(rows=ROWS, cols=COLS, dtype="float32") -> np.ndarray:
    data = np.random.default_rng(11).integers(1, 3000, (rows, cols)).astype(dtype)
    data[:70, :200] = VOID if np.dtype(dtype).kind != "u" else 0
    return data


def write_tif(path, data, **profile):
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=data.shape[0],
        width=data.shape[1],
        count=1,
        dtype=data.dtype,
        crs="EPSG:32633",
        transform=from_origin(-500.0, 900.0, 10, 10),
        **profile,
    ) as out:
        out.write(data, 1)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder with dem.tif, as the current one."""
    write_tif(tmp_path / "dem.tif", terrain(), nodata=VOID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(world, capfd):
    """The same folder with a store of dem.tif, s.zarr."""
    assert call(capfd, "convert-dataset dem.tif s.zarr --block-size 128")[0] == 0
    return world / "s.zarr"


# -- help ----------------------------------------------------------------------------------------

OPTIONS = {
    "convert-dataset": "layer band block-size round dtype clamp-min nodata bounds crs encoding "
    "memory-limit threads workers scheduler verify compress resume scratch overwrite progress "
    "json quiet verbose version help",
    "terrain-gpu convert-dataset": "layer band block-size round dtype clamp-min nodata bounds crs "
    "encoding memory-limit threads workers scheduler verify compress resume scratch overwrite "
    "progress json quiet verbose version help",
    "compute-mst": "weight connectivity method layer output cog compress store memory-limit "
    "threads backend device gpu-memory-limit workers scheduler verify compress-layers resume "
    "scratch overwrite progress json quiet verbose version help",
    "terrain-gpu compute-mst": "weight connectivity method layer output cog compress store "
    "memory-limit threads backend device gpu-memory-limit workers scheduler verify "
    "compress-layers resume scratch overwrite progress json quiet verbose version help",
    "terrain-gpu label-components": "where connectivity into table output cog compress store "
    "memory-limit threads workers scheduler verify compress-layers resume scratch overwrite "
    "progress json quiet verbose help",
    "terrain-gpu accumulate": "outlet outlet-rowcol outlets add-outlets force-outward areas into "
    "directions output cog compress store memory-limit threads workers scheduler verify "
    "compress-layers resume scratch overwrite progress json quiet verbose help",
    "terrain-gpu network": "min-length keep store memory-limit threads workers scheduler "
    "verify scratch overwrite progress json quiet verbose help",
    "compute-sssp": "source source-rowcol sources source-edge cost friction barriers parameter "
    "reverse max-slope vertical-factor no-corner-cutting connectivity metric wrap max-cost "
    "target target-rowcol targets id-field target-id-field cost-field outside on-nodata snap "
    "stop-at-targets output dtype cog compress backlink allocation all-ties path layer into "
    "store memory-limit threads backend device gpu-memory-limit workers scheduler method "
    "build-index verify compress-layers resume scratch overwrite progress json quiet verbose "
    "version help",
    "terrain-gpu cost-matrix": "source source-rowcol sources target target-rowcol targets "
    "id-field target-id-field cost-field outside on-nodata snap cost friction barriers parameter "
    "reverse max-slope vertical-factor no-corner-cutting connectivity wrap nearest max-cost "
    "max-cost-field output path layer store memory-limit threads backend device "
    "gpu-memory-limit workers scheduler verify resume scratch overwrite progress json quiet "
    "verbose help",
    "terrain-gpu least-cost-network": "source source-rowcol sources id-field outside on-nodata "
    "snap pairs nearest cost friction barriers parameter reverse max-slope vertical-factor "
    "no-corner-cutting connectivity wrap max-cost output table layer into store memory-limit "
    "threads backend device gpu-memory-limit workers scheduler verify resume scratch overwrite "
    "progress json quiet verbose help",
    "terrain-gpu corridor": "source source-rowcol sources target target-rowcol targets id-field "
    "outside on-nodata snap pairs cost friction barriers parameter reverse max-slope "
    "vertical-factor no-corner-cutting connectivity metric wrap layer into within table output "
    "cog compress store "
    "memory-limit threads backend device gpu-memory-limit workers scheduler verify "
    "compress-layers resume scratch overwrite progress json quiet verbose help",
    "terrain-gpu query-index": "from to from-rowcol to-rowcol pairs snap output path "
    "memory-limit scratch overwrite progress json quiet verbose help",
    "terrain-gpu streams": "threshold directions accumulation order into lines heights "
    "edge-cells output cog compress store memory-limit threads workers scheduler verify "
    "compress-layers resume scratch overwrite progress json quiet verbose help",
    "terrain-gpu depressions": "directions into conditioned table min-depth min-area "
    "min-volume output cog compress store memory-limit threads workers scheduler verify "
    "compress-layers resume scratch overwrite progress json quiet verbose help",
    "terrain-gpu fill-spill-merge": "rain directions into table output cog compress store "
    "memory-limit threads workers scheduler verify compress-layers resume scratch overwrite "
    "progress json quiet verbose help",
    "terrain-gpu watershed": "pour-point pour-point-rowcol pour-points links snap snap-area "
    "accumulation directions into table output cog compress store memory-limit threads workers "
    "scheduler verify compress-layers resume scratch overwrite progress json quiet verbose help",
    "terrain-gpu polygons": "layer names id-field store memory-limit threads workers scheduler "
    "verify scratch overwrite progress json quiet verbose help",
    "terrain-gpu contours": "layer breaks interval base polygons cumulative store memory-limit "
    "threads workers scheduler verify scratch overwrite progress json quiet verbose help",
    "terrain-gpu verify": "data file layer heights accept-changes store memory-limit threads "
    "backend device gpu-memory-limit workers scheduler scratch progress json quiet verbose help",
    "terrain-gpu info": "store scratch progress json quiet verbose help",
    "terrain-gpu plan": "dtype for layer block-size weight cost parameter friction barriers "
    "backlink allocation connectivity metric points targets pairs nearest tile levels flats method "
    "epsilon keep weights statistic areas exclude-self edge-cells directions aspect polygons "
    "cumulative conditioned rain table links order lines max-distance threshold layers "
    "source-dtype cog compress encoding memory-limit threads workers like storage json quiet "
    "verbose help",
    "terrain-gpu overviews": "layer resampling remove memory-limit threads workers scheduler "
    "verify resume scratch overwrite progress json quiet verbose help",
    "terrain-gpu export": "layer bounds cog compress encoding memory-limit threads verify "
    "overwrite progress json quiet verbose help",
    "terrain-gpu demo": "overwrite quiet verbose help",
    "terrain-gpu": "version help",
}


@pytest.mark.parametrize("command", OPTIONS)
def test_help(command):
    of_program = command == "terrain-gpu"
    done = spawn(f"{command} --help" if of_program else f"{command} --help-all")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {command} ")
    shown = re.findall(r"^  (?:-\w, )?--([a-z-]+)", done.stdout, re.M)
    assert sorted(shown) == sorted(OPTIONS[command].split() + ["help-all"] * (not of_program))


@pytest.mark.parametrize("name", group.commands)
def test_every_command_explains_itself_and_its_options(name, capfd):
    code, out, err = call(capfd, f"{name} --help-all")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    command = group.commands[name]
    assert re.search(rf"^Usage: .* {name} \[OPTIONS\]", out)
    short = call(capfd, f"{name} -h")[1]
    assert call(capfd, f"help {name}") == (0, short, "")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert len(parameter.help) > 6, parameter.name
            option = f"--{parameter.opts[-1].strip('-')}"
            assert option in out
            assert option in short


def test_the_list_of_commands_has_each_one_in_a_section(capfd):
    code, out, err = call(capfd, "--help")
    assert (code, err) == (0, "")
    assert (0, out, "") == call(capfd, "help") == call(capfd, "-h") == call(capfd, "")
    lists = out.partition("Rasters and stores:")[2]
    listed = re.findall(r"^  ([a-z-]+)  +[A-Z][^.\n]{9,}$", lists, re.M)
    assert sorted(listed) == sorted(group.commands)
    assert max(map(len, out.splitlines())) <= 80
    code, out, err = call(capfd, "help strems")
    assert (code, out) == (2, "")
    assert "Did you mean 'streams'?" in err


def test_rasters_of_results_are_written_as_export_would(store, capfd):
    assert call(capfd, "slope s.zarr -o s.tif --cog")[0] == 0
    paths = "compute-sssp s.zarr --source-rowcol 99,9 -o d.tif --backlink b.tif --compress zstd"
    assert call(capfd, paths)[0] == 0
    for layer, file, options_ in (
        ("slope", "s.tif", "--cog"),
        ("distance", "d.tif", "--compress zstd"),
        ("backlink", "b.tif", "--compress zstd"),
    ):
        assert call(capfd, f"export s.zarr e.tif --layer {layer} --overwrite {options_}")[0] == 0
        assert Path(file).read_bytes() == Path("e.tif").read_bytes()
    for words in ("slope s.zarr --cog", "compute-sssp s.zarr --source-edge --compress zstd"):
        code, _, err = call(capfd, words)
        assert code == 2
        assert "is for the raster of -o: give that, too" in err
        assert ("--compress-layers" in err) == ("--compress" in words)


def test_compression_of_layers_is_told_from_that_of_files(store, capfd):
    code, _, err = call(capfd, "slope s.zarr -o s.tif --compress auto")
    assert code == 2
    assert "'--compress': 'auto' is for layers: give --compress-layers auto" in err
    for words in ("slope s.zarr --compress gzip", "export s.zarr e.tif --compress auto"):
        code, _, err = call(capfd, words)
        assert code == 2
        assert "is not one of 'none', 'deflate', 'lzw', 'zstd'" in err


@pytest.mark.parametrize("name", ["terrain-gpu", "convert-dataset", "compute-mst", "compute-sssp"])
def test_version(name):
    done = spawn(f"{name} --version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"terrain_gpu {terrain_gpu.__version__}\n"


def test_help_needs_no_heavy_library():
    """The command line answers at once: what a command does not need is not imported."""
    words = (
        "import sys; from terrain_gpu.cli.main import group\n"
        "group.commands['compute-mst']; print(*sys.modules)\n"
        "list(group.commands.values()); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", words], check=True, capture_output=True, text=True)
    one, every = (set(line.split()) for line in done.stdout.splitlines())
    own = {f"terrain_gpu.cli.{name}" for name in ("plan", "demo", "compute_sssp")}
    assert own <= every
    assert not own & one
    heavy = {"zarr", "rasterio", "numba", "dask", "distributed", "cupy", "tqdm", "pandas"}
    assert not heavy & every


# -- the main job --------------------------------------------------------------------------------


def test_the_way_through_as_processes(world):
    """convert, info, plan, export: each run as a program; the cells come back the same."""
    done = spawn("convert-dataset dem.tif s.zarr --threads 2 --memory-limit 600MB")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"s\.zarr: layer elevation, 300 x 500 cells of float32, 90\.7% with a value, \S+ kB stored "
        r"\(600 kB raw\), \d+\.\d\d s\n",
        done.stdout,
    )
    done = spawn("terrain-gpu info s.zarr")
    assert (done.returncode, done.stderr) == (0, "")
    assert "EPSG:32633" in done.stdout
    done = spawn("terrain-gpu plan s.zarr")
    assert (done.returncode, done.stderr) == (0, "")
    done = spawn("terrain-gpu export s.zarr back.tif")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"back\.tif: 300 x 500 cells of float32, \S+ [kM]B, \S+ s\n", done.stdout)
    with rasterio.open("back.tif") as back, rasterio.open("dem.tif") as source:
        assert np.array_equal(back.read(1), source.read(1))
        assert (back.nodata, back.crs, back.transform) == (VOID, source.crs, source.transform)


def test_demo(tmp_path):
    done = spawn("terrain-gpu demo", cwd=tmp_path)
    assert done.returncode == 0
    assert not done.stderr or "compiling kernels" in done.stderr
    for words in (
        "$ convert-dataset ",
        "$ compute-mst demo-output/jacksboro.zarr",
        "138,631 edges, 1 component, total weight 73625173",
        "$ compute-sssp demo-output/jacksboro.zarr --source=-84.12,36.48 --cost tobler",
        "138,632 cells reached, farthest 32813.75612 s",
        "$ terrain-gpu info demo-output/jacksboro.zarr",
        "$ terrain-gpu export demo-output/jacksboro.zarr demo-output/jacksboro.tif",
        "demo-output/jacksboro.tif equals the sample cell for cell (138,632 cells)",
        "xarray.open_zarr('demo-output/jacksboro.zarr', consolidated=False)",
    ):
        assert words in done.stdout
    out = tmp_path / "demo-output"
    names = ["mst.png", "mst.tif", "path.geojson", "walk.png", "walk.tif"]
    made = [*(f"jacksboro-{name}" for name in names), "jacksboro.tif", "jacksboro.zarr"]
    assert sorted(os.listdir(out)) == made
    with rasterio.open(out / "jacksboro.tif") as back, rasterio.open(SAMPLE) as sample:
        assert np.array_equal(back.read(1), sample.read(1))
        assert (back.crs, back.transform, back.units) == (sample.crs, sample.transform, ("m",))
    import xarray

    opened = xarray.open_zarr(str(out / "jacksboro.zarr"), consolidated=False)
    assert opened.elevation.shape == (344, 403)


def test_demo_replaces_only_when_asked_and_never_the_sample(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(capfd, "demo mine -q") == (0, "", "")
    (tmp_path / "mine/jacksboro.tif").write_text("mine")
    code, out, err = call(capfd, "demo mine")
    assert (code, out) == (2, "")
    assert "mine/jacksboro.tif: exists; --overwrite replaces it" in err
    assert (tmp_path / "mine/jacksboro.tif").read_text() == "mine"
    assert call(capfd, "demo mine --overwrite")[0] == 0
    assert (tmp_path / "mine/jacksboro.tif").read_bytes()[:2] == b"II"
    copy = tmp_path / "data"
    shutil.copytree(SAMPLE.parent, copy)
    monkeypatch.setattr("terrain_gpu.cli.demo._sample", lambda: copy / "jacksboro.tif")
    code, out, err = call(capfd, "demo data --overwrite")
    assert (code, out) == (2, "")
    assert "data/jacksboro.tif: is the sample itself" in err
    assert (copy / "jacksboro.tif").read_bytes() == SAMPLE.read_bytes()


@pytest.mark.parametrize(
    ("words", "nodata"),
    [("--nodata -5", -5), ("--nodata -5.0", -5), ("--nodata nan", np.nan), ("", VOID)],
)
def test_negative_numbers_are_values_not_options(world, capfd, words, nodata):
    command = f"convert-dataset dem.tif s.zarr {words} --bounds -1e3 -1e9 -100 1e9"
    assert call(capfd, command)[0] == 0
    found = json.loads(call(capfd, "info s.zarr --json -")[1])["result"]
    assert found["bounds"] == [-500.0, -2100.0, -100.0, 900.0]
    assert found["layers"]["elevation"]["nodata"] == ("NaN" if np.isnan(nodata) else nodata)
    assert found["layers"]["elevation"]["valid_cells"] == ROWS * 40 - 70 * 40


# -- reports -------------------------------------------------------------------------------------


def shard_bytes(store: Path, layer="elevation") -> int:
    return sum(p.stat().st_size for p in (store / layer / "c").rglob("*") if p.is_file())


def check_report(report: dict, command: str, phases: set[str]) -> None:
    assert list(report) == KEYS
    assert report["command"] == command
    assert report["version"] == terrain_gpu.__version__
    assert report["cells"] == ROWS * COLS
    assert report["valid_cells"] == ROWS * COLS - 70 * 200
    assert report["seconds"].keys() == {"total", *phases}
    parts = [report["seconds"][phase] for phase in phases]
    assert 0 < sum(parts) <= report["seconds"]["total"] + 1e-6
    assert 10**7 < report["peak_rss_bytes"] < 10**10
    assert isinstance(report["settings"]["plan"]["memory_limit"], int)


def test_report_of_a_conversion(world):
    done = spawn("convert-dataset dem.tif s.zarr --block-size 128 --json -")
    assert done.returncode == 0
    report = json.loads(done.stdout)  # nothing but JSON
    assert done.stdout.startswith("{\n")
    assert done.stderr.startswith("s.zarr: layer elevation, 300 x 500 cells")
    check_report(report, "convert-dataset", {"convert", "commit"})
    result = report["result"]
    assert result["store"] == "s.zarr"
    assert (result["rows"], result["cols"], result["dtype"]) == (ROWS, COLS, "float32")
    assert result["nodata"] == VOID
    assert (result["block_size"], result["blocks_resumed"]) == (128, 0)
    assert result["raw_bytes"] == ROWS * COLS * 4
    stored = result["stored_bytes"]
    assert stored == shard_bytes(world / "s.zarr")
    assert stored <= report["settings"]["plan"]["bytes_written"]
    # Besides the shards: metadata, coordinates and the manifest.
    assert stored < report["bytes_written"] < stored + 100_000
    # Once for the cells, once for the checksum.
    assert report["bytes_read"] > 2 * ROWS * COLS * 4
    assert report["settings"]["inputs"][0][0] == "dem.tif"


def test_report_of_an_export(store, capfd):
    code, out, err = call(capfd, "export s.zarr back.tif --json -")
    assert code == 0
    assert err.startswith("back.tif: 300 x 500 cells")
    report = json.loads(out)
    check_report(report, "export", {"export", "commit"})
    size = os.path.getsize("back.tif")
    assert report["result"]["file_bytes"] == size
    assert (report["result"]["rows"], report["result"]["cols"]) == (ROWS, COLS)
    assert report["settings"]["compress"] == "none"
    assert report["bytes_written"] >= size


def test_report_of_a_spanning_tree(store, capfd):
    code, out, err = call(capfd, "compute-mst s.zarr -o edges.tif --verify --json -")
    assert code == 0
    assert re.fullmatch(
        r"s\.zarr: layer mst, [\d,]+ edges, 1 component, total weight \S+, \S+ s, verified\n"
        r"written: edges\.tif\n",
        err,
    )
    report = json.loads(out)
    assert report["seconds"].pop("export") > 0  # of a run that was complete
    check_report(report, "compute-mst", {"blocks", "levels", "patches", "verify", "commit"})
    result = report["result"]
    assert result["edges"] == report["valid_cells"] - 1
    assert (result["store"], result["layer"], result["output"]) == (str(store), "mst", "edges.tif")
    assert result["blocks_resumed"] == 0
    with rasterio.open("edges.tif") as edges:
        assert np.bitwise_count(edges.read(1)).sum() == 2 * result["edges"]


def test_report_into_a_file(store, capfd):
    for command in (
        "convert-dataset dem.tif t.zarr --json r.json",
        "export s.zarr back.tif --json r.json",  # a report replaces a report
    ):
        code, out, err = call(capfd, command)
        assert (code, err) == (0, "")
        assert out.count("\n") == 1
        assert list(json.loads(Path("r.json").read_text())) == KEYS
    assert json.loads(Path("r.json").read_text())["command"] == "export"


def test_a_failed_run_writes_no_report(store, capfd):
    code, out, _ = call(capfd, "export s.zarr back.tif --layer nix --json -")
    assert (code, out) == (2, "")
    assert call(capfd, "export s.zarr back.tif --layer nix --json r.json")[0] == 2
    assert not Path("r.json").exists()


def test_report_to_a_special_file(store):
    done = spawn("terrain-gpu info s.zarr -q --json /dev/stdout")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["result"]["rows"] == ROWS


def test_info(store, capfd):
    code, out, err = call(capfd, "info s.zarr")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == str(store)
    for words in (
        "300 x 500 = 150,000 cells of 10 x 10",
        "EPSG:32633",
        "west -500, south -2100, east 4500, north 900",
        "elevation: float32",
        "nodata -9999.0, 9.3% of the cells",
        "3 x 4 of 128 cells, tiles of 64, uncompressed",
    ):
        assert words in out
    code, out, err = call(capfd, "info s.zarr --json -")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert list(report) == KEYS
    found = report["result"]
    assert (found["rows"], found["cols"], found["cells"]) == (ROWS, COLS, ROWS * COLS)
    assert found["crs_code"] == "EPSG:32633"
    layer = found["layers"]["elevation"]
    data = terrain()
    assert layer["valid_cells"] == np.count_nonzero(data != VOID)
    assert (layer["min"], layer["max"]) == (data[data != VOID].min(), data.max())
    assert layer["stored_bytes"] == shard_bytes(store)
    assert layer["sources"][0]["path"] == "dem.tif"
    assert layer["sources"][0]["bytes"] == os.path.getsize("dem.tif")
    assert re.fullmatch("[0-9a-f]{8}", layer["sources"][0]["crc32c"])


def test_scale_and_offset_are_told(world, capfd, caplog):
    """Nothing that is computed applies them."""
    write_tif("dm.tif", np.full((ROWS, COLS), 3570, "int16"))
    with rasterio.open("dm.tif", "r+") as file:
        file.scales, file.offsets = (0.1,), (-5.0,)
    assert call(capfd, "convert-dataset dm.tif s.zarr")[0] == 0
    assert (
        "dm.tif: its values are stored as cells with scale 0.1 and offset -5.0, which"
        in caplog.text
    )
    out = call(capfd, "info s.zarr --json report.json")[1]
    assert "values  3570 .. 3570, nodata None, 0.0% of the cells, stored: x 0.1 + -5" in out
    layer = json.loads(Path("report.json").read_text())["result"]["layers"]["elevation"]
    assert (layer["scale_factor"], layer["add_offset"]) == (0.1, -5.0)


def test_info_of_several_layers_one_all_nodata(store, capfd):
    write_tif("void.tif", np.full((ROWS, COLS), 7, "uint8"), nodata=7)
    assert call(capfd, "convert-dataset void.tif s.zarr --layer void --compress zstd")[0] == 0
    code, out, err = call(capfd, "info s.zarr")
    assert (code, err) == (0, "")
    assert out.index("elevation: float32") < out.index("void: uint8")
    assert "nodata 7, 100.0% of the cells" in out
    assert "3 x 4 of 128 cells, tiles of 64, zstd" in out
    assert "disk    0 B, 0.000 x raw" in out


# -- plans ---------------------------------------------------------------------------------------


def test_plan_of_a_trillion_cells(capfd):
    code, out, err = call(capfd, "plan 1000000x1000000 --memory-limit 2GB --threads 8")
    assert (code, err) == (0, "")
    assert "1000000 x 1000000 = 1,000,000,000,000 cells, float32" in out
    assert "limit 2 GB" in out
    assert "bytes written  4 TB at most" in out
    plan = json.loads(call(capfd, "plan 1000000x1000000 --memory-limit 2GB --json -")[1])["result"]
    assert plan["memory"] <= plan["memory_limit"] == 2 * 10**9
    assert plan["bytes_read"] == plan["passes"] * 4 * 10**12
    assert 1 <= plan["bytes_written"] / 4e12 < 1.05
    side = -(-1_000_000 // plan["block_size"])
    assert plan["blocks"] == side * side


@pytest.mark.parametrize("shape", ["1x1", "2147483647x1", "1x2147483647", "2147483647x100000"])
def test_plan_of_extreme_shapes(capfd, shape):
    rows, cols = map(int, shape.split("x"))
    code, out, err = call(capfd, f"plan {shape} --dtype float64 --json -")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert list(report) == KEYS
    plan = report["result"]
    assert (plan["rows"], plan["cols"]) == (rows, cols)
    assert plan["bytes_read"] >= rows * cols * 8
    assert plan["bytes_written"] >= rows * cols * 8
    assert plan["memory"] <= plan["memory_limit"]


def test_plan_of_a_store_is_that_of_its_shape(store, capfd):
    more = "--memory-limit 700MB --threads 2 --json -"

    def plan(words):
        return json.loads(call(capfd, f"plan {words} {more}")[1])["result"]

    by_store = plan("s.zarr")
    assert by_store == plan(f"{ROWS}x{COLS} --block-size 128")
    assert by_store["dtype"] == "float32"
    other = plan("s.zarr --dtype uint8 --block-size 64")
    assert (other["dtype"], other["block_size"]) == ("uint8", 64)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_plan_of_a_spanning_tree(store, capfd, weight):
    more = f"--weight {weight} --memory-limit 700MB --threads 2 --json -"
    plan = json.loads(call(capfd, f"plan s.zarr --for mst {more}")[1])["result"]
    shape = f"plan {ROWS}x{COLS} --block-size 128 --for mst"
    assert json.loads(call(capfd, f"{shape} {more}")[1])["result"] == plan
    run = json.loads(call(capfd, f"compute-mst s.zarr {more}")[1])["settings"]["plan"]
    # Some tiles of the store are absent.
    assert 0 < plan["bytes_read"] - run["bytes_read"] < ROWS * COLS * 4
    assert {**plan, "bytes_read": run["bytes_read"]} == run
    code, out, err = call(capfd, "plan 100000x100000 --for mst --memory-limit 2GB --threads 8")
    assert (code, err) == (0, "")
    assert "9,604 of 1024 x 1024 cells" in out
    assert "12 buffers, 2 readers, 8 workers, 2 writers" in out


@pytest.mark.parametrize(
    ("problem", "distance", "results"),
    [
        ("", 4, 0),
        ("--backlink", 4, 1),
        ("--cost tobler --friction friction --barriers walls --allocation", 8, 5),
        ("--cost friction --friction friction --backlink --allocation", 8, 5),
        ("--cost minimax --layer real", 8, 0),
    ],
)
def test_plan_of_shortest_paths(world, capfd, problem, distance, results):
    layers = {"elevation": "int16", "real": "float32", "friction": "uint8", "walls": "uint8"}
    for name, dtype in layers.items():
        data = terrain(dtype=dtype).clip(0)
        write_tif(f"{name}.tif", np.uint8(data == 7) if name == "walls" else data, nodata=0)
        command = f"convert-dataset {name}.tif s.zarr --block-size 128 --layer {name} -q"
        assert call(capfd, command)[0] == 0
    more = "--memory-limit 700MB --threads 2 --json -"
    plan = json.loads(call(capfd, f"plan s.zarr --for sssp {problem} {more}")[1])["result"]
    # For a raster that does not exist: types instead of layers.
    shape = f"plan {ROWS}x{COLS} --block-size 128 --for sssp --dtype {plan['dtype']}"
    types = re.sub("friction (friction|walls)", "friction uint8", problem).replace("walls", "uint8")
    found = call(capfd, f"{shape} {types.replace('--layer real', '')} {more}")
    assert json.loads(found[1])["result"] == plan
    files = problem.replace("--backlink", "--backlink b.tif").replace(
        "--allocation", "--allocation a.tif"
    )
    run = call(capfd, f"compute-sssp s.zarr --source-rowcol 200,200 {files} {more}")[1]
    assert json.loads(run)["settings"]["plan"] == plan
    tiles = 5 * 8 * 64 * 64
    assert plan["bytes_written"] // tiles == distance + results
    assert plan["buffers"] == plan["blocks"] == 12


def test_plan_of_shortest_paths_that_do_not_fit(capfd):
    command = "plan 200000x200000 --for sssp --cost friction --friction float32 --threads 8"
    code, out, err = call(capfd, f"{command} --memory-limit 6GB")
    assert (code, err) == (0, "")
    assert "38,416 of 1024 x 1024 cells" in out
    assert "8 workers, 8 writers" in out
    code, out, err = call(capfd, f"{command} --memory-limit 1GB")
    assert (code, out) == (2, "")
    assert re.search(
        r"1 GB is too small for shortest paths over 200000 x 200000 cells in blocks of 1024; "
        r"give at least \d+ MB, or convert with a larger --block-size\n",
        err,
    )
    least = {}
    for block in (512, 1024, 2048):
        _, _, err = call(capfd, f"{command} --memory-limit 1GB --block-size {block}")
        least[block] = int(re.search(r"give at least (\d+) MB", err)[1])
    assert least[512] > least[1024] > least[2048]  # rims take most of the memory


@pytest.mark.parametrize("problem", ["", "--cost tobler --friction elevation"])
def test_plan_of_an_index(store, capfd, problem):
    more = "--memory-limit 700MB --threads 2 --json -"
    plan = json.loads(call(capfd, f"plan s.zarr --for index {problem} {more}")[1])["result"]
    shape = f"plan {ROWS}x{COLS} --block-size 128 --for index --dtype {plan['dtype']}"
    typed = problem.replace("--friction elevation", f"--friction {plan['dtype']}")
    assert json.loads(call(capfd, f"{shape} {typed} {more}")[1])["result"] == plan
    run = json.loads(call(capfd, f"build-index s.zarr {problem} --backend cpu {more}")[1])
    assert run["settings"]["plan"] == plan
    code, _, err = call(capfd, "plan 9999x9999 --for index --memory-limit 200MB")
    assert (code, "to build a distance index in blocks of 1024" in err) == (2, True)


def test_plan_of_an_export(store, capfd):
    more = "--memory-limit 300MB --threads 2 --json -"
    plan = json.loads(call(capfd, f"plan s.zarr --for export {more}")[1])["result"]
    shape = f"plan {ROWS}x{COLS} --block-size 128 --for export --dtype {plan['dtype']}"
    assert json.loads(call(capfd, f"{shape} {more}")[1])["result"] == plan
    run = json.loads(call(capfd, f"export s.zarr x.tif {more}")[1])["settings"]["plan"]
    # Some tiles of the store are absent.
    assert 0 <= plan["bytes_read"] - run["bytes_read"] < ROWS * COLS * 4
    assert {**plan, "bytes_read": run["bytes_read"]} == run


@pytest.mark.parametrize("option", ["--cost tobler", "--friction float32", "--allocation"])
def test_plan_says_which_options_are_for_shortest_paths(capfd, option):
    for purpose in ("", "--for mst"):
        code, out, err = call(capfd, f"plan 9x9 {purpose} {option}")
        assert (code, out) == (2, "")
        assert f"{option.split()[0]} needs --for sssp" in err
    code, out, err = call(capfd, "plan 9x9 --for sssp --weight flow")
    assert (code, out) == (2, "")
    assert "--weight needs --for mst" in err


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (64, 64), (65, 129), (311, 257)])
def test_predicted_bytes_are_those_on_disk(world, capfd, dtype, shape):
    data = np.random.default_rng(1).integers(1, 99, shape).astype(dtype)
    write_tif("full.tif", data)
    plan = json.loads(call(capfd, f"plan {shape[0]}x{shape[1]} --dtype {dtype} --json -")[1])[
        "result"
    ]
    code, out, _ = call(capfd, "convert-dataset full.tif full.zarr --json -")
    assert code == 0
    report = json.loads(out)
    assert plan["bytes_written"] == report["settings"]["plan"]["bytes_written"]
    assert plan["block_size"] == report["result"]["block_size"]
    # No cell is nodata, so every tile is stored and the bound is met.
    assert shard_bytes(world / "full.zarr") == plan["bytes_written"]
    assert report["result"]["stored_bytes"] == plan["bytes_written"]


# -- quiet, verbose, terminals -------------------------------------------------------------------


def test_quiet_says_nothing(world):
    write_tif("odd.tif", np.ones((70, 70), "uint8"))
    for command in (
        "convert-dataset -q dem.tif s.zarr",
        "compute-mst -q s.zarr",
        "terrain-gpu convert-dataset dem.tif s.zarr --quiet --layer b",
        "terrain-gpu info s.zarr -q",
        "terrain-gpu export s.zarr back.tif -q",
        "terrain-gpu plan 9x9 -q",
        "terrain-gpu demo -q",
    ):
        done = forked(command)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), command
    done = forked("terrain-gpu export s.zarr back.tif -q")
    assert done.returncode == 2  # except for errors
    assert done.stderr == "Error: back.tif: exists; --overwrite replaces it\n"


def impossible_nodata() -> None:
    """odd.tif, whose declared nodata value no cell can hold: worth a warning."""
    write_tif("odd.tif", terrain(dtype="uint8") + 1, nodata=255)
    data = Path("odd.tif").read_bytes()
    assert data.count(b"255\0") == 1
    Path("odd.tif").write_bytes(data.replace(b"255\0", b"1.5\0"))


def test_warnings_and_more(world):
    impossible_nodata()
    done = forked("convert-dataset odd.tif a.zarr")
    assert done.returncode == 0
    assert re.fullmatch(
        r"WARNING: odd\.tif: nodata value 1\.5 does not fit uint8 and is read as 1\n", done.stderr
    )
    assert forked("convert-dataset odd.tif b.zarr -q").stderr == ""
    done = forked("convert-dataset odd.tif c.zarr -v")
    assert done.returncode == 0
    assert re.search(r"^INFO: blocks .* 1024 x 1024 cells$", done.stderr, re.M)
    assert re.search(r"^INFO: memory .* predicted peak, limit", done.stderr, re.M)
    assert re.search(
        r"^INFO: bytes written", forked("terrain-gpu export c.zarr c.tif -v").stderr, re.M
    )


@pytest.mark.parametrize("level", ["", "-v", "-vv"])
def test_tracebacks_only_with_vv(world, level):
    done = forked(f"convert-dataset nix.tif s.zarr {level}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.endswith("Error: nix.tif: no such file\n")
    assert ("Traceback" in done.stderr) == (level == "-vv")
    assert (done.stderr.count("\n") == 1) == (level != "-vv")


def test_unexpected_errors_are_one_line_too(world, capfd, monkeypatch):
    def fail(*args, **settings):
        raise RuntimeError("of\na kind nobody\nthought of")

    monkeypatch.setattr("terrain_gpu.io.convert.convert_dataset", fail)
    code, out, err = call(capfd, "convert-dataset dem.tif s.zarr")
    assert (code, out) == (1, "")
    assert err == (
        "Error: unexpected RuntimeError: of a kind nobody thought of (-vv shows where)\n"
    )
    code, _, err = call(capfd, "convert-dataset dem.tif s.zarr -vv")
    assert code == 1
    assert "Traceback" in err
    monkeypatch.setattr("terrain_gpu.io.convert.convert_dataset", lambda *a, **k: [0] * 10**15)
    code, _, err = call(capfd, "convert-dataset dem.tif s.zarr")
    assert (code, err) == (1, "Error: out of memory; choose a smaller --memory-limit\n")


LATE = """
import atexit, os, signal, sys, time
import click
from terrain_gpu.cli import options

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)

class Fails:
    def __del__(self):
        raise OSError("of a library")

@click.command()
@options.verbosity_options
def command():
    {}

def alarm():
    try:
        os.kill(os.getpid(), signal.SIGALRM)
    except BaseException as error:
        print("heard", repr(error), file=sys.stderr)

# The alarm comes after the end of the command, not when the machine has time.
signal.setitimer = lambda *_: atexit.register(alarm)
atexit.register({})
options.run(command)
"""


def late(body: str, at_exit: str, *words: str) -> subprocess.CompletedProcess:
    words = [sys.executable, "-c", LATE.format(body, at_exit), *words]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_an_interrupt_lost_in_a_destructor_does_not_outlive_the_command():
    done = late("Last()", "int")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_after_the_end_is_no_traceback():
    done = late("pass", "os.kill, os.getpid(), signal.SIGTERM")
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")


def test_what_libraries_leave_behind_is_for_vv():
    """As asyncio does under zarr, when no file can be opened or a task is interrupted."""
    body = "import logging, warnings; warnings.warn('never awaited', RuntimeWarning); Fails(); "
    body += "logging.getLogger('asyncio').error('destroyed but pending')"
    assert late(body, "int").stderr == ""
    assert "OSError: of a library" in late(body, "int", "-vv").stderr


def on_a_terminal(command: str) -> tuple[int, str, str]:
    """Run with standard error on a terminal: exit code, standard output, what was drawn."""
    name, *words = shlex.split(command)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    with subprocess.Popen(
        [*program(name), *words], stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        drawn = b""
        while True:
            ready, _, _ = select.select([ours], [], [], HANGS)
            assert ready, "nothing happens"
            piece = b""
            with contextlib.suppress(OSError):  # EIO: the other end was closed
                piece = os.read(ours, 4096)
            if not piece:
                break
            drawn += piece
        out = process.stdout.read()
    os.close(ours)
    return process.returncode, out, drawn.decode()


def test_progress_on_a_terminal_only(world):
    code, out, drawn = on_a_terminal("convert-dataset dem.tif s.zarr --block-size 64")
    assert code == 0
    assert out.startswith("s.zarr: layer elevation")
    assert re.search(r"convert: .*cell", drawn)
    assert drawn.rsplit("\r", 1)[1].strip(" \x1b[A") == ""  # the bar is gone at the end
    code, _, drawn = on_a_terminal("terrain-gpu export s.zarr a.tif")
    assert code == 0
    assert re.search(r"export: .*cell", drawn)
    assert on_a_terminal("terrain-gpu export -q s.zarr b.tif") == (0, "", "")
    assert spawn("terrain-gpu export s.zarr c.tif").stderr == ""


def test_progress_counts_every_cell(world, capfd, monkeypatch):
    seen = []

    @contextlib.contextmanager
    def watched(label, *, quiet=False):
        yield lambda cells, total: seen.append((label, cells, total))

    monkeypatch.setattr("terrain_gpu.progress.bar", watched)
    assert call(capfd, "convert-dataset dem.tif s.zarr --block-size 64")[0] == 0
    assert call(capfd, "export s.zarr back.tif")[0] == 0
    assert call(capfd, "compute-mst s.zarr --verify")[0] == 0
    for label, passes in (("convert", 1), ("export", 1), ("compute-mst", 2)):
        counts = [(cells, total) for name, cells, total in seen if name == label]
        assert len(counts) > 3
        assert sum(cells for cells, _ in counts) == passes * ROWS * COLS
        assert {total for _, total in counts} == {passes * ROWS * COLS}


def test_progress_of_a_resumed_run_counts_what_was_done(world):
    def stop(cells, total):
        raise KeyboardInterrupt

    counts = []
    convert = partial(terrain_gpu.convert_dataset, ["dem.tif"], block_size=64)
    for run in (convert, terrain_gpu.minimum_spanning_tree):
        with pytest.raises(KeyboardInterrupt):
            run("s.zarr", threads=1, progress=stop)
        done = run("s.zarr", threads=1, progress=lambda *cells: counts.append(cells), resume=True)
        assert getattr(done, "report", done).result["blocks_resumed"] > 0
        assert len(counts) > 1
        assert sum(cells for cells, _ in counts) == ROWS * COLS
        counts.clear()


# -- compiling -----------------------------------------------------------------------------------

COMPILING = "WARNING: compiling kernels for float32 cells; this happens once\n"
COMPILED = """
import numpy as np
from terrain_gpu.spanning_tree.levels import Solver
from terrain_gpu.spanning_tree.weights import Weight

for dtype in ("float32", "int16", "float64"):
    print(Solver((1, 1), 64, Weight("max", np.dtype(dtype)), None, True).compiled())
"""


@pytest.mark.parametrize(
    ("weight", "dtype", "compiled"),
    [
        ("max", "float32", True),
        ("max", "int16", True),
        ("max", "float64", False),
        ("flow", "int16", False),
    ],
)
def test_a_kernel_serves_cell_types_with_its_keys(monkeypatch, weight, dtype, compiled):
    """That runs find what is compiled is tested below."""
    operands, valid, rule = numba.uint32[:, ::1], numba.boolean[:, ::1], numba.uint32
    monkeypatch.setattr(levels, "known_types", lambda kernel: [(operands, valid, rule)])
    solver = levels.Solver((1, 1), 64, Weight(weight, np.dtype(dtype)), None, True)
    assert solver.compiled() is compiled


def test_compiling_is_interrupted_at_once(store):
    """Long before the end: of several kernels, few are compiled and cached by then."""
    folder = store.parent / "cache"
    words = [*program("compute-mst"), "s.zarr"]
    cache = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    with subprocess.Popen(words, env=cache, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == COMPILING
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read().startswith("Error: interrupted; ")
    assert sorted(os.listdir(store)) == ["elevation", "spatial_ref", "x", "y", "zarr.json"]
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=cache, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False"] * 3


COUNTED = """
import sys
from numba.core import event
from terrain_gpu.cli import main

class Told(event.Listener):
    def on_start(self, found):
        print(found.data["dispatcher"], file=sys.stderr)

    def on_end(self, found):
        pass

event.register("numba:compile", Told())
sys.argv[:] = sys.argv[1:]
getattr(main, sys.argv[0])()
"""


@pytest.mark.parametrize("command", ["compute_mst s.zarr", "compute_sssp s.zarr --source-edge"])
def test_later_runs_compile_nothing(store, command):
    words = [sys.executable, "-c", COUNTED, *command.split(), "--overwrite"]
    subprocess.run(words, check=True, capture_output=True)
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stderr == ""


def test_packages_that_others_import_are_left_out(store):
    """Nothing here uses them; they take time and memory."""
    Path("packages").mkdir()
    for name in ("boto3", "cffi", "scipy"):
        Path(f"packages/{name}.py").write_text("raise RuntimeError('imported')")
    places = os.pathsep.join(["packages", os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": places}
    assert (
        "RuntimeError"
        in subprocess.run(
            [sys.executable, "-c", "import boto3"],
            env=env,
            check=False,
            capture_output=True,
            text=True,
        ).stderr
    )
    for command in ("-o e.tif", "--workers 1 --overwrite"):
        done = spawn(f"compute-mst s.zarr {command} -q", env=env)
        assert (done.returncode, done.stderr) == (0, "")


# -- odd surroundings ----------------------------------------------------------------------------


def test_control_characters_do_not_reach_the_terminal(world, capfd):
    code, out, err = call(capfd, "convert-dataset dem.tif 's\x1b[31m.zarr'")
    assert (code, err) == (0, "")
    assert out.startswith(r"s\x1b[31m.zarr: layer")
    code, out, err = call(capfd, "info 'nix\x1b]0;title\x07'")
    assert (code, out) == (2, "")
    assert r"nix\x1b]0;title\x07: no such store" in err


def test_a_reader_that_goes_away(store):
    read, write = os.pipe()
    os.close(read)
    done = spawn("terrain-gpu info s.zarr", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
@pytest.mark.parametrize(
    "command",
    [
        "terrain-gpu info s.zarr",
        "terrain-gpu info s.zarr --json -",
        "terrain-gpu plan --help",
        "convert-dataset --version",
        "compute-mst --help",
        "rio terrain info s.zarr",
    ],
)
def test_output_onto_a_full_disk(store, command):
    """Also without PYTHONUNBUFFERED: the interpreter itself would exit with 120 at its end."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = spawn(command, stdout=full, env=env)
    assert done.returncode == 1
    # rasterio's program loads matplotlib, which warns where there is no home.
    assert done.stderr.splitlines()[-1] == "Error: input or output failed: No space left on device"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("label-components s.zarr --where elevation>1 --progress json -v --json -", 0),
        ("info no", 2),
    ],
)
@pytest.mark.parametrize("how", [">&- 2>/dev/full", ">&- 2>&- <&-"])
def test_messages_that_cannot_be_written(store, words, code, how):
    """They change no exit code and no result."""
    line = f"{shlex.join([*program('terrain-gpu'), *words.split()])} {how}"
    done = subprocess.run(["bash", "-c", line], check=False, capture_output=True)
    assert done.returncode == code


@pytest.mark.parametrize("soft", [True, False])
def test_workers_with_few_open_files(store, soft):
    """A soft limit is raised; Dask would wait for ever."""
    words = shlex.join([*program("compute-mst"), "s.zarr", "-q", "--workers", "2", "--overwrite"])
    limited = ["bash", "-c", f"ulimit -{'S' * soft}n 50 && exec {words}"]
    done = subprocess.run(limited, check=False, capture_output=True, text=True)
    told = "Error: --workers 2: needs 96 open files and connections, but the limit is 50; raise it"
    assert (done.returncode, done.stderr[: len(told)]) == ((0, "") if soft else (2, told))


def test_many_more_files_than_a_process_may_open(world):
    """A mosaic keeps few of its inputs open."""
    tiles = []
    for k in range(120):
        path = f"t{k:03}.tif"
        with rasterio.open(
            path, "w", driver="GTiff", height=8, width=8, count=1, dtype="uint8",
            transform=from_origin(80 * (k % 12), -80 * (k // 12), 10, 10),
        ) as out:  # fmt: skip
            out.write(np.full((1, 8, 8), k, "uint8"))
        tiles.append(path)
    words = shlex.join([*program("convert-dataset"), *tiles, "s.zarr", "--threads", "1", "-q"])
    limited = ["bash", "-c", f"ulimit -n 100 && exec {words}"]
    done = subprocess.run(limited, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = terrain_gpu.TileStore.open("s.zarr").layer("elevation").read_window(0, 80, 0, 96)
    assert np.array_equal(found[::8, ::8].ravel(), np.arange(120))
