"""Last two launches of a refinement step in Triton: hidden layers, output and decoding.

Many programs read the weights of the hidden layers, each for a slice of the outputs. A single multiprocessor
would spend most of the time fetching them.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from perception.stages.refine.crop_triton import source_rows
from sparse_core.kernels.launches import begin_next, wait_for_launch


@triton.jit
def _output(partial, bias_out, group, number, SLICES: tl.constexpr):
    """One output of a group's 16 boxes: the slices' shares, in their order."""
    place = partial + group * (SLICES * 256) + tl.arange(0, 16) * 16 + number
    total = tl.zeros((16,), dtype=tl.float32) + tl.load(bias_out + number)
    for piece in tl.static_range(SLICES):
        # Other programs wrote these: read past this multiprocessor's own cache.
        total += tl.load(place + piece * 256, cache_modifier=".cg")
    return total


@triton.jit
def _decode(
    partial, bias_out, group, taken, label, item, alive, x, y, z, length, width, height, yaw,
    boxes_out, labels_out, fits, flips, TURN: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """Boxes corrected as :func:`perception.model.refine.apply_residuals` does; zeros where there is none."""
    ahead = _output(partial, bias_out, group, 0, SLICES)
    left = _output(partial, bias_out, group, 1, SLICES)
    above = _output(partial, bias_out, group, 2, SLICES)
    longer = _output(partial, bias_out, group, 3, SLICES)
    wider = _output(partial, bias_out, group, 4, SLICES)
    higher = _output(partial, bias_out, group, 5, SLICES)
    turned = _output(partial, bias_out, group, 6, SLICES)
    fit = _output(partial, bias_out, group, 7, SLICES)
    flip = _output(partial, bias_out, group, 8, SLICES)
    cosine, sine = tl.cos(yaw), tl.sin(yaw)
    shift_x, shift_y = ahead * length, left * width
    refined = boxes_out + item * 7
    tl.store(refined, tl.where(taken, x + cosine * shift_x - sine * shift_y, 0.0), mask=alive)
    tl.store(refined + 1, tl.where(taken, y + sine * shift_x + cosine * shift_y, 0.0), mask=alive)
    tl.store(refined + 2, z + tl.where(taken, above * height, 0.0), mask=alive)
    ratio = tl.exp(tl.minimum(tl.maximum(longer, -1.0), 1.0))
    tl.store(refined + 3, length * ratio, mask=alive)
    ratio = tl.exp(tl.minimum(tl.maximum(wider, -1.0), 1.0))
    tl.store(refined + 4, width * ratio, mask=alive)
    ratio = tl.exp(tl.minimum(tl.maximum(higher, -1.0), 1.0))
    tl.store(refined + 5, height * ratio, mask=alive)
    yaw += turned
    if TURN:
        yaw += tl.where(flip > 0.0, 3.14159265358979, 0.0)
    tl.store(refined + 6, tl.where(taken, yaw, 0.0), mask=alive)
    tl.store(labels_out + item, label, mask=alive)
    tl.store(fits + item, tl.where(taken, fit, 0.0), mask=alive)
    tl.store(flips + item, tl.where(taken, flip, 0.0), mask=alive)


@triton.jit
def hidden_kernel(
    pooled, counts, context, weight_points, weight_count, hidden, items,
    C3: tl.constexpr, H1: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """``COLUMNS`` outputs of the first hidden layer for 16 boxes a program."""
    slices: tl.constexpr = H1 // COLUMNS
    item = tl.program_id(0) // slices * 16 + tl.arange(0, 16)
    column = (tl.program_id(0) % slices) * COLUMNS + tl.arange(0, COLUMNS)
    alive = item < items
    # As much as registers hold, while the launch before ends: no launch writes the weights.
    depth = tl.arange(0, DEPTH)
    weight = tl.load(weight_points + depth[:, None] * H1 + column[None, :])
    share = tl.load(weight_count + column[None, :])
    wait_for_launch(DEPENDENT)
    bits = tl.load(pooled + item[:, None] * C3 + depth[None, :], mask=alive[:, None], other=0)
    count = tl.load(counts + item, mask=alive, other=0)
    total = (tl.log(1.0 + count.to(tl.float32)) / 5.0)[:, None] * share
    for spot in tl.static_range(5):
        part = context + (spot * items + item)[:, None] * H1 + column[None, :]
        total += tl.load(part, mask=alive[:, None], other=0.0)
    peak = bits.to(tl.float32, bitcast=True).to(weight.dtype)
    total = tl.dot(peak, weight, total, input_precision=PRECISION)
    for start in range(DEPTH, C3, DEPTH):
        weight = tl.load(weight_points + (start + depth)[:, None] * H1 + column[None, :])
        bits = tl.load(pooled + item[:, None] * C3 + (start + depth)[None, :], mask=alive[:, None], other=0)
        peak = bits.to(tl.float32, bitcast=True).to(weight.dtype)
        total = tl.dot(peak, weight, total, input_precision=PRECISION)
    total = tl.maximum(total, 0.0)
    into = hidden + item[:, None] * H1 + column[None, :]
    begin_next(DEPENDENT)
    tl.store(into, total.to(hidden.dtype.element_ty), mask=alive[:, None])


@triton.jit
def out_kernel(
    boxes, labels, indices, hidden, weight_hidden, bias_hidden, weight_out, bias_out, partial, arrivals,
    pooled, counts, boxes_out, labels_out, fits, flips, items, per_frame, proposals,
    HAS_INDICES: tl.constexpr, C3: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, CLEAR: tl.constexpr, TURN: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """``COLUMNS`` outputs of the second hidden layer for 16 boxes, and what the last layer makes of them.

    The last program of a group to arrive adds up the slices, in their order, and decodes. Leaves ``pooled``,
    ``counts`` and ``arrivals`` zero.
    """
    slices: tl.constexpr = H2 // COLUMNS
    group, piece = tl.program_id(0) // slices, tl.program_id(0) % slices
    item = group * 16 + tl.arange(0, 16)
    alive = item < items
    h2 = piece * COLUMNS + tl.arange(0, COLUMNS)
    column = tl.arange(0, 16)
    depth = tl.arange(0, DEPTH)
    weight = tl.load(weight_hidden + depth[:, None] * H2 + h2[None, :])
    last = tl.load(weight_out + h2[:, None] * 16 + column[None, :])
    bias = tl.load(bias_hidden + h2)
    wait_for_launch(DEPENDENT)
    first = tl.load(hidden + item[:, None] * H1 + depth[None, :], mask=alive[:, None], other=0.0)
    # Only the last program needs the boxes, but it does not have to wait for them then.
    row, label = source_rows(labels, indices, item, alive, per_frame, proposals, HAS_INDICES)
    taken = row >= 0
    box = boxes + row * 7
    x, y = tl.load(box, mask=taken, other=0.0), tl.load(box + 1, mask=taken, other=0.0)
    z, length = tl.load(box + 2, mask=taken, other=0.0), tl.load(box + 3, mask=taken, other=0.0)
    width, height = tl.load(box + 4, mask=taken, other=0.0), tl.load(box + 5, mask=taken, other=0.0)
    yaw = tl.load(box + 6, mask=taken, other=0.0)
    second = tl.dot(first, weight, input_precision=PRECISION)
    for start in range(DEPTH, H1, DEPTH):
        weight = tl.load(weight_hidden + (start + depth)[:, None] * H2 + h2[None, :])
        first = tl.load(
            hidden + item[:, None] * H1 + (start + depth)[None, :], mask=alive[:, None], other=0.0
        )
        second = tl.dot(first, weight, second, input_precision=PRECISION)
    second = tl.maximum(second + bias[None, :], 0.0)
    # Written as a sum of products it would become this all the same, but in TF32.
    share = tl.dot(second, last, input_precision=PRECISION)
    place = tl.arange(0, 16)[:, None] * 16 + column[None, :]
    begin_next(DEPENDENT)
    tl.store(partial + (group * slices + piece) * 256 + place, share)
    # The launch before has read them; the next step finds them as this one did.
    cleared = piece * CLEAR + tl.arange(0, CLEAR)
    tl.store(
        pooled + item[:, None] * C3 + cleared[None, :],
        tl.zeros((16, CLEAR), dtype=tl.int32),
        mask=alive[:, None] & (cleared < C3)[None, :],
    )
    # All threads' shares are written before this program counts as arrived.
    tl.debug_barrier()
    arrived = tl.atomic_add(arrivals + group, 1, sem="acq_rel", scope="gpu")
    if arrived + 1 == slices:
        _decode(
            partial, bias_out, group, taken, label, item, alive, x, y, z, length, width, height, yaw,
            boxes_out, labels_out, fits, flips, TURN, slices,
        )  # fmt: skip
        tl.store(counts + item, tl.zeros((16,), dtype=tl.int32), mask=alive)
        tl.store(arrivals + group, 0)
