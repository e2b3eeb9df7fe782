"""Parameters of Processing from their descriptions, and their values for the command line."""

import os
from pathlib import Path

from qgis.core import (
    QgsDataProvider,
    QgsProcessing,
    QgsProcessingException,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterDefinition,
    QgsProcessingParameterEnum,
    QgsProcessingParameterFeatureSource,
    QgsProcessingParameterField,
    QgsProcessingParameterFile,
    QgsProcessingParameterNumber,
    QgsProcessingParameterPoint,
    QgsProcessingParameterRasterDestination,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterString,
    QgsProcessingParameterVectorDestination,
    QgsVectorLayer,
)

from .words import store_in

VECTOR = ["gpkg", "geojson", "json", "shp", "fgb", "kml"]
"""What the command line reads; other layers are exported first."""

PARENTS = {"FIELD": "FEATURES", "ID_FIELD": "SOURCES", "COST_FIELD": "SOURCES"}
PARENTS |= {"TARGET_ID_FIELD": "TARGETS", "MAX_COST_FIELD": "SOURCES"}


def parameter_of(one, described):
    """Return the parameter of a description."""
    made = _MAKERS[one["kind"]](one, described)
    made.setHelp(one.get("help", ""))
    if one.get("advanced"):
        made.setFlags(made.flags() | QgsProcessingParameterDefinition.FlagAdvanced)
    return made


def _common(one):
    return {
        "name": one["name"],
        "description": one["label"],
        "defaultValue": one.get("default"),
        "optional": one.get("optional", False),
    }


def _number(kind):
    def make(one, described):
        bounds = {f"{which}Value": one[which] for which in ("min", "max") if which in one}
        return QgsProcessingParameterNumber(**_common(one), type=kind, **bounds)

    return make


def _choice(one, described):
    return QgsProcessingParameterEnum(
        **_common(one), options=one["choices"], usesStaticStrings=True
    )


def _vector(one, described):
    return QgsProcessingParameterFeatureSource(
        **_common(one), types=[QgsProcessing.TypeVectorAnyGeometry]
    )


def _field(one, described):
    names = {other["name"] for other in described["parameters"]}
    parent = PARENTS[one["name"]]
    parent = parent if parent in names else "NAMES"
    return QgsProcessingParameterField(**_common(one), parentLayerParameterName=parent)


def _destination(kind, **more):
    def make(one, described):
        return kind(**_common(one), createByDefault=one["usual"], **more)

    return make


def _plain(kind, **more):
    return lambda one, described: kind(**_common(one), **more)


_MAKERS = {
    "raster_in": _plain(QgsProcessingParameterRasterLayer),
    "vector_in": _vector,
    "file_in": _plain(QgsProcessingParameterFile),
    "folder": _plain(QgsProcessingParameterFile, behavior=QgsProcessingParameterFile.Folder),
    "store": _plain(QgsProcessingParameterFile, behavior=QgsProcessingParameterFile.Folder),
    "point": _plain(QgsProcessingParameterPoint),
    "flag": _plain(QgsProcessingParameterBoolean),
    "text": _plain(QgsProcessingParameterString),
    "field": _field,
    "choice": _choice,
    "integer": _number(QgsProcessingParameterNumber.Integer),
    "number": _number(QgsProcessingParameterNumber.Double),
    "raster_out": _destination(QgsProcessingParameterRasterDestination),
    "vector_out": _destination(QgsProcessingParameterVectorDestination),
    "table_out": _destination(
        QgsProcessingParameterVectorDestination, type=QgsProcessing.TypeVector
    ),
}


def value_of(algorithm, one, parameters, context, feedback):
    """Return the value of a parameter for `words`; None if it is not given."""
    name, kind = one["name"], one["kind"]
    if parameters.get(name) is None and one.get("optional"):
        return None
    if kind == "raster_in":
        return _raster(algorithm.parameterAsRasterLayer(parameters, name, context), one, parameters)
    if kind == "vector_in":
        path, layer = algorithm.parameterAsCompatibleSourceLayerPathAndLayerName(
            parameters, name, context, VECTOR, "gpkg", feedback
        )
        if not path:
            raise QgsProcessingException(algorithm.invalidSourceError(parameters, name))
        layer = layer or _first_layer(path)
        return f"{path}:{layer}" if layer else path
    raster = algorithm.parameterAsRasterLayer(parameters, "INPUT", context)
    if kind == "store":
        folder = algorithm.parameterAsFile(parameters, name, context)
        return store_in(folder, raster.source()) if folder else None
    if kind == "point":
        point = algorithm.parameterAsPoint(parameters, name, context, raster.crs())
        return f"{point.x()!r},{point.y()!r}"
    if kind.endswith("_out"):
        path = algorithm.parameterAsOutputLayer(parameters, name, context)
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        return path or None
    return _READERS[kind](algorithm, parameters, name, context)


_READERS = {
    "file_in": lambda a, p, name, c: a.parameterAsFile(p, name, c),
    "folder": lambda a, p, name, c: a.parameterAsFile(p, name, c),
    "flag": lambda a, p, name, c: a.parameterAsBool(p, name, c),
    "text": lambda a, p, name, c: a.parameterAsString(p, name, c),
    "field": lambda a, p, name, c: ", ".join(a.parameterAsFields(p, name, c)),
    "choice": lambda a, p, name, c: a.parameterAsEnumString(p, name, c),
    "integer": lambda a, p, name, c: a.parameterAsInt(p, name, c),
    "number": lambda a, p, name, c: a.parameterAsDouble(p, name, c),
}


def _first_layer(path):
    """Return the layer that QGIS reads from a file of several; "" of one."""
    opened = QgsVectorLayer(path, "", "ogr")
    layers = opened.dataProvider().subLayers()
    return layers[0].split(QgsDataProvider.sublayerSeparator())[1] if len(layers) > 1 else ""


def _raster(layer, one, parameters):
    """Return the file of a raster layer."""
    if layer is None or not layer.isValid():
        raise QgsProcessingException(f"{one['label']}: {parameters[one['name']]}: no raster layer")
    source = layer.source()
    if layer.dataProvider().name() != "gdal" or not (
        os.path.isfile(source) or source.startswith(("/vsi", "http://", "https://"))
    ):
        raise QgsProcessingException(
            f"{one['label']}: {layer.name()} is not a raster file; save it as a GeoTIFF first "
            "(Export > Save As)"
        )
    return source
