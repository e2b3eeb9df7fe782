"""The public names of terrain_gpu. Written by scripts/build_stub.py: do not edit."""
# ruff: noqa

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import xarray

from .arguments import *
from .engine.run import Result
from .io.labelled import LayerLike, PlainRaster, RasterLike, StoreLike
from .paths.cost.resolve import VerticalFactor
from .progress import Progress, silent
from .tool import PathLike, PlacesLike

from .defaults import set_options as set_options
from .errors import ClusterError as ClusterError
from .errors import InputError as InputError
from .errors import OutputError as OutputError
from .errors import PlanError as PlanError
from .errors import StoreError as StoreError
from .errors import TerrainError as TerrainError
from .errors import VerificationError as VerificationError
from .grid import GridSpec as GridSpec
from .hydrology.accumulate.operation import Accumulation as Accumulation
from .hydrology.network.operation import Network as Network
from .hydrology.streams.operation import Streams as Streams
from .io.convert import convert_dataset as convert_dataset
from .io.export import export_layer as export_layer
from .paths.cost.rules import Cost as Cost
from .paths.cost_distance.result import ShortestPaths as ShortestPaths
from .paths.cost_matrix.pipeline import CostMatrix as CostMatrix
from .paths.distance_index.query import IndexQuery as IndexQuery
from .paths.distance_index.query import query_index as query_index
from .paths.least_cost_network.pipeline import CostNetwork as CostNetwork
from .paths.ties.operation import tied_steps as tied_steps
from .raster.contours.lines import Contours as Contours
from .raster.label_components.operation import Components as Components
from .raster.overviews import build_overviews as build_overviews
from .raster.polygons.operation import Polygons as Polygons
from .report import Report as Report
from .spanning_tree.operation import SpanningTree as SpanningTree
from .store import Layer as Layer
from .store import LayerWriter as LayerWriter
from .store import TileStore as TileStore
from .store import create_layer as create_layer
from .store.manage import list_layers as list_layers
from .store.manage import remove_layers as remove_layers
from .store.manage import rename_layer as rename_layer
from .store.opening import open as open

__version__: str
__all__ = [
    "Accumulation",
    "ClusterError",
    "Components",
    "Contours",
    "Cost",
    "CostMatrix",
    "CostNetwork",
    "GridSpec",
    "IndexQuery",
    "InputError",
    "Layer",
    "LayerWriter",
    "Network",
    "OutputError",
    "PlanError",
    "Polygons",
    "Report",
    "ShortestPaths",
    "SpanningTree",
    "StoreError",
    "Streams",
    "TerrainError",
    "TileStore",
    "VerificationError",
    "accumulate",
    "basins",
    "breach",
    "build_index",
    "build_overviews",
    "burn",
    "calc",
    "contours",
    "convert_dataset",
    "corridor",
    "cost_matrix",
    "create_layer",
    "depressions",
    "export_layer",
    "extract_network",
    "fill",
    "fill_spill_merge",
    "flow_accumulation",
    "flow_direction",
    "hand",
    "label_components",
    "least_cost_network",
    "list_layers",
    "minimum_spanning_tree",
    "open",
    "polygons",
    "query_index",
    "rasterize",
    "remove_layers",
    "rename_layer",
    "set_options",
    "shortest_paths",
    "slope",
    "streams",
    "terrain_indices",
    "tied_steps",
    "watershed",
]

def accumulate(
    store: StoreLike,
    outlets: PlacesLike | str | None = None,
    *,
    add_outlets: PlacesLike | None = None,
    areas: bool = False,
    into: str = "accumulation",
    directions: str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Accumulation:
    """Count the cells, or sum the areas, that drain through each cell along the spanning forest.

    The forest (compute-mst; of weight flow, if it has to be computed) is rooted at the outlets. By
    default, these are the cells on the raster's edge or next to nodata that have no lower neighbour
    or over which a depression spills; with weight max, whose edges have no slopes, all cells there.
    Every cell drains along the forest to one outlet. A tree with several outlets is cut between any
    two of them at the heaviest edge of the path that joins them, which is the divide, as if water
    rose from all outlets at once. Trees without an outlet drain nowhere.

    Each cell of the result is the sum over all cells upstream, itself included; 0 if no outlet is
    reached, and at nodata cells.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    outlets
        Cells, in the forms that `shortest_paths` accepts as sources, or a name, as for
        `flow_direction`. None: "low_border", or "border" for a spanning forest of weight "max",
        whose edges have no slopes.
    add_outlets
        Cells that are outlets in addition to those of a name, in the same forms.
    areas
        Sum areas instead of cells, in square map units (square metres in a geographic CRS).
    into
        Layer to write the sums to.
    directions
        Also write this layer: D8 codes of the downstream steps, uint8 (E 1, SE 2, ... NE 128; 0
        outlet, 255 no outlet reached). The sums are verified along these.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Accumulation
        Its `layer` has the sums: cells as uint32 (int64 for rasters of 2^32 cells or more), areas
        as float64. Its `directions` are None unless they are written.

    Raises
    ------
    InputError
        when an outlet is nodata, a result would replace one of its own inputs, or `verify` is
        set without `directions`.
    StoreError
        when the weight of the spanning forest is "absdiff", or has no slopes for these outlets; or
        it is out of date.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    The result is the minimum spanning forest relative to the outlets: J. Cousty, G. Bertrand, L.
    Najman, M. Couprie (2009), Watershed cuts: minimum spanning forests and the drop of water
    principle; IEEE TPAMI 31(8). Sums are sums of integers, so they do not depend on the blocks; see
    `area_units`.

    Examples
    --------
    >>> result = accumulate("dem.zarr", areas=True)
    >>> areas = result.layer.read_window(0, 100, 0, 100)
    """


def basins(
    store: StoreLike,
    *,
    directions: str = "flow_direction",
    into: str = "basins",
    table: PathLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Label drainage basins: every cell with the number of the outlet that it drains to.

    Outlets are the cells where flow paths end. They are numbered from 1, in row-major order. Cells
    that do not drain are 0, the nodata value. Flow directions that are computed first lead to the
    raster's edge and to the coasts of voids that reach it; for other outlets, compute flow
    directions to these first.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    directions
        Layer of flow directions.
    into
        Layer to write the labels to.
    table
        Also write a table of the basins: .csv, .parquet, .geojson, .gpkg or .fgb. Columns: basin,
        row, col, x and y of the outlet, cells, area (in square metres in a geographic CRS, else in
        square map units), and edge_cells, the cells on the edge of the data that drain inwards: if
        there are any, the basin may extend beyond the data.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into`: uint32, int64 for rasters of 2**32 or more cells. `found` has
        the number of "basins".

    Raises
    ------
    StoreError
        when the store is damaged, lacks a layer or already has one of the results, or the flow
        directions form a loop.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Examples
    --------
    >>> labels = basins("dem.zarr").layers["basins"].read_window(0, 100, 0, 100)
    """


def breach(
    store: StoreLike,
    *,
    max_distance: int = 50,
    max_depth: float | None = None,
    inner_voids: bool = False,
    layer: str = "elevation",
    into: str = "breached",
    lines: PathLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Breach depressions: cut a channel from each pit along the least-cost path to a lower cell.

    A pit is a cell, or a flat, without a lower neighbour and without an outlet. Outlets are the
    cells at the raster's edge and next to voids that reach it. The path leads from the pit (the
    first cell of a flat) to a lower cell or an outlet, and all higher cells on it are lowered to
    the elevation of the pit. It is the one with the least sum of cuts (Lindsay 2016); of several,
    one with the fewest steps. Pits that no channel within the limits reaches remain: fill them
    afterwards.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    max_distance
        Largest distance of a path from its pit, in rows and columns.
    max_depth
        The deepest cut, in the unit of the elevations. Other pits remain.  [default: no limit]
    inner_voids
        Cells next to inner voids are also outlets.
    layer
        Layer of elevations.
    into
        Layer to write the breached elevations to.
    lines
        Also write the paths as lines: .gpkg (layer breach_lines), .geojson, .parquet or .fgb, with
        pit, end, cost, largest cut and elevations.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into`: of the type of the elevations, with their nodata value.
        `found` has the numbers of "pits", of those "breached" and of cells "lowered", the
        "deepest_cut", and the "volume" of all cuts: elevations times areas, which are in square
        metres in a geographic CRS.

    Raises
    ------
    InputError
        when a name, the distance or the depth cannot be used, or lines cannot be written there.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    All paths are found on the elevations as they are; where they meet, the lowest cut counts.

    A line leads from a pit to the end of its path, in the order of pits, row by row. Its attributes
    are pit and end, ids (row * columns + column) of these cells; the number of its cells; its
    length, in map units, or in metres for a geographic CRS; cost, the sum of all cuts below the
    elevations as they were, and the largest cut; height and end_height, those of the pit and,
    before it is cut, of the end. With a client, this process draws the lines.

    J. B. Lindsay (2016), Efficient hybrid breaching-filling sink removal methods for flow path
    enforcement in digital elevation models; Hydrological Processes 30. J. B. Lindsay and K. Dhun
    (2015), Modelling surface drainage patterns in altered landscapes using LiDAR; International
    Journal of Geographical Information Science 29.

    Examples
    --------
    >>> breach("dem.zarr", max_depth=5)
    >>> minimum_spanning_tree("dem.zarr", weight="flow", layer="breached")
    """


def build_index(
    data: PathLike,
    *,
    cost: Cost | CostName | str | None = None,
    friction: str | None = None,
    barriers: str | None = None,
    parameters: Mapping[str, float] | None = None,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    corner_cutting: bool = True,
    connectivity: Connectivity = 8,
    layer: str = "elevation",
    tile: IndexTile = 64,
    levels: int = 0,
    method: IndexMethod = "relax",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Report:
    """Build the distance index of a store.

    It holds the distances between the rim cells of every tile, for one cost: about 1 byte per cell
    for integer costs, 6 to 20 for others. Least costs between pairs of places and distances from
    sources are then found from it, by `query-index` and by the method "index" of `compute-sssp`. A
    build that was interrupted continues where it stopped. An existing index for the same layers and
    costs is kept.

    Parameters
    ----------
    data
        A store, or its path.
    cost
        "absdiff", "friction", "surface", "tobler", "langmuir" or "minimax"; see
        `paths.cost.models`. Or one of `paths.cost.formula.presets`, such as "herzog". Or a formula,
        such as ``"length * exp(abs(slope))"``; see `paths.cost.formula.tree` for its syntax. Or a
        `Cost`, which also has other rules of steps. A step whose cost is NaN or infinite does not
        exist. A formula may name one layer of the store, instead of `friction`. When None:
        "friction" if frictions are given, otherwise "absdiff".
    friction
        Layer of the store of frictions >= 0. The model "friction" needs it; if the raster itself
        holds frictions, name its layer here as well.
    barriers
        Layer; cells with a value other than 0 are absent.
    parameters
        Parameters of the model, such as ``{"lam": 0.5}`` for langmuir; for a formula, values of
        names in it.
    reverse
        Compute the cost of going to the source, for costs that depend on direction.
    max_slope
        Slope dz / length, up or down, above which a step does not exist; distances are then
        float64.
    vertical_factor
        Factors of the cost of steps by their angle of slope, negative downhill: a text file of
        angles in degrees and factors, or a sequence of such pairs. Between them, factors are
        interpolated; a step at an angle outside the table does not exist. For formulas and all
        models except langmuir and minimax.
    corner_cutting
        False forbids diagonal steps between two absent cells.
    connectivity
        Neighbours per cell: 8 includes the diagonal ones.
    layer
        Layer of the store.
    tile
        Side of the tiles, in cells. Larger ones take longer to build, less to search.
    levels
        Levels above the tiles: squares of 2, 4, 8, ... tiles on a side, none larger than a block of
        the store. With integer costs and minimax, queries between distant places then take a half
        to a sixth of the time; the index is larger.
    method
        How distances inside tiles are computed; the files are the same. For comparison, on a GPU:
        relax-array (sweeps with an updating array) or tournament (Dijkstra, a tournament tree for
        each tile).
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory. The results have
        the same bits.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Report
        ``result`` holds "bytes", "bytes_per_cell", "blocks_resumed" and "built".

    Raises
    ------
    InputError
        when the cost model is unknown, heights are 64-bit integers, tiles or the squares of a level
        are larger than the blocks of the store, or CUDA is requested and does not work.
    PlanError
        when a limit is too small.
    StoreError
        when there is an index for other costs, or with other tiles or levels, or another run is
        building one.
    OutputError
        when the disk is full.
    VerificationError
        when an entry is wrong; a new index is then discarded.
    """


def burn(
    store: StoreLike,
    streams: PlacesLike,
    depth: float,
    *,
    layer: str = "elevation",
    into: str = "burned",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Burn streams into a DEM: lower every cell that a stream touches by a depth.

    Other cells keep their elevations. Water then flows along known streams where the DEM hides
    them, under bridges or in plains. The result is a layer of elevations like any other.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    streams
        Cells, in the forms that `shortest_paths` accepts as sources; ``io.places.from_vector`` with
        `all_touched` finds those of lines and polygons. Nodata cells stay nodata.
    depth
        By how much cells are lowered, in the unit of the elevations: a whole number where these are
        integers. Floats are rounded to their type.
    layer
        Layer of elevations.
    into
        Layer to write the burned elevations to.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into`: of the type of the elevations, with their nodata value.
        `found` has the number of cells "burned".

    Raises
    ------
    InputError
        when a name, the cells or the depth cannot be used, or the type of the elevations does not
        hold a lowered one, which is named by row and column.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    W. Saunders (1999), Preparation of DEMs for use in environmental modeling analysis; Esri User
    Conference. Elevations next to streams stay as they are, unlike in AGREE.

    Examples
    --------
    >>> from terrain_gpu.io.places import from_vector
    >>> grid = TileStore.open("dem.zarr").grid
    >>> burn("dem.zarr", from_vector(grid, "streams.gpkg", all_touched=True), depth=10)
    >>> minimum_spanning_tree("dem.zarr", weight="flow", layer="burned")
    """


def calc(
    store: StoreLike,
    expression: str,
    *,
    into: str = "calc",
    dtype: str | None = None,
    reclass: PathLike | None = None,
    default: float | str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Compute a layer from others, cell by cell.

    An expression has layers, numbers, + - * /, comparisons, and, or, not, abs(a), sqrt(a), min(a,
    b), max(a, b), where(condition, a, b), nodata(a) and coalesce(a, b), the first that is not
    nodata. Names with a minus sign are in double quotes. The result is nodata where an input is.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    expression
        Arithmetic over layers, such as "distance + 0.5 * other".
    into
        Layer to write.
    dtype
        Cell type of the layer. By default uint8 for conditions, int64 for integers, also where
        those of a table and `default` all are, else float64. Values are not rounded to integers,
        but to float32. Nodata is NaN, the largest unsigned or the smallest signed integer.
    reclass
        Look the results up in a table: lines of class and value. An empty value is none.
    default
        Value for classes that are not in the table: a number, or nodata. Without it, they are an
        error that lists them.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its layer is named `into`.

    Raises
    ------
    InputError
        when the expression or the table cannot be used, a value does not fit the type, or the table
        lacks classes, which are listed.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    Integers are computed in 64 bits and never wrap around, real numbers in float64 by operations
    that IEEE 754 defines, so that the bits are the same on all machines. Unknown truth values are
    treated as in SQL.

    Examples
    --------
    >>> calc("dem.zarr", "where(slope > 30, 9, 1) + 0.1 * distance", into="friction")
    >>> calc("dem.zarr", "landcover", reclass="friction.csv", into="friction")
    """


def contours(
    store: StoreLike,
    path: PathLike | None = None,
    *,
    layer: str = "elevation",
    breaks: Sequence[float] | None = None,
    interval: float | None = None,
    base: float = 0.0,
    polygons: bool = False,
    cumulative: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Contours:
    """Write contour lines of a layer, or the areas between breaks.

    Lines are interpolated linearly between the centres of four cells (marching squares); in a
    saddle, the mean of the four decides. They have the higher ground on their left, end at the edge
    of the raster and at nodata, and have the attribute level.

    Areas (`polygons`) follow the edges of cells exactly, and are valid: one MultiPolygon for each
    band lower < value <= upper, with the attributes lower, upper, cells (their number) and area (in
    square metres on the ellipsoid in a geographic CRS, else in square map units). With `breaks`,
    the lowest band has no lower bound. Areas of a layer of distances are isochrones.

    The file does not depend on block size, memory limit or threads.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    path
        A .gpkg (layer "contours"), .parquet or .fgb file, in the CRS of the raster; or a .geojson
        or .json file, in longitude and latitude; see `write_paths`. None for a temporary file,
        which `to_geodataframe` of the result reads.
    layer
        Any layer, such as "distance". Values are compared as 64-bit floats.
    breaks
        Levels in units of the layer, ascending. `polygons` leave out values above the last one,
        which may be infinite (inf).
    interval
        Instead of `breaks`: levels at `base` + k * `interval`, for all whole k.
    base
        One of the levels of `interval`.
    polygons
        Write the areas lower < value <= upper instead of lines, along the edges of cells.
    cumulative
        Each area contains all values up to its break, so areas overlap; with `polygons` and
        `breaks`.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Contours
        With the path of the file, the number of features, and of levels or breaks that have some.

    Raises
    ------
    InputError
        when breaks are not ascending, both or neither of breaks and interval are given, the
        interval is too small for the values, or the file cannot be written there.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or lacks a layer.
    OutputError
        when the file cannot be written.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    W. E. Lorensen, H. E. Cline (1987), Marching cubes, SIGGRAPH '87, in two dimensions.

    Examples
    --------
    >>> contours("dem.zarr", "contours.gpkg", interval=10).features
    >>> frame = contours("dem.zarr", interval=10).to_geodataframe()
    >>> hours = [3600, 7200, 10800]
    >>> contours("dem.zarr", "hours.gpkg", layer="distance", breaks=hours, polygons=True)
    """


def corridor(
    store: StoreLike,
    distances: Sequence[str] | None = None,
    *,
    sources: PlacesLike | None = None,
    targets: PlacesLike | None = None,
    pairs: Sequence[tuple[int | str, int | str]] | PathLike | None = None,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: Mapping[str, float] | None = None,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    corner_cutting: bool = True,
    connectivity: PathConnectivity = 8,
    metric: PathMetric = "steps",
    wrap: Wrap = "auto",
    layer: str = "elevation",
    into: str = "corridor",
    within: float | str | None = None,
    table: PathLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Compute a least-cost corridor between places, or from layers of distances.

    Each cell gets the additional cost of the best path through it, compared with the best path from
    the sources to the targets: the sum of its distances from both, less the least such sum.

    With `pairs`, there are corridors among many sources, such as core areas of habitat. Each pair
    has a least cost of its own, and a cell gets the least value of all pairs. Of two or more layers
    of distances, in place of sources and targets, each pair makes one corridor in the same way.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    distances
        Two or more layers of `shortest_paths`, such as ``["from_a", "from_b"]``, in place of
        sources and targets. Where costs differ uphill and downhill, compute the second one with
        `reverse`.
    sources
        One end of the corridor, in the same form as the sources of `shortest_paths`, without start
        costs.
    targets
        The other end.
    pairs
        Corridors among the sources, in place of targets. "delaunay": of sources whose areas of
        least cost touch. "all": of each with all others. Or pairs of ids or names, or a .csv file
        with the fields from and to. Costs must be the same in both directions.
    cost
        "absdiff", "friction", "surface", "tobler", "langmuir" or "minimax"; see
        `paths.cost.models`. Or one of `paths.cost.formula.presets`, such as "herzog". Or a formula,
        such as ``"length * exp(abs(slope))"``; see `paths.cost.formula.tree` for its syntax. Or a
        `Cost`, which also has other rules of steps. A step whose cost is NaN or infinite does not
        exist. A formula may name one layer of the store, instead of `friction`. When None:
        "friction" if frictions are given, otherwise "absdiff".
    friction
        Layer of the store, or array, of frictions >= 0. The model "friction" needs it; if the
        raster itself holds frictions, name its layer, or pass the same array, here as well.
    barriers
        Layer or array; cells with a value other than 0 are absent.
    parameters
        Parameters of the model, such as ``{"lam": 0.5}`` for langmuir; for a formula, values of
        names in it.
    reverse
        Compute the cost of going to the source, for costs that depend on direction.
    max_slope
        Slope dz / length, up or down, above which a step does not exist; distances are then
        float64.
    vertical_factor
        Factors of the cost of steps by their angle of slope, negative downhill: a text file of
        angles in degrees and factors, or a sequence of such pairs. Between them, factors are
        interpolated; a step at an angle outside the table does not exist. For formulas and all
        models except langmuir and minimax.
    corner_cutting
        False forbids diagonal steps between two absent cells.
    connectivity
        8 or 4; or 16, with knight's moves, which pass through the middle of the edge between two
        cells and cost as much as two steps of half the length. With 16, distances are float64, and
        the method must be "relax".
    metric
        "steps": paths go from neighbour to neighbour. "continuous": paths go in any direction, by
        the eikonal equation ``|grad T| = friction``, see `paths.cost.continuous`; this needs cost
        "friction", frictions above 0, method "relax" and `connectivity` 8, and computes only
        distances.
    wrap
        Whether the last column is joined to the first one, so that paths cross this seam. "auto":
        if the CRS is geographic and the columns span 360 degrees, within a hundredth of a column.
        "yes" raises an error for a raster that is projected or whose sides are more than half a
        column apart; an array has no CRS and is joined. Paths never cross a pole.
    layer
        Layer of the store.
    into
        Layer to write. Distances from sources and targets go to NAME_from and NAME_to; with
        `pairs`, those from each source to NAME_ID, as far as `within` needs them, and those from
        the nearest one to NAME_nearest.
    within
        Only cells whose best path costs at most this much, or this percentage such as 5%, more than
        the best path of the pair.
    table
        Also write a table of the pairs that have a path: from, to, cost.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works. The results have the same bits.
    device
        Number of the GPU; or numbers of several, or "all", which divide the raster among them.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks of a store, each within
        `memory_limit`. None for this process. Each computes on the first GPU that it sees if
        `backend` is "cuda", or if it is "auto" and all workers announce the resource GPU; `device`
        is ignored.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its layer is named `into`: float64, in units of the distances. NaN is nodata: cells that are
        reached from neither pair, or exceed `within`. `report.result["pairs"]` has the optimum of
        each pair, None if there is no path between its sources.

    Raises
    ------
    InputError
        when there are fewer than two different layers, one does not hold distances or has a
        negative value (names the cell), or two have the same sources; with `pairs`, when costs
        differ by direction, or a pair names no source.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    Normalised least-cost corridors: B. H. McRae, D. M. Kavanagh (2011), Linkage Mapper Connectivity
    Analysis Software.

    Examples
    --------
    >>> corridor("dem.zarr", sources=[(9, 9)], targets=[(90, 70)], cost="tobler", within="5%")

    Among many sources:

    >>> corridor("dem.zarr", sources=parks, pairs="delaunay", friction="resistance", within="5%")

    From layers of distances, of which one holds the costs of going there:

    >>> shortest_paths("dem.zarr", [(9, 9)], cost="tobler", into="from_a")
    >>> shortest_paths("dem.zarr", [(90, 70)], cost="tobler", reverse=True, into="to_b")
    >>> corridor("dem.zarr", ["from_a", "to_b"], within="5%")
    """


def cost_matrix(
    data: RasterLike,
    sources: PlacesLike,
    targets: PlacesLike | None = None,
    *,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: Mapping[str, float] | None = None,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    corner_cutting: bool = True,
    connectivity: PathConnectivity = 8,
    wrap: Wrap = "auto",
    nearest: int | None = None,
    max_cost: float | Mapping[int, float] | None = None,
    output: PathLike | None = None,
    paths: PathLike | None = None,
    cell_size: float | tuple[float, float] = (1.0, 1.0),
    nodata: float | int | None = None,
    layer: str = "elevation",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> CostMatrix:
    """Compute the least cost from each of many sources to each of many targets, as a table: source,
    target, cost, length and climb of the path.

    Every cost is that of a search from this source alone (compute-sssp), bit for bit. A source or
    target consists of all cells with one id, such as those of a line, polygon or zone; the cost is
    that of its best cell, and two of them may share a cell. Unreachable pairs have empty fields;
    with `nearest` or a cost limit they have no row.

    Parameters
    ----------
    data
        A store or a raster (a path), a DataArray, or a 2-D array (or nested lists).
    sources
        As for `shortest_paths`; their start costs are added.
    targets
        In the same form. Without targets, each source is also the target of all others.
    cost
        "absdiff", "friction", "surface", "tobler", "langmuir" or "minimax"; see
        `paths.cost.models`. Or one of `paths.cost.formula.presets`, such as "herzog". Or a formula,
        such as ``"length * exp(abs(slope))"``; see `paths.cost.formula.tree` for its syntax. Or a
        `Cost`, which also has other rules of steps. A step whose cost is NaN or infinite does not
        exist. A formula may name one layer of the store, instead of `friction`. When None:
        "friction" if frictions are given, otherwise "absdiff".
    friction
        Layer of the store, or array, of frictions >= 0. The model "friction" needs it; if the
        raster itself holds frictions, name its layer, or pass the same array, here as well.
    barriers
        Layer or array; cells with a value other than 0 are absent.
    parameters
        Parameters of the model, such as ``{"lam": 0.5}`` for langmuir; for a formula, values of
        names in it.
    reverse
        Compute costs from the target to the source, for costs that depend on direction.
    max_slope
        Slope dz / length, up or down, above which a step does not exist; distances are then
        float64.
    vertical_factor
        Factors of the cost of steps by their angle of slope, negative downhill: a text file of
        angles in degrees and factors, or a sequence of such pairs. Between them, factors are
        interpolated; a step at an angle outside the table does not exist. For formulas and all
        models except langmuir and minimax.
    corner_cutting
        False forbids diagonal steps between two absent cells.
    connectivity
        8 or 4; or 16, with knight's moves, which pass through the middle of the edge between two
        cells and cost as much as two steps of half the length. With 16, distances are float64, and
        the method must be "relax".
    wrap
        Whether the last column is joined to the first one, so that paths cross this seam. "auto":
        if the CRS is geographic and the columns span 360 degrees, within a hundredth of a column.
        "yes" raises an error for a raster that is projected or whose sides are more than half a
        column apart; an array has no CRS and is joined. Paths never cross a pole.
    nearest
        Only this number of targets for each source, those of least cost; ties go to lower ids.
    max_cost
        Only pairs of at most this cost: one number, or one for each source by its id; other sources
        have no limit.
    output
        File for the table, .csv or .parquet; when None, it is kept in memory.
    paths
        Also write the paths as lines from source to target, with their from, to, cost, length and
        climb: .gpkg, .parquet, .fgb or .geojson.
    cell_size
        For arrays: width and height of a cell, or one number for both.
    nodata
        For arrays: value of absent cells, in addition to NaN and infinities.
    layer
        Layer of the store.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None. For arrays, it includes the results but not the caller's own memory; no limit
        when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory. The results have
        the same bits.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    CostMatrix
        Rows by source, then by target, in the order of features in a file, otherwise of ids. Cost:
        int64 for integer costs, otherwise float64. Length: map units, or metres for a geographic
        CRS. Climb: the sum of all rises along the path, in units of the elevations; masked if the
        raster holds frictions.

    Raises
    ------
    ClusterError
        when the cluster has no workers or is lost; finished batches are kept for `resume`.
    InputError
        for unknown models, sources or targets outside or on nodata, negative frictions, and files
        that exist.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, or there is another unfinished run.
    VerificationError
        when the proof finds a violation.
    OutputError
        when the disk is full; finished batches are kept for `resume`.

    Notes
    -----
    Label correcting as in `shortest_paths`, eight sources at a time, with a vector of distances in
    each cell, until the targets are final; docs/design/shortest-paths.md.

    Examples
    --------
    >>> import numpy as np
    >>> heights = np.array([[0, 2, 9], [0, 1, 3]], np.int16)
    >>> found = cost_matrix(heights, [(0, 0), (0, 2)], [(1, 1), (1, 2)])
    >>> found.columns()["cost"].tolist()
    [1, 3, 8, 6]
    """


def depressions(
    store: StoreLike,
    *,
    directions: str = "flow_direction",
    into: str = "depressions",
    conditioned: str | None = None,
    table: PathLike | None = None,
    min_depth: float = 0.0,
    min_area: float = 0.0,
    min_volume: float = 0.0,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Find depressions: how deep they are, what they hold, and into which others they spill.

    Water that fills a depression rises to its spill: the lowest elevation over which it leaves for
    a deeper depression or an outlet. A depression is what lies below that elevation around a pit,
    and holds all shallower ones that spill into it. Outlets are those of the flow directions.

    The layer has the number of the smallest depression that each cell lies in; the table has all of
    them.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    directions
        Layer of flow directions (D8), with their outlets.
    into
        Layer to write the numbers to: 1, 2, ... in row-major order of the pits, and 0, the nodata
        value, outside depressions. uint32, int64 for rasters of 2^32 or more cells.
    conditioned
        Also write a layer of elevations in which the depressions left out are filled.
    table
        Also write a table of the depressions, with pits, spills, parents, areas and volumes: .csv,
        .parquet, .geojson, .gpkg or .fgb.
    min_depth
        Leave out depressions shallower than this, in units of the elevations.
    min_area
        Leave out depressions with a smaller area, in square map units (square metres in a
        geographic CRS).
    min_volume
        Leave out depressions with a smaller volume, in units of area times those of the elevations.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into` and `conditioned`; `found` has the number of "depressions",
        the "deepest" depth, and the "area" and "volume" of all together.

    Raises
    ------
    InputError
        when a name cannot be used, a limit is negative, or integers differ by more than 2**53.
    StoreError
        when the directions are not those of `flow_direction`, or the elevations or the spanning
        forest have changed since.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    The branches of the merge tree of the elevations, paired by the elder rule (H. Edelsbrunner,
    D. Letscher, A. Zomorodian 2002, Topological persistence and simplification). The depth of a
    depression is the persistence of its pit. R. Barnes, K. L. Callaghan, A. D. Wickert (2020,
    Earth Surface Dynamics 8) have two entries where two depressions meet, and one more for both;
    here the deeper one continues.

    Each depression of `min_depth` takes about 220 bytes of memory. The proof covers the layers and
    the totals; not the table, which is written from the same totals.

    Examples
    --------
    >>> result = depressions("dem.zarr", min_depth=1, table="depressions.csv")
    """


def extract_network(
    store: StoreLike,
    path: PathLike | None = None,
    *,
    min_length: float | str | None = None,
    keep: PlacesLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Network:
    """Write the main lines of the spanning forest as polylines.

    Dead ends shorter than `min_length` are removed. An edge of the forest belongs to the network
    when, on both of its sides, a path that begins with the edge is at least `min_length` long or
    leads to a kept point. Each remaining end is then extended along the longest path (along all of
    them, where several are equally long), unless it is a kept point. A tree without such an edge is
    dropped: none of its paths is twice as long as `min_length`. The output does not depend on block
    size, memory limit or threads.

    Every line connects two nodes. A node is a cell where three or more edges meet, an end, or a
    kept point. A line that uses both diagonals of a square of four cells is cut before the second
    one, so that no line crosses itself; its parts follow one another. The attributes of a line are
    start and end (row x columns + column of these cells, the smaller one first), weight (the sum of
    its edge weights), pass_height (the value of its highest cell), length (in map units, or in
    metres for a geographic CRS) and cells (their number).

    The forest is that of compute-mst; of weight flow, where it is missing.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    path
        A .gpkg (layer "network"), .parquet or .fgb file, in the CRS of the raster; or a .geojson or
        .json file, in longitude and latitude; see `write_paths`. None for a temporary file, which
        `to_geodataframe` of the result reads.
    min_length
        Remove dead ends shorter than this, such as 5km. 0 removes nothing; without it, only kept
        points count.
    keep
        Cells that are never removed and at which lines end, in the forms that `shortest_paths`
        accepts as sources.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Network
        With the path of the file, the numbers of lines and of cells on them, and the total length.

    Raises
    ------
    InputError
        when neither `min_length` nor `keep` is given, a kept point is nodata, or the file cannot be
        written there.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or lacks a layer.
    OutputError
        when the file cannot be written.
    VerificationError
        when the proof fails; there is no result then.

    Examples
    --------
    >>> network = extract_network("dem.zarr", "lines.gpkg", min_length="5km")
    >>> network.lines, network.length
    """


def fill(
    store: StoreLike,
    *,
    epsilon: bool = False,
    keep_deeper_than: float | None = None,
    keep_larger_than: float | str | None = None,
    outlets: PlacesLike | str | None = None,
    add_outlets: PlacesLike | None = None,
    directions: str = "flow_direction",
    into: str = "filled",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Fill depressions: raise every cell to the level at which water leaves it for an outlet.

    Outlets are those of the flow directions. By default, these are on the raster's edge, and on the
    coast of voids that reach it. Directions to other outlets need another name, but no other tree.

    With `epsilon`, each cell is raised until a neighbour is strictly lower, by steps of floats:
    flow paths then fall strictly. With `keep_deeper_than` or `keep_larger_than`, such depressions
    stay, as closed lakes do; with both, those that are deeper and larger.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    epsilon
        Raise cells until a neighbour is strictly lower; only floats.
    keep_deeper_than
        Keep depressions that are deeper, from pit to spill, in units of the elevations.
    keep_larger_than
        Keep depressions whose area below the spill is larger than this: an area such as 5km2, 300ha
        or 90000m2, or a number of cells.
    outlets
        Outlets of the flow directions that are computed, in the forms that `flow_direction`
        accepts; existing directions must have these outlets. None: those of existing directions.
    add_outlets
        Cells that are outlets in addition to those of a name, in the same forms.
    directions
        Layer of flow directions made by flow_direction.
    into
        Layer to write the filled elevations to. Cells that reach no outlet keep theirs.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory. The results have
        the same bits.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into`: of the type of the elevations, with their nodata value.
        `found` has, with `epsilon`, the number of cells "raised_above_fill", above the levels
        without it, and the "largest_rise" above these. With depressions to keep, it has their
        number "depressions", the "deepest" depth, and the "area" and "volume" of all together.

    Raises
    ------
    InputError
        when a name, a limit or `epsilon` with one cannot be used; when, with `epsilon`, elevations
        are integers, or would exceed the largest float; or when there are directions to other
        outlets than those given.
    StoreError
        when the store is damaged or has no such directions, the elevations or the spanning forest
        have changed since, or the layer exists already.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    The result of priority-flood (R. Barnes, C. Lehman, D. Mulla 2014, Computers & Geosciences 62).
    The path to an outlet along the spanning forest has the lowest highest cell, which is the level.
    `epsilon` is their Priority-Flood+Epsilon: the level of a cell is the higher of its elevation
    and the next float above the least level next to it. Depressions to keep are those of
    `depressions`, with thresholds. Both are computed on the CPU.

    Examples
    --------
    >>> filled = fill("dem.zarr").layers["filled"]
    """


def fill_spill_merge(
    store: StoreLike,
    rain: float | str,
    *,
    directions: str = "flow_direction",
    into: str = "water",
    table: PathLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Find where the water of a rain comes to rest: how deep it stands at each cell.

    Water runs down the steepest way to the pit of its catchment. Depressions fill; what one cannot
    hold spills over the lowest edge around it into the catchment beyond. Where that depression is
    full, too, both are one, and fill up to the next edge. What reaches an outlet leaves. Outlets
    are those of the flow directions.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    rain
        Depth of the water that falls, in units of the heights: a number, a layer, or a raster on
        the same grid. Cells of it without a value get none. Subtract evaporation and seepage first.
    directions
        Layer of flow directions (D8), with their outlets.
    into
        Layer to write the depths of the water to: float32, 0 where it is dry, NaN without a height.
    table
        Also write a table of the depressions: .csv, .parquet, .geojson, .gpkg or .fgb. Columns: id,
        parent, row, col, x, y, height and spill_height as of depressions; inflow, the water that
        fell or ran into it, and water, what stands below the spill, both with all depressions
        within; and level, the height of the surface at the pit. Depressions that no outlet drains
        come last; their spill_height is infinite.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its layer is named `into`. `found` has the volumes "rain", "water", which stands, "outflow",
        and "on_cells", the water by the depths as written; numbers of "depressions", of those
        "with_water" at the pit and "full" up to the spill, and of "wet_cells"; their "area", and
        the "deepest" depth.

    Raises
    ------
    InputError
        when a name cannot be used, or a depth of rain is negative or infinite.
    StoreError
        when the directions are not those of `flow_direction`, the tree is not of weight "flow", or
        the heights or the tree have changed since.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    R. Barnes, K. L. Callaghan, A. D. Wickert (2021, Earth Surface Dynamics 9), Computing water flow
    through complex landscapes, part 3: Fill-Spill-Merge. Volumes are whole numbers of units, 2^-61
    of the most that can fall, so none is lost and blocks do not matter. Levels are found by
    Newton's iteration, which ends: volumes are convex and piecewise linear.

    Each catchment of a block takes about 260 bytes of memory. The proof checks that the water
    rests, and that none is lost.

    Examples
    --------
    >>> found = fill_spill_merge("dem.zarr", rain=0.02, table="water.csv")
    """


def flow_accumulation(
    store: StoreLike,
    *,
    directions: str = "flow_direction",
    method: FlowMethod = "d8",
    exponent: float | None = None,
    filled: str = "filled",
    areas: bool = False,
    exclude_self: bool = False,
    weights: str | None = None,
    statistic: UpstreamStatistic = "sum",
    edge_cells: bool = False,
    into: str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Count the cells, or sum the areas or weights, that drain through each cell.

    Follows flow directions. Cells that do not drain are nodata.

    With `method`, cells divide what drains through them: between two neighbours by the steepest
    descent over triangular facets (dinf), or among all lower ones by slopes (mfd), and the lengths
    of contours (quinn). Elevations are filled first; cells without lower neighbours, and those
    under water, follow the flow directions.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    directions
        Layer of D8 flow directions, uint8: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 at
        outlets, 255 (or the layer's nodata) at cells that do not drain. Methods other than d8 need
        directions made by flow-direction.
    method
        How a cell divides its flow among its neighbours.
    exponent
        Exponent of the slope when flow is divided.  [default: 1.1 for mfd, 1 for quinn]
    filled
        Layer of filled elevations, with the same outlets, for methods other than d8.
    areas
        Sum areas instead of cells, in square map units (square metres in a geographic CRS); or
        weights times areas.
    exclude_self
        Exclude the cell itself: 0 at cells into which nothing drains. Not for extremes and below.
    weights
        Layer of values to sum instead of cells, such as rain or runoff; they may be negative.
        Nodata cells count nothing.
    statistic
        Statistic of `weights` over the cells upstream and the cell itself. The minimum of
        elevations is the carved DEM. below: the usual accumulation, but only at and downstream of
        cells whose weight is neither 0 nor nodata, and 0 elsewhere.
    edge_cells
        Instead, count the cells upstream that lie on the edge of the data and drain inwards. Where
        there are any, water may come in from beyond the edge, and sums may be too small. Only for
        d8, without `weights`, `areas` and `exclude_self`.
    into
        Layer to write to.  [default: flow_accumulation, upstream_STATISTIC of weights, or
        upstream_edge_cells]
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory. The results have
        the same bits.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into`. Cells are uint32 (int64 for rasters of 2^32 cells or more,
        and with `exclude_self`), areas float64; nodata is 0, or -1 with `exclude_self`. Sums and
        means of weights: float64, nodata NaN. Extremes: the type and nodata value of the weights;
        cells that do not drain keep their values. Edge cells: int32 (int64 for rasters of 2^31
        cells or more), nodata is -1. With weights, `found` has "without_weight", the number of
        cells that drain but have none.

    Raises
    ------
    InputError
        when a name cannot be used, options exclude each other, or a weight is infinite.
    StoreError
        when the store is damaged, lacks a layer or already has one of the results, or the flow
        directions form a loop.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    Sums are sums of integers, so they do not depend on the blocks; see `area_units`. Weights are
    rounded to a power of two, 2^-62 to 2^-60 of the largest size of a weight times the number N of
    cells of the raster. So a sum of n weights errs by at most n N 2^-61 of the largest, in addition
    to the rounding to float64. Integers of which N times the largest is below 2^62 are summed
    exactly.

    Where cells divide what drains through them, sums are float64. Units are a power of two, 2^-50
    to 2^-49 of the largest sum possible, and a cell rounds what each neighbour receives to whole
    units; the neighbour with the largest part gets what remains, so nothing is lost. Powers and
    angles do not depend on the machine.

    D-infinity: D. Tarboton 1997, Water Resources Research 33. Multiple flow directions: T. Freeman
    1991, Computers & Geosciences 17; P. Quinn and others 1991, Hydrological Processes 5.

    Examples
    --------
    >>> result = flow_accumulation("dem.zarr", areas=True)
    >>> areas = result.layers["flow_accumulation"].read_window(0, 100, 0, 100)
    """


def flow_direction(
    store: StoreLike,
    outlets: PlacesLike | str | None = None,
    *,
    add_outlets: PlacesLike | None = None,
    depressions: DepressionsMethod | None = None,
    flats: FlatsMethod | None = None,
    max_distance: int | None = None,
    max_depth: float | None = None,
    burn: PlacesLike | None = None,
    burn_depth: float | None = None,
    layer: str | None = None,
    filled: str = "filled",
    into: str = "flow_direction",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Compute the D8 flow direction of every cell.

    Every cell drains to its steepest lower neighbour. Flats drain along the spanning tree,
    depressions are carved at their lowest passes: all flow paths end at outlets. By default, these
    are cells on the raster's edge, or next to voids that reach it, that have no lower neighbour or
    over which a depression spills. Codes: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 at
    outlets, 255 (nodata) where none is reached.

    With `depressions` fill, depressions are filled instead, and flats drain towards lower and away
    from higher cells (Barnes 2014). With breach, channels are cut first, as `breach` does; what is
    left is carved, or filled with `flats` gradient. Layers that this needs (mst, filled, breached,
    burned) are computed if they are missing. Those of other elevations or settings are rejected,
    unless the run may overwrite them.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    outlets
        "low_edge": of the cells at the raster's edge and next to voids (nodata cells, joined over
        eight neighbours) that reach it, those without a lower neighbour, and those over which a
        depression spills; the others drain to their steepest lower neighbour. "low_border": also of
        the cells next to inner voids. "edge" and "border": all of these cells, also where the
        ground falls inwards. Or cells, in the forms that `shortest_paths` accepts as sources. With
        gradients, those for which the elevations were filled. None: "low_edge".
    add_outlets
        Cells that are outlets in addition to those of a name, in the same forms.
    depressions
        How water leaves depressions. carve: along the spanning tree, over their lowest passes.
        fill: across the surface of filled elevations. breach: through channels.  [default: fill
        with `flats` gradient, else carve]
    flats
        How flats drain: along the spanning tree, or by gradients of filled elevations.  [default:
        gradient with `depressions` fill, else tree]
    max_distance
        With breach: the largest distance of a channel from its pit, in rows and columns.  [default:
        50]
    max_depth
        With breach: the deepest cut.  [default: no limit]
    burn
        Streams to burn first: cells whose elevations are lowered, as for `burn`.
    burn_depth
        By how much `burn` lowers them.
    layer
        Layer of elevations. The spanning tree must have been computed from these, or from what is
        burned and breached from them.  [default: elevation, or else the layer that the tree was
        computed from]
    filled
        Layer of filled elevations for gradients, for the same outlets.
    into
        Layer to write the directions to.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory. The results have
        the same bits.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into`: uint8. `found` has the numbers of valid "cells" and of
        "outlets". The report's `valid_cells` drain.

    Raises
    ------
    InputError
        when a name, the outlets or the streams cannot be used, elevations were filled for other
        outlets, or flats cannot drain so in such depressions.
    StoreError
        when the weight of the spanning forest is not "flow", or there are no such filled
        elevations; when elevations were breached and should not be, or the other way round; when a
        layer is damaged, or the result exists already.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    The minimum spanning forest relative to the outlets (J. Cousty and others 2009, Watershed cuts),
    of edges ordered by their higher end, then the steeper first. Gradients in flats: R. Barnes,
    C. Lehman, D. Mulla (2014), An efficient assignment of drainage direction over flat surfaces in
    raster digital elevation models; Computers & Geosciences 62. They are computed on the CPU.

    Examples
    --------
    >>> codes = flow_direction("dem.zarr").layers["flow_direction"]

    Depressions breached where 5 m suffice, and the others carved:

    >>> flow_direction("dem.zarr", depressions="breach", max_depth=5, overwrite=True)
    """


def hand(
    store: StoreLike,
    threshold: float | str | None = None,
    *,
    streams: str | None = None,
    to_outlets: bool = False,
    accumulation: str = "flow_accumulation",
    directions: str = "flow_direction",
    layer: str = "elevation",
    into: str = "hand",
    distance: str | None = None,
    method: HandMethod = "d8",
    filled: str = "filled",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Compute the height above the nearest drainage (HAND): above the stream a cell drains to.

    That is the elevation of a cell minus that of the first stream cell on its flow path. Streams
    are the cells whose flow accumulation reaches `threshold`, the cells of another layer
    (`streams`), or only the outlets (`to_outlets`). Cells whose flow path reaches no stream are
    nodata (-9999).

    With `method` dinf, flow divides between two neighbours (D-infinity), and heights and distances
    are averages over all flow paths. Elevations are filled first; flats follow the directions.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    threshold
        Cells are streams where the accumulation is at least this: a number of cells such as 1000,
        or an area such as 5km2, 300ha or 90000m2.
    streams
        Instead: cells are streams where this layer is neither 0 nor nodata.
    to_outlets
        Instead: only the outlets are streams, where flow paths end; `distance` is the downstream
        flow length then.
    accumulation
        Layer of flow accumulation, for `threshold`.
    directions
        Layer of D8 flow directions.
    layer
        Layer of elevations.
    into
        Layer to write the heights above streams to: float32; float64 with dinf, and for elevations
        of float64 or of integers of 32 or more bits.
    distance
        Also write this layer: the length of the flow path to the stream, float64, in map units
        (metres in a geographic CRS).
    method
        d8: along the flow directions. dinf: averages over D-infinity flow paths.
    filled
        Layer of filled elevations for dinf, with the outlets of the directions.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into` and `distance`.

    Raises
    ------
    InputError
        when a name cannot be used, or there is not exactly one of `threshold`, `streams` and
        `to_outlets`.
    StoreError
        when directions form a loop without a stream.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    A. D. Nobre and others (2011), Journal of Hydrology 404. Lengths are summed as integers of a
    unit of about 2^-61 of the longest possible path, so they do not depend on the blocks.

    With "dinf", a stream has 0, and any other cell the average, over the cells that it drains to,
    of their values and the step there: the difference of elevations, or the length. That is the
    vertical drop and the horizontal distance of TauDEM's D-Infinity Distance Down (average), with
    its rule for edges: nodata where any part of the flow meets no stream, or a nodata cell. A cell
    that drains to one other, in flats and under water, follows the directions. See
    `flow_accumulation` for how cells divide.

    Examples
    --------
    >>> result = hand("dem.zarr", threshold=1000, distance="distance_to_stream")
    >>> heights = result.layers["hand"].read_window(0, 100, 0, 100)
    """


def label_components(
    store: StoreLike,
    where: str,
    *,
    connectivity: Connectivity = 8,
    into: str = "components",
    table: PathLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Components:
    """Label the connected components of the cells that meet a condition.

    Labels count from 1, in row-major order of each component's first cell; all other cells are 0,
    the nodata value. They are the same for every block size, memory limit and number of threads. A
    comparison with a nodata cell is never true. The cells of a raster are the layer "elevation".

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    where
        Condition on layers of the store, such as "elevation > 0", "0 < elevation <= 100 and not
        (slope > 30)" or "nodata(elevation)".
    connectivity
        Neighbours per cell: 8 includes the diagonal ones.
    into
        Layer to write the labels to.
    table
        Also write a table of the components' cell counts, areas (in square metres in a geographic
        CRS, else in square map units) and bounding boxes: .csv, .parquet, .geojson, .gpkg or .fgb.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Components
        With the `layer` of labels: uint32, or int64 if the raster is large enough for 2**32
        components.

    Raises
    ------
    InputError
        when the condition or a name cannot be used.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    Union-find in each block, then over the lines between blocks.

    Examples
    --------
    >>> land = label_components("dem.zarr", "elevation > 0", table="land.csv")
    >>> land.count, land.cells
    """


def least_cost_network(
    store: StoreLike,
    places: PlacesLike,
    output: PathLike | None = None,
    *,
    pairs: NetworkPairs = "mst",
    nearest: int | None = None,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: Mapping[str, float] | None = None,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    corner_cutting: bool = True,
    connectivity: PathConnectivity = 8,
    wrap: Wrap = "auto",
    max_cost: float | None = None,
    table: PathLike | None = None,
    layer: str = "elevation",
    into: str = "nearest",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> CostNetwork:
    """Join places by least-cost paths, and write the paths as lines with the attributes from, to,
    cost, length and climb.

    A place consists of all cells with one id, such as those of a line, polygon or zone. Its area is
    all cells to which no other place is nearer by cost.

    A spanning tree, and links of places whose areas touch, take one search from all places. Costs
    must be the same both ways for these, not for `pairs` all or `nearest`, which take a search for
    each place.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    places
        In the same form as the sources of `shortest_paths`; at least two, without start costs. Two
        places may share a cell: they are linked there.
    output
        File for the lines: .gpkg (layer "network"), .parquet, .fgb or .geojson. None for a
        temporary file, which `CostNetwork.to_geodataframe` reads.
    pairs
        Which places to join. "mst": the minimum spanning tree over the costs between all pairs of
        places. "delaunay": any two places whose areas touch (cost-weighted adjacency), by the
        cheapest path that stays in these two areas; one through the area of a third place may be
        cheaper. "all": each with all others ("from everywhere to everywhere").
    nearest
        Join each place with the K others of least cost, in place of `pairs`.
    cost
        "absdiff", "friction", "surface", "tobler", "langmuir" or "minimax"; see
        `paths.cost.models`. Or one of `paths.cost.formula.presets`, such as "herzog". Or a formula,
        such as ``"length * exp(abs(slope))"``; see `paths.cost.formula.tree` for its syntax. Or a
        `Cost`, which also has other rules of steps. A step whose cost is NaN or infinite does not
        exist. A formula may name one layer of the store, instead of `friction`. When None:
        "friction" if frictions are given, otherwise "absdiff".
    friction
        Layer of the store, or array, of frictions >= 0. The model "friction" needs it; if the
        raster itself holds frictions, name its layer, or pass the same array, here as well.
    barriers
        Layer or array; cells with a value other than 0 are absent.
    parameters
        Parameters of the model, such as ``{"lam": 0.5}`` for langmuir; for a formula, values of
        names in it.
    reverse
        Compute cost and climb from `to` to `from`.
    max_slope
        Slope dz / length, up or down, above which a step does not exist; distances are then
        float64.
    vertical_factor
        Factors of the cost of steps by their angle of slope, negative downhill: a text file of
        angles in degrees and factors, or a sequence of such pairs. Between them, factors are
        interpolated; a step at an angle outside the table does not exist. For formulas and all
        models except langmuir and minimax.
    corner_cutting
        False forbids diagonal steps between two absent cells.
    connectivity
        8 or 4; or 16, with knight's moves, which pass through the middle of the edge between two
        cells and cost as much as two steps of half the length. With 16, distances are float64, and
        the method must be "relax".
    wrap
        Whether the last column is joined to the first one, so that paths cross this seam. "auto":
        if the CRS is geographic and the columns span 360 degrees, within a hundredth of a column.
        "yes" raises an error for a raster that is projected or whose sides are more than half a
        column apart; an array has no CRS and is joined. Paths never cross a pole.
    max_cost
        Only links of at most this cost.
    table
        Also write the attributes as a table, .csv or .parquet.
    layer
        Layer of the store.
    into
        Layer of the distances from the nearest place, with its backlinks and allocation: "nearest",
        "nearest_backlink" and "nearest_allocation". With `max_cost`, cells farther than half of it
        are unreached (with minimax, farther than all of it). `pairs` all and `nearest` write no
        layers.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works. The results have the same bits.
    device
        Number of the GPU; or numbers of several, or "all", which divide the raster among them.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks of a store, each within
        `memory_limit`. None for this process. Each computes on the first GPU that it sees if
        `backend` is "cuda", or if it is "auto" and all workers announce the resource GPU; `device`
        is ignored.
    verify
        Verify the result in another pass over the cells.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    CostNetwork
        It is not an error if links do not connect all places: `parts` is the number of parts, and a
        warning reports it. Lines go from `from` to `to`, sorted by ids; if costs are the same in
        both directions, `from` is the lower id, except with `nearest`. Length: map units, or metres
        for a geographic CRS. Climb: the sum of all rises along the path, in units of the
        elevations; null if the raster holds frictions.

    Raises
    ------
    InputError
        for unknown models, places outside or on nodata, fewer than two places, start costs, costs
        that depend on direction with "mst" and "delaunay", and files that exist.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or already has such layers.
    OutputError
        when the disk is full. Finished blocks, or sources, are kept for `resume`.
    ClusterError
        when the cluster has no workers or is lost. Finished work is kept for `resume`.
    VerificationError
        when a result is wrong.

    Notes
    -----
    For `pairs` "all" and `nearest`, one GPU, or the CPUs of workers, solve eight places at a time,
    as for `cost_matrix`; with a `client` the file must be in a folder that all hosts share.

    K. Mehlhorn (1988), A faster approximation algorithm for the Steiner problem in graphs: a
    spanning tree over areas that touch is one over all pairs. B. H. McRae, D. M. Kavanagh (2011),
    Linkage Mapper, for cost-weighted adjacency; D. A. White, S. B. Barber (2012), From everywhere
    to everywhere, for all pairs.

    Examples
    --------
    >>> found = least_cost_network("dem.zarr", [(9, 9), (90, 70), (40, 80)], "roads.gpkg")
    >>> found.links, found.parts
    (2, 1)
    """


def minimum_spanning_tree(
    data: RasterLike,
    *,
    weight: TreeWeight = "max",
    connectivity: Connectivity = 8,
    method: TreeMethod = "frozen",
    nodata: float | int | None = None,
    layer: str = "elevation",
    block_size: int | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> SpanningTree:
    """Compute the minimum spanning forest of a raster as a grid graph.

    Edges join neighbouring cells; cells that are nodata, NaN or infinite have none, so there is one
    tree for each connected part. Edges are ordered by weight, id of the lower endpoint and
    direction, so the forest is unique: the same bits for every block size, memory limit and number
    of threads. It becomes the layer "mst". A raster of it holds D8 codes: E 1, SE 2, ... NE 128.

    Parameters
    ----------
    data
        A store or a raster (a path), a DataArray, or a 2-D array (or nested lists).
    weight
        Weight of an edge. max: the higher of its two cells, so that paths in the tree cross the
        lowest passes. absdiff: their absolute difference. flow: as max, but among edges of equal
        weight the steeper comes first, so that the tree of a cell follows its steepest descent;
        over cells of 64 bits by the method contract, on the CPU.
    connectivity
        Neighbours per cell: 8 includes the diagonal ones.
    method
        Algorithm; both give the same bits. frozen: Boruvka's with frozen components. contract: the
        classical contraction, kept as a reference; it runs on a GPU only if the backend is cuda.
    nodata
        For arrays: value of absent cells. A store's layer has its own.
    layer
        Layer of the store.
    block_size
        For arrays: side of a block. A store's layer has its own.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None. For arrays, it includes the results but not the caller's own memory; no limit
        when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works. The results have the same bits.
    device
        Number of the GPU; or numbers of several, or "all", which divide the raster among them.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks of a store, each within
        `memory_limit`. None for this process. Each computes on the first GPU that it sees if
        `backend` is "cuda", or if it is "auto" and all workers announce the resource GPU; `device`
        is ignored.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    SpanningTree
        Over a store, with the layer "mst".

    Raises
    ------
    InputError
        for unknown weights, connectivity or types, limits that are too small, and "cuda" if it
        does not work.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    Boruvka's algorithm with frozen boundary components; docs/design/spanning-trees.md.
    """


def polygons(
    store: StoreLike,
    path: PathLike | None = None,
    *,
    layer: str | None = None,
    names: Mapping[int, str] | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Polygons:
    """Write the areas of equal labels as polygons along the edges of their cells.

    Each label becomes one MultiPolygon, in ascending order: a polygon for every part that is
    connected by sides of cells, with its holes. All are valid, and share their edges exactly. The
    file does not depend on block size, memory limit or threads.

    The attributes are label (the value of the layer), name (with `names`; null where it is not
    known), cells (their number) and area (in square metres on the ellipsoid in a geographic CRS,
    else in square map units).

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    path
        A .gpkg (layer "polygons"), .parquet or .fgb file, in the CRS of the raster; or a .geojson
        or .json file, in longitude and latitude; see `write_paths`. None for a temporary file,
        which `to_geodataframe` of the result reads.
    layer
        Layer of labels: basins, watersheds, components, or any other whole numbers. Its nodata
        cells belong to no polygon. By default the only layer.
    names
        What labels stand for, such as the ids in a layer of allocation: the `names` of `Places`.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Polygons
        With the path of the file, and the numbers of labels, polygons, holes and cells.

    Raises
    ------
    InputError
        when the layer has no whole numbers, or the file cannot be written there.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or lacks a layer.
    OutputError
        when the file cannot be written.
    VerificationError
        when the proof fails; there is no result then.

    Examples
    --------
    >>> found = polygons("dem.zarr", "basins.gpkg", layer="basins")
    >>> found.labels, found.holes
    """


def rasterize(
    store: StoreLike,
    features: PlacesLike,
    *,
    value: float | str | None = None,
    onto: str | None = None,
    into: str = "rasterized",
    layer: str = "elevation",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Write the cells of features into a layer, such as rivers as barriers.

    Every cell that a line or polygon touches gets a value; where features share a cell, the last
    one counts. Where a line passes exactly through a corner, diagonal steps of paths cross it,
    unless cutting corners is forbidden.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    features
        Cells, in the forms that `shortest_paths` accepts as sources; ``io.places.from_vector`` with
        `all_touched` finds those of lines and polygons, and with `cost_field` their values.
    value
        What their cells become: a number, or nodata for none. By default 1 for a file without a
        field of values; in Python, the start costs of the features.
    onto
        Layer whose cells are kept elsewhere, and whose type and nodata value the result has. By
        default, other cells are 0, and the type is uint8 if that holds all values, else float64.
    into
        Layer to write.
    layer
        Layer whose blocks the result has, without `onto`.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its layer is named `into`; `found` has the number of cells "covered", how many of them are
        "changed", and their "digest".

    Raises
    ------
    InputError
        when a name, the features or a value cannot be used, or the type of `onto` does not hold a
        value.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    A line covers every cell that it touches (J. Amanatides and A. Woo, "A fast voxel traversal
    algorithm for ray tracing", Eurographics 1987).

    Examples
    --------
    >>> from terrain_gpu.io.places import from_vector
    >>> grid = TileStore.open("dem.zarr").grid
    >>> rivers = from_vector(grid, "rivers.gpkg", all_touched=True, fields=False)
    >>> rasterize("dem.zarr", rivers, value=1, into="rivers")
    >>> shortest_paths("dem.zarr", [(0, 0)], barriers="rivers", corner_cutting=False)
    """


@overload
def shortest_paths( # type: ignore[overload-overlap]
    data: xarray.DataArray,
    sources: PlacesLike,
    *,
    source_edge: bool = False,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: Mapping[str, float] | None = None,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    corner_cutting: bool = True,
    connectivity: PathConnectivity = 8,
    metric: PathMetric = "steps",
    wrap: Wrap = "auto",
    max_cost: float | None = None,
    targets: PlacesLike | None = None,
    stop_at_targets: bool = False,
    backlink: bool = False,
    allocation: bool = False,
    cell_size: float | tuple[float, float] = (1.0, 1.0),
    nodata: float | int | None = None,
    layer: str = "elevation",
    into: str = "distance",
    block_size: int | None = None,
    method: PathMethod = "relax",
    build_index: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> ShortestPaths[xarray.DataArray]:
    """Compute the least cost from sources to each cell.

    The distances equal those of Dijkstra's algorithm: the same bits for every block size, memory
    limit and number of threads. Costs are summed from the source outwards, in float64 or in
    integers. Backlinks and allocation go to the layers of these names. With `into`, a store holds
    several results.

    Parameters
    ----------
    data
        A store or a raster (a path), a DataArray, or a 2-D array (or nested lists).
    sources
        Sequence or array of (row, col) or (row, col, start cost), or `Places` (see `io.places`).
    source_edge
        Use the edge of the raster and the cells next to nodata as sources as well, with id 2**32 -
        1.
    cost
        "absdiff", "friction", "surface", "tobler", "langmuir" or "minimax"; see
        `paths.cost.models`. Or one of `paths.cost.formula.presets`, such as "herzog". Or a formula,
        such as ``"length * exp(abs(slope))"``; see `paths.cost.formula.tree` for its syntax. Or a
        `Cost`, which also has other rules of steps. A step whose cost is NaN or infinite does not
        exist. A formula may name one layer of the store, instead of `friction`. When None:
        "friction" if frictions are given, otherwise "absdiff".
    friction
        Layer of the store, or array, of frictions >= 0. The model "friction" needs it; if the
        raster itself holds frictions, name its layer, or pass the same array, here as well.
    barriers
        Layer or array; cells with a value other than 0 are absent.
    parameters
        Parameters of the model, such as ``{"lam": 0.5}`` for langmuir; for a formula, values of
        names in it.
    reverse
        Compute the cost of going to the source, for costs that depend on direction.
    max_slope
        Slope dz / length, up or down, above which a step does not exist; distances are then
        float64.
    vertical_factor
        Factors of the cost of steps by their angle of slope, negative downhill: a text file of
        angles in degrees and factors, or a sequence of such pairs. Between them, factors are
        interpolated; a step at an angle outside the table does not exist. For formulas and all
        models except langmuir and minimax.
    corner_cutting
        False forbids diagonal steps between two absent cells.
    connectivity
        8 or 4; or 16, with knight's moves, which pass through the middle of the edge between two
        cells and cost as much as two steps of half the length. With 16, distances are float64, and
        the method must be "relax".
    metric
        "steps": paths go from neighbour to neighbour. "continuous": paths go in any direction, by
        the eikonal equation ``|grad T| = friction``, see `paths.cost.continuous`; this needs cost
        "friction", frictions above 0, method "relax" and `connectivity` 8, and computes only
        distances.
    wrap
        Whether the last column is joined to the first one, so that paths cross this seam. "auto":
        if the CRS is geographic and the columns span 360 degrees, within a hundredth of a column.
        "yes" raises an error for a raster that is projected or whose sides are more than half a
        column apart; an array has no CRS and is joined. Paths never cross a pole.
    max_cost
        Leave cells with a higher cost unreached.
    targets
        In the same form as `sources`, for `stop_at_targets`.
    stop_at_targets
        Stop once the farthest target has been reached; cells farther away are unreached.
    backlink
        Also compute each cell's step back towards its source, for paths.
    allocation
        Also compute the source that each cell is reached from.
    cell_size
        For arrays: width and height of a cell, or one number for both. A store has its own grid.
    nodata
        For arrays: value of absent cells, in addition to NaN and infinities.
    layer
        Layer of the store.
    into
        Layer of the store to write the distances to. Backlinks and allocation go to "backlink" and
        "allocation"; with another name, such as "walk", to "walk_backlink" and "walk_allocation".
    block_size
        For arrays: side of a block. A layer of a store has its own.
    method
        "relax", "dijkstra": two algorithms with the same result, bit for bit. "index": distances
        from the distance index of the store (`build_index`); the same bits for integer costs and
        minimax, otherwise within a relative error of 1e-12. If that is not enough, for backlinks,
        allocation and `verify` of other costs, cells are relaxed instead, with a warning. "relax-
        array", "tournament": the classical algorithms on a GPU, for a raster that fits its memory;
        the same bits, slower. Workers of a cluster do not use the index.
    build_index
        Use the distance index; build it first if it is missing or stale.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None. For arrays, it includes the results but not the caller's own memory; no limit
        when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works. The results have the same bits.
    device
        Number of the GPU; or numbers of several, or "all", which divide the raster among them.
    gpu_memory_limit
        Limit on the GPU memory; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks of a store, each within
        `memory_limit`. None for this process. Each computes on the first GPU that it sees if
        `backend` is "cuda", or if it is "auto" and all workers announce the resource GPU; `device`
        is ignored.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    ShortestPaths
        Distances, and the backlinks and allocation that are asked for, as layers of the store, or
        as arrays of the kind of the input.

    Raises
    ------
    ClusterError
        when the cluster has no workers or is lost.
    InputError
        for unknown models, errors in a formula, sources outside or on nodata, negative
        frictions or costs.
    StoreError
        when the store is damaged or already has such a result.
    OutputError
        when the disk is full.

    Notes
    -----
    Label correcting by blocks and tiles in the order of their least pending distance; its fixed
    point is the result of E. W. Dijkstra's algorithm. See docs/design/shortest-paths.md.
    """

@overload
def shortest_paths(
    data: np.ma.MaskedArray,
    sources: PlacesLike,
    *,
    source_edge: bool = False,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: Mapping[str, float] | None = None,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    corner_cutting: bool = True,
    connectivity: PathConnectivity = 8,
    metric: PathMetric = "steps",
    wrap: Wrap = "auto",
    max_cost: float | None = None,
    targets: PlacesLike | None = None,
    stop_at_targets: bool = False,
    backlink: bool = False,
    allocation: bool = False,
    cell_size: float | tuple[float, float] = (1.0, 1.0),
    nodata: float | int | None = None,
    layer: str = "elevation",
    into: str = "distance",
    block_size: int | None = None,
    method: PathMethod = "relax",
    build_index: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> ShortestPaths[np.ma.MaskedArray]:
    ...

@overload
def shortest_paths(
    data: HasDeviceMemory,
    sources: PlacesLike,
    *,
    source_edge: bool = False,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: Mapping[str, float] | None = None,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    corner_cutting: bool = True,
    connectivity: PathConnectivity = 8,
    metric: PathMetric = "steps",
    wrap: Wrap = "auto",
    max_cost: float | None = None,
    targets: PlacesLike | None = None,
    stop_at_targets: bool = False,
    backlink: bool = False,
    allocation: bool = False,
    cell_size: float | tuple[float, float] = (1.0, 1.0),
    nodata: float | int | None = None,
    layer: str = "elevation",
    into: str = "distance",
    block_size: int | None = None,
    method: PathMethod = "relax",
    build_index: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> ShortestPaths[Any]:
    ...

@overload
def shortest_paths(
    data: PlainRaster,
    sources: PlacesLike,
    *,
    source_edge: bool = False,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: Mapping[str, float] | None = None,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    corner_cutting: bool = True,
    connectivity: PathConnectivity = 8,
    metric: PathMetric = "steps",
    wrap: Wrap = "auto",
    max_cost: float | None = None,
    targets: PlacesLike | None = None,
    stop_at_targets: bool = False,
    backlink: bool = False,
    allocation: bool = False,
    cell_size: float | tuple[float, float] = (1.0, 1.0),
    nodata: float | int | None = None,
    layer: str = "elevation",
    into: str = "distance",
    block_size: int | None = None,
    method: PathMethod = "relax",
    build_index: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> ShortestPaths[np.ndarray]:
    ...


def slope(
    store: StoreLike,
    *,
    layer: str = "elevation",
    into: str = "slope",
    aspect: str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Compute the slope of every cell in degrees, by Horn's method.

    Elevations are converted to the unit of lengths if the layer or a vertical CRS names theirs;
    otherwise they must be in it: map units, or in a geographic CRS metres, measured on the
    ellipsoid. Cells on the edge of the raster or next to nodata are nodata (-9999).

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    layer
        Layer of elevations.
    into
        Layer to write the slopes to: degrees from 0 to 90.
    aspect
        Also write this layer: the downhill direction, in degrees clockwise from north. Level cells
        are nodata.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into` and `aspect`: float32, degrees.

    Raises
    ------
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    B. K. P. Horn (1981), Hill shading and the reflectance map; Proceedings of the IEEE 69(1).

    Examples
    --------
    >>> result = slope("dem.zarr", aspect="aspect")
    >>> degrees = result.layers["slope"].read_window(0, 100, 0, 100)
    """


def streams(
    store: StoreLike,
    threshold: float | str,
    *,
    directions: str = "flow_direction",
    accumulation: str = "flow_accumulation",
    order: StreamOrder = "strahler",
    into: str = "streams",
    lines: PathLike | None = None,
    heights: str = "elevation",
    edge_cells: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Streams:
    """Find streams: the cells through which at least a threshold drains, with a stream order.

    Streams consist of links. A link begins at a head, into which no stream flows, or at a junction,
    into which several do. It ends at the next junction or at an outlet. A junction's own cell
    belongs to the link that begins there. The layer holds the `order` of each stream cell, 0
    elsewhere.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    threshold
        Cells are streams where the accumulation is at least this: a number of cells such as 1000,
        or an area such as 5km2, 300ha or 90000m2; for sums of other quantities, a number in their
        unit.
    directions
        Layer of flow directions.
    accumulation
        Layer of flow accumulation along these directions, in cells or areas.
    order
        Stream order to write: strahler, shreve, horton, hack, topological, or link (the number of
        the link).
    into
        Layer to write the orders to.
    lines
        Also write the links as lines, with their lengths, slopes, orders and Pfafstetter codes:
        .geojson, .json, .parquet, .fgb, or .gpkg (layer "streams"; layer "junctions" has the cells
        where links begin, and the outlets).
    heights
        Layer of elevations, for the drop and the slope of lines.
    edge_cells
        Give lines the attribute edge_cells: how many cells on the edge of the data drain inwards
        and through them. Where there are any, water may come in from beyond the edge.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Streams
        Its `layer` has the orders: uint8 for strahler, horton and hack; else uint32, or int64 for
        rasters of 2^32 cells or more.

    Raises
    ------
    InputError
        when the threshold is not positive, cannot be converted to the unit of the sums, or leaves
        no stream; when the file of lines cannot be written there, or `edge_cells` lacks one.
    StoreError
        when sums, or counts of edge cells, belong to other directions, or these form a loop.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    The orders of a link are

    - strahler (Strahler 1957): 1 at heads; at a junction, one more than the greatest order that
      flows in, if several links have it, else that;
    - shreve (Shreve 1966): the number of heads upstream;
    - horton (Horton 1945): as strahler, but a stream keeps its order up to its head. At a junction
      it continues along the link of the greatest Strahler order; of several, the main one;
    - hack (Hack 1957, Gravelius): 1 along main links from an outlet up to a head; one more than the
      link that it flows into on others;
    - topological: the number of links down to the outlet, itself included;
    - link: its number, 1, 2, ... in row-major order of first cells.

    The main one of several links that flow together has the largest sum at its lower end; of equal
    ones, the one whose last cell comes first in row-major order. Nothing depends on block size,
    memory limit or threads.

    The line of a link leads from its first cell to the next junction or the outlet. A link of one
    cell, an outlet at which links end, has none. Its attributes are

    - id: its number; downstream: the link that it flows into, 0 at outlets; outlet: the last link
      downstream;
    - start, end: ids (row * columns + column) of the cells at which its line begins and ends;
      cells: the number of its own cells, without the next junction;
    - length: of the line, in map units, or in metres for a geographic CRS; sinuosity: length by the
      straight distance between its ends; drop, slope: the difference of their elevations, and this
      by the length;
    - accumulation: the sum at its last cell;
    - edge_cells, if wanted: how many cells on the edge of the data (at the raster's edge or next to
      nodata) drain inwards and through its last cell; 0 where the sum is complete;
    - strahler, shreve, horton, hack, topological: its orders;
    - pfafstetter: its code after Verdin and Verdin (1999), as text; equal links of the networks of
      different outlets have equal codes.

    A junction has its id, its kind ("head", "junction" where links meet, or "outlet"), the number
    of links upstream that end there, the link downstream that begins there (0 at outlets) and the
    elevation of its cell.

    Examples
    --------
    >>> result = streams("dem.zarr", "5km2")
    >>> orders = result.layer.read_window(0, 100, 0, 100)
    """


def terrain_indices(
    store: StoreLike,
    *,
    twi: str | None = None,
    spi: str | None = None,
    ls: str | None = None,
    slope: str = "slope",
    accumulation: str = "flow_accumulation",
    min_slope: float = 0.1,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Compute topographic wetness (TWI), stream power (SPI) and the length-slope factor (LS).

    With slope b and specific catchment area a: the flow accumulation divided by the width of the
    cell, which is the square root of its area. Areas and widths are in metres where the CRS has
    another unit; without a CRS, map units count as metres.

    Cells without a slope, such as those on the edge of the raster, or without accumulation are
    nodata (-9999).

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    twi
        Layer to write the wetness index to: ln(a / tan b).
    spi
        Layer to write the stream power index to: a tan b.
    ls
        Layer to write the length-slope factor to: (a / 22.13)^0.4 (sin b / 0.0896)^1.3.
    slope
        Layer of slopes b, in degrees.
    accumulation
        Layer of flow accumulation: areas, or cells where all have the same area.
    min_slope
        Slope that the wetness index assumes for flatter cells.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` have the names given: float32.

    Raises
    ------
    InputError
        when no index is asked for, a name cannot be used, cells are counted that differ in area, or
        a slope is not from 0 to 90.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    Beven and Kirkby (1979), Hydrological Sciences Bulletin 24 (TWI); Moore, Grayson and Ladson
    (1991), Hydrological Processes 5 (SPI); Moore and Burch (1986), Soil Science Society of America
    Journal 50 (LS).

    Examples
    --------
    >>> result = terrain_indices("dem.zarr", twi="twi", ls="ls")
    >>> wetness = result.layers["twi"].read_window(0, 100, 0, 100)
    """


def watershed(
    store: StoreLike,
    pour_points: PlacesLike | None = None,
    *,
    links: str | None = None,
    snap: float | str | None = None,
    snap_area: float | str | Mapping[int, float | str] | None = None,
    accumulation: str = "flow_accumulation",
    directions: str = "flow_direction",
    into: str = "watershed",
    table: PathLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | Literal["auto"] = silent,
) -> Result:
    """Label watersheds: every cell with the pour point that its flow reaches first.

    Labels are 1, 2, ... in the order of the points, or the ids of a file. Several points in one
    cell have the lowest of their labels. Cells that reach no pour point are 0, the nodata value.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Layers that the function needs and the store
        lacks are computed first.
    pour_points
        Cells, in the forms that `shortest_paths` accepts as sources. Their ids are the labels: 1,
        2, ... in the given order, or those of a `Places`.
    links
        Instead: label each cell with the first value on its flow path in this layer of whole
        numbers that is neither 0 nor nodata, such as the links of streams (streams --order link).
    snap
        Move each pour point to the cell with the largest accumulation within this distance, such as
        200m, or 3px for cells. Of equal ones to the nearest.
    snap_area
        Instead, move each to the cell within `snap` whose accumulation differs least from this: a
        number of cells, or an area such as "5km2"; or one for every id of the pour points.
    accumulation
        Layer of flow accumulation, for `snap`.
    directions
        Layer of flow directions.
    into
        Layer to write the labels to.
    table
        Also write a table of the pour points or links, with cell counts, areas and the next one
        downstream: .csv, .parquet, .geojson, .gpkg or .fgb. It is not verified.
    memory_limit
        Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter of
        RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells; "auto" for a tqdm bar.

    Returns
    -------
    Result
        Its `layers` are named `into`: uint32, or of the type of `links`; and, with pour points,
        `into` and "_points": the points, so that watersheds can be proven. `found` has the number
        of "pour_points".

    Raises
    ------
    InputError
        when a name cannot be used, there is not exactly one of `pour_points` and `links`, or a pour
        point lies outside the raster, does not drain, or has nothing to snap to.
    StoreError
        when the store is damaged or lacks a layer, when directions form a loop without a pour
        point, or when the layer exists already.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has one of the results.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Examples
    --------
    >>> labels = watershed("dem.zarr", [(120, 40), (300, 200)], snap="200m").layers["watershed"]
    """
