"""Processor seconds of friction paths over 8 and 16 neighbours, beside r.cost and r.cost -k.

    python scripts/bench_neighbours.py [SIDE]

r.cost is left out where GRASS is not installed.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from terrain_gpu import shortest_paths


def spent(who: int) -> float:
    return resource.getrusage(who).ru_utime


def main(side: int = 2048) -> None:
    cells = np.random.default_rng(1).uniform(1, 10, (side, side))
    for connectivity in (8, 16):
        how = {"cost": "friction", "connectivity": connectivity, "threads": 1, "backend": "cpu"}
        few = cells[:99, :99].copy()
        shortest_paths(few, [(0, 0)], friction=few, **how)  # may compile
        before = spent(resource.RUSAGE_SELF)
        shortest_paths(cells, [(side // 2, side // 2)], friction=cells, **how)
        print(f"{connectivity} neighbours: {spent(resource.RUSAGE_SELF) - before:.2f} s")
    if not shutil.which("grass"):
        return
    region = f"north={side} south=0 east={side} west=0 rows={side} cols={side}"
    with tempfile.TemporaryDirectory() as folder:
        cells.tofile(Path(folder) / "f")
        for flag in ("", "-k"):
            used = []
            for work in (
                "",
                f"r.cost {flag} input=f output=c start_coordinates={side // 2 + 0.5},"
                f"{side // 2 - 0.5} --q",
            ):
                script = f"r.in.bin -d input=f output=f {region} --q\ng.region raster=f\n{work}\n"
                (Path(folder) / "script").write_text(script)
                command = ["grass", "--tmp-location", "XY", "--exec", "bash", "script"]
                before = spent(resource.RUSAGE_CHILDREN)
                subprocess.run(command, cwd=folder, check=True, capture_output=True)
                used.append(spent(resource.RUSAGE_CHILDREN) - before)
            print(f"r.cost {flag}: {used[1] - used[0]:.2f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
