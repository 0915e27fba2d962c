"""Rotated non-maximum suppression on the device, without read-backs."""

from perception.stages.nms.api import fixed_nms, fixed_suppress
from perception.stages.nms.common import NmsIndices, Suppressed

__all__ = ["NmsIndices", "Suppressed", "fixed_nms", "fixed_suppress"]
