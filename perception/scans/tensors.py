"""Conversion of scans to tensors for networks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from perception.io.transform import TRAINED_SENSOR_HEIGHT_M
from perception.types import FloatArray, PointCloud, check_columns

Cloud = PointCloud | FloatArray | Tensor


def raised_m(cloud: Cloud) -> float:
    """Return what a detector adds to z: the scan's sensor height minus that of the training data."""
    height_m = cloud.sensor_height_m if isinstance(cloud, PointCloud) else None
    return 0.0 if height_m is None else height_m - TRAINED_SENSOR_HEIGHT_M


def as_tensor(cloud: Cloud) -> Tensor:
    """Return (N, 4) float32 on the scan's device, with z relative to the sensor height of training data.

    Raises:
        ValueError: the shape is not (N, 4) or (N, 3).
        TypeError: the argument is not a point cloud, array or tensor of real numbers.
    """
    if type(cloud) is np.ndarray:
        flags = cloud.flags
        if cloud.dtype == np.float32 and cloud.shape[1:] == (4,) and flags.c_contiguous and flags.writeable:
            # Fast path for the most common argument.
            return torch.from_numpy(cloud)
    if isinstance(cloud, np.ndarray):
        cloud = PointCloud(cloud)
    if isinstance(cloud, PointCloud):
        raised = raised_m(cloud)
        if raised:
            seen = cloud.points.copy()
            seen[:, 2] += np.float32(raised)
            return torch.from_numpy(seen)
        # torch warns about read-only arrays.
        return torch.from_numpy(np.require(cloud.points, requirements=["C", "W"]))
    if not isinstance(cloud, Tensor):
        raise TypeError(f"points must be a PointCloud, a numpy array or a tensor, got {type(cloud).__name__}")
    check_columns(tuple(cloud.shape))
    if cloud.is_complex() or cloud.dtype == torch.bool:
        raise TypeError(f"points must be a tensor of float or integer numbers, got {cloud.dtype}")
    points = cloud.detach().float()
    return points if points.shape[1] == 4 else torch.nn.functional.pad(points, (0, 1))
