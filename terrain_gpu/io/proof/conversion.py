"""Proof that a layer holds the cells of its sources: `verify_conversion`.

The sources are opened again and placed on the layer's grid. Each window is assembled from them and
compared with the layer. From `io/gdal.py` and `io/grass_ascii.py`, only the description of a file
is used; rounding, clamping, nodata and the order of a mosaic are implemented here a second time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ... import cells
from ...engine.machine import owns_process
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, wrong
from ...errors import StoreError, VerificationError
from ...facts import Findings, JsonObject, Settings
from ...grid import GridSpec, Window, clip, is_empty
from ...grid.crs import same_crs
from ...grid.neighbours import ENCODINGS
from ...report import return_large_arrays
from ...store import Layer
from ...store.checksums import checksum
from ..crs import placed, read_crs
from ..gdal import bound_cache, gdal_environment
from ..grass_ascii import GrassAscii
from ..inputs import SEQUENTIAL, offset_bytes, open_input
from ..layer_input import LayerInput
from .text import TextCells
from .windows import (
    check_windows,
    differ,
    equals,
    near,
    pieces,
    plan_windows,
    read_cells,
    read_mask,
    same_value,
)


class Conversion(NamedTuple):
    """The sources of a layer, and the options of `convert_dataset` that its cells depend on."""

    rasters: Sequence[str]
    band: int | None = None
    round_cells: bool = False
    dtype: str | None = None
    clamp_min: float | int | None = None
    nodata: float | int | None = None
    bounds: tuple[float, float, float, float] | None = None
    crs: str | None = None
    directions: str | None = None

    @classmethod
    def of(cls, problem: Any) -> Conversion:
        """Take the attributes of these names from an object."""
        return cls(*(getattr(problem, name) for name in cls._fields))

    @classmethod
    def recorded(cls, settings: Settings) -> Conversion:
        """Restore from the settings recorded in a layer."""
        bounds = settings["bounds"]
        return cls(
            settings["rasters"],
            settings["band"],
            settings["round"],
            settings.get("dtype"),
            cells.from_json(settings["clamp_min"]),
            cells.from_json(settings["nodata"]),
            tuple(bounds) if bounds else None,
            settings["crs"],
            settings.get("encoding"),
        )


def plan_conversion(
    files: Sequence[Any], grid: GridSpec, dtype: np.dtype, block: int, limits: Limits
) -> StreamPlan:
    """Plan how windows stream through `verify_conversion`.

    Parameters
    ----------
    files
        The opened sources.
    grid, dtype, block
        Grid, type and block size of the layer, which need not exist yet.
    """
    source = {
        "chunk": tuple(max(one.chunk[k] for one in files) for k in range(2)),
        "source_bytes": sum(os.path.getsize(path) for one in files for path in one.files),
        "sequential": any(one.driver in SEQUENTIAL for one in files),
        "decoding": max(one.decoding for one in files),
        "libraries": 2 * offset_bytes(files),  # they are still open for the conversion
        # A mask; for a mosaic also the cells of a source, and which cells are still nodata.
        "extra": 1 + (len(files) > 1),
    }
    return plan_windows(grid, files[0].dtype, dtype, block, limits, **source)


def verify_conversion(layer: Layer, conversion: Conversion, limits: Limits) -> Findings:
    """Check all cells of a layer, its type, nodata value, position, attributes and statistics.

    Returns
    -------
    dict
        "cells", the number of cells compared, and "sources", the number of rasters.

    Raises
    ------
    VerificationError
        at the first wrong cell found, or when anything else differs.
    InputError
        when a source cannot be read.
    PlanError
        when the memory limit is too small.
    StoreError
        when the layer is damaged.
    """
    statistics, checker = _Statistics(), _ConversionChecker(layer, conversion)
    try:
        rule, sources = checker.opened
        files = sources.files
        _check_header(layer, files, rule, sources.whole, conversion.bounds)
        if any(one.driver in SEQUENTIAL for one in files):
            limits = limits.here()
        plan = plan_conversion(files, layer.grid, layer.dtype, layer.block_size, limits)
        if owns_process() and any(one.decoding for one in files):
            return_large_arrays()
        check_windows(plan, rule.source, layer, checker.check, statistics.add, limits)
    finally:
        checker.close()
    recorded = layer.statistics()
    for name, right in statistics.found.items():
        if recorded[name] != right:
            raise _refused(
                layer,
                f"wrong totals: {name} is recorded as {recorded[name]}, but is {right}",
                "totals",
            )
    return {"cells": layer.grid.cells, "sources": len(conversion.rasters)}


@dataclass(frozen=True)
class _ConversionChecker:
    """Opens the sources of a layer and compares windows with them; can be sent to workers."""

    layer: Layer
    how: Conversion

    def __getstate__(self) -> JsonObject:
        # The other process may be in another folder.
        rasters = [os.path.abspath(r) if os.path.exists(r) else r for r in self.how.rasters]
        return {"layer": self.layer, "how": self.how._replace(rasters=rasters)}

    def __setstate__(self, state: JsonObject) -> None:
        vars(self).update(state)
        bound_cache()

    @cached_property
    def opened(self) -> tuple[_Rule, _Sources]:
        """The rule by which cells change, and the sources."""
        conversion, files = self.how, list[Any]()
        with gdal_environment():
            for path in conversion.rasters:
                files.append(open_input(path, conversion.band))
                if conversion.crs is not None and not files[-1].crs:
                    files[-1].grid = placed(files[-1].grid, read_crs(conversion.crs))
        rule = _Rule.of(conversion, files)
        return rule, _Sources(files, self.layer.grid, rule.nodata, conversion.nodata is not None)

    def check(self, window: Window, data: np.ndarray, stored: np.ndarray) -> list[cells.Stats]:
        """Compare a window; return its statistics."""
        (rule, sources), layer = self.opened, self.layer
        sources.read(window, data)
        layer.read_window(*window, out=stored)
        seen = []
        for piece in pieces(*stored.shape):
            bad = rule.broken(data[piece], stored[piece])
            if bad.any():
                row, col = np.argwhere(bad)[0]
                right = rule.right(data[piece])[0][row, col]
                fault = f"{stored[piece][row, col]!s} instead of {right!s}"
                row, col = window[0] + piece[0].start + row, window[2] + piece[1].start + col
                wrong(layer, fault, "cells", int(row), int(col))
            seen.append(cells.stats(stored[piece], layer.nodata))
        return seen

    def close(self) -> None:
        """Close the sources that are open."""
        if "opened" in vars(self):
            for one in vars(self).pop("opened")[1].files:
                one.close()


def verify_stored_conversion(layer: Layer, limits: Limits) -> Findings:
    """Run `verify_conversion` with the settings recorded in a layer.

    Returns
    -------
    dict
        As `verify_conversion`; if the sources are missing or have changed, "verified" (False) and
        "unproven", the reason.
    """
    settings = layer.info["settings"]
    try:
        conversion = Conversion.recorded(settings)
        sums = {one["path"]: one["crc32c"] for one in layer.info.get("sources", [])}
        why = "" if None not in conversion.rasters else "a source is not a file"
        for path, size, changed in settings["inputs"]:
            why = why or _changed(path, size, changed, sums.get(path))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{layer.path}/zarr.json: recorded settings are invalid ({error!r}); convert it again"
        ) from None
    if why:
        return {"verified": False, "unproven": why}
    with gdal_environment():
        return verify_conversion(layer, conversion, limits)


def _changed(path: str, size: int, changed: int, crc: str | None) -> str:
    """How a source has changed; empty if it has not."""
    try:
        now = os.stat(path)
        if now.st_size == size and (now.st_mtime_ns == changed or checksum(path) == crc):
            return ""
    except OSError:
        return f"its source {path} no longer exists"
    return f"its source {path} has changed since the conversion"


class _Statistics:
    """The number of valid cells and their range, as a layer records them."""

    def __init__(self) -> None:
        self.found: Findings = {"valid_cells": 0, "min": None, "max": None}

    def add(self, seen: list[cells.Stats]) -> None:
        for one in seen:
            self.found["valid_cells"] += one.valid
            for name, value, pick in (("min", one.low, min), ("max", one.high, max)):
                if value is not None:
                    before = self.found[name]
                    self.found[name] = value if before is None else pick(before, value)


class _Rule(NamedTuple):
    """The rule by which cells are converted.

    Attributes
    ----------
    source, result
        Types of the cells before and after.
    nodata, void
        The common nodata value of the sources, and that of the layer.
    rounds, least
        Whether cells are rounded, and the value that lower ones are raised to.
    codes
        For flow directions, the codes of the other program for our codes 1, 2, 4 to 128, and 0.
    """

    source: np.dtype
    result: np.dtype
    nodata: float | int | None
    void: float | int | None
    rounds: bool
    least: float | int | None
    codes: tuple[int, ...] = ()

    @classmethod
    def of(cls, conversion: Conversion, files: Sequence[Any]) -> _Rule:
        dtype, nodata = files[0].dtype, conversion.nodata
        if nodata is None:
            nodata = next((one.nodata for one in files if one.nodata is not None), None)
            masked = [one.outranked for one in files if one.masked]
            if nodata is None and masked:
                nodata = math.nan if dtype.kind == "f" else _rare(np.iinfo(dtype), masked[0])
        else:
            nodata = cells.as_scalar(nodata, dtype)
        if conversion.directions is not None:
            codes = ENCODINGS[conversion.directions]
            return cls(dtype, np.dtype(np.uint8), nodata, 255, False, None, codes)
        rounds = conversion.round_cells and (dtype.kind == "f" or conversion.dtype is not None)
        result, void = dtype, nodata
        if rounds:
            result = np.dtype(conversion.dtype or "int32").newbyteorder("<")
            wanted = nodata if conversion.nodata is None else conversion.nodata
            void = {"int16": -(2**15), "uint16": 2**16 - 1, "int32": -(2**31)}[result.name]
            if wanted is not None and cells.fits(wanted, result):
                void = int(wanted)
        least = conversion.clamp_min
        least = None if least is None else cells.as_scalar(least, result)
        return cls(dtype, result, nodata, void, rounds, least)

    @property
    def changes(self) -> bool:
        """Whether values change; if so, infinities and NaN become nodata as well."""
        return self.rounds or self.least is not None

    def right(self, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The expected cells (float64 if they are rounded), and which of them are nodata."""
        void = equals(data, self.nodata)
        if self.codes:
            return self._codes(data, void)
        if self.changes and data.dtype.kind == "f":
            void |= ~np.isfinite(data)
        expected = np.rint(data.astype(np.float64)) if self.rounds else data
        if self.least is not None:
            low = (expected < self.least) & ~void
            expected = np.where(low, expected.dtype.type(self.least), expected)
        if self.void is not None:
            expected = np.where(void, expected.dtype.type(self.void), expected)
        return expected, void

    def _codes(self, data: np.ndarray, void: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Our codes of flow directions, and which cells have no direction."""
        value = np.abs(data) if self.codes == ENCODINGS["grass"] else data
        codes = np.full(data.shape, 255, np.uint8)
        for code, theirs in zip((1, 2, 4, 8, 16, 32, 64, 128, 0), self.codes, strict=True):
            np.copyto(codes, np.uint8(code), where=(value == theirs) & ~void & (data != 255))
        if self.codes == ENCODINGS["esri"] and data.dtype == np.int8:
            codes[(data == -128) & ~void] = 128
        if self.codes == ENCODINGS["esri"] and self.nodata is not None:
            codes[((data == 255) | (data == -1)) & ~void] = 0  # inland sinks
        return codes, codes == 255

    def broken(self, data: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """Which cells of a layer differ from those expected from the sources."""
        right, void = self.right(data)
        bad = stored != right if self.rounds else differ(stored, right)
        if self.void is None:
            return bad
        # A value must not become nodata; any bit pattern that means nodata is correct.
        return np.where(void, ~equals(stored, self.void), bad | equals(stored, self.void))


def _rare(info: Any, declared: float | int | None) -> int:
    """The value of masked cells: the rarer end of the type's range that is not declared."""
    low, high = int(info.min), int(info.max)
    if low == 0:
        return high - 1 if declared == high else high
    return high if declared == low else low


class _Sources:
    """Rasters on the grid of a layer.

    Attributes
    ----------
    whole
        The grid that they cover together.
    nodata, given
        Their common nodata value, and whether the user chose it.
    """

    def __init__(
        self, files: Sequence[Any], grid: GridSpec, nodata: float | int | None, given: bool
    ) -> None:
        self.files, self.nodata, self.given = files, nodata, given
        a, _, c, _, e, f = grid.transform
        self.places: list[Window] = []
        for one in files:
            row = round((one.grid.transform[5] - f) / e)
            col = round((one.grid.transform[2] - c) / a)
            self.places.append((row, row + one.grid.rows, col, col + one.grid.cols))
        tops, bottoms, lefts, rights = zip(*self.places, strict=True)
        row, _, col, _ = self.places[0]
        around = min(tops) - row, max(bottoms) - row, min(lefts) - col, max(rights) - col
        self.whole = files[0].grid.crop(around)
        self._texts = {
            one: TextCells(one.path, one.grid.cols) for one in files if isinstance(one, GrassAscii)
        }

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read a window; with several rasters, from the first one that is valid in each cell."""
        alone = len(self.files) == 1
        if self.nodata is not None:
            out[...] = self.nodata
        left = np.ones((0, 0) if alone else out.shape, bool)
        for one, rectangle in zip(self.files, self.places, strict=True):
            part = clip(window, rectangle)
            if is_empty(part):
                continue
            rows, cols = part[1] - part[0], part[3] - part[2]
            down, right = part[0] - window[0], part[2] - window[2]
            target = out[down : down + rows, right : right + cols]
            piece = target if alone else np.empty((rows, cols), out.dtype)
            frame = (
                part[0] - rectangle[0],
                part[1] - rectangle[0],
                part[2] - rectangle[2],
                part[3] - rectangle[2],
            )
            mask = self._read(one, frame, piece)
            open_cells = left[down : down + rows, right : right + cols]
            for part_of_piece in pieces(rows, cols):
                # A mask outranks the nodata value.
                void = (
                    near(piece[part_of_piece], one.nodata)
                    if mask is None
                    else mask[part_of_piece] == 0
                )
                same = (near if self.given else equals)(piece[part_of_piece], self.nodata)
                if not self.given and self.nodata == self.nodata and (same & ~void).any():
                    fault = f"{one.path}: valid cells have the nodata value {self.nodata}"
                    raise VerificationError(f"{fault}; convert the raster again", "nodata")
                void |= same
                if alone and void.any():
                    np.copyto(piece[part_of_piece], out.dtype.type(self.nodata), where=void)
                elif not alone:
                    taken = open_cells[part_of_piece] & ~void
                    np.copyto(target[part_of_piece], piece[part_of_piece], where=taken)
                    open_cells[part_of_piece] &= void

    def _read(self, one: Any, window: Window, out: np.ndarray) -> np.ndarray | None:
        """Read cells as they are in a file; return its mask, if it has one."""
        if isinstance(one, LayerInput):
            one.layer.read_window(*window, out=out)
            return None
        if one in self._texts:
            self._texts[one].read(window, out, one.nodata)
            return None
        read_cells(one, window, out)
        return read_mask(one, window) if one.masked else None


def _refused(layer: Layer, fault: str, check: str) -> VerificationError:
    return VerificationError(f"{layer.path}: {fault}; convert it again with --overwrite", check)


def _check_header(
    layer: Layer,
    files: Sequence[Any],
    rule: _Rule,
    whole: GridSpec,
    bounds: tuple[float, float, float, float] | None,
) -> None:
    """Check that the description of a layer agrees with its sources."""
    first = files[0]
    facts: list[tuple[str, Any, Any]] = [
        ("type", layer.dtype.name, rule.result.name),
        ("units", layer.attributes.get("units", ""), first.units or ""),
        ("scale", layer.attributes.get("scale_factor", 1.0), first.scale),
        ("offset", layer.attributes.get("add_offset", 0.0), first.offset),
    ]
    facts += [("source's type", one.dtype.name, rule.source.name) for one in files]
    for name, actual, right in facts:
        if actual != right:
            is_, should = (one if one != "" else "none" for one in (actual, right))
            raise _refused(layer, f"its {name}: {is_}, not {should}", name)
    if not same_value(layer.nodata, rule.void):
        raise _refused(layer, f"its nodata value is {layer.nodata}, not {rule.void}", "nodata")
    right = whole.crop(whole.window_of(bounds)) if bounds else whole
    if not right.same_place(layer.grid):
        raise _refused(layer, f"its grid {layer.grid} is not that of its sources, {right}", "place")
    for one in files:
        if not same_crs(layer.grid.crs_wkt, one.grid.crs_wkt):
            raise _refused(layer, f"its coordinate system is not that of {one.path}", "crs")
