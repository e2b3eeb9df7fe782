"""The commands below rasterio's program `rio`, and as steps of GDAL pipelines."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click
import numpy as np
import pyogrio
import pytest
import rasterio
from programs import forked
from rasterio.rio.main import main_group
from samples import SAMPLE

from terrain_gpu.cli.main import group

PAGE = Path(__file__).parents[2] / "docs/how-to/rio-gdal.md"


@pytest.fixture
def world(tmp_path, monkeypatch):
    shutil.copy(SAMPLE, tmp_path / "dem.tif")
    monkeypatch.chdir(tmp_path)


def test_rio_has_the_same_commands():
    plugin = main_group.commands["terrain"]
    context = click.Context(plugin)
    assert plugin.list_commands(context) == group.list_commands(context)
    assert all(
        plugin.get_command(context, name) is command for name, command in group.commands.items()
    )


def test_rio_runs_them(world):
    """With their messages and exit codes, whatever rio does around them."""
    assert forked("rio terrain slope dem.tif -o slope.tif").returncode == 0
    assert forked("terrain-gpu slope dem.tif -o own.tif").returncode == 0
    with rasterio.open("slope.tif") as found, rasterio.open("own.tif") as own:
        assert np.array_equal(found.read(1), own.read(1), equal_nan=True)
    for words, code in (
        ("slope dem.tif -o slope.tif", 2),
        ("slope --steep", 2),
        ("layers none.zarr", 2),
        ("slope --help", 0),
        ("", 0),
    ):
        found, own = forked(f"rio -v terrain {words}"), forked(f"terrain-gpu {words}")
        assert found.returncode == own.returncode == code
        # Help of the group differs in its options: --version.
        assert found.stderr == own.stderr.replace("terrain-gpu", "rio terrain")
        assert found.stdout[-900:] == own.stdout[-900:].replace("terrain-gpu", "rio terrain")


def test_steps_of_gdal_pipelines(world):
    """GDAL quotes the names of its temporary files, and opens what a command wrote."""
    steps = re.findall(r'\bexternal (.*?)"(.*?)"', PAGE.read_text(encoding="utf-8"))
    assert len(steps) == 3
    for number, (options, command) in enumerate(steps):
        ending = "gpkg" if "GPKG" in options else "tif"
        made = f"output {number}.{ending}"
        ended = forked(command.replace("<INPUT>", "'dem.tif'").replace("<OUTPUT>", f"'{made}'"))
        assert ended.returncode == 0, ended.stderr
        if ending == "gpkg":
            assert pyogrio.read_info(made, layer="streams")["features"] > 10
        else:
            with rasterio.open(made) as out, rasterio.open("dem.tif") as dem:
                assert (out.shape, out.transform, out.crs) == (dem.shape, dem.transform, dem.crs)
