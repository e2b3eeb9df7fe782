"""Cost models: what a step from a cell to its neighbour costs.

A model is a `NamedTuple` of its parameters with an edge function: the one place to touch for a new
one. Kernels are compiled for the type of the model, so the function is inlined into them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload, register_jitable

from ..errors import InputError

_EDGES: dict[type, Callable[..., Any]] = {}


def _edge(model: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function as the edge function of a model.

    It gets the model, heights and frictions of both cells, the length of the step, and returns the
    cost of going from the first cell to the second, at least 0.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        _EDGES[model] = function
        return function

    return declare


@intrinsic
def _bits_of(typing, x):
    """A float64's bits as int64."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), emit


@intrinsic
def _float_of(typing, bits):
    """The float64 of these bits."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), emit


@intrinsic
def _quotient(typing, a, b):
    """a / b without numba's test for zero, which keeps loops from being vectorised."""

    def emit(context, builder, signature, arguments):
        return builder.fdiv(*arguments)

    return types.float64(types.float64, types.float64), emit


@register_jitable
def exponential(x):
    """exp(x) for x >= 0, the same bits on every processor: no library, no fused operation.

    After fdlibm's e_exp.c (Sun Microsystems 1993), below 1 ulp; costs.cuh has the same operations
    in the same order. Without branches, so that it is vectorised.
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
    y = 1.0 - ((low - _quotient(r * c, 2.0 - c)) - high)
    # Twice half the power, as the largest is no float64.
    y = y * _float_of((_bits_of(shifted) + 1022) << 52) * 2.0
    return math.inf if x > 709.782712893384 else y


class AbsDiff(NamedTuple):
    """|dz|, the difference of elevation, up or down."""


@_edge(AbsDiff)
def _absdiff(cost, a, b, fa, fb, length):
    return max(a, b) - min(a, b)


class Friction(NamedTuple):
    """Mean friction of both cells x length (r.cost; scikit-image's MCP_Geometric)."""


@_edge(Friction)
def _friction(cost, a, b, fa, fb, length):
    return 0.5 * (fa + fb) * length


class Surface(NamedTuple):
    """Length of the step on the surface: sqrt(length² + dz²)."""


@_edge(Surface)
def _surface(cost, a, b, fa, fb, length):
    return math.sqrt(length * length + (b - a) * (b - a))


class Tobler(NamedTuple):
    """Seconds of walking: 6 exp(-3.5 |dz / length + 0.05|) km/h.

    W. Tobler, "Three presentations on geographical analysis and modeling", NCGIA technical report
    93-1, 1993. Heights and lengths in metres.
    """


@_edge(Tobler)
def _tobler(cost, a, b, fa, fb, length):
    return length * 0.6 * exponential(3.5 * abs(_quotient(b - a, length) + 0.05))


class Langmuir(NamedTuple):
    """Seconds of walking, as r.walk: a length + b uphill + c moderate and d steep downhill.

    Downhill is steep where dz / length is below `slope_factor`. Friction x length, times `lam`, is
    added. E. Langmuir, "Mountaincraft and leadership", 1984; the GRASS manual of r.walk.
    """

    a: float = 0.72
    b: float = 6.0
    c: float = 1.9998
    d: float = -1.9998
    slope_factor: float = -0.2125
    lam: float = 1.0


@_edge(Langmuir)
def _langmuir(cost, a, b, fa, fb, length):
    dz = b - a
    slope = _quotient(dz, length)
    factor = cost.b if slope >= 0.0 else (cost.d if slope < cost.slope_factor else cost.c)
    walk = max(dz * factor + cost.a * length, 0.0)
    return walk + cost.lam * (0.5 * (fa + fb)) * length


class Minimax(NamedTuple):
    """Highest elevation on the way: costs are joined by max, not added.

    Joining each step's higher end makes a source's own height count.
    """


@_edge(Minimax)
def _minimax(cost, a, b, fa, fb, length):
    return max(a, b) + 0.0  # of two zeros the order would choose the sign


class Scaled(NamedTuple):
    """Another model times the mean friction of both cells."""

    cost: Any


@_edge(Scaled)
def _scaled(cost, a, b, fa, fb, length):
    return edge(cost.cost, a, b, fa, fb, length) * (0.5 * (fa + fb))


class Hops(NamedTuple):
    """Steps on a flat, see `finalise`; not a model for users."""


def edge(cost, a, b, fa, fb, length):
    """Cost of a step, in compiled code."""
    raise RuntimeError("for compiled code only")


@overload(edge)
def _edge_of(cost, a, b, fa, fb, length):
    return _EDGES[cost.instance_class]


class Sum(NamedTuple):
    """Stands for every model whose costs are added, where nothing else matters of it."""


class Max(NamedTuple):
    """Stands for models whose costs are joined by max."""


def joining(cost):
    """`Sum` or `Max`, in compiled code too."""
    return Max() if isinstance(cost, Minimax) else Sum()


@overload(joining)
def _joining_of(cost):
    way = Max if cost.instance_class is Minimax else Sum
    return lambda cost: way()


def join(cost, distance, weight):
    """Distance behind one more step, in compiled code."""
    raise RuntimeError("for compiled code only")


@overload(join)
def _join_of(cost, distance, weight):
    if cost.instance_class in (Minimax, Max):
        return lambda cost, distance, weight: max(distance, weight)
    if isinstance(distance, types.Float):
        return lambda cost, distance, weight: distance + weight

    cast = np.uint32 if distance.bitwidth == 32 else np.uint64
    # Both are at most half of the range, see `largest`: no sum wraps.
    return lambda cost, distance, weight: cast(distance + weight)


def largest(a: np.ndarray) -> Any:
    """What stands for "not reached" in an array of distances: for integers, half of the range."""
    return np.inf if a.dtype.kind == "f" else np.iinfo(a.dtype).max >> 1


@overload(largest)
def _largest_of(a):
    if isinstance(a.dtype, types.Float):
        return lambda a: np.inf
    top = np.uint32(2**31 - 1) if a.dtype.bitwidth == 32 else np.uint64(2**63 - 1)
    return lambda a: top


METRIC = ("tobler", "langmuir")
"""Models of walking, that mean metres."""

MODELS: dict[str, type] = {
    "absdiff": AbsDiff,
    "friction": Friction,
    "surface": Surface,
    "tobler": Tobler,
    "langmuir": Langmuir,
    "minimax": Minimax,
}


def is_directed(cost: Any) -> bool:
    """Whether a step may cost more in one direction than in the other."""
    return isinstance(cost.cost if isinstance(cost, Scaled) else cost, Tobler | Langmuir)


def friction_beside(cost: str, heights: Any, friction: Any) -> Any:
    """The frictions that are read beside the heights; None where there are none.

    Of the model "friction", whose frictions may be the raster itself: then it is read once.

    Parameters
    ----------
    cost
        Key of `MODELS`.
    heights, friction
        Names of layers, or arrays.

    Raises
    ------
    InputError
        when the model needs frictions and has none.
    """
    if cost != "friction":
        return friction
    if friction is None:
        itself = f"{heights!r}" if isinstance(heights, str) else "data"
        raise InputError(
            "cost 'friction' needs frictions and takes no heights for such: name their layer "
            f"(--friction NAME, friction=NAME), which may be {itself} itself"
        )
    named = isinstance(heights, str) and isinstance(friction, str)
    return None if friction is heights or (named and friction == heights) else friction


class CostModel:
    """A model as the pipeline needs it.

    Attributes
    ----------
    name
        Key of `MODELS`.
    kernel
        Instance of the model, `Scaled` when a friction layer multiplies it.
    needs_friction
        Whether the kernels read frictions.
    """

    def __init__(self, name: str, friction: bool, parameters: dict[str, float]) -> None:
        if name not in MODELS:
            raise InputError(f"cost {name!r} is not known; use one of {', '.join(MODELS)}")
        model = MODELS[name]
        unknown = set(parameters) - set(model._fields)  # type: ignore[attr-defined]
        if unknown:
            known = ", ".join(model._fields) or "none"  # type: ignore[attr-defined]
            raise InputError(f"cost {name!r} has no parameter {unknown.pop()!r} (it has {known})")
        for key, value in parameters.items():
            if not math.isfinite(value):
                raise InputError(f"parameter {key}={value} of {name!r} is not a finite number")
        if name == "minimax" and friction:
            raise InputError("minimax takes no friction layer")
        self.name = name
        self.parameters = {k: float(v) for k, v in parameters.items()}
        if name == "langmuir":
            for key in ("a", "lam"):
                if self.parameters.get(key, 0.0) < 0:
                    raise InputError(f"parameter {key}={parameters[key]} of 'langmuir' is negative")
        self.kernel = model(**self.parameters)
        if name == "langmuir" and not friction:
            self.kernel = self.kernel._replace(lam=0.0)
        if friction and name not in ("friction", "langmuir"):
            self.kernel = Scaled(self.kernel)
        self.needs_friction = friction or name == "friction"

    def is_integer(self, dtype: np.dtype) -> bool:
        """Whether distances over heights of this type are integers."""
        return self.name == "absdiff" and not self.needs_friction and dtype.kind in "iu"

    def distance_dtype(self, dtype: np.dtype) -> np.dtype:
        """uint32 (promoted when it overflows), uint64 or float64."""
        if not self.is_integer(dtype):
            return np.dtype(np.float64)
        return np.dtype(np.uint32 if dtype.itemsize <= 2 else np.uint64)
