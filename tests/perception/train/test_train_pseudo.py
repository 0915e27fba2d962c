"""Labels by a detector: sure, and seen again at the same place of the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perception.data import Frame, open_data_set
from perception.detector import Detector
from perception.model.network import Network
from perception.train.data.evidence import ScanDetections
from perception.train.data.objects import points_in_box
from perception.train.data.pseudo import (
    PseudoLabelling,
    pseudo_labels,
    seen_again,
    write_pseudo_labels,
)
from perception.types import Detections


def detections(*rows: tuple[float, float, str, float]) -> Detections:
    """Boxes by x, y, class and score."""
    boxes = np.array([[x, y, -1.0, 4.0, 1.8, 1.5, 0.0] for x, y, _, _ in rows], np.float32).reshape(-1, 7)
    scores = np.array([score for *_, score in rows], np.float32)
    return Detections(boxes, scores, [label for _, _, label, _ in rows])


def pose_at(x: float) -> np.ndarray:
    pose = np.eye(4)
    pose[0, 3] = x
    return pose


def sights(frames: Sequence[Detections], *, step_m: float = 0.0, posed: bool = True) -> list[ScanDetections]:
    return [
        ScanDetections(found, pose_at(number * step_m) if posed else None, number * 0.1)
        for number, found in enumerate(frames)
    ]


def test_what_stands_in_the_world_is_seen_again_by_a_sensor_that_moves() -> None:
    # At 20 m/s the parked car comes 2 m nearer a scan; what keeps its distance to the sensor does not stand.
    frames = [detections((30 - 2 * n, 5, "Car", 0.9), (15, -5, "Car", 0.9)) for n in range(5)]
    still = PseudoLabelling(agree=4, fastest_m_s=0.0)
    assert seen_again(sights(frames, step_m=2.0), 2, still).tolist() == [True, False]
    assert seen_again(sights(frames, step_m=2.0), 2, PseudoLabelling(agree=4, fastest_m_s=25)).all()
    assert seen_again(sights(frames, step_m=0.0), 2, still).tolist() == [False, True]


def test_a_flash_and_a_change_of_class_are_not() -> None:
    frames = [detections((20, 0, "Car", 0.9)) for _ in range(5)]
    frames[2] = detections((20, 0, "Car", 0.9), (40, 9, "Car", 0.9), (20, 0, "Pedestrian", 0.9))
    for agree in (1, 2, 4):
        found = seen_again(sights(frames), 2, PseudoLabelling(agree=agree))
        assert found.tolist() == [True, False, False]
    assert seen_again(sights(frames), 2, PseudoLabelling(agree=0)).all()


def test_the_ends_of_a_drive_and_scans_without_poses() -> None:
    frames = [detections((20, 0, "Car", 0.9)) for _ in range(3)]
    assert seen_again(sights(frames), 0, PseudoLabelling(agree=4)).all()
    assert seen_again(sights(frames[:1]), 0, PseudoLabelling(agree=4)).all()
    apart = [detections((20 + 9 * n, 0, "Car", 0.9)) for n in range(3)]
    assert not seen_again(sights(apart), 1, PseudoLabelling()).any()
    assert seen_again(sights(apart, posed=False), 1, PseudoLabelling()).all()
    assert seen_again(sights([detections()] * 3), 1, PseudoLabelling()).shape == (0,)


class Told(Detector):
    """A detector that says what it is told to."""

    def __init__(self, network: Network, answers: Sequence[Detections]) -> None:
        super().__init__(network)
        self.answers, self.asked = answers, 0

    def reporting_everything(self) -> Detector:
        return self

    def __call__(self, *arguments: object, **options: object) -> Detections:  # type: ignore[override]
        self.asked += 1
        return self.answers[self.asked - 1]


def test_labels_are_written_and_what_is_doubtful_is_cut_out(
    tiny_network: Network, tmp_path: Path, kitti_folder: Path
) -> None:
    scans = [open_data_set(kitti_folder, "train")[0]] * 4
    own = scans[0].boxes[0]

    def at_own(score: float) -> Detections:
        rows = np.stack([own, scans[0].boxes[1]])
        return Detections(rows, np.array([0.9, score], np.float32), ["Car", "Pedestrian"])

    detector = Told(tiny_network, [at_own(0.4)] * 4)
    posed = lambda frame, number: (np.eye(4), number * 100_000_000)  # noqa: E731
    options = PseudoLabelling(score=0.5)
    frames = list(pseudo_labels(detector, scans, options, poses=posed))
    assert [frame.labels for frame in frames] == [["Car"]] * 4
    assert [frame.doubtful for frame in frames] == [1] * 4
    points = frames[0].points
    assert points_in_box(points, own).sum() == points_in_box(scans[0].points, own).sum() > 0
    assert not points_in_box(points, scans[0].boxes[1]).any()
    named = [replace(frame, frame_id=f"{number:06d}") for number, frame in enumerate(frames)]
    counts = write_pseudo_labels(iter(named), tmp_path / "out")
    assert counts == {"": 4, "Car": 4}
    again = open_data_set(tmp_path / "out", "train")
    assert len(again) == 4
    np.testing.assert_array_equal(again[0].points, points)
    np.testing.assert_allclose(again[0].boxes[0, :6], own[:6], atol=0.02)


def test_a_drive_of_random_weights(tiny_network: Network, kitti_folder: Path) -> None:
    frames: list[Frame] = list(open_data_set(kitti_folder, "train"))
    told: list[int] = []
    found = list(pseudo_labels(Detector(tiny_network), frames, on_frame=told.append))
    assert [frame.frame_id for frame in found] == ["000000", "000001", "000002"]
    assert told == [1, 2, 3]


@pytest.mark.parametrize("wrong", [{"score": 1.5}, {"agree": 5}, {"near_m": -1.0}, {"frame_s": 0.0}])
def test_values_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PseudoLabelling(**wrong)  # type: ignore[arg-type]
