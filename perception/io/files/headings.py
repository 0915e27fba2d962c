"""What the names of columns of text mean: which is x, and in what unit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from perception.errors import DataError

#: Units of length and how many metres they are.
_UNITS = {"m": 1.0, "cm": 0.01, "mm": 0.001, "ft": 0.3048, "in": 0.0254}
_UNITS |= {"meter": 1.0, "meters": 1.0, "metre": 1.0, "metres": 1.0, "feet": 0.3048}
#: ``X (m)``, ``x[mm]``, ``REFLECTIVITY (%)``.
_BRACKETED = re.compile(r"(.*?)\s*[(\[]\s*([^)\]]*?)\s*[)\]]")
#: ``x_m``, ``y_mm``.
_SUFFIXED = re.compile(r"([xyz])_(m|cm|mm|ft|in)")
#: Coordinates as ParaView and VeloView name them: ``Points:0``, ``Points_m_XYZ:2``.
_NUMBERED = re.compile(r"points(?:_m)?(?:_xyz)?[:_]([012])")
_AXES = ("x", "y", "z")


class Headings(NamedTuple):
    """Names of the columns of a file, lower case, and the unit that each says ("" where none).

    Attributes:
        names: such as ``("x", "y", "z", "intensity")``.
        units: as many.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether x, y and z are among them."""
        return set(_AXES) <= set(self.names)

    def check(self, place: str) -> None:
        """Refuse names without x, y and z.

        Args:
            place: file and line, for the message.

        Raises:
            DataError: one is missing; names it.
        """
        missing = [name for name in _AXES if name not in self.names]
        if missing:
            raise DataError(
                f"{place}: no column {', '.join(missing)} among {', '.join(self.names)[:200] or 'none'};"
                " name the columns x, y, z (and intensity), or say what they are with --columns"
            )

    def metres(self, path: Path) -> float:
        """Metres in the unit of x, y and z.

        Raises:
            DataError: they have different units, or one that is no length known here.
        """
        units = [self.units[self.names.index(name)] for name in _AXES]
        if len(set(units)) > 1:
            said = ", ".join(f"{name} in {unit or '?'}" for name, unit in zip(_AXES, units, strict=True))
            raise DataError(f"{path}: coordinates of several units ({said}); write all of them in metres")
        if units[0] and units[0] not in _UNITS:
            raise DataError(
                f"{path}: unit {units[0][:40]!r} of column x is not known; expected m, cm, mm, ft or in"
            )
        return _UNITS[units[0]] if units[0] else 1.0


def parse_headings(words: Sequence[str]) -> Headings:
    """Names and units of the words of a line."""
    pairs = [_named(word.strip().lower()) for word in words]
    plain = {name for name, _ in pairs}
    made = []
    for name, unit in pairs:
        numbered = _NUMBERED.fullmatch(name)
        axis = "" if numbered is None else _AXES[int(numbered.group(1))]
        # Where both are there, as in VeloView's files, the plain name counts.
        made.append((name, unit) if not axis or axis in plain else (axis, "m" if "_m" in name else unit))
    return Headings(tuple(name for name, _ in made), tuple(unit for _, unit in made))


def _named(word: str) -> tuple[str, str]:
    found = _BRACKETED.fullmatch(word) or _SUFFIXED.fullmatch(word)
    return (word, "") if found is None else (found.group(1), found.group(2))
