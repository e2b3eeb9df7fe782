"""Layers that a tool needs and the store lacks: computed first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

from .engine.operation import refuse_shared
from .errors import StoreError
from .facts import Settings
from .progress import Progress, silent
from .running import checked_files, compute
from .similar import did_you_mean
from .store import TileStore
from .store.objects import ObjectPath
from .store.run import check_layer_name, unfinished_inputs, unfinished_run
from .tool import MadeBy, OfStore, Tool, options_of
from .tools import tool_of

log = logging.getLogger(__name__)

Show = Callable[[str], AbstractContextManager[Progress]]
"""Shows the progress of a named step."""

_HOW = (
    *("memory_limit", "threads", "client", "compress"),
    *("backend", "device", "gpu_memory_limit"),
)
"""Arguments that the steps before take too."""


def provide(
    asked: Tool, store: TileStore, settings: Settings, show: Show | None = None
) -> dict[str, float]:
    """Compute the layers that a tool needs and the store lacks, and what these need.

    Only layers of usual names are computed, or of those given to their makers. What the tool would
    refuse is refused before.

    Parameters
    ----------
    settings
        How the tool is to be run, see `engine.run.run`.
    show
        Shows the progress of a step; None to log it.

    Returns
    -------
    dict
        Seconds of each layer that was computed.
    """
    if not (asked.needs or asked.provides):
        return {}
    checked_files(asked, overwrite=settings.get("overwrite", False))
    _refuse_missing(asked, store)
    if asked.refuses:
        asked.load(asked.refuses)(asked, store)
    options = options_of(type(asked)).items()
    written = [getattr(asked, name) for name, one in options if one.option.layer == "write"]
    results = [name for name in written if name is not None]
    refuse_shared(store.path, results, [one.layer for one in asked.inputs()])
    for name in results:
        mark = asked.replaces or asked.mark
        store.refuse_foreign(name, mark, f"results of {asked.command}", "results")
    refuse_existing(store, results, settings)

    def begin(step: str) -> AbstractContextManager[Progress]:
        refuse_other_run(store, results, settings, step)
        if show is not None:
            return show(step)
        log.info("%s: %s first, whose layer is missing", store.path, step)
        return nullcontext(silent)

    return _provided(asked, store, how_of(store, settings), begin, settings)


def _provided(
    asked: Tool,
    store: TileStore,
    how: Settings,
    show: Show,
    settings: Settings | None = None,
) -> dict[str, float]:
    """As `provide`, without checks; `settings` are None where another tool needs this one."""
    seconds = dict[str, float]()
    if asked.provides:
        seconds |= asked.load(asked.provides)(asked, store, how, show, settings)
    for one in asked.inputs():
        if one.made_by is None or not _is_made(asked, one.layer, one.made_by):
            continue
        if one.layer in store:
            refuse_stale(store, one.layer)
            continue
        options = {
            name: value.of(store) if isinstance(value, OfStore) else value
            for name, value in one.made_by.options.items()
        }
        maker = tool_of(one.made_by.command)(**options)
        seconds |= _provided(maker, store, how, show)
        with show(_step(one.made_by)) as progress:
            found = compute(maker, store, progress=progress, **how)
        seconds[one.layer] = found.report.seconds["total"]
    return seconds


def _step(maker: MadeBy) -> str:
    """The command that makes a layer, with its flags."""
    flags = [
        f" --{name.replace('_', '-')}" for name, value in maker.options.items() if value is True
    ]
    return "".join([maker.command, *flags])


def _is_made(asked: Tool, layer: str, maker: MadeBy | None) -> bool:
    """Whether a missing layer is computed: one of the usual name, or of that given its maker."""
    return (maker is not None and "into" in maker.options) or _is_usual(asked, layer)


def _is_usual(asked: Tool, layer: str) -> bool:
    """Whether nobody named a layer, or as it is named by default."""
    usual = []
    for name, one in options_of(type(asked)).items():
        value = getattr(asked, name)
        if isinstance(value, str) and value == layer and one.option.layer != "write":
            usual.append(one.default)
    return not usual or layer in usual


def _refuse_missing(asked: Tool, store: TileStore) -> None:
    """Refuse layers that a user named and the store lacks."""
    makers = {one.layer: one.made_by for one in asked.inputs()}
    options = options_of(type(asked)).items()
    named = [getattr(asked, name) for name, one in options if one.option.layer == "read"]
    for layer in filter(None, [*makers, *named]):
        if layer in store or _is_made(asked, layer, makers.get(layer)):
            continue
        if (maker := makers.get(layer)) is None:
            store.layer(layer)
        else:
            raise StoreError(
                f"{store.path}: no layer {layer!r}; it has: {', '.join(store.layers) or 'none'}; "
                f"terrain-gpu {maker.command} makes one{did_you_mean(layer, store.layers)}"
            )


def how_of(store: TileStore, settings: Settings) -> Settings:
    """The arguments of the steps before, from those of a function.

    Nobody named their layers: they always continue an unfinished run, if it has the same settings.
    In object storage only with `resume`: there, another machine may be writing it.
    """
    how = {name: settings[name] for name in _HOW if name in settings}
    resume = settings.get("resume", False) or not isinstance(store.path, ObjectPath)
    return {**how, "resume": resume, "overwrite": settings.get("overwrite", False)}


def refuse_existing(store: TileStore, names: Iterable[str | None], settings: Settings) -> None:
    """Refuse layers to write that exist or are unfinished, unless `settings` say what to do.

    Raises
    ------
    InputError
        when a name cannot be that of a layer.
    StoreError
    """
    named = [name for name in names if name is not None]
    for name in named:
        check_layer_name(store.path, name)
    if settings.get("overwrite") or settings.get("resume"):
        return
    for name in named:
        if unfinished_inputs(store.path, name) is not None:
            raise StoreError(unfinished_run(store.path, name))
        if name in store:
            raise StoreError(f"{store.path}: layer {name!r} exists; --overwrite replaces it")


def refuse_other_run(
    store: TileStore, names: Iterable[str | None], settings: Settings, step: str
) -> None:
    """Refuse, before a step that makes a layer, to resume a run that did not need the step.

    Raises
    ------
    StoreError
        when an unfinished run has all layers that it reads: it was given other options.
    """
    if settings.get("overwrite") or not settings.get("resume"):
        return
    for name in filter(None, names):
        inputs = unfinished_inputs(store.path, name)
        if inputs and all(one in store for one in inputs):
            raise StoreError(
                f"{store.path}: cannot resume: the unfinished run of layer {name!r} was started "
                f"with other options, which did not need {step} first; use the same, or "
                "--overwrite to start again"
            )


def refuse_stale(store: TileStore, name: str) -> None:
    """Refuse to reuse a layer that was computed from other cells than the store holds now.

    Also one that was computed from such a layer. Inputs that were removed count as unchanged.

    Raises
    ------
    StoreError
    """
    seen, left = set[str](), [name]
    while left:
        if (one := left.pop()) in seen:
            continue
        seen.add(one)
        layer = store.layer(one) if one == name else store.find(one)
        if layer is None:
            continue
        for changed in filter(store.__contains__, store.stale(layer)):
            raise StoreError(
                f"{layer.path}: computed from other cells than {store.path / changed} holds now; "
                "compute it again with --overwrite"
            )
        settings = layer.info.get("settings")
        of = settings.get("of") if isinstance(settings, dict) else None
        left += of if isinstance(of, dict) else ()
