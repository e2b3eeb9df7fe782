"""Where to compute: on the GPU or on the CPU. All that do either decide it here.

`find_gpu` resolves a backend once: to a GPU and the memory that may be taken of it, or to the CPU.
`Placement` runs steps there. Where the GPU has no room, before or in the middle of a step, and the
backend is "auto", the step runs again on the CPU, and so do all that follow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar, get_args

from ..arguments import Backend, Devices
from ..engine.plan import COMPILED_BASELINE, CUDA_BASELINE, format_size, limit_of
from ..errors import InputError, PlanError
from ..progress import Passes, Progress, silent
from . import device as devices
from .device import OutOfGpuMemory

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BACKENDS = get_args(Backend)


class NoGpu(InputError):
    """CUDA was asked for, and does not work here."""


class Gpu(NamedTuple):
    """A GPU that works, and what may be taken of it.

    Attributes
    ----------
    device
        Its number.
    memory
        Bytes of its memory that may be used.
    given
        Whether that is the caller's limit; else it is what was free.
    wanted
        Whether the CPU is no choice.
    others
        Further GPUs, with as much memory each, for what can use several.
    """

    device: int
    memory: int
    given: bool
    wanted: bool
    others: tuple[int, ...] = ()

    @classmethod
    def of(cls, device: Devices, memory_limit: int | str | None, *, wanted: bool) -> Gpu:
        """GPUs that are known to work; the one place that asks for their free memory."""
        asked = None if memory_limit is None else limit_of(memory_limit)
        first, *others = numbers = devices.numbers(device)
        memory = min(devices.usable_memory(number, asked) for number in numbers)
        return cls(first, memory, memory == asked, wanted, tuple(others))

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of all."""
        return (self.device, *self.others)


def choose(backend: str, device: Devices = 0) -> tuple[str, str | None]:
    """Resolve "auto".

    Returns
    -------
    backend, reason
        "cpu" or "cuda"; and why "auto" does not take the GPU, or None.

    Raises
    ------
    InputError
        when the backend is not known.
    NoGpu
        when "cuda" does not work here; the message says why, and what to do.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend {backend!r} is not known; use one of {', '.join(BACKENDS)}")
    if backend == "cpu":
        return "cpu", None
    reason = next(filter(None, map(devices.why_not, devices.numbers(device))), None)
    if reason is None:
        return "cuda", None
    if backend == "cuda":
        raise NoGpu(f"backend cuda: {reason}; or use --backend cpu")
    return "cpu", reason


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
    """The GPU to compute on; or None, and a line in the log says why.

    Parameters
    ----------
    memory_limit
        Of the process, bytes. "auto" does not load CUDA where that and one thread, which passes
        blocks on, would take more.
    fits
        Raises a `PlanError` where the process has no room for CUDA beside what it does. Asked
        before CUDA is loaded.
    doing
        As for `Placement`.

    Raises
    ------
    InputError
        as `choose`.
    PlanError
        what `fits` raises, when "cuda" is wanted.
    """
    if backend in ("auto", "cuda"):
        try:
            fits()
            limit = limit_of(memory_limit)
            if backend == "auto" and limit < COMPILED_BASELINE + CUDA_BASELINE + 64 * block_size**2:
                raise PlanError(f"a memory limit of {format_size(limit)} is too small for CUDA")
        except PlanError as error:
            if backend == "cuda":
                raise
            _say(error, doing)
            return None
    chosen, reason = choose(backend, device)
    if reason:
        _say(reason, doing)
    if chosen == "cpu":
        return None
    return Gpu.of(device, gpu_memory_limit, wanted=backend == "cuda")


class Placement:
    """Where the steps of a run are computed: on its GPU until that has no room, then on the CPU.

    Parameters
    ----------
    gpu
        None for the CPU.
    progress, passes
        See `Passes`; taken back where a step runs again.
    doing
        What is placed, for messages: "verifying ", or nothing for the run itself.

    Attributes
    ----------
    gpu
        The GPU; None once it is left.
    held
        Bytes of the process's memory that CUDA keeps although the CPU computes.
    progress
        To be told by the steps.
    """

    def __init__(
        self, gpu: Gpu | None, progress: Progress = silent, doing: str = "", *, passes: int = 1
    ) -> None:
        self.gpu, self.held, self._doing = gpu, 0, doing
        self.progress = Passes(progress, passes)

    def settings(self) -> dict[str, str]:
        """What a report says."""
        if self.gpu is None:
            return {"backend": "cpu"}
        found = {"backend": "cuda", "gpu": devices.name_of(self.gpu.device)}
        if self.gpu.others:
            found["devices"] = ",".join(map(str, self.gpu.devices))
        return found

    def run(self, step: Callable[[Gpu | None], Result]) -> Result:
        """``step(gpu)``; where that has no room, and need not be, ``step(None)`` on the CPU.

        A step on the CPU writes all results anew, whatever one on the GPU has left.

        Raises
        ------
        PlanError
            when there is no room on a GPU that is `wanted`, or on the CPU.
        """
        before = self.progress.seen
        if self.gpu is not None:
            try:
                return step(self.gpu)
            except PlanError as error:
                if self.gpu.wanted:
                    raise
                _say(error, self._doing)
            # Not in the handler: its error would hold all that the step had in memory.
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


def _say(reason: PlanError | str, doing: str) -> None:
    """Why the CPU computes: told at -v, but in any case where the GPU has begun."""
    text = str(reason).partition("; ")[0]  # the rest is about --backend cuda
    if isinstance(reason, OutOfGpuMemory):
        log.warning("%son the CPU from now on: %s", doing, text)
    else:
        log.info("%son the CPU: %s", doing, text)
