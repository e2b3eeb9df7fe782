"""Formulas from the literature, by name.

Heights and lengths are in metres, and so is each formula's slope, dz / length. Speeds are turned
into seconds: 3.6 / (km/h) for each metre.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Preset:
    """A formula with the default values of its parameters.

    Attributes
    ----------
    formula
        See `tree`. A friction layer multiplies it.
    source
        Where it was published.
    unit
        Of costs: "s"; "J/kg", energy for each kilogram of the walker; "", compared with walking
        one metre on level ground.
    parameters
        Default values.
    """

    formula: str
    source: str
    unit: str = "s"
    parameters: Mapping[str, float] = field(default_factory=dict)


_THETA = "degrees(atan(slope))"
_MEASURED = "max(-0.5, min(0.5, slope))"

PRESETS = {
    "tobler-off-path": Preset(
        "length * exp(3.5 * abs(slope + 0.05))",
        "W. Tobler 1993, NCGIA technical report 93-1: 0.6 of the speed on paths",
    ),
    "modified-tobler": Preset(
        "length * 0.75 * exp(5.3 * abs(0.7 * slope + 0.03))",
        "J. Márquez-Pérez, I. Vallejo-Villalta, J. I. Álvarez-Francoso 2017, Geografisk Tidsskrift "
        "117: 53-62",
    ),
    "naismith": Preset(
        "length * 0.72 + 6 * max(dz, 0)",
        "W. W. Naismith 1892, Scottish Mountaineering Club Journal 2: 136: 5 km/h, and an hour for "
        "600 m of climb",
    ),
    "davey": Preset(
        "length / 1.4 * exp(2.8 * abs(atan(slope)))",
        "R. C. Davey, M. Hayes, J. M. Norman 1994, J. Operational Research Society 45: 25-29",
    ),
    "rees": Preset(
        "length * (0.75 + 0.09 * abs(slope) + 14.6 * slope ** 2)",
        "W. G. Rees 2004, Computers & Geosciences 30: 203-209",
    ),
    "kondo-seino": Preset(
        "length * 3.6 / 5.1 * exp(where(slope < -0.07, 1.5, 2.25) * abs(slope + 0.07))",
        "Y. Kondo, Y. Seino 2010, in Making History Interactive (CAA 2009)",
    ),
    "irmischer-clarke": Preset(
        "length / (speed * (0.11 + exp(-(100 * abs(slope) + 5) ** 2 / 1800)))",
        "I. J. Irmischer, K. C. Clarke 2018, Cartography and Geographic Information Science 45: "
        "177-186; speed=0.95 for women",
        parameters={"speed": 1.0},
    ),
    "irmischer-clarke-off-path": Preset(
        "length / (speed * (0.11 + 0.67 * exp(-(100 * abs(slope) + 2) ** 2 / 1800)))",
        "as irmischer-clarke",
        parameters={"speed": 1.0},
    ),
    "campbell-2017": Preset(
        f"length / max(0, 1.662 - 0.005191 * {_THETA} - 0.001127 * {_THETA} ** 2)",
        "M. J. Campbell, P. E. Dennison, B. W. Butler 2017, Int. J. Wildland Fire 26: 884-895; "
        "impassable where the speed falls to 0, at 36 degrees uphill, 41 downhill",
    ),
    "campbell-2019": Preset(
        f"length / max(0, c / (pi * b * (1 + (({_THETA} - a) / b) ** 2)) + d + e * {_THETA})",
        "M. J. Campbell, P. E. Dennison, B. W. Butler, W. G. Page 2019, Applied Geography 106: "
        "93-107; by default the median of walkers",
        parameters={"a": -2.171, "b": 10.064, "c": 63.66, "d": 0.628, "e": -0.00463},
    ),
    "herzog": Preset(
        "length * max(0, 1337.8 * slope ** 6 + 278.19 * slope ** 5 - 517.39 * slope ** 4"
        " - 78.199 * slope ** 3 + 93.419 * slope ** 2 + 19.825 * slope + 1.64)",
        "I. Herzog 2014, in Fusion of Cultures (CAA 2010): 375-382: minetti without its fall below "
        "0 on steep slopes",
        "J/kg",
    ),
    "minetti": Preset(
        f"length * max(0, 280.5 * {_MEASURED} ** 5 - 58.7 * {_MEASURED} ** 4"
        f" - 76.8 * {_MEASURED} ** 3 + 51.9 * {_MEASURED} ** 2 + 19.6 * {_MEASURED} + 2.5)",
        "A. E. Minetti and others 2002, J. Applied Physiology 93: 1039-1046; steeper than the 0.5 "
        "that were measured, as at 0.5",
        "J/kg",
    ),
    "llobera-sluckin": Preset(
        "length * max(0, 2.635 + 17.37 * slope + 42.37 * slope ** 2 - 21.43 * slope ** 3"
        " + 14.93 * slope ** 4)",
        "M. Llobera, T. J. Sluckin 2007, J. Theoretical Biology 249: 206-217",
        "kJ",
    ),
    "wheeled": Preset(
        "length * (1 + (slope / critical) ** 2)",
        "I. Herzog 2013, in Computational Approaches to Archaeological Spaces: 179-211; twice the "
        "cost of level ground at the critical slope",
        "",
        parameters={"critical": 0.12},
    ),
}
