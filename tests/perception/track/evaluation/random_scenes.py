"""Random scenes as tables, and what nuscenes-devkit says of tracks in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from perception.evaluate.box_table import BoxTable
from perception.evaluate.nuscenes.result import TRACKING_RANGES_M
from perception.track.evaluation.nuscenes_scenes import CLASSES

#: The devkit's name of each figure.
NAMES = {
    "amota": "amota", "amotp": "amotp", "recall": "recall", "motar": "motar", "labels": "gt", "mota": "mota",
    "motp": "motp", "mostly_tracked": "mt", "mostly_lost": "ml", "false_alarms": "faf",
    "true_positives": "tp", "false_positives": "fp", "false_negatives": "fn", "id_switches": "ids",
    "fragments": "frag", "first_found_s": "tid", "longest_gap_s": "lgd",
}  # fmt: skip


class Scenes(NamedTuple):
    """Labels and tracks, and the scene and time of each frame."""

    labels: BoxTable
    results: BoxTable
    scene: list[int]
    time_us: list[int]


def random_scenes(seed: int, frames: int = 12) -> Scenes:
    """Two scenes: tracks that break, switch, hide, leave, are wrong, and share identities among classes."""
    random = np.random.default_rng(seed)
    tables: list[tuple[BoxTable, BoxTable]] = []
    scene, time_us = [], []
    for number in range(2):
        ego = random.uniform(300, 1800, 2)
        things, spare = [], 500
        for track in range(int(random.integers(8, 16))):
            first, last = sorted(random.integers(0, frames, 2).tolist())
            things.append([track, str(random.choice(CLASSES[:6])), first, last, random.uniform(-45, 45, 2),
                           random.normal(0, 1.5, 2), random.uniform(0.1, 0.9), track])  # fmt: skip
        for frame in range(frames):
            ego = ego + random.uniform(0, 3, 2)
            truth: list[tuple[Any, ...]] = []
            found: list[tuple[Any, ...]] = []
            for thing in things:
                track, name, first, last, place, speed, confidence, told = thing
                if not first <= frame <= last:
                    continue
                here = ego + place + speed * (frame - first)
                truth.append((here, name, track, random.integers(0, 9), np.nan))
                if random.random() < 0.1:
                    thing[7], spare = spare, spare + 1
                if random.random() < 0.8:
                    score = float(np.clip(confidence + random.normal(0, 0.1), 0.01, 0.99).round(2))
                    said = str(random.choice(CLASSES)) if random.random() < 0.05 else name
                    found.append((here + random.normal(0, 0.6, 2), said, told, -1, score))
            for _ in range(int(random.integers(0, 4))):
                spare += 1
                found.append((ego + random.uniform(-55, 55, 2), str(random.choice(CLASSES)), spare - 20 * (
                    spare % 3 == 0), -1, float(random.uniform(0.05, 0.6))))  # fmt: skip
            tables.append((_table(truth, ego), _table(_once(found), ego)))
            scene.append(number)
            time_us.append(1_000_000 * number + 500_000 * frame + int(random.integers(0, 90_000)))
    return Scenes(*(BoxTable.joined(side) for side in zip(*tables, strict=True)), scene, time_us)


def _once(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list({(row[1], row[2]): row for row in rows}.values())


def _table(rows: list[tuple[Any, ...]], ego: Any) -> BoxTable:
    place = np.array([row[0] for row in rows]).reshape(-1, 2).round(3)
    boxes = np.column_stack([place, np.zeros((len(rows), 1)), np.ones((len(rows), 3)), np.zeros(len(rows))])
    return BoxTable.of_frame(
        boxes,
        [row[1] for row in rows],
        track_id=[row[2] for row in rows],
        points=[row[3] for row in rows],
        score=[row[4] for row in rows],
        distance_m=np.hypot(*(place - ego).T),
    )


def devkit_numbers(scenes: Scenes) -> dict[str, Any]:
    """What nuscenes-devkit gives, by our names; it must be installed, with motmetrics."""
    from nuscenes.eval.common.config import config_factory
    from nuscenes.eval.tracking import evaluate

    config = config_factory("tracking_nips_2019")
    run = object.__new__(evaluate.TrackingEval)
    run.cfg, run.verbose, run.output_dir, run.render_classes = config, False, "", None
    run.tracks_gt, run.tracks_pred = (
        _tracks(scenes, table, told) for table, told in ((scenes.labels, False), (scenes.results, True))
    )
    metrics, _ = run.evaluate()
    return {
        **{ours: metrics.compute_metric(theirs) for ours, theirs in NAMES.items()},
        "classes": {
            label: {ours: metrics.label_metrics[theirs][label] for ours, theirs in NAMES.items()}
            for label in CLASSES
        },
    }


class _Tables:
    """As much of the devkit's tables as it asks for."""

    def __init__(self, scenes: Scenes) -> None:
        self._scene = scenes.scene
        self._time = scenes.time_us

    def get(self, table: str, token: str) -> dict[str, Any]:
        if table == "scene":
            first = self._scene.index(int(token))
            last = first + self._scene.count(int(token)) - 1
            return {"name": token, "first_sample_token": str(first), "last_sample_token": str(last)}
        frame = int(token)
        return {
            "scene_token": str(self._scene[frame]), "timestamp": self._time[frame], "next": str(frame + 1),
        }  # fmt: skip


def _tracks(scenes: Scenes, table: BoxTable, told: bool) -> Any:
    from unittest.mock import patch

    from nuscenes.eval.common.data_classes import EvalBoxes
    from nuscenes.eval.tracking import loaders
    from nuscenes.eval.tracking.data_classes import TrackingBox

    made = EvalBoxes()
    for frame in range(len(scenes.scene)):
        boxes = []
        for row in np.flatnonzero(table.frame == frame):
            box = TrackingBox(
                sample_token=str(frame),
                translation=tuple(table.boxes[row, :3].tolist()),
                size=(1.0, 1.0, 1.0),
                rotation=(1.0, 0.0, 0.0, 0.0),
                num_pts=int(table.points[row]),
                tracking_id=str(table.track_id[row]),
                tracking_name=str(table.label[row]),
                tracking_score=float(table.score[row]) if told else -1.0,
            )
            near = table.distance_m[row] < TRACKING_RANGES_M[box.tracking_name]
            if near and box.num_pts != 0:
                boxes.append(box)
        made.add_boxes(str(frame), boxes)
    names = sorted({str(number) for number in scenes.scene})
    with patch.object(loaders, "get_scenes_of_split", lambda split_name, nusc: names):
        return loaders.create_tracks(made, _Tables(scenes), "every", gt=not told)
