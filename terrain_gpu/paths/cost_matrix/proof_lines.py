"""Prove the file of the paths of a matrix before it is published: `prove_lines`.

`proof` proves the costs at the targets, which are in the rows. Here every line must belong to a
row, begin in its source and end at the cell of its target, and the costs of its steps, computed
again one by one (`paths.proof.lines`), must add up to the cost of the row, bit for bit. Lengths and
climbs are summed again exactly; those of the run, sums in twice the precision, may differ in the
last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import VerificationError
from ...facts import JsonObject
from ...io.proof.line_files import LineFile, check_attributes, count_lines, wrong_line
from ...progress import Progress, silent
from ..proof.lines import PathLines

if TYPE_CHECKING:
    from .operation import MatrixProblem


class PathClaim(NamedTuple):
    """The content of a row about its path.

    Attributes
    ----------
    source
        Number of the place where it begins.
    end
        Row and column of its last cell.
    attributes
        From, to, cost, length and climb, if they exist.
    """

    source: int
    end: tuple[int, int]
    attributes: JsonObject


def prove_lines(
    part: Path,
    path: Path,
    problem: MatrixProblem,
    layer: str,
    claims: Iterator[PathClaim],
    memory_limit: int,
    progress: Progress = silent,
) -> int:
    """Compare the lines of a file with rows, in their order; return the number of steps.

    Parameters
    ----------
    progress
        Called with the lines just compared and all lines.

    Raises
    ------
    VerificationError
        at the first line that is wrong.
    PlanError
        when the memory limit is too small.
    """
    fields = "from", "to", "cost", "length", "climb"
    file = LineFile(part, path, problem.grid, layer, fields, wraps=problem.wrap)
    how = problem.ground, problem.options, problem.dtype, memory_limit
    lines, cols, steps = PathLines(file, *how), problem.grid.cols, 0
    count = count_lines(file)
    source, begins = -1, dict[int, Any]()
    for batch, walked in lines.batches():
        steps += len(batch.cells) - len(batch.attributes)
        for n, own in enumerate(batch.attributes):
            number, (a, b) = batch.number + n, batch.starts[n : n + 2].tolist()
            claim = next(claims, None)
            if claim is None:
                wrong_line(path, number, "is not the path of any further row")
            if claim.source != source:
                source, begins = claim.source, _begins(problem, claim.source)
            there = {key: value for key, value in own.items() if value is not None}
            check_attributes(path, number, there, claim.attributes)
            first, last = (int(batch.cells[k]) for k in (a, b - 1))
            named = f"the path from {own['from']} to {own['to']}"
            if first not in begins:
                wrong_line(path, number, f"{named} begins at {lines.named(first)}, not at a source")
            if divmod(last, cols) != claim.end:
                wrong_line(path, number, f"{named} ends at {lines.named(last)}, not at its target")
            cost = lines.total(begins[first], walked.prices[a:b])
            if cost != own["cost"]:
                what = f"the steps of {named}, as far as {lines.named(last)}, cost {cost}"
                wrong_line(path, number, f"{what}, not {own['cost']}")
            sums = {"length": walked.lengths[a:b], "climb": walked.rises[a:b]}
            for name in sums.keys() & claim.attributes.keys():
                right = math.fsum(sums[name].tolist())
                if abs(right - own[name]) > math.ulp(right):
                    what = f"{name} is {own[name]!r} instead of {right!r}"
                    wrong_line(path, number, f"{named}: {what}", "attribute")
        progress(len(batch.attributes), count)
    if (left := next(claims, None)) is not None:
        ends = (left.attributes[key] for key in ("from", "to"))
        raise VerificationError(
            f"{path}: has no line from {' to '.join(map(str, ends))}; write it again with "
            "--overwrite",
            "line",
        )
    return steps


def _begins(problem: MatrixProblem, source: int) -> dict[int, Any]:
    """The cells of a source, and the start costs of paths there."""
    ground, found = problem.ground.holding(problem.starts.place(source)), dict[int, Any]()
    for at, _ in ground.starts():
        r0, _, c0, _ = problem.blocks.window(*at)
        rows, cols, values = ground.seeds(at, ground.load(at))
        cells = (rows + r0) * problem.grid.cols + cols + c0
        for cell, value in zip(cells.tolist(), values.astype(problem.dtype).tolist(), strict=True):
            found[cell] = min(value, found.get(cell, value))
    return found


def claimed(source: int, end: np.ndarray, attributes: JsonObject) -> PathClaim:
    """The claim of a row; attributes that are None are left out."""
    row, col = end.tolist()
    there = {key: value for key, value in attributes.items() if value is not None}
    return PathClaim(source, (row, col), there)
