"""A small scene of pallets and forklifts, and folders of it with the labels of every tool; for tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from perception import PointCloud
from perception.io import save_point_cloud

NAMES = ["pallet", "forklift", "pallet"]
#: x, y, z, length, width, height, yaw in the LiDAR frame.
BOXES = np.array(
    [
        [5.0, 1.0, -1.4, 1.2, 0.8, 0.6, 0.3],
        [9.0, -3.0, -0.6, 2.4, 1.2, 2.1, -2.5],
        [12.5, 4.25, -1.4, 1.25, 0.75, 0.5, 1.75],
    ]
)

WriteLabels = Callable[[Path, str, np.ndarray, list[str]], None]


def _xyz(values: Any, keys: str = "xyz") -> dict[str, float]:
    return {key: float(value) for key, value in zip(keys, values, strict=True)}


def write_json(path: Path, frame_id: str, boxes: np.ndarray, names: list[str]) -> None:
    """Our JSON, a file a scan."""
    objects = [{"class": name, "box": list(box)} for name, box in zip(names, boxes, strict=True)]
    (path / f"{frame_id}.json").write_text(json.dumps({"objects": objects}))


def write_csv(path: Path, frame_id: str, boxes: np.ndarray, names: list[str]) -> None:
    """Our CSV, a file a scan."""
    lines = [",".join([name, *map(str, box)]) for name, box in zip(names, boxes, strict=True)]
    header = "class,x,y,z,length,width,height,yaw"
    (path / f"{frame_id}.csv").write_text("\n".join([header, *lines]) + "\n")


def write_openpcdet(path: Path, frame_id: str, boxes: np.ndarray, names: list[str]) -> None:
    """OpenPCDet's lines."""
    lines = [" ".join([*map(str, box), name]) for name, box in zip(names, boxes, strict=True)]
    (path / f"{frame_id}.txt").write_text("\n".join(lines) + "\n")


def write_sustechpoints(path: Path, frame_id: str, boxes: np.ndarray, names: list[str]) -> None:
    """SUSTechPOINTS."""
    objects = [
        {
            "obj_id": str(number),
            "obj_type": name,
            "psr": {
                "position": _xyz(box[:3]),
                "scale": _xyz(box[3:6]),
                "rotation": _xyz([0, 0, box[6]]),
            },
        }
        for number, (name, box) in enumerate(zip(names, boxes, strict=True))
    ]
    (path / f"{frame_id}.json").write_text(json.dumps(objects))


def write_labelcloud(path: Path, frame_id: str, boxes: np.ndarray, names: list[str]) -> None:
    """labelCloud with absolute rotations: degrees from 0 to 360."""
    objects = [
        {
            "name": name,
            "centroid": _xyz(box[:3]),
            "dimensions": dict(zip(("length", "width", "height"), map(float, box[3:6]), strict=True)),
            "rotations": _xyz([0, 0, np.degrees(box[6]) % 360]),
        }
        for name, box in zip(names, boxes, strict=True)
    ]
    record = {"folder": "pointclouds", "filename": f"{frame_id}.bin", "path": "", "objects": objects}
    (path / f"{frame_id}.json").write_text(json.dumps(record))


def write_supervisely(path: Path, frame_id: str, boxes: np.ndarray, names: list[str]) -> None:
    """Supervisely: width, length, height; a rotation of 0 looks along y."""
    objects = [{"key": f"object-{row}", "classTitle": name} for row, name in enumerate(names)]
    figures = [
        {
            "key": f"figure-{row}",
            "objectKey": f"object-{row}",
            "geometryType": "cuboid_3d",
            "geometry": {
                "position": _xyz(box[:3]),
                "dimensions": _xyz(box[[4, 3, 5]]),
                "rotation": _xyz([0, 0, box[6] - np.pi / 2]),
            },
        }
        for row, box in enumerate(boxes)
    ]
    record = {"key": "scan", "objects": objects, "figures": figures}
    (path / f"{frame_id}.bin.json").write_text(json.dumps(record))


def write_datumaro(path: Path, frame_id: str, boxes: np.ndarray, names: list[str]) -> None:
    """CVAT's Datumaro export of one frame."""
    classes = sorted(set(names))
    annotations = [
        {
            "id": row,
            "type": "cuboid_3d",
            "attributes": {"track_id": row},
            "label_id": classes.index(name),
            "position": list(box[:3]),
            "rotation": [0.0, 0.0, box[6]],
            "scale": list(box[3:6]),
        }
        for row, (name, box) in enumerate(zip(names, boxes, strict=True))
    ]
    record = {
        "categories": {"label": {"labels": [{"name": name} for name in classes]}},
        "items": [{"id": frame_id, "annotations": annotations}],
    }
    (path / f"{frame_id}.json").write_text(json.dumps(record))


def write_dair_v2x(path: Path, frame_id: str, boxes: np.ndarray, names: list[str]) -> None:
    """DAIR-V2X; numbers may be text, and an object that only the picture shows has no volume."""
    objects = [
        {
            "type": name,
            "occluded_state": "0",
            "3d_dimensions": {key: str(value) for key, value in _xyz(box[3:6], "lwh").items()},
            "3d_location": _xyz(box[:3]),
            "rotation": float(box[6]),
        }
        for name, box in zip(names, boxes, strict=True)
    ]
    empty = {
        "type": "Car",
        "3d_dimensions": _xyz([0, 0, 0], "lwh"),
        "3d_location": _xyz([0, 0, 0]),
        "rotation": 0,
    }
    (path / f"{frame_id}.json").write_text(json.dumps([*objects, empty]))


WRITERS: dict[str, WriteLabels] = {
    "dair-v2x": write_dair_v2x,
    "json": write_json,
    "csv": write_csv,
    "openpcdet": write_openpcdet,
    "sustechpoints": write_sustechpoints,
    "labelcloud": write_labelcloud,
    "supervisely": write_supervisely,
    "datumaro": write_datumaro,
}


def points_on(boxes: np.ndarray, seed: int = 0) -> np.ndarray:
    """(N, 4) float32: a floor at -1.7 m all around, and points in every box."""
    random = np.random.default_rng(seed)
    floor = random.uniform([-20, -20, -1.71, 0], [20, 20, -1.69, 0.3], (2000, 4))
    clusters = []
    for box in boxes:
        local = random.uniform(-0.49, 0.49, (60, 3)) * box[3:6]
        cosine, sine = np.cos(box[6]), np.sin(box[6])
        turned = local[:, :2] @ np.array([[cosine, sine], [-sine, cosine]])
        xyz = np.column_stack([turned, local[:, 2]]) + box[:3]
        clusters.append(np.column_stack([xyz, random.uniform(0.3, 0.9, len(xyz))]))
    return np.concatenate([floor, *clusters]).astype(np.float32)


def describe_folder(
    root: Path, label_format: str = "json", *, labels: dict[str, Any] | None = None, **fields: Any
) -> Path:
    """Make a folder of two labelled scans, a1 and a2, and describe it."""
    for name in ("scans", "labels", "splits"):
        (root / name).mkdir(exist_ok=True)
    for seed, frame_id in enumerate(("a1", "a2")):
        boxes = BOXES + np.array([seed, 0, 0, 0, 0, 0, 0])
        save_point_cloud(root / "scans" / f"{frame_id}.bin", PointCloud(points_on(boxes, seed)))
        WRITERS[label_format](root / "labels", frame_id, boxes, NAMES)
    (root / "splits/train.txt").write_text("a1\n")
    (root / "splits/val.txt").write_text("a2\n")
    description = {
        "scans": {"path": "scans"},
        "labels": {"path": "labels", "format": label_format, **(labels or {})},
        "classes": {"pallet": "pallet", "forklift": "forklift"},
        "splits": "splits",
    }
    (root / "dataset.yaml").write_text(yaml.safe_dump(description | fields, sort_keys=False))
    return root
