"""Scans of any kind as the tensors that networks take."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from perception.io.transform import TRAINED_SENSOR_HEIGHT_M
from perception.types import FloatArray, PointCloud, check_columns

Cloud = PointCloud | FloatArray | Tensor


def raised_m(cloud: Cloud) -> float:
    """What a detector adds to z: the height of the scan's sensor less that of the training data."""
    height_m = cloud.sensor_height_m if isinstance(cloud, PointCloud) else None
    return 0.0 if height_m is None else height_m - TRAINED_SENSOR_HEIGHT_M


def as_tensor(cloud: Cloud) -> Tensor:
    """(N, 4) float32, on the device where the scan is, z as seen from the height of the training data.

    Raises:
        ValueError: not (N, 4) or (N, 3).
        TypeError: neither a point cloud nor an array or tensor of real numbers.
    """
    if type(cloud) is np.ndarray:
        flags = cloud.flags
        if cloud.dtype == np.float32 and cloud.shape[1:] == (4,) and flags.c_contiguous and flags.writeable:
            # What most programs give needs no look at anything else.
            return torch.from_numpy(cloud)
    if isinstance(cloud, np.ndarray):
        cloud = PointCloud(cloud)
    if isinstance(cloud, PointCloud):
        raised = raised_m(cloud)
        if raised:
            seen = cloud.points.copy()
            seen[:, 2] += np.float32(raised)
            return torch.from_numpy(seen)
        # torch warns about arrays that it could not write to.
        return torch.from_numpy(np.require(cloud.points, requirements=["C", "W"]))
    if not isinstance(cloud, Tensor):
        raise TypeError(f"points must be a PointCloud, a numpy array or a tensor, got {type(cloud).__name__}")
    check_columns(tuple(cloud.shape))
    if cloud.is_complex() or cloud.dtype == torch.bool:
        raise TypeError(f"points must be a tensor of float or integer numbers, got {cloud.dtype}")
    points = cloud.detach().float()
    return points if points.shape[1] == 4 else torch.nn.functional.pad(points, (0, 1))
