"""A small folder in the layout of DAIR-V2X: two frames of each side, one pair, and odd files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from perception import PointCloud
from perception.boxes import box_corners_3d
from perception.io import save_point_cloud

#: Camera that looks along x, with the principal point in the middle of 1920 x 1080 pixels.
FOCAL_PX, MIDDLE_PX = 1000.0, (960.0, 540.0)
CAMERA_FROM_LIDAR = np.array([[0.0, -1, 0, 0], [0, 0, -1, 0], [1, 0, 0, 0]])
#: Vehicle and roadside post in the world, and the error of the post's position.
VEHICLE_YAW_RAD, VEHICLE_AT = 0.5, (3400.0, 2100.0, 20.0)
ROADSIDE_YAW_RAD, ROADSIDE_AT = 2.5, (3430.0, 2120.0, 20.3)
OFFSET_M = (0.66, 0.5)
#: A car ahead, a van outside the picture, and a car ahead of the post, each in the frame of its own LiDAR.
CAR = (20.0, 2.0, -1.2, 4.2, 1.8, 1.5, 0.3)
VAN_BESIDE = (2.0, 15.0, -1.0, 4.8, 2.0, 2.0, 1.0)
CAR_OF_POST = (25.0, -3.0, -0.9, 4.3, 1.8, 1.6, -2.0)


def matrix(yaw_rad: float, at: tuple[float, float, float]) -> np.ndarray:
    """(4, 4) of a turn about z and a shift."""
    made = np.eye(4)
    made[:2, :2] = [[np.cos(yaw_rad), -np.sin(yaw_rad)], [np.sin(yaw_rad), np.cos(yaw_rad)]]
    made[:3, 3] = at
    return made


def transform(values: np.ndarray, **more: Any) -> dict[str, Any]:
    """A transform as the files hold it; the translation is a column."""
    return {"rotation": values[:3, :3].tolist(), "translation": values[:3, 3:].tolist(), **more}


def label(name: str, box: tuple[float, ...], *, text: bool = False) -> dict[str, Any]:
    """A label; the roadside writes some numbers as text."""
    number = (lambda value: f"{value:.6f}") if text else float
    return {
        "type": name,
        "occluded_state": "0" if text else 0,
        "2d_box": {"xmin": 1, "ymin": 1, "xmax": 2, "ymax": 2},
        "3d_dimensions": {key: number(value) for key, value in zip("lwh", box[3:6], strict=True)},
        "3d_location": {key: number(value) for key, value in zip("xyz", box[:3], strict=True)},
        "rotation": number(box[6]),
    }


def world_label(
    name: str, box: tuple[float, ...], world_from_lidar: np.ndarray, *, backwards: bool, told: float | None
) -> dict[str, Any]:
    """A joint label of a box in a LiDAR frame; corner 0 is ahead of corner 3 unless backwards."""
    corners = ordered_corners(box, backwards=backwards)
    made = label(name, box, text=True)
    place = (world_from_lidar @ [*box[:3], 1.0])[:3]
    made["3d_location"] = dict(zip("xyz", place.tolist(), strict=True))
    made["world_8_points"] = (corners @ world_from_lidar[:3, :3].T + world_from_lidar[:3, 3]).tolist()
    del made["rotation"]
    return made if told is None else {**made, "rotation": told}


def ordered_corners(box: tuple[float, ...], *, backwards: bool) -> np.ndarray:
    """(8, 3): lower corners 0 to 3, then upper; edge 3 to 0 runs along the length."""
    ahead = np.array([np.cos(box[6]), np.sin(box[6]), 0.0]) * box[3] / 2
    left = np.array([-np.sin(box[6]), np.cos(box[6]), 0.0]) * box[4] / 2
    up = np.array([0.0, 0.0, box[5] / 2])
    ahead = -ahead if backwards else ahead
    ring = [ahead + left, ahead - left, -ahead - left, -ahead + left]
    made = np.array([*(corner - up for corner in ring), *(corner + up for corner in ring)]) + box[:3]
    same = np.sort(made.round(4), axis=0) == np.sort(box_corners_3d(np.array([box]))[0].round(4), axis=0)
    assert same.all()
    return made


def write(path: Path, told: Any) -> None:
    """Write JSON, and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told))


def points_of(box: tuple[float, ...], seed: int) -> np.ndarray:
    """(N, 4) float32: ground all around, and points in a box."""
    random = np.random.default_rng(seed)
    ground = np.column_stack([random.uniform(-40, 40, (3000, 2)), np.full(3000, -2.1), np.zeros(3000)])
    local = random.uniform(-0.5, 0.5, (200, 3)) * box[3:6]
    inside = local @ matrix(box[6], (0, 0, 0))[:3, :3].T + box[:3]
    return np.vstack([ground, np.column_stack([inside, np.full(200, 0.5)])]).astype(np.float32)


def dair_folder(root: Path) -> Path:
    """Write both sides and the pairs."""
    _side(root / "vehicle-side", "lidar", ["000100", "000101"], CAR)
    _side(root / "infrastructure-side", "virtuallidar", ["000007", "000008"], CAR_OF_POST)
    for name in ("000100", "000101"):
        calib = root / "vehicle-side" / "calib"
        vehicle = matrix(VEHICLE_YAW_RAD, VEHICLE_AT)
        write(calib / "novatel_to_world" / f"{name}.json", transform(vehicle @ np.linalg.inv(_MOUNT)))
        write(calib / "lidar_to_novatel" / f"{name}.json", {"transform": transform(_MOUNT)})
        van, empty = label("Van", VAN_BESIDE), label("Car", (0.0,) * 6 + (1.0,))
        labels = [label("Car", CAR), van, empty]
        write(root / "vehicle-side" / "label" / "lidar" / f"{name}.json", labels)
        # Boxes that were drawn in the picture differ, and must not be read.
        write(root / "vehicle-side" / "label" / "camera" / f"{name}.json", [label("Car", VAN_BESIDE)])
    for name in ("000007", "000008"):
        calib = root / "infrastructure-side" / "calib"
        wrong = matrix(ROADSIDE_YAW_RAD, ROADSIDE_AT)
        wrong[:2, 3] -= OFFSET_M
        told = transform(wrong, relative_error={"delta_x": "", "delta_y": ""})
        write(calib / "virtuallidar_to_world" / f"{name}.json", told)
        labels = [label("Car", CAR_OF_POST, text=True)]
        write(root / "infrastructure-side" / "label" / "virtuallidar" / f"{name}.json", labels)
    pair = {
        "infrastructure_pointcloud_path": "infrastructure-side/velodyne/000007.pcd",
        "vehicle_pointcloud_path": "vehicle-side/velodyne/000100.pcd",
        "cooperative_label_path": "cooperative/label_world/000100.json",
        "system_error_offset": {"delta_x": OFFSET_M[0], "delta_y": OFFSET_M[1]},
    }
    write(root / "cooperative" / "data_info.json", [pair])
    write(root / "cooperative" / "label_world" / "000100.json", _world_labels())
    return root


#: Pose of the vehicle's LiDAR in the vehicle.
_MOUNT = matrix(1.57, (0.1, 0.2, 0.3))


def _world_labels() -> list[dict[str, Any]]:
    """The joint labels: the yaw of the second is of the vehicle's LiDAR, the first has none."""
    vehicle, post = matrix(VEHICLE_YAW_RAD, VEHICLE_AT), matrix(ROADSIDE_YAW_RAD, ROADSIDE_AT)
    return [
        world_label("car", CAR_OF_POST, post, backwards=True, told=None),
        world_label("car", CAR, vehicle, backwards=False, told=CAR[6]),
        world_label("van", VAN_BESIDE, vehicle, backwards=True, told=VAN_BESIDE[6]),
    ]


def _side(folder: Path, lidar: str, names: list[str], box: tuple[float, ...]) -> None:
    (folder / "velodyne").mkdir(parents=True)
    rows = []
    for number, name in enumerate(names):
        save_point_cloud(folder / "velodyne" / f"{name}.pcd", PointCloud(points_of(box, number)))
        write(
            folder / "calib" / f"{lidar}_to_camera" / f"{name}.json",
            transform(np.vstack([CAMERA_FROM_LIDAR, [0, 0, 0, 1]])),
        )
        intrinsics = [FOCAL_PX, 0.0, MIDDLE_PX[0], 0.0, FOCAL_PX, MIDDLE_PX[1], 0.0, 0.0, 1.0]
        write(folder / "calib" / "camera_intrinsic" / f"{name}.json", {"cam_K": intrinsics})
        time_us = 1_626_240_238_805_763 + number
        rows.append({"pointcloud_path": f"velodyne/{name}.pcd", "pointcloud_timestamp": str(time_us)})
    write(folder / "data_info.json", rows)
