"""A bucket for tests: moto's server on the loopback, and a proxy before it that can fail.

The programs under test must not import boto3, nor do these.
"""

from __future__ import annotations

import logging
import os
import urllib.request
import uuid

import pytest
from moto.server import ThreadedMotoServer

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


@pytest.fixture(scope="session")
def server():
    """The address of an S3 server in this process."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """The URL of an empty bucket, and an environment in which it can be read and written."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TERRAIN_GPU_SCRATCH", str(tmp_path / "scratch"))
    name = f"b-{uuid.uuid4().hex}"
    request(f"{server}/{name}", "PUT")
    return f"s3://{name}"
