"""A server on the loopback that speaks the few requests of Google's storage that obstore sends.

It shows that our side is right: URLs, settings, credentials that are sent, conditional writes by
generation, ranges, lists in pages, and what we make of errors. It follows Google's documentation of
the XML API. It does not show that Google's own servers behave so: for that, name a bucket of theirs
in TERRAIN_GPU_SOAK (test_real_server.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
"""Most names in an answer to a list; Google's servers send as many."""


class Found(NamedTuple):
    data: bytes
    generation: int

    @property
    def tag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


class Google:
    """The state of the server: objects by bucket and name.

    Attributes
    ----------
    token
        What requests have to bring as their bearer token; empty if anything will do.
    page
        Most names in an answer to a list.
    """

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, Found]] = {}
        self.token, self.page = "", PAGE
        self._lock, self._generations = threading.Lock(), iter(range(10**15, 2 * 10**15))

    def answer(self, method, bucket, name, query, headers, body):
        """Status, headers and body of an answer."""
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            return refusal(401, "AuthenticationRequired")
        with self._lock:
            if (objects := self.buckets.get(bucket)) is None:
                return refusal(404, "NoSuchBucket")
            if not name:
                return self.listed(objects, query) if method == "GET" else refusal(405, "No")
            return getattr(self, f"do_{method.lower()}")(objects, name, headers, body)

    def do_put(self, objects, name, headers, body):
        there = objects.get(name)
        wanted = headers.get("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != (there.generation if there else 0):
            return refusal(412, "PreconditionFailed")
        found = objects[name] = Found(body, next(self._generations))
        return 200, described(found), b""

    def do_get(self, objects, name, headers, _):
        if (found := objects.get(name)) is None:
            return refusal(404, "NoSuchKey")
        size = len(found.data)
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", ""))
        if not asked:
            return 200, described(found), found.data
        first, last = asked.groups()
        start = int(first) if first else max(size - int(last), 0)
        end = min(int(last) + 1, size) if first and last else size
        if start >= size:
            return refusal(416, "InvalidRange")
        part = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
        return 206, described(found) | part, found.data[start:end]

    do_head = do_get

    def do_delete(self, objects, name, *_):
        if objects.pop(name, None) is None:
            return refusal(404, "NoSuchKey")
        return 204, {}, b""

    def listed(self, objects, query):
        """One page of a list, without generations, which obstore does not take from it."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        names, folders, more = [], [], ""
        for name in sorted(name for name in objects if name.startswith(prefix)):
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            shown = name if end < 0 else name[: end + 1]
            if shown <= after or shown in folders[-1:]:
                continue
            if len(names) + len(folders) == min(self.page, int(query.get("max-keys", PAGE))):
                more = max([*names, *folders])
                break
            (names if end < 0 else folders).append(shown)
        parts = [f"<Prefix>{escape(prefix)}</Prefix>"]  # GDAL takes it away from the names
        parts.append(f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>")
        if more:
            parts.append(f"<NextContinuationToken>{escape(more)}</NextContinuationToken>")
        for name in names:
            found = objects[name]
            parts.append(
                f"<Contents><Key>{escape(name)}</Key><Generation>{found.generation}</Generation>"
                "<LastModified>2026-11-01T12:00:00.000Z</LastModified>"
                f"<ETag>{escape(found.tag)}</ETag><Size>{len(found.data)}</Size></Contents>"
            )
        for folder in folders:
            parts.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
        text = f"<?xml version='1.0'?><ListBucketResult>{''.join(parts)}</ListBucketResult>"
        return 200, {"Content-Type": "application/xml"}, text.encode()


def described(found: Found) -> dict[str, str]:
    return {
        "ETag": found.tag,
        "x-goog-generation": str(found.generation),
        "Last-Modified": formatdate(0, usegmt=True),
        "Accept-Ranges": "bytes",
    }


def refusal(status: int, code: str):
    return status, {}, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()


@contextlib.contextmanager
def serve():
    """The state of a server, and its address."""
    google = Google()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self):
            url = urlsplit(self.path)
            bucket, _, name = url.path.removeprefix("/").partition("/")
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            headers = {key.lower(): value for key, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length") or 0))
            asked = self.command, unquote(bucket), unquote(name), query, headers, body
            status, more, data = google.answer(*asked)
            self.send_response_only(status)
            for key, value in more.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any

        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    yield google, f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()
