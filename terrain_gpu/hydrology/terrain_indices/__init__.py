"""Indices of slopes and catchment areas: the tool `TerrainIndices`."""

from __future__ import annotations

from typing import Any

from ...arguments import at_least_one, real, wrong
from ...facts import Settings
from ...tool import InputLayer, Tool, made_by, option, reads, tool, writes


def _steepness(name: str, value: Any) -> float:
    if not 0 < (degrees := float(real(name, value))) < 90:
        raise wrong(name, value, "degrees between 0 and 90")
    return degrees


@tool
class TerrainIndices(Tool):
    """Compute topographic wetness (TWI), stream power (SPI) and the length-slope factor (LS).

    With slope b and specific catchment area a: the flow accumulation divided by the width of the
    cell, which is the square root of its area. Areas and widths are in metres where the CRS has
    another unit; without a CRS, map units count as metres.

    Cells without a slope, such as those on the edge of the raster, or without accumulation are
    nodata (-9999).

    Returns
    -------
    Result
        Its `layers` have the names given: float32.

    Raises
    ------
    InputError
        when no index is asked for, a name cannot be used, cells are counted that differ in area, or
        a slope is not from 0 to 90.

    Notes
    -----
    Beven and Kirkby (1979), Hydrological Sciences Bulletin 24 (TWI); Moore, Grayson and Ladson
    (1991), Hydrological Processes 5 (SPI); Moore and Burch (1986), Soil Science Society of America
    Journal 50 (LS).

    Examples
    --------
    >>> result = terrain_indices("dem.zarr", twi="twi", ls="ls")
    >>> wetness = result.layers["twi"].read_window(0, 100, 0, 100)
    """

    twi: str | None = writes(
        default=None, help="Layer to write the wetness index to: ln(a / tan b)."
    )
    spi: str | None = writes(
        default=None, help="Layer to write the stream power index to: a tan b."
    )
    ls: str | None = writes(
        default=None,
        help="Layer to write the length-slope factor to: (a / 22.13)^0.4 (sin b / 0.0896)^1.3.",
    )
    slope: str = reads(default="slope", help="Layer of slopes b, in degrees.")
    accumulation: str = reads(
        default="flow_accumulation",
        help="Layer of flow accumulation: areas, or cells where all have the same area.",
    )
    min_slope: float = option(
        default=0.1,
        metavar="DEGREES",
        check=_steepness,
        help="Slope that the wetness index assumes for flatter cells.",
    )

    command, function, accessor = "terrain-indices", "terrain_indices", "indices"
    group = "Terrain"
    short = "Compute TWI, stream power and the LS factor"
    examples = """
    terrain-gpu terrain-indices dem.zarr --twi twi --spi spi --ls ls
    terrain-gpu terrain-indices dem.tif --twi twi -o twi.tif
    """
    operation = ".operation:Indices"
    rules = (at_least_one("twi", "spi", "ls"),)
    refuses = ".rule:refuse_others"
    needs = ("flow-accumulation", "slope")
    mark = "indices_of"
    proof = ".proof:verify_stored_indices"

    def inputs(self) -> tuple[InputLayer, ...]:
        areas = made_by("flow-accumulation", areas=True)
        return (
            InputLayer(self.slope, "float32", made_by=made_by("slope")),
            InputLayer(self.accumulation, "float64", made_by=areas),
        )

    @classmethod
    def planned(cls, options: Settings) -> TerrainIndices:
        return cls("twi", "spi", "ls")
