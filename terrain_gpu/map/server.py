"""The server of the map: `MapServer`."""

from __future__ import annotations

import contextlib
import hmac
import io
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import BoundedSemaphore, Thread
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ..errors import InputError, OutputError, StoreError, TerrainError
from ..facts import JsonObject, Settings
from ..grid import GridSpec, ceil_div
from ..grid.lengths import metres_per_unit
from ..grid.neighbours import FORWARD_EDGES
from ..store import TileStore
from ..store.levels import overviews_of
from ..store.manage import made_by
from .jobs import COSTS, MapRun, MapRuns
from .tiles import SIDE, Source

log = logging.getLogger(__name__)

HOST = "127.0.0.1"

MOST_BODY = 1 << 20
"""Largest size of the body of a request, in bytes."""

AT_ONCE = 4
"""Number of tiles made at the same time, which limits memory."""

TYPES = {
    "index.html": "text/html; charset=utf-8",
    "map.css": "text/css; charset=utf-8",
    "map.js": "text/javascript; charset=utf-8",
    "grid.js": "text/javascript; charset=utf-8",
    "panel.js": "text/javascript; charset=utf-8",
    "profile.js": "text/javascript; charset=utf-8",
    "result.js": "text/javascript; charset=utf-8",
    "ol.js": "text/javascript; charset=utf-8",
    "ol.css": "text/css; charset=utf-8",
}
"""The files of the page; no other files are served."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' "
    "'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}

NAMED, NUMBER = r"([A-Za-z0-9_.-]{1,200})", r"(\d{1,10})"
SOURCE = rf"(store|runs/{NUMBER})"


class Reply(NamedTuple):
    """A response of the server."""

    body: bytes
    kind: str = "application/json"
    status: HTTPStatus = HTTPStatus.OK
    keep: bool = False
    """Whether the browser may cache it."""

    file: Path | None = None
    """A file to download, instead of a body."""


class Refused(Exception):
    """A rejected request."""

    def __init__(self, status: HTTPStatus, why: str = "") -> None:
        super().__init__(why or status.phrase)
        self.status = status


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    return Reply(json.dumps(value).encode(), status=status)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None


class MapServer:
    """Serves a map of a store to the browsers of this machine.

    It listens only on the loopback interface. All paths begin with a random token, and the header
    "Host" must name this machine, so that no other page in the browser can use it. It reads the
    store. Results of runs are in a scratch folder that is removed at the end; only one that is kept
    becomes a layer of the store.

    Parameters
    ----------
    store
        A store, or its path or URL.
    port
        Port to listen on; 0 for any free port.
    name
        What the page calls the map; the name of the store if empty.
    memory_limit, threads
        For runs: limit on the peak resident set size in bytes (a quarter of RAM when None), and
        number of threads (all processors when None).

    Attributes
    ----------
    url
        The URL of the map.

    Raises
    ------
    StoreError
        when the store cannot be opened.
    InputError
        when it has no layers.
    OutputError
        when the port is in use.

    Examples
    --------
    >>> with MapServer("dem.zarr") as server:
    ...     print(server.url)
    ...     server.serve()
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | TileStore,
        *,
        port: int = 0,
        name: str = "",
        memory_limit: int | str | None = None,
        threads: int | None = None,
    ) -> None:
        opened = store if isinstance(store, TileStore) else TileStore.open(store)
        if not opened.layers:
            raise InputError(f"{opened.path}: has no layers; convert a raster first")
        self.name = name or os.path.basename(str(opened.path))
        self.token = secrets.token_urlsafe(24)
        self.source = Source(opened, 1, opened.grid.shape, {})
        self.heights = _heights(opened)
        self.runs = MapRuns(self.source, self.heights, memory_limit, threads)
        self._tiles = BoundedSemaphore(AT_ONCE)
        page = files(__package__) / "page"
        self._page = {name: (page / name).read_bytes() for name in TYPES}
        handler = type("Handler", (_Handler,), {"map": self})
        try:
            self._http = _Quiet((HOST, port), handler)
        except OSError as error:
            raise OutputError(
                f"port {port}: {error.strerror}; choose another port, or 0 for any free one"
            ) from error
        self._serves = False
        self._warming = Thread(target=self._warm_up, daemon=True)
        self.port = self._http.server_address[1]
        self.url = f"http://{HOST}:{self.port}/{self.token}/"

    def serve(self) -> None:
        """Answer requests until another thread calls `close`, or until an interrupt."""
        self._serves = True
        self._warming.start()
        self._http.serve_forever(poll_interval=0.2)

    def start(self) -> None:
        """Answer requests in a separate thread."""
        self._serves = True
        Thread(target=self.serve, daemon=True).start()

    def close(self) -> None:
        """End runs, remove their files and free the port."""
        if self._serves:
            self._http.shutdown()
        self.runs.close()
        self._http.server_close()
        # Threads in compiled code when the process ends could abort it.
        if self._warming.ident is not None:
            self._warming.join()
        with contextlib.ExitStack() as finished:
            for _ in range(AT_ONCE):
                finished.enter_context(self._tiles)

    def __enter__(self) -> MapServer:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _warm_up(self) -> None:
        """Load the modules and cells for the first tile while the browser starts."""
        with contextlib.suppress(TerrainError):
            self.source.shown(self.heights or self.source.store.layers[0]).legend()

    # -- answers ---------------------------------------------------------------------------

    @cached_property
    def _routes(self) -> list[tuple[str, re.Pattern[str], Callable[..., Reply]]]:
        routes = (
            ("GET", "", lambda: self._file("index.html")),
            ("GET", r"([a-z]+\.(?:html|css|js))", self._file),
            ("GET", r"store\.json", self._described),
            ("GET", rf"{SOURCE}/legend/{NAMED}", self._legend),
            (
                "GET",
                rf"{SOURCE}/(cells|shade|lines)/{NAMED}/{NUMBER}/{NUMBER}/{NUMBER}\.png",
                self._tile,
            ),
            ("GET", rf"{SOURCE}/values/{NUMBER}/{NUMBER}", self._values),
            ("GET", rf"runs/{NUMBER}", lambda number: _json(self._run(number).describe())),
            ("GET", rf"runs/{NUMBER}/path/{NUMBER}/{NUMBER}", self._path),
            (
                "GET",
                rf"runs/{NUMBER}/catchment",
                lambda number: _json(self._run(number).catchment()),
            ),
            ("POST", rf"runs/{NUMBER}/files", self._write),
            ("GET", rf"runs/{NUMBER}/files/([a-z_]+\.[a-z]+)", self._written),
            ("POST", rf"runs/{NUMBER}/keep", self._keep),
            ("POST", "runs", self._start),
            ("DELETE", rf"runs/{NUMBER}", self._cancel),
        )
        return [(method, re.compile(path), answer) for method, path, answer in routes]

    def answer(self, method: str, target: str, read: Callable[[], bytes]) -> Reply:
        """The reply to a request whose host has been checked; raises `Refused`.

        The body is read only after the token is checked: until then, anyone may have sent it.
        """
        try:
            parts = urlsplit(target)
            query = parse_qs(parts.query, max_num_fields=10)
        except ValueError:  # too many fields, or not a URL
            raise Refused(HTTPStatus.BAD_REQUEST, "the URL cannot be parsed") from None
        token, slash, path = parts.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()) or not slash:
            raise Refused(HTTPStatus.NOT_FOUND)
        allowed = False
        for route_method, pattern, respond in self._routes:
            if not (match := pattern.fullmatch(path)):
                continue
            allowed = True
            if route_method == method:
                body = read()
                kwargs: Settings = {"body": body} if method == "POST" else {}
                if respond == self._values:
                    kwargs = {"names": query.get("names", [""])[0]}
                return respond(*match.groups(), **kwargs)
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED if allowed else HTTPStatus.NOT_FOUND)

    def _file(self, name: str) -> Reply:
        if name not in TYPES:
            raise Refused(HTTPStatus.NOT_FOUND)
        return Reply(self._page[name], TYPES[name])

    def _described(self) -> Reply:
        store, grid = self.source.store, self.source.store.grid
        self.source.refresh()
        layers: list[JsonObject] = []
        for name, layer in store.each():
            if isinstance(layer, StoreError):
                layers.append({"name": name, "unreadable": str(layer)})
                continue
            digest = str(layer.info.get("digest", ""))[:16]
            version = "-".join([digest, *map(str, overviews_of(store, name)[0])])
            internal = layer.info.get("encoding") == FORWARD_EDGES
            internal |= layer.info.get("holds") == "pour points"
            layers.append(
                {"name": name, "made_by": made_by(layer), "version": version, "internal": internal}
            )
        levels = [1] if self.heights else []
        if self.heights:
            levels += overviews_of(store, self.heights)[0]
        return _json(
            {
                "name": self.name,
                "rows": grid.rows,
                "cols": grid.cols,
                "transform": list(grid.transform),
                "crs": grid.crs_name or None,
                "unit": metres_per_unit(grid) if grid.crs_wkt else None,
                "geographic": grid.is_geographic,
                "metres": _in_metres(grid),
                "aspect": self.source.aspect,
                "tile": SIDE,
                "coarsest": self.source.coarsest,
                "layers": layers,
                "heights": self.heights,
                "directions": "flow_direction" in store,
                "accumulation": "flow_accumulation" in store,
                "levels": levels,
                "costs": COSTS,
                "no_runs": self.runs.why_not,
                "runs": [run.describe() for run in list(self.runs.runs.values())],
            }
        )

    def _source(self, where: str, number: str | None) -> Source:
        if where == "store":
            return self.source
        source = self._run(str(number)).source
        if source is None:
            raise Refused(HTTPStatus.NOT_FOUND, "the run has no result yet")
        return source

    def _run(self, number: str) -> MapRun:
        run = self.runs.runs.get(int(number))
        if run is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"no run {number}")
        return run

    def _legend(self, where: str, number: str | None, name: str) -> Reply:
        return _json(self._source(where, number).shown(name).legend())

    def _tile(
        self, where: str, number: str | None, kind: str, name: str, *tile_index: str
    ) -> Reply:
        source = self._source(where, number)
        factor, row, col = map(int, tile_index)
        valid = factor & (factor - 1) == 0 and source.base <= factor <= source.coarsest
        rows, cols = source.rows_and_cols(factor) if valid else (0, 0)
        if not (valid and row < ceil_div(rows, SIDE) and col < ceil_div(cols, SIDE)):
            raise Refused(HTTPStatus.NOT_FOUND, "no such tile")
        with self._tiles:
            return Reply(source.shown(name).tile(kind, factor, row, col), "image/png", keep=True)

    def _cell(self, row: str, col: str) -> tuple[int, int]:
        rows, cols = self.source.shape
        if not (int(row) < rows and int(col) < cols):
            raise Refused(HTTPStatus.NOT_FOUND, "no such cell")
        return int(row), int(col)

    def _values(self, where: str, number: str | None, row: str, col: str, *, names: str) -> Reply:
        source, cell = self._source(where, number), self._cell(row, col)
        layer_names = [name for name in names.split(",")[:50] if name]
        return _json({name: source.shown(name).pyramid.value(*cell) for name in layer_names})

    def _path(self, number: str, row: str, col: str) -> Reply:
        return _json(self._run(number).path(*self._cell(row, col)))

    def _start(self, *, body: bytes) -> Reply:
        return _json(self.runs.start(_parsed(body)).describe(), HTTPStatus.CREATED)

    def _write(self, number: str, *, body: bytes) -> Reply:
        name = self.runs.write(self._run(number), _parsed(body))
        return _json({"file": f"runs/{int(number)}/files/{name}"}, HTTPStatus.CREATED)

    def _written(self, number: str, name: str) -> Reply:
        file = self._run(number).folder / "files" / name
        if not file.is_file():
            raise Refused(HTTPStatus.NOT_FOUND, f"no file {name}")
        return Reply(b"", "application/octet-stream", file=file)

    def _keep(self, number: str, *, body: bytes) -> Reply:
        name = self.runs.keep(self._run(number), _parsed(body))
        return _json({"name": name}, HTTPStatus.CREATED)

    def _cancel(self, number: str) -> Reply:
        self._run(number)
        return _json(self.runs.cancel(int(number)).describe())


def _heights(store: TileStore) -> str | None:
    """The name of the elevation layer; None if there is none."""
    return "elevation" if "elevation" in store else None


def _in_metres(grid: GridSpec) -> bool:
    """Whether the lengths of paths are in metres."""
    units = re.findall(r'LENGTHUNIT\["([^"]+)"', grid.crs_wkt)
    return grid.is_geographic or units[-1:] == ["metre"]


class _Quiet(ThreadingHTTPServer):
    """A server that prints nothing when a browser closes a connection."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a request has failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Reads requests and writes replies."""

    map: MapServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "terrain-gpu", ""
    timeout = 30
    disable_nagle_algorithm = (
        True  # otherwise the body waits 40 ms for the acknowledgement of the headers
    )

    def _respond(self) -> None:
        self.close_connection = True  # the rest of a rejected request is not the next request
        try:
            host = self.headers.get_all("Host") or [""]
            hosts = {f"{name}:{self.map.port}" for name in (HOST, "localhost")}
            if len(host) != 1 or host[0].lower() not in hosts:
                raise Refused(HTTPStatus.FORBIDDEN, "unknown host")
            reply = self.map.answer(self.command, self.path, self._body)
        except Refused as error:
            reply = _json({"error": str(error)}, error.status)
        except InputError as error:
            reply = _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except StoreError as error:
            reply = _json({"error": str(error)}, HTTPStatus.NOT_FOUND)
        except (TerrainError, ValueError) as error:
            log.warning("%s: %s", self.path.partition(self.map.token)[2], error)
            reply = _json({"error": str(error)}, HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(reply)

    do_GET = do_POST = do_DELETE = _respond

    def _body(self) -> bytes:
        """Read the body of a request."""
        size = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not re.fullmatch(r"\d{1,12}", size):
            raise Refused(HTTPStatus.LENGTH_REQUIRED)
        if int(size) > (MOST_BODY if self.command == "POST" else 0):
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = self.rfile.read(int(size))
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        return body

    def _send(self, reply: Reply) -> None:
        with contextlib.ExitStack() as opened:
            content: BinaryIO = io.BytesIO(reply.body)
            headers = {**HEADERS, "Content-Type": reply.kind}
            if reply.file:
                content = opened.enter_context(open(reply.file, "rb"))
                headers["Content-Disposition"] = f'attachment; filename="{reply.file.name}"'
            headers["Content-Length"] = str(content.seek(0, os.SEEK_END))
            content.seek(0)
            self._send_all(reply, headers, content)

    def _send_all(self, reply: Reply, headers: dict[str, str], content: BinaryIO) -> None:
        self.send_response(reply.status)
        headers["Cache-Control"] = "private, max-age=86400" if reply.keep else "no-store"
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        shutil.copyfileobj(content, self.wfile)

    def log_message(self, format: str, *args: Any) -> None:
        """Log requests for debugging only, without the token."""
        log.debug(format, *(str(a).replace(self.map.token, "…") for a in args))
