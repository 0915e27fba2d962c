"""Evaluation of detections: protocols, tables and figures."""

from __future__ import annotations

from perception.evaluate.kitti import KittiResult, PrecisionRecall, evaluate_kitti

__all__ = ["KittiResult", "PrecisionRecall", "evaluate_kitti"]
