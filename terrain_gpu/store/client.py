"""The client of a bucket: settings, credentials, retries, and explanations of its errors.

Credentials, region and endpoint come from the environment and from the profiles of the provider's
own tools. Messages never contain them.
"""

from __future__ import annotations

import configparser
import contextlib
import functools
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..errors import InputError, OutputError, StoreError
from ..facts import Settings
from ..plurals import counted
from .providers import azure, google, server

if TYPE_CHECKING:
    from .objects import ObjectPath

SERVER_RETRIES = 6
"""Number of retries of obstore after status 5xx, a lost connection or a time-out."""

FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0
"""Seconds between attempts, doubled each time."""

CONNECT_TIMEOUT, READ_TIMEOUT, REQUEST_TIMEOUT = 10.0, 30.0, 600.0
"""Time-outs in seconds: to connect, without receiving a byte, and for a whole object."""


KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, the name of a file",
    "az": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY",
}
"""The usual ways to provide credentials, by scheme."""

_NAMES = {
    "s3": {
        "public": "AWS_SKIP_SIGNATURE",
        "endpoint": "endpoint (AWS_ENDPOINT_URL)",
        "place": "region",
        "region": "AWS_REGION to its region",
    },
    "gs": {
        "public": "GOOGLE_SKIP_SIGNATURE",
        "endpoint": "endpoint (GOOGLE_BASE_URL)",
        "place": "network",
        "region": "the endpoint (GOOGLE_BASE_URL) of its region",
    },
    "az": {
        "public": "AZURE_SKIP_SIGNATURE",
        "endpoint": "endpoint (AZURE_STORAGE_ENDPOINT)",
        "place": "account (AZURE_STORAGE_ACCOUNT_NAME)",
        "region": "the endpoint (AZURE_STORAGE_ENDPOINT) of its account",
    },
}
"""Names that remedies use, by scheme."""


class Truncated(Exception):
    """Fewer bytes arrived than were requested."""


def _obstore(url: str) -> Any:
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise InputError(
            f"{url}: object storage needs obstore ({error}); pip install 'terrain_gpu[cloud]'"
        ) from None
    return obstore


def connected(bucket: str) -> tuple[Any, Any]:
    """The module obstore, and its client for a bucket, which all threads share."""
    obstore = _obstore(bucket)
    settings = _PROVIDERS[bucket.partition(":")[0]]()
    return obstore, _client(bucket, tuple(sorted(settings.items())), endpoint_url(), os.getpid())


def _check_settings(profile: dict[str, str]) -> None:
    """Reject settings for S3 with which the client would fail with an obscure message.

    Raises
    ------
    InputError
        that names the variable, and never contains a key.
    """
    have = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    pair = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
    for one, other in (pair, pair[::-1]):
        if have.get(one) and not have.get(other):
            raise InputError(f"{other} is not set, but {one} is; set both or neither")
    named = {f"{name} of the profile": value for name, value in profile.items()}
    for name, value in ({key: have.get(key, "") for key in _SENT} | named).items():
        if not re.fullmatch("[!-~]*", value):
            raise InputError(
                f"{name} contains a space, a line break or another character that is not allowed"
            )
    if endpoint := profile.get("endpoint"):
        server("endpoint_url of the profile", endpoint)


_SENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
"""Variables with values that the client sends in headers."""


def endpoint_url() -> str:
    """URL of an S3 server other than Amazon's; empty if the environment does not name one.

    Raises
    ------
    InputError
        when it is not a URL.
    """
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    name = next((name for name in names if os.environ.get(name)), "")
    return server(name, os.environ[name]) if name else ""


@functools.lru_cache(64)
def _client(bucket: str, settings: tuple[tuple[str, str], ...], endpoint: str, _: int) -> Any:
    config = dict(settings)
    if bucket.startswith("s3:"):
        _check_settings(config)
        if endpoint:
            config["endpoint"] = endpoint
    plain = any(config.get(key, "").startswith("http:") for key in ("endpoint", "base_url"))
    options: Settings = {
        "client_options": {
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT),
            "read_timeout": timedelta(seconds=READ_TIMEOUT),
            "timeout": timedelta(seconds=REQUEST_TIMEOUT),
            **({"allow_http": True} if plain else {}),
        },
        "retry_config": {
            "max_retries": SERVER_RETRIES,
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_WAIT),
                "max_backoff": timedelta(seconds=LONGEST_WAIT),
                "base": 2,
            },
            "retry_timeout": timedelta(seconds=180),
        },
    }
    return _obstore(bucket).store.from_url(
        bucket, **options, **({"config": config} if config else {})
    )


def _profile() -> dict[str, str]:
    """Settings from a profile of AWS's own tools, if the environment does not contain them.

    obstore reads the environment and the role of the machine, but not profiles.
    """
    if os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_SKIP_SIGNATURE"):
        return {}
    name = os.environ.get("AWS_PROFILE", "")
    files = tuple(
        os.path.expanduser(os.environ.get(variable) or default)
        for variable, default in (
            ("AWS_CONFIG_FILE", "~/.aws/config"),
            ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        )
    )
    settings = dict(_sections(files, name or "default", *(_changed(file) for file in files)))
    if name and "aws_access_key_id" not in settings:
        raise InputError(
            f"AWS_PROFILE {name}: {files[1]} has no keys for it; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (aws configure export-credentials --format env)"
        )
    regions = ("AWS_REGION", "AWS_DEFAULT_REGION")
    if any(os.environ.get(variable) for variable in regions):
        settings.pop("region", None)
    return settings


_PROVIDERS = {"s3": _profile, "gs": google, "az": azure}
"""Functions that find settings which obstore does not, by scheme."""


def _changed(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(8)
def _sections(files: tuple[str, ...], name: str, *_: int) -> dict[str, str]:
    keys = {
        "aws_access_key_id": "aws_access_key_id",
        "aws_secret_access_key": "aws_secret_access_key",
        "aws_session_token": "aws_session_token",
        "region": "region",
        "endpoint_url": "endpoint",
    }
    settings: dict[str, str] = {}
    for file in files:
        parser = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(OSError, configparser.Error, UnicodeError):
            parser.read(file, encoding="utf-8")
        for section in (name, f"profile {name}"):
            if parser.has_section(section):
                settings |= {keys[k]: v for k, v in parser.items(section) if k in keys and v}
    return settings


# -- messages -----------------------------------------------------------------------------------


@contextlib.contextmanager
def explained(path: ObjectPath, done: str, kind: type[StoreError | OutputError]) -> Iterator[None]:
    """Turn errors of obstore in the body into errors that name URL, failure and remedy."""
    try:
        yield
    except (StoreError, InputError, OutputError):
        raise
    except BaseException as error:
        module = type(error).__module__
        ours = isinstance(error, Truncated | OSError)
        if not ours and not module.startswith(("obstore", "pyo3_runtime", "builtins")):
            raise
        if not ours and module == "builtins" and not isinstance(error, ValueError | RuntimeError):
            raise
        reason, remedy = _reason(error)
        scheme = str(path).partition(":")[0]
        names = _NAMES.get(scheme, _NAMES["s3"]) | {"keys": KEYS.get(scheme, KEYS["s3"])}
        remedy = remedy.format_map(names)
        raise kind(f"{path}: cannot be {done}: {reason}; {remedy}") from None


NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound")
"""Codes with which servers report that a bucket does not exist."""

RESUMES = "; --resume continues a run"
"""The end of a remedy if a run may have begun."""
_AGAIN = f"try again later{RESUMES}"
_CHECK = "check {endpoint}, {place} and bucket"
_SAID = (
    (NO_BUCKET.pattern, "no such bucket", "create it, or name another one"),
    (
        "ExpiredToken|InvalidToken|TokenRefreshRequired",
        "the credentials have expired",
        f"renew them{RESUMES}",
    ),
    ("RequestTimeTooSkewed", "the clock of this machine is wrong", "set it"),
    (
        "^301|PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint",
        "the bucket is in another region",
        "set {region}",
    ),
    (
        "EntityTooLarge|RequestBodyTooLarge",
        "too large for the server",
        "convert with a smaller --block-size",
    ),
    (
        "^40[13]|Unauthenticated|PermissionDenied|InvalidAccessKey|SignatureDoesNotMatch",
        "access denied",
        "check the credentials ({keys}) and their permissions for the bucket",
    ),
    (
        "^501|NotImplemented",
        "the server does not support this",
        "use another server or a local disk",
    ),
    ("^4(?!08|29)", "", _CHECK),
)
"""Pattern of a server's response or of an error type; its meaning; the remedy."""

_NO_CREDENTIALS = (
    r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google|MissingAccount|OpenCredentials",
    "no credentials",
    "set {keys}, or {public}=true to read a public bucket",
)
_HAPPENED = (
    _NO_CREDENTIALS,
    ("InvalidAccessKey|Decode", "the credentials are not valid", "set them again"),
    (
        "redirect without LOCATION",
        "the bucket is in another region",
        "set {region}",
    ),
    (
        "InvalidContentType|InvalidMessage|[Cc]ertificate|UnknownIssuer",
        "no TLS connection to the server",
        "check whether its URL begins with http:// or https://, and its certificate",
    ),
    ("timed out|TimedOut|kind: Timeout", "the server did not answer in time", _AGAIN),
    ("dns error|lookup address", "the server's name is unknown", "check {endpoint} and {place}"),
    ("body|IncompleteMessage|bytes arrived|unexpected EOF", "the response was truncated", _AGAIN),
    (
        "[Cc]onnection refused|error trying to connect|error sending request",
        "no connection to the server",
        f"check the network and the {{endpoint}}, or {_AGAIN}",
    ),
)
"""The same for errors of the connection."""


def status_of(error: BaseException) -> str:
    """HTTP status in the text of an error of obstore: "503 Service Unavailable"."""
    match = re.search(r"status code: (\d{3}(?: [A-Z][A-Za-z]+)*)", str(error))
    return match[1] if match else ""


def _reason(error: BaseException) -> tuple[str, str]:
    """Reason and remedy of an error, in words that cannot contain a secret."""
    text, kind = str(error), type(error).__name__
    status, retried = status_of(error), re.search(r"after (\d+) retries", text)
    code = re.search(r"<Code>(\w{1,60})</Code>", text)
    said = ", ".join(filter(None, (status, code and code[1])))
    if re.search(_NO_CREDENTIALS[0], text):  # whatever the credentials server responded
        said = ""
    rows = [row for row in _SAID if said and re.search(row[0], f"{said} {kind}")]
    rows += [row for row in _HAPPENED if not said and re.search(row[0], text)]
    _, words, remedy = rows[0] if rows else ("", "" if said else f"{kind} of the client", _AGAIN)
    reason = f"{words} ({said})" if words and said else words or said
    if retried and retried[1] != "0":
        reason += f", even after {counted(int(retried[1]), 'retry', 'retries')}"
    return reason, remedy
