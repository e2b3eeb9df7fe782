"""Verify the shortest paths of a store from the recorded problem: `verify_stored`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from ...arguments import Devices, PathConnectivity, PathMetric
from ...cuda.backend import find_gpu
from ...engine.machine import CUDA_BASELINE
from ...engine.proof import Limits
from ...errors import InputError, StoreError, VerificationError
from ...facts import Findings, Settings
from ...grid.lengths import step_lengths
from ...io.places import Places
from ...plurals import counted
from ...progress import Progress, silent
from ...store import Layer, TileStore
from ..cost.knights import Options, halo_of, options_of
from ..cost.models import AS_THEY_ARE, CostModel
from ..cost.steps import RESULTS, layer_named
from ..cost.terrain import Raster, Terrain
from ..cost.wrap import LEAST
from .checker import RingAcrossSeam, threads_within, upper_limit, verify_paths
from .roots import KnownRoots

if TYPE_CHECKING:
    from ...engine.cluster import Cluster

CONTINUOUS = {
    "cost": ("friction",),
    "connectivity": (8,),
    "max_slope": (None,),
    "wrap": (None, False, True),
}
"""The settings that a run with the continuous metric may record."""


def verify_stored(
    store: TileStore,
    into: str = "distance",
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
    backend: str = "cpu",
    device: Devices = 0,
    gpu_memory_limit: int | None = None,
    progress: Progress = silent,
    cluster: Cluster | None = None,
) -> Findings:
    """Check a layer of distances, and backlinks and allocation if the store has them.

    The sources are not recorded; `KnownRoots` infers them.

    Parameters
    ----------
    backend, device, gpu_memory_limit
        As for `shortest_paths`; of several GPUs, the first one is used.
    cluster
        Its workers check the blocks, on CPUs.

    Returns
    -------
    dict
        As from `verify_paths`, and "sources" (their number), "sources_from" and "layers".

    Raises
    ------
    VerificationError
        at the first violation found.
    StoreError
        when a layer or its metadata is damaged, or the cells have changed since.
    """
    layers = layers_of(store, into)
    distance = layers["distance"]
    recorded = RecordedPaths(distance)
    check_settings(store, layers, recorded)
    if recorded.metric == "continuous":
        backend = "cpu"
    if cluster is not None:
        threads, backend = cluster.threads, "cpu"
    limits = Limits.of(memory_limit, threads, progress, cluster)
    least = 1 if cluster is None else cluster.threads
    needs = distance.blocks, distance.dtype.itemsize
    within = partial(threads_within, *needs, halo=halo_of(recorded.options), least=least)
    gpu = find_gpu(
        backend,
        device,
        gpu_memory_limit,
        memory_limit,
        distance.block_size,
        fits=lambda: within(limits.machine, held=CUDA_BASELINE),
        doing="verifying ",
    )
    with limits.planning() as machine:
        workers = within(machine, held=0 if gpu is None else CUDA_BASELINE)
    terrain, farthest = recorded.problem(store)  # with lengths of steps, which were planned
    reads = {
        name: RingAcrossSeam(layer.read_ring, terrain.blocks) for name, layer in layers.items()
    }
    problem = KnownRoots(terrain, linked="backlink" in layers)
    try:
        found: Findings = dict(
            verify_paths(
                problem,
                terrain.model.kernel,
                recorded.options,
                distance.dtype,
                reads["distance"],
                *map(reads.get, RESULTS[1:]),
                farthest=farthest,
                threads=workers,
                gpu=gpu,
                progress=progress,
                cluster=cluster,
            )
        )
        recorded.compare(found["reached"], problem.count if "backlink" in layers else 0)
    except VerificationError as error:
        error.args = (f"{distance.path}: {error}; compute it again with --overwrite",)
        raise
    kind = "height" if terrain.model.kind.bottleneck else "distance 0"
    return {
        **found,
        "sources": problem.count,
        "sources_from": "backlinks" if "backlink" in layers else f"cells at {kind}",
        "layers": [layer.name for layer in layers.values()],
    }


def layers_of(store: TileStore, into: str) -> dict[str, Layer]:
    """The existing layers of distances, backlinks and allocation."""
    if into not in store:
        raise StoreError(f"{store.path}: no layer {into!r}; compute one with compute-sssp")
    named = {name: store.find(layer_named(into, name)) for name in RESULTS}
    return {name: layer for name, layer in named.items() if layer is not None}


def check_settings(store: TileStore, layers: dict[str, Layer], recorded: RecordedPaths) -> None:
    """Refuse layers that cannot be verified, or do not come from the same run."""
    distance = layers["distance"]
    if recorded.settings.get("method") == "index":
        raise StoreError(
            f"{distance.path}: real distances from an index are exact only within 1e-12 and cannot "
            "be verified; compute it again without --method index"
        )
    if "allocation" in layers and "backlink" not in layers:
        raise StoreError(
            f"{store.path}: verifying 'allocation' needs the layer 'backlink', which is missing; "
            "compute both again"
        )
    for name, layer in layers.items():
        same = layer.blocks == distance.blocks and layer.info.get("settings") == recorded.settings
        if not same or distance.name in store.stale(layer):
            raise StoreError(
                f"{layer.path}: not from the same run as {distance.path}; compute it again or "
                "delete it"
            )
        expected = {"distance": distance.dtype.name, "backlink": "uint8", "allocation": "uint32"}
        if layer.dtype.name != expected[name]:
            raise StoreError(f"{layer.path}: cells of type {layer.dtype.name}; compute it again")
    if recorded.metric == "continuous":
        for key, right in CONTINUOUS.items():
            if (value := recorded.settings.get(key)) not in right:
                raise recorded.damaged(key, value)
        if len(layers) > 1:
            raise recorded.damaged("metric", recorded.metric)
        if recorded.start_costs:
            raise StoreError(
                f"{distance.path}: its sources have start costs and are not recorded; compute it "
                "again with --verify"
            )
    if "backlink" not in layers and recorded.start_costs:
        raise StoreError(
            f"{distance.path}: its sources have start costs and can only be found from backlinks; "
            "compute it again with --backlink"
        )


class RecordedPaths:
    """The problem as recorded with a layer of distances; checked, as it may be damaged."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        settings = layer.info.get("settings")
        self.settings: Settings = settings if isinstance(settings, dict) else {}
        if self.settings is not settings:
            raise self.damaged("settings", settings)
        result = layer.info.get("result")
        if not isinstance(result, dict):
            raise self.damaged("result", result)
        self.result = result
        self.start_costs = layer.info.get("start_costs") is not False

    def damaged(self, key: str, value: object) -> StoreError:
        return StoreError(
            f"{self.layer.path}/zarr.json: {key} is recorded as {value!r}; compute it again"
        )

    def get(self, key: str, *kinds: type) -> Any:
        """A setting, which must have exactly one of the types."""
        value = self.settings.get(key)
        if type(value) not in kinds:
            raise self.damaged(key, value)
        return value

    @property
    def connectivity(self) -> int:
        found: int = self.get("connectivity", int)
        if found not in get_args(PathConnectivity):
            raise self.damaged("connectivity", found)
        return found

    @property
    def options(self) -> Options:
        how = self.get("corner_cutting", bool), self.get("reverse", bool)
        return options_of(self.connectivity, *how, self.metric)

    @property
    def metric(self) -> str:
        found = self.settings.get("metric", "steps")
        if found not in get_args(PathMetric):
            raise self.damaged("metric", found)
        return str(found)

    @property
    def metres(self) -> tuple[float, float]:
        found = self.settings.get("metres", list(AS_THEY_ARE))
        good = type(found) is list and [type(factor) for factor in found] == [float, float]
        if not (good and all(map(math.isfinite, found)) and found[1] > 0):
            raise self.damaged("metres", found)
        return found[0], found[1]

    @property
    def wraps(self) -> bool:
        wrap = self.settings.get("wrap", False)
        if type(wrap) is not bool or (wrap and self.layer.grid.cols < LEAST[self.connectivity]):
            raise self.damaged("wrap", wrap)
        return wrap

    def problem(self, store: TileStore) -> tuple[Terrain, Any]:
        """The problem without sources, and the largest distance that is propagated."""
        nothing = type(None)
        names = {key: self.get(key, str, nothing) for key in ("layer", "friction", "barriers")}
        layers = {}
        for key, name in names.items():
            if (name is None and key == "layer") or name in RESULTS:
                raise self.damaged(key, name)
            if name is not None:
                layers[key] = store.layer(name)
        source = layers["layer"]
        of = self.get("of", dict)
        for layer in layers.values():
            if not store.holds(layer.name, of.get(layer.name)):
                raise StoreError(
                    f"{self.layer.path}: computed from other cells than {layer.path} holds now; "
                    "compute it again with --overwrite"
                )
        parameters = self.get("parameters", dict)
        for key, value in parameters.items():
            if type(value) not in (int, float):
                raise self.damaged(f"parameter {key}", value)
        cost = self.get("cost", str)
        try:
            limit = self.get("max_slope", int, float, nothing)
            how = names["friction"] is not None, parameters, limit, self.connectivity
            model = CostModel(cost, *how, self.metres)
        except InputError as error:
            raise StoreError(f"{self.layer.path}/zarr.json: {error}; compute it again") from error
        dtype = self.layer.dtype
        right = {model.distance_dtype(source.dtype).name}
        right |= {"uint64"} if right == {"uint32"} else set()
        if dtype.name not in right or source.blocks != self.layer.blocks:
            raise StoreError(
                f"{self.layer.path}: is {dtype.name} in blocks of {self.layer.block_size}, but was "
                f"computed from {source.dtype.name} in blocks of {source.block_size}; compute it "
                "again"
            )
        max_cost = self.get("max_cost", int, float, nothing)
        least = model.kind.least
        if max_cost is not None and not max_cost >= least:
            raise self.damaged("max_cost", max_cost)
        farthest = upper_limit(max_cost, dtype)
        most = self.layer.info.get("max")
        if self.get("targets", str, nothing) is not None and type(most) in (int, float):
            # The run stopped at the farthest target, whose distance is the largest.
            farthest = min(farthest, most)
            if farthest < least:
                raise self.damaged("max", most)
        rasters = {k: Raster(layer, str(layer.path), layer.nodata) for k, layer in layers.items()}
        none = np.empty(0, np.int64)
        sources = Places(none, none, none.astype(np.uint32), none.astype(np.float64))
        return (
            Terrain(
                replace(source.blocks, wraps=self.wraps),
                model,
                rasters["layer"],
                rasters.get("friction"),
                rasters.get("barriers"),
                step_lengths(source.grid, self.connectivity),
                sources,
                dtype,
            ).stepping(self.options),
            farthest,
        )

    def compare(self, reached: int, roots: int) -> None:
        """Compare totals with those recorded by the run."""
        if self.result.get("reached") != reached:
            raise VerificationError(
                f"wrong totals: {counted(reached, 'cell is', 'cells are')} reached, but the run "
                f"recorded {self.result.get('reached')!r}",
                "totals",
            )
        most = self.result.get("sources")
        if type(most) is not int:
            raise self.damaged("sources", most)
        if roots > most and not self.get("source_edge", bool):
            raise VerificationError(
                f"wrong totals: backlinks end at {counted(roots, 'cell')}, but the run had "
                f"{counted(most, 'source')}",
                "totals",
            )
