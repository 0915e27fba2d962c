"""Rotated NMS with fixed shapes, for CUDA graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.boxes import Metric
from perception.nms import check_options
from perception.stages.nms import reference
from perception.stages.nms.common import FEW_BOXES, NmsIndices, Suppressed, fused_scores
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

#: Largest number of boxes per frame: a pair of ranks is one int32.
MAX_BOXES = 32768
NMS: Op[()] = Op("nms", __package__, by_triton(), by_torch(), gradient=False)


def fixed_nms(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    *,
    iou_threshold: float,
    score_threshold: float = 0.0,
    max_output: int | None = None,
    metric: Metric = "bev",
    pairs_a_box: int = 64,
    impl: Impl = "auto",
) -> NmsIndices:
    """Suppress boxes that overlap a better box of the same label, with the result of ``rotated_nms``.

    Nothing is read back to the host, and values are not checked: boxes with fields that are not finite or
    NaN scores are ignored.

    Args:
        boxes: (B, K, 7) float32 or float64, LiDAR frame, metres and radians.
        scores: (B, K) float32 or float64; equal scores rank by lower index first.
        labels: (B, K) int32 or int64; boxes with negative labels are ignored.
        iou_threshold: suppress above this IoU, in [0, 1].
        score_threshold: boxes below it are ignored.
        max_output: largest number of kept boxes per frame; None: all.
        metric: ``"bev"`` or ``"3d"``.
        pairs_a_box: capacity for pairs of boxes with overlapping circles, per box. Slower, exact kernels
            decide frames with more pairs (``NmsIndices.overflow``); their table takes K²/8 bytes per frame.
        impl: ``"reference"`` (a loop on the host, any device), ``"triton"`` or ``"auto"``: Triton for CUDA.

    Raises:
        TypeError: unsupported dtypes.
        ValueError: inconsistent shapes, or an option out of range.
        ImplementationError: ``impl`` cannot run here.
    """
    _check(boxes, scores, labels)
    check_options(iou_threshold, max_output, metric)
    if pairs_a_box < 1:
        raise ValueError(f"pairs_a_box must be at least 1, got {pairs_a_box}")
    count = boxes.shape[1]
    most = count if max_output is None else max_output
    if NMS.choose(impl, boxes.device) == "reference" or 0 in (len(boxes), count, most):
        return reference.fixed_nms(boxes, scores, labels, iou_threshold, score_threshold, most, metric)
    from perception.stages.nms import many_triton, triton

    given = boxes, scores, labels, iou_threshold, score_threshold, most, metric
    return NmsIndices(*(triton.few(*given) if count <= FEW_BOXES else many_triton.many(*given, pairs_a_box)))


def fixed_suppress(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    *,
    iou_threshold: float,
    score_threshold: float,
    max_output: int,
    fit_logits: Tensor | None = None,
    fit_weight: float = 0.0,
    impl: Impl = "auto",
) -> Suppressed:
    """Run :func:`fixed_nms` on refined boxes, and return the kept boxes.

    Args:
        boxes: (B, K, 7) float32; scores: (B, K) float32; labels: (B, K) int32, -1 for no box.
        iou_threshold, score_threshold, max_output, impl: see :func:`fixed_nms`.
        fit_logits: (B, K) float32; scores become ``score^(1 - w) * sigmoid(fit)^w`` first.
        fit_weight: ``w``, in [0, 1].

    Raises:
        See :func:`fixed_nms`.
    """
    _check(boxes, scores, labels)
    if boxes.dtype != torch.float32 or scores.dtype != torch.float32 or labels.dtype != torch.int32:
        raise TypeError(
            "boxes and scores must be float32 and labels int32,"
            f" got {boxes.dtype}, {scores.dtype} and {labels.dtype}"
        )
    if fit_logits is not None and (fit_logits.shape != scores.shape or fit_logits.dtype != torch.float32):
        raise ValueError(
            f"fit_logits must be {tuple(scores.shape)} float32,"
            f" got {tuple(fit_logits.shape)} {fit_logits.dtype}"
        )
    few = 0 < boxes.shape[1] <= FEW_BOXES and len(boxes) > 0 and max_output > 0
    if few and NMS.choose(impl, boxes.device) == "triton":
        from perception.stages.nms import triton

        return triton.suppress(
            boxes,
            scores,
            labels,
            iou_threshold,
            score_threshold,
            max_output,
            fit_logits,
            fit_weight if fit_logits is not None else 0.0,
        )
    scores = fused_scores(scores, fit_logits, fit_weight)
    kept = fixed_nms(
        boxes,
        scores,
        labels,
        iou_threshold=iou_threshold,
        score_threshold=score_threshold,
        max_output=max_output,
        impl=impl,
    )
    return reference.taken(boxes, scores, labels, kept)


def _check(boxes: Tensor, scores: Tensor, labels: Tensor) -> None:
    if boxes.ndim != 3 or boxes.shape[2] != 7:
        raise ValueError(f"boxes must be (B, K, 7), got {tuple(boxes.shape)}")
    if boxes.shape[1] > MAX_BOXES:
        raise ValueError(f"boxes: at most {MAX_BOXES} per frame, got {boxes.shape[1]}")
    for name, values in (("scores", scores), ("labels", labels)):
        if values.shape != boxes.shape[:2]:
            raise ValueError(f"{name} must be {tuple(boxes.shape[:2])} like boxes, got {tuple(values.shape)}")
        if values.device != boxes.device:
            raise ValueError(f"{name} must be on {boxes.device} like boxes, got {values.device}")
    for name, values in (("boxes", boxes), ("scores", scores)):
        if values.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"{name} must be float32 or float64, got {values.dtype}")
    if labels.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"labels must be int32 or int64, got {labels.dtype}")
