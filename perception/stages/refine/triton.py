"""A refinement step in Triton, from the host: four launches.

Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``. Whole numbers and maxima are all that programs
add to each other's results, so these repeat to the bit, in whatever order points and programs come.
"""

from __future__ import annotations

import triton
from torch import Tensor

from perception.stages.pillars.types import FixedPillars
from perception.stages.refine.common import RefinedBoxes, RefineTiles, RefineWorkspace
from perception.stages.refine.crop_triton import crop_kernel, listed_crop_kernel
from perception.stages.refine.head_triton import hidden_kernel, out_kernel
from perception.stages.refine.points_triton import points_kernel
from perception.stages.refine.weights import PackedRefine
from sparse_core.conv.grid.layout import padded_width
from sparse_core.kernels.launches import dependent

#: Three products of split numbers lose a few parts in 10^7, and run on tensor cores.
_PRECISION = "tf32x3"


def refine(
    pillars: FixedPillars,
    features: Tensor,
    boxes: Tensor,
    labels: Tensor,
    weights: PackedRefine,
    *,
    map_shape: tuple[int, int],
    pillar_size_m: float,
    indices: Tensor | None,
    turn: bool,
    workspace: RefineWorkspace,
    tiles: RefineTiles,
) -> RefinedBoxes:
    """:func:`~perception.stages.refine.fixed_refine`, arguments checked and contiguous."""
    frames, proposals = labels.shape
    per_frame = proposals if indices is None else indices.shape[1]
    items = frames * per_frame
    result = _empty(boxes, labels, (frames, per_frame), weights)
    if items == 0:
        return result
    w = weights
    h1 = len(w.hidden)
    grid_height, grid_width = pillars.grid.spatial_shape
    parts = tiles.parts_of(items)
    samples = min(tiles.samples, h1)
    source = (boxes, labels, labels if indices is None else indices)
    # A box holds at most the points of its frame.
    room = max(1, len(pillars.points) // frames)
    found_points = labels.new_empty(items * room)
    crop_kernel[(triton.cdiv(items, 16) * (h1 // samples) * 5 + parts * items,)](
        pillars.points, pillars.offsets, pillars.grid.words, features, *source,
        workspace.counts, found_points, workspace.context, w.joined_map, w.joined_rest, w.joined_bias,
        items, room, per_frame, proposals, pillars.grid.capacity, grid_height, grid_width,
        padded_width(grid_width), *map_shape, pillar_size_m, w.grid.cell_m, *w.grid.origin_m, w.margin_m,
        HAS_INDICES=indices is not None, CLASSES=w.classes, CHANNELS=w.map_channels,
        PADDED=w.joined_map.shape[1], HIDDEN=h1, PARTS=parts, ROWS=tiles.rows, LENGTH=tiles.length,
        SLICE=samples, DEPTH=min(_depth(w), w.joined_map.shape[1]), PRECISION=_PRECISION,
        PER_POINT=pillars.points.shape[1], num_warps=tiles.warps, num_stages=1,
        # Points on a face are inside or not as they are for the dynamic stage.
        enable_fp_fusion=False,
        **dependent(pillars.points),
    )  # fmt: skip
    _layers(
        pillars.points, found_points, room, source, result, weights, workspace, tiles,
        proposals=proposals, indexed=indices is not None, turn=turn,
    )  # fmt: skip
    return result


def refine_listed(
    points: Tensor,
    starts: Tensor,
    runs: Tensor,
    boxes: Tensor,
    labels: Tensor,
    weights: PackedRefine,
    *,
    turn: bool,
    workspace: RefineWorkspace,
    tiles: RefineTiles,
) -> RefinedBoxes:
    """A step whose runs of points under each box are known.

    Args:
        points: (B * P, C) float32.
        starts, runs: (B * K, rows) int32 first point of each run, and its length.
        boxes: (B, K, 7) float32; labels: (B, K) int32 class, -1: no box.
        weights: of the step.
        turn: add half a turn to boxes whose flip logit is positive.
        workspace: its ``context`` filled, all else cleared.
        tiles: how to cut up the work.
    """
    frames, proposals = labels.shape
    result = _empty(boxes, labels, (frames, proposals), weights)
    if labels.numel() == 0:
        return result
    room = max(1, len(points) // frames)
    found_points = labels.new_empty(labels.numel() * room)
    parts = tiles.parts_of(labels.numel())
    listed_crop_kernel[(labels.numel(), parts)](
        points, starts, runs, boxes, labels, workspace.counts, found_points, starts.shape[1], room,
        proposals, proposals, weights.margin_m, PARTS=parts, ROWS=tiles.rows, LENGTH=tiles.length,
        PER_POINT=points.shape[1], num_warps=tiles.warps, num_stages=1, enable_fp_fusion=False,
        **dependent(points),
    )  # fmt: skip
    _layers(
        points, found_points, room, (boxes, labels, labels), result, weights, workspace, tiles,
        proposals=proposals, indexed=False, turn=turn,
    )  # fmt: skip
    return result


def _empty(boxes: Tensor, labels: Tensor, shape: tuple[int, int], weights: PackedRefine) -> RefinedBoxes:
    return RefinedBoxes(
        boxes.new_empty(*shape, 7),
        labels.new_empty(shape),
        boxes.new_empty(shape),
        boxes.new_empty(shape),
        weights.hidden.new_empty(*shape, len(weights.hidden)),
    )


def _depth(weights: PackedRefine) -> int:
    """Inputs that are multiplied together: a few numbers of float32 at a time."""
    return 256 if weights.dtype.itemsize == 2 else 32


def _layers(
    points: Tensor,
    found_points: Tensor,
    room: int,
    source: tuple[Tensor, Tensor, Tensor],
    result: RefinedBoxes,
    weights: PackedRefine,
    workspace: RefineWorkspace,
    tiles: RefineTiles,
    *,
    proposals: int,
    indexed: bool,
    turn: bool,
) -> None:
    """The three launches behind the first: points inside boxes through their layers, then the boxes."""
    w = weights
    boxes, _, indices = source
    (_, c1), (c2, c3), (h1, h2) = w.points_1.shape, w.points_3.shape, w.hidden.shape
    items, per_frame = result.labels.numel(), result.labels.shape[1]
    # Products of float32 keep three times as much in registers and shared memory.
    columns = min(tiles.columns if w.dtype.itemsize == 2 else 32, c3)
    narrow_1, narrow_2 = min(tiles.head_columns, h1), min(tiles.head_columns, h2)
    depth = _depth(w)
    registers = tiles.registers if tiles.registers and w.dtype.itemsize == 2 else None
    slots = max(1, tiles.programs * columns // c3)
    groups = triton.cdiv(items, 16)
    partial = boxes.new_empty(groups * (h2 // narrow_2), 16, 16)
    points_kernel[(slots * (c3 // columns),)](
        points, boxes, indices, found_points, workspace.counts, workspace.pooled,
        w.points_1, w.points_bias_1, w.points_2, w.points_bias_2, w.points_3, w.points_bias_3,
        items, room, per_frame, proposals,
        HAS_INDICES=indexed, C1=c1, C2=c2, C3=c3, POINTS=tiles.points, COLUMNS=columns,
        ITEMS=min(tiles.counted, max(16, triton.next_power_of_2(items))), SLOTS=slots, PRECISION=_PRECISION,
        PER_POINT=points.shape[1], num_warps=tiles.point_warps, num_stages=1, maxnreg=registers,
        **dependent(points),
    )  # fmt: skip
    hidden_kernel[(groups * (h1 // narrow_1),)](
        workspace.pooled, workspace.counts, workspace.context,
        w.joined_points, w.joined_rest[w.classes], result.features, items,
        C3=c3, H1=h1, COLUMNS=narrow_1, DEPTH=min(depth, c3), PRECISION=_PRECISION,
        num_warps=tiles.head_warps, num_stages=1,
        **dependent(workspace.pooled),
    )  # fmt: skip
    out_kernel[(groups * (h2 // narrow_2),)](
        *source, result.features, w.hidden, w.hidden_bias, w.out, w.out_bias, partial, workspace.arrivals,
        workspace.pooled, workspace.counts, *result[:4], items, per_frame, proposals,
        HAS_INDICES=indexed, C3=c3, H1=h1, H2=h2, COLUMNS=narrow_2, DEPTH=min(depth, h1),
        CLEAR=max(1, c3 * narrow_2 // h2), TURN=turn, PRECISION=_PRECISION,
        num_warps=tiles.head_warps, num_stages=1,
        **dependent(boxes),
    )  # fmt: skip
