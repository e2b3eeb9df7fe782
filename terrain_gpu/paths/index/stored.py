"""Verify the distance index of a store, from what it records: `verify_stored_index`."""

from __future__ import annotations

import json
from typing import Any

from ...engine.proof import Limits
from ...errors import InputError, StoreError
from ...store import TileStore
from ...store.layer import KEY
from ...store.objects import read_small
from ..verify.entries import verify_entries
from .files import NAME, Index
from .problem import DistanceIndex


def verify_stored_index(store: TileStore, limits: Limits) -> dict[str, Any]:
    """Check every entry of a store's distance index; see `verify_entries`.

    Raises
    ------
    VerificationError
        at the first wrong entry found.
    StoreError
        when the index is damaged, or its layers hold other cells now.
    """
    path = store.path / NAME
    remedy = "build it again with --overwrite"
    try:
        recorded = json.loads(read_small(path / "zarr.json"))["attributes"][KEY]["settings"]
        operation = DistanceIndex(
            str(store.path),
            *(recorded[key] for key in ("layer", "friction", "barriers", "cost", "parameters")),
            *(recorded[key] for key in ("connectivity", "corner_cutting", "reverse")),
        )
        index, settings = Index.open(store, operation.blocks), operation.settings()
    except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        raise StoreError(
            f"{path}/zarr.json: damaged distance index ({type(error).__name__}: {error}); {remedy}"
        ) from error
    assert index is not None
    if different := index.difference(settings):
        raise StoreError(f"{path}: {different}; {remedy}")
    return {
        **verify_entries(operation.ground, operation.options, index, path, limits),
        "cost": operation.cost,
    }
