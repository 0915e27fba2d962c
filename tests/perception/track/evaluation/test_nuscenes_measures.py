"""nuScenes' tracking measures: against nuscenes-devkit, what it gave, and cases worked out by hand."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_scenes import NAMES, Scenes, devkit_numbers, random_scenes

from perception.evaluate.box_table import BoxTable
from perception.track.evaluation.nuscenes import NuScenesTracking, nuscenes_measures

FIXTURE = Path(__file__).parent / "nuscenes_devkit_tracking.json"


def measured(scenes: Scenes) -> NuScenesTracking:
    return nuscenes_measures(scenes.labels, scenes.results, scene=scenes.scene, time_us=scenes.time_us)


def assert_equal(found: NuScenesTracking, expected: dict[str, Any]) -> None:
    """Every number of the devkit's within 1e-6."""
    for name in NAMES:
        for own, theirs in (
            (found.figure(name), expected[name]),
            *((found.classes[label][name], expected["classes"][label][name]) for label in found.classes),
        ):
            wanted = math.nan if theirs is None else theirs
            assert own == pytest.approx(wanted, abs=1e-6, nan_ok=True), name


@pytest.mark.parametrize("seed", range(4))
def test_the_devkit_says_the_same(seed: int) -> None:
    """``pip install nuscenes-devkit motmetrics``; forty seeds agreed when this was written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("motmetrics", reason="motmetrics is not installed")
        pytest.importorskip("nuscenes.eval.tracking.algo", reason="nuscenes-devkit is not installed")
        scenes = random_scenes(seed)
        assert_equal(measured(scenes), devkit_numbers(scenes))


def test_what_the_devkit_said() -> None:
    """``random_scenes(100 + n, 8)`` with the numbers of nuscenes-devkit 1.2.0 and motmetrics 1.4.0."""
    cases = json.loads(FIXTURE.read_text())
    assert len(cases) == 3
    for case in cases:
        tables = []
        for side in ("labels", "results"):
            columns = {name: np.array(column) for name, column in case[side].items()}
            boxes = np.zeros((len(columns["frame"]), 7))
            boxes[:, :2] = columns.pop("centre")
            tables.append(BoxTable(boxes=boxes, **columns))
        found = measured(Scenes(*tables, case["scene"], case["time_us"]))
        assert_equal(found, case["expected"])
        assert 0.1 < found.figure("amota") < 0.9
        assert found.figure("id_switches") > 0


def cars(*frames: list[tuple[int, float]], score: float | None = None) -> BoxTable:
    """Cars ``(identity, x)`` in a line, frame by frame."""
    return BoxTable.joined(
        BoxTable.of_frame(
            [[x, 0, 0, 4, 2, 1.5, 0] for _, x in frame],
            ["car"] * len(frame),
            track_id=[identity for identity, _ in frame],
            **({} if score is None else {"score": [score] * len(frame)}),
        )
        for frame in frames
    )


def judge(labels: BoxTable, results: BoxTable, frames: int) -> NuScenesTracking:
    times = [500_000 * frame for frame in range(frames)]
    return nuscenes_measures(labels, results, scene=[0] * frames, time_us=times)


def test_switches_gaps_and_what_is_filled_in() -> None:
    labels = cars([(1, 5.0)], [(1, 6.0)], [(1, 7.0)], [(1, 8.0)])
    perfect = judge(labels, cars([(9, 5.0)], [], [(9, 7.0)], [(9, 8.0)], score=0.5), 4).classes["car"]
    assert (perfect["amota"], perfect["mota"], perfect["fragments"]) == (1.0, 1.0, 0)
    assert perfect["motp"] == pytest.approx(0.0, abs=1e-6)
    switched = judge(labels, cars([(9, 5.0)], [(9, 6.0)], [(8, 7.0)], [(8, 8.0)], score=0.5), 4).classes[
        "car"
    ]
    assert (switched["id_switches"], switched["true_positives"], switched["recall"]) == (1, 3, 1.0)
    late = judge(labels, cars([], [(9, 6.0)], [], [], score=0.5), 4).classes["car"]
    assert (late["first_found_s"], late["longest_gap_s"], late["false_negatives"]) == (0.5, 1.0, 3)


def test_nothing_told_nothing_labelled_and_too_little() -> None:
    labels = cars([(1, 5.0)], [(1, 6.0), (2, 20.0)])
    nothing = judge(labels, cars([], []), 2).classes
    assert (nothing["car"]["amota"], nothing["car"]["amotp"], nothing["car"]["mostly_lost"]) == (0, 2, 2)
    assert math.isnan(nothing["bus"]["amota"])
    empty = judge(cars([], []), cars([], []), 2)
    assert math.isnan(empty.figure("amota"))
    record = empty.to_dict()
    assert (record["amota"], record["id_switches"]) == (None, 0)
    json.dumps(record, allow_nan=False)


def test_what_cannot_be_judged() -> None:
    labels = cars([(1, 5.0)])
    with pytest.raises(ValueError, match="has no score"):
        judge(labels, cars([(1, 5.0)]), 1)
    with pytest.raises(ValueError, match="twice"):
        judge(labels, cars([(1, 5.0), (1, 9.0)], score=0.5), 1)
    with pytest.raises(ValueError, match="no track_id"):
        judge(labels, cars([(-1, 5.0)], score=0.5), 1)
    with pytest.raises(ValueError, match="every frame"):
        judge(cars([], [(1, 5.0)]), cars([], []), 1)
    with pytest.raises(ValueError, match="same time"):
        nuscenes_measures(labels, cars([]), scene=[0, 0], time_us=[5, 5])
