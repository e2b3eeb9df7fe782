"""Kernels that numba compiles: without Python's lock, and kept on disk where there is a place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numba

log = logging.getLogger(__name__)


def jit(function: Callable[..., Any]) -> Any:
    """`numba.njit` of a kernel."""
    try:
        return numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return numba.njit(function, nogil=True)


def known_types(kernel: Any) -> list[tuple[Any, ...]]:
    """Argument types that a kernel is compiled for, now or in numba's cache."""
    kept = kernel._cache._cache_file._load_index() if _is_kept(kernel) else {}
    return [*kernel.signatures, *(key[0] for key in kept)]


def tell_compiling(kernel: Any, what: str) -> None:
    """Say that kernels are about to be compiled."""
    for_ever = "this happens once"
    if not _is_kept(kernel):
        for_ever = "set NUMBA_CACHE_DIR to a folder that can be written, and this happens once"
    log.warning("compiling kernels for %s; %s", what, for_ever)


def _is_kept(kernel: Any) -> bool:
    return hasattr(kernel._cache, "_cache_file")
