"""Choose the compression of the layers that a run writes."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..arguments import refused
from ..facts import Settings
from ..plurals import counted
from ..store.objects import ObjectPath
from ..store.run import begun_compression
from ..store.swap import absolute
from .machine import MB
from .operation import OutputFile, OutputLayer
from .plan import format_size

if TYPE_CHECKING:
    from ..store import Layer
    from .operation import Operation

log = logging.getLogger(__name__)

FAST = "blosc-lz4"
CODING = 1000 * MB
"""Bytes that a processor compresses with `FAST` per second; see `python -m bench codecs`."""
SAVED = 0.5
"""Fraction of the bytes that `FAST` saves in most layers, at least."""
SMALL = 64 * MB
"""Layers up to this size, in bytes, are not worth a measurement."""
PIECES = 4, 4, 8, 16
"""Amounts of MB written in turn to measure a disk, until it proves to be fast."""


def outputs_of(
    operation: Operation, compress: str | None, threads: int, *, resume: bool
) -> list[OutputLayer | OutputFile]:
    """Return the outputs of an operation, with the compression of layers set.

    Parameters
    ----------
    compress
        A name in `store.coding.NAMES`, "auto", "none" or None. A compression that the operation
        itself sets is kept.
    resume
        Whether "auto" keeps the choice of the run that is resumed.
    """
    outputs = list(operation.outputs)
    name = None if compress == "none" else compress
    for n, output in enumerate(outputs if name else ()):
        if not isinstance(output, OutputLayer) or output.compress:
            continue
        if name != "auto":
            outputs[n] = replace(output, compress=name)
            continue
        begun: tuple[str | None, ...] = ()
        if resume:
            begun = begun_compression(operation.store, output.name, operation.fingerprint())
        size = operation.grid.cells * output.dtype.itemsize
        compression = begun[0] if begun else chosen(operation.store, size, threads)
        outputs[n] = replace(output, compress=compression)
    return outputs


def refuse_for_arrays(compress: str | None) -> None:
    """Reject compression of results that are arrays."""
    if compress not in (None, "none"):
        raise refused(
            "compress",
            " {value}: the results for an array are arrays, which are not compressed; leave it "
            "out, or give a store",
            value=repr(compress),
        )


def told_of(compress: str | None, layers: Mapping[str, Layer]) -> Settings:
    """Return the compression of layers for the report, if it was requested."""
    return {"compress": {n: layer.compress for n, layer in layers.items()}} if compress else {}


def chosen(store: str | os.PathLike[str], size: int, threads: int) -> str | None:
    """Choose `FAST` if it saves more disk time than it costs processor time, else None.

    Parameters
    ----------
    size
        Bytes of the layer's cells.
    threads
        Number of threads that compress.
    """
    root = absolute(store)
    if isinstance(root, ObjectPath):
        name: str | None = FAST
        why = "object storage"
    elif size <= SMALL:
        name, why = FAST, f"at most {format_size(SMALL)}"
    else:
        enough = SAVED * threads * CODING
        rate = write_rate(root, enough)
        name = FAST if rate < enough else None
        coded = (
            f"{counted(threads, 'thread codes', 'threads code')} {format_size(threads * CODING)}/s"
        )
        why = f"the disk writes {format_size(rate)}/s, {coded}"
    log.info("%s: --compress auto chooses %s (%s)", root, name or "none", why)
    return name


def write_rate(folder: Path, enough: float) -> float:
    """Measure how many bytes per second the disk of a folder writes durably.

    A few MB show that a disk is fast. If they are written more slowly than at the rate `enough`,
    larger amounts follow, so that neither latency nor another program spoils the result. Returns
    the best rate, 0 if nothing can be written. Measured once per process for every folder and rate.
    """
    while not folder.exists():
        folder = folder.parent
    return _write_rate(folder.stat().st_dev, str(folder), enough)


@cache
def _write_rate(device: int, folder: str, enough: float) -> float:
    data, best = os.urandom(MB), 0.0  # some disks compress
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for count in PIECES:
                start = time.perf_counter()
                for _ in range(count):
                    file.write(data)
                os.fsync(file.fileno())
                best = max(best, count * MB / (time.perf_counter() - start))
                if best >= enough:
                    break
    except OSError:
        return 0.0
    return best
