"""Scores of weights on each real sensor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.detector.sensors.sources import CLASSES, SOURCES
from perception.data import DataSet, open_data_set
from perception.detector import Detector
from perception.evaluate.boxes.evaluation import evaluate_boxes
from perception.evaluate.boxes.judge import BoxesJudge
from perception.evaluate.data_set import detect_all, judge_of
from perception.evaluate.options import JudgeOptions, MatchRule
from sparse_core.common.files import replacing

_NAMES = {"nuscenes": {"Car": "car", "Pedestrian": "pedestrian", "Cyclist": "bicycle"}}
_RANGES_M = {
    "nuscenes": (-51.2, -51.2, -3.0, 51.2, 51.2, 1.0),
    "dair-vehicle": (-56.32, -56.32, 56.32, 56.32),
    "dair-roadside": (-56.32, -56.32, 56.32, 56.32),
}
#: Boxes of DAIR-V2X count within this distance.
_NEAR_M = 56.0
_LEVELS = ("easy", "moderate", "hard")


def score(weights: str, sensor: str, data: Path, folder: Path, split: str | None = None) -> dict[str, Any]:
    """Return the scores of weights on a sensor, from an earlier call where there is one.

    Args:
        weights: name or file.
        sensor: one of ``SOURCES``.
        data: folder of all data.
        folder: for results and detections.
        split: of the frames; None: all.

    Returns:
        AP in percent by class and metric: KITTI's AP40 of three difficulties, nuScenes' AP, or for
        DAIR-V2X BEV at IoU 0.5 (``bev``), and in space at 0.5 and 0.7 (``3d``, ``3d at 0.7``).
    """
    place = folder / f"{Path(weights).stem}-{sensor}{'' if split is None else f'-{split}'}"
    path = place / "scores.json"
    if not path.is_file():
        place.mkdir(parents=True, exist_ok=True)
        found = _score(
            _detector(weights, sensor), sensor, open_data_set(data / SOURCES[sensor].folder, split), place
        )
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(found, indent=1))
    scores: dict[str, Any] = json.loads(path.read_text())
    return scores


def _detector(weights: str, sensor: str) -> Detector:
    detector = Detector.from_pretrained(weights)
    range_m: Sequence[float] | None = _RANGES_M.get(sensor)
    if range_m is None:
        return detector
    if len(range_m) == 4:
        low, high = detector.config.pillars.heights_m
        range_m = (*range_m[:2], low, *range_m[2:], high)
    return detector.with_range(range_m)


def _score(detector: Detector, sensor: str, data_set: DataSet, folder: Path) -> dict[str, Any]:
    names = _NAMES.get(sensor, {})
    judge = judge_of(data_set, options=JudgeOptions(classes=[names.get(name, name) for name in CLASSES]))
    results = detect_all(detector, judge, folder, names=names)
    if isinstance(judge, BoxesJudge):
        return {
            name: {"bev": near["bev"][name], "3d": near["3d"][name], "3d at 0.7": strict["3d"][name]}
            for near, strict in [(_near(judge, results, 0.5), _near(judge, results, 0.7))]
            for name in CLASSES
        }
    values = judge.evaluate(results).to_dict()
    if judge.protocol == "nuscenes":
        return {name: {"AP": 100 * values["classes"][names[name]]["AP"]} for name in CLASSES}
    return {
        name: {
            metric: [round(values[name][metric]["AP40"][level], 2) for level in _LEVELS]
            for metric in ("bev", "3d")
        }
        for name in CLASSES
    }


def _near(judge: BoxesJudge, results: Path, overlap: float) -> dict[str, dict[str, float | None]]:
    """Return AP by metric and class, of boxes within reach."""
    frames, labels, found, _ = judge.tables(results)
    labels, found = (table.rows(table.distance_m <= _NEAR_M) for table in (labels, found))
    rules = {name: MatchRule("overlap", overlap) for name in CLASSES}
    judged = evaluate_boxes(
        labels,
        found,
        classes=CLASSES,
        rules=rules,
        neighbours=judge.data_set.neighbours,
        frame_count=len(frames),
    )
    return {
        metric: {
            name: round(part.ap[metric], 2) if np.isfinite(part.ap[metric]) else None
            for name, part in judged.classes.items()
        }
        for metric in ("bev", "3d")
    }


def score_all(data: Path, weights: Path, also: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score each training on the sensors that it left out, and others on all sensors.

    Args:
        data: folder of all data.
        weights: folder that ``train`` wrote; ``all.safetensors`` counts as others.
        also: further weights, names or files.

    Returns:
        Scores by weights and sensor. On KITTI, others are scored on the validation frames, and
        trainings without KITTI on all frames.
    """
    jobs: list[tuple[str, str, str | None]] = []
    for report in json.loads((weights / "training.json").read_text()):
        file = str(weights / f"{report['name']}.safetensors")
        jobs += [(file, sensor, None) for sensor in report["without"] if sensor in SOURCES]
        also = also if report["without"] else [*also, file]
    for name in also:
        jobs += [(name, sensor, "val" if sensor == "kitti" else None) for sensor in SOURCES]
    found: dict[str, dict[str, Any]] = {}
    for name, sensor, split in jobs:
        scores = score(name, sensor, data, weights / "scores", split)
        found.setdefault(Path(name).stem, {})[sensor] = scores
        print(Path(name).stem, sensor, split or "", json.dumps(scores), flush=True)
    return found
