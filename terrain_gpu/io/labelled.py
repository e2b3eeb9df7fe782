"""Functions that accept DataArrays and rasters in place of a store: `takes_dataarrays`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from ..arguments import (
    LABELLED,
    HasDeviceMemory,
    bind,
    complete,
    from_device,
    is_dataarray,
    is_raster,
    raster,
    refused,
    variable_of,
    wrong,
)
from ..cells import is_nodata, layer_dtype
from ..errors import ArgumentError, TerrainError, logged_as
from ..facts import Settings
from ..store import TileStore, create_layer
from ..store.labels import Labels
from ..store.scratch import scratch_folder
from ..store.temporary import TemporaryFolder

if TYPE_CHECKING:
    import xarray

    StoreLike = str | os.PathLike[str] | TileStore | xarray.DataArray
    PlainRaster = (
        np.ndarray
        | Sequence[Sequence[float]]
        | HasDeviceMemory
        | str
        | os.PathLike[str]
        | TileStore
    )
    RasterLike = PlainRaster | xarray.DataArray
    LayerLike = str | np.ndarray | HasDeviceMemory | xarray.DataArray
else:  # xarray is imported only when used
    StoreLike = PlainRaster = RasterLike = LayerLike = Any

P = ParamSpec("P")
R = TypeVar("R")

HEIGHTS = "elevation"
"""Default name of the layer that a DataArray or raster is written to."""

RASTERS = "friction", "barriers"
"""Further arguments that may be arrays or rasters; they become layers with these names."""

FIT = "resample one to the cells of the other (.interp_like, or .rio.reproject_match)"
"""The remedy when their cells are different."""

OF_ARRAYS = "shortest_paths, cost_matrix and minimum_spanning_tree"
"""The functions whose first argument may be an array."""


_WORKING: weakref.WeakValueDictionary[str, WorkingStore] = weakref.WeakValueDictionary()


class WorkingStore:
    """A store in the scratch folder, removed when nothing refers to it any more.

    Copies refer to it as well, also those unpickled in this process.
    """

    def __init__(self) -> None:
        folder = TemporaryFolder(scratch_folder())
        self.path = os.path.join(folder.path, "store.zarr")
        _WORKING[self.path] = self
        weakref.finalize(self, folder.close)

    def __copy__(self) -> WorkingStore:
        return self

    def __deepcopy__(self, memo: object) -> WorkingStore:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _working, (self.path,)


def _working(path: str) -> WorkingStore | None:
    """The store at a path, if this process made it; other processes do not own it."""
    return _WORKING.get(path)


class ArrayKind(Protocol):
    """The kind of the array passed to a function; arrays in its result are of the same kind."""

    def array(self, cells: np.ndarray, nodata: float | int | None) -> Any:
        """Cells of the result as an array of this kind; those equal to `nodata` are absent."""


@dataclass(frozen=True)
class CupyDevice:
    """Arrays of CuPy on a GPU."""

    number: int

    @classmethod
    def of(cls, data: Any) -> CupyDevice | None:
        """The device of a CuPy array; None for anything else. Does not import CuPy."""
        cupy = sys.modules.get("cupy")
        is_cupy = isinstance(data, getattr(cupy, "ndarray", ()))
        return cls(data.device.id) if is_cupy else None

    def array(self, cells: np.ndarray, nodata: float | int | None) -> Any:
        import cupy

        with cupy.cuda.Device(self.number):
            return cupy.asarray(cells)


@dataclass(frozen=True)
class MaskedArrays:
    """NumPy's masked arrays; a result without a nodata value gets the mask of the input."""

    mask: np.ndarray

    def array(self, cells: np.ndarray, nodata: float | int | None) -> np.ma.MaskedArray:
        if nodata is None:
            return np.ma.array(cells, mask=self.mask)
        return np.ma.array(cells, mask=is_nodata(cells, nodata), fill_value=nodata)


def kind_of(data: Any) -> ArrayKind | None:
    """The kind of a masked or CuPy array; None for anything else."""
    if isinstance(data, np.ma.MaskedArray):
        return MaskedArrays(np.ma.getmaskarray(data))
    return CupyDevice.of(data)


def takes_dataarrays(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of a store or array to accept DataArrays, rasters and masked arrays.

    A DataArray, or the raster at a path, is written block by block to a working store, which exists
    as long as the result. Layers of the result have the coordinates of the DataArray;
    `Layer.to_xarray` is lazy. The result for a CuPy or masked array records the kind in `_kind`.
    """
    signature = inspect.signature(function)
    first = next(iter(signature.parameters))

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with complete(bind(signature, args, kwargs)) as bound:
            return run(bound)

    def run(bound: inspect.BoundArguments) -> R:
        data = bound.arguments.get(first)
        kind = kind_of(data)
        if isinstance(data, np.ma.MaskedArray) and first == "data":
            bound.arguments |= _filled(data, bound.arguments.get("nodata"))
        if isinstance(data, np.ndarray) and first == "store":
            examples = f"such as {LABELLED}; arrays are accepted by {OF_ARRAYS}"
            raise wrong(first, data, f"a store or its path, or a DataArray, {examples}")
        if variable := variable_of(data):
            raise wrong(first, data, f"one of its variables, such as {variable}")
        if not (is_dataarray(data) or is_raster(data)):
            result = function(*bound.args, **bound.kwargs)
            if kind:
                vars(result)["_kind"] = kind
            return result
        name = _called(data)
        _refuse(name, bound.arguments)
        if check := getattr(function, "check", None):
            check(bound.arguments)  # before the array is written
        store = WorkingStore()
        layer = bound.arguments.get("layer") or HEIGHTS
        bound.arguments |= _stored(store, first, data, bound.arguments)
        with _named(store, layer, name):
            result = function(*bound.args, **bound.kwargs)
        for layer in getattr(result, "layers", {}).values():
            layer.labels = _labels(store, data)
        vars(result)["_store"] = store  # links and tables may be read from it later
        return result

    return call


def _called(data: Any) -> str:
    """The name of a DataArray or raster in messages."""
    from .array_input import called  # brings GDAL

    return called(data) if is_dataarray(data) else os.fspath(data)


def _labels(store: WorkingStore, data: Any) -> Labels:
    from .array_input import called, mapping_name, two_dimensions

    if not is_dataarray(data):
        return Labels(store)
    template = two_dimensions(data, None, called(data))
    return Labels(store, template.coords, template.dims, mapping_name(template))


def opened_store(store: RasterLike) -> TileStore:
    """Open the store in a function with `takes_dataarrays`, which has made one if necessary."""
    return store if isinstance(store, TileStore) else TileStore.open(cast("str", store))


@contextlib.contextmanager
def _named(store: WorkingStore, layer: str, name: str, of: str = "") -> Iterator[None]:
    """Make messages name the caller's argument instead of the store that it was written to.

    With `of`, the working store is replaced by that name, and only the layer by `name`.
    """

    def named(text: str) -> str:
        text = text.replace(os.path.join(store.path, layer), name).replace(store.path, of or name)
        return text.replace("choose another store", FIT) if of else text

    try:
        with logged_as(named):
            yield
    except TerrainError as error:
        error.reword(named)
        raise


def _refuse(name: str, arguments: Settings) -> None:
    for option in ("resume", "client"):
        if arguments.get(option):
            raise refused(
                option, " needs a store; make one of {what} with convert_dataset", what=name
            )


def _stored(store: WorkingStore, first: str, data: Any, arguments: Settings) -> Settings:
    """Write a DataArray or raster and the further ones; return the arguments that name them."""
    from .array_input import two_dimensions
    from .convert import convert_dataset  # which needs this module

    limits = {name: arguments[name] for name in ("memory_limit", "threads") if name in arguments}
    nodata = arguments.pop("nodata", None)
    name, called = arguments.get("layer") or HEIGHTS, _called(data)
    with _named(store, name, called):
        convert_dataset(data, store.path, layer=name, nodata=nodata, **limits)
    named: Settings = {first: store.path}
    for one in RASTERS:
        array: Any = from_device(arguments.get(one))
        if isinstance(array, np.ndarray) and is_dataarray(data):
            plain = two_dimensions(data, None, called)
            if array.shape != plain.shape:
                must = " must be an array of shape {shape}, like the elevations"
                raise refused(one, must, shape=plain.shape)
            array = plain.copy(data=array).rename(one)
            array.attrs, array.encoding = {}, {}  # those of the elevations do not apply
        if is_dataarray(array):
            array = array.rename(one)
        if isinstance(array, np.ndarray):
            _write(store.path, one, raster(one, array), name, called)
            named[one] = one
        elif is_dataarray(array) or is_raster(array):
            with _named(store, one, _called(array), called):
                convert_dataset(array, store.path, layer=one, **limits)
            named[one] = one
    return named


def _write(store: str, name: str, array: np.ndarray, like: str, data_name: str) -> None:
    """Write an array as a layer on the grid of another layer."""
    heights = TileStore.open(store).layer(like)
    if array.shape != heights.grid.shape:
        must = " must be an array of shape {shape}, like the cells of {what}, not {own}"
        raise refused(name, must, shape=heights.grid.shape, what=data_name, own=array.shape)
    dtype = layer_dtype(np.dtype(np.uint8) if array.dtype == bool else array.dtype)
    nodata = math.nan if dtype.kind == "f" else None
    with create_layer(
        store, name, heights.grid, dtype, nodata=nodata, block_size=heights.block_size
    ) as writer:
        for block in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(*block)
            writer.write_block(*block, np.ascontiguousarray(array[r0:r1, c0:c1], dtype))
        writer.commit()


def _filled(data: np.ma.MaskedArray, nodata: float | int | None) -> Settings:
    """A masked array as a plain one, with a nodata value that no other cell has."""
    plain, mask = data.data, np.ma.getmaskarray(data)
    if plain.dtype.kind not in "iuf":
        raise wrong("data", data, "an array of numbers")
    if plain.dtype.kind == "f":
        # NaN means nodata whatever the nodata value is.
        return {"data": np.where(mask, plain.dtype.type(math.nan), plain)}
    if nodata is None:
        nodata = _unused(plain[~mask], plain.dtype)
    return {"data": np.where(mask, plain.dtype.type(nodata), plain), "nodata": nodata}


def _unused(values: np.ndarray, dtype: np.dtype) -> int:
    """An integer of this type that is not among the values."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if not len(values) or values.max() < high:
        return high
    if values.min() > low:
        return low
    distinct = np.unique(values)
    gaps = np.flatnonzero(distinct[:-1] + dtype.type(1) != distinct[1:])
    if not len(gaps):
        raise ArgumentError(
            "{data} contains every value of {dtype}, so none is left for masked cells; use a "
            "larger type (.astype)",
            dtype=dtype.name,
        )
    return int(distinct[gaps[0]]) + 1
