"""The commands of terrain_gpu as algorithms of the Processing framework of QGIS.

`algorithms.json` describes the commands; `scripts/build_qgis.py` writes it. Only modules that need
QGIS import it, so that `words` and `program` are tested without.
"""


def classFactory(iface):
    from .plugin import TerrainGpuPlugin

    return TerrainGpuPlugin()
