"""Evidence about detections: mean scores of tracks and of objects that a memory knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from perception.data import Frame
from perception.detector import Detector
from perception.model.network import Network
from perception.train.data.evidence import KnownObjects, ScanDetections, evidence_of, read_known
from perception.train.data.pseudo import PseudoLabelling, pseudo_labels
from perception.types import Detections, PointCloud

Row = tuple[float, float, str, float]


def detections(rows: Sequence[Row]) -> Detections:
    """Boxes by x, y, class and score."""
    boxes = np.array([[x, y, -1.0, 4.0, 1.8, 1.5, 0.0] for x, y, _, _ in rows], np.float32).reshape(-1, 7)
    scores = np.array([score for *_, score in rows], np.float32)
    return Detections(boxes, scores, [label for _, _, label, _ in rows])


def drive(frames: Sequence[Sequence[Row]], *, posed: bool = True) -> list[ScanDetections]:
    """Scans every 0.1 s of a sensor that stands at (100, 0)."""
    pose = np.eye(4)
    pose[0, 3] = 100.0
    return [
        ScanDetections(detections(rows), pose if posed else None, 1000 + number / 10)
        for number, rows in enumerate(frames)
    ]


def known(*objects: tuple[float, float, str, float, int, str]) -> KnownObjects:
    """Objects by x and y in the map, class, mean score, observations and state; last seen at 1000 s."""
    return KnownObjects.of(
        [
            {"label": label, "position": [x, y, -1.0], "confidence": score, "sights": sights, "state": state,
             "last_ns": 1000 * 10**9}
            for x, y, label, score, sights, state in objects
        ]
    )  # fmt: skip


NOTHING = known()


def test_the_mean_score_of_a_track_decides_about_each_of_its_detections() -> None:
    # A car that comes nearer, and a pole that is taken for a person in every scan.
    scores = np.linspace(0.2, 1.0, 12)
    frames = [
        [(30 - 0.8 * n, 5, "Car", float(scores[n])), (15, -5, "Pedestrian", 0.75 if n == 3 else 0.4)]
        for n in range(12)
    ]
    found = evidence_of(drive(frames), NOTHING, sights=10)
    for one in found:
        np.testing.assert_allclose(one.tracked, [0.6, 0.429], atol=0.01)
        assert one.supports(0.5).tolist() == [True, False]
        assert one.denies(0.5).tolist() == [False, True]
    short = evidence_of(drive(frames[:6]), NOTHING, sights=10)
    assert all(np.isnan(one.tracked).all() for one in short)
    assert not any(one.supports(0.5).any() or one.denies(0.5).any() for one in short)


def test_a_remembered_object_decides_at_its_place_only() -> None:
    rows: list[Row] = [
        (10, 0, "Car", 0.15),
        (10, 0, "Pedestrian", 0.15),
        (13, 0, "Car", 0.15),
        (20, 6, "Pedestrian", 0.9),
    ]
    (one,) = evidence_of(
        drive([rows]),
        known((110.4, 0, "Car", 0.8, 40, "present"), (120, 6.5, "Pedestrian", 0.3, 40, "unknown")),
        sights=10,
    )
    np.testing.assert_allclose(one.remembered, [0.8, np.nan, np.nan, 0.3])
    assert one.supports(0.5).tolist() == [True, False, False, False]
    assert one.denies(0.5).tolist() == [False, False, False, True]
    (few,) = evidence_of(drive([rows]), known((110, 0, "Car", 0.8, 9, "present")), sights=10)
    assert np.isnan(few.remembered).all()
    (lost,) = evidence_of(drive([rows], posed=False), known((110, 0, "Car", 0.8, 40, "present")), sights=10)
    assert np.isnan(lost.remembered).all()


def test_what_was_seen_to_leave_is_not_there() -> None:
    rows: list[Row] = [(10, 0, "Car", 0.9)]
    for objects, vacant in (
        ([(110.0, 0.0, "Car", 0.8, 40, "gone")], True),
        ([(110.0, 0.0, "Car", 0.8, 40, "present")], False),
        # Another car came later.
        ([(110.0, 0.0, "Car", 0.8, 40, "gone"), (110.2, 0.1, "Car", 0.8, 40, "present")], False),
    ):
        (_, later) = evidence_of(drive([[], rows]), known(*objects), sights=10)
        assert later.vacant.tolist() == [vacant]
        assert later.denies(0.5).tolist() == [vacant]
    # It still stood there when it was last seen.
    (then,) = evidence_of(drive([rows]), known((110, 0, "Car", 0.8, 40, "gone")), sights=10)
    assert then.supports(0.5).tolist() == [True]


def test_static_objects_do_not_decide_about_those_that_pass() -> None:
    # A cyclist rides past a pole that the memory knows as a cyclist, and over the place of one that left.
    frames: list[list[Row]] = [[(5 + 0.5 * n, 0, "Cyclist", 0.8)] for n in range(20)]
    found = evidence_of(
        drive(frames),
        known((110, 0.5, "Cyclist", 0.2, 90, "present"), (107, 0, "Cyclist", 0.9, 90, "gone")),
        sights=10,
    )
    assert all(one.supports(0.5).all() and not one.denies(0.5).any() for one in found)


class FixedDetector(Detector):
    """A detector that returns given detections, one after another."""

    def __init__(self, network: Network, answers: Sequence[Detections]) -> None:
        super().__init__(network)
        self.answers, self.asked = answers, 0

    def reporting_everything(self) -> Detector:
        return self

    def __call__(self, *arguments: object, **options: object) -> Detections:  # type: ignore[override]
        self.asked += 1
        return self.answers[self.asked - 1]


class EmptyFrame(Frame):
    """A frame with one point in each of two boxes."""

    @property
    def cloud(self) -> PointCloud:
        return PointCloud(np.array([[10, 0, -1, 0], [20, 6, -1, 0], [30, 0, -1, 0]], np.float32))


def test_the_memory_adds_faint_labels_and_removes_recurring_errors(tiny_network: Network) -> None:
    rows: list[Row] = [(10, 0, "Car", 0.15), (20, 6, "Pedestrian", 0.9), (30, 0, "Car", 0.15)]
    frames = [EmptyFrame(frame_id=str(number), source=None) for number in range(4)]
    pose = lambda frame, number: (np.eye(4), number * 10**8)  # noqa: E731
    memory = known((10, 0, "Car", 0.8, 40, "present"), (20, 6, "Pedestrian", 0.3, 40, "present"))

    def labelled(**options: Any) -> list[tuple[list[str], int, int]]:
        detector = FixedDetector(tiny_network, [detections(rows)] * 4)
        found = pseudo_labels(detector, frames, PseudoLabelling(score=0.3), poses=pose, **options)
        return [(one.labels, one.doubtful, len(one.points)) for one in found]

    assert labelled() == [(["Pedestrian"], 0, 3)] * 4
    # The faint car becomes a label, the pole is cut out, and the other faint detection stays background.
    assert labelled(known=memory) == [(["Car"], 1, 2)] * 4
    assert labelled(known=NOTHING) == [(["Pedestrian"], 0, 3)] * 4


def test_a_memory_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perception.extensions.entry_points", lambda group: ())
    with pytest.raises(ImportError, match="no memory is installed"):
        read_known("store")

    class Broken:
        name = "broken"

        def load(self) -> Any:
            nothing: dict[str, Any] = {}
            return lambda store, map_id: nothing[map_id]

    monkeypatch.setattr("perception.extensions.entry_points", lambda group: (Broken(),))
    with pytest.raises(ValueError, match="a place: 'yard'"):
        read_known("a place", "yard")
