"""Wrong settings of object storage: every message names the cause and the remedy, never a key."""

from __future__ import annotations

import os
import pickle
import re
import sys

import numpy as np
import pytest
from bucket import KEYS
from contract import make_store
from programs import spawn

import terrain_gpu
from terrain_gpu.engine.cluster import Cluster
from terrain_gpu.engine.worker import Job, do_each
from terrain_gpu.errors import InputError, OutputError, StoreError
from terrain_gpu.store import TileStore, client


@pytest.fixture
def store(bucket):
    return str(make_store(f"{bucket}/s.zarr", np.ones((70, 70), np.int16), None, 64))


def told(store: str, kind=(InputError, StoreError)) -> str:
    """The message on opening a store."""
    with pytest.raises(kind) as found:
        TileStore.open(store)
    return str(found.value)


@pytest.fixture
def no_retries(monkeypatch):
    monkeypatch.setattr(client, "SERVER_RETRIES", 0)
    monkeypatch.setattr("terrain_gpu.store.objects.ATTEMPTS", 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "AWS_ENDPOINT_URL '127.0.0.1:9000': not the URL"),
        ({"AWS_ENDPOINT_URL_S3": "a server"}, "AWS_ENDPOINT_URL_S3 'a server': not the URL"),
        ({"AWS_ENDPOINT_URL": "http://[::1"}, r"AWS_ENDPOINT_URL .http:..\[::1.: not the URL"),
        ({"AWS_ENDPOINT_URL": "http://a:port"}, "AWS_ENDPOINT_URL .http:..a:port.: not the URL"),
        ({"AWS_ENDPOINT_URL": "http://me:hidden@host:1"}, "AWS_ENDPOINT_URL: not the URL .*write"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY is not set, but AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "hid den"}, "AWS_ACCESS_KEY_ID contains a space"),
        ({"AWS_SESSION_TOKEN": "hidden\n"}, "AWS_SESSION_TOKEN contains a space, a line break"),
        ({"AWS_REGION": "eu west"}, "AWS_REGION contains a space"),
    ],
)
def test_wrong_variables(store, monkeypatch, settings, message):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    client._client.cache_clear()
    with pytest.raises(InputError, match=message) as found:
        TileStore.open(store)
    assert not any(word in str(found.value) for word in ("hid", *KEYS.values()))


def test_wrong_profiles(store, monkeypatch, tmp_path):
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "settings"))
    (tmp_path / "keys").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = hidden\n"
    )
    (tmp_path / "settings").write_text("[default]\nendpoint_url = host:9000\n")
    assert "endpoint_url of the profile 'host:9000': not the URL" in told(store)
    (tmp_path / "settings").write_text("")
    (tmp_path / "keys").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = hid den\n"
    )
    message = told(store)
    assert "aws_secret_access_key of the profile contains a space" in message
    assert "hid" not in message.replace("which", "")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "400 Bad Request, SlowDown; check endpoint"),
        (401, "access denied"),
        (301, "the bucket is in another region; set AWS_REGION"),
        (405, "405 Method Not Allowed.*; check endpoint"),
        (429, "429 Too Many Requests.*; try again later"),
    ],
)
def test_refusals_of_a_server(store, proxy, no_retries, status, message):
    proxy.fault = lambda method, path, body: status
    with pytest.raises(StoreError, match=f"{store}/zarr.json: cannot be read: {message}"):
        TileStore.open(store)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ExpiredToken", "the credentials have expired"),
        ("RequestTimeTooSkewed", "the clock of this machine is wrong"),
        ("AuthorizationHeaderMalformed", "the bucket is in another region"),
        ("EntityTooLarge", "too large for the server"),
    ],
)
def test_codes_of_a_server(code, message):
    error = OSError(f"status code: 400 Bad Request: <Code>{code}</Code><Key>hidden</Key>")
    explained = client.explained("x", "read", StoreError)
    with pytest.raises(StoreError, match=message) as found, explained:
        raise error
    assert "hidden" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:9", "no connection to the server; check the network and the endpoint"),
        ("http://no-such-host.invalid", "the server's name is unknown|no connection"),
    ],
)
def test_no_server(store, monkeypatch, no_retries, url, message):
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(StoreError, match=message):
        TileStore.open(store)


def test_https_of_a_server_without_it(store, bucket, monkeypatch, no_retries):
    monkeypatch.setenv("AWS_ENDPOINT_URL", client.endpoint_url().replace("http:", "https:"))
    with pytest.raises(StoreError, match="no TLS connection to the server; check whether its URL"):
        TileStore.open(store)


def test_who_may_only_read_is_told_so(store, proxy):
    proxy.fault = lambda method, path, body: 403 if method in ("PUT", "DELETE") else None
    assert TileStore.open(store).layer("elevation").read_block(0, 0).all()
    with pytest.raises(OutputError, match=r"s\.zarr/.*: cannot be written: access denied"):
        terrain_gpu.slope(store)


@pytest.mark.parametrize("url", ["gcs://a/b", "S3://a/b", "https://a/b", "s3://", "file:///a"])
def test_other_urls_are_no_stores(url):
    message = f"{url}: a store is a folder, or a URL such as"
    with pytest.raises(InputError, match=message):
        TileStore.open(url)
    with pytest.raises(InputError, match=message):
        terrain_gpu.create_layer(url, "a", terrain_gpu.GridSpec(2, 2), np.int16)


def test_files_that_must_be_on_a_disk(store):
    for more in ("slope {} --json s3://b/c.json", "compute-sssp {} --sources s3://b/c.gpkg"):
        done = spawn(f"terrain-gpu {more.format(store)}")
        assert done.returncode == 2
        assert "cannot be in object storage; name a file on disk" in done.stderr


@pytest.mark.parametrize(
    "url", ["s3://ME:hidden@b/s.zarr", "gs:/ME:hid/den@b/s", "az://hidden@b/s"]
)
def test_credentials_in_a_url_are_refused(url):
    with pytest.raises(InputError, match=r"^(s3|gs|az)://\.\.\.: .*(AWS|GOOGLE|AZURE)_") as found:
        TileStore.open(url)
    assert "hid" not in str(found.value)


ENDPOINTS = r"AWS_ENDPOINT_URL|GOOGLE_BASE_URL|AZURE_STORAGE_ENDPOINT"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("MissingAccount", r"AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_S"),
        ("metadata.google", r"GOOGLE_APPLICATION_CREDENTIALS, the name of a file, or GOOGLE_SKIP"),
        ("169.254.169.254", r"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, or AWS_S"),
        ("dns error", ENDPOINTS),
        ("status code: 400 Bad Request", ENDPOINTS),
        ("connection refused", ENDPOINTS),
    ],
)
def test_remedies_name_what_the_provider_has(said, names):
    for scheme, provider in {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}.items():
        if provider in names:
            explained = client.explained(f"{scheme}://b/s.zarr", "read", StoreError)
            with pytest.raises(StoreError, match=names) as found, explained:
                raise OSError(said)
            assert set(re.findall("(AWS|GOOGLE|AZURE)_", str(found.value))) == {provider}


@pytest.mark.parametrize("url", ["gs://b/s.zarr", "az://b/s.zarr"])
def test_without_credentials(url, monkeypatch, no_retries):
    """What obstore says of other providers; Google's metadata server is not there."""
    for name in [*os.environ]:
        if name.startswith(("AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(StoreError, match=r"(GOOGLE|AZURE)_") as found:
        TileStore.open(url)
    assert "AWS" not in str(found.value)


def change(environment, module=None):
    """In a worker: set and remove variables, hide a module, and do not wait long."""
    from terrain_gpu.engine import worker

    for name, value in environment.items():
        os.environ[name] = value
        if not value:
            del os.environ[name]
    if sys.modules.get("obstore", worker) is None:  # hidden by an earlier test
        del sys.modules["obstore"]
    if module:
        sys.modules[module] = None
    worker.SOON, client.SERVER_RETRIES = 2, 0


@pytest.fixture
def workers(cluster, bucket):
    """A client of two workers in the environment of the bucket, and the address of one."""
    cluster.run(change, dict(os.environ))
    return cluster, min(cluster.scheduler_info(n_workers=-1)["workers"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict.fromkeys(KEYS, ""), "cannot be read: no credentials; set AWS_ACCESS_KEY_ID and"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY is not set, but AWS_ACCESS_KEY_ID"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "no connection to the server; check the"),
        ({"AWS_ENDPOINT_URL": "another"}, "AWS_ENDPOINT_URL 'another': not the URL"),
        ("obstore", r"object storage needs obstore .*pip install 'terrain_gpu\[cloud\]'"),
        (404, r"does not find the store s3://.*/s.zarr, but the command does; start it with"),
        ("hang", "the server did not answer within 2 s; check network and endpoint"),
    ],
)
def test_workers_that_cannot_read_the_store(
    store, workers, proxy, s3_server, monkeypatch, wrong, message
):
    """One of them is refused and named before anything is replaced."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    before = terrain_gpu.slope(store).layers["slope"].path
    connection, worker = workers
    how = (wrong, None) if isinstance(wrong, dict) else ({}, wrong)
    if wrong in (404, "hang"):
        proxy.fault = lambda *request: wrong
        how = {"AWS_ENDPOINT_URL": proxy.url}, None
    connection.run(change, *how, workers=[worker])
    with pytest.raises(StoreError, match=f"^worker {worker} on .*{message}") as found:
        terrain_gpu.slope(store, client=connection, overwrite=True)
    assert found.value.exit_code == 2
    assert "the worker uses the environment in which it was started, not that of" in str(
        found.value
    )
    assert "--resume" not in str(found.value)
    assert TileStore.open(store).layer("slope").path == before


def test_workers_that_join_later_must_read_the_store(store, workers):
    connection, _ = workers
    connected = Cluster(connection, store)
    connection.run(change, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    job = pickle.dumps(Job(None, None, None, [store]))
    with pytest.raises(StoreError, match=r"^worker .*: cannot be read: no connection to the serv"):
        list(connected._run(do_each, job, iter([(print, 0)])))


def test_stores_that_workers_create_need_not_exist(store, workers, bucket):
    Cluster(workers[0], f"{bucket}/new.zarr")
