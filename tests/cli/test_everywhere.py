"""Every command on workers and in object storage: byte for byte the files that it leaves on a disk.

A command that is new has to be named here.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import test_paths as of_paths
from bucket import files, objects
from cluster import processes
from contract import whole
from effort import only_long
from everywhere import ALONE, COMMANDS, CORE, ELSEWHERE, UNLIKE, has_workers, prepare, words_of
from samples import DEMS, ROOT, SAMPLE

from terrain_gpu import InputError, TileStore, build_overviews
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.connection import address_of
from terrain_gpu.store import levels
from terrain_gpu.store.manage import is_coded

pytestmark = pytest.mark.usefixtures("no_fsync_session")
no_fsync_session = of_paths.no_fsync_session


@pytest.fixture(autouse=True, scope="module")
def levels_of_small_rasters():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "SMALLEST", 64)
        yield


def test_the_list_is_complete():
    named = {line.split()[0] for line in COMMANDS.strip().splitlines()}
    assert named | ELSEWHERE == set(group.list_commands(click.Context(group)))
    assert {name for name in named if not has_workers(name)} == ALONE


def test_the_guide_names_all():
    guide = (ROOT / "docs/how-to/cluster.md").read_text(encoding="utf-8")
    table, _, others = guide.partition("Install Dask")[0].partition("\n\n`export`")
    names = set(group.list_commands(click.Context(group)))
    on_workers = {name for name in names if has_workers(name)}
    assert {name for name in names if f"`{name}`" in table or f"`{name} " in table} == on_workers
    assert {name for name in names if f"`{name}`" in f"`export`{others}"} == names - on_workers


def test_the_reference_names_all():
    reference = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    told = reference.partition("#### Clusters")[2].partition("They need Dask")[0]
    names = {name for name in group.list_commands(click.Context(group)) if has_workers(name)}
    assert sorted(re.findall("`([a-z-]+)`", told)) == sorted(names)


def run_all(where: dict[str, Any], *more: str, core: bool = False) -> dict[str, bytes]:
    """Run all, and return the files of the store and those beside it."""
    out, report = Path(where["out"]), where["folder"] / "report.json"
    out.mkdir()
    for words in words_of(where):
        flow = words[0] != "compute-mst" or "flow" in words
        if core and not (words[0] in CORE and flow and not {"friction", "--path"} & set(words)):
            continue
        on_workers = more if has_workers(words[0]) else ()
        telling = [] if "--json" in words else ["--json", str(report)]
        command = [*words, *telling, *on_workers]
        code = options._guarded(lambda now=command: group.main(now, standalone_mode=False))
        assert code == 0, command
        if on_workers:
            assert json.loads(report.read_text())["settings"]["cluster"]["tasks"] > 0, command
    store = str(where["store"])
    found = objects(store) if "://" in store else files(Path(store))
    return {**found, **{f"out: {name}": data for name, data in files(out).items()}}


def assert_same_files(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one.keys() - UNLIKE if one[name] != other[name]] == []


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """What the commands are given, and the files that they leave on a disk."""
    where = prepare(tmp_path_factory.mktemp("sample"), SAMPLE, 150, "float32")
    return where, run_all(where)


CODED = {
    *("aspect", "components", "mst", "flow_direction", "gradient", "basins", "depressions"),
    *("streams", "links", "watershed", "watershed_points"),
}


def test_only_quantities_are_averaged(sample, tmp_path):
    """What a layer holds follows from what made it."""
    shutil.copytree(sample[0]["store"], store := tmp_path / "s.zarr")
    opened = TileStore.open(store)
    codes = {name for name, layer in opened.each() if is_coded(layer)}
    beside = ("_backlink", "_allocation", "_ties", "_tree")
    assert codes == {name for name in opened.layers if name in CODED or name.endswith(beside)}
    shutil.rmtree(store / "classes")  # int64: its averages would not be exact
    made = build_overviews(store, resampling="average").result["layers"]
    for name in opened.layers:
        assert (made[name]["resampling"] == "average") == (name not in codes)
        level = TileStore.open(store / "overviews/2").layer(name)
        assert is_coded(level) == (name in codes)
        if name in codes:
            assert np.isin(whole(level), whole(opened.layer(name))).all()
            with pytest.raises(InputError, match="codes or labels, whose averages are meaningless"):
                build_overviews(store, layers=[name], resampling="average")


def test_on_workers(sample, tmp_path, cluster):
    where, expected = sample
    where = {**where, "store": tmp_path / "s.zarr", "out": tmp_path / "out"}
    found = run_all(where, "--scheduler", address_of(cluster))
    assert_same_files(expected, found)


@pytest.mark.parametrize("scheme", ["s3", only_long("gs"), only_long("az")], indirect=True)
def test_in_a_bucket(sample, tmp_path, bucket):
    where, expected = sample
    where = {**where, "store": f"{bucket}/deep/s.zarr", "out": tmp_path / "out"}
    assert_same_files(expected, run_all(where))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_real_rasters(tmp_path, bucket):
    """The middle of each, on three workers in a bucket."""
    with processes(3) as client:  # they know the bucket
        scheduler = "--scheduler", address_of(client)
        # The sample's commands, and more, are tested above.
        for source in [one for one in DEMS.glob("*.*") if one.suffix != ".md"] or [SAMPLE]:
            (folder := tmp_path / source.name).mkdir()
            where = prepare(folder, source, 100)
            expected = run_all(where, core=True)
            there = {"store": f"{bucket}/{source.name}.zarr", "out": folder / "there"}
            assert_same_files(expected, run_all({**where, **there}, *scheduler, core=True))
