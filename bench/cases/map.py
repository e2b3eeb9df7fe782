"""How long does a user of the map wait for the first picture of a store, and for tiles?

Processor time is that of the server with its client; wall time is what a user waits.
"""

from __future__ import annotations

import argparse
import http.client
import json
from pathlib import Path

import numpy as np

from bench.table import Table
from bench.timing import timed


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("store", type=Path)
    parser.add_argument("--rounds", type=int, default=12)


def run(given: argparse.Namespace) -> None:
    """Print the table."""

    def first_picture() -> tuple:
        from terrain_gpu.map import MapServer

        server = MapServer(given.store)
        server.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port)

        def get(path: str) -> bytes:
            connection.request("GET", f"/{server.token}/{path}")
            reply = connection.getresponse()
            data = reply.read()
            assert reply.status == 200, data
            return data

        told = json.loads(get("store.json"))
        factor, name = told["coarsest"], told["heights"] or told["layers"][0]["name"]
        get(f"store/shade/{name}/{factor}/0/0.png")
        return server, get, told, factor, name

    spent, (server, get, told, factor, name) = timed(first_picture)
    with server:
        print(f"first picture: {spent}, from the imports of the map on\n")
        columns = "median ms", "ms of processors", "most ms", "ms of processors"
        table = Table("scale | tile", *columns)
        while factor:
            rows, cols = (-(-side // factor // 256) for side in (told["rows"], told["cols"]))
            rng = np.random.default_rng(factor)
            for what in ("shade", "cells", "lines"):
                times = []
                for _ in range(given.rounds):
                    row, col = rng.integers(0, (rows, cols)).tolist()
                    times.append(timed(get, f"store/{what}/{name}/{factor}/{row}/{col}.png")[0])
                both = 1e3 * np.median(times, axis=0), 1e3 * np.max(times, axis=0)
                table.row(f"1:{factor}", what, *(f"{ms:.1f}" for one in both for ms in one))
            factor //= 2
