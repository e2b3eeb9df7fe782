"""A session of QGIS without a window: runs algorithms; the Python of QGIS runs this file.

Reads a JSON object from standard input: "plugin", the folder of the plugin, and "cases", a list of
{"algorithm", "parameters"}; "cancel": true cancels when the first progress comes, and the name of a
phase when something of that is done. A parameter
{"points": [[x, y, selected], ...]} is a layer in memory with these points, the selected ones of
which are used if there are any; {"file": path, "filter": expression} a filtered layer. Writes a
list of {"outputs" or "error", "messages", "progress", "styles"} to standard output.
"""

import json
import sys
from pathlib import Path

from qgis.core import (
    QgsApplication,
    QgsFeature,
    QgsGeometry,
    QgsPointXY,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingFeatureSourceDefinition,
    QgsProcessingFeedback,
    QgsProject,
    QgsRasterLayer,
    QgsVectorLayer,
)


class Recording(QgsProcessingFeedback):
    """Keeps all messages and progress."""

    def __init__(self, cancel):
        super().__init__(False)
        self.cancel_in, self.messages, self.phases = cancel, [], []

    def pushInfo(self, info):
        self.messages.append(info)

    def pushCommandInfo(self, info):
        self.messages.append(info)

    def reportError(self, error, fatalError=False):
        self.messages.append(error)

    def setProgressText(self, text):
        self.phases.append([text, self.progress()])
        begun = text.startswith(str(self.cancel_in)) and self.progress() > 0
        if self.cancel_in is True or begun:
            self.cancel()


def layer_of(value):
    """What a parameter stands for, in QGIS."""
    if not isinstance(value, dict):
        return value
    if "points" in value:
        layer = QgsVectorLayer("Point?crs=EPSG:4326&field=id:integer", "points", "memory")
        for number, (x, y, _) in enumerate(value["points"], 1):
            feature = QgsFeature(layer.fields())
            feature.setGeometry(QgsGeometry.fromPointXY(QgsPointXY(x, y)))
            feature.setAttributes([number])
            layer.dataProvider().addFeature(feature)
        chosen = [number for number, point in enumerate(value["points"], 1) if point[2]]
        layer.selectByIds(chosen)
        QgsProject.instance().addMapLayer(layer)
        return QgsProcessingFeatureSourceDefinition(layer.id(), bool(chosen))
    layer = QgsVectorLayer(value["file"], "filtered", "ogr")
    layer.setSubsetString(value["filter"])
    QgsProject.instance().addMapLayer(layer)
    return layer.id()


def styled(outputs, algorithm, styling):
    """The kind of renderer of each output that has a style."""
    found = {}
    for one in algorithm.described["parameters"]:
        if "style" in one and one["name"] in outputs:
            kind = QgsRasterLayer if one["kind"] == "raster_out" else QgsVectorLayer
            layer = kind(outputs[one["name"]], one["name"])
            styling.apply(layer, one["style"])
            found[one["name"]] = layer.renderer().type()
    return found


def run(case, styling):
    """Run one case."""
    algorithm = QgsApplication.processingRegistry().createAlgorithmById(case["algorithm"])
    context, feedback = QgsProcessingContext(), Recording(case.get("cancel", False))
    context.setProject(QgsProject.instance())
    given = {name: layer_of(value) for name, value in case["parameters"].items()}
    told = {"messages": feedback.messages, "progress": feedback.phases}
    try:
        possible, reason = algorithm.canExecute()
        if not possible:
            raise QgsProcessingException(reason)
        correct, reason = algorithm.checkParameterValues(given, context)
        if not correct:
            raise QgsProcessingException(reason)
        outputs, _ = algorithm.run(given, context, feedback, catchExceptions=False)
    except QgsProcessingException as error:
        return {"error": str(error), **told}
    return {"outputs": outputs, "styles": styled(outputs, algorithm, styling), **told}


def main():
    asked = json.load(sys.stdin)
    application = QgsApplication([], False)
    application.initQgis()
    sys.path.append(str(Path(QgsApplication.pkgDataPath()) / "python" / "plugins"))
    from processing.core.Processing import Processing

    Processing.initialize()
    plugin = Path(asked["plugin"])
    sys.path.insert(0, str(plugin.parent))
    made = __import__(plugin.name)
    added = made.classFactory(None)
    added.initProcessing()
    styling = __import__(f"{plugin.name}.styling").styling
    print(json.dumps([run(case, styling) for case in asked["cases"]]))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
