"""What names versions and dependencies agrees. `scripts/check_release.sh` does the rest."""

from __future__ import annotations

import configparser
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import terrain_gpu

ROOT = Path(__file__).parents[1]
TOLD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = TOLD["project"]
RECIPE = yaml.safe_load(
    re.sub(r"\$\{\{ (\w+) \}\}", r"<\1>", (ROOT / "recipe/recipe.yaml").read_text())
)
CORE = {"numpy", "numba", "rasterio", "zarr", "numcodecs", "google-crc32c", "tqdm", "click"}


def test_one_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", terrain_gpu.__version__)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    plugin = configparser.ConfigParser()
    plugin.read(ROOT / "qgis/terrain_gpu/metadata.txt", encoding="utf-8")
    newest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    named = {cited["version"], RECIPE["context"]["version"], plugin["general"]["version"], newest}
    assert named == {terrain_gpu.__version__}
    assert cited["license"] == RECIPE["about"]["license"] == PROJECT["license"]


def test_the_core_stays_light():
    """`pip install terrain_gpu` alone brings no more than it always did; extras bring the rest."""
    assert {re.match(r"[\w-]+", one)[0] for one in PROJECT["dependencies"]} == CORE
    assert PROJECT["optional-dependencies"].keys() >= {"xarray", "vector", "plot", "parquet"}


def test_the_recipe_needs_and_starts_the_same():
    needs = [
        re.sub("^python .*", "python", one).replace(" ", "")
        for one in RECIPE["requirements"]["run"]
    ]
    assert set(needs) == {"python", *PROJECT["dependencies"]}
    assert RECIPE["context"]["python_min"] == PROJECT["requires-python"].lstrip(">=")
    starts = dict(one.split(" = ") for one in RECIPE["build"]["python"]["entry_points"])
    assert starts == PROJECT["scripts"]


def test_pythons_that_are_named_are_checked():
    named = {one[-4:] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)}
    assert min(named) == PROJECT["requires-python"].lstrip(">=")
    script = (ROOT / "scripts/check_release.sh").read_text()
    checked = re.search(r"PYTHONS:-(.*?)\}", script)[1].replace("python", "").split()
    assert {min(named), max(named)} == set(checked)


def test_files_that_a_release_needs():
    for name in (*PROJECT["license-files"], PROJECT["readme"], "SECURITY.md", "Containerfile"):
        assert (ROOT / name).stat().st_size > 200, name
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", "**/__pycache__"} <= set(ignored)


@pytest.mark.parametrize(
    "script", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda one: one.name
)
def test_shell_scripts_are_well_formed(script):
    subprocess.run(["bash", "-n", script], check=True)


def test_the_changelog_keeps_its_form():
    """As keepachangelog.com has it: versions, and under these its six headings, each once."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        assert re.match(r"\[\d+\.\d+\.\d+\] - (unreleased|\d{4}-\d\d-\d\d)\n", part)
        found = re.findall(r"^### (.*)$", part, re.M)
        assert set(found) <= kinds
        assert len(found) == len(set(found))
        entries = [line for line in part.splitlines()[1:] if line and not line.startswith("###")]
        assert all(line.startswith(("- ", "  ")) for line in entries)
