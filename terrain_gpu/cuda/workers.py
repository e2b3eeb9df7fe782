"""GPUs of the workers of a Dask cluster, one for each: `cluster_on_gpus`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from ..engine.connection import RESOURCE
from ..engine.machine import limit_of
from ..engine.operation import Operation
from ..errors import InputError, PlanError
from ..plurals import counted
from . import device as devices
from .backend import Gpu, NoGpu, require_room, say_cpu

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)

START = (
    "start each worker with a GPU of its own (CUDA_VISIBLE_DEVICES=0 dask worker ADDRESS "
    "--resources GPU=1 --nthreads 1), and with --workers as many as there are GPUs"
)


HOLDERS: WeakSet[Any] = WeakSet()
"""What holds memory of this process's GPU between tasks, and can `let_go` of it."""


class OwnGpu(NamedTuple):
    """The answer of a worker about the first GPU that it sees.

    Attributes
    ----------
    missing
        Why it cannot be used; None if it works.
    identity
        Equal in workers that use the same GPU.
    memory
        Bytes of it that may be used.
    """

    missing: str | None
    identity: str = ""
    name: str = ""
    memory: int = 0


def own_gpu(asked: int | None) -> OwnGpu:
    """Look at this process's GPU, and at most `asked` bytes of its memory."""
    if reason := devices.why_not():
        return OwnGpu(reason)
    for holder in list(HOLDERS):  # of an earlier run; if that goes on, it loads its region again
        holder.let_go()
    devices.give_back(0)
    name, memory = devices.name_of(), devices.usable_memory(0, asked)
    return OwnGpu(None, devices.identity_of(), name, memory)


def require_own_gpu() -> None:
    """Refuse a worker without a GPU, which may have joined late.

    Raises
    ------
    PlanError
    """
    if reason := devices.why_not():
        from distributed import get_worker

        raise PlanError(f"worker {get_worker().address}: {reason}; {START}; or use --backend cpu")


def cluster_on_gpus(
    client: Client | None,
    operation: Operation,
    backend: str,
    gpu_memory_limit: int | str | None,
    memory_limit: int | str | None,
    block_size: int,
) -> tuple[Any, Gpu | None]:
    """Return the cluster of a client, and its workers' GPUs or None after logging why.

    "auto" takes them if every worker says that it has one, by the resource GPU, so that CUDA is
    loaded only where it is wanted.

    Raises
    ------
    InputError
        when the backend is "cuda" and a worker has no GPU of its own.
    """
    from ..engine.cluster import Cluster

    cluster = Cluster(client, operation.shared)
    if backend == "cpu":
        return cluster, None
    asked = None if gpu_memory_limit is None else limit_of(gpu_memory_limit)
    try:
        if backend == "auto":
            require_room(cluster.limit(memory_limit), block_size)
            _require_announced(cluster)
        found = _gpus(cluster, asked)
    except InputError as error:
        if backend == "cuda":
            raise
        say_cpu(error)
        return cluster, None
    memory, names = min(one.memory for one in found), tuple(sorted(one.name for one in found))
    log.info("on the GPUs of %s: %s", counted(len(found), "worker"), ", ".join(sorted(set(names))))
    return cluster, Gpu(0, memory, memory == asked, backend == "cuda", workers=names)


def _require_announced(cluster: Any) -> None:
    """Refuse a worker that announces no GPU."""
    for address, resources in sorted(cluster.resources.items()):
        if resources.get(RESOURCE, 0) < 1:
            raise NoGpu(
                f"worker {address} announces no GPU (--resources GPU=1, or --backend cuda with "
                "--workers)"
            )


def _gpus(cluster: Any, asked: int | None) -> list[OwnGpu]:
    """Ask all workers; refuse one without a GPU of its own."""
    if cluster.threads > 1:
        raise NoGpu(
            f"a worker has {cluster.threads} threads, and one with a GPU needs a single one: it "
            f"reads and writes with threads of its own; {START}"
        )
    owners: dict[str, str] = {}
    found: dict[str, OwnGpu] = cluster.ask(own_gpu, asked)
    if not found:
        raise NoGpu("no worker answers; start them again")
    for address, own in sorted(found.items()):
        if own.missing is not None:
            raise NoGpu(f"worker {address}: {own.missing}; {START}; or use --backend cpu")
        if (other := owners.setdefault(own.identity, address)) != address:
            raise NoGpu(f"worker {address} has the same GPU as {other}; {START}")
    return list(found.values())
