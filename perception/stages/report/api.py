"""Reported boxes, best first, in one block of memory, for CUDA graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.stages.report import reference
from perception.stages.report.common import ReportRules
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

REPORT: Op[()] = Op("report", __package__, by_triton(), by_torch(), gradient=False)


def fixed_report(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    counts: Tensor,
    numbers: Tensor,
    embeddings: Tensor,
    rules: ReportRules,
    *,
    impl: Impl = "auto",
) -> Tensor:
    """Map scores by class, sort boxes, wrap headings and set sizes; return one block of memory.

    The sort is stable. Nothing is read back to the host.

    Args:
        boxes: (B, M, 7) float32, LiDAR frame, metres and radians.
        scores: (B, M) float32 in [0, 1]; labels: (B, M) int32 classes, -1 for no box.
        counts: (B,) int32 and numbers: (N,) int32, copied.
        embeddings: (B, M, E) floating-point vectors of the boxes.
        impl: ``"reference"`` (plain torch), ``"triton"`` (one launch) or ``"auto"``: Triton for CUDA.

    Returns:
        (W,) int32, see :class:`~perception.stages.report.ReportLayout`; rows without a box are last.

    Raises:
        ValueError: inconsistent shapes.
        TypeError: unsupported dtypes.
        ImplementationError: ``impl`` cannot run here.
    """
    if boxes.ndim != 3 or boxes.shape[2] != 7:
        raise ValueError(f"boxes must be (B, M, 7), got {tuple(boxes.shape)}")
    frames, most = boxes.shape[:2]
    wanted = {"scores": (frames, most), "labels": (frames, most), "counts": (frames,)}
    for name, part in zip(wanted, (scores, labels, counts), strict=True):
        if tuple(part.shape) != wanted[name]:
            raise ValueError(f"{name} must be {wanted[name]}, got {tuple(part.shape)}")
    if embeddings.ndim != 3 or embeddings.shape[:2] != (frames, most) or numbers.ndim != 1:
        raise ValueError(
            f"embeddings must be ({frames}, {most}, E) and numbers (N,),"
            f" got {tuple(embeddings.shape)} and {tuple(numbers.shape)}"
        )
    if (boxes.dtype, scores.dtype) != (torch.float32,) * 2 or not embeddings.is_floating_point():
        raise TypeError(
            "boxes and scores must be float32 and embeddings floats,"
            f" got {boxes.dtype}, {scores.dtype} and {embeddings.dtype}"
        )
    if (labels.dtype, counts.dtype, numbers.dtype) != (torch.int32,) * 3:
        raise TypeError(
            "labels, counts and numbers must be int32,"
            f" got {labels.dtype}, {counts.dtype} and {numbers.dtype}"
        )
    given = (boxes, scores, labels, counts, numbers, embeddings, rules)
    if REPORT.choose(impl, boxes.device) == "reference" or 0 in (frames, most):
        return reference.report(*given)
    from perception.stages.report import triton

    return triton.report(*given)
