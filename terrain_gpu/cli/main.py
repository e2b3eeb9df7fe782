"""The command group `terrain-gpu` and the standalone programs."""

from __future__ import annotations

import click

from ..morphometry import command as slope_command
from . import accumulate as accumulate_file
from . import (
    basins,
    breach,
    burn,
    calc,
    contours,
    corridor,
    demo,
    depressions,
    export,
    fill,
    flow_accumulation,
    flow_direction,
    hand,
    info,
    layers,
    network,
    options,
    overviews,
    plan,
    polygons,
    rasterize,
    streams,
    terrain_indices,
    verify,
    watershed,
)
from . import build_index as build_index_file
from . import compute_mst as compute_mst_file
from . import compute_sssp as compute_sssp_file
from . import convert_dataset as convert_dataset_file
from . import cost_matrix as cost_matrix_file
from . import label_components as label_components_file
from . import least_cost_network as least_cost_network_file
from . import map as map_file
from . import query_index as query_index_file
from .operations import command_of, writer_of


@click.group(invoke_without_command=True)
@options.version_option
@click.pass_context
def group(context: click.Context) -> None:
    """Analyse elevation rasters far larger than memory as grid graphs."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _file in (
    convert_dataset_file,
    compute_sssp_file,
    cost_matrix_file,
    least_cost_network_file,
    build_index_file,
    query_index_file,
    info,
    layers,
    overviews,
    export,
    verify,
    plan,
    map_file,
    demo,
):
    group.add_command(_file.command)
for _operation in (
    compute_mst_file,
    label_components_file,
    accumulate_file,
    calc,
    corridor,
    rasterize,
    slope_command,
    burn,
    breach,
    flow_direction,
    flow_accumulation,
    fill,
    hand,
    basins,
    depressions,
    watershed,
    streams,
    terrain_indices,
):
    group.add_command(command_of(_operation))
for _writer in (network, polygons, contours):
    group.add_command(writer_of(_writer))


def main() -> None:
    """Run the program `terrain-gpu`."""
    options.run(group)


def convert_dataset() -> None:
    """Run the program `convert-dataset`."""
    options.run(convert_dataset_file.command)


def compute_mst() -> None:
    """Run the program `compute-mst`."""
    options.run(group.commands["compute-mst"])


def compute_sssp() -> None:
    """Run the program `compute-sssp`."""
    options.run(compute_sssp_file.command)
