"""Power cuts: after any, a resumed run is right, or refuses and says what to do.

The runs of `power_cut.cases` are recorded, and resumed in states that a disk may be left in, see
`power_cut.model`. By default a sample of the states is tried, the same each time;
POWER_CUT_BUDGET=3600 takes an hour for all cases together, POWER_CUT_SEED another sample.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from power_cut import cases, recording, toys
from power_cut.checking import Subject
from power_cut.model import State, Trace, tree_of

BUDGET = float(os.environ.get("POWER_CUT_BUDGET", "0"))
SEED = int(os.environ.get("POWER_CUT_SEED", "1"))
STATES, AGAIN = 20, 2
"""States of each run, and of each that resumes after a first cut."""

pytestmark = pytest.mark.skipif(recording.why_not() is not None, reason=str(recording.why_not()))


@pytest.fixture(scope="module")
def base():
    """A folder in memory, where there is one, as very many small files are written."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="terrain-gpu-cut-", dir=memory if os.access(memory, os.W_OK) else None
    ) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def inputs(base):
    folder = base / "inputs"
    folder.mkdir()
    cases.make_inputs(folder)
    return folder


@pytest.fixture
def subject(request, base, inputs):
    folder = base / request.param
    folder.mkdir()
    yield Subject.record(request.param, inputs, folder)
    shutil.rmtree(folder)


def recorded(folder, toy):
    """The trace of a toy in a folder with an old file."""
    for name in ("before", "run"):
        (folder / name).mkdir()
        (folder / name / "file").write_bytes(toys.OLD)
    assert recording.record(folder / "run", folder / "log", toy, folder / "run") is None
    trace = Trace(folder / "before", folder / "log")
    assert trace.final() == tree_of(folder / "run")
    return trace


@pytest.mark.parametrize("toy", [toys.careful, toys.careless])
def test_what_may_be_left_of_a_file(tmp_path, toy):
    trace = recorded(tmp_path, toy)
    states = list(trace.states(1))
    found = {state.tree().get("file") for state in states}
    last = {state.tree().get("file") for state in states if state.done == len(trace.operations)}
    if toy is toys.careful:
        assert found == {toys.OLD, toys.NEW}
        assert State(trace, len(trace.operations), "none", {}).tree() == {"file": toys.NEW}
    else:
        assert {toys.OLD, toys.NEW, b"", bytes(len(toys.NEW))} <= last
        assert toys.NEW[:1024] + bytes(len(toys.NEW) - 1024) in last


def test_everything_is_recorded(tmp_path):
    texts = [operation.text for operation in recorded(tmp_path, toys.many_ways).operations]
    assert {"fsync mapped", "rename parts -> sub/parts", "unlink gone/copy"} <= set(texts)


@pytest.mark.parametrize("subject", cases.CASES, indirect=True)
def test_power_cut(subject, no_fsync):
    share = BUDGET / len(cases.CASES)
    most, seconds = (10**9, 0.7 * share) if BUDGET else (STATES, 600.0)
    end = State(subject.trace, len(subject.trace.operations), "none", {})
    states = itertools.chain([end], subject.trace.states(SEED))
    failures = subject.check_all(states, most, seconds)
    # Cut again while it resumes, from states spread over the run.
    states = itertools.islice(subject.trace.states(SEED + 1), 0, None, 7)
    for number, state in enumerate(itertools.islice(states, 12 if BUDGET else 1)):
        again = subject.cut_again(state, number)
        if again is not None and again.trace.operations:
            subject.counts["cut again"] += 1
            most = (10**9 if BUDGET else AGAIN) + subject.counts["states"]
            found = again.check_all(again.trace.states(SEED), most, 0.3 * share / 12 or 600.0)
            for failure in found:
                failure.more += f"\nin a run resumed after a {state.describe(5)}"
            failures += found
    print(f"seed {SEED}, {len(subject.trace.operations)} operations: {dict(subject.counts)}")
    assert not failures, "\n\n".join(map(str, failures))
