"""Slope and aspect: a small tool, and the example of docs/how-to/add-an-operation.md."""

from __future__ import annotations

from ...tool import InputLayer, Tool, reads, tool, writes

LAYER = "slope"


@tool
class Slope(Tool):
    """Compute the slope of every cell in degrees, by Horn's method.

    Elevations are converted to the unit of lengths if the layer or a vertical CRS names theirs;
    otherwise they must be in it: map units, or in a geographic CRS metres, measured on the
    ellipsoid. Cells on the edge of the raster or next to nodata are nodata (-9999).

    Returns
    -------
    Result
        Its `layers` are named {into} and {aspect}: float32, degrees.

    Notes
    -----
    B. K. P. Horn (1981), Hill shading and the reflectance map; Proceedings of the IEEE 69(1).

    Examples
    --------
    >>> result = slope("dem.zarr", aspect="aspect")
    >>> degrees = result.layers["slope"].read_window(0, 100, 0, 100)
    """

    layer: str = reads(default="elevation", help="Layer of elevations.")
    into: str = writes(default=LAYER, help="Layer to write the slopes to: degrees from 0 to 90.")
    aspect: str | None = writes(
        default=None,
        help="Also write this layer: the downhill direction, in degrees clockwise from north. "
        "Level cells are nodata.",
    )

    command = function = accessor = "slope"
    group = "Terrain"
    short = "Compute slope and aspect by Horn's method"
    examples = """
    terrain-gpu slope dem.zarr
    terrain-gpu slope dem.zarr --aspect aspect -o slope.tif
    """
    operation = ".operation:Slopes"
    mark = "slope_of"
    proof = ".proof:verify_stored_slopes"

    def inputs(self) -> tuple[InputLayer, ...]:
        return (InputLayer(self.layer),)
