"""Arithmetic over layers: the operation, and the language against plain Python."""

from __future__ import annotations

import contextlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from contract import OperationContract, make_store, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import vertices
from strategies import rasters, shapes

import terrain_gpu
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.raster.calc import Calc
from terrain_gpu.raster.calc.arithmetic import CONDITION, Arithmetic, TooLarge
from terrain_gpu.raster.calc.classes import read_classes
from terrain_gpu.raster.calc.operation import Calculation
from terrain_gpu.raster.calc.proof import _with_nan
from terrain_gpu.raster.calc.proof_evaluation import evaluate
from terrain_gpu.store import TileStore

# -- the language --------------------------------------------------------------------------------

Wild = OverflowError


def plain(tree, cell):
    """The value of a tree over a cell, None where it has none; 64-bit integers or floats."""
    kind, *parts = tree
    if kind == "number":
        return parts[0]
    if kind == "layer":
        return cell[parts[0]]
    if kind == "nodata":
        return int(plain(parts[0], cell) is None)
    if kind == "where":
        test = plain(parts[0], cell)
        found = None if test is None else plain(parts[1] if test else parts[2], cell)
        for part in parts[1:]:  # as an error elsewhere, also where it is not taken
            plain(part, cell)
        return found if found is None else typed(tree, found)
    values = [plain(part, cell) for part in parts]
    if kind == "coalesce":
        found = next((v for v in values if v is not None), None)
        return found if found is None else typed(tree, found)
    if kind in ("and", "or"):
        truths = [None if v is None else bool(v) for v in values]
        alone = kind == "or"
        if alone in truths:
            return int(alone)
        return None if None in truths else int(not alone)
    if None in values:
        return None
    if kind == "not":
        return int(not values[0])
    if kind in COMPARE:
        return int(COMPARE[kind](*values))
    if kind == "/":
        a, b = map(float, values)
        found = a / b if b else math.nan
    elif kind == "sqrt":
        found = math.sqrt(values[0]) if values[0] >= 0 else math.nan
    elif kind in ("min", "max"):
        values = [typed(tree, v) for v in values]
        found = values[0]
        for v in values[1:]:
            found = v if (v < found if kind == "min" else v > found) else found
    else:
        values = [typed(tree, v) for v in values]
        found = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
                 "abs": abs}[kind](*values)  # fmt: skip
    found = typed(tree, found)
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if not -(2**63) <= found < 2**63:
        raise Wild
    return found


COMPARE = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def is_real(tree):
    kind, *parts = tree
    if kind == "number":
        return isinstance(parts[0], float)
    if kind == "layer":
        return parts[0] == "f"
    if kind in ("/", "sqrt"):
        return True
    if kind in ("nodata", "and", "or", "not", *COMPARE):
        return False
    return any(map(is_real, parts[1:] if kind == "where" else parts))


def typed(tree, value):
    return float(value) if is_real(tree) else value


def text(tree):
    kind, *parts = tree
    if kind == "number":
        return repr(parts[0])
    if kind == "layer":
        return '"a-b"' if parts[0] == "a-b" else parts[0]
    words = [text(part) for part in parts]
    if kind in ("nodata", "where", "coalesce", "min", "max", "abs", "sqrt"):
        return f"{kind}({', '.join(words)})"
    if kind == "not":
        return f"(not {words[0]})"
    return f"({words[0]} {kind} {words[1]})"


leaves = st.one_of(
    st.tuples(st.just("layer"), st.sampled_from(["i", "f", "a-b"])),
    st.tuples(
        st.just("number"),
        st.integers(0, 9) | st.integers(0, 2**63 - 1) | st.floats(0, 1e9, allow_subnormal=False),
    ),
)


def grown(inner):
    two = ["+", "-", "*", "/", "and", "or", "min", "max", "coalesce", *COMPARE]
    return st.one_of(
        st.tuples(st.sampled_from(two), inner, inner),
        st.tuples(st.sampled_from(["not", "abs", "sqrt", "nodata"]), inner),
        st.tuples(st.sampled_from(["min", "max", "coalesce", "where"]), inner, inner, inner),
    )


trees = st.recursive(leaves, grown, max_leaves=12)
CELLS = {
    "i": (np.array([0, 1, -1, 7, -99, 2**62, -(2**62), 3], np.int64), -99),
    "f": (np.array([0.0, 0.5, -0.5, np.nan, 7.0, 1e300, np.inf, -3.25]), None),
    "a-b": (np.array([255, 3, 0, 255, 1, 2, 200, 254], np.uint8), 255),
}


@given(trees)
@settings(max_examples=examples(400))
def test_expressions_as_by_plain_python(tree):
    wanted = f"0 * i + ({text(tree)})" if "layer" not in str(tree) else text(tree)
    tree = ("+", ("*", ("number", 0), ("layer", "i")), tree) if wanted != text(tree) else tree
    parsed = Arithmetic(wanted, {name: data.dtype for name, (data, _) in CELLS.items()})
    size = 8
    cells = []
    for k in range(size):
        one = {}
        for name, (data, nodata) in CELLS.items():
            value = data[k].item()
            missing = value == nodata or not math.isfinite(value)
            one[name] = None if missing else value
        cells.append(one)
    try:
        expected = [plain(tree, cell) for cell in cells]
    except Wild:
        with pytest.raises(TooLarge):
            parsed.over(CELLS)
        return
    found = parsed.over(CELLS)
    assert (parsed.kind.kind == "f") == is_real(tree)
    again = evaluate(wanted, {name: _with_nan(*layer) for name, layer in CELLS.items()})
    assert (again.dtype == np.float64) == is_real(tree)
    for k, value in enumerate(expected):
        assert found.void[k] == np.isnan(again[k]) == (value is None), (wanted, k, value, found)
        if value is not None:
            got = found.values[k].item()
            assert int(got) == value if parsed.kind == CONDITION else got == value, (wanted, k)
            assert int(again[k]) == value if parsed.kind.kind != "f" else again[k] == value
            # Also the sign of 0.
            if parsed.kind.kind == "f":
                assert again[k].tobytes() == found.values[k].tobytes()


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "expected a layer, a number or a function, found the end, at character 1"),
        ("1 + 2", "names no layer; name at least one"),
        ("i +", "expected a layer, a number or a function, found the end, at character 4"),
        ("i ** 2", r"expected a layer, a number or a function, found '\*', at character 4"),
        ("i = 2", r"'=' is not allowed in an expression \(equality is ==\), at character 3"),
        ("(i", r"expected '\)', found the end"),
        ("i i", "expected an operator or the end, found 'i', at character 3"),
        ("j + 1", "there is no layer 'j', only i, f, a-b, at character 1"),
        ("a-b", "there is no layer 'a', only"),
        ("min(i)", "min takes 2 to 20 arguments, not 1, at character 1"),
        ("where(i, 2)", "where takes 3 arguments, not 2"),
        ("sin(i)", "there is no layer 'sin'"),
        ("9223372036854775808 + i", "too large for an int64"),
        ("9" * 5000 + " + i", "too large for an int64"),
        ("1e999 + i", "too large for a float64"),
        ("(" * 60 + "i", "more than 50 nested parentheses"),
        ("i; __import__('os')", "';' is not allowed"),
    ],
)
def test_what_is_no_expression(expression, words):
    with pytest.raises(InputError, match=words):
        Arithmetic(expression, {name: data.dtype for name, (data, _) in CELLS.items()})


def test_signs_and_long_chains():
    dtypes = {"i": np.dtype(np.int16)}
    cells = {"i": (np.array([3], np.int16), None)}
    for expression, value in (
        ("--i", 3),
        ("-" * 10_001 + "i", -3),
        ("not " * 10_001 + "i", 0),
        ("0 < i < 3", 0),
        ("1 - 2 - i", -4),
        ("12 / 2 / i", 2.0),
        ("2 + i * 4", 14),
        ("not i == 3 or i", 1),
        ("i" + " + 1" * 3000, 3003),
        ("i" + " / 1 * 1" * 3000, 3.0),
        ("i" + " <= 3" * 3000, 1),
        ("i" + " and 1" * 3000, 1),
        ("0" + " or i > 3" * 3000, 0),
        ("(" * 50 + "i" + ")" * 50, 3),
    ):
        assert Arithmetic(expression, dtypes).over(cells).values.tolist() == [value], expression
        assert evaluate(expression, {"i": np.array([3], np.longdouble)}).tolist() == [value]


# -- the operation -------------------------------------------------------------------------------

EXPRESSION = "where(elevation > 20, elevation * 2, 0.5) + coalesce(elevation, -1) / 4"


def computed(cells, nodata):
    found = np.full(cells.shape, np.nan)
    for (r, c), fine in np.ndenumerate(vertices(cells, nodata)):
        if fine:
            z = cells[r, c].item()
            value = float(2 * z if z > 20 else 0.5) + z / 4
            found[r, c] = value if math.isfinite(value) else math.nan
    return found


class TestCalc(OperationContract):
    command = "calc s.zarr elevation*2+1"
    rasters = rasters(shape=shapes(200, 30_000)).filter(
        lambda raster: raster.dtype.itemsize < 8 or raster.dtype.kind == "f"
    )

    def make(self, store):
        return Calculation(str(store), Calc(EXPRESSION))

    def expected(self, data, nodata, grid):
        return [computed(data, nodata)]


TABLE = {0: 1.5, 1: None, **{k: k / 8 for k in range(2, 50)}}


class TestReclass(OperationContract):
    command = "calc s.zarr elevation --default 4 --reclass"
    rasters = rasters(shape=shapes(200, 30_000)).filter(
        lambda raster: raster.dtype.itemsize < 8 or raster.dtype.kind == "f"
    )

    @pytest.fixture(autouse=True)
    def table(self, tmp_path):
        lines = [f"{k},{'' if v is None else v}" for k, v in TABLE.items()]
        (tmp_path / "t.csv").write_text("class,friction\n" + "\n".join(lines))
        self.command = f"calc s.zarr elevation --default 4 --reclass {tmp_path}/t.csv"

    def make(self, store):
        classes = tuple(sorted(TABLE.items()))
        asked = Calc("elevation", reclass="t.csv", default=4.0)
        return Calculation(str(store), asked, classes)

    def expected(self, data, nodata, grid):
        found = np.full(data.shape, np.nan)
        for (r, c), fine in np.ndenumerate(vertices(data, nodata)):
            if fine:
                value = TABLE.get(data[r, c].item(), 4.0)
                found[r, c] = math.nan if value is None else value
        return [found]


@pytest.fixture
def store(tmp_path, no_fsync, monkeypatch):
    cells = np.arange(70 * 90).reshape(70, 90).astype("int16") % 40
    cells[5, 5] = -1
    monkeypatch.chdir(tmp_path)
    return make_store(tmp_path / "s.zarr", cells, -1, 64)


def call(capfd, words: list[str]) -> tuple[int, str, str]:
    code = options._guarded(lambda: group.main(words, standalone_mode=False))
    return code, *capfd.readouterr()


@given(st.text('0 12.e+-*/()<=>! \t\n,ia"_é^', max_size=12) | st.text(max_size=8))
@settings(max_examples=examples(400), deadline=None)
def test_any_text_is_an_expression_or_refused(text):
    with contextlib.suppress(InputError):
        Arithmetic(text, {"i": np.dtype(np.int16), "a": np.dtype(np.float32)})


def test_zeros_have_the_sign_that_the_proof_expects(tmp_path, no_fsync):
    store = make_store(tmp_path / "s.zarr", np.array([[-1.5, -0.0, 0.0, 2.0]]), np.nan, 64)
    for expression in ("elevation * -0", "elevation * -0.0", "0 - elevation", "min(elevation, 0)"):
        terrain_gpu.calc(store, expression, verify=True, overwrite=True)
    found = whole(terrain_gpu.calc(store, "1 / elevation", verify=True, into="y1").layers["y1"])
    assert np.array_equal(found, [[-1 / 1.5, np.nan, np.nan, 0.5]], equal_nan=True)


def test_types_of_results(store):
    for expression, dtype, nodata in (
        ("elevation > 3", "uint8", 255),
        ("elevation + 1", "int64", -(2**63)),
        ("elevation / 2", "float64", None),
    ):
        layer = terrain_gpu.calc(store, expression, overwrite=True).layers["calc"]
        assert layer.dtype.name == dtype
        cells = whole(layer)
        assert np.isnan(cells[5, 5]) if nodata is None else cells[5, 5] == nodata == layer.nodata
        assert layer.info["valid_cells"] == cells.size - 1
    for dtype in ("int8", "uint16", "float32"):
        layer = terrain_gpu.calc(store, "elevation + 1", dtype=dtype, overwrite=True).layers["calc"]
        assert layer.dtype.name == dtype
        assert whole(layer)[0, 7] == 8


@pytest.mark.parametrize(
    ("expression", "dtype", "words"),
    [
        (
            "elevation * 10",
            "uint8",
            r"gives \d+ at row \d+, column \d+, which uint8 cannot hold as a valid value",
        ),
        ("elevation - 3", "uint8", r"gives -[123] at row \d+, .* which uint8"),
        ("elevation / 2", "int16", r"gives \d+\.5 at .* which int16 cannot hold"),
        ("elevation + 254", "uint8", r"gives \d+ at .* which uint8 cannot hold as a valid value"),
        ("elevation * 1e39", "float32", r"gives \S+e\+\d\d at .* which float32"),
        (
            "(elevation + 1) * 9223372036854775807",
            None,
            r"gives an integer beyond int64 at row .*; multiply an integer by 1.0",
        ),
        ("elevation", "complex64", "cells of type complex64 are not supported"),
    ],
)
def test_values_that_do_not_fit(store, expression, dtype, words):
    with pytest.raises(InputError, match=words):
        terrain_gpu.calc(store, expression, dtype=dtype)
    assert TileStore.open(store).layers == ["elevation"]


def test_several_layers_of_other_blocks(store, tmp_path):
    layer = TileStore.open(store).layer("elevation")
    other = whole(layer) * 0.25
    with terrain_gpu.create_layer(store, "my-layer", layer.grid, "float32", block_size=128) as out:
        out.write_block(0, 0, other.astype("float32"))
        out.commit()
    found = whole(terrain_gpu.calc(store, 'elevation + "my-layer"', into="sum").layers["sum"])
    wanted = whole(layer) + other
    wanted[5, 5] = np.nan
    assert np.array_equal(found, wanted, equal_nan=True)
    with pytest.raises(InputError, match="must have different names"):
        terrain_gpu.calc(store, "elevation + 1", into="elevation", overwrite=True)
    with pytest.raises(InputError, match="does not hold results of calc"):
        terrain_gpu.calc(store, "elevation + 1", into="my-layer", overwrite=True)


def test_classes_that_the_table_lacks_are_listed(store, capfd):
    Path("t.csv").write_text("class;friction;what\n0;1.5;road\n\n1;;lake\n2;nodata;\n3;7;wood\n")
    words = ["calc", "s.zarr", "elevation", "--reclass", "t.csv", "--into", "friction"]
    code, _, err = call(capfd, words)
    assert code == 2
    assert "the table lacks classes of 'elevation': 4, 5, 6" in err
    assert "23 and 16 more; add them, or set a value for them with --default" in err
    assert not (store / ".incomplete").exists()
    code, out, _ = call(capfd, [*words, "--default", "nodata", "-o", "f.tif"])
    assert (code, "layer friction" in out) == (0, True)
    cells = whole(TileStore.open(store).layer("friction"))
    assert cells[0, :6].tolist()[0::3] == [1.5, 7.0]
    assert np.isnan(cells[0, [1, 2, 4, 5]]).all()
    code, _, _ = call(capfd, [*words, "--default", "0.25", "--dtype", "float32", "--overwrite"])
    layer = TileStore.open(store).layer("friction")
    assert (code, layer.dtype.name) == (0, "float32")
    cells = whole(layer)
    assert cells[0, 4] == 0.25
    assert np.isnan(cells[[0, 5], [1, 5]]).all()
    terrain_gpu.shortest_paths(store, [(0, 0)], cost="friction", friction="friction", backend="cpu")


@pytest.mark.parametrize(
    "lines",
    [
        "class,2015\n1,3\n",
        "class\n1,3\n",
        "class,value,what\n1,3,forest, mixed, 20\n",
        "class,value\n1,3,forest\n",
        ",value\n1,3\n",
        "1,3,\n",
    ],
)
def test_only_columns_that_count_are_judged(tmp_path, lines):
    (tmp_path / "t.csv").write_text(lines)
    assert read_classes(tmp_path / "t.csv") == ((1, 3),)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "holds no class"),
        ("class,friction\n", "holds no class"),
        ("1,2\n1,3\n", "line 2: class 1 is there twice"),
        ("1,2\nx,3\n", "line 2: 'x, 3' is not a whole number and its value"),
        ("1.5,2\n", "line 1: '1.5, 2' is not"),
        ("1,2\n2,much\n", "line 2: '2, much' is not"),
        ("1\n", "line 1 has no second field"),
        ("1-3,4\n5,6\n", "line 1: '1-3, 4' is not a whole number and its value"),
        ("1-3,nodata\n5,6\n", "line 1: '1-3, nodata' is not"),
        ("<3,4\n5,6\n", "line 1: '<3, 4' is not"),
        ("nodata,0\n5,6\n", "line 1: 'nodata, 0' is not"),
        ("1;1,5\n2;2,5\n", "line 1: '1;1, 5' is not"),
        ("class,friction\n1,1,5\n", "line 2 has 3 fields instead of 2; use decimal points"),
        ("class,friction,what\n1,1,5,wood\n", "line 2 has 4 fields instead of 3"),
        ("class,friction,\n1,1,5,\n", "line 2 has 4 fields instead of 3"),
        ("class;friction\n1;1,5\n", "line 2: '1, 1,5' is not .*decimals with a point"),
        ("1,nan\n", "line 1"),
        ("1,2,a\u2028b\x0bc\x85\r2,3\r\n\nx,4\n", "line 4: 'x, 4' is not"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, lines, words):
    (tmp_path / "t.csv").write_text(lines, encoding="utf-8", newline="")
    with pytest.raises(InputError, match=rf"t\.csv: .*{words}|t\.csv: {words}"):
        read_classes(tmp_path / "t.csv")


def test_tables_as_programs_write_them(tmp_path):
    for lines in ("\ufeff1\t2.5\n-3\t0\t\n", '"class","friction"\r\n"1","2.5"\r\n"-3","0"\r\n'):
        (tmp_path / "t.csv").write_text(lines, encoding="utf-8")
        assert read_classes(tmp_path / "t.csv") == ((-3.0, 0.0), (1.0, 2.5))
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe1")
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        read_classes(tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"none\.csv: cannot be read as a table of classes: No"):
        read_classes(tmp_path / "none.csv")


def test_the_command(store, capfd):
    words = [
        "calc",
        "s.zarr",
        "elevation > 3 and elevation < 9",
        "--into",
        "band",
        "--json",
        "r.json",
    ]
    code, out, _ = call(capfd, words)
    assert code == 0
    assert "layer band, 6,299 of 6,300 cells valid" in out
    report = json.loads(Path("r.json").read_text())
    assert report["settings"]["calc_of"] == "elevation > 3 and elevation < 9"
    for more, words in (
        (["elevation", "--default", "3"], "default is for classes that a table lacks"),
        (["elevation", "--default", "x"], "default 'x': give a finite number, or 'nodata'"),
        (["elevation", "--dtype", "bool"], "'bool' is not one of"),
        (
            ["length * 2"],
            "s.zarr: expression 'length * 2': there is no layer",
        ),
    ):
        code, _, err = call(capfd, ["calc", "s.zarr", *more])
        assert (code, words in err) == (2, True), err
    with pytest.raises(StoreError, match="layer 'band' exists"):
        terrain_gpu.calc(store, "elevation", into="band")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("calc_of", "elevation +"),
        ("calc_of", "there + 1"),
        ("classes", [[1]]),
        ("classes", {"1": 2}),
        ("classes", [["1", 2]]),
        ("default", []),
    ],
)
def test_a_damaged_record(store, capfd, key, value):
    Path("t.csv").write_text("3;4\n")
    how = {"reclass": "t.csv", "default": 1.0, "verify": True}
    terrain_gpu.calc(store, "elevation", **how)
    file = store / "calc" / "zarr.json"
    text = json.loads(file.read_text())
    own = next(v for v in text["attributes"].values() if isinstance(v, dict) and "settings" in v)
    own["settings"][key] = value
    del own["checksum"]
    file.write_text(json.dumps(text))
    code, _, err = call(capfd, ["verify", "s.zarr"])
    assert (code, f"{key} is recorded as" in err) == (2, True), err


def commands_of(page):
    """The expressions of calc in a guide, by their layers."""
    text = (Path(__file__).parents[2] / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
    return {
        into: expression
        for expression, into in re.findall(r'calc dem.zarr "(.*)" --into (\w+)', text)
    }


def test_the_guide_keeps_cells_that_one_source_reaches(tmp_path, no_fsync):
    a = np.array([[0, 20000, 20000, np.nan, np.nan]])
    b = np.array([[9000, 0, np.nan, 3000, 9000]])
    store = make_store(tmp_path / "s.zarr", a, np.nan, 64)
    grid = TileStore.open(store).grid
    for name, cells in (("from_a", a), ("from_b", b)):
        with terrain_gpu.create_layer(store, name, grid, "float64", nodata=np.nan) as out:
            out.write_block(0, 0, cells)
            out.commit()
    commands = commands_of("scenarios")
    found = {
        into: whole(terrain_gpu.calc(store, commands[into], into=into).layers[into])
        for into in ("over", "near", "slow", "either")
    }
    nan = np.nan
    np.testing.assert_array_equal(found["near"], [[0, nan, nan, nan, nan]])
    np.testing.assert_array_equal(found["slow"], [[nan, 0, nan, 6000, nan]])
    np.testing.assert_array_equal(found["either"], [[0, 0, 20000, 6000, nan]])


def test_the_guide_numbers_bands(tmp_path, no_fsync):
    distance = np.array([[0.0, 3600, 3601, 7200, 7201, 10800, 10801, 1e9, np.nan]])
    store = make_store(tmp_path / "s.zarr", distance, np.nan, 64)
    expression = commands_of("isochrones")["band"].replace("distance", "elevation")
    found = whole(terrain_gpu.calc(store, expression, dtype="uint8").layers["calc"])
    assert found.tolist() == [[0, 0, 1, 1, 2, 2, 255, 255, 255]]


BIG = 2**53


def big_store(tmp_path, cells, nodata=None):
    path = tmp_path / "big.zarr"
    make_store(path, np.asarray([cells]), nodata, 64)
    return path


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_classes_beyond_float64_are_exact(tmp_path, no_fsync, capfd, dtype):
    top = int(np.iinfo(dtype).max) - 1
    path = big_store(tmp_path, np.array([BIG, BIG + 1, BIG + 2, top, top - 1], dtype))
    table = tmp_path / "t.csv"
    table.write_text(f"{BIG},1\n{BIG + 1},{BIG + 1}\n{top - 1},{top - 1}\n{top},7\n")
    how = {"reclass": table, "dtype": dtype, "default": BIG + 3, "verify": True}
    found = whole(terrain_gpu.calc(path, "elevation", **how).layers["calc"])
    assert found.tolist() == [[1, BIG + 1, BIG + 3, 7, top - 1]]
    assert call(capfd, ["verify", str(path)])[0] == 0
    with pytest.raises(InputError, match=f"lacks classes of 'elevation': {BIG + 2}; add"):
        terrain_gpu.calc(path, "elevation", into="other", reclass=table, dtype=dtype)
    real = {"into": "other", "reclass": table, "dtype": "float64"}
    with pytest.raises(InputError, match=rf"t\.csv: its value {BIG + 1} does not fit float64"):
        terrain_gpu.calc(path, "elevation", default="nodata", **real)
    table.write_text(f"{BIG},1\n{2**70},2\n")
    with pytest.raises(InputError, match=f"default {BIG + 1} does not fit float64; choose another"):
        terrain_gpu.calc(path, "elevation", default=BIG + 1, **real)
    table.write_text(f"{2**70},2\n")
    with pytest.raises(InputError, match=r"results of 'elevation' cannot be one of its classes"):
        terrain_gpu.calc(path, "elevation", into="other", reclass=table, default=1)


@pytest.mark.parametrize(
    ("values", "default", "dtype"),
    [
        ("-7,nodata", None, "int64"),
        (f"{BIG + 1},4", 3, "int64"),
        ("1,2", "nodata", "int64"),
        ("1.0,2", None, "float64"),
        ("1,2", 0.5, "float64"),
        (f"{2**63},2", None, InputError),
    ],
)
def test_integers_of_a_table_stay_integers(tmp_path, no_fsync, values, default, dtype):
    path, table = big_store(tmp_path, np.array([5.0, 6.0, 5.0])), tmp_path / "t.csv"
    table.write_text("".join(f"{k},{v}\n" for k, v in zip((5, 6), values.split(","), strict=True)))
    how = {"reclass": table, "default": default, "verify": True}
    if dtype is InputError:
        with pytest.raises(InputError, match="does not fit int64; choose another dtype"):
            terrain_gpu.calc(path, "elevation", **how)
        return
    layer = terrain_gpu.calc(path, "elevation", **how).layers["calc"]
    number = int if dtype == "int64" else float
    one, two = (layer.nodata if v == "nodata" else number(v) for v in values.split(","))
    assert layer.dtype == dtype
    assert whole(layer).tolist() == [[one, two, one]]


def test_classes_of_real_results(tmp_path, no_fsync):
    path, table = big_store(tmp_path, np.array([BIG, BIG + 2, 3], float)), tmp_path / "t.csv"
    table.write_text(f"{BIG},1\n{BIG + 1},2\n3.0,0.5\n")
    how = {"reclass": table, "default": "nodata", "verify": True}
    found = whole(terrain_gpu.calc(path, "elevation", **how).layers["calc"])
    assert np.array_equal(found, [[1, np.nan, 0.5]], equal_nan=True)


def test_uint64_cells_beyond_int64(tmp_path, no_fsync):
    top = 2**64 - 2
    path = big_store(tmp_path, np.array([top, 2**63, 5, 2**64 - 1], np.uint64), 2**64 - 1)
    for expression, dtype, wanted in (
        ("elevation * 1.0", None, [float(top), 2.0**63, 5.0, np.nan]),
        ("elevation / 2", None, [2.0**63, 2.0**62, 2.5, np.nan]),
        ("elevation > 9223372036854775807", None, [1, 1, 0, 255]),
        ("elevation == 5 and not nodata(elevation)", None, [0, 0, 1, 0]),
        ("elevation", "uint64", [top, 2**63, 5, 2**64 - 1]),
    ):
        how = {"dtype": dtype, "overwrite": True, "verify": True}
        found = whole(terrain_gpu.calc(path, expression, **how).layers["calc"])
        assert np.array_equal(found, np.array([wanted], found.dtype), equal_nan=True), expression
    for expression, words in (
        ("elevation + 1", "beyond int64 at row 0, column 0; multiply an integer by 1.0"),
        ("-elevation", "beyond int64 at row 0, column 0; multiply an integer by 1.0"),
        ("elevation", f"gives {top} at row 0, column 0, which int64 cannot hold"),
    ):
        with pytest.raises(InputError, match=words):
            terrain_gpu.calc(path, expression, into="other")
