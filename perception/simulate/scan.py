"""One sensor turn in a scene: points, exact boxes, point counts and occlusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perception.simulate.annotation import hidden_share, object_boxes, occlusion_level
from perception.simulate.mesh import FloatArray, IntArray
from perception.simulate.raycast import RayCaster
from perception.simulate.scene import Scene, SceneConfig, build_scene
from perception.simulate.sensor import RayGrid, SensorModel
from perception.simulate.traffic import SceneObject
from perception.simulate.view import RayHits, SceneView
from perception.types import Boxes3D, PointCloud


class SweepMotion(NamedTuple):
    """Motion of the robot during one turn, which skews the points like those of a real sensor.

    Attributes:
        speed_m_s: along the sensor's x axis.
        yaw_rate_rad_s: counter-clockwise.
    """

    speed_m_s: float = 0.0
    yaw_rate_rad_s: float = 0.0


@dataclass(frozen=True, eq=False)
class SimulatedScan:
    """A scan with its full ground truth.

    Attributes:
        cloud: points in the LiDAR frame, beam by beam from the top.
        boxes: tight boxes of the objects in range, LiDAR frame.
        point_counts: (M,) int64, points on each object.
        occlusion: (M,) float32, blocked share of the object's rays; 1 if no ray meets it.
        occlusion_level: (M,) int32 as in KITTI: 0 fully visible, 1 partly, 2 largely occluded, 3 not visible.
        track_ids: (M,) int64, constant for an object in all scans of a scene.
        world_from_lidar: (4, 4) float64 pose of the sensor (at azimuth 0 if it moves during the turn).
        point_object: (N,) int32 row of ``boxes`` for each point, -1 for scenery.
    """

    cloud: PointCloud
    boxes: Boxes3D
    point_counts: npt.NDArray[np.int64]
    occlusion: FloatArray
    occlusion_level: IntArray
    track_ids: npt.NDArray[np.int64]
    world_from_lidar: npt.NDArray[np.float64]
    point_object: IntArray


class Scanner:
    """A sensor in a scene; the scenery is indexed once and scanned from any number of poses.

    Args:
        scene: the scene.
        sensor: the sensor model.

    Raises:
        ImportError: Open3D is missing.
    """

    def __init__(self, scene: Scene, sensor: SensorModel) -> None:
        self.scene = scene
        self.sensor = sensor
        self._static = RayCaster(scene.static)

    def scan(
        self,
        world_from_lidar: npt.NDArray[np.float64],
        *,
        seed: int | np.random.SeedSequence,
        time_s: float = 0.0,
        motion: SweepMotion | None = None,
        source: str | None = None,
    ) -> SimulatedScan:
        """Scan from one pose.

        Args:
            world_from_lidar: (4, 4) pose of the sensor.
            seed: of jitter, noise and lost returns.
            time_s: time since the start of the scene, which moves the objects.
            motion: sensor motion during the turn; by default none.
            source: copied to the cloud.
        """
        rng = np.random.default_rng(seed)
        objects, poses = self._objects_in_range(world_from_lidar, time_s)
        meshes = [item.mesh.transformed(pose) for item, pose in zip(objects, poses, strict=True)]
        grid = self.sensor.rays(rng)
        rays = _world_rays(grid, world_from_lidar, self.sensor, motion)
        view = SceneView(self.scene, self._static, meshes)
        first = view.look(rays)
        cloud, point_object = self._points(grid, view.look_through(rays, first, rng), rng)
        boxes = object_boxes(meshes, poses, world_from_lidar)
        occlusion = np.array(
            [hidden_share(k, mesh, boxes[k], grid, rays, first.owner) for k, mesh in enumerate(meshes)],
            np.float32,
        )
        return SimulatedScan(
            cloud=PointCloud(cloud, timestamp_ns=round(time_s * 1e9), source=source),
            boxes=Boxes3D(boxes, [item.label for item in objects]),
            point_counts=np.bincount(point_object[point_object >= 0], minlength=len(objects)),
            occlusion=occlusion,
            occlusion_level=occlusion_level(occlusion),
            track_ids=np.array([item.track_id for item in objects], np.int64),
            world_from_lidar=np.array(world_from_lidar, np.float64),
            point_object=point_object,
        )

    def _objects_in_range(
        self, world_from_lidar: npt.NDArray[np.float64], time_s: float
    ) -> tuple[list[SceneObject], list[npt.NDArray[np.float64]]]:
        """Return objects in range and their 4x4 world_from_object poses."""
        near, poses = [], []
        for item in self.scene.objects:
            pose = item.world_from_object(self.scene.ground, time_s)
            if np.linalg.norm(pose[:3, 3] - world_from_lidar[:3, 3]) < self.sensor.range_max_m:
                near.append(item)
                poses.append(pose)
        return near, poses

    def _points(self, grid: RayGrid, seen: RayHits, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
        """Return (N, 4) returned points, and the (N,) rows of their objects."""
        hit = np.flatnonzero(np.isfinite(seen.distance_m))
        gain = np.repeat(grid.gain, len(grid.azimuth_rad))[hit]
        returns = self.sensor.measure(
            seen.distance_m[hit],
            seen.incidence_cosine[hit],
            seen.materials[hit],
            seen.reflectivity[hit],
            gain,
            rng,
        )
        kept = hit[returns.kept]
        xyz = grid.directions[kept] * returns.range_m[returns.kept, None]
        points = np.concatenate([xyz, returns.intensity[returns.kept, None]], axis=1)
        return points.astype(np.float32), seen.owner[kept]


def simulate_scan(
    seed: int, *, scene: SceneConfig | None = None, sensor: SensorModel | None = None
) -> SimulatedScan:
    """Simulate one scan of a random scene.

    Args:
        seed: the same seed, scene and sensor give the same scan, bit by bit.
        scene: settings of the scene; by default a mixed neighbourhood.
        sensor: by default a 64-beam sensor.

    Raises:
        ImportError: Open3D is missing.
    """
    config = SceneConfig() if scene is None else scene
    model = SensorModel.preset("64") if sensor is None else sensor
    place = build_scene(seed, config)
    tilt_deg = config.tilt_deg * np.random.default_rng([seed, 1]).standard_normal(2)
    pitch, roll = np.radians([config.pitch_deg + tilt_deg[0], tilt_deg[1]])
    pose = place.world_from_lidar(place.start, model.height_m, pitch_rad=pitch, roll_rad=roll)
    noise = np.random.SeedSequence([seed, 2])
    return Scanner(place, model).scan(
        pose, seed=noise, source=f"simulated {model.name}-beam scan, seed {seed}"
    )


def _world_rays(
    grid: RayGrid,
    world_from_lidar: npt.NDArray[np.float64],
    sensor: SensorModel,
    motion: SweepMotion | None,
) -> FloatArray:
    """Return (beams * columns, 6) float32 rays in world coordinates."""
    directions = grid.directions.astype(np.float64)
    origins = np.zeros_like(directions)
    if motion is not None:
        time_s = np.tile(grid.sweep_fraction / sensor.rate_hz, sensor.beams)
        yaw = motion.yaw_rate_rad_s * time_s
        cosine, sine = np.cos(yaw), np.sin(yaw)
        x, y = directions[:, 0].copy(), directions[:, 1].copy()
        directions[:, 0], directions[:, 1] = cosine * x - sine * y, sine * x + cosine * y
        origins[:, 0] = motion.speed_m_s * time_s
    rotation, position = world_from_lidar[:3, :3], world_from_lidar[:3, 3]
    rays = np.concatenate([origins @ rotation.T + position, directions @ rotation.T], axis=1)
    return rays.astype(np.float32)
