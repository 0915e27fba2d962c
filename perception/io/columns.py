"""Column names for files without field names: ``.bin`` and ``.npy``."""

from __future__ import annotations

from collections.abc import Sequence

#: Names by column: as text (``"x,y,z,intensity,ring"``), as a sequence, or as their number.
Columns = str | int | Sequence[str]

#: Names when only the number of columns is given; further columns are skipped.
_USUAL = ("x", "y", "z", "intensity")
#: Name of a column to skip. Readers also skip names that they do not know.
SKIPPED = "_"
_MOST_COLUMNS = 1000


def parse_columns(columns: Columns) -> tuple[str, ...]:
    """Return the column names in lower case.

    Args:
        columns: names separated by commas, a sequence of names, or the number of columns. With a number, the
            first four are x, y, z and intensity, and the rest are skipped.

    Raises:
        ValueError: a number below 3, an empty or repeated name (``"_"`` may repeat), or no x, y or z.
        TypeError: neither text, a number nor a sequence of text.
    """
    if isinstance(columns, str):
        text = columns.strip()
        columns = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else text.split(",")
    if isinstance(columns, int) and not isinstance(columns, bool):
        if not 3 <= columns <= _MOST_COLUMNS:
            raise ValueError(f"columns must be 3 (x, y, z), 4 (with intensity) or more, got {columns}")
        return (_USUAL + (SKIPPED,) * columns)[:columns]
    if not isinstance(columns, Sequence) or not all(isinstance(name, str) for name in columns):
        raise TypeError(f"columns must be names such as 'x,y,z,intensity,ring' or a number, got {columns!r}")
    names = tuple(name.strip().lower() for name in columns)
    used = [name for name in names if name != SKIPPED]
    if not {"x", "y", "z"} <= set(used) or len(set(used)) != len(used) or "" in used:
        raise ValueError(
            f"columns must name x, y and z, and no name twice, got {','.join(names)[:80]!r}. Write"
            " 'x,y,z,intensity,ring', with '_' for a column to skip."
        )
    return names
