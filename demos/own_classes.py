"""Write scans of a simulated warehouse with labelled pallets and forklifts, to try training on own data.

    python demos/own_classes.py --out OUT --frames 20
    perceive init OUT

A 32-beam sensor stands 2.1 m above the floor of a hall. Scans imitate a driver's format: float32 x, y, z,
intensity (0 to 255) and ring, in millimetres, x to the right and y forward. Labels are those of
SUSTechPOINTS, in the same unit and axes. Needs Open3D (extra `simulate`).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perception.io.transform import ScanTransform
from perception.simulate.annotation import tight_box
from perception.simulate.mesh import Mesh, box, cylinder, merge_meshes
from perception.simulate.raycast import RayCaster
from perception.simulate.sensor import SensorModel
from perception.simulate.surface import Material
from sparse_core.common.commands import reported_file_errors
from sparse_core.common.files import write_file

SENSOR_HEIGHT_M = 2.1
HALL_M = (24.0, 16.0, 7.0)
#: Conversion of the scans to metres, x forward, y left.
DRIVER = ScanTransform(scale=0.001, axes="y,-x,z")
_LEAST_POINTS = 5


class WarehouseObject(NamedTuple):
    """A labelled object: class, mesh on the floor with x forward, position and heading."""

    label: str
    mesh: Mesh
    x_m: float
    y_m: float
    yaw_rad: float

    @property
    def placed(self) -> Mesh:
        """The mesh in the sensor frame."""
        return self.mesh.moved(self.x_m, self.y_m, -SENSOR_HEIGHT_M, yaw_rad=self.yaw_rad)


def pallet(random: np.random.Generator) -> Mesh:
    """Return a euro pallet, 1.2 m x 0.8 m, empty or loaded."""
    boards = [box((0, 0, z), (1.2, 0.8, 0.022), Material.WOOD) for z in (0.011, 0.133)]
    blocks = [
        box((x, y, 0.072), (0.145, 0.1, 0.1), Material.WOOD)
        for x in (-0.52, 0, 0.52)
        for y in (-0.35, 0, 0.35)
    ]
    height = float(random.uniform(0.3, 1.1))
    load = box(
        (0, 0, 0.144 + height / 2), (1.16, 0.76, height), Material.CLOTH, float(random.uniform(0.2, 0.6))
    )
    return merge_meshes([*boards, *blocks, load] if random.random() < 0.8 else [*boards, *blocks])


def forklift(random: np.random.Generator) -> Mesh:
    """Return a counterbalanced truck of 3.2 m: body, mast, forks, roof on four posts, wheels."""
    paint = float(random.uniform(0.15, 0.45))
    parts = [
        box((-0.55, 0, 0.65), (1.7, 1.1, 0.9), Material.PAINT, paint),
        box((-1.25, 0, 0.8), (0.3, 1.0, 1.2), Material.PAINT, paint * 0.6),
        box((-0.45, 0, 2.1), (1.1, 0.95, 0.06), Material.METAL),
        box((0.4, 0.35, 1.15), (0.12, 0.1, 2.3), Material.METAL),
        box((0.4, -0.35, 1.15), (0.12, 0.1, 2.3), Material.METAL),
        box((0.52, 0, 0.5), (0.06, 0.9, 0.5), Material.METAL),
    ]
    parts += [box((1.1, y, 0.12), (1.15, 0.12, 0.05), Material.METAL) for y in (-0.25, 0.25)]
    parts += [
        box((x, y, 1.6), (0.06, 0.06, 1.0), Material.METAL) for x in (-0.95, 0.05) for y in (-0.43, 0.43)
    ]
    for x in (-1.0, 0.1):
        parts.append(cylinder((x, -0.55, 0.27), (x, 0.55, 0.27), 0.27, Material.RUBBER, sides=12))
    return merge_meshes(parts)


def hall(random: np.random.Generator) -> Mesh:
    """Return floor, walls, ceiling, columns and a row of shelves, in the sensor frame."""
    length, width, height = HALL_M
    middle = height / 2 - SENSOR_HEIGHT_M
    parts = [
        box((0, 0, -SENSOR_HEIGHT_M - 0.05), (2 * length, 2 * width, 0.1), Material.ASPHALT),
        box((0, 0, height - SENSOR_HEIGHT_M), (2 * length, 2 * width, 0.1), Material.METAL),
    ]
    parts += [box((0, side * width, middle), (2 * length, 0.2, height), Material.MASONRY) for side in (-1, 1)]
    parts += [box((side * length, 0, middle), (0.2, 2 * width, height), Material.MASONRY) for side in (-1, 1)]
    parts += [
        box((x, y, middle), (0.4, 0.4, height), Material.MASONRY) for x in (-12, 0, 12) for y in (-8.5, 8.5)
    ]
    for x in np.arange(-20, 21, 2.5):
        parts.append(
            box(
                (x, -14.5, 0.9 - SENSOR_HEIGHT_M), (2.2, 1.0, float(random.uniform(0.6, 1.8))), Material.CLOTH
            )
        )
    return merge_meshes(parts)


def warehouse_objects(random: np.random.Generator, moved_m: float) -> list[WarehouseObject]:
    """Return pallets and forklifts that do not touch; forklifts have moved forward by ``moved_m``."""
    found: list[WarehouseObject] = []
    for label in ["forklift"] * 3 + ["pallet"] * 8:
        for _ in range(50):
            x, y = random.uniform([-18, -11], [18, 11])
            if np.hypot(x, y) < 3 or any(np.hypot(x - it.x_m, y - it.y_m) < 3.6 for it in found):
                continue
            yaw = float(random.uniform(-np.pi, np.pi))
            mesh = forklift(random) if label == "forklift" else pallet(random)
            step = moved_m if label == "forklift" else 0.0
            x, y = float(x + step * np.cos(yaw)), float(y + step * np.sin(yaw))
            found.append(WarehouseObject(label, mesh, x, y, yaw))
            break
    return found


def scan(hall_seed: int, moved_m: float, noise_seed: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Simulate one sensor turn.

    Returns:
        (N, 5) float32 x, y, z in metres in the LiDAR frame, intensity in [0, 1], ring; (M, 7) float32 boxes
        with at least five points; M labels.
    """
    random = np.random.default_rng(hall_seed)
    scenery, objects = hall(random), warehouse_objects(random, moved_m)
    meshes = [scenery, *(item.placed for item in objects)]
    whole = merge_meshes(meshes)
    owner = np.repeat(np.arange(-1, len(objects)), [len(mesh) for mesh in meshes])
    noise = np.random.default_rng(noise_seed)
    sensor = replace(SensorModel.preset("32"), range_min_m=1.0, range_max_m=60.0, azimuth_step_deg=0.4)
    grid = sensor.rays(noise)
    rays = np.concatenate([np.zeros_like(grid.directions), grid.directions], axis=1)
    hits = RayCaster(whole, threads=1).cast(rays)
    rows = np.flatnonzero(hits.triangle >= 0)
    triangles = hits.triangle[rows]
    cosine = np.abs((hits.normal[rows] * grid.directions[rows]).sum(axis=1)).astype(np.float32)
    columns = len(grid.azimuth_rad)
    seen = sensor.measure(
        hits.distance_m[rows],
        cosine,
        whole.materials[triangles],
        whole.reflectivity[triangles],
        grid.gain[rows // columns],
        noise,
    )
    kept = rows[seen.kept]
    xyz = grid.directions[kept] * seen.range_m[seen.kept, None]
    ring = (sensor.beams - 1 - kept // columns).astype(np.float32)
    points = np.column_stack([xyz, seen.intensity[seen.kept], ring]).astype(np.float32)
    counts = np.bincount(owner[triangles][seen.kept] + 1, minlength=len(objects) + 1)[1:]
    shown = [row for row, count in enumerate(counts) if count >= _LEAST_POINTS]
    boxes = [tight_box(objects[row].placed.vertices, objects[row].yaw_rad) for row in shown]
    return points, np.array(boxes, np.float32).reshape(-1, 7), [objects[row].label for row in shown]


def write_frame(root: Path, frame_id: str, points: np.ndarray, boxes: np.ndarray, labels: list[str]) -> None:
    """Write a scan and its labels in the formats of the driver and of SUSTechPOINTS."""
    own_from_lidar = np.linalg.inv(DRIVER.matrix)
    driven = points.copy()
    driven[:, :3] = points[:, :3] @ own_from_lidar.T
    driven[:, 3] = np.round(255 * points[:, 3])
    write_file(root / "lidar" / f"{frame_id}.bin", driven.astype("<f4").tobytes(), durable=False)
    objects = []
    for number, (item, label) in enumerate(zip(boxes, labels, strict=True)):
        ahead = own_from_lidar @ [np.cos(item[6]), np.sin(item[6]), 0]
        place, size = own_from_lidar @ item[:3], item[3:6] / DRIVER.scale
        psr = {
            "position": dict(zip("xyz", map(float, place), strict=True)),
            "scale": dict(zip("xyz", map(float, size), strict=True)),
            "rotation": {"x": 0.0, "y": 0.0, "z": float(np.arctan2(ahead[1], ahead[0]))},
        }
        objects.append({"obj_id": str(number), "obj_type": label, "psr": psr})
    write_file(root / "label" / f"{frame_id}.json", json.dumps(objects), durable=False)


def write_warehouse(root: Path, frames: int, seed: int = 0) -> None:
    """Write scans and labels: four scans of each hall, half a second apart."""
    for name in ("lidar", "label"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for frame in range(frames):
        points, boxes, labels = scan(seed + frame // 4, 0.5 * (frame % 4), 1000 + seed + frame)
        write_frame(root, f"{frame:06d}", points, boxes, labels)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, help="folder to write")
    parser.add_argument("--frames", type=int, default=20, help="number of scans (20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first hall (0)")
    options = parser.parse_args()
    write_warehouse(options.out, options.frames, options.seed)
    print(f"{options.frames} scans in {options.out}")


if __name__ == "__main__":
    with reported_file_errors("own_classes"):
        main()
