"""Pages of the documentation: every command prints what the page says, and so does every script.

Only pages that need no other file than the sample. Times differ, and warnings are not compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

import programs
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    "rivers",
    "how-to/accumulate",
    "how-to/basins",
    "how-to/breach-depressions",
    "how-to/depressions",
    "how-to/fill-depressions",
    "how-to/flow-directions",
    "how-to/hand",
    "how-to/map",
    "how-to/overviews",
    "how-to/rio-gdal",
    "how-to/streams",
    "how-to/terrain-indices",
    "how-to/xarray",
]
PROGRAMS = entry_points(group="console_scripts", module="terrain_gpu.cli.main").names | {"rio"}
DRAWING = re.compile(r"^import (geopandas|matplotlib|shapely)", re.M)
"""Needs packages that the tests do not install."""


def plain(text):
    """Without what differs from run to run."""
    return re.sub(r"\d+\.\d\d s\b", "N s", text).strip()


def output_of(command):
    if command.split()[0] in PROGRAMS:
        ended = programs.forked(command)
    else:
        ended = subprocess.run(command, shell=True, text=True, capture_output=True, check=False)
    assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home of a reader who follows the guides, one after another, as the tutorial tells."""
    folder = tmp_path_factory.mktemp("home")
    set_up, begin = re.findall(r"^```sh\n(mkdir.*?|rm.*?)^```", page_text("tutorial"), re.S | re.M)
    for _ in range(2):  # the README tells the same
        shell(set_up, folder, ROOT)
    return folder, begin


def shell(commands, home, folder):
    environment = {**os.environ, "HOME": str(home)}
    subprocess.run(["bash", "-ec", commands], check=True, cwd=folder, env=environment)


def page_text(page):
    return (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted(PAGES, key=lambda page: page_text("index").find(page)))
def test_the_page_prints_what_it_says(page, home, monkeypatch):
    folder, begin = home
    shell(begin, folder, folder)
    monkeypatch.chdir(folder / "guide")
    text, said, compared = page_text(page), "", 0
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.S | re.M):
        if language == "console":
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, _, expected = part.partition("\n")
                assert plain(output_of(command)) == plain(expected), command
                compared += 1
        elif language == "python" and not DRAWING.search(block):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(block, {})
            said = out.getvalue()
        elif language == "text" and said:
            assert plain(said) == plain(block)
            said, compared = "", compared + 1
    assert compared > 1
