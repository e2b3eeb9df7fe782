"""Guides: every command and script prints what its page says, one page after another.

Blocks of `console` are run where their programs are installed, and those of `python` where their
imports are; `sh` is for commands that need something else. Times differ, and warnings are not
compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import programs
import pytest

ROOT = Path(__file__).parent.parent
LEFT_OUT = {
    "add-an-operation": "parts of modules",
    "cluster": "batch systems",
    "global": "a raster of the Earth",
    "gpu": "no output",
    "object-storage": "a bucket; tests/store",
    "other-tools": "no commands",
    "qgis": "QGIS; tests/test_qgis.py",
}
"""Guides that need something else than the sample."""
INDEX = (ROOT / "docs/index.md").read_text(encoding="utf-8")
GUIDES = re.findall(r"\]\(how-to/([\w-]+)\.md\)", INDEX)
OF_HOW_TO = [f"how-to/{name}" for name in GUIDES if name not in LEFT_OUT]
PAGES = ["../README", "tutorial", "rivers", *OF_HOW_TO, "reference", "format"]
PROGRAMS = entry_points(group="console_scripts", module="terrain_gpu.cli.main").names | {"rio"}
BIG = re.compile(r"\bbig\.|\breport\.json|^pip ")
"""Commands that are left out: rasters of 1 GB."""
IMPORTED = re.compile(r"^(?:import|from) (\w+)", re.M)
BLOCK = re.compile(r"(?:`([\w.-]+)`[^`]*:\n\n)?^```(\w+)\n(.*?)^```", re.S | re.M)
"""Maybe the name of a file, the language, and the text of a block."""


def plain(text):
    """Without what differs from run to run."""
    text = text.replace(f"{Path.cwd()}/", "/home/me/dem/")
    return re.sub(r"\d+\.\d\d s\b", "N s", text).strip()


def output_of(command, failing):
    if command.split()[0] in PROGRAMS and not re.search("[|>]", command):
        ended = programs.forked(command)
    else:
        ended = subprocess.run(command, shell=True, text=True, capture_output=True, check=False)
    assert (ended.returncode != 0) == failing, f"{command}\n{ended.stderr}"
    return ended.stderr if failing else ended.stdout


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


def test_guides_that_are_left_out_are_there():
    assert LEFT_OUT.keys() < set(GUIDES)
    assert {path.stem for path in (ROOT / "docs/how-to").glob("*.md")} == set(GUIDES)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_prints_what_it_says(page, home, monkeypatch):
    folder, begin = home
    shell(begin, folder, folder)
    monkeypatch.chdir(folder / "guide")
    # The environment of the reader is active.
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}")
    said, names, compared = "", {}, 0
    for file, language, block in BLOCK.findall(page_text(page)):
        if language == "json" and file:
            Path(file).write_text(block)
        elif language == "console":
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, expected = re.match(r"((?:.*?\\\n)*.*?)\n(.*)", part, re.S).groups()
                named = {words.split()[0] for words in command.split("|")}
                if not BIG.search(command) and all(map(shutil.which, named)):
                    found = output_of(command, expected.startswith("Error"))
                    assert plain(found) == plain(expected), command
                    compared += 1
        elif language == "python" and all(map(find_spec, IMPORTED.findall(block))):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(block, names)
            said = out.getvalue()
        elif language == "text" and said:
            assert plain(said) == plain(block)
            said, compared = "", compared + 1
    assert compared > 0
