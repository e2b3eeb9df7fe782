"""Add the provider to the Processing framework, and take it away again."""

from qgis.core import QgsApplication

from .provider import TerrainGpuProvider


class TerrainGpuPlugin:
    """What QGIS starts and stops."""

    def __init__(self):
        self.provider = None

    def initProcessing(self):
        """Add the provider; `qgis_process` calls only this."""
        self.provider = TerrainGpuProvider()
        QgsApplication.processingRegistry().addProvider(self.provider)

    def initGui(self):
        self.initProcessing()

    def unload(self):
        QgsApplication.processingRegistry().removeProvider(self.provider)
