"""Export of simulated scans as a KITTI object folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from perception.data import CameraCalibration, CameraObject, in_image, objects_from_boxes
from perception.data.kitti import CAMERA_SCANS, WHOLE_SCANS, KittiWriter
from perception.simulate.scan import SimulatedScan, simulate_scan
from perception.simulate.scene import SceneConfig
from perception.simulate.sensor import SensorModel

#: Azimuth range of the camera's view plus a margin.
_CAMERA_AZIMUTH_DEG = (-45.0, 45.0)


def export_kitti(
    directory: str | Path,
    seeds: Sequence[int],
    *,
    field_of_view_only: bool = True,
    scene: SceneConfig | None = None,
    sensor: SensorModel | None = None,
    height_m: tuple[float, float] | None = None,
    hold_out: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Simulate frames and write them in KITTI's layout, with the splits ``train`` and ``val``.

    A frame depends on its seed, the scene and the sensor alone; its name is the seed in six digits. Complete
    frames are skipped, so an interrupted export resumes. Delete the folder after a change of ``scene`` or
    ``sensor``.

    Args:
        directory: created if missing.
        seeds: one per frame, not negative.
        field_of_view_only: keep the points inside the camera view of ``CameraCalibration.default()``, and
            label the objects in its image; otherwise full turns with labels all around.
        scene: settings of the scenes.
        sensor: by default a 64-beam sensor with a range of 80 m.
        height_m: range of sensor heights, drawn by each frame's seed; None: the sensor's own.
        hold_out: every n-th frame is listed in ``val`` instead of ``train``. With 0, or fewer frames, all
            frames are in both lists.
        progress: called with (frames done, all frames) after every frame.

    Returns:
        Frame names in the order of the seeds.

    Raises:
        ImportError: Open3D is missing.
        ValueError: a seed or height is negative, or ``hold_out`` is negative or 1.
        DataError: a file cannot be written.
    """
    if any(seed < 0 for seed in seeds):
        raise ValueError("seeds must not be negative, because they name the frames")
    if height_m is not None and not 0 < height_m[0] <= height_m[1]:
        raise ValueError(f"height_m must be two increasing heights above 0, got {height_m}")
    if hold_out < 0 or hold_out == 1:
        raise ValueError(f"hold_out must be 0 or at least 2, so that training frames remain; got {hold_out}")
    writer = KittiWriter(Path(directory), CAMERA_SCANS if field_of_view_only else WHOLE_SCANS)
    azimuth = _CAMERA_AZIMUTH_DEG if field_of_view_only else (-180.0, 180.0)
    model = sensor or replace(SensorModel.preset("64", azimuth_deg=azimuth), range_max_m=80.0)
    names = [f"{seed:06d}" for seed in seeds]
    for done, (seed, name) in enumerate(zip(seeds, names, strict=True), 1):
        if not writer.holds(name):
            placed = model if height_m is None else replace(model, height_m=_drawn(seed, height_m))
            _write_frame(writer, name, simulate_scan(seed, scene=scene, sensor=placed), field_of_view_only)
        if progress is not None:
            progress(done, len(names))
    held = set(names[hold_out - 1 :: hold_out]) if hold_out else set()
    writer.write_split("train", [name for name in names if name not in held])
    writer.write_split("val", sorted(held) or names)
    return names


def _write_frame(writer: KittiWriter, name: str, scan: SimulatedScan, field_of_view_only: bool) -> None:
    calibration = CameraCalibration.default()
    points = scan.cloud.points
    seen = in_image(points, calibration)
    cloud = replace(scan.cloud, points=points[seen]) if field_of_view_only else scan.cloud
    labels = visible_objects(scan, calibration, all_around=not field_of_view_only)
    writer.write(name, cloud, labels, calibration)


def _drawn(seed: int, height_m: tuple[float, float]) -> float:
    return float(np.random.default_rng([seed, 3]).uniform(*height_m))


def visible_objects(
    scan: SimulatedScan, calibration: CameraCalibration, *, all_around: bool = False
) -> list[CameraObject]:
    """Return KITTI labels of the objects that the camera's part of the scan shows, or the whole scan.

    An object is labelled if at least one of its points lies in the image and its centre is in front of the
    camera. As in KITTI, objects cut by the image border are labelled as truncated. With ``all_around``, one
    point anywhere is enough.
    """
    seen = slice(None) if all_around else in_image(scan.cloud.points, calibration)
    owners = scan.point_object[seen]
    counts = np.bincount(owners[owners >= 0], minlength=len(scan.boxes))
    rows = np.flatnonzero(counts > 0)
    labels = [scan.boxes.labels[row] for row in rows]
    objects = objects_from_boxes(scan.boxes.boxes[rows], labels, None, calibration)
    levels = scan.occlusion_level[rows]
    ahead = [
        (item, int(level))
        for item, level in zip(objects, levels, strict=True)
        if all_around or item.location[2] > 0
    ]
    return [replace(item, occluded=level) for item, level in ahead]
