"""The KITTI object benchmark: average precision of detections by its protocol."""

from __future__ import annotations

from perception.evaluate.kitti.evaluation import evaluate_kitti
from perception.evaluate.kitti.result import KittiResult, PrecisionRecall

__all__ = ["KittiResult", "PrecisionRecall", "evaluate_kitti"]
