"""Conversion of scans to tensors for networks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from perception.config import PillarConfig
from perception.io.transform import TRAINED_SENSOR_HEIGHT_M
from perception.types import FloatArray, PointCloud, check_columns

Cloud = PointCloud | FloatArray | Tensor
#: Bits of the position of a cube along one axis.
_CUBE_BITS = 20


def raised_m(cloud: Cloud, shrink: float = 1.0) -> float:
    """Return what a detector adds to z before it shrinks the scene, to have the ground at a known height.

    Args:
        cloud: the scan; without a known sensor height, that of the training data is assumed.
        shrink: see :class:`~perception.config.PillarConfig`.
    """
    height_m = cloud.sensor_height_m if isinstance(cloud, PointCloud) else None
    return raised_by_m(height_m, shrink)


def raised_by_m(sensor_height_m: float | None, shrink: float = 1.0) -> float:
    """Return :func:`raised_m` of a sensor height."""
    height_m = TRAINED_SENSOR_HEIGHT_M if sensor_height_m is None else sensor_height_m
    return height_m - TRAINED_SENSOR_HEIGHT_M * shrink


def measured_range_m(
    pillars: PillarConfig, sensor_height_m: float | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return minimum and maximum x, y, z of a detector in metres of a scan; infinite without a range."""
    bottom, top = pillars.heights_m
    edges = pillars.range_m or (-np.inf, -np.inf, bottom, np.inf, np.inf, top)
    shift = np.array([0.0, 0.0, raised_by_m(sensor_height_m, pillars.shrink)])
    low, high = (np.array(part) * pillars.shrink - shift for part in (edges[:3], edges[3:]))
    return low, high


def as_tensor(cloud: Cloud, pillars: PillarConfig | None = None) -> Tensor:
    """Return (N, 4) float32 on the scan's device, with z relative to the sensor height of training data.

    For a detector that reads several sweeps, the tensor has a fifth column: the age of the point in seconds.

    Args:
        cloud: the scan. For several sweeps, arrays and tensors may have the age as fifth column; without
            ages, all points are of this moment.
        pillars: of the detector that reads it; it may shrink and thin the scan.

    Raises:
        ValueError: the shape is not (N, 4) or (N, 3).
        TypeError: the argument is not a point cloud, array or tensor of real numbers.
    """
    ages: Tensor | None = None
    if pillars is not None and pillars.sweeps > 1:
        cloud, ages = _split_ages(cloud)
    if pillars is None or pillars.shrink == 1:
        points = _with_height(cloud)
    else:
        points = _with_height(cloud.points if isinstance(cloud, PointCloud) else cloud)
        raised = points.new_tensor([0.0, 0.0, raised_m(cloud, pillars.shrink), 0.0])
        points = (points + raised) / _scale(points, pillars.shrink)
    if pillars is not None and pillars.sweeps > 1:
        ages = points.new_zeros(len(points)) if ages is None else ages.to(points)
        points = torch.cat([points, ages[:, None]], dim=1)
    return points if pillars is None or pillars.cube_m == 0 else _thinned(points, pillars.cube_m)


def _with_height(cloud: Cloud) -> Tensor:
    """Return :func:`as_tensor` of a detector that neither shrinks nor thins."""
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
        raise TypeError(_wrong_type(cloud))
    check_columns(tuple(cloud.shape))
    if cloud.is_complex() or cloud.dtype == torch.bool:
        raise TypeError(f"points must be a tensor of float or integer numbers, got {cloud.dtype}")
    points = cloud.detach().float()
    return points if points.shape[1] == 4 else torch.nn.functional.pad(points, (0, 1))


def has_ages(cloud: Cloud) -> bool:
    """Return True for merged scans: the points of the cloud have ages, or the array has a fifth column."""
    return cloud.ages_s is not None if isinstance(cloud, PointCloud) else cloud.shape[1:] == (5,)


def _split_ages(cloud: Cloud) -> tuple[Cloud, Tensor | None]:
    """Return a cloud of four columns and the (N,) ages of its points in seconds; None for a scan alone."""
    if not has_ages(cloud):
        return cloud, None
    if isinstance(cloud, PointCloud):
        return cloud, torch.from_numpy(np.require(cloud.ages_s, np.float32, ["C", "W"]))
    return cloud[:, :4], torch.as_tensor(cloud[:, 4])


def as_measured(points: Tensor, cloud: Cloud, shrink: float = 1.0) -> Tensor:
    """Return points (N, C) of :func:`as_tensor` in the metres and heights of the scan."""
    raised = raised_m(cloud, shrink)
    if not raised and shrink == 1:
        return points
    shift = points.new_zeros(points.shape[1])
    shift[2] = raised
    return points * _scale(points, shrink) - shift


def _scale(points: Tensor, shrink: float) -> Tensor:
    factors = points.new_ones(points.shape[1])
    factors[:3] = shrink
    return factors


def _thinned(points: Tensor, edge_m: float) -> Tensor:
    """Return the first point of each cube, in the order of the scan, and all points that are not finite."""
    finite = torch.isfinite(points[:, :3]).all(dim=1)
    limit = 1 << (_CUBE_BITS - 1)
    cells = torch.floor(torch.where(finite[:, None], points[:, :3], 0.0) / edge_m)
    cells = cells.clamp(-limit, limit - 1).long() + limit
    keys = (cells[:, 0] << 2 * _CUBE_BITS) | (cells[:, 1] << _CUBE_BITS) | cells[:, 2]
    keys = torch.where(finite, keys, -1 - torch.arange(len(points), device=points.device))
    keys, order = torch.sort(keys, stable=True)
    first = torch.ones_like(keys, dtype=torch.bool)
    first[1:] = keys[1:] != keys[:-1]
    return points.index_select(0, torch.sort(order[first]).values)


def _wrong_type(cloud: object) -> str:
    # Other packages have classes called PointCloud too.
    kind = f"{type(cloud).__module__}.{type(cloud).__qualname__}".removeprefix("builtins.")
    advice = " Pass numpy.asarray(cloud.points)." if kind.startswith("open3d.") else ""
    return f"points must be a perception.PointCloud, a numpy array or a tensor, got {kind}.{advice}"
