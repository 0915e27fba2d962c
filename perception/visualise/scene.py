"""Drawable parts of a frame: finite points, visible boxes, corners and plain text."""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perception.track.tracks import Tracks
from perception.types import Boxes3D, Detections, FloatArray

Float64Array = npt.NDArray[np.float64]

#: With more points, percentiles use an even sample of this size.
_SAMPLE_POINTS = 200_000
_UNIT_CORNERS = np.array([[0.5, 0.5], [0.5, -0.5], [-0.5, -0.5], [-0.5, 0.5]])


class DrawnBoxes(NamedTuple):
    """Boxes of one kind, ready to draw.

    Attributes:
        boxes: (M, 7) float32, LiDAR frame, all finite.
        scores: (M,) float32, or None for ground truth.
        labels: M class names.
        track_ids: (M,) int64 of tracks, or None.
    """

    boxes: FloatArray
    scores: FloatArray | None
    labels: list[str]
    track_ids: npt.NDArray[np.int64] | None = None

    def figures(self, row: int) -> str:
        """Return track id and score of a box, if it has them: ``"#12 0.93"``."""
        parts = [] if self.track_ids is None else [f"#{self.track_ids[row]}"]
        return " ".join([*parts, *([] if self.scores is None else [f"{self.scores[row]:.2f}"])])

    @property
    def texts(self) -> list[str]:
        """Class, track id and score of each box."""
        return [f"{label} {self.figures(row)}".rstrip() for row, label in enumerate(self.labels)]


def finite_points(points: FloatArray) -> FloatArray:
    """Return the (M, 4) points with finite x, y and z; intensity that is not finite becomes 0."""
    finite = np.isfinite(points)
    if finite.all():
        return points
    kept: FloatArray = points[finite[:, :3].all(axis=1)]
    kept[:, 3] = np.nan_to_num(kept[:, 3], nan=0.0, posinf=0.0, neginf=0.0)
    return kept


def even_rows(row_count: int, kept_count: int) -> npt.NDArray[np.int64]:
    """Return ``kept_count`` row numbers spread evenly over ``row_count``; all rows if they fit."""
    if row_count <= kept_count:
        return np.arange(row_count, dtype=np.int64)
    return np.arange(kept_count, dtype=np.int64) * row_count // kept_count


def percentile_range(values: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return two percentiles, in [0, 100], of (N,) finite values; (0, 0) without values."""
    if not len(values):
        return 0.0, 0.0
    sample = values[even_rows(len(values), _SAMPLE_POINTS)].astype(np.float64)
    bottom, top = np.percentile(sample, [low, high])
    return float(bottom), float(top)


def height_range(heights: FloatArray) -> tuple[float, float]:
    """Return the ends of the colour scale in metres, at least 1 m apart, for (N,) heights."""
    low, high = percentile_range(heights, 2.0, 98.0)
    return low, max(high, low + 1.0)


def detected(detections: Detections | None, score_threshold: float = 0.0) -> DrawnBoxes:
    """Return finite detections, or tracks, with at least this score."""
    found = Detections.empty() if detections is None else detections
    scores = np.asarray(found.scores, dtype=np.float32)
    identities = found.track_id if isinstance(found, Tracks) else None
    return _drawn(found.boxes, scores, found.labels, score_threshold, identities)


def labelled(ground_truth: Boxes3D | None) -> DrawnBoxes:
    """Return finite ground-truth boxes."""
    truth = Boxes3D(np.zeros((0, 7), np.float32), []) if ground_truth is None else ground_truth
    return _drawn(truth.boxes, None, truth.labels)


def _drawn(
    boxes: FloatArray,
    scores: FloatArray | None,
    labels: list[str],
    least: float = 0.0,
    identities: npt.NDArray[np.int64] | None = None,
) -> DrawnBoxes:
    boxes = np.asarray(boxes, dtype=np.float32).reshape(-1, 7)
    keep = np.asarray(np.isfinite(boxes).all(axis=1))
    if scores is not None:
        keep &= scores >= least
        scores = scores[keep]
    kept = [label for label, fine in zip(labels, keep, strict=True) if fine]
    return DrawnBoxes(boxes[keep], scores, kept, None if identities is None else identities[keep])


def ground_corners(boxes: FloatArray) -> Float64Array:
    """Return (M, 4, 2) corners from above, metres: front left, front right, rear right, rear left."""
    boxes = boxes.astype(np.float64)
    local = _UNIT_CORNERS * boxes[:, None, 3:5]
    cos, sin = np.cos(boxes[:, 6])[:, None], np.sin(boxes[:, 6])[:, None]
    x = local[..., 0] * cos - local[..., 1] * sin
    y = local[..., 0] * sin + local[..., 1] * cos
    corners: Float64Array = np.stack([x, y], axis=-1) + boxes[:, None, :2]
    return corners


def frame_title(title: str | None, source: str | None) -> str:
    """Return the title, or the file name of the source, as one line that can be encoded as UTF-8."""
    text = title if title is not None else PurePath(source or "Frame").name
    text = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def frame_summary(point_count: int, found: DrawnBoxes, truth: DrawnBoxes) -> str:
    """Return the counts of a frame in one line: ``"19,305 points · 16 detections · 15 labelled"``."""
    parts = [f"{point_count:,} point{'' if point_count == 1 else 's'}"]
    parts.append(f"{len(found.labels)} detection{'' if len(found.labels) == 1 else 's'}")
    return " · ".join([*parts, *([f"{len(truth.labels)} labelled"] if truth.labels else [])])
