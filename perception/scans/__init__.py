"""Checks and conversion of the unit, axes, height and intensity of scans."""

from perception.io.transform import TRAINED_SENSOR_HEIGHT_M, ScanTransform

__all__ = ["TRAINED_SENSOR_HEIGHT_M", "ScanTransform"]
