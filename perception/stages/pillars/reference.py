"""Points to pillar features in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.config import PillarConfig
from perception.geometry import GroundGrid
from perception.stages.pillars.common import encode_points, local_points, whole
from perception.stages.pillars.types import FixedPillars, LocatedPoints, PillarWorkspace
from perception.stages.pillars.weights import EncoderWeights
from sparse_core.conv.grid.layout import FixedGrid, cell_coordinates
from sparse_core.conv.grid.reference import bits_of_cells, row_of


def locate(
    points: Tensor, lengths: Tensor, config: PillarConfig, workspace: PillarWorkspace
) -> LocatedPoints:
    """See :func:`perception.stages.pillars.locate_points`."""
    batch, room = points.shape[:2]
    device = points.device
    grid = config.closed_grid
    held = torch.arange(room, device=device) < lengths[:, None]
    finite = torch.isfinite(points).all(2)
    inside = held & finite & grid.contains(*points.unbind(2)[:3])
    row, column = grid.cell_of(points[..., 0], points[..., 1])
    frames = torch.arange(batch, device=device, dtype=torch.int32)[:, None]
    cells = (frames * grid.shape[0] + row) * workspace.line_cells + column
    cells = torch.where(inside, cells, -1).flatten()
    kept = cells[cells >= 0].long()
    workspace.invalid.add_((held & ~finite).sum(1))
    workspace.counts.index_add_(0, kept, torch.ones_like(kept, dtype=torch.int32))
    workspace.bits.copy_(bits_of_cells(cells, len(workspace.bits)))
    taken = points.flatten(0, 1)[cells >= 0]
    local = local_points(taken, _centres(kept, workspace, grid))
    ones = torch.ones_like(kept)[:, None]
    workspace.sums.index_add_(0, kept, torch.cat([whole(local), ones], dim=1))
    copy = (torch.arange(len(cells), device=device) % max(room, 1) % workspace.copies)[cells >= 0]
    counters = kept // workspace.block_cells * workspace.copies + copy
    workspace.block_points.copy_(torch.bincount(counters, minlength=len(workspace.block_points)))
    return LocatedPoints(points, lengths, config, cells, _ranks(cells), workspace)


def _ranks(cells: Tensor) -> Tensor:
    """Count the earlier points in the same cell: (N,) int32."""
    ordered, order = torch.sort(cells, stable=True)
    place = torch.arange(len(cells), device=cells.device)
    first = torch.searchsorted(ordered, ordered)
    ranks = torch.empty_like(cells)
    ranks[order] = (place - first).int()
    return ranks


def sort(located: LocatedPoints, grid: FixedGrid) -> FixedPillars:
    """See :func:`perception.stages.pillars.sort_points`."""
    workspace, cells = located.workspace, located.cells
    held = grid.cells >= 0
    counts = torch.where(held, workspace.counts[grid.cells.clamp(min=0).long()], 0)
    offsets = torch.zeros(grid.capacity + 1, dtype=torch.int32, device=cells.device)
    offsets[1:] = counts.cumsum(0)
    rows, kept = _rows(located, grid)
    points = torch.empty_like(located.points).flatten(0, 1)
    points[(offsets[rows] + located.ranks[kept]).long()] = located.points.flatten(0, 1)[kept]
    invalid = workspace.invalid.clone()
    workspace.clear()
    return FixedPillars(grid, points, offsets, invalid)


def _rows(located: LocatedPoints, grid: FixedGrid) -> tuple[Tensor, Tensor]:
    """Return the rows (M,) int64 of points with a pillar, and their mask (B * P,)."""
    within = torch.arange(located.points.shape[1], device=grid.cells.device) < located.lengths[:, None]
    rows = row_of(grid.words, located.cells, within.flatten() & (located.cells >= 0), grid.capacity)
    return rows[rows >= 0].long(), rows >= 0


def _centres(cells: Tensor, workspace: PillarWorkspace, grid: GroundGrid) -> Tensor:
    """Return x and y (N, 2) of the centres of cells (N,)."""
    coordinates = cell_coordinates(cells, workspace.spatial_shape)
    return grid.metres_of(coordinates[:, 1:].flip(1).float() + 0.5)


def encode(located: LocatedPoints, grid: FixedGrid, weights: EncoderWeights, dtype: torch.dtype) -> Tensor:
    """See :func:`perception.stages.pillars.fixed_encode`."""
    workspace = located.workspace
    rows, kept = _rows(located, grid)
    points, cells = located.points.flatten(0, 1)[kept], located.cells[kept]
    sums = torch.where((grid.cells >= 0)[:, None], workspace.sums[grid.cells.clamp(min=0).long()], 0)
    local = local_points(points, _centres(cells, workspace, weights.grid))
    return encode_points(points, local, rows, sums, weights, dtype)
