"""Regions of a given size for shortest paths on GPUs."""

from __future__ import annotations

from terrain_gpu.paths.relax.gpu.problem import Problem


def in_regions(patch, high, wide=None):
    """GPUs take regions of so many rows and columns of blocks, squares by default."""
    usual = Problem.plan

    def plan(self):
        sides = high, high if wide is None else wide
        return usual(self)[0], tuple(map(min, sides, self.blocks.shape))

    patch.setattr(Problem, "plan", plan)
