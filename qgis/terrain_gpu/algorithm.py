"""One command as an algorithm."""

import html
import shlex

from processing.core.ProcessingConfig import ProcessingConfig
from qgis.core import QgsProcessingAlgorithm, QgsProcessingException

from . import program
from .parameters import parameter_of, value_of
from .styling import style_when_loaded
from .words import WrongValues, description, named, words

SETTING = "TERRAIN_GPU_PROGRAM"
"""The setting that names the program."""

GO_ON = "--resume continues", "a run with the same store continues"
"""What the program tells of a cancelled run, and what it means here."""


class TerrainAlgorithm(QgsProcessingAlgorithm):
    """An entry of "algorithms" in `algorithms.json`."""

    def __init__(self, described):
        super().__init__()
        self.described = described

    def createInstance(self):
        return TerrainAlgorithm(self.described)

    def name(self):
        return self.described["command"].replace("-", "_")

    def displayName(self):
        return self.described["title"]

    def group(self):
        return self.described["group"]

    def groupId(self):
        return self.group().lower().replace(" ", "_")

    def icon(self):
        return self.provider().icon()

    def tags(self):
        return [self.described["command"], "dem", "terrain"]

    def shortDescription(self):
        return self.described["help"][0]

    def shortHelpString(self):
        return "".join(f"<p>{html.escape(text)}</p>" for text in self.described["help"])

    def initAlgorithm(self, configuration=None):
        for one in self.described["parameters"]:
            self.addParameter(parameter_of(one, self.described))

    def canExecute(self):
        try:
            _program()
        except program.ProgramMissing as error:
            return False, str(error)
        return True, ""

    def checkParameterValues(self, parameters, context):
        return super().checkParameterValues(named(self.described, parameters), context)

    def processAlgorithm(self, parameters, context, feedback):
        parameters = named(self.described, parameters)
        known = description()
        try:
            path = _program()
        except program.ProgramMissing as error:
            raise QgsProcessingException(str(error)) from None
        _warn_of_other_version(path, known["version"], feedback)
        asked = self.described["parameters"]
        values = {one["name"]: value_of(self, one, parameters, context, feedback) for one in asked}
        try:
            line = [path, *words(self.described, values, known["always"])]
        except WrongValues as error:
            raise QgsProcessingException(str(error)) from None
        feedback.pushCommandInfo(shlex.join(line))

        def progress(event):
            feedback.setProgress(program.percent(event))
            feedback.setProgressText(program.told_of(event))

        try:
            program.run(line, progress, feedback.pushInfo, feedback.isCanceled)
        except program.ProgramFailed as error:
            text = str(error).replace(*GO_ON)
            raise QgsProcessingException(text) from None
        outputs = [one for one in asked if one["kind"].endswith("_out") and values[one["name"]]]
        for one in outputs:
            if "style" in one:
                style_when_loaded(values[one["name"]], one["style"], context)
        return {one["name"]: values[one["name"]] for one in outputs}


def _program():
    return program.find(ProcessingConfig.getSetting(SETTING) or "")


_VERSIONS = {}
"""Of each program, once it was asked."""


def _warn_of_other_version(path, wanted, feedback):
    if path not in _VERSIONS:
        _VERSIONS[path] = program.version(path)
    if not _VERSIONS[path]:
        raise QgsProcessingException(f"{path} is not terrain-gpu, or does not start.")
    if _VERSIONS[path] != wanted:
        feedback.reportError(
            f"{path} is version {_VERSIONS[path]}, and the plugin was made for {wanted}; install "
            "the same version of both."
        )
