"""Options and results of relocalization."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from memory.plain_values import to_plain
from memory.types import Position
from memory.wording.words import plural, point

#: ``located``: one pose is certain enough; ``ambiguous``: the scan is of the store, but several poses fit;
#: ``unknown``: the scan shows nothing that the store knows, or too little.
Verdict = Literal["located", "ambiguous", "unknown"]


@dataclass(frozen=True, kw_only=True)
class LocateOptions:
    """Settings of relocalization.

    Attributes:
        least_probability: smallest probability of an answer; below it, the answer is refused.
        within_m, within_rad: the probability of a pose is that of an error below both.
        known: probability that the scan is of a mapped place, before any evidence.
        near_place: share of ``known`` for poses near a stored place with its heading; the rest is for any
            pose in the map.
        match: probability that an object in view is in the store, if the store has enough of its label there.
        sigma_m: standard deviation of the position of an object, in the view and in the store.
        most_candidates: maximum number of poses to return.

    Raises:
        ValueError: a number is out of range.
    """

    least_probability: float = 0.9
    within_m: float = 2.0
    within_rad: float = math.radians(5.0)
    known: float = 0.8
    near_place: float = 0.9
    match: float = 0.7
    sigma_m: float = 0.3
    most_candidates: int = 5

    def __post_init__(self) -> None:
        for name in ("least_probability", "known", "near_place", "match"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        for name in ("within_m", "within_rad", "sigma_m"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {getattr(self, name)}")
        if self.most_candidates < 1:
            raise ValueError(f"most_candidates must be at least 1, got {self.most_candidates}")


@dataclass(frozen=True)
class PoseCandidate:
    """A pose that the scan may have been taken from.

    Attributes:
        map_id: map of the pose.
        position: x, y, z of the sensor in metres.
        yaw: direction of its x axis in the map, in radians.
        probability: of an error below ``within_m`` and ``within_rad`` of the options.
        sigma_m, sigma_rad: standard deviations of the position along one axis and of the direction.
        objects: ids of the stored objects that match objects in view.
        place: id of the stored place that resembles the scan most near the pose, or None.
        similarity: cosine similarity to that place, or None.
    """

    map_id: str
    position: Position
    yaw: float
    probability: float
    sigma_m: float
    sigma_rad: float
    objects: tuple[int, ...]
    place: int | None
    similarity: float | None

    def __str__(self) -> str:
        degrees = math.degrees(self.yaw)
        return f"{point(self.position)} in map {self.map_id}, heading {degrees:.0f} degrees"


@dataclass(frozen=True)
class LocateResult:
    """Answer to "where am I?".

    Attributes:
        verdict: ``"located"``, ``"ambiguous"`` or ``"unknown"``.
        candidates: possible poses, the most probable first.
        unknown: probability that the scan is of no mapped place, or that nothing tells.
        seen: number of labelled objects in view.
        reason: why the answer is certain, or refused.
    """

    verdict: Verdict
    candidates: tuple[PoseCandidate, ...]
    unknown: float
    seen: int
    reason: str

    @property
    def pose(self) -> PoseCandidate | None:
        """The pose, or None if the answer is refused."""
        return self.candidates[0] if self.verdict == "located" else None

    def to_json(self) -> dict[str, Any]:
        """Return plain values; ``pose`` is null if the answer is refused."""
        found: dict[str, Any] = to_plain(self)
        return {"pose": None if self.pose is None else found["candidates"][0], **found}

    def __str__(self) -> str:
        if self.pose is not None:
            return f"At {self.pose}: {self.reason}."
        if self.verdict == "ambiguous":
            return f"I cannot tell: {self.reason}."
        return f"Unknown place: {self.reason}."


def evidence_words(candidate: PoseCandidate, seen: int) -> str:
    """Return the evidence of a pose in words."""
    parts = [f"probability {candidate.probability:.2f}"]
    if candidate.objects:
        parts.append(f"{len(candidate.objects)} of {plural(seen, 'object')} in view match")
    if candidate.place is not None and candidate.similarity is not None:
        parts.append(f"similarity {candidate.similarity:.2f} to place {candidate.place}")
    return ", ".join(parts)
