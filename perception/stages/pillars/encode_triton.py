"""The pillar encoder as two Triton kernels: over points, then over pillars.

Programs take points in the order of the scan. So many programs share a crowded pillar, and points need not be
sorted. Per pillar and channel, the points update one maximum and one sum by atomic operations on integers.
(The bits of floats that are not negative have the order of integers.) So the order of the points does not
matter. The second kernel resets both to zero
for the next frame.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perception.stages.pillars.triton import centre_of, parts_of, whole
from perception.stages.pillars.types import FIXED_POINT, LocatedPoints
from perception.stages.pillars.weights import EncoderWeights
from sparse_core.conv.grid.layout import FixedGrid
from sparse_core.conv.grid.triton import row_of
from sparse_core.kernels.launches import begin_next, dependent, wait_for_launch

#: Consecutive points that are summed first if they share a pillar, and groups of them per step. A thread
#: has one point, and a program one warp, so that nothing waits at barriers.
_RUN, _GROUPS = 4, 1
#: Most programs; each continues until no points are left. An H200 holds this many at once.
_PROGRAMS = 4096
#: Pillars and warps per program.
_PILLARS, _PILLAR_WARPS = 16, 4
_PART = tl.constexpr(1 / FIXED_POINT)


@triton.jit
def _grouped(values, RUN: tl.constexpr, GROUPS: tl.constexpr):
    """(GROUPS * RUN,) to (RUN, GROUPS): a group's points in registers of one thread."""
    return tl.trans(tl.reshape(values, [GROUPS, RUN]))


@triton.jit
def _weights(weight, channel, used):
    """(1, 1, WIDTH) of one feature of the points' layer, or its bias."""
    return tl.load(weight + channel, mask=used, other=0.0)[None, None, :]


@triton.jit
def _share(hidden, feature, weights):
    """``hidden`` (RUN, GROUPS, WIDTH) and one feature (RUN * GROUPS,) times its weights, in one rounding."""
    feature = _grouped(feature, hidden.shape[0], hidden.shape[1])[:, :, None]
    return tl.fma(tl.broadcast_to(feature, hidden.shape), tl.broadcast_to(weights, hidden.shape), hidden)


@triton.jit
def points_kernel(
    points,
    lengths,
    cells,
    words,
    sums,
    point_weight,
    point_bias,
    peaks,
    totals,
    room,
    capacity,
    height,
    line_cells,
    size,
    inverse_size,
    x_low,
    y_low,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    RUN: tl.constexpr,
    GROUPS: tl.constexpr,
    PER_POINT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """The points' layer; maximum and sum over each pillar's points, atomically."""
    wait_for_launch(DEPENDENT)
    POINTS: tl.constexpr = RUN * GROUPS
    frame = tl.program_id(1)
    length = tl.minimum(tl.load(lengths + frame), room)
    # Adds zero, but the compiler cannot know. Otherwise it would give a thread channels side by side, and
    # what a warp adds at once would lie in pieces.
    channel = tl.arange(0, WIDTH) ^ (length >> 31)
    used = tl.arange(0, WIDTH) < HALF
    bias = _weights(point_bias, channel, used)
    x_weight = _weights(point_weight, channel, used)
    y_weight = _weights(point_weight + HALF, channel, used)
    z_weight = _weights(point_weight + 2 * HALF, channel, used)
    intensity_weight = _weights(point_weight + 3 * HALF, channel, used)
    x_off_weight = _weights(point_weight + 4 * HALF, channel, used)
    y_off_weight = _weights(point_weight + 5 * HALF, channel, used)
    x_rest_weight = _weights(point_weight + 6 * HALF, channel, used)
    y_rest_weight = _weights(point_weight + 7 * HALF, channel, used)
    z_rest_weight = _weights(point_weight + 8 * HALF, channel, used)
    if PER_POINT > 4:
        age_weight = _weights(point_weight + 9 * HALF, channel, used)
    for first in range(tl.program_id(0) * POINTS, length, tl.num_programs(0) * POINTS):
        lane = first + tl.arange(0, POINTS)
        index = frame * room + lane
        cell = tl.load(cells + index, mask=lane < length, other=-1)
        x, y, z, intensity, age = parts_of(points, index, lane < length, PER_POINT)
        held = cell >= 0
        total = sums + cell.to(tl.int64) * 4
        row = row_of(words, cell, held, capacity)
        x_sum = tl.load(total, mask=held, other=0).to(tl.float32)
        y_sum = tl.load(total + 1, mask=held, other=0).to(tl.float32)
        z_sum = tl.load(total + 2, mask=held, other=0).to(tl.float32)
        number = tl.load(total + 3, mask=held, other=1).to(tl.float32)
        x_centre, y_centre = centre_of(cell % line_cells, cell // line_cells % height, size, x_low, y_low)
        x_off = x - x_centre
        y_off = y - y_centre
        share = tl.div_rn(tl.zeros_like(number) + _PART, number)
        hidden = tl.broadcast_to(bias, [RUN, GROUPS, WIDTH])
        hidden = _share(hidden, x * 0.025, x_weight)
        hidden = _share(hidden, y * 0.025, y_weight)
        hidden = _share(hidden, z, z_weight)
        hidden = _share(hidden, intensity, intensity_weight)
        hidden = _share(hidden, x_off * inverse_size, x_off_weight)
        hidden = _share(hidden, y_off * inverse_size, y_off_weight)
        hidden = _share(hidden, x_off - x_sum * share, x_rest_weight)
        hidden = _share(hidden, y_off - y_sum * share, y_rest_weight)
        hidden = _share(hidden, z - z_sum * share, z_rest_weight)
        if PER_POINT > 4:
            hidden = _share(hidden, age, age_weight)
        hidden = tl.maximum(hidden, 0.0)
        bits = hidden.to(tl.int32, bitcast=True)
        parts = whole(hidden)
        pillar = _grouped(row, RUN, GROUPS)
        # A run lies in one pillar if its lowest and highest row do; a point without a pillar has -1.
        lowest = tl.min(pillar, 0)
        together = lowest == tl.max(pillar, 0)
        alone = (pillar >= 0) & (together[None, :] == 0)
        place = pillar[:, :, None] * HALF + channel[None, None, :]
        chosen = alone[:, :, None] & used[None, None, :]
        tl.atomic_max(peaks + place, bits, mask=chosen, sem="relaxed")
        tl.atomic_add(totals + place, parts, mask=chosen, sem="relaxed")
        together = together & (lowest >= 0)
        common = lowest[:, None] * HALF + channel[None, :]
        shared = together[:, None] & used[None, :]
        tl.atomic_max(peaks + common, tl.max(bits, 0), mask=shared, sem="relaxed")
        tl.atomic_add(totals + common, tl.sum(parts, 0), mask=shared, sem="relaxed")


@triton.jit
def pillars_kernel(
    peaks,
    totals,
    cells,
    sums,
    count,
    pillar_weight,
    pillar_bias,
    out,
    CHANNELS: tl.constexpr,
    HALF_WIDTH: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
    PILLARS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """The pillars' layer of PILLARS pillars; maxima and sums become zero again."""
    wait_for_launch(DEPENDENT)
    HALF: tl.constexpr = CHANNELS // 2
    rows = tl.load(count)
    first = tl.program_id(0) * PILLARS
    if first < rows:
        row = first + tl.arange(0, PILLARS)
        live = row < rows
        inner = tl.arange(0, HALF_WIDTH)
        place = row[:, None] * HALF + inner[None, :]
        chosen = live[:, None] & (inner[None, :] < HALF)
        bits = tl.load(peaks + place, mask=chosen, other=0)
        total = tl.load(totals + place, mask=chosen, other=0)
        sum_of_points = sums + tl.load(cells + row, mask=live, other=0).to(tl.int64) * 4
        z_sum = tl.load(sum_of_points + 2, mask=live, other=0)
        number = tl.load(sum_of_points + 3, mask=live, other=1)
        channel = tl.arange(0, WIDTH)
        used = channel < CHANNELS
        both = (inner[:, None] < HALF) & used[None, :]
        matrix = pillar_weight + inner[:, None] * CHANNELS + channel[None, :]
        peak_weight = tl.load(matrix, mask=both, other=0.0)
        average_weight = tl.load(matrix + HALF * CHANNELS, mask=both, other=0.0)
        height_weight = tl.load(pillar_weight + CHANNELS * CHANNELS + channel, mask=used, other=0.0)
        number_weight = tl.load(pillar_weight + (CHANNELS + 1) * CHANNELS + channel, mask=used, other=0.0)
        bias = tl.load(pillar_bias + channel, mask=used, other=0.0)
        # Other threads may be the ones that clear what this one has read.
        tl.debug_barrier()
        tl.store(peaks + place, tl.zeros_like(bits), mask=chosen)
        tl.store(totals + place, tl.zeros_like(total), mask=chosen)
        divisor = number.to(tl.float32)
        share = tl.div_rn(tl.zeros_like(divisor) + _PART, divisor)
        z_mean = z_sum.to(tl.float32) * share
        peak = bits.to(tl.float32, bitcast=True)
        average = total.to(tl.float32) * share[:, None]
        features = z_mean[:, None] * height_weight[None, :]
        features += tl.log(divisor)[:, None] * number_weight[None, :]
        features += bias[None, :]
        if out.dtype.element_ty == tl.float16:
            # Rounded to nearest, which a product in TF32 does not do. Beyond the largest, so is the result.
            peak = tl.minimum(peak, 65504.0).to(tl.float16)
            average = tl.minimum(average, 65504.0).to(tl.float16)
            peak_weight = peak_weight.to(tl.float16)
            average_weight = average_weight.to(tl.float16)
        features = tl.dot(peak, peak_weight, features, input_precision=PRECISION)
        features = tl.dot(average, average_weight, features, input_precision=PRECISION)
        features = tl.maximum(features, 0.0).to(out.dtype.element_ty)
        begin_next(DEPENDENT)
        target = out + row[:, None] * CHANNELS + channel[None, :]
        tl.store(target, features, mask=live[:, None] & used[None, :])


def encode(
    located: LocatedPoints, grid: FixedGrid, weights: EncoderWeights, dtype: torch.dtype, out: Tensor | None
) -> Tensor:
    """See :func:`perception.stages.pillars.fixed_encode`."""
    workspace = located.workspace
    batch, room = located.points.shape[:2]
    if grid.capacity * weights.channels >= 2**31:
        raise ValueError(
            f"{grid.capacity} pillars of {weights.channels} features need offsets beyond 32 bits"
        )
    if out is None:
        out = torch.empty((grid.capacity, weights.channels), dtype=dtype, device=located.points.device)
    half = weights.channels // 2
    peaks, totals = workspace.accumulators(grid.capacity, half)
    programs = max(1, min(_PROGRAMS // batch, triton.cdiv(room, _RUN * _GROUPS)))
    points_kernel[(programs, batch)](
        located.points,
        located.lengths,
        located.cells,
        grid.words,
        workspace.sums,
        weights.point_weight,
        weights.point_bias,
        peaks,
        totals,
        room,
        grid.capacity,
        grid.spatial_shape[0],
        workspace.line_cells,
        weights.grid.cell_m,
        1 / weights.grid.cell_m,
        *weights.grid.origin_m,
        HALF=half,
        WIDTH=max(32, triton.next_power_of_2(half)),
        RUN=_RUN,
        GROUPS=_GROUPS,
        PER_POINT=located.points.shape[2],
        num_warps=max(1, _RUN * _GROUPS // 32),
        num_stages=1,
        enable_fp_fusion=False,
        **dependent(located.points),
    )
    pillars_kernel[(triton.cdiv(grid.capacity, _PILLARS),)](
        peaks,
        totals,
        grid.cells,
        workspace.sums,
        grid.count,
        weights.pillar_weight,
        weights.pillar_bias,
        out,
        CHANNELS=weights.channels,
        HALF_WIDTH=max(16, triton.next_power_of_2(half)),
        WIDTH=max(16, triton.next_power_of_2(weights.channels)),
        PRECISION="ieee" if dtype == torch.float32 else "tf32",
        PILLARS=_PILLARS,
        num_warps=_PILLAR_WARPS,
        num_stages=1,
        enable_fp_fusion=False,
        **dependent(peaks),
    )
    return out
