"""Convert costs as stated by the user to costs as computed: a formula and a friction layer.

A formula may name a layer of the store, which is then the friction layer, and a table of vertical
factors becomes a factor of the formula.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...arguments import real
from ...errors import ArgumentError, InputError
from ...io.text_tables import ADVICE, is_heading, read_lines
from ...plurals import counted
from ...store import TileStore
from .formula.presets import PRESETS
from .formula.tree import CONSTANTS, FRICTIONS, FUNCTIONS, NAMES, read_formula
from .models import MODELS, friction_beside, refuse_unknown, row_of, usual_cost

MOST_FACTORS = 200
"""Largest number of lines in a table of factors."""

_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")

VerticalFactor = str | os.PathLike[str] | Sequence[tuple[float, float]]


class StatedCost(NamedTuple):
    """The arguments of `models.CostModel`, a model or formula and its parameters; and frictions.

    Attributes
    ----------
    cost, parameters
        The model or formula, and its parameters.
    friction
        Frictions to read in addition to elevations, a layer or an array; None if there are none.
    stated
        The cost as stated by the user.
    """

    cost: str
    parameters: dict[str, float]
    friction: Any
    stated: str


def stated_cost(
    data: Any,
    cost: Any,
    heights: Any,
    friction: Any,
    parameters: Mapping[str, float] | None,
    vertical_factor: VerticalFactor | None = None,
) -> StatedCost:
    """Convert the arguments of `shortest_paths` to a model.

    Parameters
    ----------
    data
        A store or its path; or an array, for which formulas cannot name layers.
    cost
        A model or formula; None for the default model.
    heights, friction
        Names of layers, or arrays.
    vertical_factor
        See `shortest_paths`.

    Raises
    ------
    InputError
        when frictions are missing, a formula names several layers, or the factors are not valid.
    """
    if cost is None:
        cost = usual_cost(friction)
    stated, own = cost, dict(parameters or {})
    if isinstance(data, str | os.PathLike | TileStore) and row_of(cost).name == "formula":
        layers = {*TileStore.open(data).layers} - {heights}
        cost, friction = with_named_layer(cost, friction, layers, own)
        refuse_unknown(cost, own)
        read_formula(cost, own, layers)  # its error names the layers
    if vertical_factor is not None:
        cost, own = _with_factors(cost, heights, friction, own, _factors(vertical_factor))
    return StatedCost(cost, own, friction_beside(cost, heights, friction), stated)


def with_named_layer(
    cost: str, friction: Any, layers: Collection[str], parameters: Collection[str] = ()
) -> tuple[str, Any]:
    """Return a formula in which "friction" replaces the layer that it names, and that layer.

    Like `friction`, ``snow`` is the mean of both cells of a step, and ``snow_from`` and ``snow_to``
    are those of each.

    Raises
    ------
    InputError
        when it names several layers, or one in addition to other frictions or ``friction``.
    """
    own = {*NAMES, *parameters}
    # With a layer z, z_from would be an elevation: only --friction can name that layer.
    stems = {name.removesuffix("_from") for name in NAMES}
    free = {*layers} - {*own, *stems, *CONSTANTS, *FUNCTIONS}

    def meant(word: str) -> str | None:
        """The layer that a word of the formula refers to."""
        if word in own:
            return None
        if word in free:
            return word
        layer = re.sub("_(from|to)$", "", word)
        return layer if layer in free else None

    words = {*_WORD.findall(cost)}
    named = {*map(meant, words)} - {None}
    if not named:
        return cost, friction
    # Without a friction layer, "friction" would silently refer to the named layer.
    same = isinstance(friction, str) and friction in named
    beside = bool(FRICTIONS & words) if friction is None else not same
    several = [*(["friction"] if beside else []), *sorted(filter(None, named))]
    if len(several) > 1:
        raise InputError(
            f"the formula uses {' and '.join(several)}, but it may use only one layer in addition "
            "to the elevations; combine them first with terrain-gpu calc"
        )
    (name,) = several
    return _WORD.sub(
        lambda found: f"friction{found[0][len(name) :]}" if meant(found[0]) else found[0], cost
    ), name


def read_factors(path: str | os.PathLike[str]) -> list[tuple[float, float]]:
    """Read a table of vertical factors from a text file.

    Each line has an angle in degrees and the factor of steps with this slope. The first line of
    numbers determines whether they are separated by a semicolon, a comma or blanks. The first line
    may hold names.

    Raises
    ------
    InputError
        when the file cannot be read or a line is not two numbers; names the line.
    """
    lines = [(k, line.strip()) for k, line in enumerate(read_lines(path, "factors"), 1)]
    lines = [(number, line) for number, line in lines if line]
    if lines and is_heading(lines[0][1].split(_mark(lines[0][1]))):
        del lines[0]
    found = []
    for number, line in lines:
        try:
            fields = line.split(_mark(lines[0][1]))
            while fields and not fields[-1].strip():  # spreadsheets may write empty fields
                del fields[-1]
            angle, factor = map(float, fields)
        except ValueError:
            raise InputError(
                f"{path}: line {number}: {line[:60]!r} is not an angle and its factor; correct it "
                f"({ADVICE})"
            ) from None
        found.append((angle, factor))
    return found


def _mark(line: str) -> str | None:
    """The separator of the fields in a line; None for blanks."""
    return next((mark for mark in ";," if mark in line), None)


def _factors(given: Any) -> list[tuple[float, float]]:
    """Check the points of a table."""
    name, found = "vertical_factor", given
    if isinstance(given, str | os.PathLike):
        name, found = os.fspath(given), read_factors(given)
    if not 2 <= len(found) <= MOST_FACTORS:
        count = counted(len(found), "factor")
        raise InputError(f"{name}: {count}; give 2 to {MOST_FACTORS}")
    before = -math.inf
    for angle, factor in found:
        if angle == before:
            raise InputError(f"{name}: angle {angle:g} occurs twice; delete one")
        if not (-90 <= angle <= 90 and angle > before):
            raise InputError(
                f"{name}: angle {angle:g}: angles must be from -90 to 90 degrees, and ascending"
            )
        if not 0 <= factor < math.inf:
            raise InputError(
                f"{name}: factor {factor:g} at {angle:g} degrees: give a finite number, 0 or more"
            )
        before = angle
    # The repr of numpy's numbers is not a number.
    return [(real(name, angle), real(name, factor)) for angle, factor in found]


def _with_factors(
    cost: str,
    heights: Any,
    friction: Any,
    parameters: dict[str, float],
    factors: Iterable[tuple[float, float]],
) -> tuple[str, dict[str, float]]:
    """A formula with vertical factors, and its parameters."""
    model, text = row_of(cost), cost
    if cost in MODELS:
        if model.friction in ("own", "refused"):
            raise ArgumentError(
                "{cost} {name} cannot be combined with {vertical_factor}; choose another {cost}, "
                "such as surface",
                name=repr(cost),
            )
        if model.friction == "needed" and friction_beside(cost, heights, friction) is None:
            raise ArgumentError(
                "{vertical_factor} needs elevations, but {layer} holds the frictions; name a layer "
                "of elevations in addition to that of {friction}"
            )
        text = model.formula
    elif cost in PRESETS:
        text, parameters = PRESETS[cost].formula, {**PRESETS[cost].parameters, **parameters}
    if friction is not None and model.friction == "factor":
        text = f"({text}) * friction"
    points = ", ".join(f"{angle!r}, {factor!r}" for angle, factor in factors)
    return f"({text}) * interp(degrees(atan(slope)), {points})", parameters
