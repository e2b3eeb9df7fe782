"""Settings of Google's and Azure's storage, from the variables that their own tools read.

obstore reads some of them itself; here are those that it does not know, and checks of those on
which it would fail with a message that is hard to read. GDAL has names of its own for all.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from urllib.parse import urlsplit

from ..errors import InputError

EMULATED = {
    "account_name": "devstoreaccount1",
    "account_key": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/"
    "KBHBeksoGMGw==",
}
"""What every emulator of Azure accepts: this key is public, and no secret."""

_AZURE = {
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    "account_key": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        "AZURE_STORAGE_KEY",
    ),
    "sas_key": ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables by the name of the setting, the first that is set counts."""

_TEXT = "AZURE_STORAGE_CONNECTION_STRING"


def server(name: str, url: str) -> str:
    """The URL of a server, from the setting with this name.

    Raises
    ------
    InputError
        when it is not one.
    """
    if re.fullmatch(r"https?://[^/\s@?]+(/[^\s?]*)?", url) and _has_host(url):
        return url
    shown = f" {url!r}" if not set("@?") & set(url) else ""
    raise InputError(
        f"{name}{shown}: not the URL of a server; write it as http://host:9000, without credentials"
    )


def _has_host(url: str) -> bool:
    """Whether a URL names a host that clients can parse, which some end the process for."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and url.isascii()
    except ValueError:
        return False


def is_set(name: str) -> bool:
    """Whether a variable is set to something that means yes."""
    return os.environ.get(name, "").lower() in ("1", "true", "on", "yes", "y")


def google() -> dict[str, str]:
    """Settings of obstore for Google's storage.

    Raises
    ------
    InputError
        when a variable cannot be used.
    """
    if url := os.environ.get("GOOGLE_BASE_URL"):
        return {"base_url": server("GOOGLE_BASE_URL", url).rstrip("/")}
    if url := os.environ.get("STORAGE_EMULATOR_HOST"):
        full = url if "://" in url else f"http://{url}"
        # An emulator gets no credentials. obstore would ask for some before it writes.
        return {
            "base_url": server("STORAGE_EMULATOR_HOST", full).rstrip("/"),
            "bearer_token": "emulator",
        }
    return {}


def azure() -> dict[str, str]:
    """Settings of obstore for Azure's storage.

    Raises
    ------
    InputError
        when a variable cannot be used; it never contains a key.
    """
    if text := os.environ.get(_TEXT):
        return _connection(text)
    if is_set("AZURE_STORAGE_USE_EMULATOR"):
        return _emulator()
    found = {}
    for setting, names in _AZURE.items():
        if name := next((name for name in names if os.environ.get(name)), ""):
            found[setting] = os.environ[name]
            if setting == "endpoint":
                server(name, found[setting])
            elif setting == "account_key":
                _check_key(name, found[setting])
            elif setting == "sas_key" and "sig=" not in found[setting]:
                raise InputError(f"{name}: not a shared access signature, which contains 'sig='")
    return found


def _emulator() -> dict[str, str]:
    name = "AZURITE_BLOB_STORAGE_URL"
    url = server(name, os.environ.get(name) or "http://127.0.0.1:10000")
    return {**EMULATED, "endpoint": f"{url.rstrip('/')}/{EMULATED['account_name']}"}


def _check_key(name: str, key: str) -> None:
    try:
        base64.b64decode(key, validate=True)
    except ValueError:  # also of letters beyond ASCII
        raise InputError(f"{name}: not the key of an account, which is in base64") from None


def _connection(text: str) -> dict[str, str]:
    """The settings in a connection string, which take precedence over all others."""
    parts = dict(part.partition("=")[::2] for part in text.strip().split(";") if "=" in part)
    given = {name.strip().lower(): value.strip() for name, value in parts.items()}
    if given.get("usedevelopmentstorage", "").lower() == "true":
        return _emulator()
    name, endpoint = given.get("accountname", ""), given.get("blobendpoint", "")
    if endpoint:
        url = urlsplit(server(f"BlobEndpoint of {_TEXT}", endpoint))
        name = name or url.path.strip("/") or url.netloc.partition(".")[0]
    elif name:
        protocol = given.get("defaultendpointsprotocol", "https")
        suffix = given.get("endpointsuffix", "core.windows.net")
        endpoint = server(_TEXT, f"{protocol}://{name}.blob.{suffix}")
    else:
        raise InputError(
            f"{_TEXT}: has no AccountName or BlobEndpoint; copy it from the access keys of the "
            "storage account"
        )
    found = {"account_name": name, "endpoint": endpoint.rstrip("/")}
    if key := given.get("accountkey"):
        _check_key(f"AccountKey of {_TEXT}", key)
        found["account_key"] = key
    elif signature := given.get("sharedaccesssignature"):
        found["sas_key"] = signature
    return found


def gdal_settings() -> dict[str, str]:
    """The same for GDAL, whose own variables take precedence.

    What cannot be used is left out: it may not concern this run.
    """
    found: dict[str, str] = {}
    for settings in (_gdal_google, _gdal_azure):
        with contextlib.suppress(InputError):
            found |= settings()
    return found


def _gdal_google() -> dict[str, str]:
    found, settings = {}, google()
    if "base_url" in settings and not os.environ.get("CPL_GS_ENDPOINT"):
        found["CPL_GS_ENDPOINT"] = f"{settings['base_url']}/"
    if "bearer_token" in settings or is_set("GOOGLE_SKIP_SIGNATURE"):
        found["GS_NO_SIGN_REQUEST"] = "YES"
    return found


def _gdal_azure() -> dict[str, str]:
    settings = azure()
    if "account_name" not in settings or os.environ.get("AZURE_NO_SIGN_REQUEST"):
        return {}
    if is_set("AZURE_SKIP_SIGNATURE"):
        found = {"AZURE_NO_SIGN_REQUEST": "YES"}
    elif "account_key" in settings:
        found = {"AZURE_STORAGE_ACCESS_KEY": settings["account_key"]}
    elif "sas_key" in settings:
        found = {"AZURE_STORAGE_SAS_TOKEN": settings["sas_key"].lstrip("?")}
    else:
        found = {}
    found["AZURE_STORAGE_ACCOUNT"] = settings["account_name"]
    if "endpoint" in settings:
        words = {
            "AccountName": settings["account_name"],
            "AccountKey": settings.get("account_key", ""),
            "SharedAccessSignature": settings.get("sas_key", "").lstrip("?"),
            "BlobEndpoint": settings["endpoint"],
        }
        found[_TEXT] = ";".join(f"{name}={value}" for name, value in words.items() if value)
    return found
