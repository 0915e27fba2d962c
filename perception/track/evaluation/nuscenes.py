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

from perception.evaluate.box_table import BoxTable, Float64Array, finite_or_none, mean_of_known
from perception.track.evaluation.nuscenes_matching import ClassScenes
from perception.track.evaluation.nuscenes_scenes import CLASSES, scenes_of

#: Recalls at which tracks are evaluated.
RECALL: Float64Array = np.linspace(0.1, 1, 40).round(12)
#: Values of recalls that are not reached.
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
    """Metrics of the nuScenes tracking benchmark; ratios in [0, 1], metres, seconds, NaN where undefined.

    ``amota`` and ``amotp`` are means over 40 recalls. The other figures hold at the score where MOTA is
    greatest; a class without labels has NaN everywhere.

    Attributes:
        classes: class name to figures by name (``FIGURES``). ``motp`` is a mean distance. ``mostly_tracked``
            and ``mostly_lost`` count objects. ``false_alarms`` counts boxes per hundred frames.
            ``true_positives`` excludes switches. ``first_found_s`` is the time until the first match of an
            object.
        frames, scenes: how many were evaluated.
    """

    classes: Mapping[str, Mapping[str, float]]
    frames: int
    scenes: int

    def figure(self, name: str) -> float:
        """Return a figure over all classes: the sum of counts, the mean of everything else.

        Raises:
            KeyError: the name is unknown.
        """
        values = [found[name] for found in self.classes.values()]
        return float(np.nansum(values)) if name in _SUMS else mean_of_known(values)

    @property
    def figures(self) -> dict[str, float]:
        """All figures by name."""
        return {name: self.figure(name) for name in FIGURES}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; None where undefined."""
        return {
            "protocol": "nuscenes tracking",
            "frames": self.frames,
            "scenes": self.scenes,
            **{name: finite_or_none(value) for name, value in self.figures.items()},
            "classes": {
                label: {name: finite_or_none(value) for name, value in found.items()}
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
    """Evaluate tracks by centre distance on the ground.

    Args:
        labels: boxes with ``track_id``, point counts and ego distances, in world axes. Other classes are
            ignored.
        results: boxes with ``track_id`` and scores, of the same frames in the same axes.
        scene: (F,) scene number of each frame.
        time_us: (F,) microseconds, unique within a scene.
        racks: bicycle racks; bicycles and motorcycles inside them are ignored.

    Raises:
        ValueError: a result without score, a repeated id within a frame and class, or a frame without scene.
    """
    scenes, times = np.asarray(scene, np.int64), np.asarray(time_us, np.int64)
    for table in (labels, results):
        if len(table) and (table.frame[-1] >= len(scenes) or len(scenes) != len(times)):
            raise ValueError(
                f"{len(scenes)} scenes and {len(times)} times given; pass one of each for every frame"
            )
        _check_identities(table)
    if np.isnan(results.score).any():
        raise ValueError(f"result {int(np.isnan(results.score).argmax())} has no score; add one to each box")
    parts = scenes_of(labels, results, scene=scenes, time_us=times, racks=racks)
    classes = {name: _measured(ClassScenes(parts, number)) for number, name in enumerate(CLASSES)}
    return NuScenesTracking(classes, len(scenes), len(parts))


def _check_identities(table: BoxTable) -> None:
    if (table.track_id < 0).any():
        row = int((table.track_id < 0).argmax())
        raise ValueError(
            f"frame {table.frame[row]}: a {table.label[row]} has no track_id; add one to each box"
        )
    seen = set()
    for key in zip(table.frame.tolist(), table.label.tolist(), table.track_id.tolist(), strict=True):
        if key in seen:
            raise ValueError(f"frame {key[0]}: {key[1]} {key[2]} occurs twice; make ids unique in each frame")
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
    """Return the scores at which each reachable recall is reached, lowest first."""
    if not len(scores):
        return []
    recall = np.arange(1, len(scores) + 1) / boxes
    wanted = RECALL[recall[-1] >= RECALL]
    found: list[float] = np.interp(wanted, recall, np.sort(scores)[::-1])[::-1].tolist()
    return found


def _mean(values: list[float], worst: float) -> float:
    """Average over all recalls; NaN and unreached recalls count as the worst value."""
    known = np.array(values + [worst] * (len(RECALL) - len(values)))
    return float(np.where(np.isnan(known), worst, known).mean())
