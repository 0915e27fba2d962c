"""Several memories of one thing become one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from memory.merging.robots import BELIEVED, joined_robots, weights_of
from memory.merging.tracked import joined_tracks
from memory.merging.visits import join_visits, known_visits
from memory.types import Memory, Position, saturated


def position_covariances(
    memories: Sequence[Memory], *, default_sigma_m: float, floor_sigma_m: float
) -> NDArray[np.float64]:
    """Covariances of positions that can be inverted.

    Args:
        memories: N of them.
        default_sigma_m: standard deviation of one observation where a memory has no covariance; a memory that
            stands for ``count`` of them has the covariance of their mean.
        floor_sigma_m: standard deviations along the principal axes are at least this.

    Returns:
        (N, 3, 3) float64 in square metres.
    """
    found = np.empty((len(memories), 3, 3))
    for row, memory in enumerate(memories):
        if memory.covariance is None:
            found[row] = np.eye(3) * (default_sigma_m**2 / memory.count)
        else:
            found[row] = memory.covariance
    values, vectors = np.linalg.eigh(found)
    low = values.min(axis=1, initial=np.inf) < floor_sigma_m**2
    if low.any():
        # Only these: the others keep their bits.
        raised = np.maximum(values[low], floor_sigma_m**2)
        found[low] = (vectors[low] * raised[:, None, :]) @ vectors[low].transpose(0, 2, 1)
    return found


def unit_embeddings(memories: Sequence[Memory]) -> NDArray[np.float32]:
    """(N, dim) float32 unit rows, zero where a memory has no embedding; ``dim`` is 0 where none has one.

    Raises:
        ValueError: sizes differ.
    """
    sizes = {memory.embedding.shape[0] for memory in memories if memory.embedding is not None}
    if len(sizes) > 1:
        raise ValueError(f"embeddings must have one size, got {', '.join(map(str, sorted(sizes)))}")
    rows = np.zeros((len(memories), sizes.pop() if sizes else 0), dtype=np.float32)
    for row, memory in enumerate(memories):
        if memory.embedding is not None:
            rows[row] = unit(memory.embedding)
    return rows


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vector at length 1; in float64, where no square overflows or vanishes."""
    wide = vector.astype(np.float64)
    return (wide / np.linalg.norm(wide)).astype(np.float32)


def fuse(
    memories: Sequence[Memory],
    *,
    default_sigma_m: float = 0.3,
    floor_sigma_m: float = 0.02,
    trust: Mapping[str, float] = MappingProxyType({}),
) -> Memory:
    """One memory for several of one thing.

    Position and covariance are those of the product of the Gaussians (inverse covariance weighting); yaw is
    the circular mean, embeddings the mean of unit vectors at length 1, and reward the mean, all weighted by
    count. Where a mean has no direction, the most recent counts. Counts are added; first and last seen span
    all; visits are those of all, joined where at most a minute is between them
    (:mod:`memory.merging.visits`); confidence and importance are the highest; time, state, caption and label
    are of the most recent, a caption of the most recent that has one; payloads are joined, the more recent
    wins, tracks of all are named, and who saw how much is added up; evidence and provenance are joined line
    by line.

    Where robots are trusted less than others, what they saw weighs less beside it: their information about
    the position, their count in means, and their confidence and importance are multiplied by their share of
    the highest trust. Below half of it they are not the most recent, whatever their time. Counts, first and
    last seen, and who saw it stay as they are.

    Args:
        memories: at least one, of one map and kind; the most recent is the one with the latest ``time_ns``,
            then the higher id.
        default_sigma_m: standard deviation of one observation without covariance.
        floor_sigma_m: no direction of a position is trusted better than this.
        trust: from 0 to 1 by robot; 1 for those that are not there.

    Returns:
        The memory, without an id. Its covariance is ``None`` where none had one, and its position where none
        was known.

    Raises:
        ValueError: no memory, several maps or kinds, or embeddings of different sizes.
    """
    if not memories:
        raise ValueError("there is nothing to fuse")
    for name in ("map_id", "kind"):
        found = sorted({getattr(memory, name) for memory in memories})
        if len(found) > 1:
            raise ValueError(f"memories of one {name} can be fused, got {', '.join(found)}")
    # The most recent first.
    shares = weights_of(memories, trust).tolist()
    ranked = sorted(
        zip(memories, shares, strict=True),
        key=lambda pair: (pair[1] >= BELIEVED, pair[0].time_ns, pair[0].id or 0),
        reverse=True,
    )
    ordered, weights = [memory for memory, _ in ranked], np.array([share for _, share in ranked])
    latest = ordered[0]
    counts = weights * np.array([memory.count for memory in ordered], dtype=np.float64)
    position, covariance = _fused_position(ordered, weights, default_sigma_m, floor_sigma_m)
    names = sorted({name for memory in ordered for name in memory.embeddings})
    embeddings = {
        name: _mean_direction([memory.embeddings.get(name) for memory in ordered], counts) for name in names
    }
    importances = [share * memory.importance for memory, share in ranked if memory.importance is not None]
    payload: dict[str, object] = {}
    for memory in reversed(ordered):
        payload.update(memory.payload)
    payload.update(joined_tracks(ordered))
    payload.update(joined_robots(ordered))
    return Memory(
        time_ns=latest.time_ns,
        position=position,
        yaw=_mean_yaw(np.array([memory.yaw for memory in ordered]), counts),
        covariance=covariance if any(memory.covariance is not None for memory in ordered) else None,
        map_id=latest.map_id,
        kind=latest.kind,
        label=latest.label,
        caption=next((memory.caption for memory in ordered if memory.caption), ""),
        embedding=_mean_direction([memory.embedding for memory in ordered], counts),
        embeddings={name: vector for name, vector in embeddings.items() if vector is not None},
        confidence=max(share * memory.confidence for memory, share in ranked),
        reward=_mean_reward(np.array([memory.reward for memory in ordered]), counts),
        payload=payload,
        evidence=_joined(memory.evidence for memory in reversed(ordered)),
        provenance=_joined(memory.provenance for memory in reversed(ordered)),
        marked=any(memory.marked for memory in ordered),
        count=saturated(sum(memory.count for memory in ordered)),
        first_seen_ns=min(memory.first_sight_ns for memory in ordered),
        last_seen_ns=max(memory.last_sight_ns for memory in ordered),
        # None for one sight, which its time tells all of.
        visits=latest.visits if len(ordered) == 1 else join_visits(chain(*map(known_visits, ordered))),
        state=latest.state,
        importance=max(importances, default=None),
    )


def _fused_position(
    memories: Sequence[Memory], weights: NDArray[np.float64], default_sigma_m: float, floor_sigma_m: float
) -> tuple[Position | None, NDArray[np.float64] | None]:
    """Mean and covariance (3, 3) of the product of the Gaussians; ``None`` where no position is known."""
    rows = [row for row, memory in enumerate(memories) if memory.position is not None]
    if not rows:
        return None, None
    memories, weights = [memories[row] for row in rows], weights[rows]
    information = np.linalg.inv(
        position_covariances(memories, default_sigma_m=default_sigma_m, floor_sigma_m=floor_sigma_m)
    )
    information *= weights[:, None, None]
    origin = np.array(memories[0].place)
    # Offsets from one of them keep their digits where the map's origin is far away.
    offset = np.array([memory.place for memory in memories]) - origin
    covariance = np.linalg.inv(information.sum(axis=0))
    mean = covariance @ np.einsum("nij,nj->i", information, offset)
    x, y, z = (origin + mean).tolist()
    return (x, y, z), (covariance + covariance.T) / 2.0


def _mean_reward(rewards: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """Mean by count; in shares where the sum is more than a float holds."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(np.average(rewards, weights=counts))
        if not math.isfinite(mean):
            mean = float(np.clip((rewards * (counts / counts.sum())).sum(), rewards.min(), rewards.max()))
    return mean


def _mean_yaw(yaws: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """Circular mean in (-pi, pi]; the first where the directions cancel."""
    sine, cosine = float(counts @ np.sin(yaws)), float(counts @ np.cos(yaws))
    if math.hypot(sine, cosine) <= 1e-9 * float(counts.sum()):
        sine, cosine = math.sin(yaws[0]), math.cos(yaws[0])
    mean = math.atan2(sine, cosine)
    return math.pi if mean == -math.pi else mean


def _mean_direction(
    vectors: Sequence[NDArray[np.float32] | None], counts: NDArray[np.float64]
) -> NDArray[np.float32] | None:
    """Mean of the unit vectors that there are at length 1; the first where they cancel."""
    known = [(vector, count) for vector, count in zip(vectors, counts, strict=True) if vector is not None]
    if not known:
        return None
    if len({len(vector) for vector, _ in known}) > 1:
        raise ValueError("embeddings must have one size")
    units = np.array([unit(vector) for vector, _ in known], dtype=np.float64)
    weights = np.array([count for _, count in known])
    mean = weights @ units / weights.sum()
    length = float(np.linalg.norm(mean))
    found: NDArray[np.float32] = (mean / length if length > 1e-6 else units[0]).astype(np.float32)
    return found


def _joined(texts: Iterable[str]) -> str:
    """Lines of all texts, each once, in the order of first appearance."""
    return "\n".join(dict.fromkeys(line for text in texts for line in text.split("\n") if line))
