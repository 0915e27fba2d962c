"""The nuScenes tracking benchmark: AMOTA, AMOTP and CLEAR MOT where MOTA is greatest.

It reproduces ``nuscenes.eval.tracking`` of nuscenes-devkit with its configuration ``tracking_nips_2019``
(Caesar et al., "nuScenes: A multimodal dataset for autonomous driving", CVPR 2020; Weng et al., "3D
Multi-Object Tracking: A Baseline and New Evaluation Metrics", IROS 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.evaluate.box_table import BoxTable, Float64Array
from perception.evaluate.nuscenes.result import mean_of_known
from perception.track.evaluation.nuscenes_matching import ClassScenes
from perception.track.evaluation.nuscenes_scenes import CLASSES, scenes_of

#: Recalls that scores are chosen for.
RECALL: Float64Array = np.linspace(0.1, 1, 40).round(12)
#: What counts where a recall is not reached.
_WORST_AMOTA, _WORST_AMOTP = 0.0, 2.0
_WORST = {
    "recall": 0.0, "motar": 0.0, "mota": 0.0, "motp": 2.0, "false_alarms": 500.0, "true_positives": 0.0,
    "false_positives": math.nan, "id_switches": math.nan, "fragments": math.nan, "mostly_tracked": 0.0,
    "first_found_s": 20.0, "longest_gap_s": 20.0,
}  # fmt: skip
_SUMS = (
    "mostly_tracked", "mostly_lost", "true_positives", "false_positives", "false_negatives", "id_switches",
    "fragments",
)  # fmt: skip
#: Figures of a class, in the order of the devkit.
FIGURES = (
    "amota", "amotp", "recall", "motar", "labels", "mota", "motp", "mostly_tracked", "mostly_lost",
    "false_alarms", "true_positives", "false_positives", "false_negatives", "id_switches", "fragments",
    "first_found_s", "longest_gap_s",
)  # fmt: skip


@dataclass(frozen=True)
class NuScenesTracking:
    """What the benchmark tells; shares in [0, 1], metres, seconds, NaN where there is nothing to tell.

    Attributes:
        classes: class name to figures by name. ``amota`` and ``amotp`` are means over 40 recalls; the others
            are where MOTA is greatest: ``recall``, ``motar``, ``labels``, ``mota``, ``motp`` (mean distance),
            ``mostly_tracked`` and ``mostly_lost`` (things), ``false_alarms`` (in a hundred frames),
            ``true_positives`` (without switches), ``false_positives``, ``false_negatives``, ``id_switches``,
            ``fragments``, ``first_found_s`` (until a thing is found) and ``longest_gap_s``. A class without
            labels has NaN everywhere.
        frames, scenes: how many there are.
    """

    classes: Mapping[str, Mapping[str, float]]
    frames: int
    scenes: int

    def figure(self, name: str) -> float:
        """Over the classes that have it: the sum of counts, the mean of the others.

        Raises:
            KeyError: no such figure.
        """
        values = [found[name] for found in self.classes.values()]
        return float(np.nansum(values)) if name in _SUMS else mean_of_known(values)

    @property
    def figures(self) -> dict[str, float]:
        """All of them."""
        return {name: self.figure(name) for name in FIGURES}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where undefined."""
        return {
            "protocol": "nuscenes tracking",
            "frames": self.frames,
            "scenes": self.scenes,
            **{name: _plain(value) for name, value in self.figures.items()},
            "classes": {
                label: {name: _plain(value) for name, value in found.items()}
                for label, found in self.classes.items()
            },
        }


def nuscenes_measures(
    labels: BoxTable,
    results: BoxTable,
    *,
    scene: Sequence[int] | npt.NDArray[np.int64],
    time_us: Sequence[int] | npt.NDArray[np.int64],
    racks: BoxTable | None = None,
) -> NuScenesTracking:
    """Judge tracks by the distance of centres on the ground.

    Args:
        labels: boxes with ``track_id``, points and distance from the vehicle, in world axes. Those of other
            classes do not take part.
        results: boxes with ``track_id`` and scores, of the same frames in the same axes.
        scene: (F,) number of the scene of each frame that ``frame`` of the tables counts.
        time_us: (F,) microseconds; not the same twice in a scene.
        racks: bicycle racks: bicycles and motorcycles inside them count on neither side.

    Raises:
        ValueError: a result without score, an identity twice in a frame and class, or a frame without scene.
    """
    scenes, times = np.asarray(scene, np.int64), np.asarray(time_us, np.int64)
    for table in (labels, results):
        if len(table) and (table.frame[-1] >= len(scenes) or len(scenes) != len(times)):
            raise ValueError(f"{len(scenes)} scenes and {len(times)} times of frames, but more frames")
        _check_identities(table)
    if np.isnan(results.score).any():
        raise ValueError(f"result {int(np.isnan(results.score).argmax())} has no score")
    parts = scenes_of(labels, results, scene=scenes, time_us=times, racks=racks)
    classes = {name: _measured(ClassScenes(parts, number)) for number, name in enumerate(CLASSES)}
    return NuScenesTracking(classes, len(scenes), len(parts))


def _check_identities(table: BoxTable) -> None:
    if (table.track_id < 0).any():
        row = int((table.track_id < 0).argmax())
        raise ValueError(f"a {table.label[row]} of frame {table.frame[row]} has no track_id")
    seen = set()
    for key in zip(table.frame.tolist(), table.label.tolist(), table.track_id.tolist(), strict=True):
        if key in seen:
            raise ValueError(f"frame {key[0]} has a {key[1]} of one identity more than once")
        seen.add(key)


def _measured(held: ClassScenes) -> dict[str, float]:
    if not held.boxes:
        return dict.fromkeys(FIGURES, math.nan)
    thresholds = _thresholds(np.array(held.count(-math.inf).scores), held.boxes)
    found = {score: held.count(score).figures() for score in dict.fromkeys(thresholds)}
    if not found:
        worst = _WORST | dict.fromkeys(("labels", "false_negatives"), float(held.boxes))
        worst |= {"mostly_lost": float(held.things), "amota": _WORST_AMOTA, "amotp": _WORST_AMOTP}
        return {name: worst[name] for name in FIGURES}
    reached = [found[score] for score in thresholds]
    best = max(reached, key=lambda figures: figures["mota"])
    means = {
        "amota": _mean([figures["motar"] for figures in reached], _WORST_AMOTA),
        "amotp": _mean([figures["motp"] for figures in reached], _WORST_AMOTP),
    }
    return {name: float((means | best)[name]) for name in FIGURES}


def _thresholds(scores: Float64Array, boxes: int) -> list[float]:
    """Scores at which the recalls are reached, of those that are; least first."""
    if not len(scores):
        return []
    recall = np.arange(1, len(scores) + 1) / boxes
    wanted = RECALL[recall[-1] >= RECALL]
    found: list[float] = np.interp(wanted, recall, np.sort(scores)[::-1])[::-1].tolist()
    return found


def _mean(values: list[float], worst: float) -> float:
    """Over all recalls; NaN and those that are not reached count as the worst."""
    known = np.array(values + [worst] * (len(RECALL) - len(values)))
    return float(np.where(np.isnan(known), worst, known).mean())


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
