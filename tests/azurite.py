"""Azurite, Microsoft's emulator of Azure's storage, as a process on the loopback.

Install it with `npm install --prefix .venv/azurite azurite`, or have `azurite-blob` in the path.
It takes 190 MB and, from a near registry, 20 seconds. Tests that need it are skipped without it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from email.utils import formatdate
from pathlib import Path

from terrain_gpu.store.providers import EMULATED

ACCOUNT, KEY = EMULATED["account_name"], EMULATED["account_key"]
HERE = Path(__file__).parents[1] / ".venv/azurite/node_modules/.bin"


def program() -> str | None:
    """The program, or None if it is not installed."""
    return shutil.which("azurite-blob", path=f"{os.environ.get('PATH', '')}{os.pathsep}{HERE}")


def signed(method: str, path: str, address: str) -> urllib.request.Request:
    """A request without a body, signed with the key of emulators."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    where, _, query = path.partition("?")
    lines = [f"{name}:{value}" for name, value in headers.items()]
    lines += [f"/{ACCOUNT}/{ACCOUNT}{where}", *query.replace("=", ":").split("&")]
    text = "\n".join([method, *[""] * 3, "", "x/y", *[""] * 6, *lines])
    mark = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(mark).decode()}"
    headers["Content-Type"] = "x/y"
    url = f"{address}/{ACCOUNT}{path}"
    return urllib.request.Request(url, b"", headers, method=method)


def make_container(address: str, name: str) -> None:
    urllib.request.urlopen(signed("PUT", f"/{name}?restype=container", address), timeout=60)


@contextlib.contextmanager
def serve(folder: Path):
    """The address of a server that keeps everything in memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = f"--blobHost 127.0.0.1 --blobPort {port} --inMemoryPersistence --silent"
    more = ["--skipApiVersionCheck", "--disableTelemetry"]
    command = [str(program()), *words.split(), *more]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                    break
                assert process.poll() is None, "Azurite has ended"
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
