"""Benchmarks of terrain_gpu.

python -m bench                  list the cases
python -m bench CASE [options]   run one; with --help, say what it measures and its options
"""

from __future__ import annotations

import argparse
import ast
import sys
from importlib import import_module
from pathlib import Path

from bench.machine import described


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Texts as they are written, and defaults."""


def cases() -> dict[str, str]:
    """Names of cases, and their questions: the first lines of files, which are not imported."""
    files = sorted((Path(__file__).parent / "cases").glob("[a-z]*.py"))
    texts = {file.stem: ast.get_docstring(ast.parse(file.read_text())) or "" for file in files}
    return {name.replace("_", "-"): text.partition("\n")[0] for name, text in texts.items()}


def main(words: list[str] | None = None) -> None:
    """List the cases, or run one."""
    name, *options = (sys.argv[1:] if words is None else words) or ["--help"]
    known = cases()
    if name in ("-h", "--help"):
        print(__doc__)
        print("\n".join(f"{case:18} {question}" for case, question in known.items()))
        return
    if name not in known:
        print(f"no case {name!r}: python -m bench lists the cases", file=sys.stderr)
        raise SystemExit(2)
    case = import_module(f"bench.cases.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {name}", description=case.__doc__, formatter_class=Help
    )
    parser.add_argument(
        "--work", type=Path, default=Path("bench-work"), help="folder of rasters and stores"
    )
    case.options(parser)
    given = parser.parse_args(options)
    given.work = given.work.absolute()
    given.work.mkdir(parents=True, exist_ok=True)
    print(f"{name}: {described()}\n", flush=True)
    case.run(given)


if __name__ == "__main__":
    main()
