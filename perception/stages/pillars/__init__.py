"""Points to pillars and pillar features with fixed capacities, few launches and no read-backs."""

from __future__ import annotations

from perception.stages.pillars.api import fixed_encode, fixed_pillars, locate_points, sort_points
from perception.stages.pillars.types import FixedPillars, LocatedPoints, PillarWorkspace
from perception.stages.pillars.weights import EncoderWeights

__all__ = [
    "EncoderWeights",
    "FixedPillars",
    "LocatedPoints",
    "PillarWorkspace",
    "fixed_encode",
    "fixed_pillars",
    "locate_points",
    "sort_points",
]
