"""Sphinx configuration of the documentation site; `scripts/build_docs.sh` builds it.

The pages are the Markdown files that a code host shows. What a site needs on top of these is made
here: trees of contents from the lists of links, and the reference of commands and of Python from
the program itself.
"""

from __future__ import annotations

import inspect
import posixpath
import re
import sys
from pathlib import Path

import terrain_gpu

DOCS = Path(__file__).parent
MADE = DOCS / "made"
sys.path.insert(0, str(DOCS))

project = "terrain_gpu"
author = "The terrain_gpu authors"
project_copyright = author
version = release = terrain_gpu.__version__
root_doc = "index"
exclude_patterns = ["static"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
myst_heading_anchors = 4
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

smartquotes = False
default_role = "py:obj"  # `name` in a docstring
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # docstrings say what arguments may be
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
maximum_signature_line_length = 80

linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1|[\w.-]*example\.(org|com))\b"]
linkcheck_timeout = 20
html_theme = "pydata_sphinx_theme"
html_title = "terrain_gpu"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "terrain_gpu"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": [], "benchmarks": [], "made/changelog": [], "made/contributing": []}

CHILDREN = {
    "index": [
        "Tutorials <tutorial>",
        "How-to guides <made/how-to>",
        "gallery/README",
        "reference",
        "Explanation <design/README>",
        "benchmarks",
        "made/contributing",
        "made/changelog",
    ],
    "tutorial": ["rivers"],
    "reference": ["made/commands", "made/python", "format"],
    "design/README": ["/which-tool", "/reliability"],
}
"""Pages of the trees of contents that no list of links names."""
OUTSIDE = {"CONTRIBUTING.md": "made/contributing.md", "CHANGELOG.md": "made/changelog.md"}
"""Files of the repository that are pages of the site."""
LISTED = re.compile(r"(?:^|(?<=\| ))(?:- )?\[[^]!]*\]\(([\w-]+)\.md\)(?= \|)", re.M)
LINK = re.compile(r"(!?)\[([^]\[]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def toctree(children: list[str], caption: str = "") -> str:
    """Return a hidden tree of contents, as MyST writes it."""
    named = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{named}\n" + "\n".join(children) + "\n```\n"


def relinked(text: str, page: str, origin: str) -> str:
    """Return text with the links of file `origin` (in the repository) as those of page `page`.

    Links to files that the site does not show become plain text.
    """

    def link(found: re.Match[str]) -> str:
        picture, words, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        inside = OUTSIDE.get(path, path.removeprefix("docs/"))
        if inside == path and inside.partition("/")[0] != "made":
            return words
        relative = posixpath.relpath(inside, posixpath.dirname(page) or ".")
        return f"{picture}[{words}]({relative}{anchor or ''})"

    return LINK.sub(link, text)


def children(page: str, text: str) -> list[str]:
    """Return the pages below a page: those that an overview lists, then those named above."""
    return (LISTED.findall(text) if page.endswith("/README") else []) + CHILDREN.get(page, [])


def groups(index: str) -> dict[str, list[str]]:
    """Return the how-to guides that the index lists under each of its headings."""
    section = re.search(r"^## How-to guides\n(.*?)^## ", index, re.S | re.M)[1]
    parts = (part.split("\n", 1) for part in re.split("^### ", section, flags=re.M)[1:])
    return {name: re.findall(r"\(([\w/-]+)\.md\)", links) for name, links in parts}


def how_to(index: str) -> str:
    """Return the page of how-to guides: that section of the index, with a tree for each group."""
    section = re.search(r"^## How-to guides\n(.*?)^## ", index, re.S | re.M)[1]
    text = "# How-to guides\n" + re.sub("^### ", "## ", section, flags=re.M)
    for group, pages in groups(index).items():
        text += toctree([f"../{page}" for page in pages], group)
    return relinked(text, "made/how-to", "docs/index.md")


def commands() -> str:
    """Return the page of all commands, made from what `--help-all` prints."""
    import click

    from terrain_gpu.cli.main import group

    def plain(words: str) -> str:
        return re.sub(r"([|*<>\[\]_])", r"\\\1", " ".join(words.split()))

    text = "# Options of every command\n\n"
    text += "What `--help-all` prints. The [reference](../reference.md#commands) says more.\n"
    for name, command in sorted(group.commands.items()):
        context = click.Context(command, info_name=f"terrain-gpu {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        text += f"\n## {name}\n\n```text\nterrain-gpu {name} {usage}\n```\n\n"
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            if paragraph.startswith("\b"):  # as it stands: examples
                text += f"```text\n{paragraph[1:].strip()}\n```\n\n"
            else:
                text += plain(paragraph) + "\n\n"
        for title, options in command.sections(context):
            if options and title != "Help":
                text += f"{title}:\n\n| option | meaning |\n| --- | --- |\n"
                for option in options:
                    names, meaning = option.get_help_record(context)
                    names = names.replace("|", "\\|")
                    text += f"| `{names}` | {plain(meaning)} |\n"
                text += "\n"
    return text


def python() -> dict[str, str]:
    """Return the pages of the Python API by name, made from its docstrings."""
    groups: dict[str, list[str]] = {"Functions": [], "Stores and results": [], "Errors": []}
    pages = {}
    for name in sorted([*terrain_gpu.__all__, "open"]):
        thing = getattr(terrain_gpu, name)
        error = inspect.isclass(thing) and issubclass(thing, Exception)
        kind = (
            "Errors" if error else "Stores and results" if inspect.isclass(thing) else "Functions"
        )
        groups[kind].append(
            f"| [{name}](python/{name}.md) | {inspect.getdoc(thing).splitlines()[0]} |"
        )
        directive = (
            "autoexception" if error else "autoclass" if inspect.isclass(thing) else "autofunction"
        )
        members = "\n   :members:" if inspect.isclass(thing) and not error else ""
        pages[f"python/{name}"] = (
            f"# {name}\n\n```{{eval-rst}}\n.. {directive}:: terrain_gpu.{name}{members}\n```\n"
        )
    text = "# Python API\n\nEverything that `import terrain_gpu` provides. "
    text += "What arguments have in common is in the [reference](../reference.md#python-api).\n"
    for kind, rows in groups.items():
        text += f"\n## {kind}\n\n| name | |\n| --- | --- |\n" + "\n".join(rows) + "\n"
        text += toctree([re.search(r"\((.*)\.md\)", row)[1] for row in rows], kind)
    return {"python": text, **pages}


def make_pages(_app: object) -> None:
    """Write the pages that are made; one that has not changed is left alone."""
    pages = {"how-to": how_to((DOCS / "index.md").read_text("utf-8")), "commands": commands()}
    for origin, page in OUTSIDE.items():
        text = (DOCS.parent / origin).read_text("utf-8")
        pages[page[5:-3]] = relinked(text, page, origin)
    for name, text in {**pages, **python()}.items():
        path = MADE / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def finish(_app: object, page: str, source: list[str]) -> None:
    """Add to a page what only the site has."""
    if page.startswith("made/"):
        return
    text = relinked(source[0], page, f"docs/{page}.md")
    if page == "index":  # the guides have a page of their own
        text = re.sub(r"^## How-to guides\n.*?^(?=## )", "", text, flags=re.S | re.M)
        text = text.replace("(#how-to-guides) below", "(made/how-to.md)")
    if page.startswith("gallery/"):  # the script itself in place of a link to it
        text = re.sub(r"^\[[^]]*\]\((\w+\.py)\)$", r"```{literalinclude} \1\n```", text, flags=re.M)
    below = children(page, text)
    source[0] = text + (toctree(below) if below else "")


def setup(app: object) -> None:
    """Register the two steps."""
    app.connect("builder-inited", make_pages)
    app.connect("source-read", finish)
