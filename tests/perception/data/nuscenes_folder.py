"""A small folder as nuScenes lays it out: two scenes of three key frames, sweeps between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

#: Of the sensor: axes x right and y forward on a vehicle with x forward, two degrees off level.
MOUNT = Rotation.from_euler("zyx", [-90.0, 0.0, 2.0], degrees=True)
MOUNT_AT = np.array([0.9, 0.0, 1.84])
SCENES = ("scene-0061", "scene-0103")
KEYS, SWEEPS, STEP_US = 3, 2, 50_000
PARKED = np.array([30.0, 5.0, 0.8])


def quaternion(turn: Rotation) -> list[float]:
    """w, x, y, z."""
    x, y, z, w = turn.as_quat()
    return [float(value) for value in (w, x, y, z)]


def ego(scene: int, step: int) -> tuple[Rotation, np.ndarray]:
    """Where the vehicle is at a scan: driving along a curve."""
    turn = Rotation.from_euler("z", 10.0 * scene + 1.5 * step, degrees=True)
    return turn, np.array([100.0 * scene + 0.4 * step, 3.0 * scene, 0.0])


def sensor_points(scene: int, step: int, count: int = 40) -> np.ndarray:
    """(N, 5) rows of a file: x, y, z in the sensor's axes, intensity, ring; first the parked car's centre."""
    generator = np.random.default_rng([scene, step])
    rows = np.column_stack(
        [
            generator.normal(0, 20, (count, 3)),
            generator.integers(0, 256, count),
            generator.integers(0, 32, count),
        ]
    )
    turn, place = ego(scene, step)
    rows[0, :3] = MOUNT.inv().apply(turn.inv().apply(parked(scene) - place) - MOUNT_AT)
    return rows.astype(np.float32)


def parked(scene: int) -> np.ndarray:
    """Centre of the parked car, global frame."""
    return PARKED + np.array([100.0 * scene, 0, 0])


def moving(scene: int, key: int) -> np.ndarray:
    """Centre of the bicycle, global frame; 4 m/s along y."""
    return np.array([100.0 * scene + 10, -5 + 4 * key * (SWEEPS + 1) * STEP_US * 1e-6, 0.9])


def write_nuscenes(root: Path, version: str = "v1.0-mini") -> Path:
    """Write it and give the folder."""
    tables: dict[str, list[dict[str, Any]]] = {
        "sensor": [
            {"token": "lidar", "channel": "LIDAR_TOP", "modality": "lidar"},
            {"token": "radar", "channel": "RADAR_FRONT", "modality": "radar"},
            {"token": "camera", "channel": "CAM_FRONT", "modality": "camera"},
        ],
        "calibrated_sensor": [
            {
                "token": "m-lidar", "sensor_token": "lidar", "translation": MOUNT_AT.tolist(),
                "rotation": quaternion(MOUNT), "camera_intrinsic": [],
            },
            {
                "token": "m-radar", "sensor_token": "radar", "translation": [3.0, 0.0, 0.5],
                "rotation": [1.0, 0.0, 0.0, 0.0], "camera_intrinsic": [],
            },
            {
                "token": "m-camera", "sensor_token": "camera", "translation": [1.7, 0.0, 1.5],
                "rotation": [0.5, -0.5, 0.5, -0.5],
                "camera_intrinsic": [[1000.0, 0, 800], [0, 1000, 450], [0, 0, 1]],
            },
        ],
        "category": [
            {"token": "c-car", "name": "vehicle.car"},
            {"token": "c-bicycle", "name": "vehicle.bicycle"},
            {"token": "c-rack", "name": "static_object.bicycle_rack"},
        ],
        "attribute": [
            {"token": "a-parked", "name": "vehicle.parked"},
            {"token": "a-rider", "name": "cycle.with_rider"},
        ],
        "scene": [], "sample": [], "sample_data": [], "ego_pose": [], "instance": [], "sample_annotation": [],
    }  # fmt: skip
    for scene, name in enumerate(SCENES):
        _write_scene(root, tables, scene, name)
    folder = root / version
    folder.mkdir(parents=True)
    for table, records in tables.items():
        (folder / f"{table}.json").write_text(json.dumps(records))
    return root


def _write_scene(root: Path, tables: dict[str, list[dict[str, Any]]], scene: int, name: str) -> None:
    tables["scene"].append({"token": f"s{scene}", "name": name})
    things = (("car", "c-car"), ("bicycle", "c-bicycle"), ("rack", "c-rack"))
    tables["instance"] += [{"token": f"i{scene}-{thing}", "category_token": kind} for thing, kind in things]
    before = ""
    for step in range((KEYS - 1) * (SWEEPS + 1) + 1):
        key, is_key = step // (SWEEPS + 1), step % (SWEEPS + 1) == 0
        time_us = 1_535_000_000_000_000 + scene * 10**9 + step * STEP_US
        turn, place = ego(scene, step)
        token = f"d{scene}-{step}"
        tables["ego_pose"].append(
            {"token": token, "translation": place.tolist(), "rotation": quaternion(turn)}
        )
        folder = "samples" if is_key else "sweeps"
        file = f"{folder}/LIDAR_TOP/n00{scene}__LIDAR_TOP__{time_us}.pcd.bin"
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        sensor_points(scene, step).astype("<f4").tofile(root / file)
        shared = {"sample_token": f"k{scene}-{key}", "ego_pose_token": token, "timestamp": time_us}
        tables["sample_data"].append(
            shared
            | {
                "token": token,
                "calibrated_sensor_token": "m-lidar",
                "is_key_frame": is_key,
                "filename": file,
                "prev": before,
            }
        )
        before = token
        if not is_key:
            continue
        other = {"is_key_frame": True, "prev": ""}
        for sensor in ("radar", "camera"):
            tables["sample_data"].append(
                shared
                | other
                | {
                    "token": f"{sensor}{scene}-{key}",
                    "calibrated_sensor_token": f"m-{sensor}",
                    "filename": f"samples/{sensor}/{scene}-{key}.jpg",
                }
            )
        tables["sample"].append(
            {"token": f"k{scene}-{key}", "scene_token": f"s{scene}", "timestamp": time_us}
        )
        for thing, centre, heading, attribute in (
            ("car", parked(scene), 0.3, ["a-parked"]),
            ("bicycle", moving(scene, key), 1.5, ["a-rider"]),
            ("rack", np.array([100.0 * scene, 9, 0.5]), 0.0, []),
        ):
            tables["sample_annotation"].append(
                {
                    "token": f"l{scene}-{key}-{thing}",
                    "sample_token": f"k{scene}-{key}",
                    "instance_token": f"i{scene}-{thing}",
                    "translation": centre.tolist(),
                    "size": [1.8, 4.4, 1.6],
                    "rotation": quaternion(Rotation.from_euler("z", heading)),
                    "prev": f"l{scene}-{key - 1}-{thing}" if key else "",
                    "next": f"l{scene}-{key + 1}-{thing}" if key < KEYS - 1 else "",
                    "attribute_tokens": attribute,
                    "num_lidar_pts": 1 if thing == "car" else 0,
                    "num_radar_pts": 0,
                }
            )
