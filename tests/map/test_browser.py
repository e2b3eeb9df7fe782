"""The page of the map in Debian's Chromium; skipped without it, its driver and selenium."""

from __future__ import annotations

import shutil
import time
import warnings

import numpy as np
import pytest
import rasterio
from rasterio.crs import CRS
from samples import make_layers

from terrain_gpu import GridSpec, build_overviews, flow_direction
from terrain_gpu.map import MapServer

webdriver = pytest.importorskip("selenium.webdriver")
PROGRAMS = shutil.which("chromium"), shutil.which("chromedriver")
if not all(PROGRAMS):
    pytest.skip("needs chromium and chromium-driver", allow_module_level=True)

SHAPE = 300, 400


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    row, col = np.mgrid[: SHAPE[0], : SHAPE[1]]
    valley = (0.5 * row + np.abs(col - 200) * 0.4).astype(np.float32)
    store = tmp_path_factory.mktemp("map") / "valley.zarr"
    crs = CRS.from_epsg(32633).to_wkt(version="WKT2_2019")
    grid = GridSpec(*SHAPE, (10.0, 0.0, 5000.0, 0.0, -10.0, 9000.0), crs)
    kinds = (row // 100 + col // 200).astype(np.uint8)
    make_layers(store, grid, {"elevation": valley, "kinds": kinds, "numbers": row * col})
    flow_direction(store, outlets="edge")
    build_overviews(store, layers=["elevation"])
    with MapServer(store, threads=1) as found:
        found.start()
        yield found


@pytest.fixture(scope="module")
def chromium():
    options = webdriver.ChromeOptions()
    options.binary_location = PROGRAMS[0]
    words = "headless=new no-sandbox disable-gpu disable-dev-shm-usage window-size=1200,800"
    for word in words.split():
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(PROGRAMS[1]))
    yield driver
    driver.quit()


@pytest.fixture(params=["light", "dark"])
def scheme(request, chromium):
    feature = {"name": "prefers-color-scheme", "value": request.param}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    yield request.param
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def page(server, chromium, tmp_path):
    """The page, whose script must not complain; pictures of it go to the folder of the test."""
    chromium.get("about:blank")
    chromium.get(server.url)
    found = Page(chromium, tmp_path)
    found.until("return document.querySelectorAll('#layers .ramp').length > 0")
    yield found
    assert chromium.get_log("browser") == []


class Page:
    def __init__(self, driver, folder):
        self.driver, self.folder = driver, folder

    def run(self, script, *given):
        return self.driver.execute_script(script, *given)

    def until(self, script, seconds=60):
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, (script, self.text("#error"), self.text("#phase"))
            time.sleep(0.1)
        return found

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def pick(self, tool):
        self.run(f"document.querySelector('input[value={tool}]').click()")

    def at(self, x, y, click=0):
        """Move the pointer to a part of the map right of the panel, and click."""
        actions = webdriver.ActionChains(self.driver, duration=20)
        middle = self.find("#map")
        width, height = middle.size["width"], middle.size["height"]
        actions.move_to_element_with_offset(middle, int((x - 0.5) * width), int((y - 0.5) * height))
        for _ in range(click):
            actions.click()
        actions.perform()

    def tap(self, x, y):
        """Touch a part of the window."""
        width, height = self.run("return [innerWidth, innerHeight]")
        points = [{"x": x * width, "y": y * height}]
        for kind, at in (("touchStart", points), ("touchEnd", [])):
            message = {"type": kind, "touchPoints": at}
            self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", message)

    def delay(self, words):
        """Hold back replies to requests; `window.held` lists the functions that send them."""
        self.run(
            """const ask = window.direct = window.fetch;
               window.held = [];
               window.come = 0;
               window.fetch = async (place, ...more) => {
                 const reply = await ask(place, ...more);
                 if (!String(place).includes(arguments[0][0])
                     || (more[0]?.method ?? "GET") !== arguments[0][1]) return reply;
                 await new Promise((done) => window.held.push(done));
                 ++window.come;
                 return reply;
               };""".replace("arguments[0]", repr(list(words)))
        )

    def shot(self, name):
        """Keep a picture of the window; return the lightness of its cells, 0 to 255."""
        file = str(self.folder / f"{name}.png")
        assert self.driver.save_screenshot(file)
        with warnings.catch_warnings(action="ignore"), rasterio.open(file) as picture:
            light = picture.read([1, 2, 3]).mean(axis=0)
        assert light.std() > 5, "one colour"
        return light

    def type(self, selector, text):
        """Type text into an empty field, and press Enter."""
        field = self.find(selector)
        field.clear()
        field.send_keys(text, webdriver.Keys.ENTER)

    def press(self, *keys):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def painted(self):
        """Share of the map that is not empty."""
        return self.run(
            """const found = [...document.querySelectorAll("#map canvas")].map((canvas) => {
                 const { width, height } = canvas;
                 const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
                 let count = 0;
                 for (let k = 3; k < data.length; k += 4) count += data[k] > 0;
                 return (4 * count) / data.length;
               });
               return Math.max(0, ...found)"""
        )


def test_layers_legend_and_link(page):
    assert page.text("#title") == "valley.zarr"
    assert "300 \u00d7 400 cells" in page.text("#facts")
    end = time.monotonic() + 60
    while page.painted() < 0.1:
        assert time.monotonic() < end
        time.sleep(0.1)
    ends = page.run("return [...document.querySelectorAll('.ends span')].map((s) => s.textContent)")
    assert float(ends[0]) < float(ends[1]) <= 230
    assert "all: 0 to 229.5" in page.text("#layers")
    # By keyboard: a layer more, and less opacity.
    page.run("document.getElementById('layer-flow_direction').focus()")
    page.press(" ")
    page.until("return document.querySelectorAll('.classes').length > 0")
    page.run(
        "const o = document.getElementById('opacity-elevation'); o.value = 0.25;"
        "o.dispatchEvent(new Event('input'))"
    )
    link = page.until("return location.hash.includes('elevation%3A0.25') && location.hash")
    assert "flow_direction" in link
    page.driver.refresh()
    page.until("return document.querySelectorAll('.classes').length > 0")
    assert page.run("return document.getElementById('opacity-elevation').value") == "0.25"
    unnamed = page.run(
        """return [...document.querySelectorAll("input, select, button, #map")].filter((one) =>
             !one.labels?.length && !one.getAttribute("aria-label") && !one.textContent.trim()
             && !one.title).length"""
    )
    assert unnamed == 0
    page.shot("layers")


def test_hover_and_keyboard(page, server):
    page.at(0.62, 0.5)
    text = page.until("return document.getElementById('readout').textContent")
    x, y = (float(one.strip(",")) for one in text.split()[:2])
    assert 5000 < x < 9000
    assert 6000 < y < 9000
    row, col = (9000 - y) // 10, (x - 5000) // 10
    expected = 0.5 * row + abs(col - 200) * 0.4
    page.shot("hover")
    assert float(text.split("elevation ")[1].split(",")[0]) == pytest.approx(expected, abs=0.06)
    page.run("document.getElementById('map').focus({ focusVisible: true })")
    before = page.run("return location.hash")
    page.press("+")
    page.until(f"return location.hash !== '{before}'")
    assert page.run("return getComputedStyle(document.getElementById('cross')).display") == "block"
    # A barrier and a source.
    page.pick("barrier")
    page.run("document.getElementById('map').focus({ focusVisible: true })")
    for key in (webdriver.Keys.ENTER, webdriver.Keys.ARROW_RIGHT, webdriver.Keys.ENTER):
        before = page.run("return location.hash")
        page.press(key)
        if key != webdriver.Keys.ENTER:
            page.until(f"return location.hash !== '{before}'")
            time.sleep(0.5)
    page.press(webdriver.Keys.ESCAPE)
    page.until("return !document.getElementById('clear').disabled")
    page.pick("distance")
    page.run("document.getElementById('map').focus({ focusVisible: true })")
    page.press(webdriver.Keys.ARROW_DOWN)  # away from the barrier
    time.sleep(0.8)
    page.press(webdriver.Keys.ENTER)
    page.until("return document.getElementById('layer-run') !== null")
    page.shot("by-keyboard")
    job = list(server.runs.runs.values())[-1].job
    ((begin, *_, end),) = job.barriers
    assert begin[0] == pytest.approx(end[0])
    assert begin[1] < end[1]
    assert job.places[0][0] > end[0]
    assert job.places[0][1] == int(end[1])


def test_distance_path_barrier_and_upstream(page):
    page.pick("distance")
    page.at(0.5, 0.4, click=1)
    page.until("return document.getElementById('layer-run') !== null")
    assert "a line every" in page.until(
        "const t = document.getElementById('layers').textContent;"
        "return t.includes('line every') && t"
    )
    page.at(0.7, 0.7)
    caption = page.until(
        "return !document.getElementById('profile').hidden"
        " && document.querySelector('#profile figcaption').textContent"
    )
    page.shot("path")
    assert "over" in caption
    assert "heights" in caption
    # A barrier, and again: the way is longer.
    page.pick("barrier")
    page.at(0.55, 0.57, click=1)
    time.sleep(0.4)
    page.at(0.88, 0.57, click=1)
    time.sleep(0.4)
    page.at(0.88, 0.57, click=2)
    page.until("return !document.getElementById('clear').disabled")
    page.run("document.getElementById('again').click()")
    page.until("return document.getElementById('layer-run') === null")
    page.until("return document.getElementById('layer-run') !== null")
    page.at(0.7, 0.71)
    after = page.until(
        "const c = document.querySelector('#profile figcaption');"
        f"return c && c.textContent !== '{caption}' && c.textContent"
    )
    page.shot("barrier")
    assert after != caption
    page.run("document.getElementById('clear').click()")
    page.press(webdriver.Keys.ESCAPE)
    assert page.run("return document.querySelector('input[name=tool]:checked').value") == "look"
    page.pick("watershed")
    page.at(0.6, 0.5, click=1)
    page.until("return document.getElementById('layers').textContent.includes('Upstream')")
    page.shot("upstream")
    assert page.text("#error") == ""


def test_a_late_path_of_an_earlier_run_is_not_shown(page):
    page.pick("distance")
    page.at(0.5, 0.4, click=1)
    page.until("return document.getElementById('layer-run') !== null")
    page.delay(("/path/", "GET"))
    page.at(0.7, 0.7)
    page.until("return window.held.length > 0")
    page.run("document.getElementById('again').click()")
    page.until("return document.getElementById('layer-run') === null")
    page.run("window.held[0]()")
    page.until("return window.come > 0")
    page.until("return document.getElementById('layer-run') !== null")
    assert page.run("return document.getElementById('profile').hidden")


def test_late_values_of_an_earlier_run_are_not_shown(page):
    page.pick("distance")
    page.at(0.5, 0.4, click=1)
    page.until("return document.getElementById('layer-run') !== null")
    page.delay(("/values/", "GET"))
    page.at(0.7, 0.7, click=1)
    page.until("return window.held.length > 0")
    page.run("document.getElementById('again').click()")
    page.run("window.held.splice(0).forEach((send) => send())")
    page.until("return window.come > 0")
    assert page.text("#readout") == ""
    # The pin stays, and gets the value and the path of the new run.
    page.until("return window.held.length > 0")
    page.run("window.fetch = window.direct; window.held.forEach((send) => send())")
    page.until("return !document.getElementById('profile').hidden")


def test_of_two_runs_the_last_one_is_shown(page, server):
    """Though the server's reply to the first one comes last."""
    page.delay(("runs", "POST"))
    for count, x in ((1, 0.5), (2, 0.8)):
        page.pick("distance")
        page.at(x, 0.4, click=1)
        page.until(f"return window.held.length === {count}")
    page.run("window.held[1]()")
    page.until("return document.getElementById('layer-run') !== null")
    page.run("window.held[0]()")
    page.until("return window.come === 2")
    page.at(0.7, 0.7)
    page.until("return !document.getElementById('profile').hidden")
    assert page.text("#error") == ""
    last = max(server.runs.runs)
    assert page.run("return location.hash").endswith(f"run={last}")


def test_a_click_outside_and_errors(page):
    for tool in ("look", "distance"):
        page.pick(tool)
        page.at(0.995, 0.99, click=1)
        page.until("return document.getElementById('error').textContent.includes('outside')")
        page.at(0.6, 0.5, click=1)
        page.until("return document.getElementById('error').textContent === ''")
    page.until("return document.getElementById('layer-run') !== null")
    page.run("window.fetch = async () => { throw new TypeError('gone'); }")
    page.at(0.7, 0.6, click=1)
    page.until("return document.getElementById('error').textContent.includes('does not answer')")
    page.shot("stopped")


def test_typed_coordinates_and_several_points(page, server):
    page.pick("distance")
    for text in ("5000", "a, b", "0, 0"):
        page.type("#typed", text)
        page.until("return document.getElementById('error').textContent !== ''")
    page.run("document.getElementById('several').click()")
    for count, text in ((1, "6005, 8005"), (2, "7005 7005")):
        page.type("#typed", text)
        page.until("return document.getElementById('layer-run') !== null")
        places = list(server.runs.runs.values())[-1].job.places
        assert places == [[99, 100], [199, 200]][:count]
        page.until("return document.getElementById('error').textContent === ''")
    page.pick("look")
    paths = []
    for x in (0.6, 0.8):
        page.at(x, 0.3, click=1)
        time.sleep(0.5)  # a click is one once it is not a double click
        paths.append(
            page.until(
                "const c = document.querySelector('#profile figcaption')?.textContent;"
                f"return c && !{paths}.includes(c) && c"
            )
        )
    assert len(set(paths)) == 2
    page.shot("several")
    page.run("document.getElementById('unpin').click()")
    assert page.run("return document.getElementById('profile').hidden")


def test_a_catchment_and_its_files(page, chromium, tmp_path):
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    page.pick("watershed")
    page.type("#typed", "7005, 7505")
    page.until("return !document.getElementById('result').hidden")
    facts = page.text("#result dl")
    assert "km²" in facts
    assert "mean" in facts
    assert "Way down" in page.text("#profile figcaption")
    page.shot("catchment")
    for title, name in (("COG", "upstream.tif"), ("GeoJSON", "upstream.geojson")):
        page.run(
            "[...document.querySelectorAll('#result button')]"
            ".find((one) => one.textContent === arguments[0]).click()",
            title,
        )
        end = time.monotonic() + 30
        while not (tmp_path / name).exists():
            assert time.monotonic() < end, page.text("#error")
            time.sleep(0.1)
    assert "terrain-gpu watershed" in page.text("#result code")
    page.type("#layer-name", "catchment")
    page.until("return document.getElementById('layer-catchment') !== null")


def test_five_layers(page):
    """All at once, with legends that say what codes mean; those of trees are folded away."""
    boxes = "[...document.querySelectorAll('.layers input[type=checkbox]')]"
    names = page.run(f"return {boxes}.map((one) => one.id)")
    assert page.run("return [...document.querySelectorAll('#internal input')].length") > 0
    page.run(f"{boxes}.forEach((one) => one.checked || one.click())")
    page.until("return document.querySelectorAll('.classes').length === 4")
    assert {"layer-elevation", "layer-kinds", "layer-numbers", "layer-flow_direction"} < {*names}
    legends = page.text("#layers")
    assert "↘ SE" in legends
    assert "outlet" in legends
    page.at(0.6, 0.5)
    text = page.until(
        "const t = document.getElementById('readout').textContent; return t.includes('mst') && t"
    )
    assert all(name in text for name in ("elevation", "kinds", "numbers", "flow direction"))
    page.shot("five")
    assert page.text("#error") == ""


def test_the_profile_has_axes_and_points_at_the_map(page):
    page.pick("distance")
    page.at(0.5, 0.4, click=1)
    page.until("return document.getElementById('layer-run') !== null")
    page.at(0.7, 0.3, click=1)
    time.sleep(0.5)
    caption = page.until("return document.querySelector('#profile figcaption')?.textContent")
    assert "climb" in caption
    assert "descent" in caption
    marks = page.run(
        "return [...document.querySelectorAll('#profile text')].map((t) => t.textContent)"
    )
    assert sum(mark.endswith("m") for mark in marks) >= 2  # distances, with their unit
    before = page.run("return document.querySelector('path.cursor').getAttribute('d')")
    page.run("document.querySelector('#profile svg').focus()")
    page.press(webdriver.Keys.ARROW_RIGHT)
    after = page.run("return document.querySelector('path.cursor').getAttribute('d')")
    assert after
    assert after != before
    assert "m, " in page.text("text.cursor")
    page.shot("profile")


@pytest.fixture
def phone(chromium):
    """A phone with a touch screen."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    yield
    chromium.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_a_phone(phone, page, server):
    """A tap shows value, path and profile; another one starts no run; the sheet folds."""
    small = """return [...document.querySelectorAll("button, select, #tools span, .check")]
                 .map((one) =>
                 [one.id || one.textContent, one.getBoundingClientRect()]).filter(([, box]) =>
                 box.width && (box.height < 44 || box.width < 44)).map(([name]) => name)"""
    assert page.run(small) == []
    folded = page.run("return document.getElementById('panel').getBoundingClientRect().top")
    assert folded > 600
    page.pick("distance")
    page.tap(0.5, 0.4)
    page.until("return document.getElementById('layer-run') !== null")
    runs = len(server.runs.runs), max(server.runs.runs)
    page.tap(0.7, 0.3)
    first = page.until("return document.querySelector('#profile figcaption')?.textContent")
    value = page.until("return document.getElementById('readout').textContent")
    page.shot("tap")
    page.tap(0.3, 0.5)
    page.until(
        f"return document.querySelector('#profile figcaption').textContent !== '{first}'"
        f" && document.getElementById('readout').textContent !== '{value}'"
    )
    assert (len(server.runs.runs), max(server.runs.runs)) == runs
    page.run("document.getElementById('fold').click()")
    assert (
        page.run("return document.getElementById('fold').getAttribute('aria-expanded')") == "true"
    )
    assert page.run(small) == []
    top = page.run("return document.getElementById('panel').getBoundingClientRect().top")
    assert 844 * 0.3 < top < folded
    page.shot("unfolded")


def test_rows_that_count_northwards(chromium, tmp_path):
    """The first row is shown at the bottom; what is under the pointer is what is shown there."""
    row, col = np.mgrid[: SHAPE[0], : SHAPE[1]]
    grid = GridSpec(*SHAPE, (-10.0, 0.0, 9000.0, 0.0, 10.0, 6000.0))
    make_layers(tmp_path / "s.zarr", grid, {"elevation": (row + 2.0 * col).astype(np.float32)})
    with MapServer(tmp_path / "s.zarr", threads=1) as server:
        server.start()
        chromium.get(server.url)
        page = Page(chromium, tmp_path)
        page.until("return document.querySelectorAll('#layers .ramp').length > 0")
        text = ""
        for x, y in ((0.4, 0.3), (0.8, 0.7)):
            page.at(x, y)
            told = "document.getElementById('readout').textContent"
            text = page.until(f"return {told} !== '{text}' && {told}")
            east, north = (float(one.strip(",")) for one in text.split()[:2])
            value = float(text.split("elevation ")[1].split(", ")[0].replace(",", ""))
            found = int(north - 6000) // 10 + 2 * (int(9000 - east) // 10)
            assert value == pytest.approx(found, abs=0.06)
            assert (north > 7500) == (y < 0.5)
            assert (east < 7000) == (x < 0.5)
        page.pick("distance")
        page.at(0.6, 0.3, click=1)
        page.until("return document.getElementById('layer-run') !== null")
        page.at(0.8, 0.7)
        page.until("return !document.getElementById('profile').hidden")
        page.shot("turned")
        assert page.painted() > 0.1
        assert chromium.get_log("browser") == []
        (job,) = (run.job for run in server.runs.runs.values())
        assert job.places[0][0] > 150


def test_cancel(page):
    page.pick("distance")
    page.at(0.5, 0.4, click=1)
    page.until("return !document.getElementById('run').hidden")
    page.shot("running")
    page.run("document.getElementById('cancel').click()")
    page.until("return document.getElementById('run').hidden")
    assert page.run("return document.getElementById('layer-run')") is None
    page.shot("cancelled")


def test_light_and_dark(scheme, page):
    page.pick("distance")
    page.at(0.5, 0.4, click=1)
    page.until("return document.getElementById('layer-run') !== null")
    light = page.shot(scheme)
    panel = light[:, :200]  # more text and legend than map
    assert (np.median(panel) > 128) == (scheme == "light")
