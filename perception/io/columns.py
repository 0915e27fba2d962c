"""What the columns of a file without field names mean: ``.bin`` and ``.npy``."""

from __future__ import annotations

from collections.abc import Sequence

#: Names by column: as text (``"x,y,z,intensity,ring"``), as a sequence, or as their number.
Columns = str | int | Sequence[str]

#: Columns whose number alone is given; what follows is skipped.
_USUAL = ("x", "y", "z", "intensity")
#: Name of a column that is skipped, as is every name that a reader does not look for.
SKIPPED = "_"
_MOST_COLUMNS = 1000


def parse_columns(columns: Columns) -> tuple[str, ...]:
    """The names, lower case.

    Args:
        columns: names separated by commas, a sequence of them, or how many columns there are: of these the
            first are x, y, z and intensity, and the others are skipped.

    Raises:
        ValueError: a number below 3, a name that is empty or occurs twice (``"_"`` may), or no x, y or z.
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
            f"columns must hold x, y and z and no name twice, got {','.join(names)[:80]!r};"
            " for example 'x,y,z,intensity,ring', with '_' for what is to be skipped"
        )
    return names
