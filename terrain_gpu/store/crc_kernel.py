"""CRC-32C of tiles with the processor's own instruction, without the interpreter's lock.

``kernel(words, slots, out)``: words uint64 of shape (tiles, words), slots int64, out uint32. It is
None if the processor has no such instruction.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from ..compiled import jit


@intrinsic
def _step(typing: Any, crc: Any, word: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word, word])
        step = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", fnty=kind)
        return builder.call(step, arguments)

    return types.uint64(types.uint64, types.uint64), emit


def _kernel(words, slots, out):  # type: ignore[no-untyped-def]
    count, length = slots.size, words.shape[1]
    start = np.uint64(0xFFFFFFFF)
    # The instruction has a latency of three cycles and a throughput of one: interleave four tiles.
    for k in range(0, count, 4):
        last = count - 1
        k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
        i0, i1, i2, i3 = slots[k], slots[k1], slots[k2], slots[k3]
        a = b = c = d = start
        for w in range(length):
            a = _step(a, words[i0, w])
            b = _step(b, words[i1, w])
            c = _step(c, words[i2, w])
            d = _step(d, words[i3, w])
        out[k], out[k1], out[k2], out[k3] = a ^ start, b ^ start, c ^ start, d ^ start


def has_instruction() -> bool:
    # If numba compiles for another processor, LLVM would abort the process.
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES:  # type: ignore[attr-defined]
        return False
    try:
        return bool(binding.get_host_cpu_features().get("sse4.2"))
    except RuntimeError:  # LLVM does not know this processor
        return False


kernel = jit(_kernel) if has_instruction() else None
