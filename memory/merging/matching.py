"""Comparison of two memories: could they belong to the same object?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.fusion import position_covariances, unit_embeddings
from memory.merging.sizes import ONE_PLACE, size_of
from memory.merging.tracks import Track, different_pairs, tracks_of
from memory.types import KINDS, Kind, Memory, check_choice

#: 99 % of the pairs of observations of one object have a smaller squared Mahalanobis distance (chi-square, 3
#: degrees).
CHI2_99 = 11.344866730144373


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Conditions for memories to belong to the same object.

    Attributes:
        gate: largest squared Mahalanobis distance between positions, under the sum of their covariances.
        least_similarity: smallest cosine between embeddings, if both have one; not required for solid objects
            of one label that overlap, because these are one object seen from two sides.
        replaced_s: after this many seconds another object may have taken the place, so the similarity is
            required.
        max_distance_m: largest distance, however uncertain the positions are.
        max_trajectory_m: largest median distance between two trajectories of one event; for small objects it
            is half their length.
        default_sigma_m: standard deviation of a position without covariance that was seen once.
        floor_sigma_m: smallest standard deviation of a position in any direction.
        kinds: kinds that are merged by place. Events with trajectories are always merged by these.
        distinct_in_frame: memories of one time and one named provenance are different objects, because a
            detector reports each object once per frame; so are tracks of one recording seen at one time.
            Boxes of one label in one place are a double all the same.

    Raises:
        ValueError: a number out of its range.
    """

    gate: float = CHI2_99
    least_similarity: float = 0.7
    replaced_s: float = 43_200.0
    max_distance_m: float = 5.0
    max_trajectory_m: float = 1.5
    default_sigma_m: float = 0.3
    floor_sigma_m: float = 0.02
    kinds: tuple[Kind, ...] = ("object", "place")
    distinct_in_frame: bool = True

    def __post_init__(self) -> None:
        for name in (
            "gate",
            "replaced_s",
            "max_distance_m",
            "max_trajectory_m",
            "default_sigma_m",
            "floor_sigma_m",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {value}")
        if not -1.0 <= self.least_similarity <= 1.0:
            raise ValueError(f"least_similarity must be from -1 to 1, got {self.least_similarity}")
        for kind in self.kinds:
            check_choice("kinds", kind, KINDS)


class Features(NamedTuple):
    """Memories as arrays.

    Attributes:
        group: (N,) int64, the same number for the same map, kind and label.
        position: (N, 3) float64 in metres.
        covariance: (N, 3, 3) float64 in square metres.
        embedding: (N, dim) float32 unit rows; zero without an embedding.
        frame: (N,) int64, the same number for the same time and provenance; -1 without a provenance.
        named: (N,) bool, True with a label.
        half_side_m: (N,) float64, half the shortest side of its box; 0 if unknown.
        seen_ns: (N, 2) int64, times of the first and last observation.
        tracks: tracks of each memory, if they distinguish objects.
    """

    group: NDArray[np.int64]
    position: NDArray[np.float64]
    covariance: NDArray[np.float64]
    embedding: NDArray[np.float32]
    frame: NDArray[np.int64]
    named: NDArray[np.bool_]
    half_side_m: NDArray[np.float64]
    seen_ns: NDArray[np.int64]
    tracks: tuple[tuple[Track, ...], ...]

    @classmethod
    def of(cls, memories: Sequence[Memory], options: MergeOptions) -> Features:
        """Collect the features; ``ValueError`` if embeddings differ in size or a position is unknown."""
        groups: dict[tuple[str, str, str], int] = {}
        frames: dict[tuple[int, str], int] = {}
        group, frame = [], []
        for memory in memories:
            group.append(groups.setdefault((memory.map_id, memory.kind, memory.label), len(groups)))
            named = options.distinct_in_frame and memory.provenance
            key = (memory.time_ns, memory.provenance)
            frame.append(frames.setdefault(key, len(frames)) if named else -1)
        return cls(
            np.array(group, dtype=np.int64),
            np.array([memory.place for memory in memories], dtype=np.float64).reshape(-1, 3),
            position_covariances(
                memories, default_sigma_m=options.default_sigma_m, floor_sigma_m=options.floor_sigma_m
            ),
            unit_embeddings(memories),
            np.array(frame, dtype=np.int64),
            np.array([bool(memory.label) for memory in memories], dtype=bool),
            np.array([min(size_of(memory) or (0.0,)) / 2.0 for memory in memories], dtype=np.float64),
            np.array(
                [(memory.first_sight_ns, memory.last_sight_ns) for memory in memories], dtype=np.int64
            ).reshape(-1, 2),
            tuple(tracks_of(memory) if options.distinct_in_frame else () for memory in memories),
        )


class Match(NamedTuple):
    """Comparison of pairs.

    Attributes:
        same: (P,) bool, True if the pair could be the same object.
        distance_squared: (P,) float64 squared Mahalanobis distance; infinite if another condition failed.
        similarity: (P,) float64 cosine; NaN without both embeddings, or if the distance is too large.
    """

    same: NDArray[np.bool_]
    distance_squared: NDArray[np.float64]
    similarity: NDArray[np.float64]


def mahalanobis_squared(offset: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (P,) float64 from offsets (P, 3) in metres and positive definite covariances (P, 3, 3).

    It is the squared length of the offset after forward substitution with the Cholesky factor. The formula is
    written out, because calling a solver for each 3 x 3 system takes several times as long.
    """
    (a, _, _), (b, d, _), (c, e, f) = np.moveaxis(covariance, 0, 2)
    corner = np.sqrt(a)
    left, low = b / corner, c / corner
    # If one direction is certain and another is not, rounding must not leave a negative pivot.
    middle = np.sqrt(np.maximum(d - left * left, 1e-15 * d))
    below = (e - low * left) / middle
    x = offset[:, 0] / corner
    y = (offset[:, 1] - left * x) / middle
    pivot = np.maximum(f - low * low - below * below, 1e-15 * f)
    z_squared = (offset[:, 2] - low * x - below * y) ** 2 / pivot
    found: NDArray[np.float64] = x * x + y * y + z_squared
    return found


def compare(
    features: Features, first: NDArray[np.int64], second: NDArray[np.int64], options: MergeOptions
) -> Match:
    """Return which pairs of rows could be the same object.

    Args:
        first, second: (P,) int64 rows.
    """
    similarity = np.full(len(first), np.nan)
    squared = np.full(len(first), np.inf)
    with np.errstate(over="ignore"):
        offset = features.position[first] - features.position[second]
        close = np.einsum("pi,pi->p", offset, offset) <= options.max_distance_m**2
    frame = features.frame[first]
    double = in_one_place(features, first, second)
    close &= (features.group[first] == features.group[second]) & (
        (frame < 0) | (frame != features.frame[second]) | double
    )
    # The cheap conditions come first and rule out most pairs.
    rows = np.flatnonzero(close)
    summed = features.covariance[first[rows]] + features.covariance[second[rows]]
    squared[rows] = mahalanobis_squared(offset[rows], summed)
    rows = rows[squared[rows] <= options.gate]
    rows = rows[~different_pairs(features.tracks, first[rows], second[rows]) | double[rows]]
    one, other = features.embedding[first[rows]], features.embedding[second[rows]]
    both = one.any(axis=1) & other.any(axis=1)
    similarity[rows] = np.where(both, np.einsum("pi,pi->p", one, other, dtype=np.float64), np.nan)
    named = features.named[first[rows]]
    # Without a label and without embeddings there is no sign of similarity.
    alike = np.where(both, similarity[rows] >= options.least_similarity, named)
    alike |= named & _could_be_seen_twice(features, first[rows], second[rows], offset[rows], options)
    same = np.zeros(len(first), dtype=bool)
    same[rows[alike]] = True
    return Match(same, squared, similarity)


def in_one_place(
    features: Features, first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return (P,) bool, True if the boxes of two rows are so close that they can only be one object."""
    reach = ONE_PLACE * np.minimum(features.half_side_m[first], features.half_side_m[second])
    with np.errstate(over="ignore"):
        offset = features.position[first] - features.position[second]
        found: NDArray[np.bool_] = np.einsum("pi,pi->p", offset, offset) < reach * reach
    return found


def _could_be_seen_twice(
    features: Features,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    offset: NDArray[np.float64],
    options: MergeOptions,
) -> NDArray[np.bool_]:
    """Return (P,) bool, True if the objects overlap and there was little time to replace one of them."""
    reach = np.minimum(features.half_side_m[first], features.half_side_m[second])
    inside = np.einsum("pi,pi->p", offset, offset) < reach * reach
    # In seconds, because the difference of two times may exceed 64 bits.
    seen, other = features.seen_ns[first] / 1e9, features.seen_ns[second] / 1e9
    pause_s = np.maximum(other[:, 0] - seen[:, 1], seen[:, 0] - other[:, 1])
    together: NDArray[np.bool_] = inside & (pause_s <= options.replaced_s)
    return together
