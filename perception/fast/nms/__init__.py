"""Rotated non-maximum suppression on the device, nothing read back."""

from perception.fast.nms.api import fixed_nms, fixed_suppress
from perception.fast.nms.common import Kept, Suppressed

__all__ = ["Kept", "Suppressed", "fixed_nms", "fixed_suppress"]
