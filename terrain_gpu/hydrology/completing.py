"""Functions that first compute the layers they need and the store lacks: `completed`."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, Protocol, TypeVar

from ..prerequisites import how_of, refuse_existing, refuse_other_run
from ..progress import Progress, silent
from ..report import Report
from ..store import TileStore

log = logging.getLogger(__name__)

_HOW = (
    *("memory_limit", "threads", "client", "compress"),
    *("backend", "device", "gpu_memory_limit"),
)
"""Arguments that the steps before take too."""


ANY = {"weights", "layer"}
"""Layers of any command. The error for others, where they are opened, names their command."""


class _Reporting(Protocol):
    @property
    def report(self) -> Report: ...


F = TypeVar("F", bound=Callable[..., _Reporting])


def completed(*, reads: tuple[str, ...] = (), writes: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Let a function of a store first compute the layers of default names that are missing.

    The function of its name in `needs` computes them. The report has their seconds.

    Parameters
    ----------
    reads, writes
        Parameters that name layers. Before anything is computed, a layer that is missing and has
        another name than the default one is refused, and one that is there already.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(store: str | os.PathLike[str] | TileStore, *args: Any, **more: Any) -> _Reporting:
            opened = store if isinstance(store, TileStore) else TileStore.open(store)
            bound = signature.bind(opened, *args, **more)
            bound.apply_defaults()
            settings = bound.arguments

            def refuse_missing(names: Iterable[str]) -> None:
                for name in names:
                    if settings[name] not in (None, signature.parameters[name].default):
                        opened.layer(settings[name])

            refuse_missing(ANY.intersection(reads))  # before what is stale is told

            def show(step: str) -> AbstractContextManager[Progress]:
                refuse_missing(reads)
                made = [settings[name] for name in writes]
                refuse_existing(opened, made, settings)
                refuse_other_run(opened, made, settings, step)
                log.info("%s: %s first, whose layer is missing", opened.path, step)
                return nullcontext(silent)

            needs = import_module(".needs", __package__)  # which imports the functions
            before = needs.of(function.__name__)(opened, show, how_of(opened, settings), settings)
            found = function(*bound.args, **bound.kwargs)
            found.report.add_steps_before(before)
            return found

        return call  # type: ignore[return-value]

    return decorate
