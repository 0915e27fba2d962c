"""Exact labels of a scan: tight boxes and how much of each object is hidden."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perception.simulate.mesh import FloatArray, IntArray, Mesh
from perception.simulate.raycast import RayCaster
from perception.simulate.sensor import RayGrid

#: Up to this share of hidden rays an object counts as fully visible, partly and largely occluded.
_VISIBLE, _PARTLY, _LARGELY = 0.1, 0.5, 0.95


def object_boxes(
    meshes: list[Mesh],
    poses: list[npt.NDArray[np.float64]],
    world_from_lidar: npt.NDArray[np.float64],
) -> FloatArray:
    """Tight boxes of objects.

    Args:
        meshes: in world coordinates.
        poses: 4x4 world_from_object of each; gives the heading.
        world_from_lidar: (4, 4) pose of the sensor.

    Returns:
        (M, 7) float32 boxes in the LiDAR frame.
    """
    lidar_from_world = np.linalg.inv(world_from_lidar)
    boxes = np.zeros((len(meshes), 7), np.float32)
    for row, mesh, pose in zip(boxes, meshes, poses, strict=True):
        heading = (lidar_from_world @ pose)[:2, 0]
        yaw = float(np.arctan2(heading[1], heading[0]))
        row[:] = tight_box(mesh.transformed(lidar_from_world).vertices, yaw)
    return boxes


def tight_box(vertices: FloatArray, yaw_rad: float) -> FloatArray:
    """The smallest upright box with a given heading around some points.

    Args:
        vertices: (V, 3) float32, metres.
        yaw_rad: heading of the box.

    Returns:
        (7,) float32: x, y, z of the centre, length, width, height, yaw.
    """
    cosine, sine = np.cos(yaw_rad), np.sin(yaw_rad)
    turn = np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
    local = vertices.astype(np.float64) @ turn
    low, high = local.min(0), local.max(0)
    return np.concatenate([turn @ ((low + high) / 2), high - low, [yaw_rad]]).astype(np.float32)


def hidden_share(
    index: int, mesh: Mesh, box: FloatArray, grid: RayGrid, rays: FloatArray, owner: IntArray
) -> float:
    """Share of the rays that would meet an object alone but meet something else in the scene."""
    chosen = _rays_towards(box, grid)
    alone = np.isfinite(RayCaster(mesh, threads=1).cast(rays[chosen]).distance_m) if len(chosen) else chosen
    total = int(np.count_nonzero(alone))
    if total == 0:
        return 1.0
    return 1.0 - int(np.count_nonzero(owner[chosen][alone] == index)) / total


def _rays_towards(box: FloatArray, grid: RayGrid, margin_rad: float = 0.03) -> npt.NDArray[np.int64]:
    """Numbers of the rays that can meet a box (LiDAR frame), and a few more."""
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
    """KITTI's level for a share of hidden rays: 0 fully visible, 1 partly, 2 largely occluded, 3 unseen."""
    return np.digitize(occlusion, [_VISIBLE, _PARTLY, _LARGELY], right=True).astype(np.int32)
