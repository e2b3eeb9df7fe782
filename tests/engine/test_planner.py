"""The planner: sizes, fits, refusals, predictions, for shapes that nobody could allocate."""

from __future__ import annotations

import os
import re
from functools import partial

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu.arguments import parse_size
from terrain_gpu.cli.plan import PURPOSES
from terrain_gpu.cli.plan import command as plan_command
from terrain_gpu.engine import machine
from terrain_gpu.engine.machine import (
    BASELINE,
    COMPILED_BASELINE,
    NO_LIMIT,
    Machine,
    default_memory_limit,
)
from terrain_gpu.engine.plan import format_size, plan_paths
from terrain_gpu.engine.plan_stream import SourceShape, plan_stream
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.grid import TILE, BlockGrid
from terrain_gpu.io.convert import plan_for_shape
from terrain_gpu.raster.label_components.operation import plan_components
from terrain_gpu.running import plan_of
from terrain_gpu.spanning_tree import MinimumSpanningTree


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MB", 512 * 10**6),
        ("2GB", 2 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("64mib", 2**26),
        ("1e9", 10**9),
        ("100", 100),
        ("3TB", 3 * 10**12),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "12 parsecs", "-5MB", "0", "1,5GB", "nan", "inf GB"])
def test_what_is_no_size(text):
    with pytest.raises(InputError, match="size"):
        parse_size(text)


def plan_of_tree(rows, cols, dtype, block, *, machine, **asked):
    return plan_of(MinimumSpanningTree(**asked), BlockGrid(rows, cols, block), dtype, machine)


def test_sizes_for_people():
    assert [format_size(s) for s in (0, 999, 1500, 2.5e9, 4e15)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 GB",
        "4 PB",
    ]


@pytest.mark.parametrize(("limit", "says"), [(500 * 10**6, "limit 500 MB"), (NO_LIMIT, "no limit")])
def test_plans_for_people(limit, says):
    """Rasters in memory have no limit, and a command may solve one, to compile its kernels."""
    plan = plan_of_tree(9, 9, np.dtype("i2"), 64, machine=Machine.of(limit, 1))
    assert f" predicted peak, {says}\n" in plan.describe()


def test_default_limit_is_at_least_512_mb():
    assert default_memory_limit() >= 512 * 10**6


shapes = st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1))


@given(
    shape=shapes,
    dtype=st.sampled_from(["uint8", "int16", "float32", "float64"]),
    limit=st.integers(10**8, 10**11),
    threads=st.integers(1, 64),
    chunk=st.tuples(st.integers(1, 4096), st.integers(1, 2**31 - 1)),
    sequential=st.booleans(),
    extra=st.integers(0, 1),
)
def test_plans_keep_their_limit_and_cover_the_raster(
    shape, dtype, limit, threads, chunk, sequential, extra
):
    rows, cols = shape
    dtype = np.dtype(dtype)
    source = SourceShape(chunk, dtype.itemsize, 10**6, sequential, extra)
    try:
        plan = plan_stream(rows, cols, dtype, source, machine=Machine.of(limit, threads))
    except PlanError as error:
        assert "give at least" in str(error)  # noqa: PT017 - both outcomes are checked
        return
    assert plan.memory <= limit
    held = plan.buffers * plan.unit_rows * plan.unit_cols * dtype.itemsize
    assert BASELINE + held <= plan.memory
    assert plan.block_size & (plan.block_size - 1) == 0
    assert plan.unit_rows == rows or plan.unit_rows % plan.block_size == 0
    assert plan.unit_cols == cols or plan.unit_cols % plan.block_size == 0
    assert 1 <= plan.readers <= plan.buffers
    assert plan.readers == 1 or not sequential
    assert plan.passes * plan.unit_cols >= min(chunk[1], cols)
    assert plan.bytes_read == plan.passes * source.source_bytes
    assert plan.bytes_written >= rows * cols * dtype.itemsize


@given(
    shape=shapes,
    dtype=st.sampled_from(["uint8", "int16", "float32", "float64"]),
    block=st.sampled_from([64, 256, 1024, 8192]),
    method=st.sampled_from(["frozen", "contract"]),
    limit=st.integers(10**8, 10**12),
    threads=st.integers(1, 64),
)
def test_plans_of_spanning_trees_keep_their_limit(shape, dtype, block, method, limit, threads):
    dtype = np.dtype(dtype)
    plan_for = partial(plan_of_tree, *shape, dtype, block, method=method)
    try:
        plan = plan_for(machine=Machine.of(limit, threads))
    except PlanError as error:
        limit = parse_size(re.search("give at least ([0-9]+ MB)", str(error))[1])
        plan = plan_for(machine=Machine.of(limit, threads))
    assert plan.memory <= limit
    assert (
        COMPILED_BASELINE + plan.workers * plan.unit_rows * plan.unit_cols * dtype.itemsize
        <= plan.memory
    )
    assert 1 <= plan.workers <= threads
    assert 1 <= plan.buffers <= plan.workers + 2 * plan.writers
    assert 1 <= plan.readers <= plan.writers <= max(2, -(-plan.workers // 4))
    assert plan.bytes_read >= shape[0] * shape[1] * dtype.itemsize
    assert plan.bytes_written >= shape[0] * shape[1]


_PLACES = "cost-matrix", "least-cost-network", "index"  # bound by what they keep of a tile


@pytest.mark.parametrize("shape", ["20x20000", "20000x20"])
@pytest.mark.parametrize("purpose", [one for one in PURPOSES if one not in _PLACES])
def test_blocks_are_planned_no_larger_than_the_raster(purpose, shape):
    """Whole blocks of 4096 x 4096 cells would take gigabytes."""
    words = f"{shape} --for {purpose} --block-size 4096 --memory-limit 450MB --threads 1 -q"
    done = CliRunner().invoke(plan_command, words.split(), standalone_mode=False)
    assert done.exception is None, done.exception


results = st.sampled_from(
    [["distance"], ["distance", "backlink"], ["distance", "backlink", "allocation"]]
)


@given(
    shape=shapes,
    dtype=st.sampled_from(["uint8", "int16", "float32", "float64"]),
    block=st.sampled_from([64, 256, 1024, 8192]),
    distance=st.sampled_from(["uint32", "uint64", "float64"]),
    friction=st.sampled_from([None, np.dtype("uint8"), np.dtype("float64")]),
    layers=results,
    limit=st.integers(10**8, 10**12),
    threads=st.integers(1, 64),
)
def test_plans_of_shortest_paths_keep_their_limit(
    shape, dtype, block, distance, friction, layers, limit, threads
):
    dtype, distance = np.dtype(dtype), np.dtype(distance)
    plan_for = partial(
        plan_paths,
        *shape,
        dtype,
        block,
        distance=distance,
        friction=friction,
        layers=layers,
    )
    try:
        plan = plan_for(machine=Machine.of(limit, threads))
    except PlanError as error:
        least = parse_size(re.search("give at least ([0-9]+ MB)", str(error))[1])
        assert least > limit
        limit = least
        plan = plan_for(machine=Machine.of(limit, threads))
    assert plan.memory <= limit
    assert 1 <= plan.workers <= min(threads, plan.buffers)
    assert plan.buffers <= plan.blocks
    # A field holds heights, as wide as distances, and distances.
    field = plan.unit_rows * plan.unit_cols * (2 * distance.itemsize + 8 * (friction is not None))
    assert COMPILED_BASELINE + plan.buffers * field <= plan.memory
    area = shape[0] * shape[1]
    read = dtype.itemsize + (friction.itemsize if friction else 0) + 2 * (len(layers) == 3)
    assert plan.bytes_read >= area * read
    assert plan.bytes_written >= area * (distance.itemsize + [0, 1, 5][len(layers) - 1])


def test_more_memory_is_more_fields_and_threads():
    found = [
        plan_paths(
            *(30_000, 30_000, np.dtype("float32"), 1024),
            distance=np.dtype("float64"),
            machine=Machine.of(limit * 10**6, 4),
        )
        for limit in (450, 600, 1000, 2000, 100_000)
    ]
    assert [plan.workers for plan in found] == [2, 4, 4, 4, 4]
    assert [plan.buffers for plan in found] == sorted({plan.buffers for plan in found})
    assert found[-1].buffers == found[-1].blocks == 900


@given(
    rows=st.integers(1, 3000),
    cols=st.integers(1, 3000),
    limit=st.integers(2 * 10**8, 10**9),
    width=st.integers(1, 4000),
)
def test_units_and_blocks_cover_every_cell_once(rows, cols, limit, width):
    dtype = np.dtype("float32")
    source = SourceShape((1, width), 4, 0)
    plan = plan_stream(rows, cols, dtype, source, machine=Machine.of(limit, 2))
    seen = np.zeros((rows, cols), np.int8)
    blocks = []
    for unit in plan.units():
        seen[unit[0] : unit[1], unit[2] : unit[3]] += 1
        blocks += plan.blocks_of(unit)
    assert (seen == 1).all()
    assert len(blocks) == len(set(blocks)) == plan.blocks


def test_what_the_message_asks_for_is_enough():
    plan = partial(plan_for_shape, 10**5, 10**5, np.dtype("float64"))
    with pytest.raises(PlanError, match="give at least") as caught:
        plan(machine=Machine.of(10**8))
    # The message rounds to three digits; one per cent more must do.
    words = str(caught.value).split("give at least ")[1]
    enough = int(parse_size(words) * 1.01)
    assert (
        plan_for_shape(10**5, 10**5, np.dtype("float64"), machine=Machine.of(enough)).memory
        <= enough
    )


INT16 = np.dtype("int16")
COMPUTE = {
    "mst": lambda block, **more: plan_of_tree(60, 60, INT16, block, **more),
    "sssp": lambda block, **more: plan_paths(60, 60, INT16, block, distance=INT16, **more),
    "components": lambda block, **more: plan_components(60, 60, [INT16], block, **more),
}


@pytest.mark.parametrize("plan", COMPUTE.values(), ids=COMPUTE)
def test_smaller_blocks_are_advised_where_there_are_any(plan):
    with pytest.raises(PlanError, match=r"give at least \d+ MB$"):
        plan(64, machine=Machine.of(10**8))
    with pytest.raises(PlanError, match=r"MB, or convert with a smaller --block-size$"):
        plan(128, machine=Machine.of(10**8))


def test_larger_blocks_are_advised_where_rims_take_the_memory():
    # The smaller the blocks, the longer all their rims together.
    with pytest.raises(PlanError, match=r"MB, or convert with a larger --block-size$"):
        plan_paths(10**5, 10**5, INT16, 64, distance=INT16, machine=Machine.of(10**9))
    plan_paths(10**5, 10**5, INT16, 1024, distance=INT16, machine=Machine.of(10**9))


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ({"threads": 0}, "threads 0: give a whole number from 1 on"),
        ({"threads": -1}, "threads -1: give a whole number from 1 on"),
        ({"threads": 1.5}, "threads 1.5: give a whole number from 1 on"),
        (
            {"memory_limit": "lots"},
            "memory_limit 'lots' is not a size; write for example 512MB, 2GB or 1.5GiB",
        ),
        (
            {"memory_limit": 0.5},
            'memory_limit 0.5: give a positive number of bytes, or a size such as "2GB"',
        ),
    ],
)
def test_arguments_that_are_no_limits(slip, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Machine.of(**slip)


def test_a_trillion_cells_in_half_a_gigabyte():
    plan = plan_for_shape(10**6, 10**6, np.dtype("float32"), machine=Machine.of(512 * 10**6))
    assert plan.memory <= 512 * 10**6
    assert plan.bytes_written >= 4 * 10**12
    assert plan.bytes_written <= 1.05 * 4 * 10**12


def test_wide_strips_get_smaller_blocks_before_a_second_pass():
    dtype = np.dtype("float32")
    wide = SourceShape((1, 60_000), 4, 0)
    plan = plan_stream(60_000, 60_000, dtype, wide, machine=Machine.of(512 * 10**6, 2))
    assert plan.passes == 1
    assert plan.block_size < 1024
    very_wide = SourceShape((1, 2**30), 4, 100)
    plan = plan_stream(4096, 2**30, dtype, very_wide, machine=Machine.of(512 * 10**6, 2))
    assert plan.passes > 1
    assert plan.bytes_read == 100 * plan.passes


def test_the_records_of_all_blocks_are_planned():
    plan = partial(plan_for_shape, 1, 2**31 - 1, np.dtype("uint8"), block_size=64)
    with pytest.raises(PlanError, match=r"give at least 23[0-9]{2} MB"):
        plan(machine=Machine.of(10**9))
    assert plan(machine=Machine.of(24 * 10**8)).blocks == 2**25


def test_huge_rasters_get_larger_blocks_when_memory_allows():
    dtype = np.dtype("uint8")
    small = plan_for_shape(2**24, 2**24, dtype, machine=Machine.of(4 * 10**9))
    assert small.block_size > 1024


@given(rows=st.integers(1, 10**6), cols=st.integers(1, 10**6))
def test_predicted_bytes_are_whole_tiles_and_indexes(rows, cols):
    plan = plan_for_shape(rows, cols, np.dtype("int16"), machine=Machine.of(10**10), block_size=256)
    tiles = -(-rows // TILE) * -(-cols // TILE)
    assert plan.bytes_written == tiles * TILE * TILE * 2 + plan.blocks * (20 * 16 + 8)


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        ("0::/job", {"job/memory.max": "3000000000"}, 3 * 10**9),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "2000000000"}, 2 * 10**9),
        ("0::/host/only", {"memory.max": "1000000000"}, 10**9),
        ("0::/a", {"a/memory.max": "max"}, None),
        ("4:cpu,memory:/job", {"memory/job/memory.limit_in_bytes": "1500000000"}, 15 * 10**8),
        ("4:memory:/gone", {"memory/memory.limit_in_bytes": "1200000000"}, 12 * 10**8),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": str(2**63 - 4096)}, None),
        ("4:cpu:/a", {"cpu/a/memory.limit_in_bytes": "5", "memory.max": "6"}, None),
        ("0::/a", {}, None),
    ],
)
def test_the_memory_of_a_container_or_a_job(tmp_path, line, files, expected):
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(f"1:name=systemd:/x\n{line}\n")
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = machine.memory_limits(tmp_path / "proc", tmp_path / "groups")
    assert min(found.values()) == min(expected or physical, physical)


def test_without_control_groups_the_machine_counts(tmp_path):
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert list(machine.memory_limits(tmp_path, tmp_path).values()) == [physical]


def test_tasks_of_a_job_share_its_limit(tmp_path):
    """As in SLURM, where every task has a group of its own."""
    job = tmp_path / "groups/memory/slurm/uid_0/job_7"
    found = []
    for task in ("step_batch/task_0", "step_0/task_0", "step_0/task_1"):
        (job / task).mkdir(parents=True)
        (job / task / "memory.limit_in_bytes").write_text(str(2**63 - 4096))
        (tmp_path / "self").mkdir(exist_ok=True)
        (tmp_path / "self/cgroup").write_text(f"4:memory:/slurm/uid_0/job_7/{task}\n")
        for folder, limit in ((job, 2**21), ((job / task).parent, 2**20)):
            (folder / "memory.limit_in_bytes").write_text(str(limit))
        found.append(machine.memory_limits(tmp_path, tmp_path / "groups"))
    for limit, sharing in ((2**21, 3), (2**20, 2)):
        names = [name for limits in found for name, value in limits.items() if value == limit]
        assert max(map(names.count, names)) == sharing
