"""Statistics of the weights upstream of each cell: sums, means, extremes and marks.

All are computed with whole numbers, whose sums and maxima do not depend on their order: weights as
multiples of a power of two, or the ranks of values.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...cells import is_nodata, stats
from ...errors import ArgumentError, InputError, StoreError
from ...facts import Findings
from ...grid import GridSpec, Window, units
from ...grid.lengths import cell_areas
from ...io.fills import FILLS
from ...plurals import counted
from ...store import Layer
from .code_values import NOWHERE
from .sums import EXACT_BITS, EdgeRule, SumRule

log = logging.getLogger(__name__)

NONE = np.iinfo(np.int64).min
"""Rank of a cell that has no weight."""

FILL_VALUE = "If it is a fill value, declare it as nodata (convert-dataset --nodata)"

NEAR_LARGEST = 16
"""Weights larger than the largest divided by this may also be fill values."""

HUGE = 1e15
"""Larger than real weights in any unit, but smaller than fill values such as 1e20 and 9.97e36."""

SMALLEST = -1000
"""Smallest exponent of a unit, so that the unit and its reciprocal are normal float64 numbers."""


@dataclass(frozen=True)
class WeightRule:
    """Sums or means of the upstream weights, as whole numbers of a unit.

    Attributes
    ----------
    weights
        The layer.
    mean
        Whether sums are divided by the number of cells with a weight.
    areas
        Whether weights are multiplied by the areas of their cells.
    exclude_self
        Whether the result of a cell excludes its own weight.
    divided
        Whether cells divide their flow, so that 1 is too coarse a unit.
    """

    weights: Layer
    mean: bool = False
    areas: bool = False
    exclude_self: bool = False
    divided: bool = False

    adds: ClassVar = True
    empty: ClassVar = 0
    nodata: ClassVar = math.nan
    dtype: ClassVar = np.dtype(np.float64)
    sums_dtype: ClassVar = np.dtype(np.int64)

    @property
    def columns(self) -> int:
        """Number of values kept per cell."""
        return 1 + self.mean

    @property
    def _bits(self) -> int:
        """Number of bits of the largest possible sum."""
        return EXACT_BITS if self.divided else 62

    @cached_property
    def units(self) -> tuple[np.ndarray | None, float]:
        """Units per weight of 1 in each row, None if weights are units themselves; and the unit.

        The unit is a power of two, so large that no sum of units overflows; it is 1 for integers if
        that is large enough. Raises InputError if sums exceed the range of float64.
        """
        grid, largest = self.weights.grid, largest_weight(self.weights)
        whole = self.weights.dtype.kind != "f" and not self.areas and not self.divided
        if whole and largest * grid.cells < 2**62:
            return None, 1.0
        areas = cell_areas(grid) if self.areas else np.ones(grid.rows)
        most = float(largest) * float(areas.max())
        exponent = math.frexp(most)[1] + (grid.cells - 1).bit_length()
        if not math.isfinite(most) or exponent > 1023:
            raise InputError(
                f"{self.weights.path}: sums of weights up to {largest} may exceed the largest "
                "float64 number; give the weights in a larger unit"
            )
        exponent = max(exponent - self._bits, SMALLEST)
        return areas * 2.0**-exponent, 2.0**exponent

    def few_units(self, weights: np.ndarray, weighted: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Count the weights of only a few units, and those between these and the largest."""
        scale, _ = self.units
        if scale is None:
            return np.zeros(2, np.int64)
        few, most = self._few, largest_weight(self.weights) * scale.max() / NEAR_LARGEST
        sizes, counts = np.abs(units), weighted & (weights != 0)
        low, between = counts & (sizes < few), counts & (sizes >= few) & (sizes < most)
        return np.array([np.count_nonzero(low), np.count_nonzero(between)])

    def refuse_lost(self, few: int, between: int) -> None:
        """Reject weights most of which are lost next to a fill value; warn of other losses.

        A few tiny weights are harmless, such as noise of 1e-20 in a raster of rain; then most
        weights are in between.

        Raises
        ------
        InputError
            If the largest weight is probably a fill value. The message names its cell.
        """
        if few <= between:
            return
        least = self._few * self.units[1]
        lost = (
            f"{named_largest(self.weights)} is so large that "
            f"{counted(few, 'weight is', 'weights are')} lost next to it: sums over "
            f"{counted(self.weights.grid.cells, 'cell')} cannot also hold weights below {least:.3g}"
        )
        largest = largest_weight(self.weights)
        if largest >= HUGE or largest in map(abs, FILLS):
            raise InputError(f"{lost}. {FILL_VALUE}; if not, set negligible weights to 0")
        log.warning("%s", lost)

    @property
    def _few(self) -> int:
        """Units that give a weight 3 digits; 1 digit for divided flow, which has fewer bits."""
        return 4 if self.divided else 1 << 10

    def own(
        self, window: Window, codes: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the mask of cells with a weight, their units, and for means counts of 1."""
        weighted = with_weight(self.weights, window, codes, weights)
        scale, _ = self.units
        counted_weights = np.where(weighted, weights, weights.dtype.type(0))
        if scale is None:
            units = counted_weights.astype(np.int64)
        else:
            units = np.rint(counted_weights * scale[window[0] : window[1], None]).astype(np.int64)
        most = (1 << self._bits) // self.weights.grid.cells + 1
        if units.max() > most or units.min() < -most:
            raise StoreError(
                f"{self.weights.path}: has values beyond its recorded range; another program "
                f"changed it (terrain-gpu verify --accept-changes {self.weights.name})"
            )
        return weighted, [units, weighted.astype(np.int64)][: self.columns]

    def write(
        self,
        window: Window,
        codes: np.ndarray,
        weights: np.ndarray,
        values: list[np.ndarray],
        out: np.ndarray,
    ) -> None:
        """Write the results of a window's cells to `out`."""
        if self.exclude_self:
            _, contributions = self.own(window, codes, weights)
            values = [
                total - contribution
                for total, contribution in zip(values, contributions, strict=True)
            ]
        np.multiply(values[0], self.units[1], out=out)
        if self.mean:
            with np.errstate(invalid="ignore"):  # 0 / 0 if there is no weight
                np.divide(out, values[1], out=out)
            out[values[1] == 0] = np.nan
        out[codes == NOWHERE] = np.nan


@dataclass(frozen=True)
class ExtremeRule:
    """The largest or smallest upstream weight. Cells that do not drain keep their own values.

    Attributes
    ----------
    weights
        The layer.
    smallest
        Whether to find the smallest weight; ranks are then in reverse order.
    """

    weights: Layer
    smallest: bool

    adds: ClassVar = False
    empty: ClassVar = NONE
    columns: ClassVar = 1
    sums_dtype: ClassVar = np.dtype(np.int64)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.weights.dtype)

    @property
    def nodata(self) -> float | int | None:
        nodata: float | int | None = self.weights.nodata
        return math.nan if nodata is None and self.dtype.kind == "f" else nodata

    def own(
        self, window: Window, codes: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the mask of cells with a weight, and their ranks."""
        weighted = with_weight(self.weights, window, codes, weights)
        ranks = self._ranks(weights)
        if (gap := self._gap) is not None:
            ranks[ranks < gap] += 1
        ranks[~weighted] = NONE
        return weighted, [ranks]

    def write(
        self,
        window: Window,
        codes: np.ndarray,
        weights: np.ndarray,
        values: list[np.ndarray],
        out: np.ndarray,
    ) -> None:
        """Write the results of a window's cells to `out`."""
        ranks = values[0].copy()
        if (gap := self._gap) is not None:
            ranks[ranks <= gap] -= 1
        if self.smallest:
            np.invert(ranks, out=ranks)
        if self.dtype.kind == "f":
            bits = ranks.astype(f"i{self.dtype.itemsize}")
            out[...] = _order(bits).view(self.dtype)
        elif self.dtype == np.uint64:
            out[...] = ranks.view(np.uint64) ^ np.uint64(1 << 63)
        else:
            out[...] = ranks.astype(self.dtype)
        if self.nodata is not None:
            out[values[0] == NONE] = self.nodata
        np.copyto(out, weights, where=codes == NOWHERE)

    @property
    def _gap(self) -> int | None:
        """Rank of the nodata value of 64-bit integers; lower ones move up to make room."""
        if self.dtype.kind == "f" or self.dtype.itemsize < 8 or self.weights.nodata is None:
            return None
        return int(self._ranks(np.array([self.weights.nodata], self.dtype))[0])

    def _ranks(self, weights: np.ndarray) -> np.ndarray:
        """Return integers in the order of the weights; -0.0 comes before 0.0."""
        if self.dtype.kind == "f":
            ranks = _order(weights.view(f"i{self.dtype.itemsize}")).astype(np.int64)
        elif self.dtype == np.uint64:
            ranks = (weights ^ np.uint64(1 << 63)).view(np.int64)
        else:
            ranks = weights.astype(np.int64)
        return ~ranks if self.smallest else ranks


@dataclass(frozen=True)
class BelowRule:
    """Upstream cells or areas of all cells at or downstream of a marked cell; 0 elsewhere.

    Attributes
    ----------
    weights
        The layer of marks: a cell is marked if its value is neither 0 nor nodata.
    sums
        The rule of the sums.
    """

    weights: Layer
    sums: SumRule

    adds: ClassVar = True
    empty: ClassVar = 0
    columns: ClassVar = 2
    nodata: ClassVar = 0

    @property
    def dtype(self) -> np.dtype:
        return self.sums.dtype

    @property
    def sums_dtype(self) -> np.dtype:
        return self.sums.sums_dtype

    def own(
        self, window: Window, codes: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the mask of cells whose mark is valid, their contributions, and 1 for a mark."""
        weighted = with_weight(self.weights, window, codes, weights)
        _, columns = self.sums.own(window, codes)
        return weighted, [*columns, (weighted & (weights != 0)).astype(np.int64)]

    def write(
        self,
        window: Window,
        codes: np.ndarray,
        weights: np.ndarray,
        values: list[np.ndarray],
        out: np.ndarray,
    ) -> None:
        """Write the results of a window's cells to `out`."""
        sums, marks = values
        self.sums.write(window, codes, None, [sums], out)
        out[marks == 0] = 0


Rule = SumRule | EdgeRule | WeightRule | ExtremeRule | BelowRule


def rule_of(
    grid: GridSpec,
    weights: Layer | None,
    statistic: str,
    areas: bool,
    exclude_self: bool,
    divided: bool = False,
) -> Rule:
    """Return the rule of a statistic of a layer, or of cells or areas if `weights` is None.

    Raises
    ------
    InputError
        If the choices exclude each other.
    """
    refuse_rule(weights, statistic, areas, exclude_self)
    if weights is None:
        return SumRule(grid, areas, exclude_self, divided)
    if statistic == "below":
        return BelowRule(weights, SumRule(grid, areas))
    if statistic in ("sum", "mean"):
        return WeightRule(weights, statistic == "mean", areas, exclude_self, divided)
    return ExtremeRule(weights, statistic == "min")


def refuse_rule(weights: Any, statistic: str, areas: bool, exclude_self: bool) -> None:
    """Reject choices that exclude each other.

    Raises
    ------
    InputError
        If they do.
    """
    if weights is None:
        if statistic != "sum":
            raise ArgumentError(
                "{statistic} {value}: give the layer of values, {weights}", value=repr(statistic)
            )
        return
    if exclude_self and statistic not in ("sum", "mean"):
        raise ArgumentError(
            "{exclude_self} cannot be combined with {statistic} {value}, which always includes the "
            "cell itself",
            value=repr(statistic),
        )
    if areas and statistic not in ("sum", "below"):
        raise ArgumentError(
            "{areas} cannot be combined with the {value} of {weights}, in which all cells count "
            "the same",
            value=statistic,
        )


def largest_weight(layer: Layer) -> float | int:
    """Return the largest absolute value in a layer."""
    return max(map(abs, extremes(layer)))


def extremes(layer: Layer) -> tuple[float | int, float | int]:
    """Return the smallest and the largest value: as recorded, else from all cells; 0 if none."""
    if layer.is_sealed:
        values = [layer.statistics()[key] for key in ("min", "max")]
    else:  # written by another program
        each = [stats(layer.read_block(*at), layer.nodata) for at in layer.blocks.ids()]
        values = [value for one in each for value in (one.low, one.high)]
    values = [value for value in values if value is not None] or [0]
    return min(values), max(values)


def named_largest(layer: Layer) -> str:
    """Return words for messages that name a layer and its cell of the largest absolute value."""
    largest = largest_weight(layer)
    for at in layer.blocks.ids():
        data = layer.read_block(*at)
        cells = np.argwhere(
            ~is_nodata(data, layer.nodata) & ((data == largest) | (data == -largest))
        )
        for row, col in cells[:1].tolist():
            r0, _, c0, _ = layer.blocks.window(*at)
            return (
                f"{layer.path}: the value {data[row, col]!s} at row {r0 + row}, column {c0 + col}"
            )
    return f"{layer.path}: the value {largest}"


def with_weight(layer: Layer, window: Window, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mask of cells that drain and have a weight.

    Raises
    ------
    InputError
        If a weight is infinite.
    """
    absent = is_nodata(weights, layer.nodata)
    if layer.dtype.kind == "f":
        infinite = absent & (codes != NOWHERE) & np.isinf(weights)
        if layer.nodata is not None:
            infinite &= weights != layer.nodata
        for row, col in np.argwhere(infinite)[:1].tolist():
            raise InputError(
                f"{layer.path}: row {window[0] + row}, column {window[2] + col}: the weight is "
                f"{weights[row, col]}; give finite weights, or nodata"
            )
    return (codes != NOWHERE) & ~absent


def _order(bits: np.ndarray) -> np.ndarray:
    """Map the bits of floats to integers in the order of the floats, or back."""
    ones = np.iinfo(bits.dtype).max
    return bits ^ ((bits >> (8 * bits.itemsize - 1)) & ones)


def described_sums(grid: GridSpec, weights: Layer | None, statistic: str, areas: bool) -> Findings:
    """Return the attributes that give the unit of sums, means or extremes of upstream weights."""
    if statistic in ("max", "min"):
        return units.same_quantity(weights)
    area = units.of_areas(grid) if areas else ""
    if weights is None or statistic == "below":
        return units.in_unit(area)
    unit = units.unit_of(weights)
    return units.in_unit(units.product(unit, area) if unit and areas else unit)
