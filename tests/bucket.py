"""A bucket for tests: a server on the loopback, behind a proxy that can fail.

The programs under test must not import boto3, so these do not either.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import threading
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from azurite import make_container

from terrain_gpu.store.objects import ObjectPath

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing-key",
    "AWS_SECRET_ACCESS_KEY": "testing-secret",
    "AWS_REGION": "us-east-1",
}


def request(url: str, method: str = "GET", data: bytes | None = None) -> bytes:
    """A plain request, without a signature."""
    headers = {"Content-Type": "application/octet-stream"}
    asked = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read()


@contextlib.contextmanager
def serve():
    """The address of an S3 server in this process."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    # moto's own server finds out for every request which service of Amazon's it is for.
    s3 = create_backend_app("s3")
    http = make_server("127.0.0.1", 0, s3, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    thread.join()
    http.server_close()


ENDPOINT = {
    "s3": "AWS_ENDPOINT_URL",
    "gs": "STORAGE_EMULATOR_HOST",
    "az": "AZURITE_BLOB_STORAGE_URL",
}
"""The variable that names the server, by scheme."""


def new_bucket(scheme: str, server, patch, scratch) -> str:
    """The URL of an empty bucket, for whatever runs in the patched environment."""
    names = "AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "STORAGE_EMULATOR"
    for name in [name for name in os.environ if name.startswith(names)]:
        patch.delenv(name)
    scratch.mkdir()
    patch.setenv("TERRAIN_GPU_SCRATCH", str(scratch))
    name = f"b-{uuid.uuid4().hex}"
    if scheme == "s3":
        for key, value in KEYS.items():
            patch.setenv(key, value)
        request(f"{server}/{name}", "PUT")
    elif scheme == "gs":
        google, server = server
        google.buckets[name] = {}
    else:
        patch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        make_container(server, name)
    patch.setenv(ENDPOINT[scheme], server)
    return f"{scheme}://{name}"


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder, as `objects` gives those of a bucket."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def objects(url: str) -> dict[str, bytes]:
    """All objects below a place."""
    place = ObjectPath(url)
    return {name: (place / name).read()[0] for name, _ in place.walk()}


class Proxy:
    """Passes requests on, unless `fault` says otherwise.

    Attributes
    ----------
    fault
        Given method, path and body of a request: None, or what goes wrong: a status such as 503,
        "cut" (half of the body arrives), "drop" (no answer), "lose" (done, but no answer),
        "hang" (no answer until the proxy ends), "plain" (conditions are ignored),
        "bare" (e-tags in conditions must have no quotation marks, as on Ceph's server),
        "never" (replacing on a condition is refused).
    seen
        Method and path of all requests.
    """

    def __init__(self, server: str) -> None:
        self.fault = lambda method, path, body: None
        self.seen: list[tuple[str, str]] = []
        self._over = threading.Event()
        there, proxy = server.removeprefix("http://"), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for its head to be confirmed

            def handle_any(self):
                path = unquote(self.path)
                proxy.seen.append((self.command, path))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = proxy.fault(self.command, path, body)
                self.close_connection = fault is not None
                if fault == "drop":
                    return
                if fault == "hang":
                    proxy._over.wait(60)
                    return
                if isinstance(fault, int):
                    self.answer(fault, [], b"<Error><Code>SlowDown</Code></Error>")
                    return
                headers = dict(self.headers.items())
                if fault == "plain":
                    asked = "if-", "x-goog-if-"
                    headers = {k: v for k, v in headers.items() if not k.lower().startswith(asked)}
                known = {k.lower(): v for k, v in headers.items()}
                tag = known.get("if-match", known.get("x-goog-if-generation-match", "0")).strip("0")
                if tag and (fault == "never" or (fault == "bare" and tag.startswith('"'))):
                    self.answer(412, [], b"<Error><Code>PreconditionFailed</Code></Error>")
                    return
                passed = http.client.HTTPConnection(there, timeout=60)
                passed.request(self.command, self.path, body, headers)
                found = passed.getresponse()
                data = found.read()
                passed.close()
                if fault == "lose":
                    return
                self.answer(found.status, found.getheaders(), data, cut=fault == "cut")

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any

            def answer(self, status, headers, data, *, cut=False):
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                        self.send_header(name, value)
                length = dict((k.lower(), v) for k, v in headers).get("content-length")
                self.send_header("Content-Length", length or str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if cut else data)

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._http.shutdown()
        self._http.server_close()
