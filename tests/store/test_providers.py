"""Google's and Azure's storage: settings from the variables of their tools, rasters, secrets."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from azurite import ACCOUNT, KEY
from bucket import ENDPOINT
from contract import make_store, same, whole
from programs import spawn

import terrain_gpu
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.store import TileStore, client, providers
from terrain_gpu.store.objects import ObjectPath

both = pytest.mark.parametrize("scheme", ["gs", "az"], indirect=True)
SIGNATURE = "sv=2021-08-06&sig=hidden"


def cells() -> np.ndarray:
    return np.arange(70 * 90, dtype=np.int16).reshape(70, 90)


@pytest.fixture
def no_retries(monkeypatch):
    monkeypatch.setattr(client, "SERVER_RETRIES", 0)
    monkeypatch.setattr("terrain_gpu.store.objects.ATTEMPTS", 1)


@pytest.fixture
def clean(monkeypatch):
    """An environment without any setting; the patch that changes it."""
    for name in [*os.environ]:
        if name.startswith(("AZURE_", "AZURITE_", "GOOGLE_", "STORAGE_EMULATOR", "GS_", "CPL_")):
            monkeypatch.delenv(name)
    return monkeypatch


# -- what works ---------------------------------------------------------------------------------


@both
def test_a_raster_and_its_store_in_the_same_bucket(bucket, tmp_path):
    make_store(tmp_path / "s.zarr", cells(), None, 64)
    terrain_gpu.export_layer(tmp_path / "s.zarr", tmp_path / "a.tif", cog=True)
    source = f"{bucket}/in/a.tif"
    ObjectPath(source).write((tmp_path / "a.tif").read_bytes())
    gdal = source.replace("gs://", "/vsigs/").replace("az://", "/vsiaz/")
    for number, name in enumerate((source, gdal)):
        store = f"{bucket}/out/{number}.zarr"
        done = spawn(f"convert-dataset {name} {store} --block-size 64 --workers 2 -vv")
        assert done.returncode == 0, done.stderr
        assert not {KEY, "hidden"} & set(done.stderr.split())
        assert same(whole(TileStore.open(store).layer("elevation")), cells())
    terrain_gpu.export_layer(store, tmp_path / "b.tif")
    assert (tmp_path / "b.tif").exists()


@both
def test_lists_in_pages(bucket, scheme, request):
    if scheme == "gs":
        google, _ = request.getfixturevalue("gs_server")
        request.getfixturevalue("monkeypatch").setattr(google, "page", 3)
    place = ObjectPath(bucket) / "a"
    for k in range(10):
        (place / f"{k % 4}/x y+{k}").write(b"1")
    names = sorted(f"{k % 4}/x y+{k}" for k in range(10))
    assert sorted(name for name, _ in place.walk()) == names
    assert place.folders() == ["0", "1", "2", "3"]
    place.delete_below([*names, "9/gone"])
    assert list(place.walk()) == []


def test_google_gets_the_token(bucket_of_google, clean):
    google, bucket, address = bucket_of_google
    clean.setattr(google, "token", "hidden-token")
    clean.setenv("GOOGLE_BASE_URL", address)
    clean.setenv("GOOGLE_BEARER_TOKEN", "wrong-token")
    with pytest.raises(StoreError, match=r"access denied.*GOOGLE_APPLICATION_CREDENTIALS") as told:
        TileStore.open(f"{bucket}/s.zarr")
    assert "wrong" not in str(told.value)
    client._client.cache_clear()
    clean.setenv("GOOGLE_BEARER_TOKEN", "hidden-token")
    make_store(f"{bucket}/s.zarr", cells(), None, 64)
    assert same(whole(TileStore.open(f"{bucket}/s.zarr").layer("elevation")), cells())


def test_google_gets_the_signature_of_a_service_account(bucket_of_google, clean, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    _, bucket, address = bucket_of_google
    made = rsa.generate_private_key(65537, 2048)
    how = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = made.private_bytes(*how, serialization.NoEncryption()).decode()
    account = {"type": "service_account", "private_key": key, "private_key_id": "k"}
    account |= {"client_email": "a@b.iam.gserviceaccount.com", "client_id": ""}
    (tmp_path / "account.json").write_text(json.dumps(account))
    clean.setenv("GOOGLE_BASE_URL", address)
    clean.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    make_store(f"{bucket}/s.zarr", cells(), None, 64)
    assert same(whole(TileStore.open(f"{bucket}/s.zarr").layer("elevation")), cells())


@pytest.fixture
def bucket_of_google(gs_server, request, tmp_path):
    google, address = gs_server
    name = f"b-{request.node.name}".replace("_", "-")
    google.buckets[name] = {}
    return google, f"gs://{name}", address


ACCOUNT_SETTINGS = [
    {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY, "AZURE_STORAGE_ENDPOINT": "{}"},
    {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_ENDPOINT": "{}",
    },
    {
        "AZURE_STORAGE_CONNECTION_STRING": f"AccountName={ACCOUNT};AccountKey={KEY};"
        "DefaultEndpointsProtocol=http;BlobEndpoint={};",
        "AZURE_STORAGE_ACCOUNT": "other",
    },
]


@pytest.mark.parametrize("scheme", ["az"], indirect=True)
@pytest.mark.parametrize("settings", ACCOUNT_SETTINGS)
def test_settings_of_azure(bucket, clean, az_server, settings, tmp_path):
    clean.delenv("AZURE_STORAGE_USE_EMULATOR", raising=False)
    for name, value in settings.items():
        clean.setenv(name, value.format(f"{az_server}/{ACCOUNT}"))
    make_store(f"{bucket}/s.zarr", cells(), None, 64)
    terrain_gpu.export_layer(f"{bucket}/s.zarr", tmp_path / "a.tif")
    ObjectPath(f"{bucket}/a.tif").write((tmp_path / "a.tif").read_bytes())
    done = spawn(f"terrain-gpu slope {bucket}/s.zarr")
    assert done.returncode == 0, done.stderr
    done = spawn(f"convert-dataset {bucket}/a.tif {tmp_path}/s.zarr -vv")
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stderr


# -- what obstore and GDAL are told ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UseDevelopmentStorage=true", "http://127.0.0.1:10000/devstoreaccount1"),
        ("AccountName=me;AccountKey=aGk=", "https://me.blob.core.windows.net"),
        (
            f"BlobEndpoint=https://me.blob.core.chinacloudapi.cn/;SharedAccessSignature={SIGNATURE}",
            "https://me.blob.core.chinacloudapi.cn",
        ),
        ("AccountName=me;EndpointSuffix=a.b;DefaultEndpointsProtocol=http", "http://me.blob.a.b"),
    ],
)
def test_connection_strings(clean, text, expected):
    clean.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    found = providers.azure()
    assert found["endpoint"] == expected
    assert found["account_name"] in ("me", ACCOUNT)
    told = providers.gdal_settings()["AZURE_STORAGE_CONNECTION_STRING"]
    assert f"AccountName={found['account_name']};" in told
    assert told.endswith(f"BlobEndpoint={expected}")
    assert ("sig=hidden" in told) == ("sig=hidden" in text)


def test_gdal_gets_the_settings(clean):
    clean.setenv("AZURE_STORAGE_ACCOUNT_NAME", "me")
    clean.setenv("AZURE_STORAGE_SAS_TOKEN", f"?{SIGNATURE}")
    found = {"AZURE_STORAGE_ACCOUNT": "me", "AZURE_STORAGE_SAS_TOKEN": SIGNATURE}
    assert providers.gdal_settings() == found
    clean.setenv("AZURE_SKIP_SIGNATURE", "true")
    found = {"AZURE_STORAGE_ACCOUNT": "me", "AZURE_NO_SIGN_REQUEST": "YES"}
    assert providers.gdal_settings() == found
    clean.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    clean.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")
    found = {"CPL_GS_ENDPOINT": "http://localhost:4443/", "GS_NO_SIGN_REQUEST": "YES"}
    assert providers.gdal_settings() == found
    clean.setenv("GOOGLE_BASE_URL", "https://storage.example.org")
    assert providers.gdal_settings() == {"CPL_GS_ENDPOINT": "https://storage.example.org/"}


def test_wrong_settings_do_not_disturb_a_run_on_a_disk(clean, tmp_path):
    clean.setenv("AZURE_STORAGE_CONNECTION_STRING", "hidden")
    assert providers.gdal_settings() == {}
    make_store(tmp_path / "s.zarr", cells(), None, 64)
    terrain_gpu.export_layer(tmp_path / "s.zarr", tmp_path / "a.tif")


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"AZURE_STORAGE_CONNECTION_STRING": "hidden"}, "CONNECTION_STRING: has no AccountName"),
        (
            {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=me;AccountKey=hid den"},
            "AccountKey of AZURE_STORAGE_CONNECTION_STRING: not the key",
        ),
        (
            {"AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint=https://me.b/?{SIGNATURE}"},
            "BlobEndpoint of AZURE_STORAGE_CONNECTION_STRING: not the URL",
        ),
        (
            {"AZURE_STORAGE_SAS_TOKEN": "hidden"},
            "AZURE_STORAGE_SAS_TOKEN: not a shared access signature",
        ),
        (
            {"AZURE_STORAGE_ACCOUNT_NAME": "me", "AZURE_STORAGE_ACCOUNT_KEY": "hidden?"},
            "AZURE_STORAGE_ACCOUNT_KEY: not the key of an account",
        ),
        (
            {"AZURE_STORAGE_ACCOUNT_NAME": "me", "AZURE_STORAGE_ACCOUNT_KEY": "hid\u00e9"},
            "AZURE_STORAGE_ACCOUNT_KEY: not the key of an account",
        ),
        ({"AZURE_STORAGE_ENDPOINT": "127.0.0.1:10000"}, "AZURE_STORAGE_ENDPOINT '127.0.0.1:1000"),
        ({"GOOGLE_BASE_URL": "http://me:hidden@host"}, "GOOGLE_BASE_URL: not the URL"),
        ({"STORAGE_EMULATOR_HOST": "a server"}, "STORAGE_EMULATOR_HOST 'http://a server': not"),
    ],
)
def test_wrong_variables(clean, settings, message):
    for name, value in settings.items():
        clean.setenv(name, value)
    scheme = "az" if "AZURE" in str(settings) else "gs"
    with pytest.raises(InputError, match=message) as told:
        TileStore.open(f"{scheme}://b/s.zarr")
    assert "hid" not in str(told.value)


@pytest.mark.parametrize(
    "url",
    [
        f"az://c/s.zarr?{SIGNATURE}",
        "s3://b/s.zarr?X-Amz-Date=1&X-Amz-Signature=hidden",
        "gs://b/s.zarr?x-goog-signature=hidden",
        "az://c?sv=1&sig=hidden",
        "az://c?sv=1&sig=hid/hidden",
    ],
)
def test_signatures_in_a_url_are_refused(url):
    with pytest.raises(InputError, match=r"^(s3|gs|az)://\.\.\.: .*(AWS|GOOGLE|AZURE)_") as told:
        TileStore.open(url)
    assert "hidden" not in str(told.value)


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("abfss://c@me.dfs.core.windows.net/a/s.zarr", "az://c/a/s.zarr"),
        ("abfs://c/a/s.zarr", "az://c/a/s.zarr"),
        ("azure://c/a/s.zarr", "az://c/a/s.zarr"),
        ("wasbs://c@me.blob.core.windows.net/a/s.zarr", "az://c/a/s.zarr"),
        (f"https://me.blob.core.windows.net/c/a/s.zarr?{SIGNATURE}", "az://c/a/s.zarr"),
        ("gcs://b/s.zarr", "gs://b/s.zarr"),
        ("https://storage.googleapis.com/b/s.zarr", "gs://b/s.zarr"),
        ("s3a://b/s.zarr", "s3://b/s.zarr"),
    ],
)
def test_other_urls_of_the_same_place(url, ours):
    with pytest.raises(InputError, match=f"a store is .*; write {ours}$") as told:
        TileStore.open(url)
    assert "hidden" not in str(told.value)


@both
def test_no_server(bucket, scheme, monkeypatch, no_retries):
    monkeypatch.setenv(ENDPOINT[scheme], "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="no connection to the server"):
        TileStore.open(f"{bucket}/s.zarr")


@both
@pytest.mark.parametrize("status", [403, 409, 412])
def test_a_locked_object_is_told(bucket, proxy, status, no_retries):
    """Such as by a lease, or one that must not be changed."""
    proxy.fault = lambda method, path, body: status if method == "PUT" else None
    with pytest.raises(terrain_gpu.OutputError, match=f"a: cannot be written: .*{status}"):
        (ObjectPath(bucket) / "a").write(b"1")


@pytest.mark.parametrize("scheme", ["az"], indirect=True)
def test_the_end_of_an_object_that_is_replaced_meanwhile(bucket, proxy):
    """Azure has no ranges from the end: the size is asked for first."""
    place, once = ObjectPath(bucket) / "a", iter([b"a longer object"])
    place.write(b"short")

    def replace(method, path, body):
        if method == "GET" and (new := next(once, None)):
            place.write(new)

    proxy.fault = replace
    data, meta = place.tail(4)
    assert (data, meta.size) == (b"ject", 15)
