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

from ..errors import StoreError
from ..progress import Progress, silent
from ..report import Report
from ..store import TileStore
from ..store.objects import ObjectPath
from ..store.run import check_layer_name, unfinished_inputs, unfinished_run

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


def how_of(store: TileStore, settings: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the steps before, from those of a function.

    Nobody named their layers: they always continue an unfinished run, if it has the same settings.
    In object storage only with `resume`: there, another machine may be writing it.
    """
    how = {name: settings[name] for name in _HOW if name in settings}
    resume = settings.get("resume", False) or not isinstance(store.path, ObjectPath)
    return {**how, "resume": resume, "overwrite": settings["overwrite"]}


def refuse_existing(store: TileStore, names: list[str | None], settings: dict[str, Any]) -> None:
    """Refuse layers to write that exist or are unfinished, unless `settings` say what to do.

    Raises
    ------
    InputError
        when a name cannot be that of a layer.
    StoreError
    """
    for name in names:
        if name is not None:
            check_layer_name(store.path, name)
    if settings["overwrite"] or settings.get("resume"):
        return
    for name in names:
        if name is None:
            continue
        if unfinished_inputs(store.path, name) is not None:
            raise StoreError(unfinished_run(store.path, name))
        if name in store:
            raise StoreError(f"{store.path}: layer {name!r} exists; --overwrite replaces it")


def refuse_other_run(
    store: TileStore, names: list[str | None], settings: dict[str, Any], step: str
) -> None:
    """Refuse, before a step that makes a layer, to resume a run that did not need the step.

    Raises
    ------
    StoreError
        when an unfinished run has all layers that it reads: it was given other options.
    """
    if settings["overwrite"] or not settings.get("resume"):
        return
    for name in filter(None, names):
        inputs = unfinished_inputs(store.path, name)
        if inputs and all(one in store for one in inputs):
            raise StoreError(
                f"{store.path}: cannot resume: the unfinished run of layer {name!r} was started "
                f"with other options, which did not need {step} first; use the same, or "
                "--overwrite to start again"
            )
