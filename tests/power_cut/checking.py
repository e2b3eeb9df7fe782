"""Resuming after power cuts: every state of a recorded run is made, looked at, and resumed."""

from __future__ import annotations

import re
import shutil
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from terrain_gpu import TerrainError

from . import cases, recording
from .model import State, Trace, tree_of

HANG = 600
"""Seconds after which a resumed run is said to hang."""

AGAIN = re.compile(r"overwrite|(?:convert|compute|build|make)s?(?: it)? again")
"""Remedies that are the same command with --overwrite."""

BY_HAND = re.compile(r"(?:delete|move|remove|name one that does not exist yet|choose another)")
"""Remedies that are for people: what is in the way goes, and the command runs again."""


@dataclass
class Failure:
    """A state that came out wrong."""

    state: State
    what: str
    more: str = ""

    def __str__(self) -> str:
        return f"{self.what}\n[{self.state.kind}] {self.state.describe()}\n{self.more}".rstrip()


@dataclass
class Subject:
    """A case that was recorded.

    Attributes
    ----------
    old, new
        What was under each name before the run, and after it.
    files
        Every file and folder after the run.
    counts
        How the states came out.
    """

    name: str
    inputs: Path
    folder: Path
    trace: Trace
    old: dict[str, cases.Found]
    new: dict[str, cases.Found]
    files: frozenset[str]
    counts: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    """Of failures: one of each is reported."""

    @classmethod
    def record(cls, name: str, inputs: Path, folder: Path) -> Subject:
        """Prepare a case and record its run."""
        case, root = cases.CASES[name], folder / "run"
        root.mkdir()
        case.prepare(root, inputs)
        before = folder / "before"
        shutil.copytree(root, before)
        trace = _recorded(before, root, folder / "log", name, inputs)
        new = case.look(root)
        shutil.rmtree(root)
        shutil.copytree(before, root)
        found = cls(name, inputs, folder, trace, case.look(root), new, frozenset(trace.final()))
        assert all(new[key][0] == "is" for key in new), new
        assert all(new[key] == found.old[key] for key in case.others), (found.old, new)
        return found

    @property
    def case(self) -> cases.Case:
        return cases.CASES[self.name]

    def check_all(self, states: Iterator[State], most: int, seconds: float) -> list[Failure]:
        """Check states, none twice, until there were enough or time is up."""
        failures: dict[str, Failure] = {}
        known_before = set(self.kinds)
        end = time.monotonic() + seconds
        for state in states:
            if self.counts["states"] >= most or time.monotonic() > end:
                break
            digest = state.digest
            if digest in self.seen:
                self.counts["same"] += 1
                continue
            self.seen.add(digest)
            self.counts["states"] += 1
            failure = self.check(state, reader=self.counts["states"] % 2 == 0)
            if failure is not None:
                self.counts["wrong"] += 1
                kind = _signature(failure.what)
                self.counts[f"wrong: {kind}"] += 1
                self.kinds.add(kind)
                if kind in known_before:
                    continue
                known = failures.get(kind)
                if known is None or len(state.missing()) < len(known.state.missing()):
                    failures[kind] = failure
        return [self.smallest(failure) for failure in failures.values()]

    def check(self, state: State, reader: bool = True) -> Failure | None:
        """Resume the run in a state and check the result; with `reader`, read the state first."""
        root = self.folder / "cut"
        try:
            state.make(root)
            with _watched():
                what = self._look(root, state.done == len(self.trace.operations))
            if what is None:
                if not reader:
                    shutil.rmtree(root)
                    state.make(root)
                with _watched():
                    what = self._resume(root)
            return what and Failure(state, *what.split("\n", 1))
        except Exception as error:
            last = traceback.format_exc(limit=-6)
            return Failure(state, f"raised {type(error).__name__}: {error}", last)
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _look(self, root: Path, finished: bool) -> str | None:
        """What is wrong with what has its final name after the cut."""
        for key, found in self.case.look(root).items():
            if finished and found[0] != "is":
                return f"after the end: {key} is {_placeless(': '.join(found), root)}"
            if finished and found != self.new[key]:
                return f"after the end: {key} is not the new one"
            if found[0] == "is" and found not in (self.old[key], self.new[key]):
                what = {self.old[key][1][:16], self.new[key][1][:16]}
                part = "what is recorded of" if found[1][:16] in what else "the content of"
                return f"reading: {part} {key} is neither old nor new"
            if found[0] != "is" and self.old[key][0] == "is":
                if key in self.case.others:
                    return f"reading: {key}, which no run wrote, is {': '.join(found)}"
                self.counts["neither old nor new can be read"] += 1
        return None

    def _resume(self, root: Path) -> str | None:
        """What is wrong with what the resumed run, or the remedy it names, leaves."""
        how = "resumed"
        try:
            cases.run(self.name, root, self.inputs, resume=self.case.resumes)
        except TerrainError as error:
            how, what = "overwritten", self._remedy(root, str(error))
            if what is not None:
                return what
        found = self.case.look(root)
        for key, value in found.items():
            if value != self.new[key]:
                if value[0] != "is":
                    return f"{how}: {key} is {': '.join(value)}"
                same = value[1][:16] == self.new[key][1][:16]
                part = "what is recorded of" if same else "the content of"
                return f"{how}: {part} {key} is other than of an undisturbed run"
        self.counts[how] += 1
        there = {p for p in tree_of(root) if not p.endswith(cases.SUFFIXES)}
        foreign = sorted(there - self.files)
        published = tuple(f"{cases.STORE}/{cases.FOLDERS.get(key, key)}/" for key in self.new)
        inside = [path for path in foreign if path.startswith(published)]
        if inside:
            return f"{how}: a foreign file is in a layer: {inside[0]}"
        if foreign:
            self.counts["leftovers"] += 1
            self.counts["left: " + re.sub(r"[0-9a-f]{32}|\d+", "*", foreign[0])] += 1
        return None

    def _remedy(self, root: Path, message: str) -> str | None:
        if not AGAIN.search(message) and not BY_HAND.search(message):
            return f"the error names no remedy: {_placeless(message, root)}"
        try:
            cases.run(self.name, root, self.inputs, overwrite=True)
        except TerrainError as error:
            again = str(error)
        else:
            return None
        place = Path(again.split(": ", maxsplit=1)[0])
        ours = root in place.parents and place.parent in (root, root / cases.STORE)
        free = place.name not in self.case.others and (
            place.name != cases.STORE or not self.case.others
        )
        if BY_HAND.search(again) and ours and free:
            self.counts["by hand"] += 1
            shutil.rmtree(place) if place.is_dir() else place.unlink()
            cases.run(self.name, root, self.inputs, overwrite=True)
            return None
        return (
            f"the remedy does not help: {_placeless(again, root)}\n"
            f"first: {_placeless(message, root)}"
        )

    def smallest(self, failure: Failure) -> Failure:
        """The same failure with as little missing as possible."""
        kind, best = _signature(failure.what), failure
        step = len(best.state.missing())
        end = time.monotonic() + 10
        while step and time.monotonic() < end:
            step = (step + 1) // 2
            missing = best.state.missing()
            for start in range(0, len(missing), step):
                now = best.state.missing()
                fewer = [k for k in now if k not in missing[start : start + step]]
                if len(fewer) == len(now):
                    continue
                state = best.state.with_all_but(fewer)
                if len(state.missing()) >= len(now):
                    continue
                found = self.check(state) or self.check(state, reader=False)
                if found is not None and _signature(found.what) == kind:
                    best = found
            if step == 1 and len(best.state.missing()) == len(missing):
                break
        return best

    def cut_again(self, state: State, number: int) -> Subject | None:
        """Record the run that resumes in a state, to cut it again; None if it is refused."""
        folder = self.folder / f"again-{number}"
        root, before = folder / "run", folder / "before"
        folder.mkdir()
        state.make(before)
        shutil.copytree(before, root)
        try:
            resume = self.case.resumes
            trace = _recorded(before, root, folder / "log", self.name, self.inputs, resume)
        except Refused:
            return None
        return replace(self, folder=folder, trace=trace, seen=set())


class Refused(Exception):
    """The recorded run ended with an error of ours."""


def _recorded(
    before: Path, root: Path, log: Path, name: str, inputs: Path, resume: bool = False
) -> Trace:
    error = recording.record(root, log, cases.run, name, root, inputs, resume)
    if error is not None:
        raise Refused(error)
    trace = Trace(before, log)
    assert trace.final() == tree_of(root), "the recorder missed an operation"
    return trace


def _placeless(message: str, root: Path) -> str:
    return message.replace(f"{root}/", "")


def _signature(what: str) -> str:
    """What is the same in failures of one kind."""
    what = re.sub(r"\b[0-9a-f]{32}\b", "*", what)
    return re.sub(r"\(.*\)|\d+(\.\d+)?|'[^']*'|\S*/\S*", "*", what)[:100]


@contextmanager
def _watched() -> Iterator[None]:
    """A run that hangs is a failure."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"hangs: not done after {HANG} seconds")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
