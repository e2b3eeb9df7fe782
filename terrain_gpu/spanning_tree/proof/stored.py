"""The proof of a stored spanning forest, by what its layer records."""

from __future__ import annotations

from typing import Any

from ...errors import StoreError
from ...facts import Findings
from ...store import Layer, TileStore
from ..weights import WEIGHTS
from .forest import verify_forest


def verify_stored_forest(store: TileStore, layer: Layer, **options: Any) -> Findings:
    """Check that a layer is the spanning forest that it says.

    Parameters
    ----------
    options
        Limits and GPUs, as for `verify_forest`.

    Raises
    ------
    StoreError
        when what it records is invalid, or the cells have changed.
    VerificationError
    """
    settings, result = (layer.info.get(key) for key in ("settings", "result"))
    file = f"{layer.path}/zarr.json"
    for key, value in (("settings", settings), ("result", result)):
        if not isinstance(value, dict):
            raise StoreError(f"{file}: recorded {key} {value!r} is invalid; compute it again")
    assert isinstance(settings, dict)
    assert isinstance(result, dict)
    source = settings.get("layer")
    for key, good in (
        ("layer", isinstance(source, str) and source != layer.name),
        ("weight", settings.get("weight") in tuple(WEIGHTS)),
        ("connectivity", settings.get("connectivity") in (4, 8)),
        ("of", isinstance(settings.get("of"), dict)),
    ):
        if not good:
            raise StoreError(
                f"{file}: recorded {key} {settings.get(key)!r} is invalid; compute it again"
            )
    for key in ("edges", "components", "total_weight"):
        # JSON has no infinity: an infinite total is recorded as a string.
        kinds = (int, float) if key != "total_weight" else (int, float, str)
        value = result.get(key)
        good = type(value) in kinds
        if type(value) is str:
            good = value in ("inf", "-inf", "Infinity", "-Infinity")
        if not good:
            raise StoreError(f"{file}: recorded {key} {value!r} is invalid; compute it again")
    cells = store.layer(str(source))
    if not store.holds(cells.name, settings["of"].get(cells.name)):
        raise StoreError(
            f"{layer.path}: computed from other cells than {cells.path} holds now; compute it "
            "again with --overwrite"
        )
    totals = verify_forest(
        cells,
        layer,
        weight=settings["weight"],
        connectivity=settings["connectivity"],
        expected=result,
        **options,
    )
    return {**totals, "total_weight": result["total_weight"]}
