"""Boxes in Triton, one launch: the layer of the patch, two more, decoding; 16 boxes per program.

Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perception.stages.head.tiles import TILES, depth_for, precision_of
from perception.stages.head.types import BoxWeights
from sparse_core.kernels.launches import begin_next, dependent, wait_for_launch


@triton.jit
def _arctangent(y, x):
    """Angle of (x, y); a polynomial fitted to atan(r) / r in r * r on [0, 1], relative error 2e-8."""
    high = tl.maximum(tl.abs(y), tl.abs(x))
    low = tl.minimum(tl.abs(y), tl.abs(x))
    ratio = low / tl.where(high > 0.0, high, 1.0)
    square = ratio * ratio
    series = -0.016068615787027226 + square * 0.0028498863196176625
    series = -0.07504292738595891 + square * (0.04269149792454026 + square * series)
    series = -0.14203644253521566 + square * (0.10640933184679972 + square * series)
    series = -0.33333073343800135 + square * (0.19992619365184414 + square * series)
    angle = ratio * (0.9999999847656744 + square * series)
    angle = tl.where(tl.abs(y) > tl.abs(x), 1.5707963267948966 - angle, angle)
    angle = tl.where(x < 0.0, 3.141592653589793 - angle, angle)
    return tl.where(y < 0.0, -angle, angle)


@triton.jit
def _code(codes, label, NUMBER: tl.constexpr, WIDTH: tl.constexpr):
    """One of the 8 codes of each row's class."""
    chosen = tl.arange(0, WIDTH)[None, :] == (label * 8 + NUMBER)[:, None]
    return tl.sum(tl.where(chosen, codes, 0.0), axis=1)


@triton.jit
def _stretch(codes, label, AXIS: tl.constexpr, WIDTH: tl.constexpr):
    """Length, width or height over the class's own."""
    return tl.exp(tl.minimum(tl.maximum(_code(codes, label, 3 + AXIS, WIDTH), -2.0), 2.0))


@triton.jit
def box_kernel(
    features,
    cells,
    labels,
    hidden_weight,
    middle_weight,
    box_weight,
    hidden_bias,
    middle_bias,
    box_bias,
    mean_sizes,
    out,
    count,
    top_k,
    height,
    width,
    cell_m,
    origin_x_m,
    origin_y_m,
    C_IN: tl.constexpr,
    IN_PADDED: tl.constexpr,
    HIDDEN: tl.constexpr,
    CODES_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """The three layers and the decoding of a block of boxes."""
    wide = tl.arange(0, HIDDEN)
    code = tl.arange(0, CODES_PADDED)
    # Under way while the launch before ends: no launch writes the weights.
    middle = tl.load(middle_weight + wide[:, None] * HIDDEN + wide[None, :])
    last = tl.load(box_weight + wide[:, None] * CODES_PADDED + code[None, :])
    hidden_shift, middle_shift = tl.load(hidden_bias + wide), tl.load(middle_bias + wide)
    shift = tl.load(box_bias + code)
    wait_for_launch(DEPENDENT)
    entry = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    within = entry < count
    label = tl.load(labels + entry, mask=within, other=-1)
    wanted = label >= 0
    # Not by the label, which is still under way; absent entries hold cell 0.
    cell = tl.load(cells + entry, mask=within, other=0)
    y, x = cell // width, cell % width
    first = (entry // top_k).to(tl.int64) * height
    deep = tl.arange(0, DEPTH)
    kind = features.dtype.element_ty
    known = tl.maximum(label, 0)
    mean_length, mean_width = tl.load(mean_sizes + known * 3), tl.load(mean_sizes + known * 3 + 1)
    mean_height = tl.load(mean_sizes + known * 3 + 2)
    total = tl.zeros([ROWS, HIDDEN], tl.float32)
    # One loop over cells of the patch and channels, so that loads run ahead across cells.
    for step in range(9 * IN_PADDED // DEPTH):
        tap = step // (IN_PADDED // DEPTH)
        part = step % (IN_PADDED // DEPTH) * DEPTH + deep
        beside_y, beside_x = y + tap // 3 - 1, x + tap % 3 - 1
        read = wanted & (beside_y >= 0) & (beside_y < height) & (beside_x >= 0) & (beside_x < width)
        source = features + ((first + beside_y) * width + beside_x)[:, None] * C_IN
        left = tl.load(source + part[None, :], mask=read[:, None] & (part < C_IN)[None, :], other=0.0)
        right = tl.load(hidden_weight + (step * DEPTH + deep)[:, None] * HIDDEN + wide[None, :])
        total = tl.dot(left, right, total, input_precision=PRECISION)
    hidden = tl.maximum(total + hidden_shift[None, :], 0.0).to(kind)
    total = tl.dot(hidden, middle, input_precision=PRECISION)
    hidden = tl.maximum(total + middle_shift[None, :], 0.0).to(kind)
    codes = tl.dot(hidden, last, input_precision=PRECISION) + shift[None, :]
    begin_next(DEPENDENT)
    place = out + entry * 7
    centre_x = (x.to(tl.float32) + 0.5 + _code(codes, known, 0, CODES_PADDED)) * cell_m + origin_x_m
    centre_y = (y.to(tl.float32) + 0.5 + _code(codes, known, 1, CODES_PADDED)) * cell_m + origin_y_m
    tl.store(place, tl.where(wanted, centre_x, 0.0), mask=within)
    tl.store(place + 1, tl.where(wanted, centre_y, 0.0), mask=within)
    tl.store(place + 2, tl.where(wanted, _code(codes, known, 2, CODES_PADDED), 0.0), mask=within)
    length = mean_length * _stretch(codes, known, 0, CODES_PADDED)
    width_m = mean_width * _stretch(codes, known, 1, CODES_PADDED)
    height_m = mean_height * _stretch(codes, known, 2, CODES_PADDED)
    tl.store(place + 3, tl.where(wanted, length, 0.0), mask=within)
    tl.store(place + 4, tl.where(wanted, width_m, 0.0), mask=within)
    tl.store(place + 5, tl.where(wanted, height_m, 0.0), mask=within)
    yaw = _arctangent(_code(codes, known, 6, CODES_PADDED), _code(codes, known, 7, CODES_PADDED))
    tl.store(place + 6, tl.where(wanted, yaw, 0.0), mask=within)


def boxes(
    features: Tensor, cells: Tensor, labels: Tensor, weights: BoxWeights, shape: tuple[int, int]
) -> Tensor:
    """See :func:`perception.stages.head.fixed_boxes`."""
    tile = TILES["boxes", features.element_size()]
    out = torch.empty((*cells.shape, 7), dtype=torch.float32, device=features.device)
    box_kernel[(triton.cdiv(cells.numel(), tile.rows),)](
        features.contiguous(),
        cells.contiguous(),
        labels.contiguous(),
        weights.hidden,
        weights.middle,
        weights.box,
        weights.hidden_bias,
        weights.middle_bias,
        weights.box_bias,
        weights.mean_sizes,
        out,
        cells.numel(),
        cells.shape[1],
        *shape,
        weights.grid.cell_m,
        *weights.grid.origin_m,
        C_IN=weights.in_channels,
        IN_PADDED=weights.hidden.shape[1],
        HIDDEN=weights.hidden.shape[2],
        CODES_PADDED=weights.box.shape[1],
        ROWS=tile.rows,
        DEPTH=depth_for(tile, weights.hidden.shape[1]),
        PRECISION=precision_of(features.dtype),
        num_warps=tile.warps,
        num_stages=tile.stages,
        **dependent(features),
    )
    return out
