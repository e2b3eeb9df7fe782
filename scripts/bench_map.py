"""Time the first picture and the tiles of the map of a store.

    python scripts/bench_map.py dem.zarr

CPU time is that of the server with its client; wall time is what a user waits.
"""

from __future__ import annotations

import http.client
import json
import sys
import time

import numpy as np

BEGIN = time.perf_counter(), time.process_time()


def main() -> None:
    from terrain_gpu.map import MapServer

    with MapServer(sys.argv[1]) as server:
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
        wall, cpu = time.perf_counter() - BEGIN[0], time.process_time() - BEGIN[1]
        print(
            f"first picture: {wall:.2f} s, {cpu:.2f} s of CPU, from the start of Python's imports"
        )
        while factor:
            rows, cols = (-(-side // factor // 256) for side in (told["rows"], told["cols"]))
            rng = np.random.default_rng(factor)
            for what in ("shade", "cells", "lines"):
                times = []
                for _ in range(12):
                    row, col = rng.integers(0, (rows, cols)).tolist()
                    begin = time.perf_counter(), time.process_time()
                    get(f"store/{what}/{name}/{factor}/{row}/{col}.png")
                    ends = time.perf_counter(), time.process_time()
                    times.append([1e3 * (b - a) for a, b in zip(begin, ends, strict=True)])
                wall, cpu = np.median(times, axis=0)
                most = np.max(times, axis=0)
                print(
                    f"1:{factor:<5} {what:6} median {wall:6.1f} ms, {cpu:6.1f} ms of CPU; "
                    f"most {most[0]:6.1f} ms, {most[1]:6.1f} ms of CPU"
                )
            factor //= 2


if __name__ == "__main__":
    main()
