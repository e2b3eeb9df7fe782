"""GRASS ASCII rasters: header dialects, nulls, text cut anywhere, refusals."""

from __future__ import annotations

import contextlib
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import same_bits, windows

from terrain_gpu.errors import InputError
from terrain_gpu.io import grass_ascii
from terrain_gpu.io.grass_ascii import GrassAscii, is_grass_ascii
from terrain_gpu.io.inputs import open_input

HEADER = "north: 40\nsouth: 10\neast: 50\nwest: 0\nrows: 3\ncols: 5\n"
ROWS = "1 2 3 4 5\n6 7 8 9 10\n11 12 13 14 15\n"
CELLS = np.arange(1, 16, dtype=np.int32).reshape(3, 5)


@pytest.fixture
def save(tmp_path):
    def write(text, name="a.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def read(path):
    reader = GrassAscii(path)
    out = np.empty(reader.grid.shape, reader.dtype)
    reader.read(reader.grid.window, out)
    reader.close()
    return out


def test_a_plain_file(save):
    path = save(HEADER + ROWS)
    assert is_grass_ascii(path)
    reader = GrassAscii(path)
    assert reader.grid.shape == (3, 5)
    assert reader.grid.transform == (10.0, 0.0, 0.0, 0.0, -10.0, 40.0)
    assert reader.grid.bounds == (0.0, 10.0, 50.0, 40.0)
    assert (reader.grid.crs_wkt, reader.grid.crs_code) == ("", None)
    assert reader.dtype == np.int32
    assert reader.nodata == -9999
    assert same_bits(read(path), CELLS)


# -- recognising ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", ["north: 1", "rows: 5", "  WEST: 7", "\n\nsouth:0", "Cols:3", "EAST:   1"]
)
def test_headers_are_recognised(save, start):
    assert is_grass_ascii(save(start))


@pytest.mark.parametrize(
    "start", ["ncols 5\nnrows 3", "northern: 1", "north 1", "", "II*\0", "type: int", "x north: 1"]
)
def test_others_are_not(save, start):
    assert not is_grass_ascii(save(start))


def test_missing_files_and_folders_are_not(tmp_path):
    assert not is_grass_ascii(str(tmp_path / "none"))
    assert not is_grass_ascii(str(tmp_path))


# -- header --------------------------------------------------------------------------------


@given(st.permutations(HEADER.splitlines()), st.data())
def test_header_lines_in_any_order_and_case(folders, lines, data):
    change = data.draw(st.sampled_from([str.upper, str.title, str.lower]))
    space = data.draw(st.sampled_from(["", " ", "\t", "      "]))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    header = end.join(change(line).replace(": ", f"{space}:{space}") for line in lines)
    with folders() as folder:
        (folder / "a").write_bytes((header + end + ROWS.replace("\n", end)).encode())
        assert same_bits(read(str(folder / "a")), CELLS)


@pytest.mark.parametrize(
    ("text", "degrees"),
    [
        ("36:30N", 36.5),
        ("36:30S", -36.5),
        ("84:24:49W", -(84 + 24 / 60 + 49 / 3600)),
        ("84:24:49.5E", 84 + 24 / 60 + 49.5 / 3600),
        ("84:24:49e", 84 + 24 / 60 + 49 / 3600),
        ("0:00:30s", -30 / 3600),
        ("84.25W", -84.25),
        ("-84:30", -84.5),
        ("-84.5", -84.5),
        ("+7.5", 7.5),
        ("1e3", 1000.0),
        ("0", 0.0),
    ],
)
def test_coordinates(text, degrees):
    assert grass_ascii._coordinate(text) == pytest.approx(degrees, abs=1e-12)


@pytest.mark.parametrize(
    "text", ["", "N", "ten", "10:60:00N", "10:00:75N", "10:-5:00N", "1:2:3:4N", "5NN", "--5"]
)
def test_what_is_no_coordinate(text):
    with pytest.raises(ValueError, match="coordinate"):
        grass_ascii._coordinate(text)


def test_degrees_minutes_seconds_place_the_grid(save):
    header = (
        "north: 36:30:00N\nsouth: 36:00:00N\neast: 84:00:00W\nwest: 84:30:00W\nrows: 3\ncols: 5\n"
    )
    reader = GrassAscii(save(header + ROWS))
    assert reader.grid.bounds == pytest.approx((-84.5, 36.0, -84.0, 36.5), abs=1e-12)


@pytest.mark.parametrize(
    ("type_", "dtype"),
    [("int", np.int32), ("float", np.float32), ("double", np.float64), (" int ", np.int32)],
)
def test_the_type_header_decides(save, type_, dtype):
    assert same_bits(read(save(f"{HEADER}type: {type_}\n{ROWS}")), CELLS.astype(dtype))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("3", np.int32),
        ("3.0", np.float32),
        ("3e0", np.float32),
        ("3E0", np.float32),
        ("nan", np.float32),
        ("*", np.int32),
        ("-3", np.int32),
        ("+3", np.int32),
    ],
)
def test_without_a_type_the_cells_decide(save, value, dtype):
    path = save(HEADER + ROWS.replace("14", value))
    found = read(path)
    assert found.dtype == dtype
    expected = CELLS.astype(dtype)
    expected[2, 3] = -9999 if value in ("*", "nan") else float(value)
    assert same_bits(found, expected)


def test_every_int32_and_double_is_exact(save):
    values = [2**31 - 1, -(2**31) + 1, 2**24 + 1, 16777217, 0]
    text = "north: 1\nsouth: 0\neast: 5\nwest: 0\nrows: 1\ncols: 5\n"
    assert read(save(text + " ".join(map(str, values)))).tolist() == [values]
    reals = [0.1, 1 / 3, 1e300, -2.5e-308, 123456.789012345678]
    text += "type: double\n" + " ".join(map(repr, reals))
    assert read(save(text)).tolist() == [reals]
    assert read(save(text.replace("double", "float").replace("1e+300", "7"))).tolist() == [
        [float(np.float32(7.0 if v == 1e300 else v)) for v in reals]
    ]


# -- nulls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["int", "float", "double"])
@pytest.mark.parametrize(
    ("null", "nodata"), [(None, -9999), ("-32768", -32768), ("*", -9999), ("0", 0), ("7", 7)]
)
def test_nulls(save, type_, null, nodata):
    head = HEADER + f"type: {type_}\n" + ("" if null is None else f"null: {null}\n")
    marker = "*" if null is None else null
    path = save(head + ROWS.replace("14", marker).replace("12", "*"))
    reader = GrassAscii(path)
    assert reader.nodata == nodata
    expected = CELLS.astype(reader.dtype)
    expected[2, [1, 3]] = nodata
    assert same_bits(read(path), expected)


def test_nan_as_null_of_real_cells(save):
    path = save(HEADER + "type: float\nnull: nan\n" + ROWS.replace("14", "*"))
    assert np.isnan(GrassAscii(path).nodata)
    assert np.isnan(read(path)[2, 3])
    assert np.isnan(read(path)).sum() == 1


def test_a_raster_of_nulls(save):
    assert (read(save(HEADER + "* * * * *\n" * 3)) == -9999).all()


# -- text cut anywhere ---------------------------------------------------------------------


@st.composite
def files(draw):
    """Header, text with arbitrary white space, and the cells it means."""
    rows, cols = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    real = draw(st.booleans())
    number = st.floats(-1e6, 1e6, width=32) if real else st.integers(-99999, 99999)
    values = draw(
        st.lists(st.one_of(st.none(), number), min_size=rows * cols, max_size=rows * cols)
    )
    gap = st.sampled_from([" ", "\n", "\t", "\r\n", "  ", " \n ", "\n\n", " " * 40])
    head = f"north: {rows}\nsouth: 0\neast: {cols}\nwest: 0\nrows: {rows}\ncols: {cols}\n"
    head += f"type: {'double' if real else 'int'}\n"
    body = draw(st.sampled_from(["", " ", "\n"]))
    gaps = draw(st.lists(gap, min_size=len(values), max_size=len(values)))
    for value, white in zip(values, gaps, strict=True):
        body += ("*" if value is None else repr(value)) + white
    if draw(st.booleans()):
        body = body.rstrip()
    cells = np.array([-9999 if v is None else v for v in values], np.float64 if real else np.int32)
    return (head + body).encode(), cells.reshape(rows, cols)


@given(files(), st.integers(1, 60), st.data())
def test_any_white_space_chunk_and_order_of_reading(folders, drawn, chunk, data):
    """Windows in any order: forwards, backwards and again, with lines wrapped anywhere."""
    text, cells = drawn
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(grass_ascii, "_CHUNK", chunk)
        (folder / "a").write_bytes(text)
        reader = GrassAscii(str(folder / "a"))
        for _ in range(data.draw(st.integers(1, 4))):
            r0, r1, c0, c1 = window = data.draw(windows(cells.shape))
            out = np.empty((r1 - r0, c1 - c0), reader.dtype)
            reader.read(window, out)
            assert same_bits(out, cells[r0:r1, c0:c1])
        reader.close()


def test_long_stretches_without_a_value(save, monkeypatch):
    """Far more chunks of blanks, or of one endless token, than Python has stack frames."""
    monkeypatch.setattr(grass_ascii, "_CHUNK", 4)
    path = save(HEADER + ROWS.replace("7", " " * 20_000 + "7") + "\n" * 20_000)
    assert same_bits(read(path), CELLS)
    path = save(HEADER + "type: double\n" + ROWS.replace("7", "7." + "0" * 20_000))
    assert same_bits(read(path), CELLS.astype(np.float64))


def test_threads_take_turns(save):
    rows = 200
    cells = np.arange(rows * 50, dtype=np.int32).reshape(rows, 50)
    head = f"north: {rows}\nsouth: 0\neast: 50\nwest: 0\nrows: {rows}\ncols: 50\n"
    reader = GrassAscii(save(head + "\n".join(" ".join(map(str, r)) for r in cells.tolist())))
    wrong = []

    def look(k):
        for r in np.random.default_rng(k).integers(0, rows - 5, 8):
            out = np.empty((5, 50), np.int32)
            reader.read((r, r + 5, 0, 50), out)
            if not np.array_equal(out, cells[r : r + 5]):
                wrong.append(r)

    threads = [threading.Thread(target=look, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader.close()
    assert wrong == []


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["north", "south", "east", "west", "rows", "cols"])
def test_a_header_line_is_missing(save, gone):
    text = "".join(line + "\n" for line in HEADER.splitlines() if not line.startswith(gone))
    with pytest.raises(InputError, match=rf"a\.txt: GRASS ASCII header: '{gone}' is missing"):
        GrassAscii(save(text + ROWS))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows: 3", "rows: three", "three"),
        ("rows: 3", "rows: 3.5", "3.5"),
        ("rows: 3", "rows: 0", "0 rows"),
        ("cols: 5", "cols: -5", "-5 columns"),
        ("cols: 5", "cols:", "cols"),
        ("rows: 3", "rows: 9999999999", "each side must be"),
        ("north: 40", "north: up", "up"),
        ("north: 40", "north: nan", "'nan' is not a coordinate"),
        ("north: 40", "north: inf", "'inf' is not a coordinate"),
        ("north: 40\nsouth: 10", "north: 1e308\nsouth: -1e308", "not invertible"),
        ("north: 40", "north: 10", "empty area: north 10"),
        ("east: 50", "east: -1", "east -1"),
        ("cols: 5\n", "cols: 5\ntype: complex\n", "complex"),
        ("cols: 5\n", "cols: 5\nnull: none\n", "none"),
    ],
)
def test_headers_that_make_no_sense(save, old, new, message):
    with pytest.raises(InputError, match=message) as caught:
        GrassAscii(save(HEADER.replace(old, new) + ROWS))
    assert "a.txt" in str(caught.value)


@given(st.integers(0, len(ROWS.split()) - 1), st.integers(1, 40))
def test_truncation_names_the_row(folders, count, chunk):
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(grass_ascii, "_CHUNK", chunk)
        text = HEADER + "type: int\n" + "\n".join(ROWS.split()[:count])
        (folder / "a").write_text(text)
        reader = GrassAscii(str(folder / "a"))
        whole = count // 5
        out = np.empty((3, 5), np.int32)
        if whole:
            reader.read((0, whole, 0, 5), out[:whole])
            assert np.array_equal(out[:whole], CELLS[:whole])
        with pytest.raises(InputError, match=rf"ends in row {whole} of 3; the file is truncated"):
            reader.read((whole, 3, 0, 5), out[whole:])
        with pytest.raises(InputError, match=rf"ends in row {whole} of 3; the file is truncated"):
            reader.read((0, 3, 0, 5), out)
        reader.close()


def test_a_header_alone(save):
    with pytest.raises(InputError, match="ends in row 0 of 3; the file is truncated"):
        read(save(HEADER))


@pytest.mark.parametrize(
    "junk", ["abc", "1,5", "0x10", "1_000", "--1", "1d5", "\0", "1\x002", "\xff\xfe", "**", "1..5"]
)
@pytest.mark.parametrize("type_", ["int", "double"])
def test_garbage_names_the_row(save, junk, type_):
    text = (HEADER + f"type: {type_}\n" + ROWS.replace("14", junk)).encode("latin-1")
    reader = GrassAscii(save(text))
    out = np.empty((3, 5), reader.dtype)
    for _ in range(2):  # it is refused again
        with pytest.raises(InputError, match=r"a\.txt: near row 2, column 3: .* is not a number"):
            reader.read((0, 3, 0, 5), out)
    reader.close()


ARC = "ncols 5\nnrows 3\nxllcorner 0\nyllcorner 0\ncellsize 1\n"


@pytest.mark.parametrize("header", [HEADER, ARC])
def test_a_word_as_long_as_the_file_is_not_held(tmp_path, header):
    """Nor are many short ones at a time."""
    texts = {"long": "x" * 5_000_000, "short": "7\n" * 2_500_000}
    texts["mixed"] = "7 " * 9000 + "x" * 50_000 + "\n"
    for name, text in texts.items():
        path = tmp_path / f"{name}.{'txt' if header != ARC else 'asc'}"
        path.write_text(header + text)
        tracemalloc.start()
        try:
            with (
                pytest.raises(InputError, match=r"is not a number|values"),
                contextlib.closing(open_input(str(path), None)) as raster,
            ):
                raster.read((0, 3, 0, 5), np.empty((3, 5), raster.dtype))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 20_000_000


def test_garbage_is_placed_and_nothing_shifts_after_it(save, monkeypatch):
    monkeypatch.setattr(grass_ascii, "_CHUNK", 3)
    reader = GrassAscii(save(HEADER + ROWS.replace("9", "x")))
    out = np.zeros((3, 5), reader.dtype)
    for window in ((0, 2, 0, 5), (1, 2, 0, 5), (2, 3, 0, 5)):
        with pytest.raises(InputError, match=r"row 1, column 3: 'x' is not a number"):
            reader.read(window, out[window[0] : window[1]])
    reader.read((0, 1, 0, 5), out[:1])
    assert out[:1].tolist() == CELLS[:1].tolist()
    reader.close()


@pytest.mark.parametrize("value", ["1.5", "1e-3", "2147483648", "-2147483649", "1e10", "inf"])
def test_what_is_no_integer_in_an_integer_file(save, value):
    text = HEADER + "type: int\n" + ROWS.replace("14", value)
    message = r"a\.txt: row 2, column 3: .* is not a 32-bit integer"
    with pytest.raises(InputError, match=message):
        read(save(text))
    reader = GrassAscii(save(text))
    out = np.empty((1, 2), np.int32)
    with pytest.raises(InputError, match=message):
        reader.read((2, 3, 3, 5), out)
    reader.close()


def test_integers_written_as_reals_are_integers(save):
    assert same_bits(read(save(HEADER + "type: int\n" + ROWS.replace("14", "14.0"))), CELLS)


@pytest.mark.parametrize("value", ["1e39", "-3.5e38", "1e300"])
def test_reals_beyond_their_type_are_refused(save, value):
    text = HEADER + "type: float\n" + ROWS.replace("14", value)
    with pytest.raises(InputError, match=r"a\.txt: row 2, column 3: .*float32"):
        read(save(text))


def test_more_values_than_cells_are_refused(save):
    """A wrong number of columns would shift every row: it must not pass silently."""
    with pytest.raises(InputError, match=r"a\.txt: .*more .*than 3 x 5"):
        read(save(HEADER + ROWS + "16\n"))
    assert same_bits(read(save(HEADER + ROWS + " \n\n\t\n")), CELLS)
