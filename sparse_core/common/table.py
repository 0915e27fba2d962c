"""Results as tables for people and as JSON for programs.

A result is a dataclass derived from :class:`Report`: its fields and ``derived`` properties are its JSON, and
:meth:`Report.tables` its printed form. Cells hold values; tables format them, text left and numbers right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Item = TypeVar("Item")
Column = str | Callable[[Any], object]
"""Attribute of an item, with a format behind a colon such as ``"density:.1%"``; or a function of the item."""


class Number(str):
    """Text of a number, which tables align right."""

    __slots__ = ()


class Table:
    """Rows under column heads.

    Args:
        rows: cells, see :func:`cell`; every row as long as the heads.
        right: heads of text columns to align right.
        ends: numbers of rows that end a section; a terminal draws a line below them.

    Raises:
        ValueError: a row of another length.
    """

    def __init__(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        title: str = "",
        right: Iterable[str] = (),
        note: str = "",
        ends: Iterable[int] = (),
    ) -> None:
        self.title, self.heads, self.note, self.ends = title, list(heads), note, set(ends)
        self.rows = [[cell(value) for value in row] for row in rows]
        for row in self.rows:
            if len(row) != len(self.heads):
                raise ValueError(f"a row has {len(row)} cells and the header {len(self.heads)}: {row}")
        named = set(right)
        self.numeric = [
            head in named or _is_numeric([row[place] for row in self.rows])
            for place, head in enumerate(self.heads)
        ]

    @classmethod
    def of(
        cls,
        items: Iterable[Item],
        columns: Mapping[str, Column],
        *,
        totals: Sequence[Mapping[str, object]] = (),
        title: str = "",
    ) -> Table:
        """Make a row per item.

        Args:
            totals: rows below these, values by head, formatted like the items'.
        """
        rows = [[_format_item(item, column) for column in columns.values()] for item in items]
        for total in totals:
            rows.append([cell(total.get(head, ""), _format_of(column)) for head, column in columns.items()])
        return cls(list(columns), rows, title=title)

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.heads, *self.rows, strict=True)]
        lines = [self.title] if self.title else []
        for row in (self.heads, ["-" * width for width in widths], *self.rows):
            cells = [
                text.rjust(width) if numeric else text.ljust(width)
                for text, width, numeric in zip(row, widths, self.numeric, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, self.note] if self.note else lines)

    def __rich__(self) -> RichTable:
        """Return the table for ``rich`` on a terminal."""
        from rich.markup import escape
        from rich.table import Table as RichTable

        table = RichTable(title=escape(self.title) or None, caption=escape(self.note) or None)
        table.title_justify = table.caption_justify = "left"
        table.header_style = "bold"
        for head, numeric in zip(self.heads, self.numeric, strict=True):
            table.add_column(escape(head), justify="right" if numeric else "left", overflow="fold")
        for place, row in enumerate(self.rows):
            table.add_row(*map(escape, row), end_section=place in self.ends)
        return table


class Report:
    """Base class of results: printed as tables, written as JSON.

    Attributes:
        derived: properties to include in JSON; fields with ``repr=False`` are left out.
    """

    derived: ClassVar[tuple[str, ...]] = ()

    def tables(self) -> Sequence[Table | str]:
        """Return the tables and texts to print, in order."""
        names = [each.name for each in fields(self) if each.repr]  # type: ignore[arg-type]
        rows = [(name.replace("_", " "), getattr(self, name)) for name in (*names, *self.derived)]
        return [Table(("", "value"), rows, right=("value",))]

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts; None for non-finite numbers."""
        found: dict[str, Any] = plain(self)
        return found

    def __str__(self) -> str:
        return "\n\n".join(text for part in self.tables() if (text := str(part)))


def left_out(reasons: Mapping[str, str]) -> Table | str:
    """Return a table of skipped layers and reasons, or an empty text."""
    rows = [(name or "(model)", reason) for name, reason in reasons.items()]
    return Table(("layer", "reason"), rows, title="left out:") if rows else ""


def share_saved(before: int, after: int) -> str:
    """Return the saved share of the bytes; empty if there were none."""
    return cell(1 - after / before, ".1%") if before else ""


def cell(value: object, spec: str = "") -> str:
    """Format a value for a table.

    Args:
        value: text; a number; ``None`` or NaN, shown as a dash; sizes such as ``(16, 8)``, shown as ``16x8``.
        spec: format of a number; by default commas for thousands and four digits for floats.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        if isinstance(value, tuple | list):
            sizes = isinstance(value, tuple) and all(isinstance(size, int) for size in value)
            return "x".join(map(str, value)) if sizes else ", ".join(map(cell, value))
        return value if isinstance(value, str) else str(value)
    if value is None or math.isnan(value):
        return Number("–")
    return Number(format(value, spec or ("," if isinstance(value, int) else ".4g")))


def plain(value: Any) -> Any:
    """Convert a value to types that ``json`` writes.

    Dataclasses and named tuples become dicts with their ``derived`` properties; those with their own
    ``__str__``, such as patterns, become that text. Tensors and arrays become lists.
    """
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if is_dataclass(value) and (isinstance(value, Report) or type(value).__str__ is object.__str__):
        names = [each.name for each in fields(value) if each.repr]
        return {name: plain(getattr(value, name)) for name in (*names, *getattr(value, "derived", ()))}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    return str(value)


def _is_numeric(cells: Sequence[str]) -> bool:
    return bool(cells) and all(isinstance(text, Number) for text in cells if text) and any(cells)


def _format_item(item: object, column: Column) -> str:
    if not isinstance(column, str):
        return cell(column(item))
    return cell(getattr(item, column.partition(":")[0]), _format_of(column))


def _format_of(column: Column) -> str:
    return column.partition(":")[2] if isinstance(column, str) else ""
