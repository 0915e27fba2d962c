"""One refinement step with fixed shapes, for CUDA graphs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from perception.stages.pillars.types import FixedPillars
from perception.stages.refine import reference
from perception.stages.refine.common import RefinedBoxes, RefineTiles, RefineWorkspace
from perception.stages.refine.weights import PackedRefine
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

REFINE: Op[()] = Op("refine", __package__, by_triton(), by_torch(), gradient=False)


def fixed_refine(
    pillars: FixedPillars,
    features: Tensor,
    boxes: Tensor,
    labels: Tensor,
    weights: PackedRefine,
    *,
    map_shape: tuple[int, int],
    pillar_size_m: float,
    indices: Tensor | None = None,
    turn: bool = False,
    workspace: RefineWorkspace | None = None,
    tiles: RefineTiles | None = None,
    impl: Impl = "auto",
) -> RefinedBoxes:
    """Run a :class:`~perception.model.refine.RefineStage` and apply its residuals, in a few launches.

    All points in the enlarged box count, while the dynamic stage thins more than ``MAX_CANDIDATES`` points
    under a box. The order of points within their pillars does not matter.

    Args:
        pillars: points by pillar, with the range of ``weights.grid``.
        features: (B * H * W, C) bird's-eye map, row-major; float16, bfloat16 or float32.
        boxes: (B, K, 7) float32, LiDAR frame; labels: (B, K) int32 class, -1 for no box.
        weights: from :func:`~perception.stages.refine.pack_refine`.
        map_shape: rows H and columns W of the map.
        pillar_size_m: edge of a pillar.
        indices: (B, M) int32 boxes to refine, as returned by :func:`~perception.stages.nms.fixed_nms`, -1 for
            none. None: all boxes, M = K.
        turn: add half a turn to boxes with a positive flip logit, as after the last step.
        workspace: cleared buffers for B * M boxes; None: new ones, with one more launch.
        tiles: tiles of the kernels; None: default.
        impl: ``"reference"`` is plain torch and reads sizes back; ``"triton"`` can be captured in a CUDA
            graph (CUDA, or Triton's interpreter); ``"auto"`` is Triton for CUDA tensors.

    Raises:
        TypeError: wrong dtype.
        ValueError: inconsistent shapes, or a map of 2^31 numbers or more.
        ImplementationError: ``impl`` cannot run here.
    """
    if indices is not None and (indices.dtype != torch.int32 or indices.ndim != 2):
        raise TypeError(f"indices must be (B, M) int32, got {tuple(indices.shape)} {indices.dtype}")
    _check(pillars, features, boxes, labels, weights, map_shape, indices)
    if not 0 < pillar_size_m < math.inf:
        raise ValueError(f"pillar_size_m must be positive, got {pillar_size_m}")
    count = (labels if indices is None else indices).numel()
    if workspace is not None and tuple(workspace.pooled.shape) != (count, weights.points_3.shape[1]):
        raise ValueError(
            f"workspace has {tuple(workspace.pooled.shape)} pooled features, but"
            f" {(count, weights.points_3.shape[1])} are needed. Make it for {count} boxes."
        )
    if REFINE.choose(impl, boxes.device) == "triton":
        from perception.stages.refine import triton

        return triton.refine(
            pillars,
            features.contiguous(),
            boxes.contiguous(),
            labels.contiguous(),
            weights,
            map_shape=map_shape,
            pillar_size_m=float(pillar_size_m),
            indices=None if indices is None else indices.contiguous(),
            turn=turn,
            workspace=RefineWorkspace.make(count, weights) if workspace is None else workspace,
            tiles=RefineTiles() if tiles is None else tiles,
        )
    return reference.refine(
        pillars,
        features,
        boxes,
        labels,
        weights,
        map_shape=map_shape,
        pillar_size_m=float(pillar_size_m),
        indices=indices,
        turn=turn,
    )


def _check(
    pillars: FixedPillars,
    features: Tensor,
    boxes: Tensor,
    labels: Tensor,
    weights: PackedRefine,
    map_shape: tuple[int, int],
    indices: Tensor | None,
) -> None:
    frames = pillars.grid.batch_size
    if boxes.dtype != torch.float32 or labels.dtype != torch.int32:
        raise TypeError(f"boxes must be float32 and labels int32, got {boxes.dtype} and {labels.dtype}")
    if boxes.ndim != 3 or boxes.shape[0] != frames or boxes.shape[2] != 7:
        raise ValueError(f"boxes must be ({frames}, K, 7) for {frames} frames, got {tuple(boxes.shape)}")
    if labels.shape != boxes.shape[:2]:
        raise ValueError(f"labels must be {tuple(boxes.shape[:2])}, got {tuple(labels.shape)}")
    if indices is not None and len(indices) != frames:
        raise ValueError(f"indices must be ({frames}, M), got {tuple(indices.shape)}")
    if features.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"features must be float16, bfloat16 or float32, got {features.dtype}")
    expected = (frames * map_shape[0] * map_shape[1], weights.map_channels)
    if tuple(features.shape) != expected:
        raise ValueError(f"features must be {expected}: rows of the map of {frames} frames, got"
                         f" {tuple(features.shape)}")  # fmt: skip
    if features.numel() >= 2**31:
        raise ValueError(f"features may have at most 2^31 - 1 numbers, got {features.numel()}")
