"""How far the view from a sensor is free: what stands there stops it, the ground does not."""

from __future__ import annotations

import math

import numpy as np

from perception.scans.tensors import raised_m
from perception.types import FloatArray, PointCloud

#: Heights at which cars and people are, from a sensor as high as that of the training data, 1.73 m.
_STANDING_M = (-1.2, 0.2)
#: What is nearer is of the vehicle itself.
_OWN_M = 2.5


def free_distances(cloud: PointCloud, bins: int = 360) -> FloatArray:
    """Metres to the first thing that stands, by bearing.

    No further than the farthest return of a bearing, of whatever height: nobody knows what is behind. On a
    slope the ground stands too, so it is said to be free for less than it is. What is within 2.5 m is taken
    for the vehicle itself.

    Args:
        cloud: in its LiDAR frame; its ``sensor_height_m`` tells where the ground is.
        bins: of equal angles around the sensor.

    Returns:
        (bins,) float32, counter-clockwise from -x (bearing -pi); 0 where there is no return.
    """
    points = cloud.points
    if not np.isfinite(points).all():
        points = points[np.isfinite(points).all(axis=1)]
    distance = np.hypot(points[:, 0], points[:, 1])
    share = (np.arctan2(points[:, 1], points[:, 0]) + math.pi) / (2 * math.pi)
    place = np.minimum((share * bins).astype(np.int64), bins - 1)
    height = points[:, 2] + np.float32(raised_m(cloud))
    free = np.zeros(bins, np.float32)
    np.maximum.at(free, place, distance)
    stands = (height > _STANDING_M[0]) & (height < _STANDING_M[1]) & (distance > _OWN_M)
    np.minimum.at(free, place[stands], distance[stands])
    return free
