"""Observations of a track, collected in bounded space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.merging.fusion import unit
from memory.types import Velocity, check_integer, check_numbers, check_text

#: Maximum samples of a track; every second one is dropped when it is reached.
MOST_SAMPLES = 2048
#: Default variance of a position in square metres, as in merging.
_UNKNOWN = 0.3**2
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sights:
    """Observations of tracks at one moment, one row per observed track.

    Attributes:
        time_ns: time in nanoseconds.
        track_id: (n,) distinct integers.
        boxes: (n, 7) in the map: x, y, z, length, width, height, yaw, in metres and radians.
        labels: n class names.
        scores: (n,) from 0 to 1.
        covariance: (n, 3, 3) of the centres in square metres, or ``None``.
        velocities: n velocities in m/s along the axes of the map, each or all ``None`` if unknown.
        embeddings: (n, dim) vectors by encoder name; a row of zeros is no vector.
        evidence: path or URL of the raw data.
        payload: further data of the moment, such as ``seen_from``.

    Raises:
        ValueError: shapes do not match, a track id is repeated, or a box is not finite.
    """

    time_ns: int
    track_id: Sequence[int] | NDArray[np.int64]
    boxes: Floats
    labels: Sequence[str]
    scores: Sequence[float] | Floats
    covariance: Floats | None = None
    velocities: Sequence[Velocity | None] | Floats | None = None
    embeddings: Mapping[str, Floats] = field(default_factory=dict)
    evidence: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_integer("time_ns", self.time_ns)
        numbers = [check_integer("track_id", int(one)) for one in self.track_id]
        boxes = np.asarray(self.boxes, np.float64)
        if boxes.shape != (len(numbers), 7) and len(numbers) + boxes.size > 0:
            raise ValueError(f"boxes must have shape ({len(numbers)}, 7), got {boxes.shape}")
        for name in ("labels", "scores", "covariance", "velocities"):
            value = getattr(self, name)
            if value is not None and len(value) != len(numbers):
                raise ValueError(f"{name} must have {len(numbers)} rows, one per track, got {len(value)}")
        if len(set(numbers)) < len(numbers):
            raise ValueError("track_id: an id is repeated in one moment")
        if not np.isfinite(boxes).all():
            raise ValueError("boxes must be finite")
        for label in self.labels:
            check_text("labels", label)
        if self.velocities is not None:
            rows = [None if row is None else check_numbers("velocities", row, 3) for row in self.velocities]
            object.__setattr__(self, "velocities", rows)
        object.__setattr__(self, "track_id", numbers)
        object.__setattr__(self, "boxes", boxes.reshape(-1, 7))


@dataclass
class TrackSamples:
    """All observations of a track so far.

    Attributes:
        times_ns, boxes, variances, velocities: of each ``every``-th observation, in order.
        sights: number of observations.
        last_ns: time of the last one.
        score: sum of the scores.
        payload: of the last one.
    """

    times_ns: list[int] = field(default_factory=list)
    boxes: list[NDArray[np.float64]] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    velocities: list[Velocity | None] = field(default_factory=list)
    every: int = 1
    sights: int = 0
    last_ns: int = 0
    score: float = 0.0
    payload: Mapping[str, Any] = field(default_factory=dict)
    _labels: dict[str, float] = field(default_factory=dict)
    _vectors: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    _evidence: tuple[str, ...] = ()

    def add(self, sights: Sights, row: int) -> None:
        """Add an observation."""
        score = float(sights.scores[row])
        if self.sights % self.every == 0:
            spread = None if sights.covariance is None else sights.covariance[row]
            self.times_ns.append(sights.time_ns)
            self.boxes.append(np.asarray(sights.boxes[row], np.float64))
            self.velocities.append(None if sights.velocities is None else sights.velocities[row])
            self.variances.append(_UNKNOWN if spread is None else float(spread[0][0] + spread[1][1]) / 2)
            if len(self.times_ns) > MOST_SAMPLES:
                self.every *= 2
                for held in (self.times_ns, self.boxes, self.variances, self.velocities):
                    del held[1::2]
        self.sights += 1
        self.score += score
        self.last_ns = sights.time_ns
        self.payload = sights.payload
        label = sights.labels[row]
        self._labels[label] = self._labels.get(label, 0.0) + score
        for name, vectors in sights.embeddings.items():
            if not vectors[row].any():
                continue
            vector = unit(np.asarray(vectors[row], np.float32)).astype(np.float64)
            self._vectors[name] = self._vectors.get(name, np.zeros(len(vector))) + max(score, 1e-6) * vector
        if sights.evidence:
            self._evidence = (*self._evidence[:1], sights.evidence)

    @property
    def label(self) -> str:
        """The class with the highest sum of scores."""
        return max(sorted(self._labels), key=self._labels.__getitem__)

    @property
    def confidence(self) -> float:
        """Mean score."""
        return min(max(self.score / self.sights, 0.0), 1.0)

    @property
    def evidence(self) -> str:
        """Evidence of the first and last observation."""
        return "\n".join(dict.fromkeys(self._evidence))

    @property
    def vectors(self) -> dict[str, NDArray[np.float32]]:
        """Score-weighted mean vectors by encoder name."""
        return {name: total.astype(np.float32) for name, total in self._vectors.items() if total.any()}
