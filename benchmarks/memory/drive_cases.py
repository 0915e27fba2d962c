"""The drives that memories are compared on: frames, source of boxes, and number of passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.demos import drive_module
from perception import Detections, Detector
from perception.data import CameraCalibration, Frame
from perception.data.camera import DONT_CARE
from perception.data.kitti.files import read_calibration
from perception.data.kitti.sequence import KittiSequenceFrame
from perception.data.kitti.tracking import TrackRows, read_sequence_lengths, read_tracks
from perception.evaluate.nuscenes.files import read_results
from perception.rigid_motion import inverse
from perception.track.folders import camera_objects
from perception.track.poses import moved_boxes

#: Pose error on the way back, along x and y of the map.
BESIDE_M = (0.4, -0.3)
#: Boxes of another detector below this score are ignored.
_LEAST_SCORE = 0.1


@dataclass(frozen=True, kw_only=True)
class Case:
    """A drive.

    Attributes:
        name: of it.
        boxes: whose they are.
        moments: of ``drive.labelled.scans``: the passes.
        sees: source of the boxes.
        group: of drives that are summed up.
    """

    name: str
    boxes: str
    moments: Iterator[Any]
    sees: Any
    group: str


def cases(data: Path, weights: str, *, quick: bool) -> Iterator[Case]:
    """Return the cases whose data is present.

    Args:
        data: folder with ``kitti_sequences``, ``nuscenes`` and ``kitti_tracking``.
        weights: of our detector.
        quick: two sequences only.
    """
    sequences = sorted((data / "kitti_sequences").glob("*/"))
    detector = Detector.from_pretrained(weights) if sequences and not quick else None
    for folder in sequences[-1:] if quick else sequences:
        frames = _seen().open_sequence(folder)
        yield _perfect(folder.name, frames)
        yield _perfect(f"{folder.name}, beside", frames, offset_m=BESIDE_M)
        if detector is not None:
            yield Case(
                name=folder.name,
                boxes="our detector",
                group="our detector",
                moments=_seen().moments(frames),
                sees=_seen().TrackObserver(_detected(detector)),
            )
    scene = data / "nuscenes"
    if scene.is_dir() and not quick:
        frames = _seen().open_sequence(scene)
        yield _perfect("nuScenes scene-0523", frames)
        yield _perfect("nuScenes scene-0523, beside", frames, offset_m=BESIDE_M)
        found = scene / "detections" / "centerpoint_nuscenes_format.json"
        if found.is_file():
            yield Case(
                name="nuScenes scene-0523",
                boxes="CenterPoint",
                group="CenterPoint",
                moments=_seen().moments(frames),
                sees=_seen().TrackObserver(_of_results(found, frames)),
            )
    tracking = data / "kitti_tracking"
    if tracking.is_dir():
        names = list(read_sequence_lengths(tracking / "seqmap.txt").items())
        for name, count in names[:1] if quick else names:
            frames = label_frames(tracking, name, count)
            yield Case(
                name=f"KITTI tracking {name}",
                boxes="labels",
                moments=_seen().moments(frames, back=False),
                sees=_seen().TrackObserver(_labels),
                group="without poses",
            )


def label_frames(folder: Path, name: str, count: int) -> list[Frame]:
    """Frames of a KITTI tracking sequence that has labels and no scans.

    Args:
        folder: with ``label_02`` and ``calib``.
        name: of the sequence.
        count: of its frames.
    """
    rows = read_tracks(folder / "label_02" / f"{name}.txt")
    camera = read_calibration(folder / "calib" / f"{name}.txt")
    rows = rows.rows(rows.type != DONT_CARE)
    return [_label_frame(f"{number:06d}", rows.rows(rows.frame == number), camera) for number in range(count)]


def _label_frame(frame_id: str, rows: TrackRows, camera: CameraCalibration) -> KittiSequenceFrame:
    objects = tuple(camera_objects(rows))
    return KittiSequenceFrame(
        frame_id=frame_id, source=None, labelled=True, track_ids=rows.track_id, camera=camera, rows=objects
    )


def _perfect(name: str, frames: Sequence[Frame], **how: Any) -> Case:
    """The labels as boxes whose identities nobody tells."""
    return Case(
        name=name,
        boxes="labels",
        group="labels, beside" if how else "labels",
        moments=_seen().moments(frames, **how),
        sees=_seen().TrackObserver(_labels),
    )


def _labels(frame: Frame) -> Detections:
    return Detections(frame.boxes, np.ones(len(frame.labels), np.float32), _seen().labels_of(frame))


def _detected(detector: Detector) -> Callable[[Frame], Detections]:
    return lambda frame: detector(frame.cloud)


def _of_results(path: Path, frames: Sequence[Any]) -> Callable[[Frame], Detections]:
    """Boxes of a nuScenes result file, in the frame of the LiDAR."""
    tokens = {frame.sample_token: (0.0, 0.0) for frame in frames}
    samples, found = read_results(path, tokens)
    numbers = {sample: number for number, sample in enumerate(samples)}

    def of(frame: Any) -> Detections:
        rows = np.flatnonzero((found.frame == numbers[frame.sample_token]) & (found.score >= _LEAST_SCORE))
        boxes = moved_boxes(found.boxes[rows], inverse(frame.pose)).astype(np.float32)
        names = [_seen().named(label) for label in found.label[rows].tolist()]
        return Detections(boxes, found.score[rows].astype(np.float32), names)

    return of


def _seen() -> Any:
    """Return the demo's module of labelled observations."""
    return drive_module("labelled.scans")
