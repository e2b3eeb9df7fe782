"""Stores with overviews in OpenLayers' source GeoZarr, which reads ranges of shards over HTTP.

Skipped without node and OpenLayers: `npm install ol` in a folder, which $OPENLAYERS names, or in
this checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from rasterio.crs import CRS
from samples import make_layers

from terrain_gpu import GridSpec, TileStore, build_overviews
from terrain_gpu.store import levels

SCRIPT = Path(__file__).with_name("geozarr.mjs")
FOLDER = Path(os.environ.get("OPENLAYERS", SCRIPT.parents[2]))
NODE = shutil.which("node")
if not NODE or not (FOLDER / "node_modules/ol/source/GeoZarr.js").is_file():
    pytest.skip("needs node and OpenLayers 10.8 or newer (npm install ol)", allow_module_level=True)


class RangeHandler(SimpleHTTPRequestHandler):
    """Serves ranges of bytes, as http.server does not."""

    def do_GET(self):
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return super().do_GET()
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        data, (first, last) = path.read_bytes(), asked.groups()
        start = int(first) if first else len(data) - int(last)
        found = data[start : int(last) + 1 if first and last else None]
        self.send_response(206)
        self.send_header("Content-Length", str(len(found)))
        self.send_header("Content-Range", f"bytes {start}-{start + len(found) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *args):
        pass


@pytest.fixture
def served(tmp_path):
    """A folder and the address at which it is served."""
    handler = partial(RangeHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield tmp_path, f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_openlayers_reads_every_level(served, monkeypatch, no_fsync, dtype):
    monkeypatch.setattr(levels, "SMALLEST", 64)
    folder, url = served
    cells = np.random.default_rng(5).normal(500, 100, (320, 200)).astype(dtype)
    wkt = CRS.from_epsg(32633).to_wkt(version="WKT2_2019")
    grid = GridSpec(320, 200, (10.0, 0.0, 5e5, 0.0, -10.0, 4e6), wkt, "EPSG:32633")
    make_layers(folder / "s.zarr", grid, {"elevation": cells})
    build_overviews(folder / "s.zarr")
    ended = subprocess.run(
        [NODE, "--input-type=module", "-", f"{url}/s.zarr", "elevation"],
        input=SCRIPT.read_text(), cwd=FOLDER, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["code"] == "EPSG:32633"
    assert found["extent"] == pytest.approx(grid.bounds)
    assert [one["resolution"] for one in found["levels"]] == [80, 40, 20, 10]
    for factor, one in zip((8, 4, 2, 1), found["levels"], strict=True):
        store = folder / "s.zarr" / (f"overviews/{factor}" if factor > 1 else "")
        own = TileStore.open(store).layer("elevation")
        rows, cols = (min(one["width"], side) for side in own.grid.shape)
        tile = np.array(one["cells"]).reshape(one["width"], one["width"], -1)[:rows, :cols, 0]
        assert np.array_equal(tile, own.read_window(0, rows, 0, cols)), factor
