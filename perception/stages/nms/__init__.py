"""Rotated non-maximum suppression on the device, nothing read back."""

from perception.stages.nms.api import fixed_nms, fixed_suppress
from perception.stages.nms.common import Kept, Suppressed

__all__ = ["Kept", "Suppressed", "fixed_nms", "fixed_suppress"]
