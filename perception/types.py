"""Point clouds, boxes and detections.

All boxes are ``(x, y, z, length, width, height, yaw)``: metres and radians in the LiDAR frame
(x forward, y left, z up), z at the box centre, yaw counter-clockwise from +x. See docs/conventions.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from perception.boxes import BOX_FIELDS
from perception.class_names import same_class, unknown_class
from perception.drawing import Picture, drawing
from perception.vectors import packed, unpacked

FloatArray = npt.NDArray[np.float32]

#: Row numbers or a mask.
RowChoice = npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_]

#: Length of the vectors in :attr:`Detections.embeddings`.
EMBEDDING_DIM = 128

#: Name of the sensor's frame: x forward, y left, z up.
LIDAR_FRAME = "lidar"


def check_columns(shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` unless points are (N, 4), or (N, 3) without intensity."""
    if len(shape) == 2 and shape[1] in (3, 4):
        return
    advice = "Pass one row per point"
    if len(shape) == 2 and shape[0] in (3, 4, 5) and shape[1] > 16:
        advice = "Pass the transposed array, points.T, with one row per point"
    elif len(shape) == 2 and shape[1] > 4:
        advice = "Select four columns, for example points[:, :4] if ring or time follow"
    raise ValueError(
        "points must have shape (N, 4): x, y, z, intensity, or (N, 3) without intensity;"
        f" got {shape}. {advice}."
    )


def _column_warning(column: npt.NDArray[Any]) -> str:
    """Return the warning for a fifth column that is dropped."""
    whole = bool(len(column)) and bool(((column >= 0) & (column < 256) & (column == np.floor(column))).all())
    meaning = "ring numbers" if whole else "times"
    return (
        f"points have a fifth column, which looks like {meaning}: it is ignored;"
        " pass points[:, :4] to avoid this warning"
    )


def _check_embeddings(embeddings: FloatArray, count: int) -> None:
    if embeddings.shape != (count, EMBEDDING_DIM) or embeddings.dtype != np.float32:
        raise ValueError(
            f"embeddings must be ({count}, {EMBEDDING_DIM}) float32, one vector per box;"
            f" got {embeddings.shape} {embeddings.dtype}"
        )
    squared = np.einsum("ij,ij->i", embeddings, embeddings)
    # The negated comparison also catches NaN.
    wrong = ~(np.abs(squared - 1.0) < 2e-3)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"embeddings must be finite unit vectors: row {row} has length {np.linalg.norm(embeddings[row])}."
            " Divide each row by its length."
        )


@dataclass(frozen=True, eq=False)
class PointCloud:
    """Point cloud of one scan.

    Attributes:
        points: (N, 4) float32: x, y, z in metres in ``frame``, intensity in [0, 1]. Other real dtypes are
            converted. (N, 3) gets zero intensity; of (N, 5) the last column is dropped with a warning.
        frame: name of the coordinate frame; ``"lidar"`` is x forward, y left, z up, as seen by one sensor.
            In a frame of another name x points forward too, but points may all lie behind.
        timestamp_ns: time of the scan in nanoseconds since the epoch, if known.
        source: file or sensor of the scan, used in messages.
        sensor_height_m: height of the sensor above the ground if it differs from the training data; see
            :class:`~perception.scans.ScanTransform`.
        warnings: remarks of the reader; the detector copies them to the detections.
        ages_s: (N,) float32 age of each point relative to the scan, in seconds, if past scans were merged
            (:mod:`perception.scans.sweeps`); None for a scan alone.

    Raises:
        TypeError: ``points`` is not a numpy array of real numbers.
        ValueError: ``points`` does not have 3 to 5 columns, or ``ages_s`` not one number per point.
    """

    points: FloatArray
    frame: str = LIDAR_FRAME
    timestamp_ns: int | None = None
    source: str | None = None
    sensor_height_m: float | None = None
    warnings: tuple[str, ...] = field(default=())
    ages_s: FloatArray | None = None

    def __post_init__(self) -> None:
        points = self.points
        if not isinstance(points, np.ndarray):
            raise TypeError(f"points must be a numpy array of shape (N, 4), got {type(points).__name__}")
        if points.shape[1:] != (5,):
            check_columns(tuple(points.shape))
        if points.dtype.kind not in "fiu":
            raise TypeError(f"points must be an array of float or integer numbers, got dtype {points.dtype}")
        if points.shape[1] == 5:
            object.__setattr__(self, "warnings", (*self.warnings, _column_warning(points[:, 4])))
            points = points[:, :4]
        if points.dtype != np.float32 or points.shape[1] == 3 or points is not self.points:
            made = np.zeros((len(points), 4), np.float32)
            with np.errstate(over="ignore", invalid="ignore"):
                made[:, : points.shape[1]] = points
            object.__setattr__(self, "points", made)
        if self.ages_s is not None and self.ages_s.shape != (len(self.points),):
            raise ValueError(f"ages_s must be ({len(self.points)},), got {self.ages_s.shape}")

    def take(self, which: RowChoice) -> PointCloud:
        """Return the points of a mask or of row numbers, with their ages."""
        ages = None if self.ages_s is None else self.ages_s[which]
        return replace(self, points=self.points[which], ages_s=ages)

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, eq=False)
class Boxes3D:
    """Labelled boxes, for example the ground truth of a frame.

    Attributes:
        boxes: (M, 7) float32, LiDAR frame; see :mod:`perception.types`.
        labels: M class names.
    """

    boxes: FloatArray
    labels: list[str]

    def __post_init__(self) -> None:
        boxes = np.asarray(self.boxes, dtype=np.float32).reshape(-1, 7)
        object.__setattr__(self, "boxes", boxes)
        if len(boxes) != len(self.labels):
            raise ValueError(f"{len(boxes)} boxes but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.boxes)


class Detection(NamedTuple):
    """One detected object.

    Attributes:
        box: (7,) float32, LiDAR frame; see :mod:`perception.types`.
        score: in [0, 1].
        label: class name.
    """

    box: FloatArray
    score: float
    label: str


@dataclass(frozen=True, eq=False)
class Detections:
    """Objects detected in one scan, best score first.

    >>> detections[0].label, detections[:5].boxes.shape, len(detections[detections.scores > 0.8])
    >>> for box, score, label in detections.filter(labels=["Car"], region_m=(0, -10, 40, 10)): ...

    Attributes:
        boxes: (M, 7) float32, LiDAR frame; see :mod:`perception.types`.
        scores: (M,) float32 in [0, 1], descending.
        labels: M class names.
        timestamp_ns: time of the scan in nanoseconds, if known.
        source: file or sensor of the scan, if known.
        warnings: dropped points, reached limits, and doubts about the scan (unit, axes, height, intensity,
            range) with a fix.
        embeddings: (M, 128) float32 unit vectors, similar for observations of one object; None if the
            weights have no embedding head.
        classes: all classes of the detector; empty if unknown, for example for boxes read from a file.
        velocities: (M, 2) float32 velocities over the ground, m/s along x and y of the LiDAR frame, NaN where
            unknown; None if the detector estimates none (``head.velocity``).
        limits_reached: configuration fields of limits per frame that the scan reached, such as
            ``"head.top_k"``, so that weak or far objects may be missing.

    Raises:
        ValueError: boxes, scores and labels differ in length, ``embeddings`` are not (M, 128) float32 unit
            vectors, or ``velocities`` are not (M, 2).
    """

    boxes: FloatArray
    scores: FloatArray
    labels: list[str]
    timestamp_ns: int | None = None
    source: str | None = None
    warnings: tuple[str, ...] = field(default=())
    embeddings: FloatArray | None = None
    classes: tuple[str, ...] = ()
    velocities: FloatArray | None = None
    limits_reached: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (len(self.boxes) == len(self.scores) == len(self.labels)):
            raise ValueError(
                f"boxes, scores and labels differ in length: "
                f"{len(self.boxes)}, {len(self.scores)}, {len(self.labels)}"
            )
        if self.embeddings is not None:
            _check_embeddings(self.embeddings, len(self.boxes))
        if self.velocities is not None and self.velocities.shape != (len(self.boxes), 2):
            raise ValueError(f"velocities must be ({len(self.boxes)}, 2), got {self.velocities.shape}")

    def __len__(self) -> int:
        return len(self.boxes)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {label}" for label, count in Counter(self.labels).most_common())
        parts = [counts or "no objects"]
        if len(self):
            parts.append(f"scores {self.scores.min():.2f} to {self.scores.max():.2f}")
        if self.source is not None:
            parts.append(f"source={self.source!r}")
        if self.warnings:
            parts.append(f"{len(self.warnings)} warning{'s' * (len(self.warnings) > 1)}")
        return f"Detections({'; '.join(parts)})"

    @overload
    def __getitem__(self, which: int) -> Detection: ...
    @overload
    def __getitem__(self, which: slice | Sequence[int] | Sequence[bool] | RowChoice) -> Detections: ...
    def __getitem__(
        self, which: int | slice | Sequence[int] | Sequence[bool] | RowChoice
    ) -> Detection | Detections:
        """Return one detection by its index, or several by a slice, indices or a mask.

        Raises:
            IndexError: index out of range, or a mask of another length.
        """
        if isinstance(which, int | np.integer):
            row = int(which)
            return Detection(self.boxes[row], float(self.scores[row]), self.labels[row])
        if not isinstance(which, slice) and len(which) == 0:
            which = slice(0, 0)
        rows = np.arange(len(self))[which]
        labels = [self.labels[row] for row in rows]
        vectors = None if self.embeddings is None else self.embeddings[rows]
        return replace(
            self,
            boxes=self.boxes[rows],
            scores=self.scores[rows],
            labels=labels,
            embeddings=vectors,
            velocities=None if self.velocities is None else self.velocities[rows],
        )

    def __iter__(self) -> Iterator[Detection]:
        """Iterate over single detections."""
        return (self[row] for row in range(len(self)))

    def filter(
        self,
        *,
        min_score: float | Mapping[str, float] = 0.0,
        labels: Iterable[str] | None = None,
        region_m: tuple[float, float, float, float] | None = None,
    ) -> Detections:
        """Return the detections that meet all conditions.

        Args:
            min_score: lowest score, for all classes or by class name (other classes: 0).
            labels: class names.
            region_m: x_min, y_min, x_max, y_max in metres, LiDAR frame; box centres must lie inside.

        Raises:
            TypeError: ``labels`` is a string.
            ValueError: unknown class, or an empty region.
        """
        if isinstance(labels, str):
            raise TypeError(f"labels must be a list of names, such as [{labels!r}], got {labels!r}")
        labels = None if labels is None else list(labels)
        self._check_classes([*(labels or ()), *(min_score if isinstance(min_score, Mapping) else ())])
        least = min_score if isinstance(min_score, Mapping) else dict.fromkeys(self.labels, min_score)
        kept = self.scores >= np.array([least.get(label, 0.0) for label in self.labels], np.float32)
        if labels is not None:
            wanted = set(labels)
            kept &= np.array([label in wanted for label in self.labels], np.bool_)
        if region_m is not None:
            x_min, y_min, x_max, y_max = region_m
            if not (x_min < x_max and y_min < y_max):
                raise ValueError(f"region_m must be x_min, y_min, x_max, y_max in metres, got {region_m}")
            x, y = self.boxes[:, 0], self.boxes[:, 1]
            kept &= (x >= x_min) & (x <= x_max) & (y >= y_min) & (y <= y_max)
        return self[kept]

    def _check_classes(self, names: Iterable[str]) -> None:
        """Raise for unknown classes; without ``classes``, for other spellings of a detected class."""
        known = list(dict.fromkeys([*self.classes, *self.labels]))
        for name in names:
            if name not in known and (self.classes or same_class(name, known) is not None):
                raise ValueError(unknown_class(name, known))

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with label, score, x, y, z, length, width, height (m), yaw (rad).

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        columns = dict(zip(BOX_FIELDS, self.boxes.T, strict=True))
        return pandas.DataFrame({"label": self.labels, "score": self.scores, **columns})

    @overload
    def plot(self, path: None = None, cloud: PointCloud | None = None, **options: Any) -> Picture: ...
    @overload
    def plot(self, path: str | Path, cloud: PointCloud | None = None, **options: Any) -> Path: ...
    def plot(
        self, path: str | Path | None = None, cloud: PointCloud | None = None, **options: Any
    ) -> Path | Picture:
        """Draw the detections from above, inline in a notebook or into a PNG file.

        Args:
            path: PNG file to write; None: return a picture that notebooks show.
            cloud: scan to draw below the boxes.
            **options: options of :func:`perception.visualise.draw_bev`.
        """
        scan = PointCloud(np.zeros((0, 4), np.float32), source=self.source) if cloud is None else cloud
        if path is None:
            return drawing.picture(scan, self, **options)
        return drawing.draw_bev(path, scan, self, **options)

    @classmethod
    def known(cls, **fields: Any) -> Detections:
        """Make detections from all fields without checks, which take a tenth of a detector's call."""
        made = object.__new__(cls)
        made.__dict__.update(fields)
        return made

    @classmethod
    def empty(cls, *, source: str | None = None, warnings: tuple[str, ...] = ()) -> Detections:
        """Return detections without boxes."""
        return cls(
            np.zeros((0, 7), np.float32), np.zeros(0, np.float32), [], source=source, warnings=warnings
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record, one line of ``detections.jsonl``.

        Embeddings are stored in half precision (:mod:`perception.vectors`), as in a memory.
        """
        record: dict[str, Any] = {
            "source": self.source,
            "timestamp_ns": self.timestamp_ns,
            "boxes": [[round(value, 4) for value in box] for box in self.boxes.tolist()],
            "scores": [round(score, 6) for score in self.scores.tolist()],
            "labels": list(self.labels),
            "warnings": list(self.warnings),
            "limits_reached": list(self.limits_reached),
        }
        if self.velocities is not None:
            # JSON has no NaN.
            record["velocities"] = [
                [round(x, 3), round(y, 3)] if math.isfinite(x + y) else None
                for x, y in self.velocities.tolist()
            ]
        return record if self.embeddings is None else record | {"embeddings": packed(self.embeddings)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Detections:
        """Read a record of :meth:`to_dict`; ignore other fields.

        Raises:
            ValueError: a field is missing or wrong.
        """
        missing = [name for name in ("boxes", "scores", "labels") if not isinstance(record.get(name), list)]
        if missing:
            raise ValueError(f"{missing[0]} must be a list, got {record.get(missing[0])!r}")
        vectors = None if record.get("embeddings") is None else unpacked(record["embeddings"], "embeddings")
        velocities = record.get("velocities")
        if velocities is not None:
            rows = [[np.nan, np.nan] if row is None else row for row in velocities]
            velocities = np.array(rows, np.float32).reshape(-1, 2)
        return cls(
            np.array(record["boxes"], np.float32).reshape(-1, 7),
            np.array(record["scores"], np.float32),
            list(record["labels"]),
            timestamp_ns=record.get("timestamp_ns"),
            source=record.get("source"),
            warnings=tuple(record.get("warnings") or ()),
            embeddings=vectors,
            velocities=velocities,
            limits_reached=tuple(record.get("limits_reached") or ()),
        )
