"""Styles of outputs when they are loaded."""

from pathlib import Path

from qgis.core import (
    QgsPalettedRasterRenderer,
    QgsProcessingLayerPostProcessorInterface,
    QgsRandomColorRamp,
    QgsRasterBandStats,
    QgsSingleBandPseudoColorRenderer,
)

STYLES = Path(__file__).parent / "styles"
MOST_LABELS, MOST_CELLS = 2_000, 25_000_000
"""More labels get a ramp of colours, as do those of more cells."""


def style_when_loaded(path, style, context):
    """Let the project give a layer its style once it is loaded, if it is."""
    if context.willLoadLayerOnCompletion(path):
        _KEPT[path] = Styling(style)
        context.layerToLoadOnCompletionDetails(path).setPostProcessor(_KEPT[path])


_KEPT = {}
"""QGIS does not own them."""


class Styling(QgsProcessingLayerPostProcessorInterface):
    """Gives a layer one of the styles."""

    def __init__(self, style):
        super().__init__()
        self.style = style

    def postProcessLayer(self, layer, context, feedback):
        apply(layer, self.style)


def apply(layer, style):
    """Load a style, and fit it to the values of the layer where it has a ramp."""
    if style == "labels" and _give_colours(layer):
        return
    layer.loadNamedStyle(str(STYLES / f"{'distance' if style == 'labels' else style}.qml"))
    if style in ("distance", "labels"):
        _fit(layer)
    layer.triggerRepaint()


def _give_colours(layer):
    """Give each label a colour, if there are not too many."""
    if layer.width() * layer.height() > MOST_CELLS:
        return False
    provider = layer.dataProvider()
    classes = QgsPalettedRasterRenderer.classDataFromRaster(provider, 1, QgsRandomColorRamp())
    if len(classes) > MOST_LABELS:
        return False
    layer.setRenderer(QgsPalettedRasterRenderer(provider, 1, classes))
    layer.triggerRepaint()
    return True


def _fit(layer):
    """Stretch the ramp from the least to the greatest value, of a sample in large rasters."""
    renderer = layer.renderer()
    if not isinstance(renderer, QgsSingleBandPseudoColorRenderer):
        return
    wanted = QgsRasterBandStats.Min | QgsRasterBandStats.Max
    found = layer.dataProvider().bandStatistics(1, wanted, layer.extent(), 250_000)
    shader = renderer.shader().rasterShaderFunction()
    renderer.setClassificationMin(found.minimumValue)
    renderer.setClassificationMax(found.maximumValue)
    ramp = shader.sourceColorRamp().clone()
    renderer.createShader(ramp, shader.colorRampType(), shader.classificationMode(), 9)
