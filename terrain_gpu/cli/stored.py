"""What `verify` checks of a store itself: tiles, coordinates and attributes; its levels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..facts import Findings
from ..plurals import counted
from . import options

if TYPE_CHECKING:
    from ..store import Layer, TileStore

Check = Callable[..., tuple[Findings, str]]
"""Given a store, limits and progress, it returns what to report and a line that says so."""


def of_data(store: TileStore) -> dict[str, Check]:
    """Checks of all that other programs read, by name."""
    checks: dict[str, Check] = {name: partial(_data, name=name) for name in store.layers}
    return checks | of_levels(store, _data) | _of_coordinates(store)


def accepted_now(store: TileStore, name: str) -> str:
    """Accept the present cells of a layer, or write coordinates again; return a line about it."""
    from ..store.accept import accept_changes
    from ..store.coordinates import ARRAYS, write_coordinates

    if name in ARRAYS:
        write_coordinates(store, name)
        return f"{name} written again"
    with options.progress_of(f"accept {name}") as progress:
        taken = accept_changes(store, name, progress)
    return f"layer {name} accepted as it is now, {taken.identity}"


def of_levels(store: TileStore, check: Callable[..., Any]) -> dict[str, Check]:
    """A check of each overview of each level, by name."""
    from ..store.levels import levels_of, made_from

    def on(level: TileStore, _: TileStore, name: str, **how: Any) -> tuple[Findings, str]:
        found, line = check(level, name, **how)
        return found, f"overviews 1:{level.path.name}, {line}"

    return {
        f"overviews/{factor}/{name}": partial(on, level, name=name)
        for factor, level in levels_of(store)
        for name in level.layers
        if made_from(level, name) is not None
    }


def _of_coordinates(store: TileStore) -> dict[str, Check]:
    """A check of the coordinates of each level, by name."""
    from ..store.coordinates import check_coordinates
    from ..store.levels import levels_of

    def check(level: TileStore, _: TileStore, **how: Any) -> tuple[Findings, str]:
        check_coordinates(level, how["progress"])
        where = "" if level is store else f"overviews 1:{level.path.name}, "
        return {}, f"{where}coordinates match the grid"

    levels = [("spatial_ref", store)]
    levels += [(f"overviews/{factor}/spatial_ref", level) for factor, level in levels_of(store)]
    return {name: partial(check, level) for name, level in levels}


def _data(store: TileStore, name: str, **how: Any) -> tuple[Findings, str]:
    from ..engine.proof import Limits, check_blocks, plan_threads
    from ..store.coordinates import check_attributes

    layer, limits = store.layer(name), Limits.of(**how)
    if layer.is_sealed:
        check_attributes(layer)
    tiles = 0

    def add(at: tuple[int, int], found: int) -> None:
        nonlocal tiles
        tiles += found

    one = layer.blocks.largest(tiled=True) * layer.dtype.itemsize
    plan = plan_threads(layer.blocks, layer.dtype.name, limits.checkers, one, limits)
    check_blocks(plan, layer.blocks, [], partial(_tiles, layer), add, limits)
    found = {"tiles": tiles, "digest": layer.info.get("digest")}
    if not layer.is_sealed:
        return (
            found,
            f"layer {name} has no checksums (written by another program), {counted(tiles, 'tile')} "
            "read",
        )
    return found, f"layer {name}: " + counted(
        tiles, "tile matches its checksum", "tiles match their checksums"
    )


def _tiles(layer: Layer, at: tuple[int, int], _: object) -> int:
    """Check the tiles of a block; return their number."""
    return layer.check_block(*at)
