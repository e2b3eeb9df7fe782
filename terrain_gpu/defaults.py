"""Default options of the functions: `set_options`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import arguments
from .arguments import Backend, Defaults
from .progress import Progress

if TYPE_CHECKING:
    from distributed import Client


_UNSET: Any = object()


class set_options:
    """Set default options of all functions, permanently or within a ``with`` block.

    These options do not change results. Arguments of a call take precedence. Options that are left
    out keep their value; None restores the default of each function. The options apply to all
    threads of the process.

    Parameters
    ----------
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB".
    threads
        Number of threads. It does not apply to calls with a `client`.
    backend
        "cuda", "cpu" or "auto". Functions that run only on the CPU and methods that run only on a
        GPU ignore this default; as an argument of a call, the other backend is an error.
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
        client: Client | None = _UNSET,
        progress: Progress | Literal["auto"] = _UNSET,
    ) -> None:
        options: Defaults = {
            "memory_limit": memory_limit,
            "threads": threads,
            "backend": backend,
            "device": device,
            "gpu_memory_limit": gpu_memory_limit,
            "client": client,
            "progress": progress,
        }
        self._given = {name: one for name, one in options.items() if one is not _UNSET}
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
