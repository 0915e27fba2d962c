"""Lists of near cells and their tables in plain torch, for CPUs and as the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from perception.stages.neck.empty import EmptyMaps, NearTables, WrittenMaps, dilated
from sparse_core.conv.grid import grid_from_cells, linear_cells
from sparse_core.conv.grid.layout import WORD, FixedGrid
from sparse_core.conv.grid.reference import row_of


def near_lists(first: FixedGrid, capacities: Sequence[int]) -> list[FixedGrid]:
    """See :func:`perception.stages.neck.near_lists`."""
    rows, columns = first.spatial_shape
    places = torch.arange(WORD, device=first.words.device, dtype=torch.int32)
    # Use bits instead of rows, because cells beyond the capacity have neighbours too.
    near = ((first.words[:, :1] >> places) & 1).view(first.batch_size, rows, -1)[..., :columns] > 0
    made = []
    for capacity in capacities:
        near = dilated(near)
        cells = linear_cells(near.nonzero(), first.spatial_shape)
        made.append(grid_from_cells(cells, first.spatial_shape, first.batch_size, capacity, impl="reference"))
    return made


def restore_empty(written: WrittenMaps, empty: EmptyMaps) -> None:
    """Reset the cells that ``written`` lists to an empty scene."""
    rows, columns = written.heat.shape[2:]
    cells = written.cells[written.cells >= 0].long()
    frame, y, x = cells // (rows * columns), cells // columns % rows, cells % columns
    source = empty.finer_cell(y, x)
    written.features[cells] = written.empty_features[source]
    written.heat[frame, :, y, x] = written.empty_heat[source]


def near_tables(lists: Sequence[FixedGrid], empty: EmptyMaps, fine_cells: Tensor) -> NearTables:
    """See :func:`perception.stages.neck.near_tables`."""
    tables = tuple(
        _table(before, after, empty if number > 0 else None)
        for number, (before, after) in enumerate(pairwise(lists[:-1]))
    )
    residual_rows = tuple(
        _entries(lists[number - 2], lists[number], (0, 0), empty if number > 2 else None)
        for number in range(2, len(lists) - 1, 2)
    )
    last = lists[-1]
    parents = _table(lists[-2], last, empty).view(3, 3, -1)
    lines = []
    for tap_y in range(3):
        for tap_x in range(3):
            children = []
            for parity in range(4):
                down, right = parity // 2 + tap_y - 1, parity % 2 + tap_x - 1
                parent = parents[down // 2 + 1, right // 2 + 1]
                children.append(torch.where(parent < 0, -1, 4 * parent + 2 * (down % 2) + right % 2))
            lines.append(torch.stack(children, dim=1).flatten())
    frame, y, x = last.coordinates().long().unbind(1)
    rows, columns = (2 * size for size in empty.shape)
    below = torch.arange(4, device=y.device)
    fine = (frame[:, None] * rows + 2 * y[:, None] + below // 2) * columns + 2 * x[:, None] + below % 2
    fine_cells.copy_(torch.where(frame[:, None] < 0, -1, fine).flatten())
    return NearTables(tables, residual_rows, torch.stack(lines).to(torch.int32), 4 * last.count)


def _table(before: FixedGrid, after: FixedGrid, empty: EmptyMaps | None) -> Tensor:
    """Return entries (9, rows of ``after``) int32."""
    taps = [(tap // 3 - 1, tap % 3 - 1) for tap in range(9)]
    return torch.stack([_entries(before, after, tap, empty) for tap in taps])


def _entries(before: FixedGrid, after: FixedGrid, step: tuple[int, int], empty: EmptyMaps | None) -> Tensor:
    """Return entries (rows of ``after``,) int32 of the cells at an offset."""
    rows, columns = before.spatial_shape
    frame, y, x = after.coordinates().long().unbind(1)
    y, x = y + step[0], x + step[1]
    inside = (frame >= 0) & (y >= 0) & (y < rows) & (x >= 0) & (x < columns)
    cells = linear_cells(torch.stack([frame, y, x], dim=1), before.spatial_shape)
    found = row_of(before.words, cells, inside, before.capacity)
    if empty is None:
        return found
    otherwise = torch.where(inside, before.capacity + empty.cell(y, x), -1)
    return torch.where(found >= 0, found, otherwise).to(torch.int32)
