"""Column names of text files, and the units they contain."""

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
    """Column names in lower case, and the unit of each ("" without one)."""

    names: tuple[str, ...]
    units: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """True if x, y and z are among the names."""
        return set(_AXES) <= set(self.names)

    def check(self, place: str) -> None:
        """Raise ``DataError``, which names file and line (``place``), if x, y or z is missing."""
        missing = [name for name in _AXES if name not in self.names]
        if missing:
            raise DataError(
                f"{place}: no column {', '.join(missing)}; columns: {', '.join(self.names)[:200] or 'none'}."
                " Rename them x, y, z (and intensity), or add --columns."
            )

    def metres(self, path: Path) -> float:
        """Return metres per unit of x, y and z.

        Raises:
            DataError: the units differ, or one is unknown.
        """
        units = [self.units[self.names.index(name)] for name in _AXES]
        if len(set(units)) > 1:
            described = ", ".join(f"{name} in {unit or '?'}" for name, unit in zip(_AXES, units, strict=True))
            raise DataError(f"{path}: coordinates in several units ({described}). Write all in metres.")
        if units[0] and units[0] not in _UNITS:
            raise DataError(f"{path}: unknown unit {units[0][:40]!r} of column x. Write m, cm, mm, ft or in.")
        return _UNITS[units[0]] if units[0] else 1.0


def parse_headings(words: Sequence[str]) -> Headings:
    """Parse the words of a header line."""
    pairs = [_named(word.strip().lower()) for word in words]
    plain = {name for name, _ in pairs}
    made = []
    for name, unit in pairs:
        numbered = _NUMBERED.fullmatch(name)
        axis = "" if numbered is None else _AXES[int(numbered.group(1))]
        # VeloView's files have both names; the plain one counts.
        made.append((name, unit) if not axis or axis in plain else (axis, "m" if "_m" in name else unit))
    return Headings(tuple(name for name, _ in made), tuple(unit for _, unit in made))


def _named(word: str) -> tuple[str, str]:
    found = _BRACKETED.fullmatch(word) or _SUFFIXED.fullmatch(word)
    return (word, "") if found is None else (found.group(1), found.group(2))
