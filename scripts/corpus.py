"""Run the commands over a folder of other programs' rasters, and compare with rasterio.

    bash scripts/corpus.sh FOLDER [--json FILE]

Each file that GDAL opens is converted, described and exported, and three commands read it without
a store. The layer and the exported file must have the cells, mask, transform, coordinate system
(by meaning, with its vertical part) and unit that rasterio reads from the file. A file may be
rejected with exit code 2, but only by an error that names its reason; nothing may end otherwise.
The last lines count the outcomes; `--json` writes the outcome of every file.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import rasterio
from rasterio.errors import NotGeoreferencedWarning, RasterioError

import terrain_gpu
from terrain_gpu.cells import is_nodata
from terrain_gpu.cli import main as programs

MOST_CELLS = 4_000_000
"""Larger rasters are left out: a corpus is about files, not about size."""
PATIENCE = 120
"""Seconds for one file."""
WORDS = {"fill": "", "slope": "", "label-components": '--where "elevation > 0"'}
"""Commands that read a raster without a store, and their options."""


class Differs(Exception):
    """What the commands made of a file is not what GDAL reads."""


class Rejected(Exception):
    """A command rejected a file, with exit code 2."""


class LeftOut(Exception):
    """Not a raster, or too large."""


def main() -> int:
    """Judge all files; return the exit code."""
    parser = argparse.ArgumentParser(description="Compare terrain_gpu with rasterio over files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, help="Write the outcome of every file here.")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", NotGeoreferencedWarning)
    outcomes: dict[str, tuple[str, str]] = {}
    with contextlib.suppress(KeyboardInterrupt):  # the outcomes so far count
        for path in sorted(path for path in arguments.folder.rglob("*") if path.is_file()):
            kind, text = outcomes[str(path.relative_to(arguments.folder))] = in_a_process(path)
            if kind not in ("left out", "equal", "rejected"):
                print(f"{kind}: {path}: {text}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(outcomes, indent=1))
    counts = collections.Counter(kind for kind, _ in outcomes.values())
    print(", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
    reasons = collections.Counter(
        _general(text) for kind, text in outcomes.values() if kind == "rejected"
    )
    for reason, number in reasons.most_common():
        print(f"{number:6} rejected: {reason}")
    return int(bool(counts.keys() - {"left out", "equal", "rejected"}))


def _general(text: str) -> str:
    """A message without the names and numbers of one file."""
    return re.sub(r"\d[\d.e+-]*", "N", re.sub(r"^Error: \S+?: ", "", text))[:110]


def in_a_process(path: Path) -> tuple[str, str]:
    """Judge a file in a process of its own, which GDAL may crash."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(PATIENCE)
        with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
            answer = json.dumps(judge(path, Path(folder)))
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    if not answer:
        return "FAILED", f"ended with status {status}"
    kind, text = json.loads(answer)
    return kind, text


def judge(path: Path, folder: Path) -> tuple[str, str]:
    """What becomes of a file: a word, and the reason."""
    try:
        check(path, folder)
    except LeftOut as error:
        return "left out", str(error)
    except Rejected as error:
        return "rejected", str(error)
    except Differs as error:
        return "DIFFERS", str(error)
    except Exception:
        return "FAILED", traceback.format_exc()
    return "equal", ""


def check(path: Path, folder: Path) -> None:
    """Compare all that the commands make of a file with what rasterio reads."""
    given, bands = read(str(path), 1)
    band = "--band 1" if bands > 1 else ""
    run(f"convert-dataset {{path}} s.zarr --verify {band}", folder, path)
    run("info s.zarr", folder, path)
    layer = terrain_gpu.TileStore.open(folder / "s.zarr").layer("elevation")
    grid = layer.grid
    stored = layer.read_window(0, grid.rows, 0, grid.cols)
    compare(
        "layer",
        {**given, "unit": None},
        {
            "cells": np.ma.array(stored, mask=is_nodata(stored, layer.nodata)),
            "transform": grid.transform,
            "crs": grid.crs_wkt or None,
            "unit": None,
        },
    )
    for option in ("", "--cog"):
        run(f"export s.zarr out.tif --overwrite --verify {option}", folder, path)
        written, _ = read(str(folder / "out.tif"), 1)
        compare(f"export {option}".strip(), given, written)
    for command, options in WORDS.items():
        if not band:
            run(f"{command} {{path}} -o {command}.tif {options}", folder, path)


def read(path: str, band: int) -> tuple[dict[str, Any], int]:
    """Cells with GDAL's mask, place and unit of a band; and the number of bands."""
    try:
        with rasterio.open(path) as data:
            if not data.count:
                raise LeftOut("has no raster band")
            if data.driver == "GRASSASCIIGrid":
                raise LeftOut("GDAL reads its null cells as 0")
            if data.height * data.width > MOST_CELLS:
                raise LeftOut(f"has {data.height * data.width} cells")
            cells = np.ma.array(data.read(band), mask=data.read_masks(band) == 0)
            place = {
                "transform": tuple(data.transform)[:6],
                "crs": data.crs.to_wkt() if data.crs else None,
            }
            return {"cells": cells, **place, "unit": data.units[band - 1] or ""}, data.count
    except (RasterioError, UnicodeError, ValueError) as error:
        raise LeftOut(f"GDAL cannot read it: {error}") from None


def compare(what: str, given: dict[str, Any], made: dict[str, Any]) -> None:
    """Refuse all that two descriptions of a raster differ in."""
    one, other = given["cells"], made["cells"]
    if one.shape != other.shape:
        raise Differs(f"{what}: {other.shape} cells instead of {one.shape}")
    valid = ~np.ma.getmaskarray(one)
    # A NaN that no mask names is no value for either side.
    if one.dtype.kind == "f":
        valid &= ~np.isnan(one.data)
    valid_made = ~np.ma.getmaskarray(other)
    if other.dtype.kind == "f":
        valid_made &= ~np.isnan(other.data)
    if wrong := np.count_nonzero(valid != valid_made):
        raise Differs(f"{what}: the mask of {wrong} cells differs")
    if wrong := np.count_nonzero(one.data[valid] != other.data[valid]):
        raise Differs(f"{what}: the values of {wrong} cells differ")
    if given["transform"] != made["transform"]:
        raise Differs(f"{what}: transform {made['transform']} instead of {given['transform']}")
    # GDAL takes the unit of a band without one from the vertical CRS, but not in every format.
    vertical = [unit for _, unit, _ in _vertical(pyproj.CRS(made["crs"]))] if made["crs"] else []
    if given["unit"] != made["unit"] and (given["unit"] or made["unit"] not in vertical):
        raise Differs(f"{what}: unit {made['unit']!r} instead of {given['unit']!r}")
    if not same_crs(given["crs"], made["crs"]):
        raise Differs(f"{what}: CRS {made['crs']} instead of {given['crs']}")


def same_crs(one: str | None, other: str | None) -> bool:
    """Whether two coordinate systems place a raster alike, also in height."""
    if one is None or other is None:
        return one is other
    first, second = pyproj.CRS(one), pyproj.CRS(other)
    if first.equals(second, ignore_axis_order=True):
        return True
    return rasterio.crs.CRS.from_user_input(one) == rasterio.crs.CRS.from_user_input(
        other
    ) and _vertical(first) == _vertical(second)


def _vertical(crs: pyproj.CRS) -> list[tuple[str, str, float]]:
    """Name, unit and factor of the vertical axes."""
    return [
        (part.name, axis.unit_name, axis.unit_conversion_factor)
        for part in crs.sub_crs_list or [crs]
        for axis in part.axis_info
        if axis.direction in ("up", "down")
    ]


def run(command: str, folder: Path, path: Path) -> None:
    """Run a program in a folder; only success, or a reason with exit code 2, is right."""
    words = [word.replace("{path}", str(path.absolute())) for word in shlex.split(command)]
    code, said = _called(programs.main, ["terrain-gpu", *words], folder)
    last = next((line for line in reversed(said.splitlines()) if line.startswith("Error")), "")
    if code == 2 and last and "unexpected" not in last:
        raise Rejected(last)
    if code:
        raise Differs(f"{words[0]}: exit code {code}: {said}")


def _called(program: Callable[[], None], words: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and messages of a program that runs in a fork of this process."""
    messages = folder / "messages"
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        sys.argv = words
        number = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(number, 1)
        os.dup2(number, 2)
        with _exits():
            program()
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status), messages.read_text(errors="replace")


@contextlib.contextmanager
def _exits() -> Iterator[None]:
    """End this process with the code of the program within."""
    code = 70
    try:
        yield
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
