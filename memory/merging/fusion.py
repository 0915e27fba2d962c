"""Fusion of several memories of one object into one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from memory.merging.robots import BELIEVED, join_robots, weights_of
from memory.merging.tracks import join_tracks
from memory.merging.trajectories import joined, motion_caption, trajectory_of, trajectory_payload
from memory.merging.visits import join_visits, known_visits
from memory.types import Memory, Position, saturated


def position_covariances(
    memories: Sequence[Memory], *, default_sigma_m: float, floor_sigma_m: float
) -> NDArray[np.float64]:
    """Return covariances of positions that can be inverted.

    Args:
        default_sigma_m: standard deviation of one observation, for memories without a covariance; a memory of
            ``count`` observations gets the covariance of their mean.
        floor_sigma_m: smallest standard deviation along the principal axes.

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
        # Change only these rows, so that the others stay bit-identical.
        raised = np.maximum(values[low], floor_sigma_m**2)
        found[low] = (vectors[low] * raised[:, None, :]) @ vectors[low].transpose(0, 2, 1)
    return found


def unit_embeddings(memories: Sequence[Memory]) -> NDArray[np.float32]:
    """Return (N, dim) float32 unit rows, zero without an embedding; ``dim`` is 0 if no memory has one.

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
    """Scale a vector to length 1, in float64, so that squares neither overflow nor vanish."""
    wide = vector.astype(np.float64)
    return (wide / np.linalg.norm(wide)).astype(np.float32)


def fuse(
    memories: Sequence[Memory],
    *,
    default_sigma_m: float = 0.3,
    floor_sigma_m: float = 0.02,
    trust: Mapping[str, float] = MappingProxyType({}),
) -> Memory:
    """Fuse several memories of one object into one.

    Position and covariance are the product of the Gaussians (inverse covariance weighting). Yaw is the
    circular mean, an embedding the normalized mean of unit vectors, and reward the mean, all weighted by
    count; if directions cancel, the most recent one is used. Counts are added, and first and last seen span
    all. Visits are joined if at most a minute lies between them (:mod:`memory.merging.visits`). Confidence
    and importance are the highest. Time, state and label are the most recent, and so is the caption, among
    memories with one. The velocity is that of the most recent memory, or unknown if that has none.
    Trajectories of events are averaged where several know a time, and the place is their end. Payloads are
    joined, and the most recent value wins. Tracks and robots are collected; evidence and provenance are
    joined line by line.

    Memories of less trusted robots weigh less: their position information, their count in means, and their
    confidence and importance are multiplied by their share of the highest trust. Below half of it they never
    count as the most recent. Counts, first and last seen, and the robots' shares stay unchanged.

    Args:
        memories: at least one, of one map and kind; the most recent has the latest ``time_ns``, then the
            highest id.
        default_sigma_m: standard deviation of one observation without covariance.
        floor_sigma_m: smallest standard deviation of a position in any direction.
        trust: from 0 to 1 by robot; others count as 1.

    Returns:
        The memory without an id; covariance and position are ``None`` if no memory had one.

    Raises:
        ValueError: no memory, several maps or kinds, or embeddings of different sizes.
    """
    _check_alike(memories)
    ranked = _latest_first(memories, trust)
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
    payload.update(join_tracks(ordered))
    payload.update(join_robots(ordered))
    yaw = _mean_yaw(np.array([memory.yaw for memory in ordered]), counts)
    caption = next((memory.caption for memory in ordered if memory.caption), "")
    velocity = latest.velocity
    trajectories = [found for memory in ordered if (found := trajectory_of(memory)) is not None]
    if len(ordered) > 1 and len(trajectories) == len(ordered):
        trajectory = joined(trajectories)
        # The place of a movement is its end, so the last one to see it decides.
        last = ordered[int(np.argmax([each.time_ns[-1] for each in trajectories]))]
        position, yaw = (*trajectory.places[-1].tolist(), last.place[2]), last.yaw
        velocity = last.velocity
        payload.update(trajectory_payload(trajectory, yaw))
        payload["from"] = [*np.round(trajectory.places[0], 2).tolist(), round(latest.place[2], 2)]
        payload["to"] = [round(value, 2) for value in position]
        caption = motion_caption(latest.label, payload)
    return Memory(
        time_ns=latest.time_ns,
        position=position,
        yaw=yaw,
        covariance=covariance if any(memory.covariance is not None for memory in ordered) else None,
        velocity=velocity,
        map_id=latest.map_id,
        kind=latest.kind,
        label=latest.label,
        caption=caption,
        embedding=_mean_direction([memory.embedding for memory in ordered], counts),
        embeddings={name: vector for name, vector in embeddings.items() if vector is not None},
        confidence=max(share * memory.confidence for memory, share in ranked),
        reward=_mean_reward(np.array([memory.reward for memory in ordered]), counts),
        payload=payload,
        evidence=_join_lines(memory.evidence for memory in reversed(ordered)),
        provenance=_join_lines(memory.provenance for memory in reversed(ordered)),
        marked=any(memory.marked for memory in ordered),
        count=saturated(sum(memory.count for memory in ordered)),
        first_seen_ns=min(memory.first_sight_ns for memory in ordered),
        last_seen_ns=max(memory.last_sight_ns for memory in ordered),
        # One observation needs no visits, because its time is enough.
        visits=latest.visits if len(ordered) == 1 else join_visits(chain(*map(known_visits, ordered))),
        state=latest.state,
        importance=max(importances, default=None),
    )


def _check_alike(memories: Sequence[Memory]) -> None:
    """Raise ``ValueError`` without memories, or if they are of several maps or kinds."""
    if not memories:
        raise ValueError("no memories to fuse. Give at least one")
    for name in ("map_id", "kind"):
        values = sorted({getattr(memory, name) for memory in memories})
        if len(values) > 1:
            raise ValueError(f"only memories of one {name} can be fused, got {', '.join(values)}")


def _latest_first(memories: Sequence[Memory], trust: Mapping[str, float]) -> list[tuple[Memory, float]]:
    """Return memories with their weights, the most recent first; those of distrusted robots come last."""
    return sorted(
        zip(memories, weights_of(memories, trust).tolist(), strict=True),
        key=lambda pair: (pair[1] >= BELIEVED, pair[0].time_ns, pair[0].id or 0),
        reverse=True,
    )


def _fused_position(
    memories: Sequence[Memory], weights: NDArray[np.float64], default_sigma_m: float, floor_sigma_m: float
) -> tuple[Position | None, NDArray[np.float64] | None]:
    """Return mean and covariance (3, 3) of the product of the Gaussians; ``None`` without any position."""
    rows = [row for row, memory in enumerate(memories) if memory.position is not None]
    if not rows:
        return None, None
    memories, weights = [memories[row] for row in rows], weights[rows]
    information = np.linalg.inv(
        position_covariances(memories, default_sigma_m=default_sigma_m, floor_sigma_m=floor_sigma_m)
    )
    information *= weights[:, None, None]
    origin = np.array(memories[0].place)
    # Offsets from one position keep their precision if the map's origin is far away.
    offset = np.array([memory.place for memory in memories]) - origin
    covariance = np.linalg.inv(information.sum(axis=0))
    mean = covariance @ np.einsum("nij,nj->i", information, offset)
    x, y, z = (origin + mean).tolist()
    return (x, y, z), (covariance + covariance.T) / 2.0


def _mean_reward(rewards: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """Return the mean by count, computed in shares if the sum overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(np.average(rewards, weights=counts))
        if not math.isfinite(mean):
            mean = float(np.clip((rewards * (counts / counts.sum())).sum(), rewards.min(), rewards.max()))
    return mean


def _mean_yaw(yaws: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """Return the circular mean in (-pi, pi]; the first value if the directions cancel."""
    sine, cosine = float(counts @ np.sin(yaws)), float(counts @ np.cos(yaws))
    if math.hypot(sine, cosine) <= 1e-9 * float(counts.sum()):
        sine, cosine = math.sin(yaws[0]), math.cos(yaws[0])
    mean = math.atan2(sine, cosine)
    return math.pi if mean == -math.pi else mean


def _mean_direction(
    vectors: Sequence[NDArray[np.float32] | None], counts: NDArray[np.float64]
) -> NDArray[np.float32] | None:
    """Return the normalized mean of the existing unit vectors; the first one if they cancel."""
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


def _join_lines(texts: Iterable[str]) -> str:
    """Return the lines of all texts, each once, in order of first appearance."""
    return "\n".join(dict.fromkeys(line for text in texts for line in text.split("\n") if line))
