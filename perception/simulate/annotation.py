"""Exact labels of a scan: tight boxes and occlusion of each object."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perception.simulate.mesh import FloatArray, IntArray, Mesh
from perception.simulate.raycast import RayCaster
from perception.simulate.sensor import RayGrid

#: Largest share of hidden rays of fully visible, partly occluded and largely occluded objects.
_VISIBLE, _PARTLY, _LARGELY = 0.1, 0.5, 0.95


def object_boxes(
    meshes: list[Mesh],
    poses: list[npt.NDArray[np.float64]],
    world_from_lidar: npt.NDArray[np.float64],
) -> FloatArray:
    """Return tight boxes of objects, (M, 7) float32 in the LiDAR frame.

    Args:
        meshes: in world coordinates.
        poses: 4x4 world_from_object of each, for the heading.
        world_from_lidar: (4, 4) pose of the sensor.
    """
    lidar_from_world = np.linalg.inv(world_from_lidar)
    boxes = np.zeros((len(meshes), 7), np.float32)
    for row, mesh, pose in zip(boxes, meshes, poses, strict=True):
        heading = (lidar_from_world @ pose)[:2, 0]
        yaw = float(np.arctan2(heading[1], heading[0]))
        row[:] = tight_box(mesh.transformed(lidar_from_world).vertices, yaw)
    return boxes


def tight_box(vertices: FloatArray, yaw_rad: float) -> FloatArray:
    """Return the smallest upright box with this heading around (V, 3) points, as a (7,) float32 row."""
    cosine, sine = np.cos(yaw_rad), np.sin(yaw_rad)
    turn = np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
    local = vertices.astype(np.float64) @ turn
    low, high = local.min(0), local.max(0)
    return np.concatenate([turn @ ((low + high) / 2), high - low, [yaw_rad]]).astype(np.float32)


def hidden_share(
    index: int, mesh: Mesh, box: FloatArray, grid: RayGrid, rays: FloatArray, owner: IntArray
) -> float:
    """Return the share of an object's rays that other parts of the scene block."""
    chosen = _rays_towards(box, grid)
    alone = np.isfinite(RayCaster(mesh, threads=1).cast(rays[chosen]).distance_m) if len(chosen) else chosen
    total = int(np.count_nonzero(alone))
    if total == 0:
        return 1.0
    return 1.0 - int(np.count_nonzero(owner[chosen][alone] == index)) / total


def _rays_towards(box: FloatArray, grid: RayGrid, margin_rad: float = 0.03) -> npt.NDArray[np.int64]:
    """Return the numbers of all rays that can meet a box (LiDAR frame), plus a margin."""
    center, half = box[:3].astype(np.float64), float(np.linalg.norm(box[3:6])) / 2
    distance = max(float(np.linalg.norm(center)), 1e-6)
    reach = np.arcsin(min(half / distance, 1.0)) + margin_rad
    level = float(np.hypot(center[0], center[1]))
    azimuth_reach = np.arcsin(min(half / level, 1.0)) + margin_rad if level > half else np.pi
    azimuth = np.arctan2(center[1], center[0])
    elevation = np.arctan2(center[2], level)
    apart = np.abs((grid.azimuth_rad - azimuth + np.pi) % (2 * np.pi) - np.pi)
    columns = np.flatnonzero(apart <= azimuth_reach)
    beams = np.flatnonzero(np.abs(grid.elevation_rad - elevation) <= reach)
    return (beams[:, None] * len(grid.azimuth_rad) + columns).ravel()


def occlusion_level(occlusion: FloatArray) -> IntArray:
    """Return KITTI's level for a share of hidden rays: 0 fully visible, 1 partly, 2 largely occluded, 3
    unseen.
    """
    return np.digitize(occlusion, [_VISIBLE, _PARTLY, _LARGELY], right=True).astype(np.int32)
