"""terrain-gpu compile: kernels are there before a command needs them."""

from __future__ import annotations

import pytest
from programs import forked, spawn

from terrain_gpu.cli import compile as compiling
from terrain_gpu.cli.main import group


def test_a_command_finds_what_was_compiled_ahead(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    done = spawn("terrain-gpu compile label-components --dtype int16 --threads 2")
    assert (done.returncode, done.stderr) == (0, "")
    kept = set(tmp_path.rglob("*.nbc"))
    assert done.stdout.startswith(f"{len(kept)} kernels compiled for int16 in ")
    compiling._make_store(tmp_path / "s.zarr", "int16")
    done = spawn(f"terrain-gpu label-components {tmp_path}/s.zarr --where 'elevation > 250'")
    assert (done.returncode, done.stderr) == (0, "")  # no word about compiling
    assert set(tmp_path.rglob("*.nbc")) == kept


def test_the_options_of_what_is_compiled_exist(tmp_path):
    """Only that: to run it all compiles for a minute."""
    compiling._make_store(tmp_path / "store.zarr", "float32")
    for chain in compiling.CHAINS:
        for name, *words in compiling.command_lines(chain, tmp_path, verify=True):
            with group.commands[name].make_context(name, words):
                pass


def test_kernels_have_no_folder(monkeypatch):
    monkeypatch.setattr("terrain_gpu.compiled.cache_folder", lambda: None)
    with pytest.raises(compiling.OutputError, match="set NUMBA_CACHE_DIR to one"):
        group.main(["compile", "slope"], standalone_mode=False)


def test_what_cannot_be_compiled():
    done = forked("terrain-gpu compile slope compute-msst")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: no kernels of 'compute-msst' to compile; choose from ")


def test_a_command_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(compiling, "CHAINS", ({"slope": ("--layer missing",)},))
    with pytest.raises(compiling.TerrainError, match=r"^slope .*: .*missing"):
        group.main(["compile", "slope"], standalone_mode=False)
