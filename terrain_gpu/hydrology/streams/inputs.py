"""The layers that define channels, and the threshold of sums at which channels begin."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ...arguments import described, field, parse_amount, refused
from ...errors import ArgumentError, InputError, StoreError, plain
from ...facts import Settings
from ...grid import GridSpec
from ...grid.crs import grid_crs
from ...grid.lengths import cell_areas, warn_of_mercator
from ...io.labelled import HEIGHTS
from ...store import Layer, TileStore
from ..common.codes import open_directions

_SQUARE_METRES = {"m2": 1.0, "ha": 1e4, "km2": 1e6}


def open_sums(store: TileStore, name: str, codes: Layer) -> Layer:
    """Open the layer of flow accumulation along the directions `codes`.

    Raises
    ------
    StoreError
        If it does not exist, has an unsuitable data type, or was summed along other directions.
    """
    if name not in store:
        raise no_sums(store, name)
    layer = store.layer(name)
    settings, of_codes = (_settings(one) for one in (layer, codes))
    refuse_other_sums(layer)
    of = settings.get("of")
    if not isinstance(of, dict):  # written by another program
        return layer
    if "areas" not in settings:
        raise StoreError(
            f"{layer.path}: holds no sums of cells or areas; terrain-gpu flow-accumulation makes "
            "them"
        )
    if codes.name in of:
        good = store.holds(codes.name, of[codes.name])
    else:  # `accumulate` writes both
        good = all(
            key in of_codes and of_codes[key] == settings.get(key) for key in ("of", "outlets")
        )
    if not good:
        raise StoreError(
            f"{layer.path}: not summed along the directions that {codes.path} holds now; sum along "
            f"them (terrain-gpu flow-accumulation --directions {codes.name} --overwrite)"
        )
    return layer


def refuse_other_sums(layer: Layer) -> None:
    """Reject a layer that cannot hold sums that grow downstream.

    Raises
    ------
    StoreError
        If the layer holds something else.
    """
    settings = _settings(layer)
    if "edge_cells" in settings:
        raise StoreError(
            f"{layer.path}: counts cells on the edge of the data (--edge-cells), not cells or "
            "areas upstream; name another layer, or make one (terrain-gpu flow-accumulation)"
        )
    if layer.dtype.name not in ("uint32", "int64", "float64"):
        raise StoreError(
            f"{layer.path}: holds {layer.dtype.name}, but sums are uint32 or int64 cells, or "
            "float64 areas; terrain-gpu flow-accumulation makes them"
        )
    if settings.get("statistic", "sum") not in ("sum", "below"):
        raise StoreError(
            f"{layer.path}: holds the {settings['statistic']} of upstream values, which need not "
            "grow downstream; give a layer of sums"
        )
    if "method" in settings:
        raise StoreError(
            f"{layer.path}: its flow is divided among neighbours ({settings['method']}), so it "
            "need not grow along the directions; give one made without --method (terrain-gpu "
            "flow-accumulation --into NAME)"
        )


def refuse_channels(tool: Any, store: TileStore) -> None:
    """Reject inputs that cannot have channels, before missing layers are computed.

    Parameters
    ----------
    tool
        A tool with a threshold of flow accumulation.

    Raises
    ------
    InputError
        If the threshold exceeds the whole raster, or all elevations are nodata.
    StoreError
        If the layer of sums holds something else.
    """
    if tool.accumulation in store:
        refuse_other_sums(store.layer(tool.accumulation))
        return
    refuse_beyond_raster(tool.threshold, store.grid)
    if tool.directions not in store and HEIGHTS in store:
        store.layer(HEIGHTS).refuse_if_empty()


def no_sums(store: TileStore, name: str) -> StoreError:
    """Return the error for a layer of sums that does not exist."""
    return StoreError(
        f"{store.path}: has no layer {name!r} of flow accumulation; terrain-gpu flow-accumulation "
        "makes it"
    )


def open_channels(
    store: TileStore, directions: str, accumulation: str, threshold: Any
) -> tuple[Layer, Layer, int | float]:
    """Open directions and sums; return them and the smallest sum of a channel cell.

    Raises
    ------
    StoreError
        As for `open_directions` and `open_sums`.
    InputError
        As for `least_sum`, and if no cell has a sum or no sum reaches the threshold.
    """
    codes = open_directions(store, directions)
    sums = open_sums(store, accumulation, codes)
    sums.refuse_if_empty()
    least, largest = least_sum(threshold, sums), sums.statistics()["max"]
    if isinstance(largest, int | float) and largest < least:
        raise no_channel(sums, least, largest)
    return codes, sums, least


def no_channel(sums: Layer, least: int | float, largest: int | float) -> InputError:
    """Return the error for a threshold that no sum reaches."""
    if not largest > 0:
        return InputError(
            f"{sums.path}: no sum is above 0, so there are no channels; check the layers that it "
            "was computed from, and its weights if it has any"
        )
    return ArgumentError(
        "a {threshold} of {least} leaves no channel; the largest sum in {sums} is {largest}; give "
        "less",
        least=f"{least:,}",
        sums=sums.path,
        largest=f"{largest:,}",
    )


def least_sum(threshold: Any, sums: Layer, name: str = "threshold") -> int | float:
    """Return a threshold in the unit of the sums.

    `threshold` is a number or a text such as "5km2"; see `parse_amount`.

    Raises
    ------
    InputError
        As for `parse_amount`, and if it cannot be converted.
    """
    number, unit = parse_amount(name, threshold)
    argument, settings = f"{field(name)} {plain(described(threshold))}", _settings(sums)
    counts = sums.dtype.kind != "f"
    weighted = settings.get("statistic", "below") != "below"
    areas = settings.get("areas") is True and not weighted
    if counts or areas:
        if unit is not None:
            number *= _SQUARE_METRES[unit] / _map_unit(sums.grid, argument) ** 2
        if counts and unit is not None:
            number /= _cell_area(
                sums, argument, "give a number of cells, or sum areas (flow-accumulation --areas)"
            )
        elif areas and unit is None:
            number *= _cell_area(sums, argument, "give an area such as 5km2")
    elif unit is not None:
        raise refused(
            argument,
            ": {sums} is not recorded as holding areas; give a number in its own unit",
            sums=sums.path,
        )
    least = math.ceil(number) if counts else float(number)
    # It must fit the data type of the layer, since kernels compare equal types.
    if counts and least > np.iinfo(sums.dtype).max:
        raise refused(argument, ": is more than any sum of cells")
    if sums.nodata is not None and sums.nodata >= least:
        raise refused(
            argument,
            ": the nodata value of {sums}, {nodata}, reaches it; give a larger one",
            sums=sums.path,
            nodata=sums.nodata,
        )
    return least


def refuse_beyond_raster(amount: Any, grid: GridSpec, name: str = "threshold") -> None:
    """Reject an amount larger than the whole raster, before sums are known.

    `amount` is a number or a text such as "5km2"; see `parse_amount`.

    Raises
    ------
    InputError
        If it is larger; as for `parse_amount`; and if an area cannot be converted.
    """
    number, unit = parse_amount(name, amount)
    argument, most = f"{field(name)} {plain(described(amount))}", float(grid.cells)
    if unit is not None:
        most = float(cell_areas(grid).sum()) * grid.cols
        most *= _map_unit(grid, argument) ** 2 / _SQUARE_METRES[unit]
    if number > most * (1 + 1e-9):  # allows for rounding of `most`
        whole = f"{most:,.10g} {unit or 'cells'}"
        raise refused(argument, ": is more than the whole raster, {whole}; give less", whole=whole)


def area_of(amount: Any, layer: Layer, name: str) -> float:
    """Return an area in square map units, or square metres in a geographic CRS.

    `amount` is a number of cells or a text such as "5km2"; see `parse_amount`.

    Raises
    ------
    InputError
        As for `parse_amount`, and if it cannot be converted.
    """
    number, unit = parse_amount(name, amount)
    argument = f"{field(name)} {plain(described(amount))}"
    if number > sys.float_info.max:
        raise refused(argument, ": is more than any area")
    if unit is None:
        return number * _cell_area(layer, argument, "give an area such as 5km2")
    warn_of_mercator(layer.grid, ("areas",))
    return number * _SQUARE_METRES[unit] / _map_unit(layer.grid, argument) ** 2


def _map_unit(grid: GridSpec, argument: str) -> float:
    """Return the unit of length that areas are in, in metres."""
    if not grid.crs_wkt:
        raise refused(
            argument,
            ": the raster has no coordinate system, so its unit of length is unknown; give a "
            "number of cells",
        )
    crs = grid_crs(grid)
    return 1.0 if crs.is_geographic else float(crs.units_factor[1])


def _cell_area(sums: Layer, argument: str, remedy: str) -> float:
    """Return the area of a cell; raise InputError if cells differ in area."""
    areas = cell_areas(sums.grid)
    if (areas != areas[0]).any():
        raise refused(argument, ": cells of this raster differ in area; {remedy}", remedy=remedy)
    return float(areas[0])


def _settings(layer: Layer) -> Settings:
    settings = layer.info.get("settings")
    return settings if isinstance(settings, dict) else {}
