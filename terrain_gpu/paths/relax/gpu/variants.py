"""How the kernels of shortest paths are compiled and launched: macros, types, sizes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ....cells import fits
from ....cuda.arrays import DeviceArray, DeviceKernel
from ....facts import Settings
from ....grid import ceil_div
from ...cost.continuous import Continuous
from ...cost.formula.presets import PRESETS
from ...cost.formula.program import Formula, in_c
from ...cost.knights import Knights, Options, halo_of, mask_dtype
from ...cost.models import MODELS, CostModel, Hops, Scaled, cuda_name, is_directed, model_of
from ...cost.terrain import Raster

SIDE = 32
"""Side of the tiles that warps relax."""
_MOST_WARPS = 24
"""Most warps per thread block; with more, each thread would have too few registers."""

_NAMES = {
    **{f"{k}int{8 * n}": f"{k or 'i'}{8 * n}" for k in ("u", "") for n in (1, 2, 4, 8)},
    "float32": "f32",
    "float64": "f64",
}
"""Names of dtypes in kernels."""

_DISTANCES = {"uint32": "U32", "uint64": "U64", "float64": "F64"}


def cell_dtype(raw: np.dtype, distance: np.dtype) -> np.dtype:
    """Dtype of heights or frictions on the GPU: the smallest available that is exact."""
    if distance.kind == "u":
        return np.dtype(np.uint16 if distance.itemsize == 4 else np.int64)
    small = raw.itemsize <= (4 if raw.kind == "f" else 2)
    return np.dtype(np.float32 if small else np.float64)


def variant(
    cost: Any,
    cell: np.dtype,
    friction: np.dtype | None,
    distance: np.dtype,
    options: Options,
    shared: int,
) -> Settings:
    """Macros of kernels/paths.cu.

    Parameters
    ----------
    cost
        A model of `cost.models`.
    cell, friction
        Dtypes on the GPU; no friction layer when None.
    options
        (diagonal, corner_cutting, reverse).
    shared
        Bytes of shared memory available to a thread block.
    """
    macros = step_macros(cost, cell, friction, distance, options)
    size = _tile_bytes(macros, cell, friction, distance, halo_of(options))
    warps = min(_MOST_WARPS, shared // size)
    return {**macros, "TILE_BYTES": size, "WARPS": warps}


def step_macros(
    cost: Any,
    cell: np.dtype,
    friction: np.dtype | None,
    distance: np.dtype,
    options: Options,
) -> Settings:
    """Macros that define the cost of a step; parameters as for `variant`."""
    model = model_of(cost)
    diagonal, corners, reverse = options
    more: Settings = {}
    if isinstance(cost, Formula):
        more |= {"FORMULA_STEPS": in_c(cost)} | ({"SIGNED": 1} if cost.signed else {})
    if isinstance(options, Continuous):
        more["CONTINUOUS"] = 1
    return more | {
        "MODEL": cuda_name(cost),
        "SCALED": int(isinstance(cost, Scaled)),
        "HAS_LENGTH": int(model.lengths and distance.kind == "f"),
        "CELL": _NAMES[cell.name],
        "FRICTION": _NAMES[(friction or cell).name],
        "HAS_FRICTION": int(friction is not None),
        "DISTANCE": _DISTANCES[distance.name],
        "DIAGONAL": int(diagonal),
        "KNIGHTS": int(isinstance(options, Knights)),
        "CORNERS": int(corners or not diagonal),
        "REVERSE": int(reverse and is_directed(cost)),
    }


def _tile_bytes(
    macros: Settings, cell: np.dtype, friction: np.dtype | None, distance: np.dtype, halo: int
) -> int:
    """Size of the struct Tile in kernels/paths.cu, in bytes."""
    ring = SIDE + 2 * halo
    cells = ring * (ring + 1)
    fields = [(distance, cells), (cell, cells)]
    if friction is not None:
        fields.append((friction, cells))
    if macros["HAS_LENGTH"]:
        fields.append((np.dtype(np.float64), 2 * halo * ring))
    if halo == 2 or not macros["CORNERS"]:
        fields.append((np.dtype(np.uint64), ring))
    layout = [(f"f{k}", np.ctypeslib.as_ctypes_type(t) * n) for k, (t, n) in enumerate(fields)]
    return ctypes.sizeof(type("Tile", (ctypes.Structure,), {"_fields_": layout}))


def variants() -> list[tuple[str, Settings]]:
    """Modules and macros that together cover every line of the kernels, for compile tests."""
    shared = 64 * 1024  # as on the oldest devices
    f32, f64 = np.dtype(np.float32), np.dtype(np.float64)
    every = [(True, True, False), (True, False, True), (False, True, False)]
    found = []
    for model in MODELS.values():
        if model.cuda is None:
            continue
        kernel = model.kernel()
        for options in every:
            found.append(("paths", variant(kernel, f32, None, f64, options, shared)))
        if model.friction != "refused":
            found.append(("paths", variant(Scaled(kernel), f64, f32, f64, every[0], shared)))
    for name in PRESETS:
        kernel = CostModel(name, True, {}, 0.5).kernel
        found.append(("paths", variant(kernel, f32, f32, f64, every[1], shared)))
    signed = CostModel("length - dz", False, {}).kernel
    found.append(("paths", variant(signed, f64, None, f64, every[1], shared)))
    friction = MODELS["friction"].kernel()
    for corners, of in ((True, None), (False, f32)):
        how = Continuous(True, corners, False)
        found.append(("paths", variant(friction, f32, of, f64, how, shared)))
    absdiff = MODELS["absdiff"].kernel()
    for cell, integer in ((np.uint16, np.uint32), (np.int64, np.uint64)):
        types = np.dtype(cell), None, np.dtype(integer)
        found += [("paths", variant(absdiff, *types, options, shared)) for options in every]
    # Walks share the macros, and do not depend on the size of tiles.
    found += [("walk", how) for _, how in found]
    found += _for_knights(shared)
    u32 = np.dtype(np.uint32)
    for halo, options in ((1, every[0]), (2, Knights(*every[0]))):
        mask = mask_dtype(halo)
        found.append(("paths", variant(Hops(), mask, None, u32, options, shared)))
        found.append(("fields", fields_macros("HOPS", mask, u32, halo)))
        found.append(("fields", fields_macros("MINIMAX", f64, f64, halo)))
    found += [
        ("fields", fields_macros("ABSDIFF", np.dtype(np.uint16), np.dtype(np.uint32))),
        ("fields", fields_macros("ABSDIFF", np.dtype(np.int64), np.dtype(np.uint64))),
    ]
    for name in _NAMES:
        raw = np.dtype(name)
        for distance in (np.dtype(d) for d in _DISTANCES):
            narrow = raw.kind in "iu" and raw.itemsize <= 2
            if distance == f64 or (distance == np.uint64 and raw.kind in "iu") or narrow:
                found.append(("read", reading_macros(raw, cell_dtype(raw, distance), distance)))
    found.append(("costs", {"MODEL": "LANGMUIR", "SCALED": 1, "CELL": "f64", "DISTANCE": "F64"}))
    return found


def _for_knights(shared: int) -> list[tuple[str, Settings]]:
    f32, f64 = np.dtype(np.float32), np.dtype(np.float64)
    ways = [Knights(True, True, False), Knights(True, False, True)]
    found = []
    for k, model in enumerate(model for model in MODELS.values() if model.cuda is not None):
        friction = f32 if model.friction == "own" else None
        found.append(("paths", variant(model.kernel(), f32, friction, f64, ways[k % 2], shared)))
    scaled = Scaled(MODELS["surface"].kernel())
    found.append(("paths", variant(scaled, f64, f32, f64, ways[0], shared)))
    formula = CostModel("friction * length - dz", True, {}).kernel
    found += [("walk", how) for _, how in found[:2]]
    return [*found, ("paths", variant(formula, f32, f32, f64, ways[1], shared))]


def fields_macros(model: str, cell: np.dtype, distance: np.dtype, halo: int = 1) -> Settings:
    """Macros of kernels/fields.cu."""
    model = model if model in ("MINIMAX", "HOPS") else "ABSDIFF"  # the others start alike
    names = {"CELL": _NAMES[cell.name], "DISTANCE": _DISTANCES[distance.name]}
    return {"MODEL": model, "SCALED": 0, "KNIGHTS": halo - 1, **names}


def reading_macros(raw: np.dtype, cell: np.dtype, distance: np.dtype) -> Settings:
    names = {"RAW": _NAMES[raw.name], "CELL": _NAMES[cell.name]}
    return {**names, "DISTANCE": _DISTANCES[distance.name], "SCALED": 0}


def absent(dtype: np.dtype) -> DeviceArray:
    """The distance value that marks absent cells."""
    return np.nan if dtype.kind == "f" else np.iinfo(dtype).max


def launch(kernel: DeviceKernel, cells: int, *arguments: object) -> None:
    """Run a kernel whose threads each process several cells, on the current stream."""
    kernel((int(min(ceil_div(cells, 256), 1 << 16)),), (256,), arguments)


def nodata_of(raster: Raster) -> tuple[Any, Any]:
    """Whether there is a nodata value, and the value, as kernels take them."""
    value = raster.nodata
    known = value is not None and fits(value, raster.dtype) and bool(np.isfinite(value))
    return np.int32(known), raster.dtype.type(value if known else 0)
