"""Last map, heat map, peaks and boxes, with one or two launches each."""

from perception.stages.head.api import fixed_boxes, fixed_heat, fixed_peaks, fixed_up
from perception.stages.head.types import (
    BoxWeights,
    HeatWeights,
    Peaks,
    UpWeights,
    pack_boxes,
    pack_heat,
    pack_up,
)

__all__ = [
    "BoxWeights",
    "HeatWeights",
    "Peaks",
    "UpWeights",
    "fixed_boxes",
    "fixed_heat",
    "fixed_peaks",
    "fixed_up",
    "pack_boxes",
    "pack_heat",
    "pack_up",
]
