"""Shared by all tests: deterministic Hypothesis, throw-away folders, no waiting for the disk."""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import rasterio
from effort import USUAL
from hypothesis import HealthCheck, Phase, settings

import terrain_gpu
from terrain_gpu.cuda import device

# Libraries and tests make millions of lasting objects, and compiling adds more: collect rarely.
gc.set_threshold(50_000, 20, 50)

# Even derandomized, Hypothesis draws numbers that it finds in the source of loaded modules.
# All are loaded, so that examples do not depend on which tests a process has run before.
for found in pkgutil.walk_packages(terrain_gpu.__path__, "terrain_gpu."):
    if not found.name.endswith("__main__"):
        with contextlib.suppress(ImportError):  # its extra is not installed
            importlib.import_module(found.name)

# Tests write and remove hundreds of thousands of small files, which takes many disks longer than
# the rest. They lie in memory where there is enough, unless TMPDIR names another place.
SHARED_MEMORY = Path("/dev/shm")
usable = "TMPDIR" not in os.environ and os.access(SHARED_MEMORY, os.W_OK)
if usable and shutil.disk_usage(SHARED_MEMORY).free > 8 * 2**30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(SHARED_MEMORY)

# What is hidden from programs that tests start; workers of the tests inherit it, and need all.
HIDDEN = str(Path(__file__).with_name("hidden"))
if HIDDEN in sys.path:
    sys.path.remove(HIDDEN)
else:
    paths = [HIDDEN, os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

# Tests that a shell starts in the background ignore Ctrl-C, as does all that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=USUAL,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Usual runs draw as few as a third of what they drew before there were long ones.
settings.register_profile("long", settings.get_profile("ci"), max_examples=4 * USUAL)
settings.register_profile(
    "search",
    settings.get_profile("ci"),
    derandomize=False,
    max_examples=2000,
    phases=set(Phase) - {Phase.explain},
)


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also run the tests marked long")
    share = "also run one of N shares of the tests marked long"
    parser.addoption("--long-share", metavar="K/N", help=share)


def pytest_configure(config):
    if config.getoption("--long"):
        settings.load_profile("long")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        long = {item for item in items if item.get_closest_marker("long")}
        # The contract as a whole is tested for one operation of each shape.
        long -= {item for item in long if item.cls and "representative" in vars(item.cls)}
        if share := config.getoption("--long-share"):
            number, count = map(int, share.split("/"))
            marks = {one: one.get_closest_marker("long").kwargs for one in long}
            shared = [one for one in long if marks[one].get("shared", True)]
            # In this order, each share has some of every kind, dear ones too.
            long -= {*sorted(shared, key=lambda one: one.nodeid)[number::count]}
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=list(long))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := device.why_not()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session):
    """Leave out of collections what has been made so far, which lasts."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Say why tests are skipped: -rs has a line for each, and there are hundreds for GPUs."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(one.longrepr[2]).removeprefix("Skipped: ") for one in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason[:150]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Unmarked tests use the CPU, even where a GPU works."""
    if item.get_closest_marker("gpu") or "cuda" in item.path.stem:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "why_not", lambda number=0: "this test is of the CPU")
        return (yield)


settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    """Tests that use it run twice: "auto" is the CPU, then the GPU."""
    return request.param


only_cpu = pytest.mark.parametrize("backend", ["cpu"], indirect=True)


@pytest.fixture(autouse=True)
def no_quiet_left():
    """Undo a test's -q, which would silence the logs that the next one checks."""
    yield
    logging.getLogger("terrain_gpu").setLevel(logging.NOTSET)


CLOSED_TWICE: list[str] = []
"""Where the package has closed descriptors that were not open, which could be those of others."""


def _close(number, close=os.close):
    try:
        close(number)
    except OSError:
        frame = sys._getframe(1)
        if any(path in frame.f_code.co_filename for path in terrain_gpu.__path__):
            CLOSED_TWICE.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        raise


os.close = _close


@pytest.fixture(autouse=True)
def no_file_closed_twice():
    """Also where the error is suppressed."""
    CLOSED_TWICE.clear()
    yield
    assert not CLOSED_TWICE


@pytest.fixture
def no_fsync(monkeypatch):
    """For tests that write many small files and simulate no power cut."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A context manager that yields a fresh folder each time, for use inside `@given`."""
    base = tmp_path_factory.mktemp("folders")

    @contextmanager
    def fresh():
        path = Path(tempfile.mkdtemp(dir=base))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    return fresh


# Of a module, not of the session: a cluster takes a quarter of a second to start, and at rest
# a twentieth of a processor until it ends.
@pytest.fixture(scope="module")
def cluster():
    """A client of a Dask cluster of two processes."""
    from cluster import processes

    with processes(2) as client:
        yield client


@pytest.fixture(scope="module")
def larger_cluster():
    """A client of another one, of three processes."""
    from cluster import processes

    with processes(3) as client:
        yield client


@pytest.fixture
def scheduler_to_kill(tmp_path, monkeypatch):
    """A scheduler by hand, with one worker."""
    from cluster import Daemon, start_scheduler
    from pauses import HANGS

    from terrain_gpu.engine import cluster, connection

    monkeypatch.setattr(cluster, "WAIT", HANGS)
    monkeypatch.setattr(connection, "CONNECT", HANGS)
    monkeypatch.setattr(connection, "GREET", HANGS)
    scheduler = start_scheduler(tmp_path)
    words = ("--nthreads", "1", "--memory-limit", "0", "--no-nanny")
    worker = Daemon("worker", scheduler.address, *words)
    yield scheduler
    for daemon in (worker, scheduler):
        daemon.kill()


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """A folder of kernels for stand-ins of GPUs: all processes of a run share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def s3_server():
    """The address of an S3 server in this process."""
    pytest.importorskip("obstore", reason="object storage needs obstore")
    pytest.importorskip("moto", reason="the bucket is moto's")
    from bucket import serve

    with serve() as address:
        yield address


@pytest.fixture(scope="session")
def gs_server():
    """The state and the address of a server of Google's storage in this process."""
    pytest.importorskip("obstore", reason="object storage needs obstore")
    from google_storage import serve

    with serve() as found:
        yield found


@pytest.fixture(scope="session")
def az_server(tmp_path_factory):
    """The address of Azurite."""
    pytest.importorskip("obstore", reason="object storage needs obstore")
    import azurite

    if azurite.program() is None:
        pytest.skip("Azurite is not installed (tests/azurite.py)")
    with azurite.serve(tmp_path_factory.mktemp("azurite")) as address:
        yield address


@pytest.fixture
def scheme(request):
    """Of the bucket: that of a test's parameter, else TERRAIN_GPU_SCHEME, else s3."""
    return getattr(request, "param", os.environ.get("TERRAIN_GPU_SCHEME", "s3"))


@pytest.fixture
def bucket(scheme, request, monkeypatch, tmp_path):
    """The URL of an empty bucket, and an environment in which it can be read and written."""
    from bucket import new_bucket

    server = request.getfixturevalue(f"{scheme}_server")
    return new_bucket(scheme, server, monkeypatch, tmp_path / "scratch")


@pytest.fixture
def proxy(scheme, request, bucket, monkeypatch):
    """The proxy before the bucket's server, see `bucket.Proxy`."""
    from bucket import ENDPOINT, Proxy

    from terrain_gpu.store import client, objects

    for module in (client, objects):
        monkeypatch.setattr(module, "FIRST_WAIT", 0.001)
        monkeypatch.setattr(module, "LONGEST_WAIT", 0.002)
    found = Proxy(os.environ[ENDPOINT[scheme]])
    monkeypatch.setenv(ENDPOINT[scheme], found.url)
    yield found
    found.close()


@pytest.fixture
def dem(tmp_path, monkeypatch):
    """A DEM as dem.tif in the current folder; its cells."""
    monkeypatch.chdir(tmp_path)
    data = np.random.default_rng(8).integers(0, 99, (100, 150)).astype(np.int16)
    transform = rasterio.transform.from_origin(5e5, 5e6, 30, 30)
    how = {"width": 150, "height": 100, "count": 1, "dtype": "int16", "crs": "EPSG:32633"}
    with rasterio.open("dem.tif", "w", driver="GTiff", transform=transform, **how) as file:
        file.write(data, 1)
    return data
