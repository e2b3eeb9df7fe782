"""The connection to a Dask cluster: how it is opened, and queries that time out."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import resource
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ..arguments import MOST_DEVICES, Devices
from ..errors import ClusterError, InputError
from ..facts import Settings
from ..plurals import counted
from .forks import without_interrupts, without_pandas
from .machine import BASELINE, MB, available_threads, machine_memory
from .plan import format_size

log = logging.getLogger(__name__)

CONNECT = 30.0
"""Seconds to wait for the scheduler."""

GREET, SAY = 10.0, 2.0
"""Seconds to wait for the scheduler's first answer, and before a warning."""

POLL = 0.1
"""Seconds between checks of the connection while the driver waits for the scheduler."""

DEATHS = 10
"""Number of workers that may die during a task before the task is considered the cause."""

OVERHEAD = 60 * MB
"""Bytes that Dask takes in each process."""

RESOURCE = "GPU"
"""The Dask resource by which a worker announces that it has a GPU."""
VISIBLE = "CUDA_VISIBLE_DEVICES"

LOG = "distributed.admin.low-level-log-length"
"""Dask's settings for the messages of up to 1 MB that it keeps for each stream, and for events."""
EVENTS = 1000
"""Number of events that the scheduler of --workers keeps; they explain the death of workers."""

FILES, FILES_OF_WORKER = 64, 16
"""Open files and connections of this process without workers, and for each; measured: 18 and 9."""

RESUME = "--resume continues, also on one machine"


Query = Callable[[], Coroutine[Any, Any, Any]]
"""Begins one of Dask's coroutines."""


def address_of(client: Any) -> str:
    """Return the address of a client's scheduler for other processes."""
    address = getattr(getattr(client, "cluster", None), "scheduler_address", "")
    return address or getattr(getattr(client, "scheduler", None), "address", "")


def answer_of(client: Any, call: Query, seconds: float) -> Any:
    """Return the result of one of Dask's coroutines, which may never return by themselves.

    Raises
    ------
    TimeoutError
        If there is no answer within this number of seconds, not counting time that this process was
        suspended.
    ClusterError
        If the connection is lost. Dask may restore it, but not the tasks.
    """
    from distributed.comm import CommClosedError

    with dask_errors(client):
        if client.status != "running":
            raise CommClosedError
        future = asyncio.run_coroutine_threadsafe(call(), client.loop.asyncio_loop)
        try:
            for _ in range(math.ceil(seconds / POLL)):
                if wait([future], POLL).done:
                    break
                if client.status != "running":
                    raise CommClosedError
            else:
                raise TimeoutError
            if isinstance(error := future.exception(), OSError):
                raise CommClosedError from error
            return future.result()
        finally:
            future.cancel()


def query(client: Any, call: Query) -> Any:
    """Return the scheduler's answer to a call; raise ClusterError if there is none."""
    try:
        return answer_of(client, call, CONNECT)
    except TimeoutError:
        raise ClusterError(
            f"{address_of(client)}: the scheduler is gone or stopped: no answer for {CONNECT:g} s; "
            f"{RESUME}"
        ) from None


@contextmanager
def dask_errors(client: Any) -> Iterator[None]:
    """Turn Dask's exceptions into `ClusterError`."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError

    where = address_of(client)
    try:
        yield
    except KilledWorker as error:
        deaths = counted(error.allowed_failures + 1, "worker")
        raise ClusterError(
            f"{where}: Dask gave up on a task after {deaths} that ran it had died; check that the "
            "hosts have the memory of --memory-limit, and that terrain_gpu is installed there; "
            f"{RESUME}"
        ) from error
    except (CommClosedError, CancelledError, ClosedClientError) as error:
        raise ClusterError(f"{where}: the scheduler is gone; {RESUME}") from error


@contextmanager
def open_client(
    workers: int | None, scheduler: str | None, device: Devices | None = None
) -> Iterator[Any]:
    """Open a client for --workers or --scheduler; None without either.

    Parameters
    ----------
    device
        The GPUs of --workers, one for each; None to start workers without GPUs.

    Raises
    ------
    ClusterError
        If the scheduler does not answer, or Dask is not installed.
    InputError
        If options contradict each other, or the machine cannot start this number of workers.
    """
    if workers is None and scheduler is None:
        yield None
        return
    if workers is not None and scheduler is not None:
        raise InputError(
            "--workers starts processes on this machine and cannot be combined with --scheduler"
        )
    try:
        import dask
        from distributed import Client, LocalCluster
        from distributed.comm import inproc
    except ImportError:
        raise ClusterError("a cluster needs Dask: pip install 'terrain_gpu[dask]'") from None
    # Its log messages repeat our errors, or do not help the user of a command.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    settings = {
        "distributed.scheduler.allowed-failures": DEATHS,
        "distributed.worker.multiprocessing-method": "forkserver",
        # The profiler of the dashboard samples workers a hundred times a second, at their expense.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "5s",
        # With a log, sent tasks would stay in memory that the plan does not count.
        LOG: 0,
    }
    with dask.config.set(settings):
        if scheduler is not None:
            with _closing(_client_of(scheduler)) as client:
                yield client
            return
        assert workers is not None
        _check_number(workers)
        _allow_files(workers)
        environments = [{}] * workers if device is None else _one_gpu_each(workers, device)
        with ExitStack() as stack:
            with without_interrupts(), without_pandas():
                with dask.config.set({LOG: EVENTS}):
                    cluster = LocalCluster(
                        n_workers=0,
                        threads_per_worker=1,
                        processes=True,
                        # The plan observes the limit; Dask's own limit would kill such workers.
                        memory_limit=0,
                        dashboard_address="127.0.0.1:0",
                        # It would silence handlers that the logger shares. See `preload`.
                        silence_logs=False,
                        host="127.0.0.1",
                    )
                stack.enter_context(cluster)
                for k, environment in enumerate(environments):
                    # The server that workers are forked from may be older than a variable.
                    options = {**cluster.new_spec["options"], "env": {**os.environ, **environment}}
                    options |= {"resources": {RESOURCE: 1}} if environment else {}
                    cluster.worker_spec[k] = {**cluster.new_spec, "options": options}
                cluster.sync(cluster._correct_state)
                # Client and scheduler share a process, so they can exchange objects directly.
                inproc.global_manager._ip = "127.0.0.1"  # else it would query the network
                cluster.sync(cluster.scheduler.listen, "inproc://", allow_offload=False)
            address = cluster.scheduler.listeners[-1].contact_address
            client = Client(address, loop=cluster.loop, set_as_default=False)
            client.cluster = cluster
            yield stack.enter_context(_closing(client))


def _client_of(scheduler: str) -> Any:
    """Connect to a scheduler."""
    from distributed import Client

    connection = _connection_settings(scheduler)
    try:
        # Dask's client would wait forever for a scheduler that is stopped.
        asyncio.run(asyncio.wait_for(_greet(scheduler, connection), GREET))
    except (OSError, ValueError):
        raise ClusterError(
            f"{scheduler}: no scheduler answers within {GREET:g} s; start one (dask "
            "scheduler), or check host and port"
        ) from None
    except Exception as error:  # Dask treats any bytes as a message
        raise ClusterError(
            f"{scheduler}: the server at this address is not a Dask scheduler "
            f"({type(error).__name__}); check host and port"
        ) from error
    try:
        return Client(scheduler, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError):
        raise ClusterError(
            f"{scheduler}: the scheduler answers, but accepts no connection within "
            f"{CONNECT:g} s; try again when it is less busy"
        ) from None


def _check_number(workers: int) -> None:
    """Reject more workers than the machine has memory for; warn of more workers than processors."""
    least, memory, processors = BASELINE + OVERHEAD, machine_memory(), available_threads()
    if workers * least > memory:
        fewer = min(processors, memory // least)
        raise InputError(
            f"--workers {workers}: workers need {format_size(workers * least)} before they compute "
            f"anything, but only {format_size(memory)} is available; "
            + (f"start {fewer}" if fewer else "leave out --workers")
        )
    if workers > processors:
        log.warning("--workers %d: more than there are processors (%d)", workers, processors)


def _allow_files(workers: int) -> None:
    """Raise this process's limit of open files to what connections to its workers need.

    With too low a limit, Dask would wait forever.
    """
    needed = FILES + FILES_OF_WORKER * workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < needed:
        raise InputError(
            f"--workers {workers}: needs {needed} open files and connections, but the limit is "
            f"{hard}; raise it (ulimit -n {needed}), or start fewer workers"
        )
    if 0 <= soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _one_gpu_each(workers: int, device: Devices) -> list[dict[str, str]]:
    """Return the environment variable that lets each worker see its GPU and no other.

    Workers check later whether these GPUs exist; this process does not load CUDA.
    """
    visible = [name for name in os.environ.get(VISIBLE, "").split(",") if name]
    names = visible or list(map(str, range(MOST_DEVICES)))
    if device != "all":
        numbers = [device] if isinstance(device, int) else list(device)
        if max(numbers) >= len(names):
            raise InputError(
                f"--device {max(numbers)} does not exist: {VISIBLE}={','.join(visible)} shows "
                f"{len(visible)}; choose a number below that"
            )
        names = [names[k] for k in numbers]
    if len(names) < workers:
        raise InputError(
            f"--workers {workers}: each needs a GPU of its own, but --device or {VISIBLE} names "
            f"{len(names)}; start {len(names)}, or use --backend cpu"
        )
    return [{VISIBLE: name} for name in names[:workers]]


def _connection_settings(scheduler: str) -> Settings:
    """Return the settings for a connection to a scheduler; reject an invalid address."""
    from distributed.comm.registry import get_backend
    from distributed.security import Security

    if not (parts := re.fullmatch(r"(?:(\w+)://)?([^/:]+:[0-9]+)", scheduler)):
        raise InputError(
            f"--scheduler {scheduler}: not an address; write for example tcp://host:8786"
        )
    try:
        get_backend(parts[1] or "tcp").get_connector()
    except (ValueError, TypeError, ImportError):
        raise InputError(
            f"--scheduler {scheduler}: Dask does not know {parts[1]}://; write tcp://{parts[2]}, "
            "or the address that the scheduler prints when it starts"
        ) from None
    try:
        settings: Settings = Security().get_connection_args("client")
    except (OSError, ValueError) as error:
        raise InputError(f"--scheduler {scheduler}: Dask's TLS settings: {error}") from None
    if parts[1] in ("tls", "wss") and settings.get("ssl_context") is None:
        raise InputError(
            f"--scheduler {scheduler}: needs certificates; name their files in Dask's settings "
            "distributed.comm.tls.ca-file, tls.client.cert and tls.client.key, or the variables "
            "DASK_DISTRIBUTED__COMM__TLS__..."
        )
    return settings


async def _greet(scheduler: str, settings: Settings) -> None:
    """Wait for the first answer of a scheduler."""
    from distributed.core import rpc

    async with rpc(scheduler, timeout=GREET, connection_args=settings) as remote:
        identity = asyncio.ensure_future(remote.identity(n_workers=0))
        if not (await asyncio.wait([identity], timeout=SAY))[0]:
            log.warning("%s: no answer yet; waiting for %g s in all", scheduler, GREET)
        await identity


@contextmanager
def _closing(client: Any) -> Iterator[Any]:
    """Close a client at the end, even if the scheduler does not answer."""
    try:
        yield client
    finally:
        with suppress(TimeoutError):
            client.close(timeout=CONNECT)
