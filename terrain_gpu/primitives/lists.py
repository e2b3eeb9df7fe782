"""List ranking: the distance of each element of linked lists from the end of its list.

Four parallel algorithms and the plain walk, composed of steps that the CPU (`lists_cpu`) and the
GPU (`lists_gpu`) implement under the same names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arguments import Backend, RankMethod, array, checked, counting, word
from ..errors import InputError
from . import lists_cpu
from .arrays import integers, placed
from .lists_cpu import NotLists, jit

SEED = 1
"""Seed of the random bits; ranks do not depend on it."""


@checked(
    succ=array,
    weights=array,
    method=word(RankMethod),
    splitters=counting,
)
def list_ranking(
    succ: Any,
    method: RankMethod = "auto",
    weights: Any = None,
    backend: Backend = "auto",
    device: int = 0,
    *,
    splitters: int | None = None,
) -> Any:
    """Rank the elements of one or many linked lists: count the steps to the last of the list.

    Parameters
    ----------
    succ
        Successor of each element, (n,) integers; the last element of a list points to itself.
        int32 and int64 are read in place, other types are copied. A CuPy array stays on its GPU,
        and so does the result.
    method
        ``"wyllie"``
            Pointer jumping: in each of log2(n) rounds, every pointer doubles its reach. Successor
            and rank share one word of 64 bits, of 32 below 2^16 elements. A GPU ranks up to 2^12
            elements in one kernel. J. C. Wyllie, "The complexity of parallel computations" (Cornell
            University 1979).
        ``"splitters"``
            Cut lists at random elements, walk all sublists in parallel, rank the sublists by
            pointer jumping, and compute the ranks of their elements. Kernels RS1 to RS5: RS1
            prepares words, RS2 finds the heads of sublists, RS3 walks, RS4 jumps, RS5 expands.
            Sublist and position of an element share one word of 64 bits, or 48 (16 and 32) on a GPU
            with up to 2^16 sublists. M. Reid-Miller, "List ranking and list scan on the Cray C-90"
            (SPAA 1994); F. Dehne and K. Yogaratnam, "Exploring the limits of GPUs with parallel
            graph algorithms" (2010).
        ``"recursive"``
            The same, but the list of sublists is ranked recursively until it is small. D. R.
            Helman and J. JaJa, "Designing practical efficient algorithms for symmetric
            multiprocessors" (ALENEX 1999); M. S. Rehman, K. Kothapalli and P. J. Narayanan, "Fast
            and scalable list ranking on the GPU" (ICS 2009).
        ``"hybrid"``
            About 2 log log n rounds each remove a quarter of the elements, no two of them
            neighbours (a fractional independent set); the CPU generates the random bits for the
            next round meanwhile. The paper takes an eighth, those between two elements with tails,
            in 4 log log n rounds: about as much of the list is left. The rest is ranked by
            splitters, and the elements are put back. D. S. Banerjee and K. Kothapalli, "Hybrid
            algorithms for list ranking and graph connected components" (HiPC 2011).
        ``"sequential"``
            The plain walk, on the CPU.
        ``"auto"``
            The fastest as measured: on a GPU wyllie up to 2^25 elements, on the CPU sequential up
            to 2^16, and splitters above.
    weights
        Length of the step from each element, (n,) integers that fit int64; 1 when None. The weight
        of a last element is not used.
    backend
        "cpu", "cuda" or "auto": the GPU if it works.
    device
        Number of the GPU, for arrays that are not on one.
    splitters
        Most splitters to use; by default one per 2^10 elements on the CPU, per 2^6 on a GPU.

    Returns
    -------
    ranks
        int64, (n,), a numpy or CuPy array like `succ`; 0 for the last element of each list. The
        same for all methods and backends.

    Raises
    ------
    InputError
        when a successor is out of range, two elements have the same one, or there is a cycle; when
        weights are not integers, or their sums exceed int64.
    """

    def work(xp: Any, take: Any, give: Any) -> Any:
        if method == "sequential" and xp is not np:
            raise InputError("method 'sequential' runs on the CPU: use backend 'cpu'")
        after = integers("succ", take(succ))
        values = None if weights is None else _checked(take(weights), len(after))
        try:
            return give(rank(xp, after, values, method, splitters))
        except NotLists:
            raise InputError(_reason(after if xp is np else after.get())) from None

    return placed(backend, device, (succ, weights), work)


def _checked(weights: Any, count: int) -> Any:
    """Return weights as int64, after checking that their sums fit int64."""
    if weights.shape != (count,):
        raise InputError(f"weights have shape {weights.shape}; it must be that of succ, ({count},)")
    if weights.dtype.kind == "f":
        raise InputError(
            f"weights are of {weights.dtype.name}: sums of floats depend on the order in which a "
            "method adds; scale and round them to integers"
        )
    whole = integers("weights", weights)
    if not count:
        return whole.astype(np.int64)
    largest = max(-int(weights.min()), int(weights.max()))
    if largest * count >= 2**63 and float(abs(weights.astype(np.float64)).sum()) >= 2**63:
        raise InputError("the sum of the weights exceeds int64; scale them down")
    return whole.astype(np.int64, copy=False)


def rank(xp: Any, succ: Any, weights: Any, method: str, splitters: int | None = None) -> Any:
    """Run `list_ranking` on checked arrays, where they are.

    Raises
    ------
    NotLists
        when they are not lists.
    """
    count = len(succ)
    if not count:
        return xp.empty(0, np.int64)
    if xp is np:
        steps: Any = lists_cpu
    else:
        from . import lists_gpu as steps
    if method == "auto":
        simple, most = steps.SIMPLE
        method = simple if count <= most else "splitters"
    shift = steps.SHIFT
    if splitters is not None:
        # The last, incomplete block has no splitter.
        shift = max(1, (-(-count // splitters) - 1).bit_length())
    if method == "sequential":
        return lists_cpu.sequential(lists_cpu.pack(succ, weights, 64))
    return _METHODS[method](steps, succ, weights, shift)


# -- methods ---------------------------------------------------------------------------------------


def _wyllie(steps: Any, succ: Any, weights: Any, shift: int) -> Any:
    return steps.jump(steps.pack(succ, weights, 32 if len(succ) < 2**16 else 64))


def _splitters(steps: Any, succ: Any, weights: Any, shift: int) -> Any:
    bits = 48 if len(succ) >> shift <= 2**16 else 64
    return _by_splitters(steps, steps.pack(succ, weights, bits), shift)


def _by_splitters(steps: Any, top: Any, shift: int) -> Any:
    return steps.expand(top, steps.jump(steps.walk(top, shift)))


def _recursive(steps: Any, succ: Any, weights: Any, shift: int) -> Any:
    return _by_recursion(steps, steps.pack(succ, weights, 64), shift)


def _by_recursion(steps: Any, level: Any, shift: int) -> Any:
    """Recurse; jump if the lists are small, or so many that sublists would hardly be fewer."""
    if level.count <= steps.SMALL or level.lists > level.count // 4:
        return steps.jump(level)
    reduced = steps.walk(level, shift)
    return steps.expand(level, _by_recursion(steps, reduced, shift))


def hybrid_rounds(count: int) -> int:
    """Return the rounds that leave less than the paper's: 6 % of a list of 128 M, not 7."""
    return math.ceil(2 * math.log2(max(2.0, math.log2(count + 1))))


def _hybrid(steps: Any, succ: Any, weights: Any, shift: int) -> Any:
    top = steps.pack(succ, weights, 64)
    rounds = hybrid_rounds(top.count)
    batches = steps.Batches(top.count, SEED)
    try:
        kept, live, gone = steps.thin(top, batches, rounds)
    finally:
        batches.close()
    return steps.insert(top, live, gone, _by_splitters(steps, kept, shift))


_METHODS = {
    "wyllie": _wyllie,
    "splitters": _splitters,
    "recursive": _recursive,
    "hybrid": _hybrid,
}


# -- errors ----------------------------------------------------------------------------------------


def _reason(succ: np.ndarray) -> str:
    """Return why these are not lists: the first fault that a walk finds."""
    kind, v, other = _find_fault(succ)
    if kind == 0:
        return (
            f"succ[{v}] is {other}, but the elements are 0 to {len(succ) - 1}; "
            "the last element of a list points to itself"
        )
    if kind == 1:
        return f"elements {v} and {other} have the same successor, {succ[v]}; a list does not fork"
    return f"element {v} is on a cycle; the last element of a list must point to itself"


@jit
def _find_fault(succ):
    """Return the fault (0 successor out of range, 1 used twice, 2 cycle) and its elements."""
    before = np.full(len(succ), -1, np.int64)
    for v in range(len(succ)):
        after = np.int64(succ[v])
        if after < 0 or after >= len(succ):
            return 0, v, after
        if after != v and before[after] >= 0:
            return 1, before[after], v
        if after != v:
            before[after] = v
    seen = np.zeros(len(succ), np.bool_)
    for head in range(len(succ)):
        v = head
        while before[head] < 0 and not seen[v]:
            seen[v] = True
            v = np.int64(succ[v])
    return 2, np.argmin(seen), np.int64(0)
