"""A refinement step with fixed shapes, in four launches without read-backs."""

from __future__ import annotations

from perception.stages.refine.api import fixed_refine
from perception.stages.refine.common import RefinedBoxes, RefineTiles, RefineWorkspace
from perception.stages.refine.weights import PackedRefine, pack_refine

__all__ = [
    "PackedRefine",
    "RefineTiles",
    "RefineWorkspace",
    "RefinedBoxes",
    "fixed_refine",
    "pack_refine",
]
