"""Draw the picture of the README: the shipped sample and its spanning tree, through a store.

Usage: python scripts/make_picture.py [OUT.png]
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

import terrain_gpu
from terrain_gpu.cli.picture import draw_tree

REPO = Path(__file__).resolve().parents[1]
COLOURS = 256


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "sample.zarr"
        terrain_gpu.convert_dataset([REPO / "data" / "jacksboro.tif"], store)
        edges = terrain_gpu.minimum_spanning_tree(store).edges()
        layer = terrain_gpu.TileStore.open(store).layer("elevation")
        raw, small = Path(folder) / "raw.png", io.BytesIO()
        draw_tree(raw, layer.read_window(*layer.grid.window), edges, layer.grid)
        # A palette takes a third of the bytes, and looks the same.
        Image.open(raw).convert("RGB").quantize(COLOURS).save(small, "png", optimize=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(small.getvalue())
    print(f"{out}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "docs" / "images" / "jacksboro.png")
