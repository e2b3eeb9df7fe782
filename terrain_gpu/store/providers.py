"""Settings of Google's and Azure's storage, from the variables that their own tools read.

obstore reads some of them itself. Here are those that it does not know, and checks of those with
which it would fail with an obscure message. GDAL has its own names for all of them.
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
"""The account of every Azure emulator: this key is public, not a secret."""

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
"""Variables for each setting; the first one that is set is used."""

_TEXT = "AZURE_STORAGE_CONNECTION_STRING"


def server(name: str, url: str) -> str:
    """The URL of a server, from the setting with this name.

    Raises
    ------
    InputError
        when it is not a URL.
    """
    if re.fullmatch(r"https?://[^/\s@?]+(/[^\s?]*)?", url) and _has_host(url):
        return url
    shown = f" {url!r}" if not set("@?") & set(url) else ""
    raise InputError(
        f"{name}{shown}: not the URL of a server; write it as http://host:9000, without credentials"
    )


def _has_host(url: str) -> bool:
    """Whether a URL names a host that clients can parse; some clients crash if they cannot."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and url.isascii()
    except ValueError:
        return False


def is_set(name: str) -> bool:
    """Whether a variable is set to a word that means yes."""
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
        # An emulator needs no credentials, but obstore requires some for writing.
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
    settings = {}
    for setting, names in _AZURE.items():
        if name := next((name for name in names if os.environ.get(name)), ""):
            settings[setting] = os.environ[name]
            if setting == "endpoint":
                server(name, settings[setting])
            elif setting == "account_key":
                _check_key(name, settings[setting])
            elif setting == "sas_key" and "sig=" not in settings[setting]:
                raise InputError(f"{name}: not a shared access signature, which contains 'sig='")
    return settings


def _emulator() -> dict[str, str]:
    name = "AZURITE_BLOB_STORAGE_URL"
    url = server(name, os.environ.get(name) or "http://127.0.0.1:10000")
    return {**EMULATED, "endpoint": f"{url.rstrip('/')}/{EMULATED['account_name']}"}


def _check_key(name: str, key: str) -> None:
    try:
        base64.b64decode(key, validate=True)
    except ValueError:  # also raised for letters beyond ASCII
        raise InputError(f"{name}: not the key of an account, which is in base64") from None


def _connection(text: str) -> dict[str, str]:
    """The settings in a connection string, which take precedence over all others."""
    parts = dict(part.partition("=")[::2] for part in text.strip().split(";") if "=" in part)
    fields = {name.strip().lower(): value.strip() for name, value in parts.items()}
    if fields.get("usedevelopmentstorage", "").lower() == "true":
        return _emulator()
    name, endpoint = fields.get("accountname", ""), fields.get("blobendpoint", "")
    if endpoint:
        url = urlsplit(server(f"BlobEndpoint of {_TEXT}", endpoint))
        name = name or url.path.strip("/") or url.netloc.partition(".")[0]
    elif name:
        protocol = fields.get("defaultendpointsprotocol", "https")
        suffix = fields.get("endpointsuffix", "core.windows.net")
        endpoint = server(_TEXT, f"{protocol}://{name}.blob.{suffix}")
    else:
        raise InputError(
            f"{_TEXT}: has no AccountName or BlobEndpoint; copy it from the access keys of the "
            "storage account"
        )
    settings = {"account_name": name, "endpoint": endpoint.rstrip("/")}
    if key := fields.get("accountkey"):
        _check_key(f"AccountKey of {_TEXT}", key)
        settings["account_key"] = key
    elif signature := fields.get("sharedaccesssignature"):
        settings["sas_key"] = signature
    return settings


def gdal_settings() -> dict[str, str]:
    """The same settings for GDAL, whose own variables take precedence.

    Settings that cannot be used are left out: they may not concern this run.
    """
    options: dict[str, str] = {}
    for settings in (_gdal_google, _gdal_azure):
        with contextlib.suppress(InputError):
            options |= settings()
    return options


def _gdal_google() -> dict[str, str]:
    options, settings = {}, google()
    if "base_url" in settings and not os.environ.get("CPL_GS_ENDPOINT"):
        options["CPL_GS_ENDPOINT"] = f"{settings['base_url']}/"
    if "bearer_token" in settings or is_set("GOOGLE_SKIP_SIGNATURE"):
        options["GS_NO_SIGN_REQUEST"] = "YES"
    return options


def _gdal_azure() -> dict[str, str]:
    settings = azure()
    if "account_name" not in settings or os.environ.get("AZURE_NO_SIGN_REQUEST"):
        return {}
    if is_set("AZURE_SKIP_SIGNATURE"):
        options = {"AZURE_NO_SIGN_REQUEST": "YES"}
    elif "account_key" in settings:
        options = {"AZURE_STORAGE_ACCESS_KEY": settings["account_key"]}
    elif "sas_key" in settings:
        options = {"AZURE_STORAGE_SAS_TOKEN": settings["sas_key"].lstrip("?")}
    else:
        options = {}
    options["AZURE_STORAGE_ACCOUNT"] = settings["account_name"]
    if "endpoint" in settings:
        words = {
            "AccountName": settings["account_name"],
            "AccountKey": settings.get("account_key", ""),
            "SharedAccessSignature": settings.get("sas_key", "").lstrip("?"),
            "BlobEndpoint": settings["endpoint"],
        }
        options[_TEXT] = ";".join(f"{name}={value}" for name, value in words.items() if value)
    return options
