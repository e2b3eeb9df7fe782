"""The case `literature` of benchmarks repeats every experiment, at a tiny scale."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench.__main__ import main
from bench.cases.literature import EXPERIMENTS, forest, make_list, shift_of
from terrain_gpu.primitives import connected_components, list_ranking, lists_cpu


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_experiment(backend, capsys, tmp_path):
    how = ["--backend", backend, "--scale", "0.0001", "--repeat", "1"]
    main(["literature", *how, "--work", str(tmp_path)])
    printed = capsys.readouterr().out
    assert re.findall(r"^\(([a-z-]+): [\d.]+ s\)$", printed, re.M) == [*EXPERIMENTS]
    for figure in ("(552.3)", "(547.6)", "(388.2)", "(117.8)", "(287.0)", "(111.3)", "1.75-1.83"):
        assert figure in printed
    if backend == "cuda":
        assert "(17.8)" in printed


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("even", [False, True])
def test_lists_have_the_sublists_they_promise(random, even):
    n, shift = 4000, shift_of(4000, 250)
    succ = make_list(np, n, shift, random, even)
    ranks = list_ranking(succ, backend="cpu")
    assert np.array_equal(np.sort(ranks), np.arange(n))
    splitters = lists_cpu.pick(np.arange(n >> shift), shift)
    lengths = -np.diff(np.sort(ranks[splitters])[::-1], append=-1)
    assert lengths.max() - lengths.min() <= 1 if even else lengths.max() > 3 * n / len(splitters)
    assert (np.diff(ranks[splitters]) < 0).all() != random


@pytest.mark.parametrize("k", [1, 2, 20])
def test_forests(k):
    edges, n = forest(np, 3000, k)
    labels = connected_components(edges, n, backend="cpu")
    assert len(np.unique(labels)) == 10
    assert n - len(edges) == 10
    assert np.bincount(edges[:, 1]).max() == k
