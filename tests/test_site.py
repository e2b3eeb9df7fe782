"""The documentation site without Sphinx: links, tables of contents, and what the gallery prints."""

from __future__ import annotations

import contextlib
import inspect
import io
import posixpath
import re
import runpy
import sys
from pathlib import Path
from typing import get_args

import click
import pytest

import terrain_gpu
from terrain_gpu import primitives
from terrain_gpu.arguments import RankMethod
from terrain_gpu.cli.main import group
from terrain_gpu.primitives.components import METHODS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
CONF = runpy.run_path(str(DOCS / "conf.py"))
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in [*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *DOCS.rglob("*.md")]
    if DOCS / "made" not in path.parents
}
GALLERY = sorted(path.stem for path in (DOCS / "gallery").glob("*.py") if path.stem != "scene")


def anchors(text):
    """Return the anchors of a page, as code hosts and MyST make them from headings."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    found = []
    for words in re.findall(r"^#{1,6} (.*)$", plain, re.M):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return found


def test_links_between_pages_lead_somewhere():
    broken = []
    for page, text in PAGES.items():
        plain = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
        for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", plain):
            path, _, anchor = target.partition("#")
            full = (
                posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            )
            if not (ROOT / full).exists() or (anchor and anchor not in anchors(PAGES[full])):
                broken.append(f"{page}: {target}")
    assert not broken


def test_every_page_is_once_in_the_contents():
    index, pages = PAGES["docs/index.md"], {page[5:-3] for page in PAGES if page[:5] == "docs/"}
    guides = [page for listed in CONF["groups"](index).values() for page in listed]
    placed = ["index", *guides]
    for page in pages:
        for child in CONF["children"](page, PAGES[f"docs/{page}.md"]):
            name = child.partition("<")[2].rstrip(">") or child
            placed.append(
                posixpath.normpath(posixpath.join("/", posixpath.dirname(page), name))[1:]
            )
    made = {
        "made/how-to",
        "made/commands",
        "made/python",
        *(p[:-3] for p in CONF["OUTSIDE"].values()),
    }
    assert sorted(placed) == sorted(pages | made)
    assert set(guides) == {page for page in pages if page.startswith("how-to/")}


def test_what_pages_name_is_there():
    """Files and tests that a page names; those of origins.md with their functions."""
    for page, text in PAGES.items():
        for file, name in re.findall(
            r"`((?:terrain_gpu|tests|scripts|bench)/[\w/.]+\.\w+)(?:::(\w+))?`", text
        ):
            assert (ROOT / file).is_file(), (page, file)
            assert f"def {name or ''}" in (ROOT / file).read_text() or not name, (page, file, name)
    origins = PAGES["docs/design/origins.md"]
    for names, file in re.findall(
        r"\| ((?:`\w+`(?:, | to | in )?)+) ?`(terrain_gpu/[\w/.]+)`", origins
    ):
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"\b{name}\(", (ROOT / file).read_text()), (file, name)
    rows = [row for row in re.findall(r"^\| .* \|$", origins, re.M) if row.count("|") == 6]
    assert all(
        "left out" in row or "`tests/" in row
        for row in rows
        if not re.search(r"\| test \||---", row)
    )


def test_the_made_reference_is_whole():
    text = CONF["commands"]()
    for name, command in group.commands.items():
        part = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert max(option.opts, key=len) in part, f"{name} {option.opts}"
    pages, names = CONF["python"](), [*terrain_gpu.__all__, "open"]
    assert pages.keys() == {"python", *(f"python/{name}" for name in names)}
    assert all(f"[{name}](python/{name}.md) |" in pages["python"] for name in names)


def test_the_reference_has_the_primitives():
    """Signatures of the functions, and the methods that they take."""
    part = PAGES["docs/reference.md"].partition("\n### Primitives\n")[2].partition("\n### ")[0]
    for name in primitives.__all__:
        thing = getattr(primitives, name)
        if not inspect.isclass(thing):
            bare = [
                one.replace(annotation=inspect.Parameter.empty)
                for one in inspect.signature(thing).parameters.values()
            ]
            written = str(inspect.Signature(bare)).replace("'", '"')
            assert f"| `{name}{written}` |" in part
    assert {f"`{word}`" for word in [*METHODS, *get_args(RankMethod)]} - {"`auto`"} <= set(
        re.findall(r"`[\w-]+`", part)
    )


OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def test_the_reference_names_every_option():
    """Each in the section of its command, or among those shared by all; no table has one more."""
    text = re.sub(r"^####.*\n", "", PAGES["docs/reference.md"], flags=re.M)
    parts = dict(re.findall(r"^### (?:terrain-gpu )?(.*)\n((?:(?!##).*\n)*)", text, re.M))
    shared = set(OPTION.findall(parts["Options shared by several commands"]))
    assert "--scheduler" in shared
    for name, command in group.commands.items():
        options = [
            one for one in command.params if isinstance(one, click.Option) and not one.hidden
        ]
        own = {word for option in options for word in [*option.opts, *option.secondary_opts]}
        named = shared | set(OPTION.findall(parts[name]))
        assert [one.name for one in options if named.isdisjoint(one.opts)] in ([], ["version"]), (
            name
        )
        rows = re.findall(r"^\| (`-.*?) (?<!\\)\| ", parts[name], re.M)
        listed = {word for row in rows for word in re.findall(r"`(--[\w-]+)", row)}
        assert listed <= own, name


def test_links_of_made_pages_are_moved():
    moved = CONF["relinked"](
        "[a](docs/format.md#x) [b](tests/x.py) ![c](docs/i.png)", "made/changelog", "CHANGELOG.md"
    )
    assert moved == "[a](../format.md#x) b ![c](../i.png)"
    assert (
        CONF["relinked"]("[c](../CHANGELOG.md)", "index", "docs/index.md")
        == "[c](made/changelog.md)"
    )


def test_the_gallery_prints_what_it_says(monkeypatch, tmp_path):
    """One process for all scripts, and no files: most of what they call is compiled already."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(sys, "path", [str(DOCS / "gallery"), *sys.path])
    monkeypatch.chdir(tmp_path)
    import scene

    saved = []
    monkeypatch.setattr(scene, "save", lambda name: (saved.append(name), plt.close("all")))
    for name in GALLERY:
        page = (DOCS / f"gallery/{name}.md").read_text("utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            runpy.run_path(str(DOCS / f"gallery/{name}.py"))
        assert out.getvalue() == re.search(r"^```text\n(.*?)^```", page, re.S | re.M)[1], name
        assert f"]({name}.png)" in page
        assert len((DOCS / f"gallery/{name}.py").read_text("utf-8").splitlines()) < 40
        assert (DOCS / f"gallery/{name}.png").stat().st_size < 100_000
    assert saved == GALLERY
