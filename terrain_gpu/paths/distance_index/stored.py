"""The distance index of a store, with the costs that it records: `stored_index`."""

from __future__ import annotations

import json

from ...engine.proof import Limits
from ...errors import InputError, StoreError
from ...facts import Findings
from ...grid import TILE
from ...store import TileStore
from ...store.layer import KEY
from ...store.objects import is_there, read_small
from .files import FORMAT, NAME, Index
from .operation import DistanceIndex
from .proof import verify_entries

_REMEDY = "build it again with --overwrite"


def stored_index(store: TileStore) -> tuple[DistanceIndex, Index]:
    """Return the distance index of a store, and the operation that builds it.

    Raises
    ------
    StoreError
        when there is none, it is damaged or of another format, or its layers have changed since.
    """
    path = store.path / NAME
    if not is_there(path / "zarr.json"):
        raise StoreError(
            f"{store.path}: has no distance index; build one: terrain-gpu build-index {store.path}"
        )
    try:
        own = json.loads(read_small(path / "zarr.json"))["attributes"][KEY]
        recorded = own["settings"]
        operation = DistanceIndex(
            str(store.path),
            *(recorded[key] for key in ("layer", "friction", "barriers", "cost", "parameters")),
            *(recorded[key] for key in ("connectivity", "corner_cutting", "reverse")),
            max_slope=recorded.get("max_slope"),
            tile=recorded.get("tile", TILE),
            levels=recorded.get("levels", 0),
        )
        index = Index.open(store, operation.blocks)
        # Another format is refused by `open`.
        settings = operation.settings() if own["format"] == FORMAT else {}
    except (ValueError, LookupError, TypeError, AttributeError, InputError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{path}/zarr.json: damaged distance index ({type(error).__name__}: {error}); {_REMEDY}"
        ) from error
    assert index is not None
    if different := index.difference(settings):
        raise StoreError(f"{path}: {different}; {_REMEDY}")
    return operation, index


def verify_stored_index(store: TileStore, limits: Limits) -> Findings:
    """Check every entry of a store's distance index; see `verify_entries`.

    Raises
    ------
    VerificationError
        at the first wrong entry found.
    StoreError
        when the index is damaged, or its layers have changed since.
    """
    operation, index = stored_index(store)
    return {
        **verify_entries(operation.ground, operation.options, index, store.path / NAME, limits),
        "cost": operation.cost,
    }
