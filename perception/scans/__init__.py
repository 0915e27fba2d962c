"""Unit, axes, height and intensity of scans: measured, judged and changed to what a detector expects."""

from perception.io.transform import TRAINED_SENSOR_HEIGHT_M, ScanTransform

__all__ = ["TRAINED_SENSOR_HEIGHT_M", "ScanTransform"]
