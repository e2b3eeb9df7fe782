"""Where hydrology is computed: `placed`."""

from __future__ import annotations

from typing import Any

from ...arguments import Backend
from ...cuda.backend import Placement, find_gpu
from ...progress import Progress
from ...running import ON_CLUSTER, refuse_cuda


def placed(
    block: int,
    backend: Backend,
    device: int,
    gpu_memory_limit: int | str | None,
    memory_limit: int | str | None,
    client: Any,
    progress: Progress,
    only_cpu: str | None = None,
) -> Placement:
    """Return the location of a run.

    Parameters
    ----------
    block
        Side of the blocks.
    only_cpu
        What runs on the CPU alone, with the verb, for messages; None if the GPU has all of it.

    Raises
    ------
    InputError
        when CUDA is required, and does not work or has no such computation.
    """
    if client is not None:
        only_cpu = ON_CLUSTER
    refuse_cuda(backend, only_cpu)
    if only_cpu is not None:
        return Placement(None, progress)
    return Placement(find_gpu(backend, device, gpu_memory_limit, memory_limit, block), progress)
