"""Draw docs/images/qgis.png: the plugin in QGIS, which runs this file in a window.

QGIS needs a home with the plugin enabled (docs/how-to/qgis.md), and a display:

    xvfb-run -s "-screen 0 1500x860x24" qgis --nologo --noversioncheck \\
        --code scripts/qgis_picture.py data/jacksboro.tif

The working directory must be the repository.
"""

import os
import tempfile
import traceback

import processing
from qgis.core import QgsProject, QgsRasterLayer
from qgis.PyQt.QtCore import QPoint, QRect, QTimer
from qgis.PyQt.QtGui import QPainter, QPixmap
from qgis.PyQt.QtWidgets import QDockWidget, QLineEdit, QTreeView
from qgis.utils import iface

SAMPLE, TARGET = "data/jacksboro.tif", "docs/images/qgis.png"


def load():
    """Run two algorithms, and show what they find."""
    window = iface.mainWindow()
    window.showNormal()
    window.resize(1500, 860)
    for dock in window.findChildren(QDockWidget):
        dock.setVisible(dock.objectName() in ("Layers", "ProcessingToolbox"))
    folder = tempfile.mkdtemp()
    for name, more in (
        ("flow_accumulation", {}),
        ("streams", {"THRESHOLD": "200", "LINES": f"{folder}/streams.gpkg"}),
    ):
        output = {"OUTPUT": f"{folder}/{name}.tif"}
        processing.runAndLoadResults(f"terrain_gpu:{name}", {"INPUT": SAMPLE, **output, **more})
    layers = QgsProject.instance().layerTreeRoot()
    for node in layers.findLayers():
        node.setExpanded(node.name() != "Streams")
        node.setItemVisibilityChecked(node.name() != "Streams")
    QgsProject.instance().addMapLayer(QgsRasterLayer(SAMPLE, "jacksboro"), False)
    iface.mapCanvas().zoomToFullExtent()


def dialog():
    """Open an algorithm, and list all."""
    dock = iface.mainWindow().findChild(QDockWidget, "ProcessingToolbox")
    dock.findChild(QLineEdit).setText("terrain_gpu")
    dock.findChild(QTreeView).expandAll()
    opened = processing.createAlgorithmDialog("terrain_gpu:compute_sssp", {"INPUT": SAMPLE})
    opened.resize(560, 540)
    opened.show()
    return opened


def draw(opened):
    """Paint the window and the dialog over it."""
    picture = iface.mainWindow().grab()
    above = opened.grab()
    painter = QPainter(picture)
    corner = QPoint(330, 270)
    painter.drawPixmap(corner, above)
    painter.drawRect(QRect(corner, above.size()))
    painter.end()
    QPixmap(picture).save(TARGET)


def guarded(step, *arguments):
    """End QGIS when a step fails."""
    try:
        return step(*arguments)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def begin():
    guarded(load)
    QTimer.singleShot(3000, shown)


def shown():
    opened = guarded(dialog)
    QTimer.singleShot(3000, lambda: end(opened))


def end(opened):
    guarded(draw, opened)
    os._exit(0)  # with an open dialog, QGIS would crash on its way out


QTimer.singleShot(3000, begin)
