"""Run cases for some minutes: `python -m campaign MINUTES [SEED]`."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from .cases import Case, draw
from .processes import Failure
from .shrink import minimise, script
from .world import check


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/campaign.sh", description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("seed", type=int, nargs="?", help="the first; one by one from there")
    parser.add_argument("--one", action="store_true", help="this seed alone, and all it does")
    parser.add_argument("--having", default="", metavar="TEXT", help="only cases with this inside")
    parser.add_argument("--counts", type=Path, default=Path("campaign.json"))
    parser.add_argument("--keep", type=Path, help="folder for the minimal cases")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--parsers", action="store_true", help="texts, not pipelines")
    given = parser.parse_args()
    seed = random.randrange(10**9) if given.seed is None else given.seed
    print(f"seeds from {seed}", flush=True)
    end = time.monotonic() + 60 * given.minutes
    if given.parsers:
        return parse_texts(seed, end)
    counts: Counter = Counter()
    failures: dict[str, list[int]] = {}
    cases = 0
    while time.monotonic() < end:
        case = draw(seed)
        if given.having not in repr(case):
            seed += 1
            continue
        try:
            counts += check(case)
        except Failure as failure:
            known = failures.setdefault(failure.signature, [])
            known.append(seed)
            print(f"seed {seed}: {failure.signature}", flush=True)
            if len(known) == 1 or given.one:
                report(case, failure, given)
        except Exception:
            print(f"seed {seed}: a fault of the campaign itself", flush=True)
            failures.setdefault("a fault of the campaign itself", []).append(seed)
            traceback.print_exc()
        cases += 1
        _save(given.counts, cases, counts, failures)
        if given.one:
            break
        seed += 1
    print(table(cases, counts, failures))
    return bool(failures)


def parse_texts(seed: int, end: float) -> int:
    """Give the parsers of all commands more texts, until a time; return the exit code."""
    tests = Path(__file__).parents[1] / "test_parsers.py"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    while time.monotonic() < end:
        environment = {**os.environ, "HYPOTHESIS_PROFILE": "search"}
        done = subprocess.run([*words, f"--hypothesis-seed={seed}"], env=environment, check=False)
        if done.returncode:
            print(f"seed {seed}", flush=True)
            return 1
        seed += 1
    return 0


def report(case: Case, failure: Failure, given: argparse.Namespace) -> None:
    """Print a failure in full, and its minimal case."""
    if not (given.no_shrink or given.one):
        case, failure = minimise(case, failure)
    text = script(case, failure)
    print(text, flush=True)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        (given.keep / f"{case.seed}.py").write_text(text)


def _save(path: Path, cases: int, counts: Counter, failures: dict[str, list[int]]) -> None:
    found = {
        "cases": cases,
        "counts": [[*key, number] for key, number in sorted(counts.items())],
        "failures": failures,
    }
    path.write_text(json.dumps(found, indent=1) + "\n")


def table(cases: int, counts: Counter, failures: dict[str, list[int]]) -> str:
    """Commands by fault and outcome."""
    endings = ["done", "error 1", "error 2", "killed"]
    lines = [f"{cases} cases, {sum(counts.values())} commands, {len(failures)} kinds of failure"]
    for title, part in (("command", 0), ("fault", 1)):
        lines += ["", f"| {title} | " + " | ".join(endings) + " |", "| --- |" + " ---: |" * 4]
        for name in sorted({key[part] for key in counts}):
            row = [
                sum(n for k, n in counts.items() if k[part] == name and k[2] == e) for e in endings
            ]
            lines.append(f"| {name} | " + " | ".join(map(str, row)) + " |")
    lines += [
        "",
        *(f"{len(seeds)} x {name}, seeds {seeds[:5]}" for name, seeds in failures.items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
