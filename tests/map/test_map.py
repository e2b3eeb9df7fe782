"""The server of the map: pictures against plain ones, hostile requests, runs."""

from __future__ import annotations

import http.client
import io
import json
import re
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import geopandas
import numpy as np
import programs
import pytest
import rasterio
from PIL import Image
from rasterio.crs import CRS
from samples import make_layers

from terrain_gpu import (
    GridSpec,
    TileStore,
    build_overviews,
    flow_direction,
    shortest_paths,
    watershed,
)
from terrain_gpu.errors import InputError, OutputError, StoreError
from terrain_gpu.map import MapServer, jobs, pictures, tiles
from terrain_gpu.map.tiles import SIDE, Pyramid

SHAPE = 300, 520
GRID = GridSpec(*SHAPE, (10.0, 0.0, 5000.0, 0.0, -10.0, 9000.0))


def heights():
    row, col = np.mgrid[: SHAPE[0], : SHAPE[1]]
    found = (300 + 0.5 * row + 40 * np.sin(col / 25) * np.cos(row / 30)).astype(np.float32)
    found[100:120, 200:260] = -1  # no value
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store with overviews of one layer."""
    store = tmp_path_factory.mktemp("map") / "dem.zarr"
    kinds = (np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE) // 1000 % 3).astype(np.uint8)
    make_layers(store, GRID, {"elevation": heights(), "kinds": kinds})
    build_overviews(store, layers=["elevation"])
    return store


@pytest.fixture(scope="module")
def server(place):
    with MapServer(place, threads=1) as found:
        found.start()
        yield found


def ask(server, path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, f"/{server.token}/{path}", body, headers)
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    return reply.status, json.loads(data) if "json" in reply.headers["Content-Type"] else data


def picture(server, path):
    status, data = ask(server, path)
    assert status == 200, data
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA")).astype(int)


def blended(name, share):
    """The colour of a ramp."""
    ends = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in pictures.RAMPS[name]])
    at = np.linspace(0, 1, len(ends))
    return np.stack([np.interp(share, at, ends[:, k]) for k in range(3)], axis=-1)


# -- pictures ----------------------------------------------------------------------------------


def test_cells_have_the_colours_of_the_legend(server):
    legend = ask(server, "store/legend/elevation")[1]
    assert (legend["kind"], legend["log"], legend["overviews"]) == ("ramp", False, True)
    found = np.hstack(
        [picture(server, f"store/cells/elevation/1/0/{col}.png") for col in (0, 1, 2)]
    )
    data = heights()[:SIDE]
    assert not found[:, SHAPE[1] :].any()  # beyond the raster
    found = found[:, : SHAPE[1]]
    assert np.array_equal(found[..., 3], np.where(data == -1, 0, 255))
    share = np.clip((data - legend["low"]) / (legend["high"] - legend["low"]), 0, 1)
    apart = np.abs(found[..., :3] - blended("land", share))[data != -1]
    assert apart.max() < 3
    assert legend["min"] == heights()[heights() != -1].min()


def test_overviews_are_shown(server, place):
    found = picture(server, "store/cells/elevation/2/0/0.png")
    data = TileStore.open(place / "overviews/2").layer("elevation").read_window(0, 150, 0, 256)
    legend = ask(server, "store/legend/elevation")[1]
    share = np.clip((data - legend["low"]) / (legend["high"] - legend["low"]), 0, 1)
    apart = np.abs(found[:150, :, :3] - blended("land", share))[data != -1]
    assert apart.max() < 3
    assert not found[150:].any()


def test_classes_without_overviews(server, place):
    legend = ask(server, "store/legend/kinds")[1]
    colours = {int(value): colour for value, colour in legend["classes"]}
    assert sorted(colours) == [0, 1, 2]
    assert len({tuple(colour) for colour in colours.values()}) == 3
    assert not legend["overviews"]
    found = picture(server, "store/cells/kinds/2/0/0.png")[:150, :, :3]
    data = TileStore.open(place).layer("kinds").read_window(0, 300, 0, 512)[::2, ::2]
    assert np.array_equal(found, np.array([colours[k] for k in range(3)])[data])


def test_legends_name_codes(tmp_path):
    """Directions are arrows; edges of a tree, and many labels, are told in words."""
    store = valley_store(tmp_path)
    watershed(store, [(row, 40) for row in range(40)], into="labels")
    with MapServer(store) as server:
        server.start()
        named = [name for name, _ in ask(server, "store/legend/flow_direction")[1]["classes"]]
        assert named[:2] == ["→ E", "↘ SE"]
        assert named[-1] == "outlet"
        assert len(named) == 9
        internal = {
            one["name"] for one in ask(server, "store.json")[1]["layers"] if one["internal"]
        }
        assert internal == {"mst", "labels_points"}
        for name in ("mst", "labels"):
            told = ask(server, f"store/legend/{name}")[1]
            assert (told["classes"], len(told["text"]) > 20) == ([], True), told


def test_far_away_few_cells_are_read(monkeypatch):
    """However large the raster: cells of a tile are at the right place, and their number small."""
    side, read = 10**6, []

    def read_window(r0, r1, c0, c1):
        read.append((r1 - r0) * (c1 - c0))
        row, col = np.mgrid[r0:r1, c0:c1]
        return row * side + col

    layer = SimpleNamespace(read_window=read_window, dtype=np.dtype(np.int64))
    pyramid = Pyramid.__new__(Pyramid)
    pyramid.base, pyramid.layer, pyramid.levels = 1, layer, {1: layer}
    for factor in (2, 8, 16, 1024):
        read.clear()
        window = SIDE - 1, 2 * SIDE + 1, 2 * SIDE - 1, 3 * SIDE + 1  # a tile and its ring
        row, col = np.divmod(pyramid.read(factor, window), side)
        rows, cols = np.mgrid[window[0] : window[1], window[2] : window[3]]
        coarse = tiles.COARSE if factor > tiles.MOST_STEP else 1
        assert np.array_equal(row, rows // coarse * coarse * factor)
        assert np.array_equal(col, cols // coarse * coarse * factor)
        # Each single cell takes one tile of the store, 64 x 64.
        assert len(read) <= 34 * 34
        assert sum(max(one, 4096) for one in read) <= 34 * 34 * 4096


def test_tiles_of_a_hillshade_meet(server):
    """A tile knows the cells around it."""
    found = np.vstack(
        [
            np.hstack([picture(server, f"store/shade/elevation/1/{r}/{c}.png") for c in (0, 1, 2)])
            for r in (0, 1)
        ]
    )[: SHAPE[0], : SHAPE[1]]
    data = heights().astype(float)
    data[data == -1] = np.nan
    shown = server.source.shown("elevation")
    steep = shown._steepness * shown.source.coarsest**0.3
    raised = pictures.STEEP / steep
    expected = pictures.hillshade(np.pad(data, 1, mode="edge"), 10, 10, raised)
    there = ~np.isnan(data)
    assert np.array_equal(found[..., 0][there], expected[there])
    assert not found[..., 3][~there].any()


@pytest.mark.parametrize("what", ["cells", "shade", "lines"])
@pytest.mark.parametrize(("x", "y"), [(1, 1), (-1, 1), (-1, -1)])
def test_tiles_have_north_on_top(tmp_path, what, x, y):
    """Whichever way rows and columns count, as the ascending latitudes of a DataArray do."""
    data = heights()[:200, :230]
    shown = []
    for name, right, up in (("plain", 1, -1), ("turned", x, y)):
        grid = GridSpec(*data.shape, (10.0 * right, 0, 0, 0, 10.0 * up, 0))
        cells = np.ascontiguousarray(data[::-up, ::right])
        make_layers(tmp_path / name, grid, {"elevation": cells})
        tile = tiles.Source(TileStore.open(tmp_path / name), 1, data.shape, {})
        png = tile.shown("elevation").tile(what, 1, 0, 0)
        found = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))
        rows = slice(0, 200) if up < 0 else slice(SIDE - 200, SIDE)
        cols = slice(0, 230) if right > 0 else slice(SIDE - 230, SIDE)
        shown.append(found[rows, cols])
        assert np.count_nonzero(found[..., 3]) == np.count_nonzero(shown[-1][..., 3]) > 0
    apart = np.abs(shown[0].astype(int) - shown[1])
    assert apart.max() <= (4 if what == "shade" else 0)  # of sums in another order


def test_a_hillshade_is_the_same_in_feet(tmp_path):
    """Heights are exaggerated to one mean slope, so their unit does not matter."""
    shades = []
    for unit, factor in (("m", 1), ("ft", 1 / 0.3048)):
        store, data = tmp_path / unit, heights()[:200, :230].astype(np.float64)
        grid = GridSpec(*data.shape, GRID.transform)
        make_layers(store, grid, {"elevation": np.where(data == -1, -1, data * factor)})
        source = tiles.Source(TileStore.open(store), 1, data.shape, {})
        png = source.shown("elevation").tile("shade", 1, 0, 0)
        shades.append(np.asarray(Image.open(io.BytesIO(png)).convert("RGBA")).astype(int))
    assert np.abs(shades[0] - shades[1]).max() <= 1


def test_slopes_towards_the_light_are_bright():
    row, col = np.mgrid[:5, :5].astype(float)
    shades = {
        name: int(pictures.hillshade(plane, 1, 1, 1)[1, 1])
        for name, plane in {"nw": row + col, "flat": row * 0, "se": -row - col}.items()
    }
    assert shades["nw"] > shades["flat"] > shades["se"]


def test_lines_run_where_values_are_round():
    row, col = np.mgrid[-60:61, -60:61]
    away = np.hypot(row, col)
    found = pictures.isolines(np.pad(away, 1, mode="edge"), 20)
    part = np.abs(away / 20 - np.round(away / 20)) * 20
    inside = (away > 5) & (away < 58)
    assert (found[inside & (part < 0.4)] > 150).all()
    assert not found[inside & (part > 2)].any()
    assert not found[away < 5].any()  # no line at 0


@pytest.mark.parametrize(("about", "units", "expected"), [
    (0.0, None, 1), (37.0, None, 50), (0.0123, "m", 0.01), (700.0, "s", 600), (5000.0, "s", 3600),
    (float("inf"), None, 1),
])  # fmt: skip
def test_intervals_are_round(about, units, expected):
    assert tiles._round_interval(about, units) == pytest.approx(expected)


def test_sums_are_shown_on_a_logarithm(tmp_path):
    sums = np.ones(SHAPE, np.uint32)
    sums[:, 77] = 10 ** np.linspace(0, 7, SHAPE[0])
    make_layers(tmp_path / "s.zarr", GRID, {"sums": sums})
    with MapServer(tmp_path / "s.zarr") as server:
        look = server.source.shown("sums").look
        assert (look.log, look.low, look.colours) == (True, 1, "water")
        assert server.runs.why_not == "The store has no elevation layer."
        with pytest.raises(InputError, match="no elevation layer"):
            server.runs.start({"kind": "distance", "places": [[0, 0]]})
    assert pictures.shares(np.array([1, 10, 100, 0, 999]), 1, 100, log=True).tolist() == [
        *(1, 128, 255, 1, 255)
    ]


# -- requests ----------------------------------------------------------------------------------


def test_the_page_and_what_it_needs(server):
    status, page = ask(server, "")
    assert status == 200
    for name in needed_by(page.decode()):
        assert ask(server, name)[0] == 200, name
    told = ask(server, "store.json")[1]
    assert [layer["name"] for layer in told["layers"]] == ["elevation", "kinds"]
    assert (told["rows"], told["cols"], told["levels"], told["coarsest"]) == (*SHAPE, [1, 2, 4], 4)
    values = ask(server, "store/values/0/0?names=elevation,kinds")[1]
    assert values == {"elevation": f"{heights()[0, 0]:.7g}", "kinds": "0"}
    assert ask(server, "store/values/110/230?names=elevation")[1] == {"elevation": None}


def needed_by(page):
    found = re.findall(r'(?:href|src)="([a-z]+\.\w+)"', page)
    assert "map.js" in found
    return [*found, "grid.js", "ol.js", "panel.js", "profile.js", "result.js"]


REFUSED = {
    "store/cells/elevation/1/9/0.png": 404,
    "store/cells/elevation/1/4294967296/0.png": 404,
    "store/cells/elevation/1/99999999999999999999/0.png": 404,
    "store/cells/elevation/3/0/0.png": 404,
    "store/cells/elevation/1048576/0/0.png": 404,
    "store/cells/elevation/0/0/0.png": 404,
    "store/cells/elevation/-1/0/0.png": 404,
    "store/paint/elevation/1/0/0.png": 404,
    "store/cells/nothing/1/0/0.png": 404,
    "store/cells/../1/0/0.png": 404,
    "store/cells/..%2f..%2fetc/1/0/0.png": 404,
    "store/legend/overviews": 404,
    "store/legend/..": 404,
    f"store/legend/{'a' * 300}": 404,
    "store/values/300/0": 404,
    "store/values/0/520?names=elevation": 404,
    "store/values/0/0?names=nothing": 404,
    "../../../etc/passwd": 404,
    "..%2f..%2fpyproject.toml": 404,
    "server.py": 404,
    "nothing.js": 404,
    "OPENLAYERS.txt": 404,
    "runs/7": 404,
    "runs/7/path/0/0": 404,
    "runs/7/catchment": 404,
    "runs/7/files": 405,
    "runs/7/files/upstream.tif": 404,
    "runs/7/files/..": 404,
    "runs/7/keep": 405,
    "runs": 405,
    "store.json/": 404,
    f"{'x' * 70000}": 414,
}


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path[:40])
def test_hostile_paths(server, path):
    assert ask(server, path)[0] == REFUSED[path]


def raw(server, text):
    """The status of a reply to any bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(text.replace("TOKEN", server.token).encode())
        return int(connection.recv(1000).split()[1])


HOST = "Host: 127.0.0.1:PORT\r\n"


@pytest.mark.parametrize(("text", "status"), [
    (f"GET /TOKEN/ HTTP/1.1\r\n{HOST}\r\n", 200),
    ("GET /TOKEN/ HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 200),
    ("GET /TOKEN/ HTTP/1.1\r\nHost: example.org\r\n\r\n", 403),
    ("GET /TOKEN/ HTTP/1.1\r\nHost: 127.0.0.1.example.org:PORT\r\n\r\n", 403),
    ("GET /TOKEN/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", 403),
    ("GET /TOKEN/ HTTP/1.1\r\n\r\n", 403),
    (f"GET /TOKEN/ HTTP/1.1\r\n{HOST}{HOST}\r\n", 403),
    (f"GET / HTTP/1.1\r\n{HOST}\r\n", 404),
    (f"GET /TOKEN HTTP/1.1\r\n{HOST}\r\n", 404),
    (f"GET /wrong/store.json HTTP/1.1\r\n{HOST}\r\n", 404),
    (f"GET /TOKENx/store.json HTTP/1.1\r\n{HOST}\r\n", 404),
    (f"GET //evil/TOKEN/ HTTP/1.1\r\n{HOST}\r\n", 404),
    (f"GET /ü/store.json HTTP/1.1\r\n{HOST}\r\n", 404),
    (f"GET /TOKEN/store.json?{'a=1&' * 10}a=1 HTTP/1.1\r\n{HOST}\r\n", 400),
    (f"GET http://[/TOKEN/ HTTP/1.1\r\n{HOST}\r\n", 400),
    (f"PUT /TOKEN/runs HTTP/1.1\r\n{HOST}\r\n", 501),
    (f"OPTIONS /TOKEN/runs HTTP/1.1\r\n{HOST}\r\n", 501),
    (f"DELETE /TOKEN/store.json HTTP/1.1\r\n{HOST}\r\n", 405),
    (f"POST /TOKEN/store.json HTTP/1.1\r\n{HOST}Content-Length: 0\r\n\r\n", 405),
    (f"POST /TOKEN/runs HTTP/1.1\r\n{HOST}Content-Length: 99999999999\r\n\r\n", 413),
    (f"POST /TOKEN/runs HTTP/1.1\r\n{HOST}Content-Length: -5\r\n\r\n", 411),
    # Answered before a byte of the body is there.
    (f"POST /wrong/runs HTTP/1.1\r\n{HOST}Content-Length: 1000000\r\n\r\n", 404),
    (f"POST /TOKEN/store.json HTTP/1.1\r\n{HOST}Content-Length: 1000000\r\n\r\n", 405),
    (f"POST /TOKEN/runs HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n", 411),
    (f"GET /TOKEN/ HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhello", 413),
    (f"GET /TOKEN/ HTTP/1.1\r\n{HOST}" + "X: y\r\n" * 200 + "\r\n", 431),
])  # fmt: skip
def test_hostile_requests(server, text, status):
    assert raw(server, text.replace("PORT", str(server.port))) == status


def test_headers_keep_other_pages_out(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", f"/{server.token}/")
    reply = connection.getresponse()
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in reply.headers
    assert "Python" not in reply.headers["Server"]
    connection.close()


def test_a_port_that_is_taken(server, place):
    with pytest.raises(OutputError, match=f"port {server.port}: .*choose another"):
        MapServer(place, port=server.port)


def test_a_store_that_is_not_there(tmp_path):
    with pytest.raises(StoreError):
        MapServer(tmp_path / "no.zarr")


def test_the_command(place):
    run = programs.fork(place.parent, f"terrain-gpu map {place.name} --no-browser --threads 1")
    out = run.streams / "out"
    until = time.monotonic() + 60
    while not (url := out.read_text() if out.exists() else "").endswith("/\n"):
        assert time.monotonic() < until
        time.sleep(0.05)
    _, host, token = re.fullmatch(r"(http://)(127.0.0.1:\d+)/([\w-]{32})/\n", url).groups()
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request("GET", f"/{token}/store/shade/elevation/4/0/0.png")
    assert connection.getresponse().status == 200
    connection.close()
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(60)
    assert (run.returncode, err) == (0, "Ctrl-C ends it.\n"), err


# -- runs --------------------------------------------------------------------------------------

JOBS = {
    "[]": "not a JSON object",
    "{": "not JSON",
    "[" * 100_000: "not JSON",
    '{"kind": "rm"}': "unknown kind",
    '{"kind": "distance", "cost": "heights"}': "unknown kind",
    '{"kind": "distance", "factor": 3, "places": [[0, 0]]}': "is not a level",
    '{"kind": "distance", "factor": 1' + 300 * "0" + ', "places": [[0, 0]]}': "is not a level",
    '{"kind": "distance", "factor": "../..", "places": [[0, 0]]}': "is not a level",
    '{"kind": "watershed", "factor": 2, "places": [[0, 0]]}': "is not a level",
    '{"kind": "distance", "places": []}': "pairs",
    '{"kind": "distance", "places": [[0, 1, 2]]}': "pairs",
    '{"kind": "distance", "places": [[0.5, 1]]}': "pairs",
    '{"kind": "distance", "places": [[true, 1]]}': "pairs",
    '{"kind": "distance", "places": [[-1, 0]]}': "outside",
    '{"kind": "distance", "places": [[0, 520]]}': "outside",
    '{"kind": "distance", "places": [[0, 0]], "barriers": [[[0, NaN], [1, 1]]]}': "barriers",
    '{"kind": "distance", "places": [[0, 0]], "barriers": [[[0, 0]]]}': "barriers",
    '{"kind": "distance", "places": [[0, 0]], "barriers": [[[0, 1e300], [1, 1]]]}': "barriers",
    '{"kind": "watershed", "places": [[0, 0]], "snap": -1}': "snap",
    '{"kind": "watershed", "places": [[0, 0]], "snap": NaN}': "snap",
    '{"kind": "watershed", "places": [[0, 0]], "snap": "far"}': "snap",
}


@pytest.mark.parametrize("body", JOBS, ids=lambda body: body[:60])
def test_jobs_that_cannot_be_used(server, body):
    status, told = ask(server, "runs", "POST", body)
    assert status == 400
    assert JOBS[body] in told["error"]
    assert not server.runs.runs


def done(server, job):
    status, told = ask(server, "runs", "POST", json.dumps(job))
    assert status == 201, told
    until = time.monotonic() + 120
    while told["state"] == "running":
        assert time.monotonic() < until
        time.sleep(0.05)
        told = ask(server, f"runs/{told['run']}")[1]
    return told


def test_folders_overviews_and_the_end(tmp_path, monkeypatch):
    """Python in the current folder is not run; new overviews show; a closed map starts nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("open('ran', 'w')")
    store = tmp_path / "dem.zarr"
    make_layers(store, GRID, {"elevation": heights()})
    job = {"kind": "distance", "cost": "absdiff", "places": [[20, 21]]}
    with MapServer(store, threads=1) as server:
        server.start()
        status, told = ask(server, "runs", "POST", json.dumps({**job, "factor": 2}))
        assert (status, "build overviews" in told["error"]) == (400, True)
        assert not ask(server, "store/legend/elevation")[1]["overviews"]
        before = ask(server, "store.json")[1]["layers"][0]["version"]
        build_overviews(store, layers=["elevation"])
        assert ask(server, "store.json")[1]["layers"][0]["version"] != before
        assert ask(server, "store/legend/elevation")[1]["overviews"]
        assert done(server, {**job, "factor": 2})["state"] == "done"
        still = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        still.request("GET", f"/{server.token}/store.json")
        still.getresponse().read()
        server.close()
        still.request("POST", f"/{server.token}/runs", json.dumps(job))
        reply = still.getresponse()
        assert (reply.status, "closed" in json.loads(reply.read())["error"]) == (400, True)
        still.close()
    assert not (tmp_path / "ran").exists()


def contents(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_a_run_around_a_barrier(place, monkeypatch, tmp_path):
    """Distances, values and paths are those of the library, and the store stays as it was."""
    monkeypatch.setenv("TERRAIN_GPU_SCRATCH", str(tmp_path))
    before = contents(place)
    # In cells of the level: a wall with its opening at the right.
    job = {"kind": "distance", "cost": "absdiff", "factor": 2, "places": [[20, 21]]}
    job["barriers"] = [[[80.5, -3.0], [80.5, 500.5]]]
    with MapServer(place, threads=1) as server:
        server.start()
        told = done(server, job)
        assert told["state"] == "done", told
        level = TileStore.open(place / "overviews/2")
        cells = level.layer("elevation").read_window(0, 150, 0, 260)
        barriers = np.zeros(cells.shape, np.uint8)
        barriers[40, :251] = 1
        expected = shortest_paths(
            cells, [(10, 10)], cost="absdiff", barriers=barriers, nodata=-1, backlink=True,
            corner_cutting=False,
        )  # fmt: skip
        found = server.runs.runs[1].source.store.layer("cost_distance")
        assert np.array_equal(
            found.read_window(0, 150, 0, 260), expected.distance(), equal_nan=True
        )
        value = ask(server, "runs/1/values/290/30?names=cost_distance")[1]["cost_distance"]
        assert float(value) == pytest.approx(expected.distance()[145, 15])
        path = ask(server, "runs/1/path/290/30")[1]
        assert [[(a - 1) / 2, (b - 1) / 2] for a, b in path["cells"]] == (
            expected.path(145, 15).tolist()
        )
        walked = expected.paths([(145, 15)], [(10, 10)])[0]
        assert path["length"] == pytest.approx(20 * walked.length)
        assert path["profile"][-1] == [pytest.approx(path["length"], abs=0.01), cells[145, 15]]
        assert ask(server, "runs/1/path/80/30")[1] is None
        assert picture(server, "runs/1/cells/cost_distance/2/0/0.png")[10, 10, 3] == 255
        assert picture(server, "runs/1/lines/cost_distance/4/0/0.png").any()
        assert ask(server, "runs/1/cells/cost_distance/1/0/0.png")[0] == 404  # finer than the run
        assert ask(server, "runs/1/legend/elevation/x")[0] == 404
        assert list(tmp_path.iterdir())
        told = done(server, {"kind": "distance", "places": [[110, 230]]})
        assert told["state"] == "failed"
        assert "no value" in told["error"] or "nodata" in told["error"]
        # The next run ends the one before.
        job = json.dumps({"kind": "distance", "places": [[0, 0]]})
        first = ask(server, "runs", "POST", job)[1]["run"]
        second = ask(server, "runs", "POST", job)[1]["run"]
        assert ask(server, f"runs/{first}")[1]["state"] == "cancelled"
        assert ask(server, f"runs/{second}", "DELETE")[1]["state"] == "cancelled"
        assert ask(server, "runs/1")[0] == 404  # only the last ones are kept
        assert len(server.runs.runs) == jobs.KEPT
        running = [run.process for run in server.runs.runs.values()]
    assert all(process.poll() is not None for process in running)
    assert not list(tmp_path.iterdir())
    assert contents(place) == before


def test_what_is_upstream(tmp_path):
    row, col = np.mgrid[:60, :80]
    valley = (row + np.abs(col - 40.0)).astype(np.float32)  # drains up the rows, along column 40
    store = tmp_path / "v.zarr"
    make_layers(store, GridSpec(60, 80), {"elevation": valley})
    flow_direction(store, outlets="edge")
    with MapServer(store, threads=1) as server:
        server.start()
        assert ask(server, "store.json")[1]["directions"]
        told = done(server, {"kind": "watershed", "places": [[30, 40]]})
        assert told["state"] == "done", told
        found = picture(server, f"runs/{told['run']}/cells/upstream/1/0/0.png")[:60, :80, 3]
        assert found[30, 40] == found[58, 40] == found[50, 30] == 255
        assert not found[:30].any()


def valley_store(folder, crs=""):
    """A valley that drains up the rows, along column 40, with flow directions."""
    row, col = np.mgrid[:60, :80]
    store = folder / "v.zarr"
    grid = GridSpec(60, 80, (10.0, 0, 5000, 0, -10, 9000), crs)
    make_layers(store, grid, {"elevation": (row + np.abs(col - 40.0)).astype(np.float32)})
    flow_direction(store, outlets="edge")
    return store


def written(server, run, form, places=()):
    """A file of a result, as the page downloads it."""
    description = json.dumps({"form": form, "places": list(places)})
    status, told = ask(server, f"runs/{run}/files", "POST", description)
    assert status == 201, told
    status, data = ask(server, told["file"])
    assert status == 200
    return data


UTM = CRS.from_epsg(32633).to_wkt(version="WKT2_2019")


def test_a_catchment_its_way_down_and_its_files(tmp_path):
    store = valley_store(tmp_path, UTM)
    expected = watershed(store, [(30, 40)], into="expected").layers["expected"]
    inside = expected.read_window(0, 60, 0, 80) == 1
    heights = TileStore.open(store).layer("elevation").read_window(0, 60, 0, 80)[inside]
    with MapServer(store, threads=1) as server:
        server.start()
        told = done(server, {"kind": "watershed", "places": [[30, 42]], "snap": 20})
        assert told["state"] == "done", told
        words = f"{store} --pour-point-rowcol 30,42 --snap '20 map units' -o upstream.tif"
        assert words in told["command"]
        run = told["run"]
        found = ask(server, f"runs/{run}/catchment")[1]
        assert (found["run"], found["outlet"]) == (run, [30, 40])  # snapped to the channel
        facts = found["facts"]
        assert facts["cells"] == inside.sum()
        assert facts["area_km2"] == pytest.approx(inside.sum() * 100 / 1e6)
        assert [facts[key] for key in ("lowest", "mean", "highest")] == [
            heights.min(), pytest.approx(heights.mean()), heights.max()
        ]  # fmt: skip
        ((ring,),) = found["outline"]
        row, col = np.array(ring).T
        area = abs(np.sum(row[:-1] * col[1:] - row[1:] * col[:-1])) / 2
        assert area == pytest.approx(inside.sum(), abs=0.1)
        assert found["down"]["cells"] == [[r + 0.5, 40.5] for r in range(30, -1, -1)]
        assert found["down"]["descent"] == pytest.approx(30)
        # The files.
        with rasterio.MemoryFile(written(server, run, "tif")) as file, file.open() as raster:
            assert np.array_equal(raster.read(1) == 1, inside)
            assert raster.profile["tiled"]
        (tmp_path / "c.gpkg").write_bytes(written(server, run, "gpkg"))
        frame = geopandas.read_file(tmp_path / "c.gpkg", layer="catchment")
        assert frame.area[0] == pytest.approx(inside.sum() * 100, rel=1e-4)
        assert frame.area_km2[0] == facts["area_km2"]
        frame = geopandas.read_file(tmp_path / "c.gpkg", layer="way_down")
        assert frame.length[0] == pytest.approx(300)
        features = json.loads(written(server, run, "geojson"))["features"]
        assert [one["properties"]["layer"] for one in features] == ["catchment", "way_down"]
        # A layer of the store.
        body = json.dumps({"name": "mine"})
        assert ask(server, f"runs/{run}/keep", "POST", body) == (201, {"name": "mine"})
        kept = TileStore.open(store).layer("mine").read_window(0, 60, 0, 80)
        assert np.array_equal(kept == 1, inside)
        for name, why in (("mine", "already"), ("../x", "cannot be"), ("", "cannot be"), (3, "")):
            status, told = ask(server, f"runs/{run}/keep", "POST", json.dumps({"name": name}))
            assert (status, why in told["error"]) == (400, True)


def test_paths_and_barriers_in_files(tmp_path):
    store = valley_store(tmp_path)
    with MapServer(store, threads=1) as server:
        server.start()
        job = {"kind": "distance", "cost": "absdiff", "places": [[0, 40]]}
        job["barriers"] = [[[10, 30], [10.5, 50]]]
        run = done(server, job)["run"]
        path = ask(server, f"runs/{run}/path/50/40")[1]
        (feature,) = json.loads(written(server, run, "geojson", [[50, 40]]))["features"]
        assert feature["properties"]["length"] == pytest.approx(path["length"])
        first, last = feature["geometry"]["coordinates"][:: len(path["cells"]) - 1]
        assert (first, last) == ([5405, 8995], [5405, 8495])
        (feature,) = json.loads(written(server, run, "barriers"))["features"]
        assert feature["geometry"]["coordinates"] == [[5300, 8900], [5500, 8895]]
        for body, why in (
            ({"form": "exe"}, "form"),
            ({"form": "gpkg", "places": [[99, 0]]}, "inside"),
            ({"form": "gpkg", "places": []}, "no path"),
        ):
            status, told = ask(server, f"runs/{run}/files", "POST", json.dumps(body))
            assert (status, why in told["error"]) == (400, True)


def test_a_result_of_a_coarser_level(place):
    with MapServer(place, threads=1) as server:
        server.start()
        told = done(server, {"kind": "distance", "places": [[20, 21]], "factor": 2})
        assert f"{place / 'overviews/2'} --source-rowcol 10,10" in told["command"]
        status, told = ask(server, f"runs/{told['run']}/keep", "POST", '{"name": "far"}')
        assert (status, "coarser" in told["error"]) == (400, True)


def test_bodies_are_refused_before_they_are_read(server):
    """Whatever a stranger sends, memory does not grow: 300 connections once took 310 MB."""
    connections = []
    try:
        for _ in range(50):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            connections.append(connection)
            head = f"Host: 127.0.0.1:{server.port}\r\nContent-Length: 1000000\r\n\r\n"
            connection.sendall(f"POST /wrong/runs HTTP/1.1\r\n{head}".encode())
        assert {int(one.recv(1000).split()[1]) for one in connections} == {404}
    finally:
        for connection in connections:
            connection.close()


def test_the_first_picture_needs_no_compiler():
    """Importing numba takes longer than all else up to the first picture."""
    lines = "import sys, terrain_gpu.map; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", lines], check=True)
