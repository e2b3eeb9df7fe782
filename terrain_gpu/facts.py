"""Values by name: what a run is given, what it finds, and what files hold.

Their keys depend on the command, so Python has no closer type for them.
"""

from __future__ import annotations

from typing import Any

Settings = dict[str, Any]
"""Values of options, of parameters of a function, or of macros of a kernel."""

Findings = dict[str, Any]
"""What a run counted or proved: recorded with its outputs, and reported."""

JsonObject = dict[str, Any]
"""An object of JSON or attributes of a feature: values that `json` reads and writes."""
