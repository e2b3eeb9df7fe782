"""Write the real sample in data/ (GeoTIFF and GRASS ASCII) from matplotlib's Jacksboro fault DEM.

Usage: python scripts/make_sample.py [FOLDER]
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import rasterio
from matplotlib.cbook import get_sample_data
from rasterio.transform import from_bounds

SHA256 = "0c7e9f894eb7c8d444ca4475e64249e060d96c90ab63fdf439a0381c590ed502"
CRS = "EPSG:4326"


def load_source():
    """Return the elevations (int16, metres) and their bounds (west, south, east, north)."""
    source = get_sample_data("jacksboro_fault_dem.npz")
    # The file swaps ymin and ymax: its first row is the northern one.
    south, north = sorted((float(source["ymin"]), float(source["ymax"])))
    bounds = float(source["xmin"]), south, float(source["xmax"]), north
    return source["elevation"], bounds


def write_geotiff(path, cells, bounds):
    rows, cols = cells.shape
    profile = {
        "driver": "GTiff", "dtype": "int16", "count": 1, "height": rows, "width": cols,
        "crs": CRS, "transform": from_bounds(*bounds, cols, rows),
        "tiled": True, "blockxsize": 256, "blockysize": 256,
        "compress": "deflate", "predictor": 2, "zlevel": 9,
    }  # fmt: skip
    with rasterio.open(path, "w", **profile) as dst:
        dst.write(cells, 1)
        dst.set_band_unit(1, "m")
        dst.set_band_description(1, "elevation")


def write_grass_ascii(path, cells, bounds):
    west, south, east, north = bounds
    rows, cols = cells.shape
    header = f"north: {north}\nsouth: {south}\neast: {east}\nwest: {west}\n"
    lines = (" ".join(map(str, row)) for row in cells.tolist())
    path.write_text(f"{header}rows: {rows}\ncols: {cols}\n" + "\n".join(lines) + "\n")


def digest(cells):
    """Return the SHA-256 of cells as little-endian int16, row by row."""
    return hashlib.sha256(np.ascontiguousarray(cells, "<i2").tobytes()).hexdigest()


def check(name, cells):
    if digest(cells) != SHA256:
        sys.exit(f"{name}: cells have SHA-256 {digest(cells)}, expected {SHA256}")


def main(folder):
    cells, bounds = load_source()
    check("matplotlib's jacksboro_fault_dem.npz", cells)
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in [
        ("jacksboro.tif", write_geotiff),
        ("jacksboro_grass.txt", write_grass_ascii),
    ]:
        path = folder / name
        write(path, cells, bounds)
        with rasterio.open(path) as src:
            check(path, src.read(1))
        print(f"{path}: {cells.shape[0]} x {cells.shape[1]} cells, SHA-256 {SHA256}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "data")
