"""The provider: its algorithms, and the setting that names the program."""

from pathlib import Path

from processing.core.ProcessingConfig import ProcessingConfig, Setting
from qgis.core import QgsProcessingProvider
from qgis.PyQt.QtGui import QIcon

from .algorithm import SETTING, TerrainAlgorithm
from .words import description


class TerrainGpuProvider(QgsProcessingProvider):
    """terrain_gpu in the Processing toolbox."""

    def id(self):
        return "terrain_gpu"

    def name(self):
        return "terrain_gpu"

    def icon(self):
        return QIcon(str(Path(__file__).with_name("icon.svg")))

    def versionInfo(self):
        return description()["version"]

    def load(self):
        ProcessingConfig.settingIcons[self.name()] = self.icon()
        text = "Program terrain-gpu, or the folder of its environment (empty: searched)"
        ProcessingConfig.addSetting(Setting(self.name(), SETTING, text, "", valuetype=Setting.FILE))
        ProcessingConfig.readSettings()
        self.refreshAlgorithms()
        return True

    def unload(self):
        ProcessingConfig.removeSetting(SETTING)

    def loadAlgorithms(self):
        for described in description()["algorithms"]:
            self.addAlgorithm(TerrainAlgorithm(described))

    def supportsNonFileBasedOutput(self):
        return False

    def supportedOutputRasterLayerExtensions(self):
        return ["tif"]

    def supportedOutputVectorLayerExtensions(self):
        return ["gpkg", "geojson", "fgb"]

    def supportedOutputTableExtensions(self):
        return ["csv"]

    def defaultVectorFileExtension(self, hasGeometry=True):
        return "gpkg" if hasGeometry else "csv"

    def defaultRasterFileExtension(self):
        return "tif"
