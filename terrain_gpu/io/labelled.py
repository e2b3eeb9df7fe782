"""Functions that take DataArrays and rasters where they take a store: `takes_dataarrays`."""

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
    from_device,
    is_dataarray,
    is_raster,
    raster,
    refused,
    variable_of,
    with_defaults,
    wrong,
)
from ..cells import is_nodata, layer_dtype
from ..errors import ArgumentError, TerrainError
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
"""The layer that a DataArray or a raster becomes, if none is named."""

RASTERS = "friction", "barriers"
"""Arguments that may be arrays or rasters beside the heights; they become layers of their names."""

FIT = "resample one to the cells of the other (.interp_like, or .rio.reproject_match)"
"""What to do where they have other cells."""

OF_ARRAYS = "shortest_paths, cost_matrix and minimum_spanning_tree"
"""The functions whose first argument may be an array."""


_WORKING: weakref.WeakValueDictionary[str, WorkingStore] = weakref.WeakValueDictionary()


class WorkingStore:
    """A store in the folder for scratch files, removed when nothing refers to it any more.

    Copies, and what is pickled and read again in this process, refer to it as well.
    """

    def __init__(self) -> None:
        folder = TemporaryFolder(scratch_folder())
        self.path = os.path.join(folder.path, "store.zarr")
        _WORKING[self.path] = self
        weakref.finalize(self, folder.close)

    def __copy__(self) -> WorkingStore:
        return self

    def __deepcopy__(self, memo: Any) -> WorkingStore:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _working, (self.path,)


def _working(path: str) -> WorkingStore | None:
    """The store at a path, if this process made it; another one does not own it."""
    return _WORKING.get(path)


class ArrayKind(Protocol):
    """The kind of array that a function was given, which arrays of its result are, too."""

    def array(self, cells: np.ndarray, nodata: float | int | None) -> Any:
        """Cells of the result as that kind; those of value `nodata` are absent."""


@dataclass(frozen=True)
class CupyDevice:
    """Arrays of CuPy on a GPU."""

    number: int

    @classmethod
    def of(cls, data: Any) -> CupyDevice | None:
        """Where an array of CuPy is; None for anything else. Does not import CuPy."""
        cupy = sys.modules.get("cupy")
        there = isinstance(data, getattr(cupy, "ndarray", ()))
        return cls(data.device.id) if there else None

    def array(self, cells: np.ndarray, nodata: float | int | None) -> Any:
        import cupy

        with cupy.cuda.Device(self.number):
            return cupy.asarray(cells)


@dataclass(frozen=True)
class MaskedArrays:
    """Masked arrays of NumPy; where cells of the result cannot tell, those of the input do."""

    mask: np.ndarray

    def array(self, cells: np.ndarray, nodata: float | int | None) -> np.ma.MaskedArray:
        if nodata is None:
            return np.ma.array(cells, mask=self.mask)
        return np.ma.array(cells, mask=is_nodata(cells, nodata), fill_value=nodata)


def kind_of(data: Any) -> ArrayKind | None:
    """The kind of an array that is not a plain one; None for anything else."""
    if isinstance(data, np.ma.MaskedArray):
        return MaskedArrays(np.ma.getmaskarray(data))
    return CupyDevice.of(data)


def takes_dataarrays(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function of a store or an array also take a DataArray, a raster, or a masked array.

    A DataArray, or the raster at a path, is written, block by block, into a working store, which
    lives as long as the result. Layers of the result have the coordinates of the DataArray:
    `Layer.to_xarray` is lazy. A result of an array of CuPy or a masked one knows its `_kind`.
    """
    signature = inspect.signature(function)
    first = next(iter(signature.parameters))

    @functools.wraps(function)
    def call(*args: P.args, **more: P.kwargs) -> R:
        given = with_defaults(signature.bind(*args, **more))
        data = given.arguments.get(first)
        kind = kind_of(data)
        if isinstance(data, np.ma.MaskedArray) and first == "data":
            given.arguments |= _filled(data, given.arguments.get("nodata"))
        if isinstance(data, np.ndarray) and first == "store":
            made = f"such as {LABELLED}; arrays are for {OF_ARRAYS}"
            raise wrong(first, data, f"a store or its path, or a DataArray, {made}")
        if variable := variable_of(data):
            raise wrong(first, data, f"one of its variables, such as {variable}")
        if not (is_dataarray(data) or is_raster(data)):
            result = function(*given.args, **given.kwargs)
            if kind:
                vars(result)["_kind"] = kind
            return result
        what = _called(data)
        _refuse(what, given.arguments)
        if check := getattr(function, "check", None):
            check(given.arguments)  # before the array is written
        store = WorkingStore()
        layer = given.arguments.get("layer") or HEIGHTS
        given.arguments |= _stored(store, first, data, given.arguments)
        with _named(store, layer, what):
            result = function(*given.args, **given.kwargs)
        for layer in getattr(result, "layers", {}).values():
            layer.labels = _labels(store, data)
        vars(result)["_store"] = store  # links and tables may be read from it later
        return result

    return call


def _called(data: Any) -> str:
    """What messages call a DataArray or a raster."""
    from .array_input import called  # brings GDAL

    return called(data) if is_dataarray(data) else os.fspath(data)


def _labels(store: WorkingStore, data: Any) -> Labels:
    from .array_input import called, mapping_name, two_dimensions

    if not is_dataarray(data):
        return Labels(store)
    template = two_dimensions(data, None, called(data))
    return Labels(store, template.coords, template.dims, mapping_name(template))


def opened_store(store: RasterLike) -> TileStore:
    """The store of a function that `takes_dataarrays`, which has turned these into one."""
    return store if isinstance(store, TileStore) else TileStore.open(cast("str", store))


@contextlib.contextmanager
def _named(store: WorkingStore, layer: str, what: str, of: str = "") -> Iterator[None]:
    """Let errors name what the caller gave, not the store that it was written to.

    With `of`, what the caller gave beside that.
    """

    def named(text: str) -> str:
        text = text.replace(os.path.join(store.path, layer), what).replace(store.path, of or what)
        return text.replace("choose another store", FIT) if of else text

    try:
        yield
    except TerrainError as error:
        error.reword(named)
        raise


def _refuse(what: str, given: dict[str, Any]) -> None:
    for name in ("resume", "client"):
        if given.get(name):
            raise refused(name, " needs a store; convert_dataset makes one of {what}", what=what)


def _stored(store: WorkingStore, first: str, data: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Write a DataArray or raster and those given beside it; the arguments that name them."""
    from .array_input import two_dimensions
    from .convert import convert_dataset  # which needs this module

    how = {name: given[name] for name in ("memory_limit", "threads") if name in given}
    nodata = given.pop("nodata", None)
    name, what = given.get("layer") or HEIGHTS, _called(data)
    with _named(store, name, what):
        convert_dataset(data, store.path, layer=name, nodata=nodata, **how)
    named: dict[str, Any] = {first: store.path}
    for one in RASTERS:
        array: Any = from_device(given.get(one))
        if isinstance(array, np.ndarray) and is_dataarray(data):
            plain = two_dimensions(data, None, what)
            if array.shape != plain.shape:
                must = " must be an array of shape {shape}, like the heights"
                raise refused(one, must, shape=plain.shape)
            array = plain.copy(data=array).rename(one)
            array.attrs, array.encoding = {}, {}  # those of the heights do not concern it
        if is_dataarray(array):
            array = array.rename(one)
        if isinstance(array, np.ndarray):
            _write(store.path, one, raster(one, array), name, what)
            named[one] = one
        elif is_dataarray(array) or is_raster(array):
            with _named(store, one, _called(array), what):
                convert_dataset(array, store.path, layer=one, **how)
            named[one] = one
    return named


def _write(store: str, one: str, array: np.ndarray, like: str, what: str) -> None:
    """Write an array as a layer of the grid of another one."""
    heights = TileStore.open(store).layer(like)
    if array.shape != heights.grid.shape:
        must = " must be an array of shape {shape}, like the cells of {what}, not {own}"
        raise refused(one, must, shape=heights.grid.shape, what=what, own=array.shape)
    dtype = layer_dtype(np.dtype(np.uint8) if array.dtype == bool else array.dtype)
    nodata = math.nan if dtype.kind == "f" else None
    with create_layer(
        store, one, heights.grid, dtype, nodata=nodata, block_size=heights.block_size
    ) as made:
        for at in made.blocks.ids():
            r0, r1, c0, c1 = made.block_window(*at)
            made.write_block(*at, np.ascontiguousarray(array[r0:r1, c0:c1], dtype))
        made.commit()


def _filled(data: np.ma.MaskedArray, nodata: Any) -> dict[str, Any]:
    """A masked array as a plain one, and its nodata value, which no other cell has."""
    plain, mask = data.data, np.ma.getmaskarray(data)
    if plain.dtype.kind not in "iuf":
        raise wrong("data", data, "an array of numbers")
    if plain.dtype.kind == "f":
        # NaN is absent beside any nodata value.
        return {"data": np.where(mask, plain.dtype.type(math.nan), plain)}
    if nodata is None:
        nodata = _unused(plain[~mask], plain.dtype)
    return {"data": np.where(mask, plain.dtype.type(nodata), plain), "nodata": nodata}


def _unused(values: np.ndarray, dtype: np.dtype) -> int:
    """An integer of a type that no value equals."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if not len(values) or values.max() < high:
        return high
    if values.min() > low:
        return low
    there = np.unique(values)
    gaps = np.flatnonzero(there[:-1] + dtype.type(1) != there[1:])
    if not len(gaps):
        raise ArgumentError(
            "{data} has every value of {dtype}, so none can mark masked cells; give a larger type "
            "(.astype)",
            dtype=dtype.name,
        )
    return int(there[gaps[0]]) + 1
