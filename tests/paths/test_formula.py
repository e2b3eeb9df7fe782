"""Formulas of costs: what they mean, and that every way of computing them gives the same bits."""

from __future__ import annotations

import ast
import math
import pickle
import warnings

import emulation
import numba
import numpy as np
import pytest
import strategies
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from terrain_gpu.cuda.device import module
from terrain_gpu.errors import FormulaError, InputError
from terrain_gpu.paths.cost.edges import edge
from terrain_gpu.paths.cost.formula import functions
from terrain_gpu.paths.cost.formula.interpret import evaluate
from terrain_gpu.paths.cost.formula.presets import PRESETS
from terrain_gpu.paths.cost.formula.program import in_c
from terrain_gpu.paths.cost.formula.tree import NAMES, read_formula
from terrain_gpu.paths.cost.models import MODELS, CostModel, Scaled, is_directed, row_of
from terrain_gpu.paths.relax.gpu.variants import step_macros

F64 = np.dtype(np.float64)
EXTREMES = [0.0, -0.0, 5e-324, 1e-300, 0.1, 1.0, 1e8, 1e154, 1.7e308, -1.0, -1e154, math.inf]


# -- the functions -------------------------------------------------------------------------------


def numbers(count=100_000):
    rng = np.random.default_rng(1)
    spread = 10 ** rng.uniform(-320, 308, count) * rng.choice([-1, 1], count)
    near = np.concatenate((rng.uniform(-760, 720, count), rng.normal(0, 1, count)))
    limits = [709.782712893384, 709.7827128933841, -745.13, -745.14, -708.4, math.nan, -math.inf]
    return np.concatenate((spread, near, EXTREMES, limits))


@pytest.mark.parametrize("name", ["exp", "log", "atan"])
def test_functions_are_within_one_unit_in_the_last_place(name):
    x = numbers()
    with np.errstate(all="ignore"):
        found = getattr(functions, name)(x)
        right = {"exp": np.exp, "log": np.log, "atan": np.arctan}[name](x)
        off = np.abs(found - right) / np.spacing(np.abs(right))
    same = (found == right) | (np.isnan(found) & np.isnan(right))
    assert off[~same].max() <= 1
    assert np.isfinite(off[~same]).all()


# -- the same bits on every way ------------------------------------------------------------------


def steps(count=2000):
    """Heights, frictions and lengths: random ones, and all pairs of extreme ones."""
    rng = np.random.default_rng(6)
    pairs = np.array([(a, b) for a in EXTREMES for b in EXTREMES])
    heights = np.concatenate((rng.normal(0, 30, (count, 2)), pairs))
    extreme = np.where(pairs < 0, -pairs, pairs)[::-1]  # with -0, which is not less than 0
    frictions = np.concatenate((rng.uniform(0, 9, (count, 2)), extreme))
    lengths = rng.choice([1.0, np.sqrt(2), 30.0, 1e-3, 0.0], len(heights))
    return [*heights.T.copy(), *frictions.T.copy(), lengths]


NAMED = ("z_from", "z_to", "friction_from", "friction_to", "length")


@numba.njit
def _edges(cost, a, b, fa, fb, lengths, out):
    for k in range(len(a)):
        out[k] = edge(cost, a[k], b[k], fa[k], fb[k], lengths[k])


def by_program(model, given_steps):
    found = np.empty(len(given_steps[0]))
    _edges(model.kernel, *given_steps, found)
    return found


def assert_same(found, right):
    void = np.isnan(right)
    np.testing.assert_array_equal(np.isnan(found), void)
    assert strategies.same_bits(found[~void], right[~void])


PLAIN_FORMULAS = [
    "max(0, dz / (dz * 0.5))",
    "friction * length * exp(3.5 * abs(dz / length + 0.05))",
    "1",
    "length",
    "-z_from + z_to - -1",
    "where(dz > 0 and not slope >= 0.3 or length == 1, log(length), atan(slope))",
    "min(dz, length, 3) + max(friction_from, friction_to, dz)",
    "abs(dz) ** 3 + dz ** -2 + (1 + dz * dz) ** 0.5 + abs(dz) ** 1.7 + dz ** 0 + dz ** 13",
    "degrees(atan(slope)) / pi",
    "where(-0.5 < slope <= 0.5, length, inf)",
    "interp(slope, -1, 3, -0.5, 1, 0, 1.25, 2, 9) * length",
    "sqrt(length * length + dz * dz) * friction",
    "length / friction_from + 1 / (0 * dz) - 1 / (-friction)",
    "length / interp(sqrt(dz), 0, 1, 2, 5)",
    "where(friction_from != friction_to, 2, 1) * where(dz == 0, 1, exp(-dz))",
    *(preset.formula for preset in PRESETS.values() if not preset.parameters),
]
FORMULAS = [*PLAIN_FORMULAS, *(p.formula for p in PRESETS.values() if p.parameters)]


@pytest.mark.parametrize("text", FORMULAS)
def test_programs_give_the_bits_of_the_interpreter(text):
    own = next((p.parameters for p in PRESETS.values() if p.formula == text), {})
    model, given_steps = CostModel(text, "friction" in text, dict(own)), steps()
    right = evaluate(model.tree, **dict(zip(NAMED, given_steps, strict=True)))
    assert_same(by_program(model, given_steps), right)


@pytest.fixture(scope="module")
def emulated(kernels):
    with pytest.MonkeyPatch.context() as patch:
        emulation.use(patch, kernels)
        yield
    emulation.forget()


@pytest.mark.parametrize("text", FORMULAS)
def test_kernels_of_gpus_give_the_bits_of_the_interpreter(text, emulated, monkeypatch):
    own = next((p.parameters for p in PRESETS.values() if p.formula == text), {})
    model, given_steps = CostModel(text, "friction" in text, dict(own)), steps()
    found = np.empty(len(given_steps[0])).view(emulation.EmulatedArray)
    macros = {"MODEL": "FORMULA", "SCALED": 0, "CELL": "f64", "DISTANCE": "F64"}
    macros["FORMULA_STEPS"] = in_c(model.kernel)
    kernel = module("costs", macros).get_function("evaluate")
    kernel((len(found),), (1,), (*given_steps, np.zeros(6), len(found), found))
    right = evaluate(model.tree, **dict(zip(NAMED, given_steps, strict=True)))
    assert_same(np.asarray(found), right)


LEAVES = st.sampled_from([*NAMES, "pi", "0", "0.5", "2", "1e-3", "7"])


def _joined(parts):
    signs = st.sampled_from(["+", "-", "*", "/"])
    compared = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return st.one_of(
        st.builds("({} {} {})".format, parts, signs, parts),
        st.builds("{}({})".format, st.sampled_from(["abs", "sqrt", "exp", "log", "atan"]), parts),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), parts, parts),
        st.builds("where({} {} {}, {}, {})".format, parts, compared, parts, parts, parts),
        st.builds("interp({}, 0.5, 3, 2, 1, 7, 1e-3)".format, parts),
        st.builds("-{}".format, parts),
    )


def broken_line(x, *points):
    """Straight lines between points, with the operations of formulas."""
    if not points[0] <= x <= points[-2]:
        return np.nan if np.isnan(x) else np.inf
    k = next(k for k in range(2, len(points), 2) if x <= points[k])
    x0, y0, x1, y1 = points[k - 2 : k + 2]
    share = (x - x0) / (x1 - x0)
    return max(y0 * (1 - share) + y1 * share, min(points[1::2]))


class Divisions(ast.NodeTransformer):
    """Turns a / b into a / (b + 0): -0 counts as 0."""

    def visit_BinOp(self, at):
        self.generic_visit(at)
        if isinstance(at.op, ast.Div):
            at.right = ast.BinOp(at.right, ast.Add(), ast.Name("zero", ast.Load()))
        return at


def plainly(text, **step):
    """A formula by Python's own evaluation, one step at a time."""
    found = []
    for k in range(len(step["length"])):
        here = {name: np.float64(values[k]) for name, values in step.items()}
        dz, friction = here["z_to"] - here["z_from"], here["friction_from"] + here["friction_to"]
        known = {
            **here,
            "dz": dz,
            "slope": dz / here["length"],
            "friction": np.float64(0.5) * friction,
            "pi": np.float64(math.pi),
            "zero": np.float64(0),
            "interp": broken_line,
            "where": lambda condition, a, b: a if condition else b,
            "min": lambda a, b: b if b < a or np.isnan(b) else a,
            "max": lambda a, b: b if b > a or np.isnan(b) else a,
            "sqrt": np.sqrt,
            "abs": abs,
            **{name: getattr(functions, name) for name in ("exp", "log", "atan")},
        }
        # Numbers must not be divided by Python's rules.
        doubled = Divisions().visit(ast.parse(_numbers_as_float64(text), mode="eval"))
        code = compile(ast.fix_missing_locations(doubled), "", "eval")
        found.append(float(eval(code, {"__builtins__": {}, "f64": np.float64}, known)))
    return np.array(found)


def _numbers_as_float64(text):
    import re

    return re.sub(r"(?<![\w.])(\d[\d.]*(?:e-?\d+)?)", r"f64(\1)", text)


@given(st.recursive(LEAVES, _joined, max_leaves=25))
@settings(max_examples=examples(150), deadline=None)
def test_any_formula(text):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        given_steps = [values[-70:] for values in steps(20)]
        named = dict(zip(NAMED, given_steps, strict=True))
        right = plainly(text, **named)
        tree = read_formula(text, {})
        assert tree.text == ast.unparse(ast.parse(text))
        assert_same(evaluate(tree, **named), right)
        model = CostModel(f"({text})", "friction" in text, {})  # friction alone is a model
        assert_same(by_program(model, given_steps), right)
        # What is known without cells is true. Frictions and lengths are at least 0.
        low, high = tree.nodes[-1].bounds
        known = right[~np.isnan(right)]
        assert (known >= low).all()
        assert (known <= high).all()
        if tree.is_symmetric:
            a, b, fa, fb, length = given_steps
            back = evaluate(tree, **dict(zip(NAMED, (b, a, fb, fa, length), strict=True)))
            void = np.isnan(right)
            assert (np.isnan(back) == void).all()
            assert (back[~void] == right[~void]).all()


@pytest.mark.parametrize("friction", [False, True])
@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.formula])
def test_models_equal_their_formulas(name, friction):
    """`max_slope` turns a model into its formula."""
    friction |= name == "friction"
    plain, limited = CostModel(name, friction, {}), CostModel(name, friction, {}, 1e300)
    assert isinstance(plain.kernel, Scaled) == (friction and row_of(name).friction == "factor")
    given_steps = [values[steps()[-1] > 0][:1500] for values in steps()]
    assert (by_program(limited, given_steps) == by_program(plain, given_steps)).all()
    assert is_directed(limited.kernel) == is_directed(plain.kernel)


# -- what is known without cells -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "signed", "symmetric"),
    [
        ("friction * length * exp(3.5 * abs(dz / length + 0.05))", False, False),
        ("length * (1 + slope ** 2)", False, True),
        ("abs(dz) + length", False, True),
        ("length - 1", True, True),
        ("dz", True, False),
        ("max(0, dz)", False, False),
        ("length / (1 + slope * slope)", False, True),
        ("length / slope", True, False),
        ("length / friction", False, True),
        ("max(0, dz / (dz * 0.5))", False, False),  # inf and 0 if half of dz is 0
        ("max(0, dz * slope / length)", False, True),
        ("length / -friction", True, True),
        ("friction_from * length", False, False),
        ("where(abs(slope) > 1, inf, length)", False, True),
        ("where(slope > 1, -1, length)", True, False),
        ("interp(slope, -1, 2, 1, 3)", False, False),
        ("log(length)", True, True),
        ("log(1 + abs(dz))", False, True),
        ("sqrt(dz)", False, False),
    ],
)
def test_signs_and_directions(text, signed, symmetric):
    model = CostModel(text, "friction" in text, {})
    assert (model.kernel.signed, model.kernel.symmetric) == (signed, symmetric)
    assert model.kind.directed is not symmetric
    macros = step_macros(model.kernel, F64, None, F64, (True,) * 3)
    assert macros["REVERSE"] != symmetric
    assert ("SIGNED" in macros) is signed  # then a GPU prices every step, as the CPU does


def test_a_pickled_model_is_built_again():
    model = CostModel("length * k", False, {"k": 2.0}, 0.5)
    again = pickle.loads(pickle.dumps(model))
    assert (again.name, again.parameters) == (model.name, model.parameters)
    assert again.kernel.code.flags.writeable
    assert in_c(again.kernel) == in_c(model.kernel)


@pytest.mark.parametrize(
    "text", ["dz" + "+dz" * 1300, "dz" + "*length-1" * 400, "max(0, dz" + "/2+1" * 900 + ")"]
)
def test_long_formulas(text):
    tree = read_formula(text, {})
    assert len(tree.nodes) > 400
    assert read_formula(tree.text.replace(" ", ""), {}).text == tree.text
    step = {"z_from": np.zeros(1), "z_to": np.full(1, 3.0), "length": np.full(1, 2.0)}
    assert math.isfinite(evaluate(tree, **step)[0])


def test_ways_of_writing_are_one():
    one, other = (CostModel(text, False, {}) for text in ("(dz*dz)+ length", "dz * dz + length"))
    assert one.name == other.name == "dz * dz + length"


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("length * frction", r"unknown name 'frction' \(known: dz, length, .*friction_to, pi", 10),
        ("length *", "invalid syntax", 9),
        ("length * (1 + slope", "was never closed", 10),
        ("length * 3 ^ 2", r"\^ is not a power; write x \*\* y", 12),
        ("length + tan(slope)", "unknown function 'tan' .*a tangent already.*known: abs", 10),
        ("length * (slope > 1)", "a condition is not a number; write where", 11),
        ("1 if dz > 0 else 2", "write where", 1),
        ("where(slope, 1, 2)", "expected a condition, such as slope > 0.3", 7),
        ("max(1)", "max takes at least 2; 1 given", 1),
        ("exp(1, 2)", "exp takes 1; 2 given", 1),
        ("where(dz > 0, 1)", "where takes 3: condition, a, b; 2 given", 1),
        ("interp(slope, 0, 1)", "interp takes x, x1, y1", 1),
        ("interp(slope, 0, 1, 0, 2)", "the x of interp must increase", 21),
        ("interp(slope, 0, dz, 1, 2)", "the points of interp must be numbers", 18),
        ("length * abs", r"abs is a function; write abs\(\.\.\.\)", 10),
        ("1e999 * dz", "too large for a float64", 1),
        ("length * 'a'", "'a' is not a real number", 10),
        ("length * True", "True is not a real number", 10),
        ("length + 1j", "1j is not a real number", 10),
        ("length + é", "'é' is not allowed", 10),
        ("__import__('os').system('true')", "is not allowed in a formula", 1),
        ("length.real", "'length.real' is not allowed", 1),
        ("[length][0]", "is not allowed", 1),
        ("(lambda: 1)()", "is not allowed", 1),
        ("abs(x=1)", "is not allowed", 1),
        ("length @ 2", "is not allowed", 1),
        ("length % 2", "is not allowed", 1),
        ("where(dz in dz, 1, 2)", "comparisons are <", 7),
    ],
)
def test_errors_name_the_place(text, message, at):
    with pytest.raises(FormulaError, match=message) as caught:
        CostModel(text, False, {})
    assert f"at character {at}" in caught.value.args[0]
    shown, caret = caught.value.excerpt
    assert caret.index("^") == 2 + at - 1
    assert shown.strip() == text


@pytest.mark.parametrize(
    ("text", "friction", "parameters", "message"),
    [
        ("toblr", False, {}, "cost 'toblr' is not known; use one of absdiff, .*wheeled, or a form"),
        ("tobler-on-path", False, {}, "is not known"),
        ("campbell-2018", False, {}, "is not known"),
        ("", False, {}, "cost formula is empty"),
        ("length * friction", False, {}, "uses friction: name its layer"),
        ("length", True, {}, "does not use friction"),
        ("length * k", False, {"k": 1.0, "m": 2.0}, "does not use parameter 'm'"),
        ("length * k", False, {"k": math.nan}, "parameter k=nan .* not a finite number"),
        ("length * dz", False, {"dz": 1.0}, "parameter 'dz': this name is in use"),
        ("herzog", False, {"k": 1.0}, r"'herzog' has no parameter 'k' \(it has none\)"),
        ("wheeled", False, {"crit": 1.0}, r"no parameter 'crit' \(it has critical\)"),
        ("length" + " + length" * 3000, False, {}, "characters, more than 20000"),
        ("-" * 3000 + "length", False, {}, "nested too deeply|more than 4000|too complex"),
        ("(" * 900 + "length" + ")" * 900, False, {}, "nested"),
    ],
)
def test_what_is_refused(text, friction, parameters, message):
    with pytest.raises(InputError, match=message):
        CostModel(text, friction, parameters)


def test_a_difference_without_spaces_is_no_name():
    for text in ("length-1", "length-1e3", "length-1E-3", "length--1"):
        spaced = text.replace("-", " - ", 1)
        assert CostModel(text, False, {}).name == CostModel(spaced, False, {}).name
    assert CostModel("length-k-2", False, {"k": 1.0}).name == "length - k - 2"


def test_the_limit_of_slopes():
    with pytest.raises(InputError, match="minimax cannot be combined with max_slope"):
        CostModel("minimax", False, {}, 0.5)
    with pytest.raises(InputError, match="max_slope needs elevations"):
        CostModel("friction", False, {}, 0.5)
    for limit in (-1.0, math.nan):
        with pytest.raises(InputError, match="max_slope"):
            CostModel("surface", False, {}, limit)
    model = CostModel("friction", True, {}, 0.5)
    given_steps = [np.array(v, float) for v in ([0, 0, 5], [5, -5.001, 0], [1] * 3, [3] * 3)]
    costs = by_program(model, [*given_steps, np.full(3, 10.0)])
    assert costs.tolist() == [20, math.inf, 20]


# -- the models of the literature ----------------------------------------------------------------


SLOPES = -0.4, -0.1, 0.0, 0.1, 0.4
CONDUCTANCE = {
    "tobler": (0.48959617, 1.399095, 1.399095, 0.98592561, 0.34501259),
    "tobler-off-path": (0.2937577, 0.83945702, 0.83945702, 0.59155536, 0.20700755),
    "davey": (0.48241737, 1.0590794, 1.4, 1.0590794, 0.48241737),
    "rees": (0.3203075, 1.1049724, 1.3333333, 1.1049724, 0.3203075),
    "irmischer-clarke": (0.43465247, 0.9924969, 1.0962071, 0.9924969, 0.43465247),
    "irmischer-clarke-off-path": (0.36145844, 0.72848795, 0.77851276, 0.72848795, 0.36145844),
    "modified-tobler": (1.2758542, 3.8830305, 4.0943825, 2.8253039, 0.92831508),
    "wheeled": (0.082568807, 0.59016393, 1, 0.59016393, 0.082568807),
    "herzog": (0.32813187, 1.6215185, 0.6097561, 0.22568922, 0.06851467),
    "minetti": (0.2853751, 0.88721304, 0.4, 0.20411767, 0.066232184),
    "llobera-sluckin": (0.23697087, 0.74370288, 0.37950664, 0.20939063, 0.065049586),
    "campbell-2017": (1.2395064, 1.6548912, 1.662, 1.5956039, 1.0131641),
    "campbell-2019": (1.1480063, 2.4462676, 2.551944, 1.849592, 0.82875305),
}
"""What the R package leastcostpath 2.0 gives slopes (`cost` in its R/cost.R; "campbell 2019" with
percentile 0.5, crit_slope 12). Its modified Tobler's speed is in km/h, the others in m/s."""


def cost_at(name, slope, **parameters):
    model = CostModel(name, False, parameters)
    step = [np.array([x]) for x in (100.0, 100.0 + 30 * slope, 1.0, 1.0, 30.0)]
    return by_program(model, step)[0]


@pytest.mark.parametrize("name", CONDUCTANCE)
def test_costs_are_those_of_leastcostpath(name):
    unit = 3.6 if name == "modified-tobler" else 1
    found = [30 * unit / cost_at(name, slope) for slope in SLOPES]
    np.testing.assert_allclose(found, CONDUCTANCE[name], rtol=1e-7)


def test_costs_of_other_models():
    assert cost_at("naismith", 0.1) == pytest.approx(30 * 0.72 + 3 * 6)
    assert cost_at("naismith", -0.5) == pytest.approx(30 * 0.72)
    # 5.1 km/h at a slope of -0.07, where both branches meet.
    assert cost_at("kondo-seino", -0.07) == pytest.approx(30 * 3.6 / 5.1)
    assert cost_at("kondo-seino", 0.1) == pytest.approx(30 * 3.6 / 5.1 * math.exp(2.25 * 0.17))
    assert cost_at("kondo-seino", -0.3) == pytest.approx(30 * 3.6 / 5.1 * math.exp(1.5 * 0.23))
    assert cost_at("wheeled", 0.08, critical=0.08) == pytest.approx(60)
    women = cost_at("irmischer-clarke", 0.2, speed=0.95)
    assert women == pytest.approx(cost_at("irmischer-clarke", 0.2) / 0.95)


def test_steep_slopes():
    assert cost_at("campbell-2017", 1) == cost_at("campbell-2017", -1) == math.inf
    assert cost_at("minetti", -3) == pytest.approx(cost_at("minetti", -0.5))
    assert cost_at("herzog", -2) > cost_at("herzog", -1) > 0


@pytest.mark.parametrize("name", PRESETS)
def test_named_models_are_ready_for_a_gpu(name):
    for friction, limit in (False, None), (True, 0.5):
        model = CostModel(name, friction, {}, limit)
        assert not model.kernel.signed
        assert model.kind.metric
        assert model.kind.name == name
    assert set(row_of(name).unit) <= set("Jskg/")
