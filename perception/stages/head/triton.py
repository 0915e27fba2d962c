"""Upsampling and joining, and the heat map, in Triton, one launch each.

The maps are small, so launches and the latency of the first loads cost most. Therefore one program computes
all layers of a row and keeps hidden layers in registers. Runs on CUDA, and on a CPU
through ``TRITON_INTERPRET=1``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perception.stages.head.tiles import TILES, depth_for, precision_of
from perception.stages.head.types import HeatWeights, UpWeights
from sparse_core.conv.grid.layout import FixedGrid, padded_width
from sparse_core.conv.grid.triton import row_of
from sparse_core.kernels.launches import begin_next, dependent, wait_for_launch


@triton.jit
def up_kernel(
    coarse,
    fine,
    words,
    cells,
    up_weight,
    lateral_weight,
    up_bias,
    lateral_bias,
    out,
    count,
    width,
    line,
    capacity,
    LISTED: tl.constexpr,
    C_IN: tl.constexpr,
    C_FINE: tl.constexpr,
    C_OUT: tl.constexpr,
    IN_PADDED: tl.constexpr,
    FINE_PADDED: tl.constexpr,
    OUT_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """A block of coarse cells, the finer cells of one parity below them, a block of channels.

    If ``LISTED``, cell ``cells[row]`` of lines of ``width`` is what a row stands for, and its four finer ones
    are written side by side.
    """
    wait_for_launch(DEPENDENT)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    parity = tl.program_id(1)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = row < count
    cell = row
    if LISTED:
        cell = tl.load(cells + row, mask=inside, other=-1)
        inside = cell >= 0
        if tl.max(cell, 0) < 0:
            return
    # Finer rows and columns of the whole batch: frames lie below each other.
    y = 2 * (cell // width) + parity // 2
    x = 2 * (cell % width) + parity % 2
    found = row_of(words, y * line + x, inside, capacity)
    deep = tl.arange(0, DEPTH)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    source = coarse + row.to(tl.int64)[:, None] * C_IN
    matrix = up_weight + parity * (IN_PADDED * OUT_PADDED) + column[None, :]
    for begin in range(0, IN_PADDED, DEPTH):
        part = begin + deep
        left = tl.load(source + part[None, :], mask=inside[:, None] & (part < C_IN)[None, :], other=0.0)
        right = tl.load(matrix + part[:, None] * OUT_PADDED)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    total += tl.load(up_bias + column)[None, :]
    if tl.max(found, 0) >= 0:
        active = found >= 0
        source = fine + tl.where(active, found, 0).to(tl.int64)[:, None] * C_FINE
        matrix = lateral_weight + column[None, :]
        for begin in range(0, FINE_PADDED, DEPTH):
            part = begin + deep
            left = tl.load(source + part[None, :], mask=active[:, None] & (part < C_FINE)[None, :], other=0.0)
            right = tl.load(matrix + part[:, None] * OUT_PADDED)
            total = tl.dot(left, right, total, input_precision=PRECISION)
        total += tl.where(active[:, None], tl.load(lateral_bias + column)[None, :], 0.0)
    total = tl.maximum(total, 0.0)
    begin_next(DEPENDENT)
    if LISTED:
        place = (4 * row.to(tl.int64) + parity)[:, None] * C_OUT + column[None, :]
    else:
        place = (y.to(tl.int64) * (2 * width) + x)[:, None] * C_OUT + column[None, :]
    stored = inside[:, None] & (column < C_OUT)[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=stored)


@triton.jit
def heat_kernel(
    features,
    cells,
    hidden_weight,
    heat_weight,
    hidden_bias,
    heat_bias,
    out,
    count,
    area,
    LISTED: tl.constexpr,
    C_IN: tl.constexpr,
    IN_PADDED: tl.constexpr,
    HIDDEN: tl.constexpr,
    CLASSES: tl.constexpr,
    CLASSES_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Both layers and the sigmoid for a block of cells; if ``LISTED`` those that ``cells`` names."""
    wait_for_launch(DEPENDENT)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < count
    if LISTED:
        row = tl.load(cells + row, mask=inside, other=-1)
        inside = row >= 0
        if tl.max(row, 0) < 0:
            return
    deep = tl.arange(0, DEPTH)
    wide = tl.arange(0, HIDDEN)
    total = tl.zeros([ROWS, HIDDEN], tl.float32)
    source = features + row.to(tl.int64)[:, None] * C_IN
    for begin in range(0, IN_PADDED, DEPTH):
        part = begin + deep
        left = tl.load(source + part[None, :], mask=inside[:, None] & (part < C_IN)[None, :], other=0.0)
        right = tl.load(hidden_weight + part[:, None] * HIDDEN + wide[None, :])
        total = tl.dot(left, right, total, input_precision=PRECISION)
    hidden = tl.maximum(total + tl.load(hidden_bias + wide)[None, :], 0.0).to(features.dtype.element_ty)
    kind = tl.arange(0, CLASSES_PADDED)
    right = tl.load(heat_weight + wide[:, None] * CLASSES_PADDED + kind[None, :])
    logits = tl.dot(hidden, right, input_precision=PRECISION) + tl.load(heat_bias + kind)[None, :]
    scores = 1.0 / (1.0 + tl.exp(-logits))
    begin_next(DEPENDENT)
    place = ((row // area).to(tl.int64)[:, None] * CLASSES + kind[None, :]) * area + (row % area)[:, None]
    tl.store(out + place, scores, mask=inside[:, None] & (kind < CLASSES)[None, :])


def up(
    coarse: Tensor,
    fine: Tensor,
    grid: FixedGrid,
    weights: UpWeights,
    at: FixedGrid | None,
    out: Tensor | None,
) -> Tensor:
    """See :func:`perception.stages.head.fixed_up`."""
    columns = grid.spatial_shape[1]
    padded, width = weights.up.shape[1:]
    tile = TILES["up", coarse.element_size()]
    block = min(tile.columns, width)
    depth = depth_for(tile, padded, len(weights.lateral))
    if out is None:
        out = torch.empty(4 * len(coarse), weights.out_channels, dtype=coarse.dtype, device=coarse.device)
    launched = (triton.cdiv(len(coarse), tile.rows), 4, triton.cdiv(weights.out_channels, block))
    up_kernel[launched](
        coarse.contiguous(),
        fine.contiguous(),
        grid.words,
        None if at is None else at.cells,
        weights.up,
        weights.lateral,
        weights.up_bias,
        weights.lateral_bias,
        out,
        len(coarse),
        columns // 2 if at is None else padded_width(columns // 2),
        padded_width(columns),
        grid.capacity,
        LISTED=at is not None,
        C_IN=weights.in_channels,
        C_FINE=weights.fine_channels,
        C_OUT=weights.out_channels,
        IN_PADDED=padded,
        FINE_PADDED=len(weights.lateral),
        OUT_PADDED=width,
        ROWS=tile.rows,
        COLUMNS=block,
        DEPTH=depth,
        PRECISION=precision_of(coarse.dtype),
        num_warps=tile.warps,
        num_stages=tile.stages,
        **dependent(coarse),
    )
    return out


def heat(
    features: Tensor,
    weights: HeatWeights,
    shape: tuple[int, int],
    cells: Tensor | None,
    out: Tensor | None,
) -> Tensor:
    """See :func:`perception.stages.head.fixed_heat`."""
    area = shape[0] * shape[1]
    tile = TILES["heat", features.element_size()]
    if out is None:
        out = torch.empty(
            (len(features) // area, weights.classes, *shape), dtype=torch.float32, device=features.device
        )
    rows = len(features if cells is None else cells)
    heat_kernel[(triton.cdiv(rows, tile.rows),)](
        features.contiguous(),
        None if cells is None else cells.contiguous(),
        weights.hidden,
        weights.heat,
        weights.hidden_bias,
        weights.heat_bias,
        out,
        rows,
        area,
        LISTED=cells is not None,
        C_IN=weights.in_channels,
        IN_PADDED=len(weights.hidden),
        HIDDEN=weights.hidden.shape[1],
        CLASSES=weights.classes,
        CLASSES_PADDED=weights.heat.shape[1],
        ROWS=tile.rows,
        DEPTH=depth_for(tile, len(weights.hidden)),
        PRECISION=precision_of(features.dtype),
        num_warps=tile.warps,
        num_stages=tile.stages,
        **dependent(features),
    )
    return out
