"""Defaults of the parameters that say how functions run: `set_options`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

from . import arguments
from .arguments import Backend, Defaults
from .progress import Progress

_UNSET: Any = object()


class set_options:
    """Set how functions run, unless a call says otherwise: for good, or within ``with``.

    These parameters of the functions of this package change no result. What is left out here stays
    as it is, and None is again what each function has as its default. The options hold for all
    threads of the process.

    Parameters
    ----------
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB".
    threads
        Number of threads. It does not apply to calls with a `client`.
    backend
        "cuda", "cpu" or "auto". What runs on the CPU alone does so with "cuda", too, and methods
        that run on a GPU alone do so with "cpu"; as an argument of a call, both are errors there.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory.
    client
        A ``distributed.Client`` whose workers solve the blocks of stores; rasters and arrays are
        computed in this process.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Raises
    ------
    InputError
        for a value that functions do not accept.

    Examples
    --------
    >>> set_options(memory_limit="8GB", progress="auto")
    >>> with set_options(client=client):
    ...     found = basins("dem.zarr")
    """

    def __init__(
        self,
        *,
        memory_limit: int | str | None = _UNSET,
        threads: int | None = _UNSET,
        backend: Backend = _UNSET,
        device: int = _UNSET,
        gpu_memory_limit: int | str | None = _UNSET,
        client: Any = _UNSET,
        progress: Progress | Literal["auto"] = _UNSET,
    ) -> None:
        given: Defaults = {
            "memory_limit": memory_limit,
            "threads": threads,
            "backend": backend,
            "device": device,
            "gpu_memory_limit": gpu_memory_limit,
            "client": client,
            "progress": progress,
        }
        self._given = {name: one for name, one in given.items() if one is not _UNSET}
        self._before: Defaults | None = None
        self._set()

    def _set(self) -> None:
        before = arguments.DEFAULTS
        after = {name: one for name, one in {**before, **self._given}.items() if one is not None}
        for name, value in after.items():
            arguments.check(name, value)
        arguments.DEFAULTS, self._before = after, before

    def __enter__(self) -> None:
        if self._before is None:  # the same options once more
            self._set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            arguments.DEFAULTS, self._before = self._before, None
