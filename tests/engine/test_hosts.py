"""Two hosts, by hand as in docs/how-to/cluster.md: network namespaces joined by a cable.

Each has an address, a host name and mounts of its own. Skipped where namespaces are not allowed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from contract import make_store

import terrain_gpu

PROGRAMS = Path(sys.executable).parent
PORT = 8786


class Host:
    """A network namespace, in which programs run with the host name and mounts of this host."""

    def __init__(self, name: str, space: str, address: str) -> None:
        self.name, self.space, self.address = name, space, address
        self.hidden: Path | None = None

    def command(self, *words: str) -> list[str]:
        """The command to run a program on this host."""
        hide = f"mount -t tmpfs none {self.hidden} && " if self.hidden else ""
        shell = f'hostname {self.name} && {hide}exec "$@"'
        return [
            *("ip", "netns", "exec", self.space, "unshare", "--uts", "--mount"),
            *("sh", "-c", shell, "sh", str(PROGRAMS / words[0]), *words[1:]),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=300, check=False
        )


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture
def hosts():
    """Two hosts, and what stops the programs on them."""
    if not all(map(shutil.which, ("ip", "unshare"))):
        pytest.skip("needs ip and unshare")
    with contextlib.ExitStack() as stack:
        found = []
        for number, name in enumerate(("first", "second"), 1):
            space = f"tg-{os.getpid()}-{name}"
            try:
                ip("netns", "add", space)
                stack.callback(ip, "netns", "del", space)
                subprocess.run(
                    [*("ip", "netns", "exec", space, "unshare", "--uts", "--mount", "true")],
                    check=True,
                    capture_output=True,
                    timeout=30,
                )
            except (OSError, subprocess.CalledProcessError):
                pytest.skip("needs the right to make namespaces")
            found.append(Host(name, space, f"10.213.7.{number}"))
        first, second = found
        cable = ("netns", first.space, "type", "veth", "peer", "name", "eth0")
        ip("-n", first.space, "link", "add", "eth0", *cable[2:], "netns", second.space)
        for host in found:
            ip("-n", host.space, "address", "add", f"{host.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host.space, "link", "set", device, "up")
        yield found


@pytest.fixture
def start():
    """A function that starts a program on a host; it is ended with the test."""
    with contextlib.ExitStack() as stack:

        def begin(host: Host, *words: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                host.command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait, 30)
            stack.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def cluster_of(start):
    """A function that starts a scheduler on the first host and a worker on each."""

    def begin(hosts: list[Host]) -> str:
        address = f"tcp://{hosts[0].address}:{PORT}"
        start(hosts[0], "dask", "scheduler", "--port", str(PORT))
        for host in hosts:
            how = ("--nthreads", "1", "--no-nanny", "--memory-limit", "0")
            start(host, "dask", "worker", address, *how)
        wait = (
            "from distributed import Client; "
            f"Client({address!r}, timeout=60).wait_for_workers({len(hosts)}, timeout=60)"
        )
        done = hosts[1].run("python", "-c", wait)
        assert done.returncode == 0, done.stderr
        return address

    return begin


def cells(side=600) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 99, (side, side)).astype(np.int16)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "shared").mkdir()
    return make_store(tmp_path / "shared" / "s.zarr", cells(), None, 64)


def shards(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "mst/c").rglob("*")) if path.is_file()]


def test_workers_of_two_hosts_compute_the_same(hosts, cluster_of, store, tmp_path):
    address = cluster_of(hosts)
    report = tmp_path / "report.json"
    how = ("--scheduler", address, "--memory-limit", "1GB", "--json", str(report))
    done = hosts[1].run("compute-mst", str(store), *how)
    assert done.returncode == 0, done.stderr
    twin = make_store(tmp_path / "twin.zarr", cells(), None, 64)
    terrain_gpu.minimum_spanning_tree(twin)
    assert shards(store) == shards(twin)
    cluster = json.dumps(json.loads(report.read_text()))
    assert all(host.address in cluster for host in hosts)


def test_a_host_that_does_not_see_the_store_is_named(hosts, cluster_of, store):
    hosts[1].hidden = store.parent
    address = cluster_of(hosts)
    done = hosts[0].run("compute-mst", str(store), "--scheduler", address)
    assert done.returncode == 1
    assert re.search(rf"worker tcp://{hosts[1].address}:\d+ on second does not see", done.stderr)


@pytest.mark.long
def test_a_host_that_is_cut_off(hosts, cluster_of, store, tmp_path):
    """Nothing tells the scheduler: the cable is pulled. The other host computes its blocks."""
    address = cluster_of(hosts)
    command = hosts[0].command("compute-mst", str(store), "--scheduler", address)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        end = time.monotonic() + 60
        manifest = store / ".incomplete/mst.jsonl"
        while time.monotonic() < end:
            if manifest.exists() and len(manifest.read_bytes().splitlines()) > 20:
                break
            time.sleep(0.01)
        ip("-n", hosts[1].space, "link", "set", "eth0", "down")
        started = time.monotonic()
        message = running.communicate(timeout=280)[1]
    assert time.monotonic() - started < 120
    assert running.returncode == 0, message
    twin = make_store(tmp_path / "twin.zarr", cells(), None, 64)
    terrain_gpu.minimum_spanning_tree(twin)
    assert shards(store) == shards(twin)
