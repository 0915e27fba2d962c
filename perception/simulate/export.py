"""Simulated scans as a KITTI object folder, for training and for tools that read KITTI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from perception.io import save_point_cloud
from perception.io.kitti import (
    KittiCalibration,
    KittiObject,
    in_image,
    objects_from_boxes,
    write_calibration,
    write_objects,
)
from perception.simulate.scan import SimulatedScan, simulate_scan
from perception.simulate.scene import SceneConfig
from perception.simulate.sensor import SensorModel
from perception.types import FloatArray

#: Part of the turn that covers the camera's view with a margin.
_CAMERA_AZIMUTH_DEG = (-45.0, 45.0)


def export_kitti(
    directory: str | Path,
    seeds: Sequence[int],
    *,
    field_of_view_only: bool = True,
    scene: SceneConfig | None = None,
    sensor: SensorModel | None = None,
    hold_out: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Simulate frames and write them as ``training/`` with ``ImageSets/train.txt`` and ``val.txt``.

    A frame depends on its seed, the scene and the sensor alone; its name is the seed in six digits. Frames
    whose files are all there are skipped, so that an interrupted export goes on where it stopped (delete the
    folder after a change of ``scene`` or ``sensor``).

    Args:
        directory: made if missing.
        seeds: one a frame, not negative.
        field_of_view_only: keep the points that the camera of ``KittiCalibration.default()`` would see, in
            ``velodyne_reduced``; otherwise whole turns go to ``velodyne``.
        scene: what the scenes hold.
        sensor: a 64-beam sensor with a range of 80 m if left out.
        hold_out: every so manieth frame is for validation: listed in ``val.txt`` and not in ``train.txt``. Of
            fewer frames all are in both lists, as they are with 0.
        progress: called with (frames done, frames in all) after every frame.

    Returns:
        Names of the frames in the order of the seeds.

    Raises:
        ImportError: Open3D is missing.
        ValueError: a seed is negative, or ``hold_out`` is negative or 1.
        DataError: a file cannot be written.
    """
    if any(seed < 0 for seed in seeds):
        raise ValueError("seeds must not be negative: they name the frames")
    if hold_out < 0 or hold_out == 1:
        raise ValueError(f"hold_out must be 0 or at least 2, as frames to train on are left; got {hold_out}")
    root = Path(directory)
    points_folder = root / "training" / ("velodyne_reduced" if field_of_view_only else "velodyne")
    for folder in (points_folder, root / "training/label_2", root / "training/calib", root / "ImageSets"):
        folder.mkdir(parents=True, exist_ok=True)
    model = _default_sensor(field_of_view_only) if sensor is None else sensor
    names = [f"{seed:06d}" for seed in seeds]
    for done, (seed, name) in enumerate(zip(seeds, names, strict=True), 1):
        files = _frame_files(points_folder, name)
        if not all(path.exists() for path in files):
            _write_frame(files, simulate_scan(seed, scene=scene, sensor=model), field_of_view_only)
        if progress is not None:
            progress(done, len(names))
    held = set(names[hold_out - 1 :: hold_out]) if hold_out else set()
    lists = {"train": [name for name in names if name not in held], "val": sorted(held) or names}
    for split, listed in lists.items():
        (root / "ImageSets" / f"{split}.txt").write_text("".join(name + "\n" for name in listed))
    return names


def _default_sensor(field_of_view_only: bool) -> SensorModel:
    azimuth = _CAMERA_AZIMUTH_DEG if field_of_view_only else (-180.0, 180.0)
    return replace(SensorModel.preset("64", azimuth_deg=azimuth), range_max_m=80.0)


def _frame_files(points_folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Calibration, labels and scan of a frame."""
    root = points_folder.parent
    return root / "calib" / f"{name}.txt", root / "label_2" / f"{name}.txt", points_folder / f"{name}.bin"


def _write_frame(files: tuple[Path, Path, Path], scan: SimulatedScan, field_of_view_only: bool) -> None:
    """Write one frame; every file appears whole or not at all."""
    calibration = KittiCalibration.default()
    points = scan.cloud.points
    seen = in_image(points, calibration)
    objects = visible_objects(scan, calibration)
    cloud = replace(scan.cloud, points=points[seen]) if field_of_view_only else scan.cloud
    calibration_path, label_path, points_path = files
    _whole(calibration_path, lambda path: write_calibration(path, calibration))
    _whole(label_path, lambda path: write_objects(path, objects))
    _whole(points_path, lambda path: save_point_cloud(path, cloud))


def _whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write beside ``path`` and move into place, so that an interrupted export leaves no half file."""
    partial = path.with_name("partial-" + path.name)
    write(partial)
    partial.replace(path)


def visible_objects(scan: SimulatedScan, calibration: KittiCalibration) -> list[KittiObject]:
    """KITTI labels of the objects that the camera's part of the scan shows.

    An object is labelled if at least one of its points lies in the image and its centre is in front of the
    camera. Like in KITTI, objects that the border of the image cuts are labelled too, as truncated: their
    points are in the cloud.
    """
    seen = in_image(scan.cloud.points, calibration)
    owners = scan.point_object[seen]
    counts = np.bincount(owners[owners >= 0], minlength=len(scan.boxes))
    depth = _camera_depth(scan.boxes.boxes, calibration)
    rows = np.flatnonzero((counts > 0) & (depth > 0))
    labels = [scan.boxes.labels[row] for row in rows]
    objects = objects_from_boxes(scan.boxes.boxes[rows], labels, None, calibration)
    levels = scan.occlusion_level[rows]
    return [replace(item, occluded=int(level)) for item, level in zip(objects, levels, strict=True)]


def _camera_depth(boxes: FloatArray, calibration: KittiCalibration) -> FloatArray:
    """(M,) depth in metres of the box centres in the camera frame."""
    row = calibration.camera_from_lidar[2]
    depth: FloatArray = (boxes[:, :3].astype(np.float64) @ row[:3] + row[3]).astype(np.float32)
    return depth
