"""The KITTI protocol a second time: one loop inside the other, shapely for polygons, nothing shared.

Slow and plain on purpose, so that it can be read against docs/decisions/0003-kitti-evaluation.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from shapely import Polygon

from perception.data import CameraObject

_LIMITS = {"easy": (40, 0, 0.15), "moderate": (25, 1, 0.30), "hard": (25, 2, 0.50)}
_ALMOST = {"car": "van", "pedestrian": "person_sitting", "cyclist": None}
_NEEDED = {"car": 0.7, "pedestrian": 0.5, "cyclist": 0.5}

Curve = list[float]


class NaiveKitti:
    """Curves of one set of frames; pairwise overlaps are remembered."""

    def __init__(
        self, labels: Mapping[str, list[CameraObject]], results: Mapping[str, list[CameraObject]]
    ) -> None:
        self._frames = [(labels[name], results[name]) for name in labels]
        self._memory: dict[tuple[int, int, str, bool], float] = {}
        self.has_alpha = all(item.alpha != -10 for found in results.values() for item in found)

    def curves(self, class_name: str, metric: str, difficulty: str) -> tuple[Curve, Curve]:
        """41 precisions and 41 orientation similarities."""
        name = class_name.lower()
        scores: list[float] = []
        wanted_count = 0
        for labels, found in self._frames:
            wanted_count += sum(self._label_kind(item, name, difficulty) == "wanted" for item in labels)
            pairs, _ = self._assign(labels, found, name, metric, difficulty, None)
            scores += [found[hit].score for _, hit in pairs]  # type: ignore[misc]
        precision, orientation = [0.0] * 41, [0.0] * 41
        for index, cut in enumerate(_cuts(sorted(scores, reverse=True), wanted_count)):
            right, wrong, similarity = 0, 0, 0.0
            for labels, found in self._frames:
                pairs, false = self._assign(labels, found, name, metric, difficulty, cut)
                right, wrong = right + len(pairs), wrong + false
                for label, hit in pairs:
                    similarity += 0.5 + 0.5 * math.cos(labels[label].alpha - found[hit].alpha)
            total = right + wrong
            precision[index] = right / total if total else math.nan
            orientation[index] = similarity / total if total else math.nan
        return _raised(precision), _raised(orientation)

    def _assign(self, labels, found, name, metric, difficulty, cut):  # type: ignore[no-untyped-def]
        """True positives as (label, detection), and the number of false positives."""
        needed = _NEEDED[name]
        kinds = [_detection_kind(item, name, difficulty) for item in found]
        open_ = [
            kind != "other" and (cut is None or item.score >= cut)
            for item, kind in zip(found, kinds, strict=True)
        ]
        pairs = []
        for index, label in enumerate(labels):
            kind = self._label_kind(label, name, difficulty)
            if kind == "other":
                continue
            able = [
                hit
                for hit in range(len(found))
                if open_[hit] and self._overlap(label, found[hit], metric, False) > needed
            ]
            if not able:
                continue
            if cut is None:
                hit = max(able, key=lambda hit: (found[hit].score, -hit))
            else:
                wanted = [hit for hit in able if kinds[hit] == "wanted"]
                hit = min(able)
                if wanted:
                    hit = max(wanted, key=lambda hit: (self._overlap(label, found[hit], metric, False), -hit))
            open_[hit] = False
            if kind == "wanted" and kinds[hit] == "wanted":
                pairs.append((index, hit))
        false = 0
        for hit, item in enumerate(found):
            if open_[hit] and kinds[hit] == "wanted":
                regions = [label for label in labels if label.type.lower() == "dontcare"]
                false += not any(self._overlap(region, item, metric, True) > needed for region in regions)
        return pairs, false

    @staticmethod
    def _label_kind(item: CameraObject, name: str, difficulty: str) -> str:
        height, occlusion, truncation = _LIMITS[difficulty]
        if item.type.lower() == _ALMOST[name]:
            return "ignored"
        if item.type.lower() != name:
            return "other"
        low = item.box_2d[3] - item.box_2d[1] <= height
        return "ignored" if low or item.occluded > occlusion or item.truncated > truncation else "wanted"

    def _overlap(self, label: CameraObject, item: CameraObject, metric: str, of_detection: bool) -> float:
        key = (id(label), id(item), metric, of_detection)
        if key not in self._memory:
            shared, first, second = _sizes(label, item, metric)
            whole = second if of_detection else second + first - shared
            self._memory[key] = shared / whole if shared > 0 else 0.0
        return self._memory[key]


def _detection_kind(item: CameraObject, name: str, difficulty: str) -> str:
    if abs(item.box_2d[1] - item.box_2d[3]) < _LIMITS[difficulty][0]:
        return "ignored"
    return "wanted" if item.type.lower() == name else "other"


def _cuts(scores: list[float], count: int) -> list[float]:
    cuts: list[float] = []
    target = 0.0
    for index, score in enumerate(scores):
        here, after = (index + 1) / count, (index + 2) / count
        is_last = index == len(scores) - 1
        if is_last or after - target >= target - here:
            cuts.append(score)
            target += 1 / 40
    return cuts


def _raised(values: Curve) -> Curve:
    return [
        value if math.isnan(value) else max(later for later in values[index:] if not math.isnan(later))
        for index, value in enumerate(values)
    ]


def _sizes(label: CameraObject, item: CameraObject, metric: str) -> tuple[float, float, float]:
    """What the boxes share, and the size of each."""
    if metric == "2d":
        a, b = label.box_2d, item.box_2d
        width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
        shared = width * height if width > 0 and height > 0 else 0.0
        return shared, (a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1])
    first, second = _footprint(label), _footprint(item)
    shared = first.intersection(second).area
    if metric == "bev":
        return shared, first.area, second.area
    low = max(label.location[1] - label.height_m, item.location[1] - item.height_m)
    shared *= max(0.0, min(label.location[1], item.location[1]) - low)
    return shared, _volume(label), _volume(item)


def _volume(item: CameraObject) -> float:
    return item.height_m * item.width_m * item.length_m


def _footprint(item: CameraObject) -> Polygon:
    cos, sin = math.cos(item.rotation_y), math.sin(item.rotation_y)
    x, _, z = item.location
    corners = [(0.5, 0.5), (0.5, -0.5), (-0.5, -0.5), (-0.5, 0.5)]
    spots = [(along * item.length_m, across * item.width_m) for along, across in corners]
    return Polygon([(x + cos * u + sin * v, z - sin * u + cos * v) for u, v in spots])
