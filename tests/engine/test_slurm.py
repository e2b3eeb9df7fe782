"""scripts/slurm.sh in jobs of a real SLURM, where there is one (`sbatch`)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from contract import make_store

import terrain_gpu
from terrain_gpu.store import TileStore

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "slurm.sh"


def test_the_guide_shows_the_script():
    guide = (ROOT / "docs/how-to/cluster.md").read_text()
    body = SCRIPT.read_text().partition("#SBATCH")[2]
    assert body.partition("\n\n")[2].strip() in guide


def is_running() -> bool:
    """Whether a SLURM here has a node that takes jobs."""
    if shutil.which("sbatch") is None:
        return False
    found = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False
    )
    return bool({"idle", "mixed"} & set(found.stdout.split()))


@pytest.fixture(scope="module")
def slurm():
    if not is_running():
        pytest.skip("needs a SLURM with an idle node")


@pytest.fixture
def store(tmp_path):
    data = np.random.default_rng(1).integers(0, 99, (600, 600)).astype(np.int16)
    return make_store(tmp_path / "s.zarr", data, None, 64)


def submit(folder: Path, command: str, *more: str, wait=True) -> tuple[int, str]:
    """Submit the script; returns the exit code of the job, and its output or number."""
    programs = Path(sys.executable).parent
    path = f"{programs}:{os.environ['PATH']}"
    how = ["sbatch", "--parsable", "--output=job.out", "--ntasks=3", "--mem-per-cpu=600MB", *more]
    done = subprocess.run(
        [*how, *(["--wait"] if wait else []), str(SCRIPT), *command.split()],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert re.match(r"\d+", done.stdout), done.stderr
    output = folder / "job.out"
    return done.returncode, output.read_text() if wait else done.stdout.strip()


def expected(folder: Path) -> list[bytes]:
    """The shards of the same spanning tree, computed without SLURM."""
    data = np.random.default_rng(1).integers(0, 99, (600, 600)).astype(np.int16)
    twin = make_store(folder / "twin.zarr", data, None, 64)
    terrain_gpu.minimum_spanning_tree(twin)
    return shards(twin)


def shards(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "mst/c").rglob("*")) if path.is_file()]


def test_a_job_computes_the_same(slurm, store, tmp_path):
    code, output = submit(tmp_path, f"compute-mst {store} --memory-limit 500MB --json r.json")
    assert code == 0, output
    assert shards(store) == expected(tmp_path)
    assert json.loads((tmp_path / "r.json").read_text())["settings"]["cluster"]["workers"] > 0


def test_the_processes_of_a_job_share_its_memory(slurm, store, tmp_path):
    """Without --memory-limit: at most what the job has, divided by the processes known so far."""
    code, output = submit(tmp_path, f"compute-mst {store} --json r.json")
    assert code == 0, output
    settings = json.loads((tmp_path / "r.json").read_text())["settings"]
    job, known = 3 * 600 * 2**20, settings["cluster"]["workers"] + 1
    assert settings["plan"]["memory_limit"] <= max(job // known, 512 * 10**6)


def test_the_exit_code_is_that_of_the_command(slurm, tmp_path):
    code, output = submit(tmp_path, "compute-mst nowhere.zarr")
    assert code == 2
    assert "nowhere.zarr: no such store" in output


def test_a_cancelled_job_is_submitted_again(slurm, store, tmp_path):
    command = f"compute-mst {store} --memory-limit 500MB --resume"
    _, job = submit(tmp_path, command, wait=False)
    manifest, end = store / ".incomplete/mst.jsonl", time.monotonic() + 60
    with contextlib.suppress(FileNotFoundError):
        while time.monotonic() < end:
            if manifest.exists() and len(manifest.read_bytes().splitlines()) > 20:
                break
            time.sleep(0.01)
    subprocess.run(["scancel", job], check=True)
    code, output = submit(tmp_path, command, f"--dependency=afterany:{job}")
    assert code == 0, output
    assert shards(store) == expected(tmp_path)
    assert TileStore.open(store).layers == ["elevation", "mst"]
