"""Rasters that GDAL reads from a server: https, s3:// and /vsi names, and faults of the server."""

from __future__ import annotations

import datetime
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
from contract import make_store, same, whole
from programs import spawn

from terrain_gpu import export_layer
from terrain_gpu.store import TileStore
from terrain_gpu.store.objects import ObjectPath

pytestmark = pytest.mark.usefixtures("no_fsync")


def cells() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 99, (700, 900)).astype(np.int16)


@pytest.fixture(scope="module")
def cog(tmp_path_factory):
    """The bytes of a cloud-optimised GeoTIFF."""
    folder = tmp_path_factory.mktemp("cog")
    store = make_store(folder / "here.zarr", cells(), -1, 64)
    export_layer(store, folder / "a.tif", cog=True)
    return (folder / "a.tif").read_bytes()


class Server:
    """Serves one file as /a.tif, or parts of it.

    Attributes
    ----------
    fault
        Given the number of a GET: None, a status such as 503, "cut" (half of the body arrives),
        "drop" (no answer) or "hang" (none until the server ends).
    ranges
        The ranges that were asked for.
    over
        Set in the end.
    """

    def __init__(self, data: bytes, context: ssl.SSLContext | None = None) -> None:
        self.fault = lambda number: None
        self.ranges: list[tuple[int, int]] = []
        self.over = threading.Event()
        server, count = self, iter(range(10**6))

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(200 if self.path == "/a.tif" else 404, data, body=False)

            def do_GET(self):
                if self.path != "/a.tif":
                    self.answer(404, b"")
                    return
                fault = server.fault(next(count))
                if fault == "drop":
                    return
                if fault == "hang":
                    server.over.wait(60)
                    return
                if isinstance(fault, int):
                    self.answer(fault, b"")
                    return
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                start, end = map(int, asked.groups()) if asked else (0, len(data) - 1)
                server.ranges.append((start, end))
                self.answer(206 if asked else 200, data[start : end + 1], cut=fault == "cut")

            def answer(self, status, found, *, body=True, cut=False):
                self.send_response_only(status)
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(len(found)))
                if status == 206:
                    start = server.ranges[-1][0]
                    last = start + len(found) - 1
                    self.send_header("Content-Range", f"bytes {start}-{last}/{len(data)}")
                self.end_headers()
                if body:
                    self.wfile.write(found[: len(found) // 2] if cut else found)

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        if context:
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        kind = "https" if context else "http"
        self.url = f"{kind}://127.0.0.1:{self._http.server_port}/a.tif"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(cog, monkeypatch):
    monkeypatch.setenv("GDAL_HTTP_RETRY_DELAY", "0.01")
    found = Server(cog)
    yield found
    found.close()


def convert(source: str, folder: Path, more: str = "") -> str:
    """Convert by the program, and return what it complains of.

    Not in this process: GDAL may wait for the server with Python's lock held.
    """
    done = spawn(f"convert-dataset {source} {folder}/s.zarr --block-size 256 {more}")
    if done.returncode:
        assert done.stderr.count("\n") == 1
        assert not (folder / "s.zarr" / "elevation").exists()
        return done.stderr
    assert same(whole(TileStore.open(folder / "s.zarr").layer("elevation")), cells())
    return ""


def test_from_a_bucket(cog, bucket, tmp_path):
    source = f"{bucket}/deep/a.tif"
    ObjectPath(source).write(cog)
    assert convert(source.replace("s3://", "/vsis3/"), tmp_path) == ""


@pytest.mark.parametrize("name", ["{}", "/vsicurl/{}"])
def test_from_a_server(server, tmp_path, name):
    assert convert(name.format(server.url), tmp_path) == ""
    assert len(server.ranges) > 1


def test_in_place_of_a_store(server, cog, tmp_path):
    (tmp_path / "a.tif").write_bytes(cog)
    for source, name in ((server.url, "there.tif"), (tmp_path / "a.tif", "here.tif")):
        done = spawn(f"terrain-gpu slope {source} -o {tmp_path / name}")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "here.tif").read_bytes() == (tmp_path / "there.tif").read_bytes()


@pytest.mark.parametrize(
    "command",
    [
        "convert-dataset {} s.zarr -vv",
        "terrain-gpu slope {} -o o.tif",
        "terrain-gpu info {}",
        "compute-sssp {} --source-rowcol 1,1",
    ],
)
def test_credentials_in_a_url_are_not_told(server, tmp_path, command):
    """Neither by a traceback, nor by click."""
    url = server.url.replace("//", "//me:hidden/@").replace("a.tif", "b.tif?X-Signature=hidden")
    done = spawn(command.format(url), cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(r"http:/+\.\.\.@127\.0\.0\.1:\d+/b\.tif\?\.\.\.", done.stderr)
    assert "hidden" not in done.stdout + done.stderr


def test_on_workers(server, tmp_path):
    assert convert(server.url, tmp_path, "--workers 2") == ""


def certificate(folder):
    """A certificate of 127.0.0.1 that is its own authority, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    today = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(today - datetime.timedelta(1))
    made = made.not_valid_after(today + datetime.timedelta(1))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = made.add_extension(address, critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    kind = serialization.Encoding.PEM
    (folder / "c.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(kind))
    secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "k.pem").write_bytes(key.private_bytes(kind, *secret))
    return folder / "c.pem", folder / "k.pem"


def test_https(cog, tmp_path, monkeypatch):
    public, private = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    secure = Server(cog, context)
    assert "not a raster that GDAL can read: " in (told := convert(secure.url, tmp_path))
    assert "certificate" in told
    monkeypatch.setenv("GDAL_CURL_CA_BUNDLE", str(public))
    assert convert(secure.url, tmp_path) == ""
    secure.close()


@pytest.mark.parametrize("fault", [500, 503])
def test_faults_that_pass(server, tmp_path, fault):
    seen = []

    def fail(number):
        seen.append(number)
        return fault if number % 4 else None

    server.fault = fail
    assert convert(server.url, tmp_path) == ""
    assert len(seen) > 3


@pytest.mark.parametrize("fault", [503, 403, "drop", "cut", "hang"])
def test_faults_that_stay(server, tmp_path, monkeypatch, fault):
    monkeypatch.setenv("GDAL_HTTP_LOW_SPEED_TIME", "1")
    monkeypatch.setenv("GDAL_HTTP_MAX_RETRY", "1")
    server.fault = lambda number: fault if number > 0 else None
    told = convert(server.url, tmp_path)
    # Which block fails first is up to the threads.
    assert re.search(rf"{re.escape(server.url)}: rows \d+ to \d+ cannot be read", told)
    server.fault = lambda number: None
    assert convert(server.url, tmp_path, "--resume") == ""
