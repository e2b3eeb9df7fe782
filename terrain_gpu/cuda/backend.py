"""The choice between GPU and CPU, in one place for all computations.

`find_gpu` resolves a backend once: to a GPU and the memory that may be used on it, or to the CPU.
`Placement` runs steps there. If the GPU runs out of memory, before or during a step, and the
backend is "auto", that step runs again on the CPU, and so do all later steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar, get_args

from ..arguments import Backend, Devices, is_demanded
from ..engine.machine import COMPILED_BASELINE, CUDA_BASELINE, limit_of
from ..engine.plan import format_size
from ..errors import ArgumentError, InputError, PlanError, plain
from ..progress import Passes, Progress, silent
from . import device as devices
from .device import OutOfGpuMemory

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BACKENDS = get_args(Backend)


class NoGpu(InputError):
    """CUDA was requested but does not work here."""


class Gpu(NamedTuple):
    """A working GPU and the memory that may be used on it.

    Attributes
    ----------
    device
        Its number.
    memory
        Bytes of its memory that may be used.
    given
        Whether `memory` is the caller's limit; else it depends on the memory that was free.
    wanted
        Whether the GPU is required: no fallback to the CPU.
    others
        Further GPUs with the same limit each, for computations that can use several.
    workers
        Of a cluster: the names of the GPUs of its workers, one each, whose `device` it is; see
        `workers`. Empty for GPUs of this process.
    """

    device: int
    memory: int
    given: bool
    wanted: bool
    others: tuple[int, ...] = ()
    workers: tuple[str, ...] = ()

    @classmethod
    def of(cls, device: Devices, memory_limit: int | str | None, *, wanted: bool) -> Gpu:
        """Return GPUs that are known to work. The only place that queries their free memory."""
        asked = None if memory_limit is None else limit_of(memory_limit)
        first, *others = numbers = devices.numbers(device)
        memory = min(devices.usable_memory(number, asked) for number in numbers)
        return cls(first, memory, memory == asked, wanted, tuple(others))

    @property
    def devices(self) -> tuple[int, ...]:
        """Numbers of all GPUs."""
        return (self.device, *self.others)

    @property
    def held(self) -> int:
        """Bytes of this process's memory that CUDA takes."""
        return 0 if self.workers else CUDA_BASELINE


def choose(backend: str, device: Devices = 0) -> tuple[str, str | None]:
    """Resolve "auto".

    Returns
    -------
    backend, reason
        "cpu" or "cuda"; and why "auto" does not use the GPU, or None.

    Raises
    ------
    InputError
        when the backend is not known.
    NoGpu
        when "cuda" does not work here; the message says why and gives a remedy.
    """
    if backend not in BACKENDS:
        raise ArgumentError(
            "{backend} {value} is not known; use one of {known}",
            value=repr(backend),
            known=", ".join(BACKENDS),
        )
    if backend == "cpu":
        return "cpu", None
    reason = next(filter(None, map(devices.why_not, devices.numbers(device))), None)
    if reason is None:
        return "cuda", None
    if backend == "cuda":
        raise NoGpu(f"backend cuda: {reason}; or use --backend cpu")
    return "cpu", reason


def gpu_for(method: str, backend: str, device: Devices, gpu_memory_limit: int | str | None) -> Gpu:
    """Return the GPU for a method that the CPU does not have.

    Raises
    ------
    InputError
        when there is none, or the backend is "cpu".
    """
    # The method is an argument of the call, so it goes before a default backend.
    wanted = "auto" if backend == "cuda" or not is_demanded("backend") else backend
    chosen, reason = choose(wanted, device)
    if chosen == "cuda":
        return Gpu.of(device, gpu_memory_limit, wanted=True)
    raise ArgumentError(
        "{method} {value} runs on a GPU only: "
        + (plain(reason) if reason else "{backend} cpu was given")
        + "; without one, use {method} relax",
        value=repr(method),
    )


def find_gpu(
    backend: str,
    device: Devices,
    gpu_memory_limit: int | str | None,
    memory_limit: int | str | None,
    block_size: int,
    *,
    fits: Callable[[], object] = lambda: None,
    doing: str = "",
) -> Gpu | None:
    """Return the GPU to compute on, or None after logging why there is none.

    Parameters
    ----------
    memory_limit
        Of the process, bytes. "auto" does not load CUDA if CUDA and one thread that transfers
        blocks would exceed it.
    fits
        Raises a `PlanError` if the process has no room for CUDA beside its other work. Called
        before CUDA is loaded.
    doing
        As for `Placement`.

    Raises
    ------
    InputError
        as `choose`.
    PlanError
        from `fits`, when the backend is "cuda".
    """
    if backend in ("auto", "cuda"):
        try:
            fits()
            if backend == "auto":
                require_room(limit_of(memory_limit), block_size)
        except PlanError as error:
            if backend == "cuda":
                raise
            say_cpu(error, doing)
            return None
    chosen, reason = choose(backend, device)
    if reason:
        say_cpu(reason, doing)
    if chosen == "cpu":
        return None
    return Gpu.of(device, gpu_memory_limit, wanted=backend == "cuda")


def require_room(limit: int, block_size: int) -> None:
    """Refuse a memory limit that CUDA and one thread that transfers blocks would exceed."""
    if limit < COMPILED_BASELINE + CUDA_BASELINE + 64 * block_size**2:
        raise PlanError(f"a memory limit of {format_size(limit)} is too small for CUDA")


class Placement:
    """Runs the steps of a computation on its GPU until that is out of memory, then on the CPU.

    Parameters
    ----------
    gpu
        None for the CPU.
    progress, passes
        See `Passes`; reset when a step runs again.
    doing
        What is computed, for messages: "verifying ", or "" for the run itself.

    Attributes
    ----------
    gpu
        The GPU; None after falling back to the CPU.
    held
        Bytes of host memory that CUDA keeps after the fallback.
    progress
        The progress that steps report to.
    """

    def __init__(
        self, gpu: Gpu | None, progress: Progress = silent, doing: str = "", *, passes: int = 1
    ) -> None:
        self.gpu, self.held, self._doing = gpu, 0, doing
        self.progress = Passes(progress, passes)

    def settings(self) -> dict[str, str]:
        """Return the entries for a report."""
        if self.gpu is None:
            return {"backend": "cpu"}
        names = self.gpu.workers or (devices.name_of(self.gpu.device),)
        found = {"backend": "cuda", "gpu": ", ".join(sorted(set(names)))}
        if self.gpu.others:
            found["devices"] = ",".join(map(str, self.gpu.devices))
        return found

    def run(self, step: Callable[[Gpu | None], Result]) -> Result:
        """Return ``step(gpu)``, or, if the GPU lacks memory and is not required, ``step(None)``.

        The step on the CPU must write all its results anew: one on the GPU may have written some.

        Raises
        ------
        PlanError
            when memory is short on a GPU that is `wanted`, or on the CPU.
        """
        before = self.progress.seen
        if self.gpu is not None:
            try:
                return step(self.gpu)
            except PlanError as error:
                if self.gpu.wanted:
                    raise
                say_cpu(error, self._doing)
            # Outside the handler: its traceback would keep the step's arrays alive.
            for device in self.gpu.devices:
                devices.give_back(device)
            self.gpu, self.held = None, CUDA_BASELINE
            self.progress.restart(before)
        try:
            return step(None)
        except PlanError as error:
            if not self.held:
                raise
            raise PlanError(
                f"{error}, beside {format_size(self.held)} for CUDA; or use --backend cpu"
            ) from None


def say_cpu(reason: InputError | str, doing: str = "") -> None:
    """Log why the CPU computes: an info line, or a warning if the GPU had already started."""
    text = str(reason).partition("; ")[0]  # the remedy applies to --backend cuda only
    if isinstance(reason, OutOfGpuMemory):
        log.warning("%son the CPU from now on: %s", doing, text)
    else:
        log.info("%son the CPU: %s", doing, text)
