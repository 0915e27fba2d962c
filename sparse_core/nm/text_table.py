"""Aligned plain-text tables for reports."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, align: str | None = None) -> str:
    """Rows under a header with columns two spaces apart.

    Args:
        header: names of the columns.
        rows: cells; every row as long as the header.
        align: ``"l"`` or ``"r"`` for each column; without it the first is aligned to the left and the others,
            numbers, to the right.

    Raises:
        ValueError: a row of another length, or ``align`` is not one letter a column.
    """
    sides = "l" + "r" * (len(header) - 1) if align is None else align
    if len(sides) != len(header) or set(sides) - {"l", "r"}:
        raise ValueError(f"align must be l or r for each of {len(header)} columns, got {align!r}")
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row has {len(row)} cells and the header {len(header)}: {list(row)}")
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if side == "l" else cell.rjust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def shape_cell(shape: Sequence[int]) -> str:
    """A shape as tables show it, such as ``16x8x3x3``."""
    return "x".join(map(str, shape))


def size_cells(before: int, after: int) -> tuple[str, str, str]:
    """Bytes before and after, and the share that is saved (empty where there was nothing)."""
    return f"{before:,}", f"{after:,}", f"{1 - after / before:.1%}" if before else ""
