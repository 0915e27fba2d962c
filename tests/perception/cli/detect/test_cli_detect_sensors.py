"""``perceive detect --sensors``: two LiDARs of one robot in a simulated street."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from perception.io import save_point_cloud
from perception.simulate import Scanner, SceneConfig, SensorModel, build_scene

Perceive = Callable[..., Any]
STEP_S = 0.1
#: The rear sensor is late by so much, and the robot drives so fast.
LATE_S, SPEED_M_S = 0.04, 10.0


def extrinsic(x: float, yaw_deg: float) -> np.ndarray:
    made = np.eye(4)
    yaw = np.radians(yaw_deg)
    made[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
    made[0, 3] = x
    return made


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scans to the front and to the rear, rig.yaml and poses.txt."""
    pytest.importorskip("open3d", reason="simulation needs Open3D")
    folder = tmp_path_factory.mktemp("drive")
    scene = build_scene(22, SceneConfig())
    model = SensorModel.preset("64", azimuth_deg=(-90.0, 90.0))
    scanner = Scanner(scene, model)
    mounted = {"front": extrinsic(0.5, 0.0), "rear": extrinsic(-0.5, 180.0)}
    poses = []
    for k in range(2):
        for name, late in (("front", 0.0), ("rear", LATE_S)):
            time_s = k * STEP_S + late
            spot = scene.start._replace(u=scene.start.u + 30.0 + SPEED_M_S * time_s, heading_rad=0.0)
            world_from_robot = scene.world_from_lidar(spot, model.height_m)
            turn = np.sqrt(1 + np.trace(world_from_robot[:3, :3])) / 2
            skew = world_from_robot[:3, :3] - world_from_robot[:3, :3].T
            qx, qy, qz = np.array([skew[2, 1], skew[0, 2], skew[1, 0]]) / (4 * turn)
            numbers = [*world_from_robot[:3, 3], qx, qy, qz, turn]
            poses.append(f"{1_000_000_000 + time_s:.6f} " + " ".join(f"{number:.9f}" for number in numbers))
            scan = scanner.scan(world_from_robot @ mounted[name], seed=k, time_s=time_s)
            (folder / name).mkdir(exist_ok=True)
            save_point_cloud(folder / name / f"{1_000_000_000 + time_s:.6f}.bin", scan.cloud)
    (folder / "poses.txt").write_text("\n".join(poses))
    sensors = {
        name: {"scans": f"{name}/*.bin", "extrinsic": matrix.tolist()} for name, matrix in mounted.items()
    }
    for chosen in (["front"], ["rear"], ["front", "rear"]):
        rig = {"sensors": {name: sensors[name] for name in chosen}}
        (folder / f"{'-'.join(chosen)}.yaml").write_text(yaml.safe_dump(rig, sort_keys=False))
    return folder


@pytest.mark.slow
def test_merged_detections_are_those_of_each_sensor(perceive: Perceive, drive: Path, tmp_path: Path) -> None:
    """What one sensor alone is sure of is found in the merged scan, at the place where it is then."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("front", "rear", "front-rear"):
        options = ("--sensors", drive / f"{name}.yaml", "--poses", drive / "poses.txt", "--range", "none")
        done = perceive("detect", drive, *options, "--out", tmp_path / name, "--no-pictures")
        assert done.status == 0, done.remarks
        lines = (tmp_path / name / "detections.jsonl").read_text().splitlines()
        found[name] = [json.loads(line) for line in lines]
    assert [record["frame"] for record in found["front-rear"]] == ["1000000000.000000", "1000000000.100000"]
    sure = {"front": 0, "rear": 0}
    for k, together in enumerate(found["front-rear"]):
        for name in sure:
            alone = found[name][k]
            here = np.linalg.inv(_pose(together)) @ _pose(alone)
            for box, score in zip(alone["boxes"], alone["scores"], strict=True):
                # Beside the robot each sensor sees only half of an object.
                if score < 0.6 or abs(box[0]) < 5:
                    continue
                sure[name] += 1
                place = (here @ [*box[:3], 1.0])[:2]
                near = np.linalg.norm(np.array(together["boxes"])[:, :2] - place, axis=1)
                assert near.min() < 0.5, (name, k, box, score)
    assert min(sure.values()) >= 3, sure


def _pose(record: dict[str, Any]) -> np.ndarray:
    return np.vstack([record["pose"]["map_from_lidar"], [0, 0, 0, 1]])


def test_a_merged_scan_is_detected_and_options_are_in_the_description(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    """A sensor and its copy, turned: half of the points each; a wrong file is an error before anything."""
    turned = {"scans": "scans", "extrinsic": {"rpy_deg": [0, 0, 180]}}
    rig = {"sensors": {"ahead": {"scans": "scans", "extrinsic": {}}, "behind": turned}}
    (tmp_path / "rig.yaml").write_text(yaml.safe_dump(rig, sort_keys=False))
    options = ("detect", scans.parent, "--sensors", tmp_path / "rig.yaml", "--weights", tiny_weights)
    more = ("--out", tmp_path / "out", "--no-pictures", "--score", 0.0)
    done = perceive(*options, *more)
    assert done.status == 0
    lines = [json.loads(line) for line in (tmp_path / "out/detections.jsonl").read_text().splitlines()]
    assert [line["frame"] for line in lines] == ["street0", "street1", "street2"]
    alone = perceive("detect", scans, "--weights", tiny_weights, "--json", "--score", 0.0)
    # What lies behind is out of the range of these weights.
    assert [line["boxes"] for line in lines] == [
        json.loads(line)["boxes"] for line in alone.output.splitlines()
    ]
    for wrong in (("--topic", "/a"), ("--axes", "y,-x,z"), ("--columns", "5")):
        done = perceive(*options, *more, "--overwrite", *wrong)
        assert done.status == 2
        assert "topics, columns, unit and axes" in done.remarks
    assert perceive(*options[:2], "--sensors", tmp_path / "none.yaml", *more, "--overwrite").status == 2


def test_a_rear_sensor_alone_looks_backward_without_a_warning(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    turned = {"scans": "scans", "extrinsic": {"rpy_deg": [0, 0, 180]}}
    (tmp_path / "rig.yaml").write_text(yaml.safe_dump({"sensors": {"rear": turned}}))
    given = ("detect", scans.parent, "--sensors", tmp_path / "rig.yaml", "--weights", tiny_weights)
    done = perceive(*given, "--json", "--score", 0.0, "--range=-16,-8,-3,16,8,1")
    assert done.status == 0, done.remarks
    records = [json.loads(line) for line in done.output.splitlines()]
    assert len(records) == 3
    assert not any("point forward" in text for record in records for text in record["warnings"])
