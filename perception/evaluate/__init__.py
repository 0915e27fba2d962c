"""Evaluation of detections: the KITTI protocol, its tables and its figures."""

from __future__ import annotations

from perception.evaluate.kitti import KittiResult, PrecisionRecall, evaluate_kitti

__all__ = ["KittiResult", "PrecisionRecall", "evaluate_kitti"]
