"""Runs that build a layer: where it is built, and what is resumed or replaced."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from .. import arguments, cells
from ..errors import InputError, StoreError
from ..facts import JsonObject, Settings
from ..grid import GridSpec, wkt_name
from ..grid.crs import same_crs
from .checksums import DIGESTS, sealed_line, unsealed_line
from .coding import NAMES
from .coordinates import write_group
from .files import new_file, output_errors, sync_files, sync_folder, sync_tree
from .layer import KEY, Layer, Number
from .metadata import (
    FORMAT,
    LONGEST_NAME,
    NAME,
    RESERVED,
    TileStore,
    drop_consolidated,
    write_array,
)
from .objects import AnyPath, ObjectPath
from .removal import drop_overviews, folder_of_runs
from .swap import (
    absolute,
    beside,
    exclusive,
    is_layer,
    is_locked,
    must_be_ours,
    recover,
    refuse_inside,
    remove_ours,
    swap,
    withdraw,
)
from .writer import SMALL, FileShards, LayerWriter, Record

if TYPE_CHECKING:
    from .bucket import BucketTarget

DEFAULT_BLOCK = 1024


class Target:
    """The folders in which a layer is built, and its final one; does all renames of a run."""

    def __init__(self, root: Path, name: str, *, replace_store: bool) -> None:
        self.root = root
        self.replace_store = replace_store
        """Whether the whole store is new; it is then built next to its final path."""
        self.base = beside(root, "incomplete") if replace_store else root
        self.folder = folder_of_runs(self.base)
        self.work = self.folder / name
        self.manifest = self.folder / f"{name}.jsonl"
        self.temporary = self.folder / f"{name}.tmp"
        self.spill = self.folder / f"{name}.spill"
        self.place = self.base / name
        self._lock = -1
        self._was_there = root.exists()

    def refuse_links(self) -> None:
        """Reject links where a run writes, because they point out of the store.

        Raises
        ------
        StoreError
        """
        paths = [self.folder, self.manifest, self.work, self.temporary, self.spill]
        for top in paths[2:]:
            for folder, folders, files in os.walk(top):
                # Shards are replaced, not written into.
                paths += [Path(folder, n) for n in (*folders, *(files if top != self.work else ()))]
        for path in paths:
            if path.is_symlink():
                raise StoreError(f"{path}: is a link where runs write; delete it")

    def begin(self, grid: GridSpec, header: JsonObject) -> None:
        """Start from scratch: a new store folder if needed, and an empty manifest."""
        if self.replace_store:
            for other in self.folder.glob("*.jsonl"):
                if is_locked(other):
                    raise StoreError(_is_writing(self.root, other.stem))
                if other != self.manifest:
                    raise StoreError(
                        f"{self.root}: an unfinished run of layer {other.stem!r} is making this "
                        f"store; finish it first (--resume), or delete {self.base}"
                    )
            remove_ours(self.base)
            write_group(self.base, grid)
        self.clear()
        self.folder.mkdir(exist_ok=True)
        # After a power cut, deleted files must not reappear next to the new manifest.
        sync_folder(self.folder)
        self.temporary.mkdir()
        with new_file(self.manifest, self.temporary / self.manifest.name) as file:
            file.write(sealed_line(header))
        sync_folder(self.folder)

    @property
    def shards(self) -> FileShards:
        """Writes shards."""
        return FileShards(self.temporary)

    def shards_by(self, temporary: Path) -> FileShards:
        """Writes shards from another process, through its own temporary folder."""
        return FileShards(temporary)

    def is_busy(self) -> bool:
        """Whether a live process holds the run."""
        return is_locked(self.manifest)

    def start(self, layer: Layer, header: JsonObject, *, resumed: bool) -> None:
        """Begin or resume the run, as its only writer."""
        if not resumed:
            self.begin(layer.grid, header)
        self.lock()
        self.temporary.mkdir(exist_ok=True)  # it may be missing after a kill
        write_array(layer, self.temporary)

    def recorded(self, line: bytes) -> None:
        """Called for each line appended to the manifest; does nothing here."""

    def look(self, layer: Layer, *, checked: bool) -> Callable[[Record], bool]:
        """Return a function that checks whether the shard of a record exists.

        Parameters
        ----------
        checked
            Whether to read its checksums as well, because another run wrote it.
        """

        def is_there(record: Record) -> bool:
            try:
                if os.stat(layer.shard_path(*record.at)).st_size != record.size:
                    return False
            except FileNotFoundError:
                return record.size == 0
            except OSError:
                return False
            return not checked or layer.holds(*record.at, record.digest, small=record.size < SMALL)

        return is_there

    @property
    def complete(self) -> bool:
        """Whether the layer is complete, and only its last rename failed."""
        return not self.manifest.exists()

    def complete_layer(self, layer: Layer, size: np.ndarray, digests: np.ndarray) -> None:
        """Write the files of the layer other than its shards, of these sizes and digests."""
        small = np.argwhere((size > 0) & (size < SMALL))
        sync_files(layer.shard_path(int(i), int(j)) for i, j in small)
        with new_file(layer.path / DIGESTS, self.temporary / DIGESTS) as file:
            file.write(digests.astype("<u8").tobytes())
        write_array(layer, self.temporary)
        sync_tree(layer.path)

    def header(self) -> JsonObject | None:
        """First line of the manifest of an unfinished run; None if there is none."""
        if not self.work.exists():  # killed before the first or after the last step
            return None
        try:
            with open(self.manifest, "rb") as lines:
                header = unsealed_line(next(lines, b""))
        except FileNotFoundError:
            return None
        return header if isinstance(header, dict) else None

    def lock(self) -> None:
        """Lock the run; raise StoreError if another process holds it."""
        try:
            self._lock = os.open(self.manifest, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise StoreError(_is_writing(self.root, self.work.name)) from None
        # Workers of a run that was killed may still be alive.
        for folder in self.spill.glob("lent-*"):
            withdraw(folder)

    def publish(self, *, finished: bool) -> Layer:
        """Move the layer into place, unless it was `finished` before; remove other files."""
        with exclusive(self.root):
            self._publish(finished=finished)
            return TileStore.open(self.root).layer(self.place.name)

    def _publish(self, *, finished: bool) -> None:
        if self.replace_store and self.root.exists() and not self._was_there:
            raise StoreError(
                f"{self.root}: was created while this run was building it; move it and --resume"
            )
        if not finished:
            swap(self.work, self.place, beside(self.work, "replaced"))
        drop_consolidated(self.base)
        drop_overviews(self.base, self.place.name)
        self.clear()
        if self.replace_store and self.base.exists():
            swap(self.base, self.root, beside(self.root, "replaced"))
        self._unlock()

    def release(self, *, keep: bool) -> None:
        """Stop without publishing; with `keep`, keep what a later run can resume."""
        if not keep:
            self.clear()
            if self.replace_store:
                with contextlib.suppress(OSError):
                    remove_ours(self.base)
        self._unlock()

    def tidy(self) -> None:
        """Remove files left by runs of other layers that were killed between their last steps."""
        left = [
            path for path in self.folder.glob("*.*") if path.suffix in (".jsonl", ".tmp", ".spill")
        ]
        for name in {path.stem for path in left} - {self.place.name}:
            other = Target(self.root, name, replace_store=False)
            # A run without its folder cannot be resumed.
            if not other.work.exists() and not other.is_busy():
                other.clear()

    def clear(self) -> None:
        self.manifest.unlink(missing_ok=True)
        for path in (self.work, self.temporary, self.spill):
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def create_layer(
    path: str | os.PathLike[str],
    name: str,
    grid: GridSpec,
    dtype: DTypeLike,
    *,
    nodata: Number | None = None,
    block_size: int = DEFAULT_BLOCK,
    compress: str | None = None,
    attributes: JsonObject | None = None,
    settings: Settings | None = None,
    overwrite: bool = False,
    resume: bool = False,
    origin: str = "the new layer",
) -> LayerWriter:
    """Begin a layer in a new or existing store.

    The layer appears under its name, complete, when the writer's `commit` is called. A new store is
    built next to its final path and appears with its first layer.

    Parameters
    ----------
    path
        The store, which may not exist yet. An existing store must have the same grid; if it holds
        only the layer to overwrite, it may also be replaced by a store with a different grid.
    nodata
        The nodata value; also the value of absent tiles.
    block_size
        Side of a block, a power of two from 64 to 8192.
    compress
        None, "blosc-lz4", "blosc-zstd" or "zstd".
    attributes
        Zarr attributes of the array, such as "units".
    settings
        Settings that the cells depend on (JSON). A run is resumed only with equal settings.
    overwrite
        Replace an existing layer, or discard an unfinished run.
    resume
        Continue an unfinished run, if there is one. With `overwrite`, a run with other settings is
        discarded.
    origin
        Origin of the cells, for messages.

    Raises
    ------
    InputError
        when an argument is not valid for a layer.
    StoreError
        when the layer exists, the grid of the store is different, or there is an unfinished run.
    OutputError
        when the folder cannot be written.
    """
    root = absolute(arguments.path("path", path))
    check_layer_name(root, name)
    dtype = cells.layer_dtype(dtype)
    if compress not in (None, *NAMES):
        raise InputError(f"compression {compress!r} is not known; use {', '.join(NAMES)} or None")
    if nodata is not None:
        nodata = cells.as_scalar(nodata, dtype)
    header = _header(grid, dtype, nodata, block_size, compress, settings or {})
    records = {"nodata": cells.to_json(nodata), "settings": header["settings"]}
    layer = Layer(
        root / name, grid, dtype, block_size, nodata, compress, {**(attributes or {}), KEY: records}
    )
    for suffix in ("incomplete", "replaced"):
        if root.name.endswith(f".{suffix}"):
            raise InputError(f"{root}: names that end in .{suffix} are reserved; use another")
    with output_errors(root), _exclusive(root):
        make_target = _in_bucket if isinstance(root, ObjectPath) else _in_folder
        target = make_target(root, layer, origin, resume=resume, overwrite=overwrite)
        resumed = _resume_or_clear(target, header, resume=resume, overwrite=overwrite)
        if resumed == "finished":
            existing = TileStore.open(target.base).layer(name)
            return LayerWriter(target, existing, finished=True)
        if resumed and (target.base / "zarr.json").exists():
            layer.grid = TileStore.open(target.base).grid  # with the same CRS text
        try:
            target.start(layer, header, resumed=bool(resumed))
            return LayerWriter(target, layer, finished=False)
        except BaseException as error:
            # After a StoreError the folder belongs to another run and must not be cleared.
            if not isinstance(error, StoreError):
                target.release(keep=bool(resumed))
            raise


def _exclusive(root: Path) -> AbstractContextManager[None]:
    """`exclusive`, except in object storage, which has no locks."""
    return contextlib.nullcontext() if isinstance(root, ObjectPath) else exclusive(root)


def _in_folder(root: Path, layer: Layer, origin: str, *, resume: bool, overwrite: bool) -> Target:
    """The target of a layer in a folder; sets the path and grid of the layer."""
    recover(beside(root, "incomplete"), root, beside(root, "replaced"))
    name, existing = layer.name, root.exists()
    if not existing:
        refuse_inside(root)
    replace_store = not existing or _replaces(root, name, layer.grid, origin, overwrite=overwrite)
    target = Target(root, name, replace_store=replace_store)
    layer.path = target.work
    if not replace_store:
        layer.grid = TileStore.open(root).grid  # to the last bit
    if replace_store:
        must_be_ours(target.base)
        if existing:
            must_be_ours(beside(root, "replaced"))
    target.refuse_links()
    if not replace_store:
        target.tidy()
    return target


def _in_bucket(
    root: AnyPath, layer: Layer, origin: str, *, resume: bool, overwrite: bool
) -> BucketTarget:
    """The target of a layer in a bucket; completes a run that was killed during its commit."""
    from .bucket import BucketTarget

    if (root / "zarr.json").exists():
        layer.grid = _same_grid(root, layer.grid, origin)
    else:
        refuse_inside(root)
    target = BucketTarget(root, layer.name)
    if resume or overwrite:
        target.recover()
    return target


def unfinished_inputs(path: str | os.PathLike[str], name: str) -> list[str] | None:
    """The layers that an unfinished run of a layer reads; None if there is no such run."""
    if not (header := _unfinished(path, name)):
        return None
    of = (header.get("settings") or {}).get("of")
    return list(of) if isinstance(of, dict) else []


def unfinished_block_size(path: str | os.PathLike[str], name: str) -> int | None:
    """Block size of an unfinished run of a layer; None if there is none."""
    size = _unfinished(path, name).get("block_size")
    return size if isinstance(size, int) else None


def begun_dtype(path: str | os.PathLike[str], name: str, settings: Settings) -> str | None:
    """Dtype name of the run that would be resumed: unfinished, or finished with `settings`.

    None if there is no such run.
    """
    if header := _unfinished(path, name):
        return header.get("dtype")
    if (existing := TileStore.open(path).find(name)) is None:
        return None
    return existing.dtype.name if _same_settings(existing, settings) else None


def begun_compression(
    path: str | os.PathLike[str], name: str, settings: Settings
) -> tuple[str | None, ...]:
    """The compression of the same run as for `begun_dtype`; empty if there is no such run."""
    if header := _unfinished(path, name):
        return (header.get("compress"),)
    with contextlib.suppress(StoreError):
        existing = TileStore.open(path).find(name)
        if existing and _same_settings(existing, settings):
            return (existing.compress,)
    return ()


def _compared(settings: Any) -> Settings:
    """The settings that two runs must agree on, except the CRS, which is compared with the grid."""
    plain: Settings = json.loads(json.dumps(dict(settings or {})))
    return {name: value for name, value in plain.items() if name != "crs"}


def _same_settings(layer: Layer, settings: Settings) -> bool:
    return _compared(layer.info.get("settings")) == _compared(settings)


def _unfinished(path: str | os.PathLike[str], name: str) -> JsonObject:
    root = absolute(path)
    if isinstance(root, ObjectPath):
        from .bucket import BucketTarget

        return BucketTarget(root, name).header() or {}
    return Target(root, name, replace_store=not root.exists()).header() or {}


def _same_grid(root: AnyPath, grid: GridSpec, origin: str) -> GridSpec:
    """The exact grid of a store in a bucket, which must be the same as `grid`."""
    existing = TileStore.open(root).grid
    if _is_same(existing, grid):
        return existing
    raise StoreError(f"{_other_grid(root, existing, grid, origin)} (or delete it first)")


def _is_same(existing: GridSpec, grid: GridSpec) -> bool:
    comparable = bool(existing.crs_wkt) or not grid.crs_wkt
    return comparable and existing.same_place(grid) and same_crs(existing.crs_wkt, grid.crs_wkt)


def _other_grid(root: Path, existing: GridSpec, grid: GridSpec, origin: str) -> str:
    command = existing.warp_command(origin) if os.path.isfile(origin) else None
    return (
        f"{root}: has a different grid ({_describe(existing)}) than {origin} ({_describe(grid)}); "
        + (f"warp it to fit ({command}), or " if command else "")
        + "choose another store"
    )


def _replaces(root: Path, name: str, grid: GridSpec, origin: str, *, overwrite: bool) -> bool:
    """Whether writing `name` replaces the whole store, which is the case if the grids differ."""
    store = TileStore.open(root)
    if _is_same(store.grid, grid):
        return False
    ours = {"zarr.json", *RESERVED, ".incomplete", name, f"{name}.jsonl", f"{name}.tmp"}
    others = {p.name for p in (*root.iterdir(), *root.glob(".incomplete/*"))} - ours
    if overwrite and not others:
        return True
    raise StoreError(
        _other_grid(root, store.grid, grid, origin)
        + ("" if others else " or --overwrite")
        + (f" (--overwrite would lose {min(others)!r})" if overwrite else "")
    )


def _describe(grid: GridSpec) -> str:
    layout = f"{grid.rows} x {grid.cols}, transform {list(grid.transform)}"
    return f"{layout}, {grid.crs_name or 'no CRS'}"


def _header(
    grid: GridSpec,
    dtype: np.dtype,
    nodata: Number | None,
    block_size: int,
    compress: str | None,
    settings: Settings,
) -> JsonObject:
    header = {
        "format": FORMAT,
        "shape": list(grid.shape),
        "transform": list(grid.transform),
        "crs": grid.crs_wkt,
        "dtype": dtype.name,
        "nodata": cells.to_json(nodata),
        "block_size": block_size,
        "compress": compress,
        "settings": dict(settings),
    }
    return json.loads(json.dumps(header))


def unfinished_run(root: Path | ObjectPath, name: str) -> str:
    """The message when neither resume nor overwrite is set and there is an unfinished run."""
    return (
        f"{root}: has an unfinished run of layer {name!r}; --resume continues it, "
        "--overwrite starts again"
    )


def _is_writing(root: Path | ObjectPath, name: str) -> str:
    return f"{root}: another run is writing {name!r}; wait until it ends"


def _resume_or_clear(
    target: Target | BucketTarget, header: JsonObject, *, resume: bool, overwrite: bool
) -> str | None:
    """Decide how to treat existing files: "resume", "finished", or None to start again."""
    if target.is_busy():
        raise StoreError(_is_writing(target.root, target.place.name))
    unfinished = target.header()
    if unfinished is not None and resume:
        differs = _difference(target.root, unfinished, header)
        if not differs:
            return "resume"
        if not overwrite:
            raise StoreError(differs)
    elif unfinished is not None and not overwrite:
        raise StoreError(unfinished_run(target.root, target.place.name))
    in_folder = isinstance(target, Target) and not target.replace_store
    if in_folder and target.place.exists() and not is_layer(target.place):
        raise StoreError(f"{target.place}: exists and is not a layer of this program; move it")
    if (target.place / "zarr.json").exists():
        if resume:
            existing = TileStore.open(target.base).layer(target.place.name)
            same = (
                _same_settings(existing, header["settings"])
                and cells.to_json(existing.nodata) == header["nodata"]
                and (existing.dtype.name, existing.compress)
                == (header["dtype"], header["compress"])
            )
            # Even with --overwrite, a run killed after its last rename is finished, since the
            # settings agree.
            if same and (target.replace_store or not overwrite or header["settings"]):
                return "finished"
        if not overwrite and not target.replace_store:
            raise StoreError(
                f"{target.root}: layer {target.place.name!r} exists; --overwrite replaces it"
            )
    return None


def _difference(root: Path, was: Settings, now: Settings) -> str:
    """The reason why a run with these settings cannot continue an unfinished one; "" if it can."""
    pairs = [(was, now), (_compared(was.get("settings")), _compared(now["settings"]))]
    for old, new in pairs:
        keys = sorted((old.keys() | new.keys()) - {"settings"})
        # First an option that the user set, last its consequences: which layers are read.
        inputs = [None, *(old.get("of") or ()), *(new.get("of") or ())]
        layers = {key for key in keys if old.get(key) in inputs and new.get(key) in inputs}
        for key in sorted(
            keys, key=lambda key: (key == "of", key in layers, key not in new, key not in old)
        ):
            if old.get(key) == new.get(key) or (key == "crs" and _mean_same(old, new)):
                continue
            if key == "inputs":
                changed = [f[0] for f in new.get(key) or [] if f not in (old.get(key) or [])]
                return (
                    f"{root}: cannot resume: {', '.join(changed[:3]) or 'the list of inputs'} "
                    "differs from what the unfinished run read (path, size, time); "
                    "--overwrite starts again"
                )
            if key == "of":
                was_of, now_of = old.get(key), new.get(key) or {}
                changed = [n for n in now_of if not was_of or was_of.get(n) != now_of[n]]
                return (
                    f"{root}: cannot resume: layer {(changed or [''])[0]!r} differs from what the "
                    "unfinished run read; --overwrite starts again"
                )
            before, after = old.get(key), new.get(key)
            if key == "crs" and isinstance(before, str) and isinstance(after, str):
                names = wkt_name(before), wkt_name(after)
                before, after = names if names[0] != names[1] else (before, after)
            return (
                f"{root}: cannot resume: {key} was {before!r} and is now {after!r}; "
                "use the same value, or --overwrite to start again"
            )
    return ""


def _mean_same(old: JsonObject, new: JsonObject) -> bool:
    """Whether two headers name the same CRS: PROJ's text of a code may differ between runs."""
    was, now = old.get("crs"), new.get("crs")
    if not isinstance(was, str) or not isinstance(now, str):
        return False
    return bool(was) == bool(now) and same_crs(was, now)


def check_layer_name(root: Path, name: str) -> None:
    if len(name) > LONGEST_NAME:
        raise InputError(
            f"{root}: layer name {name!r} has {len(name)} characters, but at most {LONGEST_NAME} "
            "are allowed; choose a shorter name"
        )
    if not NAME.fullmatch(name) or name in RESERVED:
        raise InputError(
            f"{root}: layer name {name!r}: use letters, digits, '-' and '_', starting with a "
            f"letter, and none of {', '.join(RESERVED)}"
        )
