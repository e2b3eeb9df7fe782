"""Cost models: the cost of a step from a cell to its neighbour.

`MODELS` is the table of cost models. A new model is added here and in docs/reference.md, and in
cuda/kernels/costs.cuh if it is to run on a GPU. Commands read their choices from this table, so
this module must not load numba: `edges` compiles the models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ...arguments import CostName, described, refused
from ...errors import ArgumentError, InputError, PlanError
from ...similar import did_you_mean
from .formula.presets import PRESETS
from .formula.program import Formula, compiled
from .formula.tree import CONSTANTS, NAMES, FormulaTree, read_formula

AS_THEY_ARE = 1.0, 1.0
"""Factors of elevations and lengths that leave them unchanged."""

# -- operations that `edges` compiles ----------------------------------------------------------


def bits_of(x: float) -> int:
    """A float64's bits as int64."""
    return int(np.float64(x).view(np.int64))


def float_of(bits: int) -> float:
    """The float64 with these bits; of a longer integer, the lowest 64 are used."""
    return float(np.uint64(bits % 2**64).view(np.float64))


def quotient(a: float, b: float) -> float:
    """a / b, compiled without numba's test for zero, which prevents vectorisation."""
    return a / b


def exponential(x: Any) -> Any:
    """exp(x) for x >= 0 with the same bits on every processor: no library, no fused operations.

    After e_exp.c of fdlibm (Sun Microsystems 1993); the error is below 1 ulp. costs.cuh has the
    same operations in the same order. Free of branches, so that it can be vectorised.
    """
    shifted = x * 1.44269504088896338700 + 6755399441055744.0  # 1.5 * 2**52: rounds to an integer
    k = shifted - 6755399441055744.0
    high = x - k * 6.93147180369123816490e-01
    low = k * 1.90821492927058770002e-10
    r = high - low
    t = r * r
    c = 4.13813679705723846039e-08
    c = -1.65339022054652515390e-06 + t * c
    c = 6.61375632143793436117e-05 + t * c
    c = -2.77777777770155933842e-03 + t * c
    c = 1.66666666666666019037e-01 + t * c
    c = r - t * c
    y = 1.0 - ((low - quotient(r * c, 2.0 - c)) - high)
    # Twice half the power of two: the largest power is not a float64.
    y = y * float_of((bits_of(shifted) + 1022) << 52) * 2.0
    return math.inf if x > 709.782712893384 else y


# -- the models --------------------------------------------------------------------------------
#
# A model is a `NamedTuple` of its parameters with an edge function. The function takes the model,
# the elevations and frictions of both cells and the length of the step. It returns the cost of the
# step from the first cell to the second, which is at least 0.


class AbsDiff(NamedTuple):
    """|dz|, the difference in elevation, up or down."""


def _absdiff(cost: object, a: Any, b: Any, fa: object, fb: object, length: object) -> Any:
    return max(a, b) - min(a, b)


class Friction(NamedTuple):
    """Mean friction of both cells x length (r.cost; scikit-image's MCP_Geometric)."""


def _friction(cost: object, a: object, b: object, fa: Any, fb: Any, length: Any) -> Any:
    return 0.5 * (fa + fb) * length


class Surface(NamedTuple):
    """Length of the step along the surface: sqrt(length² + dz²)."""


def _surface(cost: object, a: Any, b: Any, fa: object, fb: object, length: Any) -> Any:
    return math.sqrt(length * length + (b - a) * (b - a))


class Tobler(NamedTuple):
    """Seconds of walking: 6 exp(-3.5 |dz / length + 0.05|) km/h.

    W. Tobler, "Three presentations on geographical analysis and modeling", NCGIA technical report
    93-1, 1993. Elevations and lengths in metres.
    """


def _tobler(cost: object, a: Any, b: Any, fa: object, fb: object, length: Any) -> Any:
    return length * 0.6 * exponential(3.5 * abs(quotient(b - a, length) + 0.05))


class Langmuir(NamedTuple):
    """Seconds of walking, as in r.walk: a length + b uphill + c moderate and d steep downhill.

    A descent is steep if dz / length is below `slope_factor`. `lam` x friction x length is added.
    E. Langmuir, "Mountaincraft and leadership", 1984; the GRASS manual of r.walk.
    """

    a: float = 0.72
    b: float = 6.0
    c: float = 1.9998
    d: float = -1.9998
    slope_factor: float = -0.2125
    lam: float = 1.0


def _langmuir(cost: Any, a: Any, b: Any, fa: Any, fb: Any, length: Any) -> Any:
    dz = b - a
    slope = quotient(dz, length)
    factor = cost.b if slope >= 0.0 else (cost.d if slope < cost.slope_factor else cost.c)
    walk = max(dz * factor + cost.a * length, 0.0)
    return walk + cost.lam * (0.5 * (fa + fb)) * length


class Minimax(NamedTuple):
    """Highest elevation along the path: costs are combined by maximum, not added.

    The cost of a step is the elevation of its higher end, so that of the source is included.
    """


def _minimax(cost: object, a: Any, b: Any, fa: object, fb: object, length: object) -> Any:
    return max(a, b) + 0.0  # of 0.0 and -0.0, max would return whichever comes first


class Scaled(NamedTuple):
    """Another model, multiplied by the mean friction of both cells."""

    cost: Any


class Hops(NamedTuple):
    """Number of steps on a flat, see `finalise`; not available to users."""


def _hop(cost: object, a: object, b: object, fa: object, fb: object, length: object) -> int:
    return 1


# -- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A row of the table of cost models.

    Attributes
    ----------
    name
        The name for users.
    kernel
        The `NamedTuple` of its parameters, the type for which kernels are compiled.
    edge
        The edge function; None for formulas, whose programs `formula.machine` runs.
    cuda
        Its name in kernels/costs.cuh; None if it has no edge function there.
    friction
        Role of a friction layer: "factor", the mean friction scales the cost; "own", the edge
        function uses it if there is one; "needed", the edge function uses it instead of elevations;
        "refused", not allowed.
    directed
        Whether a step may cost more in one direction than in the other.
    metric
        Whether elevations and lengths must be in metres, and are converted to metres.
    lengths
        Whether the edge function uses the length of the step.
    integer
        Whether steps between integer elevations have integer costs.
    bottleneck
        Whether costs are combined by maximum, not added.
    unit
        Unit of distances, if it is not that of elevations, lengths or frictions.
    not_negative
        Parameters that must not be negative.
    friction_weights
        Parameters that weight frictions of role "own"; set to 0 without a friction layer.
    formula
        The same cost as a formula, without the factor, for slope limits. "" if there is none.
    """

    name: str
    kernel: type
    edge: Callable[..., Any] | None
    cuda: str | None
    friction: Literal["factor", "own", "needed", "refused"] = "factor"
    directed: bool = False
    metric: bool = False
    lengths: bool = True
    integer: bool = False
    bottleneck: bool = False
    unit: str = ""
    not_negative: tuple[str, ...] = ()
    friction_weights: tuple[str, ...] = ()
    formula: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        return self.kernel._fields  # type: ignore[attr-defined]

    @property
    def least(self) -> float:
        """Lower bound of all distances."""
        return -math.inf if self.bottleneck else 0


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            *("absdiff", AbsDiff, _absdiff, "ABSDIFF"),
            lengths=False,
            integer=True,
            formula="abs(dz)",
        ),
        Model(
            *("friction", Friction, _friction, "FRICTION_MODEL", "needed"),
            formula="friction * length",
        ),
        Model(
            *("surface", Surface, _surface, "SURFACE"), formula="sqrt(length * length + dz * dz)"
        ),
        Model(
            *("tobler", Tobler, _tobler, "TOBLER"),
            directed=True,
            metric=True,
            unit="s",
            formula="length * 0.6 * exp(3.5 * abs(slope + 0.05))",
        ),
        Model(
            *("langmuir", Langmuir, _langmuir, "LANGMUIR", "own"),
            directed=True,
            metric=True,
            unit="s",
            not_negative=("a", "lam"),
            friction_weights=("lam",),
            formula="max(dz * where(slope >= 0, b, where(slope < slope_factor, d, c)) + a * length,"
            " 0) + lam * friction * length",
        ),
        Model("minimax", Minimax, _minimax, "MINIMAX", "refused", lengths=False, bottleneck=True),
    )
}

_HOPS = Model("hops", Hops, _hop, "HOPS", "refused", lengths=False)
_FORMULA = Model("formula", Formula, None, "FORMULA", "own", directed=True)


def row_of(cost: str) -> Model:
    """The row of a model, or a row for a preset or formula, which is not checked here."""
    if cost in MODELS:
        return MODELS[cost]
    if preset := PRESETS.get(cost):
        return replace(_FORMULA, name=cost, friction="factor", metric=True, unit=preset.unit)
    return _FORMULA


def model_of(cost: Any) -> Model:
    """The row of a kernel or of its type; for `Scaled`, the row of the scaled model."""
    if isinstance(cost, Scaled):
        cost = cost.cost
    kind = cost if isinstance(cost, type) else type(cost)
    return next(model for model in (*MODELS.values(), _HOPS, _FORMULA) if model.kernel is kind)


def is_directed(cost: Any) -> bool:
    """Whether a step may cost more in one direction than in the other."""
    return not cost.symmetric if isinstance(cost, Formula) else model_of(cost).directed


def cuda_parameters(cost: Any) -> np.ndarray:
    """Parameters of a kernel for kernels/costs.cuh, padded to the number of langmuir's."""
    own = cost.cost if isinstance(cost, Scaled) else cost
    own = () if isinstance(cost, Formula) else own  # part of its code
    found = np.zeros(max(len(own), len(Langmuir._fields)))
    found[: len(own)] = own
    return found


def cuda_name(cost: Any) -> str:
    """Name in kernels/costs.cuh of the model of a kernel.

    Raises
    ------
    PlanError
        when the model is not available on a GPU.
    """
    model = model_of(cost)
    if model.cuda is None:
        raise PlanError(f"cost {model.name!r} is not available on a GPU; use --backend cpu")
    return model.cuda


def friction_beside(cost: str, heights: Any, friction: Any) -> Any:
    """The frictions to read in addition to the elevations; None if there are none.

    With a model that needs frictions, the raster itself may hold them; it is then read only once.

    Parameters
    ----------
    cost
        Key of `MODELS`, a preset or a formula.
    heights, friction
        Names of layers, or arrays.

    Raises
    ------
    InputError
        when the model needs frictions and none are given.
    """
    if row_of(cost).friction != "needed":
        return friction
    if friction is None:
        itself = f"{heights!r}" if isinstance(heights, str) else "data"
        raise ArgumentError(
            "{cost} {name} needs frictions: set {friction} to their layer or file, which may be "
            "{itself} itself if it holds frictions",
            name=repr(cost),
            itself=itself,
        )
    named = isinstance(heights, str) and isinstance(friction, str)
    return None if friction is heights or (named and friction == heights) else friction


class CostModel:
    """A cost model with its parameters.

    Parameters
    ----------
    name
        Key of `MODELS` or `PRESETS`, or a formula.
    friction
        Whether there is a friction layer.
    parameters
        Parameters of the model; for a formula, values of names in it.
    max_slope
        Steps with |dz| / length above this value do not exist.
    connectivity
        With 16, knight's moves use the means of two cells, so distances are not integers.
    metres
        Factors of differences of elevations and of lengths: to metres if the model needs them,
        otherwise to a common unit, for slopes. The user's formulas get both unconverted.

    Attributes
    ----------
    kind
        The row of the model in the table.
    name
        The name of the model; for a formula, its normalised text.
    tree
        The formula that the kernel computes; None if it does not compute one.
    kernel
        Instance of the model's kernel, wrapped in `Scaled` if a friction layer multiplies it.
    needs_friction
        Whether the kernels read frictions.
    """

    def __init__(
        self,
        name: str,
        friction: bool,
        parameters: dict[str, float],
        max_slope: float | None = None,
        connectivity: int = 8,
        metres: tuple[float, float] = AS_THEY_ARE,
    ) -> None:
        self._made_of = name, friction, parameters, max_slope, connectivity, metres
        self.connectivity = connectivity
        self.name = name
        self.tree: FormulaTree | None = None
        self.kernel: Any
        self.kind = model = row_of(name)
        for key, value in parameters.items():
            if not math.isfinite(value):
                raise InputError(f"parameter {key}={value} of {name!r} is not a finite number")
        self.parameters = {k: float(v) for k, v in parameters.items()}
        if name in MODELS:
            self._known(model.parameters)
        if model.friction == "refused" and friction:
            raise ArgumentError("{cost} {name} does not use {friction}; leave it out", name=name)
        for key in model.not_negative:
            if self.parameters.get(key, 0.0) < 0:
                raise InputError(f"parameter {key}={parameters[key]} of {name!r} is negative")
        self.needs_friction = friction or model.friction == "needed"
        if max_slope is not None and not max_slope >= 0:
            raise refused("max_slope", " {value} is not a number of at least 0", value=max_slope)
        if name not in MODELS or max_slope is not None or metres != AS_THEY_ARE:
            self.tree = self._tree(friction, max_slope, metres)
            self.kernel = compiled(self.tree)
            self.kind = replace(model, kernel=Formula, directed=not self.tree.is_symmetric)
            self.kind = replace(self.kind, integer=False, lengths=True, cuda="FORMULA")
            return
        self.kernel = model.kernel(**self.parameters)
        if not friction:
            self.kernel = self.kernel._replace(**dict.fromkeys(model.friction_weights, 0.0))
        if friction and model.friction == "factor":
            self.kernel = Scaled(self.kernel)

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled arrays may be read-only, for which kernels would be compiled again.
        return CostModel, self._made_of

    def _known(self, names: Sequence[str]) -> None:
        """Reject parameters with other names."""
        if unknown := set(self.parameters) - set(names):
            known = ", ".join(names) or "none"
            raise InputError(
                f"cost {self.name!r} has no parameter {unknown.pop()!r} (it has {known})"
            )

    def _tree(
        self, friction: bool, max_slope: float | None, metres: tuple[float, float]
    ) -> FormulaTree:
        """The formula of a model, a preset or the user, with friction and slope limit."""
        values, model = self.parameters, self.kind
        scaled = metres if model.metric or model.name == "surface" else AS_THEY_ARE
        if self.name in MODELS:
            if model.friction == "needed" and not friction:
                raise ArgumentError(
                    "{max_slope} needs elevations, but {layer} holds the frictions; name a layer "
                    "of elevations in addition to that of {friction}"
                )
            if not model.formula:
                raise ArgumentError(
                    "{cost} {name} cannot be combined with {max_slope}; leave it out",
                    name=self.name,
                )
            values = model.kernel(**values)._asdict()
            if not friction:
                values |= dict.fromkeys(model.friction_weights, 0.0)
            text = model.formula
        elif preset := PRESETS.get(self.name):
            self._known(tuple(preset.parameters))
            text, values = preset.formula, {**preset.parameters, **values}
        else:
            refuse_unknown(self.name, values)
            own = read_formula(self.name, values)
            self.name = text = own.text
            if unused := set(values) - own.names:
                raise InputError(f"the formula does not use parameter {unused.pop()!r}")
            if own.needs_friction and not friction:
                raise ArgumentError("the formula uses friction: name its layer with {friction}")
            if friction and not own.needs_friction:
                raise InputError(
                    "the formula does not use friction; multiply by friction, or leave out the "
                    "layer"
                )
        if friction and model.friction == "factor":
            text = f"({text}) * friction"
        if max_slope is not None and max_slope < math.inf:
            rise = "abs(dz)" if scaled == metres else f"abs(dz) * {abs(metres[0])!r}"
            text = f"where({rise} > {max_slope!r} * length, inf, {text})"
        return read_formula(text, values, factors=dict(zip(("dz", "length"), scaled, strict=True)))

    def is_integer(self, dtype: np.dtype) -> bool:
        """Whether distances over elevations of this type are integers."""
        halved = self.connectivity == 16
        return self.kind.integer and not (halved or self.needs_friction) and dtype.kind in "iu"

    def distance_dtype(self, dtype: np.dtype) -> np.dtype:
        """Dtype of distances: uint32 (widened when it overflows), uint64 or float64."""
        if not self.is_integer(dtype):
            return np.dtype(np.float64)
        return np.dtype(np.uint32 if dtype.itemsize <= 2 else np.uint64)


def usual_cost(friction: Any) -> CostName:
    """The default model: with frictions, costs are frictions, as in r.cost; else elevations."""
    return "absdiff" if friction is None else "friction"


def refuse_unknown(text: str, parameters: Collection[str] = ()) -> None:
    """Reject a text that is meant as the name of a model but is not one."""
    if text in MODELS or text in PRESETS:
        return
    known = {*NAMES, *CONSTANTS, *parameters}
    words = re.findall(r"\b[A-Za-z_]\w*", text)
    if re.fullmatch(r"[A-Za-z][\w-]*", text) and not known.issuperset(words):
        raise _unknown(text)


def cost_text(name: str, value: Any) -> str:
    """Check that an argument is a string; `CostModel` checks the rest."""
    if not isinstance(value, str):
        raise _unknown(value)
    return value


def refuse_bottleneck(cost: str | None) -> None:
    """Reject a cost in which the costs of parts of a path do not add up."""
    if cost == "minimax":
        raise ArgumentError(
            "{cost} minimax: the cost of a path is its highest cell, so the costs of its parts do "
            "not add up; choose another {cost}"
        )


def _unknown(value: object) -> ArgumentError:
    return ArgumentError(
        "{cost} {value} is not known; use one of {known}, or a formula such as "
        "'length * exp(abs(slope))'{like}",
        value=described(value),
        like=did_you_mean(value, (*MODELS, *PRESETS)),
        known=", ".join((*MODELS, *PRESETS)),
    )
