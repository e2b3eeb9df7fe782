"""The contract of operations: a test class that the tests of every operation inherit.

A subclass says how to make the operation, what it must find, and which command runs it; see
tests/raster/test_slope.py.
"""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree

import numpy as np
import pytest
from bucket import files, objects
from cluster import at_share, die_driving, drawn_share, kill_a_worker, processes
from effort import examples, only_long
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory import MB, within
from strategies import rasters, shapes

import terrain_gpu
from terrain_gpu.cells import is_nodata
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.cluster import open_client
from terrain_gpu.engine.connection import address_of
from terrain_gpu.engine.run import Here, run
from terrain_gpu.errors import (
    ClusterError,
    InputError,
    OutputError,
    StoreError,
    VerificationError,
)
from terrain_gpu.grid import GridSpec
from terrain_gpu.store import TileStore, writer
from terrain_gpu.store.objects import ObjectPath

TRANSFORM = (10.0, 0.0, 500000.0, 0.0, -20.0, 5500000.0)
KEYS = {
    "command",
    "version",
    "cells",
    "valid_cells",
    "seconds",
    "bytes_read",
    "bytes_written",
    "peak_rss_bytes",
    "settings",
    "result",
}


_RIGHT: dict[type, list[np.ndarray]] = {}
"""What each class of tests expects over its own cells."""

_PREPARED: dict[type, Path] = {}
"""A folder with the store of each class and what belongs to it, to copy."""


class Stop(options.Interrupted):
    """Raised by a test in the middle of a run, as Ctrl-C is in a command."""


def stop_at(share: float):
    """Progress that stops the run at this share."""
    seen = 0

    def stop(cells, total):
        nonlocal seen
        seen += cells
        if seen >= share * total:
            raise Stop

    return stop


def make_store(
    path: Path, data: np.ndarray, nodata, block: int, *, cell=(10.0, 20.0), name="elevation"
) -> Path:
    """A store with a layer of this name, and cells so wide and high."""
    transform = (cell[0], *TRANSFORM[1:4], -cell[1], TRANSFORM[5])
    grid = GridSpec(*data.shape, transform, "", "")
    with terrain_gpu.create_layer(
        path, name, grid, data.dtype, nodata=nodata, block_size=block
    ) as target:
        for i, j in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(i, j)
            target.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
        target.commit()
    return path


def whole(layer) -> np.ndarray:
    return layer.read_window(*layer.grid.window)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Bit for bit."""
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def change(patch: pytest.MonkeyPatch, kind: type, name: str, cell: tuple[int, int]) -> None:
    """Make operations of a kind flip the last bit of an output's cell once it is computed."""
    execute = kind.execute

    def wrong(self, run):
        found = execute(self, run)
        if run.in_memory:  # a rehearsal
            return found
        target = run.writers[name]
        at = cell[0] // target.block_size, cell[1] // target.block_size
        r0, _, c0, _ = target.block_window(*at)
        cells = target.read_block(*at).copy()
        here = cell[0] - r0, cell[1] - c0
        if np.isnan(cells[here]):  # all its bit patterns mean the same
            cells[here] = 1
        else:
            cells.view(f"u{cells.itemsize}")[here] ^= 1
        target.write_block(*at, cells)
        return found

    patch.setattr(kind, "execute", wrong)


def verify(store: Path) -> tuple[int, set[str]]:
    """The exit code of `terrain-gpu verify`, and the layers it proved."""
    report = store.parent / "verified.json"
    words = ["verify", str(store), "--backend", "cpu", "-q", "--json", str(report)]
    code = options._guarded(lambda: group.main(words, standalone_mode=False))
    found = {k: v for k, v in json.loads(report.read_text())["result"].items() if k != "store"}
    proven = [v.get("layers", [k]) for k, v in found.items() if v["verified"]]
    return code, {name for names in proven for name in names}


class OperationContract:
    """What every operation promises.

    Tests marked long run always in the classes that say `representative = True` in their own body:
    one for each shape of operation (one pass, two passes, levels, visits, files, ...).
    """

    command: str
    """Its words behind `terrain-gpu`, with the store s.zarr."""

    rasters = rasters(shape=shapes(200, 30_000))
    """Which rasters it is given."""

    damaged = StoreError, "checksum"
    """What tells of a damaged input."""

    exists: type = StoreError
    """What tells of an output in the way."""

    identified = True
    """Whether reports name the digests of the inputs."""

    resumes = True
    """Whether a run that was stopped goes on from what it has."""

    proven_by_workers = True
    """Whether workers check the result, not the process of the run."""

    writing = writer
    """The module whose new files are refused where the disk is full."""

    def prepare(self, store: Path) -> None:
        """Make the inputs besides elevation."""

    def make(self, store: Path):
        """The operation over a store."""
        raise NotImplementedError

    def expected(self, data: np.ndarray, nodata, grid: GridSpec) -> list[np.ndarray]:
        """Its outputs, by plain Python."""
        raise NotImplementedError

    def cells(self, shape=(150, 210), dtype=np.int16) -> np.ndarray:
        found = np.random.default_rng(3).integers(0, 50, shape).astype(dtype)
        found[40:60, 30:90] = -1
        return found

    @pytest.fixture
    def store(self, tmp_path, tmp_path_factory, no_fsync):
        if type(self) not in _PREPARED:
            folder = tmp_path_factory.mktemp("prepared")
            self.prepare(make_store(folder / "s.zarr", self.cells(), -1, 64))
            _PREPARED[type(self)] = folder
        copytree(_PREPARED[type(self)], tmp_path, dirs_exist_ok=True)
        return tmp_path / "s.zarr"

    def outputs(self, store: Path) -> dict[str, np.ndarray]:
        opened = TileStore.open(store)
        return {
            output.name: whole(opened.layer(output.name)) for output in self.make(store).outputs
        }

    def counted(self, store: Path) -> int:
        """The number of cells that its report names."""
        return next(iter(self.outputs(store).values())).size

    def provable(self, store: Path) -> set[int]:
        """Numbers of cells that its proof may name: all, or those with a value in an output."""
        opened = TileStore.open(store)
        found = {opened.layer(output.name).grid.cells for output in self.make(store).outputs}
        for name, cells in self.outputs(store).items():
            found.add(int(np.count_nonzero(~is_nodata(cells, opened.layer(name).nodata))))
        return found

    def change(
        self, patch: pytest.MonkeyPatch, kind: type, name: str, cell: tuple[int, int]
    ) -> None:
        """Make it compute one bit of an output wrongly, at a cell."""
        change(patch, kind, name, cell)

    def there(self, store: Path) -> set[str]:
        """Names of the outputs that exist."""
        return {o.name for o in self.make(store).outputs} & set(TileStore.open(store).layers)

    def remove(self, store: Path) -> None:
        """Remove the outputs."""
        for name in self.there(store):
            rmtree(store / name)

    def left_alone(self, store: Path) -> dict[str, bytes]:
        """All files after a run in this process; its outputs are removed again."""
        run(self.make(store))
        found = files(store.parent)
        self.remove(store)
        assert files(store.parent).keys() < found.keys()
        return found

    def damage(self, store: Path) -> None:
        """Damage an input."""
        name = self.make(store).inputs[0]
        shard = TileStore.open(store).layer(name).shard_path(1, 1)
        data = bytearray(shard.read_bytes())
        data[100] ^= 1
        shard.write_bytes(data)

    def check(self, store: Path) -> None:
        """Compare the outputs over `cells` with those by plain Python, found once."""
        if type(self) not in _RIGHT:
            _RIGHT[type(self)] = self.expected(self.cells(), -1, TileStore.open(store).grid)
        for found, right in zip(self.outputs(store).values(), _RIGHT[type(self)], strict=True):
            assert same(found, right)
        assert not (store / ".incomplete").exists()

    # -- the right answer, however computed ----------------------------------------------------

    # Every subclass has operations of its own.
    @settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
    @given(
        data=st.data(),
        block=st.sampled_from([64, 128, 256, 512, 1024, 2048]),
        threads=st.integers(1, 4),
    )
    def test_as_by_plain_python(self, folders, data, block, threads):
        raster = data.draw(self.rasters)
        with folders() as folder:
            store = make_store(folder / "s.zarr", raster.cells, raster.nodata, block)
            self.prepare(store)
            operation = self.make(store)
            run(operation, threads=threads)
            expected = self.expected(raster.cells, raster.nodata, operation.grid)
            for found, right in zip(self.outputs(store).values(), expected, strict=True):
                assert same(found, right)

    # -- on a cluster ---------------------------------------------------------------------------

    def test_on_a_cluster(self, store, cluster):
        seen = []
        found = run(self.make(store), client=cluster, place=Here(lambda *one: seen.append(one)))
        self.check(store)
        told = found.report.settings["cluster"]
        assert 0 < told["tasks"] == sum(one["tasks"] for one in told["each"].values())
        assert sum(cells for cells, _ in seen) == seen[-1][1]

    @pytest.mark.long
    def test_on_five_workers(self, store):
        """With all files that one process leaves, in the store and beside it."""
        alone = self.left_alone(store)
        with processes(5) as client:
            found = run(self.make(store), client=client)
        assert found.report.settings["cluster"]["workers"] == 5
        assert files(store.parent) == alone

    @pytest.mark.long
    def test_in_object_storage(self, store, bucket):
        """With all files that it leaves on a disk. In short runs `test_everywhere` does it."""
        url = f"{bucket}/{store.name}"
        for name, data in files(store).items():
            (ObjectPath(url) / name).write(data)
        alone = self.left_alone(store)
        here = self.make(store)
        run(replace(here, store=here.store.replace(str(store), url)))
        rmtree(store)
        for name, data in objects(url).items():
            (store / name).parent.mkdir(parents=True, exist_ok=True)
            (store / name).write_bytes(data)
        assert files(store.parent) == alone

    @pytest.mark.long
    def test_a_worker_dies_and_the_run_goes_on(self, store, cluster):
        killed = []
        kill = at_share(drawn_share(), lambda: killed.append(kill_a_worker(cluster)))
        run(self.make(store), client=cluster, place=Here(kill))
        assert killed
        self.check(store)

    @pytest.mark.long
    @pytest.mark.parametrize("share", [0.2, 0.7])
    def test_stopped_on_a_cluster_and_resumed_here(self, store, cluster, share):
        with pytest.raises(Stop):
            run(self.make(store), client=cluster, place=Here(stop_at(share)))
        run(self.make(store), resume=True)
        self.check(store)

    @pytest.mark.long
    def test_stopped_here_and_resumed_on_a_cluster(self, store, cluster):
        with pytest.raises(Stop):
            run(self.make(store), threads=1, place=Here(stop_at(0.7)))
        run(self.make(store), client=cluster, resume=True)
        self.check(store)

    @pytest.mark.long
    def test_its_driver_is_killed(self, store, cluster, larger_cluster):
        """Another one goes on, with another number of workers."""
        die_driving(self.make(store), address_of(cluster), drawn_share())
        assert not self.there(store)
        run(self.make(store), client=larger_cluster, resume=self.resumes)
        self.check(store)

    @pytest.mark.long
    def test_its_scheduler_is_killed(self, store, scheduler_to_kill):
        """The run ends, and goes on without a cluster. Later it may need no scheduler any more."""
        progress = at_share(drawn_share(0.4), scheduler_to_kill.kill)
        with (
            open_client(None, scheduler_to_kill.address) as client,
            pytest.raises(ClusterError, match=r"the scheduler is gone.*; --resume continues"),
        ):
            run(self.make(store), client=client, place=Here(progress))
        assert not self.there(store)
        run(self.make(store), resume=self.resumes)
        self.check(store)

    # -------------------------------------------------------------------------------------------

    def test_an_operation_can_be_pickled(self, store):
        operation = self.make(store)
        _ = operation.layers
        again = pickle.loads(pickle.dumps(operation))
        assert again == operation
        assert "layers" not in vars(again)
        assert again.settings() == operation.settings()
        json.dumps(operation.settings())

    # -- interrupted, full, damaged -------------------------------------------------------------

    in_progress = 6
    """Blocks that one thread may have solved and not recorded when it is stopped."""

    @pytest.mark.parametrize("share", [*map(only_long, (0.0, 0.2, 0.55, 1.0)), 0.45, 0.8])
    def test_stopped_anywhere_and_resumed(self, store, share, monkeypatch):
        """What was done before is not done again, except for visits until nothing changes."""
        solved = []
        solve = type(self.make(store)).solve_read
        monkeypatch.setattr(
            type(self.make(store)),
            "solve_read",
            lambda op, phase, at, *of: solved.append((phase, at)) or solve(op, phase, at, *of),
        )
        with pytest.raises(Stop):
            run(self.make(store), threads=1, place=Here(stop_at(share)))
        assert not self.there(store)
        told, before = [], {one for one in solved if one[0].counted}
        solved.clear()
        result = run(self.make(store), resume=True, place=Here(lambda *seen: told.append(seen)))
        assert len(before.intersection(solved)) <= self.in_progress
        assert sum(cells for cells, _ in told) == told[-1][1]
        self.check(store)
        again = run(self.make(store), resume=True)
        assert again.found == result.found

    @pytest.mark.parametrize("after", [only_long(0), 1])
    def test_a_full_disk(self, store, monkeypatch, after):
        left = after

        def full(*args, **kwargs):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")
            return new_file(*args, **kwargs)

        before = sorted(os.listdir(store))
        with monkeypatch.context() as patch:
            new_file = self.writing.new_file
            patch.setattr(self.writing, "new_file", full)
            patch.setattr("terrain_gpu.store.writer.saves_at_once", lambda compress: None)
            with pytest.raises(OutputError, match="no space left"):
                run(self.make(store), threads=1)
        assert sorted(set(os.listdir(store)) - {".incomplete"}) == before
        run(self.make(store), resume=True)
        self.check(store)

    def test_a_damaged_input(self, store):
        self.damage(store)
        before = set(TileStore.open(store).layers)
        error, words = self.damaged
        with pytest.raises(error, match=words):
            run(self.make(store))
        assert set(TileStore.open(store).layers) == before
        assert not self.there(store)

    # -- names, memory, reports -----------------------------------------------------------------

    def test_results_are_replaced_only_when_asked(self, store):
        run(self.make(store))
        with pytest.raises(self.exists, match="exists; --overwrite replaces it"):
            run(self.make(store))
        run(self.make(store), overwrite=True)

    @pytest.mark.long
    @pytest.mark.parametrize("shape", [(1100, 900), (70, 5000)])
    def test_the_least_limit_holds(self, tmp_path, shape):
        store = make_store(tmp_path / "s.zarr", self.cells(shape), -1, 512)
        self.prepare(store)
        command = f"terrain-gpu {self.command} --threads 2 --overwrite -q"
        limit, peak = within(tmp_path, command, MB)
        assert peak <= limit

    def test_the_report(self, store):
        told = []
        found = run(self.make(store), threads=2, place=Here(lambda *seen: told.append(seen)))
        report = json.loads(found.report.to_json())
        assert report.keys() == KEYS
        if self.identified:
            assert report["settings"]["of"].keys() >= set(self.make(store).inputs)
        assert report["settings"]["plan"]["memory"] <= report["settings"]["plan"]["memory_limit"]
        assert report["cells"] == self.counted(store)
        phases = {p.name for p in self.make(store).phases}
        assert report["seconds"].keys() >= {"total", "commit", *phases}
        assert sum(cells for cells, _ in told) == told[-1][1]

    # -- proofs ---------------------------------------------------------------------------------

    def test_its_proof_accepts_it(self, store):
        told = []
        place = Here(lambda *seen: told.append(seen))
        done = run(self.make(store), threads=2, place=place, verify=True)
        assert sum(cells for cells, _ in told) == told[-1][1]
        again = run(self.make(store), resume=True, verify=True)
        for result in (done, again):
            assert result.report.seconds["verify"] > 0
            assert any(key.startswith("verified_") for key in result.report.result)
        if "verified_cells" in done.report.result:
            assert done.report.result["verified_cells"] in self.provable(store)
        assert again.found == done.found
        code, proven = verify(store)
        assert (code, proven >= self.there(store)) == (0, True)

    @pytest.mark.parametrize("cell", [(20, 20), (64, 100), (50, 40)], ids=["inner", "rim", "void"])
    def test_its_proof_refuses_mutations(self, store, monkeypatch, cell):
        """A bit of one cell: inside a block, on its rim, and where there is no value."""
        for output in self.make(store).outputs:
            with monkeypatch.context() as patch:
                self.change(patch, type(self.make(store)), output.name, cell)
                with pytest.raises(VerificationError):
                    run(self.make(store), verify=True)
                assert not self.there(store)
                run(self.make(store))
            with pytest.raises(VerificationError):
                run(self.make(store), resume=True, verify=True)
            code, proven = verify(store)
            assert (code, output.name in proven) == (1, False)
            self.remove(store)

    @pytest.mark.long
    def test_workers_prove_it(self, store, cluster):
        """Also if one of them dies meanwhile."""
        killed, seen = [], []
        operation = self.make(store)

        def tell(cells, total):
            seen.append(cells)
            if not killed and sum(seen) > total * operation.passes / passes:
                killed.append(kill_a_worker(cluster))

        passes = operation.passes + operation.proof_passes
        found = run(operation, client=cluster, verify=True, place=Here(tell))
        assert (found.report.result["proof_tasks"] > 0) == self.proven_by_workers
        assert killed
        self.check(store)

    @pytest.mark.long
    def test_workers_refuse_mutations(self, store, monkeypatch, cluster):
        """With the message of one process."""
        for output in self.make(store).outputs:
            with monkeypatch.context() as patch:
                self.change(patch, type(self.make(store)), output.name, (64, 100))
                with pytest.raises(VerificationError) as here:
                    run(self.make(store), verify=True)
                with pytest.raises(VerificationError) as there:
                    run(self.make(store), verify=True, client=cluster)
            assert str(here.value) == str(there.value)
            told = (
                (error.value.check, error.value.row, error.value.col) for error in (here, there)
            )
            assert len(set(told)) == 1
            assert not self.there(store)
            assert not (store / ".incomplete").exists()


class FileContract(OperationContract):
    """What every operation that writes a file promises."""

    exists = InputError
    identified = False
    resumes = False

    # A stopped run leaves nothing to resume from.
    test_workers_prove_it = test_workers_refuse_mutations = None
    test_stopped_on_a_cluster_and_resumed_here = None
    test_stopped_here_and_resumed_on_a_cluster = None

    def there(self, store):
        return {o.name for o in self.make(store).outputs if Path(o.name).exists()}

    def remove(self, store):
        for name in self.there(store):
            Path(name).unlink()

    @pytest.mark.parametrize("share", [0.0, 0.45, 1.0])
    def test_stopped_anywhere_and_resumed(self, store, share):
        before = sorted(os.listdir(store.parent))
        with pytest.raises(Stop):
            run(self.make(store), threads=1, place=Here(stop_at(share)))
        assert sorted(os.listdir(store.parent)) == before
        told = []
        run(self.make(store), place=Here(lambda *seen: told.append(seen)))
        assert sum(cells for cells, _ in told) == told[-1][1]
        self.check(store)
        assert len(os.listdir(store.parent)) == len(before) + len(self.there(store))

    def full(self, patch: pytest.MonkeyPatch, after: int) -> None:
        """Fill the disk once this much is written."""
        raise NotImplementedError

    @pytest.mark.parametrize("after", [0, 1])
    def test_a_full_disk(self, store, monkeypatch, after):
        before = sorted(os.listdir(store.parent))
        with monkeypatch.context() as patch:
            self.full(patch, after)
            with pytest.raises(OutputError, match="no space left"):
                run(self.make(store), threads=1)
        assert sorted(os.listdir(store.parent)) == before
        run(self.make(store))
        self.check(store)

    def spoil(self, file: Path, cell: tuple[int, int]) -> None:
        """Change a cell of a finished file."""
        raise NotImplementedError

    def test_its_proof_accepts_it(self, store):
        told = []
        place = Here(lambda *seen: told.append(seen))
        done = run(self.make(store), threads=2, place=place, verify=True)
        assert sum(cells for cells, _ in told) == told[-1][1]
        assert done.report.seconds["verify"] > 0
        assert any(key.startswith("verified_") for key in done.report.result)
        self.check(store)

    @pytest.mark.parametrize("cell", [(20, 20), (64, 100), (50, 40)], ids=["inner", "rim", "void"])
    def test_its_proof_refuses_mutations(self, store, monkeypatch, cell):
        """A cell inside a block, on its rim, and where there is no value."""
        kind, before = type(self.make(store)), sorted(os.listdir(store.parent))
        execute = kind.execute

        def wrong(operation, run):
            found = execute(operation, run)
            for made in run.writers.values():
                self.spoil(made.part, cell)
            return found

        monkeypatch.setattr(kind, "execute", wrong)
        with pytest.raises(VerificationError):
            run(self.make(store), verify=True)
        assert sorted(os.listdir(store.parent)) == before
        # One that is there already is kept.
        files = {Path(output.name): b"older" for output in self.make(store).outputs}
        for file, data in files.items():
            file.write_bytes(data)
        with pytest.raises(VerificationError):
            run(self.make(store), verify=True, overwrite=True)
        assert {file: file.read_bytes() for file in files} == files
        assert len(os.listdir(store.parent)) == len(before) + len(files)
