"""Smaller cases that fail in the same way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from .cases import Case, Step
from .processes import Failure
from .world import check

SECONDS = 90
"""For all attempts at one case."""


def minimise(case: Case, failure: Failure) -> tuple[Case, Failure]:
    """The smallest case found greedily, and how it fails."""
    end = time.monotonic() + SECONDS
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            if time.monotonic() > end:
                return case, failure
            found = _failure(candidate)
            if found is not None and found.signature == failure.signature:
                case, failure, smaller = candidate, found, True
                break
    return case, failure


def _failure(case: Case) -> Failure | None:
    try:
        check(case)
    except Failure as failure:
        return failure
    return None


def _smaller(case: Case) -> Iterator[Case]:
    """Cases without a step, a fault, an option or some cells, the boldest first."""
    steps = case.steps
    for k in reversed(range(len(steps))):
        yield replace(case, steps=steps[:k] + steps[k + 1 :])
    for k, step in enumerate(steps):
        for one in _simpler(step):
            yield replace(case, steps=(*steps[:k], one, *steps[k + 1 :]))
    terrain = case.terrain
    for change in (
        {"rows": (terrain.rows + 1) // 2},
        {"cols": (terrain.cols + 1) // 2},
        {"voids": "none"},
        {"special": False},
        {"terrain": "ramp"},
        {"crs": ""},
        {"nodata": None, "voids": "none"},
        {"dtype": "int16"},
    ):
        smaller = replace(terrain, **change)
        if smaller != terrain:
            yield replace(case, terrain=smaller)


def _simpler(step: Step) -> Iterator[Step]:
    for k in range(len(step.faults)):
        yield replace(step, faults=step.faults[:k] + step.faults[k + 1 :])
    if step.beside:
        yield replace(step, beside=None)
    if step.again:
        yield replace(step, again=False)
    needed = {"into", "input", "variant", "weight", "connectivity", "method", "cost", "from", "by"}
    needed |= {
        "where",
        "bound",
        "min-length",
        "to",
        "layer",
        "pick",
        "block-size",
        "for",
        "resume",
        "of",
    }
    for name in step.options:
        if name not in needed or (name in ("resume", "block-size") and step.do == "convert"):
            yield replace(step, options={n: v for n, v in step.options.items() if n != name})
    plain = {"input": "plain", "by": "rowcol", "method": "relax" if step.do == "sssp" else "frozen"}
    for name, value in plain.items():
        if step.options.get(name, value) != value:
            yield replace(step, options={**step.options, name: value})


def script(case: Case, failure: Failure) -> str:
    """A test of the minimal case, with its commands and their outcome."""
    lines = [f"# {line}" for line in "\n".join(failure.transcript).splitlines()]
    lines += ["#", *(f"# {line}" for line in str(failure).splitlines()[-40:])]
    steps = ",\n            ".join(map(repr, case.steps))
    return "\n".join(
        [
            "from campaign import Case, Fault, Step, Terrain, check",
            "",
            *lines,
            f"def test_campaign_{case.seed}():",
            "    check(",
            "        Case(",
            f"            {case.terrain!r},",
            f"            ({steps},),",
            f"            seed={case.seed},",
            "        )",
            "    )",
            "",
        ]
    )
