"""Other programs to compare with: GRASS, scikit-image in another interpreter, compiled programs."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from bench.timing import Spent

SKIMAGE = """
import sys, time
import numpy as np
from skimage.graph import MCP_Geometric
cells = np.load(sys.argv[1]).astype(np.float64)
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    MCP_Geometric(cells, sampling=(10.0, 10.0)).find_costs([tuple(map(int, sys.argv[3:]))])
    print(time.perf_counter() - start)
"""


def skimage_option(parser: argparse.ArgumentParser) -> None:
    """Add --skimage."""
    parser.add_argument(
        "--skimage", nargs="?", const=sys.executable, metavar="PYTHON",
        help="run scikit-image, in this interpreter or another one",
    )  # fmt: skip


def skimage(python: str, cells: Path, start: tuple[int, int], times: int = 1) -> float:
    """Least seconds of distances from a cell by scikit-image, over frictions in a file of numpy."""
    words = [python, "-c", SKIMAGE, cells, times, *start]
    done = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True)
    return min(map(float, done.stdout.split()))


def compiled(program: str, work: Path, *words: object) -> float:
    """Seconds that a program prints as `med=SECONDS`; it finds rasters in the folder $PEERDATA."""
    env = os.environ | {"PEERDATA": f"{work}/"}
    command = [program, *map(str, words)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    return figures(r"med=(\S+)", said)[0]


def figures(pattern: str, said: str) -> list[float]:
    """The figures that a program prints."""
    found = re.search(pattern, said)
    if found is None:
        raise SystemExit(f"no {pattern} in what the program says: {said}")
    return [float(one) for one in found.groups()]


def has_grass() -> bool:
    """Whether GRASS is installed."""
    return shutil.which("grass") is not None


def grass(folder: Path, cells: np.ndarray, prepare: list[str], command: str) -> Spent:
    """Seconds of one command of GRASS: not of its start, the import of cells as `z`, and others.

    A cell is one unit long, and the lower left corner is (0, 0).
    """
    rows, cols = cells.shape
    np.asarray(cells, np.float64).tofile(folder / "z")
    region = f"north={rows} south=0 east={cols} west=0 rows={rows} cols={cols}"
    script = [
        "set -e",
        f"r.in.bin -d input=z output=z anull=nan {region} --q",
        "g.region raster=z",
        *prepare,
        "TIMEFORMAT='spent %R %U %S'",
        f"time {command}",
    ]
    done = subprocess.run(
        ["grass", "--tmp-location", "XY", "--exec", "bash", "-c", "\n".join(script)],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    wall, user, system = figures(r"spent (\S+) (\S+) (\S+)", done.stderr)
    return Spent(wall, user + system)


def r_cost(folder: Path, cells: np.ndarray, start: tuple[int, int], flags: str = "") -> Spent:
    """Seconds of distances from a cell by r.cost."""
    at = f"{start[1] + 0.5},{len(cells) - start[0] - 0.5}"
    words = f"r.cost {flags} input=z output=costs start_coordinates={at} memory=300 --q"
    return grass(folder, cells, [], words)
