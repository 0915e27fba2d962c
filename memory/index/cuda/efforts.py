"""Efforts of an index on a GPU: how many cells are read, or the codes of all rows, and the cost.

An effort with more probes than there can be cells, :data:`SCAN`, reads the codes of all rows.
"""

from __future__ import annotations

import math

from memory.index.cuda.cells import sizes_for
from memory.index.cuda.layout import PROBE_LIMIT, Cells, Sizes
from memory.index.effort import EXACT, Effort

#: Number of probes that stands for a scan of all codes.
SCAN = PROBE_LIMIT + 1
_FIRST = Effort(16, 512)
_MOST_RERANK, _SCAN_RERANK, _MOST_SCANNED = 4096, 1024, 8192
# Room for the rows of the cells that a query reads, relative to the average.
_ROOM = 5 / 3
# Nanoseconds on an NVIDIA H200 (commit fa5fc2073): a call, a query, a row whose code
# is read in cells or in a scan, a row that is compared exactly, and a row when all are compared. The last one
# moves 2,560 bytes at 256 dimensions and about 4 TB/s.
_CALL, _QUERY, _CELL_ROW, _SCAN_ROW, _COMPARED, _EXACT_ROW = 42_000.0, 400.0, 0.1, 0.03, 1.0, 0.65


def is_scan(effort: Effort) -> bool:
    """Return True if the effort reads the codes of all rows."""
    return effort.probes >= SCAN


def sizes_of(effort: Effort, cells: Cells, k: int, capacity: int = 0) -> Sizes:
    """Return the fixed sizes of a search of cells.

    Args:
        effort: cells to read, and rows to compare exactly.
        capacity: room for the rows of these cells; 0: two thirds more than they hold on average.
    """
    slots = max(len(cells.rows), 1)
    if not capacity:
        least = sizes_for(cells.hashed, cells.pivots)[1]
        held = effort.probes * len(cells.rows) / max(cells.pivots, 1)
        capacity = max(least, 1024 * math.ceil(_ROOM * held / 1024))
    sizes = Sizes(effort.probes, capacity, effort.rerank).of(k)
    return Sizes(sizes.probes, min(sizes.capacity, slots), min(sizes.rerank, slots))


def next_efforts(after: Effort | None, cells: int) -> tuple[Effort, ...]:
    """Return the smallest effort, or the next ones: twice the cells, twice the rows, both; then the scan.

    Args:
        after: an effort, or ``None``.
    """
    most = min(PROBE_LIMIT, cells)
    if after is None:
        return (Effort(min(_FIRST.probes, most), _FIRST.rerank),)
    more = after._replace(rerank=2 * after.rerank)
    if is_scan(after):
        return (more,) if more.rerank <= _MOST_SCANNED else ()
    scan = Effort(SCAN, max(_SCAN_RERANK, after.rerank))
    wider = after._replace(probes=min(2 * after.probes, most)) if after.probes < most else scan
    if more.rerank > _MOST_RERANK:
        return (wider,)
    return wider, more, Effort(wider.probes, max(wider.rerank, more.rerank))


def price(effort: Effort, rows: int, cells: int, queries: int) -> float:
    """Return nanoseconds per query on a GPU."""
    fixed = _CALL / max(1, queries) + _QUERY
    if effort == EXACT:
        return fixed + _EXACT_ROW * rows
    if is_scan(effort):
        return fixed + _SCAN_ROW * rows + _COMPARED * effort.rerank
    return fixed + _CELL_ROW * rows * min(1.0, effort.probes / max(cells, 1)) + _COMPARED * effort.rerank


def describe(effort: Effort, cells: int) -> str:
    """Describe what an effort does."""
    if effort == EXACT:
        return "all rows compared"
    if is_scan(effort):
        return f"a scan of all codes, {effort.rerank} rows compared"
    return f"{min(effort.probes, cells)} of {cells} cells, {effort.rerank} rows compared"
