"""Formulas: text to a checked tree, and what is known about its values without cells.

The syntax is Python's, parsed by `ast` and never run: every node must be one that `_Reader` knows.
A tree has few operations. Powers, `interp` and parameters are expressed by them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ....errors import FormulaError, InputError
from ....similar import did_you_mean

NAMES = {
    "dz": "z_to - z_from",
    "length": "length of the step on the map",
    "slope": "dz / length",
    "friction": "mean friction of both cells",
    "z_from": "elevation of the cell that the step leaves",
    "z_to": "elevation of the cell that it reaches",
    "friction_from": "friction of the cell that the step leaves",
    "friction_to": "friction of the cell that it reaches",
}
FRICTIONS = {"friction", "friction_from", "friction_to"}
CONSTANTS = {"pi": math.pi, "inf": math.inf}
FUNCTIONS = ("abs", "atan", "degrees", "exp", "interp", "log", "max", "min", "sqrt", "where")

MOST_CHARACTERS = 20_000
MOST_NODES = 4000
"""Longest formula, and largest tree: enough for every table of vertical factors."""

_ABSENT = {
    **dict.fromkeys(("sin", "cos", "tan"), "the slope dz / length is a tangent already"),
    **dict.fromkeys(("pow", "power"), "write x ** y"),
    **dict.fromkeys(("ln", "log10"), "log(x) is the natural logarithm"),
    **dict.fromkeys(("if", "iif", "con"), "write where(condition, a, b)"),
    "radians": "write x * pi / 180",
}


Bounds = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Node:
    """A number, a name, or an operation on other nodes. Equal nodes are one object.

    Attributes
    ----------
    op
        "number", "name", one of + - * / < <= == !=, or a function: abs, atan, exp, log, max, min,
        sqrt, where. Comparisons give 1 or 0. Dividing by -0 is dividing by 0: no other operation
        tells them apart, so the sign of a zero never shows.
    args, value
        Operands; the number or the name.
    bounds
        Lower and upper bound of the values, NaN aside.
    parity
        How the value changes if the step is turned round: "even" not, "odd" its sign, "" unknown.
    """

    op: str
    args: tuple[Node, ...]
    value: float | str
    bounds: Bounds
    parity: str


@dataclass(frozen=True)
class FormulaTree:
    """A parsed formula.

    Attributes
    ----------
    nodes
        In an order in which operands come first; the last one is the cost.
    text
        The formula in one way of writing it.
    names
        The names that occur, parameters included.
    """

    nodes: tuple[Node, ...]
    text: str
    names: frozenset[str]

    @property
    def may_be_negative(self) -> bool:
        """Whether costs below 0 are not excluded without looking at cells."""
        return not self.nodes[-1].bounds[0] >= 0

    @property
    def is_symmetric(self) -> bool:
        """Whether a step and the one back certainly cost the same, to the last bit."""
        return self.nodes[-1].parity == "even"

    @property
    def needs_friction(self) -> bool:
        return bool(self.names & FRICTIONS)


def read_formula(
    text: str,
    parameters: Mapping[str, float],
    layers: Collection[str] = (),
    factors: Mapping[str, float] | None = None,
) -> FormulaTree:
    """Parse a formula.

    Parameters
    ----------
    text
        The formula: numbers, + - * / **, comparisons, and, or, not, `FUNCTIONS`, `NAMES`,
        `CONSTANTS` and the names of parameters.
    parameters
        Their values.
    layers
        Layers that a formula may name, for the message about an unknown name.
    factors
        What ``dz`` and ``length`` are multiplied by.

    Raises
    ------
    InputError
        for anything else, with the position.
    """
    for name in parameters:
        if name in NAMES or name in CONSTANTS or name in FUNCTIONS or not name.isidentifier():
            raise InputError(f"parameter {name!r}: this name is in use; choose another one")
    reader = _Reader(text, parameters, layers, factors or {})
    return FormulaTree(reader.used(), reader.one_way, frozenset(reader.names))


class _Reader:
    """Converts the nodes of Python's syntax to ours."""

    def __init__(
        self,
        text: str,
        parameters: Mapping[str, float],
        layers: Collection[str],
        factors: Mapping[str, float],
    ) -> None:
        self.layers, self.factors = layers, factors
        self.text = text = " ".join(text.split("\n")).strip()
        self.parameters, self.names = parameters, set[str]()
        self.nodes: dict[tuple[Any, ...], Node] = {}
        if not text:
            raise InputError("the cost formula is empty; give one such as 'length'")
        if len(text) > MOST_CHARACTERS:
            raise InputError(f"the formula has {len(text)} characters, more than {MOST_CHARACTERS}")
        for at, character in enumerate(text):
            if not " " <= character <= "~":
                self.refuse(at, f"{character!r} is not allowed")
        try:
            parsed = ast.parse(text, mode="eval").body
            self.tree = self.value(parsed)
            self.one_way = _unparsed(parsed)
        except SyntaxError as error:
            self.refuse(error.offset - 1 if error.offset else len(text), error.msg)
        except (RecursionError, MemoryError):
            raise InputError("the formula is nested too deeply; simplify it") from None

    def refuse(self, at: int | ast.AST, reason: str, like: str = "") -> NoReturn:
        """Raise the error for a position, with a caret below it."""
        at = at if isinstance(at, int) else at.col_offset  # type: ignore[attr-defined]
        first = max(0, at - 60)
        shown = self.text[first : first + 100]
        excerpt = f"  {shown}", f"  {' ' * (at - first)}^"
        raise FormulaError(f"cost formula: {reason}, at character {at + 1}{like}", excerpt)

    def node(self, at: ast.AST, op: str, *args: Node) -> Node:
        if len(self.nodes) > MOST_NODES:
            self.refuse(at, f"the formula has more than {MOST_NODES} operations")
        return self.once(op, args, 0.0)

    def once(
        self, op: str, args: tuple[Node, ...], value: float | str, parity: str | None = None
    ) -> Node:
        """The node of this kind; a new one if there is none so far."""
        kept = value.hex() if isinstance(value, float) else value  # 0 and -0 differ
        key = op, *map(id, args), kept
        if key not in self.nodes:
            known = _bounds(op, args, value), parity or _parity(op, args, value)
            self.nodes[key] = Node(op, args, value, *known)
        return self.nodes[key]

    def number(self, value: float) -> Node:
        return self.once("number", (), float(value))

    def used(self) -> tuple[Node, ...]:
        """The nodes that the tree consists of, operands first."""
        needed = {id(self.tree)}
        for node in reversed(self.nodes.values()):
            if id(node) in needed:
                needed.update(map(id, node.args))
        found = [node for node in self.nodes.values() if id(node) in needed]
        return tuple(found[: found.index(self.tree) + 1])

    # -- numbers ---------------------------------------------------------------------------------

    def value(self, at: ast.AST) -> Node:
        """The tree of a number. A sum of many terms is a deep tree, of which the left is a loop."""
        later = []
        while isinstance(at, ast.BinOp) and type(at.op) in _SIGNS:
            later.append(at)
            at = at.left
        found = self.part(at)
        for one in reversed(later):
            found = self.node(one, _SIGNS[type(one.op)], found, self.value(one.right))
        return found

    def part(self, at: ast.AST) -> Node:
        match at:
            case ast.Constant(value=bool() | complex() | str() | bytes() | None):
                self.refuse(at, f"{ast.unparse(at)} is not a real number")
            case ast.Constant(value=int() | float() as found):
                return self.constant(at, found)
            case ast.Name(id=name):
                return self.name(at, name)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.negative(at, self.value(operand))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self.power(at, self.value(left), self.value(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(at, name, args)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                self.refuse(at, "a condition is not a number; write where(condition, a, b)")
            case ast.IfExp():
                self.refuse(at, "write where(condition, a, b) instead of if and else")
            case ast.BinOp(left=left, op=ast.BitXor()):
                place = self.text.index("^", left.end_col_offset)
                self.refuse(place, "^ is not a power; write x ** y")
        self.refuse(at, f"{ast.unparse(at)[:40]!r} is not allowed in a formula")

    def constant(self, at: ast.AST, found: float) -> Node:
        try:
            if math.isfinite(float(found)):
                return self.number(found)
        except OverflowError:
            pass
        self.refuse(at, "the number is too large for a float64")

    def name(self, at: ast.AST, name: str) -> Node:
        self.names.add(name)
        if name in self.parameters:
            return self.number(self.parameters[name])
        if name in CONSTANTS:
            return self.number(CONSTANTS[name])
        if name in NAMES:
            return self.known(name)
        if name in FUNCTIONS:
            self.refuse(at, f"{name} is a function; write {name}(...)")
        known = ", ".join((*NAMES, *CONSTANTS, *self.parameters))
        layers = f"; layers: {', '.join(sorted(self.layers))}" if self.layers else ""
        known = f"{known}{layers}; or define it as a parameter"
        like = did_you_mean(name, (*NAMES, *CONSTANTS, *self.parameters, *self.layers, *FUNCTIONS))
        self.refuse(at, f"unknown name {name!r} (known: {known})", like)

    def known(self, name: str) -> Node:
        """A value of `NAMES`, some of which are made of others."""
        if self.factors.get(name, 1) != 1:
            return self.once("*", (self.plain(name), self.number(self.factors[name])), 0.0)
        return self.plain(name)

    def plain(self, name: str) -> Node:
        """The same without its factor."""
        if name == "dz":
            return self.once("-", (self.known("z_to"), self.known("z_from")), 0.0, "odd")
        if name == "slope":
            return self.once("/", (self.known("dz"), self.known("length")), 0.0)
        if name == "friction":
            both = self.known("friction_from"), self.known("friction_to")
            return self.once("*", (self.number(0.5), self.once("+", both, 0.0, "even")), 0.0)
        return self.once("name", (), name)

    def negative(self, at: ast.AST, of: Node) -> Node:
        if of.op == "number":
            return self.number(-float(of.value))
        return self.node(at, "*", of, self.number(-1))

    def power(self, at: ast.AST, base: Node, exponent: Node) -> Node:
        """x ** n for whole n by multiplication, x ** 0.5 by sqrt, others by exp and log."""
        n = float(exponent.value) if exponent.op == "number" else math.nan
        if n == 0.5:
            return self.node(at, "sqrt", base)
        if n.is_integer() and abs(n) <= 64:
            one = found = self.number(1)
            bits = f"{abs(int(n)):b}"
            for k, bit in enumerate(bits):
                if k:
                    found = self.node(at, "*", found, found)
                if bit == "1":
                    found = base if found is one else self.node(at, "*", found, base)
            return self.node(at, "/", one, found) if n < 0 else found
        return self.node(at, "exp", self.node(at, "*", exponent, self.node(at, "log", base)))

    def call(self, at: ast.AST, name: str, args: Sequence[ast.AST]) -> Node:
        if name not in FUNCTIONS:
            hint = f" ({_ABSENT[name]})" if name in _ABSENT else ""
            known = ", ".join(FUNCTIONS)
            self.refuse(at, f"unknown function {name!r}{hint}; known: {known}")
        least, most = _ARGUMENTS.get(name, (1, 1))
        if not least <= len(args) <= most or (name == "interp" and len(args) % 2 == 0):
            wanted = {"where": "3: condition, a, b", "interp": "x, x1, y1, x2, y2, ..."}.get(name)
            wanted = wanted or ("1" if most == 1 else "at least 2")
            self.refuse(at, f"{name} takes {wanted}; {len(args)} given")
        if name == "where":
            condition = self.condition(args[0])
            return self.node(at, "where", condition, *map(self.value, args[1:]))
        given = [self.value(arg) for arg in args]
        if name == "degrees":
            return self.node(at, "*", given[0], self.number(180 / math.pi))
        if name == "interp":
            return self.interp(at, args, given)
        if name in ("min", "max"):
            found = given[0]
            for other in given[1:]:
                found = self.node(at, name, found, other)
            return found
        return self.node(at, name, *given)

    def interp(self, at: ast.AST, args: Sequence[ast.AST], given: list[Node]) -> Node:
        """Straight lines between the points (x1, y1), (x2, y2), ...; infinite outside.

        NaN where x is.
        """
        for arg, node in zip(args[1:], given[1:], strict=True):
            if node.op != "number":
                self.refuse(arg, "the points of interp must be numbers")
        x, numbers = given[0], [float(node.value) for node in given[1:]]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        beyond = self.node(at, "<", self.number(points[-1][0]), x)
        found = self.node(at, "where", beyond, self.number(math.inf), x)  # x is NaN if not beyond
        for k in reversed(range(1, len(points))):
            (x0, y0), (x1, y1) = points[k - 1 : k + 1]
            if not x0 < x1:
                self.refuse(args[2 * k + 1], "the x of interp must increase")
            share = self.node(at, "/", self.node(at, "-", x, self.number(x0)), self.number(x1 - x0))
            # Exact at both ends.
            kept = self.node(at, "*", self.number(y0), self.node(at, "-", self.number(1), share))
            line = self.node(at, "+", kept, self.node(at, "*", self.number(y1), share))
            found = self.node(at, "where", self.node(at, "<=", x, self.number(x1)), line, found)
        outside = self.node(at, "<", x, self.number(points[0][0]))
        found = self.node(at, "where", outside, self.number(math.inf), found)
        return self.node(at, "max", found, self.number(min(y for _, y in points)))

    # -- conditions ------------------------------------------------------------------------------

    def condition(self, at: ast.AST) -> Node:
        match at:
            case ast.Compare(left=left, ops=signs, comparators=rest):
                parts, a = [], self.value(left)
                for sign, other in zip(signs, rest, strict=True):
                    b = self.value(other)
                    if type(sign) not in _COMPARISONS:
                        self.refuse(at, "comparisons are < <= > >= == !=")
                    name = _COMPARISONS[type(sign)]
                    swapped = name in (">", ">=")
                    pair = (b, a) if swapped else (a, b)
                    parts.append(self.node(at, name.replace(">", "<"), *pair))
                    a = b
                return self.joined(at, "min", parts)
            case ast.BoolOp(op=way, values=values):
                name = "min" if isinstance(way, ast.And) else "max"
                return self.joined(at, name, [self.condition(one) for one in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.node(at, "-", self.number(1), self.condition(operand))
        self.refuse(at, "expected a condition, such as slope > 0.3")

    def joined(self, at: ast.AST, name: str, parts: list[Node]) -> Node:
        found = parts[0]
        for part in parts[1:]:
            found = self.node(at, name, found, part)
        return found


_SIGNS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISONS: dict[type, str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_ARGUMENTS = {"where": (3, 3), "min": (2, 99), "max": (2, 99), "interp": (5, 401)}


_STRENGTH = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2, ast.Pow: 3}


def _unparsed(parsed: ast.expr) -> str:
    """As `ast.unparse`, which recurses too deeply into long sums; what is on the left of an
    operator becomes a name.
    """
    for at in reversed([*ast.walk(parsed)]):  # operands come first
        if isinstance(at, ast.BinOp) and isinstance(at.left, ast.BinOp):
            text, sign = ast.unparse(at.left), type(at.op)
            weak = sign is ast.Pow or _STRENGTH[type(at.left.op)] < _STRENGTH[sign]
            at.left = ast.Name(f"({text})" if weak else text)
    return ast.unparse(parsed)


# -- what is known without cells -------------------------------------------------------------------


def _bounds(op: str, args: tuple[Node, ...], value: float | str) -> Bounds:
    """Bounds of a node. Rounding is monotone, so they hold for values computed in float64."""
    if isinstance(value, str):
        return (0.0 if value == "length" or value in FRICTIONS else -math.inf), math.inf
    if op == "number":
        return value, value
    if op in _RANGES:
        return _RANGES[op]
    (a, b), (c, d) = args[0].bounds, args[-1].bounds
    if op == "log":
        return (0.0 if a >= 1 else -math.inf), math.inf
    if op == "abs":
        return (0.0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
    if op == "where":
        return min(args[1].bounds[0], c), max(args[1].bounds[1], d)
    if op in ("min", "max"):
        choose: Callable[..., float] = min if op == "min" else max
        return choose(a, c), choose(b, d)
    if op == "*" and args[0] is args[1]:
        return 0.0, math.inf
    if op == "*":
        ends = [_times(x, y) for x in (a, b) for y in (c, d)]
    elif op == "/":
        # Only the signs: what is divided by may come near 0, or be -0, which counts as 0.
        if c < 0 <= d:
            return -math.inf, math.inf
        sign = 1 if c >= 0 else -1
        ends = [0.0, *(sign * math.copysign(math.inf, x) for x in (a, b) if x)]
    else:
        ends = [a + c, b + d] if op == "+" else [a - d, b - c]
    if any(math.isnan(end) for end in ends):
        return -math.inf, math.inf
    return min(ends), max(ends)


_RANGES = {
    **dict.fromkeys(("exp", "sqrt"), (0.0, math.inf)),
    **dict.fromkeys(("<", "<=", "==", "!="), (0.0, 1.0)),
    "atan": (-1.6, 1.6),
}


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _parity(op: str, args: tuple[Node, ...], value: float | str) -> str:
    if isinstance(value, str):
        return "even" if value == "length" else ""
    kinds = [arg.parity for arg in args]
    odds = kinds.count("odd")
    if not all(kinds) or odds == 0:
        return "even" if all(kinds) else ""
    if op in ("abs", "atan"):
        return "even" if op == "abs" else "odd"
    if op == "*" or (op == "/" and kinds[1] == "even"):  # 0 divides alike in both directions
        return "odd" if odds == 1 else "even"
    if odds == 2 and (op in ("+", "-") or (op == "where" and kinds[0] == "even")):
        return "odd"
    return ""
