"""Proposals of memories to merge, with reasons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from memory.merging.absence import Departures
from memory.merging.clustering import Clusters, same_thing
from memory.merging.fusion import fuse
from memory.merging.matching import Features, MergeOptions
from memory.merging.trajectories import same_motions, trajectory_of
from memory.types import Memory
from memory.wording.reasons import MergeReason, MotionReason


@dataclass(frozen=True)
class MergeProposal:
    """Memories that should become one.

    Attributes:
        ids: rising ids of the memories.
        result: merged memory, without an id.
        why: reason why they are one object.
        gone_ns: time when the result was found to be gone or moved; ``None`` if it is present.
    """

    ids: tuple[int, ...]
    result: Memory
    why: MergeReason | MotionReason
    gone_ns: int | None = None


def propose_merges(
    memories: Sequence[Memory],
    options: MergeOptions | None = None,
    *,
    gone_ns: Mapping[int, int] | None = None,
    failed: dict[tuple[int, ...], str] | None = None,
    trust: Mapping[str, float] = MappingProxyType({}),
) -> list[MergeProposal]:
    """Propose which memories should become one; memories of the most observations lead.

    An observation after an object left its place joins it only if both have similar embeddings: then the
    object came back (:mod:`memory.merging.absence`). Otherwise it is another object.

    Args:
        memories: memories of any maps, each with an id.
        options: conditions; None: the defaults.
        gone_ns: by id, when memories in state ``"gone"`` or ``"moved"`` were found to be so; by default when
            they were last seen.
        failed: receives the ids and the error of each merge that fails; without it, the error is raised.
        trust: from 0 to 1 by robot, see :func:`memory.merging.fusion.fuse`. A robot trusted less than half as
            much as others who saw the object cannot declare it gone.

    Returns:
        Proposals by their lowest id; no memory is in two.

    Raises:
        ValueError: a memory without an id, an id listed twice, or embeddings of different sizes.
    """
    options = options or MergeOptions()
    ids = [memory.id for memory in memories]
    if None in ids:
        raise ValueError("every memory needs an id. Add the memories to the store first")
    if len(set(ids)) < len(ids):
        raise ValueError("ids must be unique")
    # A memory without a position matches no other.
    moved = [memory for memory in memories if trajectory_of(memory) is not None]
    ways = {memory.id for memory in moved}
    chosen = [m for m in memories if m.kind in options.kinds and m.position is not None and m.id not in ways]
    proposals = _of_motions(moved, options, trust, failed)
    if len(chosen) < 2:
        return sorted(proposals, key=lambda proposal: proposal.ids[0])
    features = Features.of(chosen, options)
    id_array = np.array([memory.id for memory in chosen], dtype=np.int64)
    counts = np.array([memory.count for memory in chosen], dtype=np.int64)
    # Ids rise along the robot's path; shuffled, leaders far apart are found in one round.
    clusters = same_thing(features, options, np.lexsort((id_array, _shuffle_keys(id_array), -counts)))
    departures = Departures.of(chosen, gone_ns or {}, trust)
    waiting = list(_clusters(clusters, np.arange(len(chosen)), id_array))
    while waiting:
        rows, found = waiting.pop()
        parts = departures.split(rows, features, options) if len(rows) > 1 else [rows]
        if len(parts) > 1:
            # The parts may no longer match their former leader, so cluster them again.
            for part in parts:
                order = part[np.lexsort((id_array[part], _shuffle_keys(id_array[part]), -counts[part]))]
                again = same_thing(features, options, order)
                waiting += [(some, again) for some, _ in _clusters(again, part, id_array)]
        elif len(rows) > 1:
            members = [chosen[row] for row in rows]
            fused = _fused(members, options, trust, failed)
            if fused is None:
                continue
            left = departures.of_all(rows)
            result = fused if left is None else replace(fused, state=left.state)
            why = _why(members, rows, found, came_back=left is None and departures.any(rows))
            at = None if left is None else left.at_ns
            proposals.append(MergeProposal(tuple(id_array[rows].tolist()), result, why, at))
    return sorted(proposals, key=lambda proposal: proposal.ids[0])


def _of_motions(
    events: Sequence[Memory],
    options: MergeOptions,
    trust: Mapping[str, float],
    failed: dict[tuple[int, ...], str] | None,
) -> list[MergeProposal]:
    """Propose which events are of one movement."""
    proposals = []
    for cluster in same_motions(events, options.max_trajectory_m):
        members = [events[row] for row in cluster.rows]
        fused = _fused(members, options, trust, failed)
        if fused is not None:
            why = MotionReason(
                memories=len(members),
                apart_m=cluster.apart_m,
                label=members[0].label,
                map_id=members[0].map_id,
            )
            proposals.append(MergeProposal(_ids_of(members), fused, why))
    return proposals


def _fused(
    members: Sequence[Memory],
    options: MergeOptions,
    trust: Mapping[str, float],
    failed: dict[tuple[int, ...], str] | None,
) -> Memory | None:
    """Fuse memories; ``None`` if that fails and ``failed`` receives the error."""
    try:
        return fuse(
            members,
            default_sigma_m=options.default_sigma_m,
            floor_sigma_m=options.floor_sigma_m,
            trust=trust,
        )
    except (ValueError, TypeError, ArithmeticError) as error:
        if failed is None:
            raise
        failed[_ids_of(members)] = str(error)
        return None


def _ids_of(members: Sequence[Memory]) -> tuple[int, ...]:
    return tuple(sorted(memory.id or 0 for memory in members))


def _clusters(
    clusters: Clusters, rows: NDArray[np.int64], ids: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], Clusters]]:
    """Yield the rows of each cluster, in order of their ids."""
    by_leader = rows[np.lexsort((ids[rows], clusters.leader[rows]))]
    starts = np.flatnonzero(np.diff(clusters.leader[by_leader], prepend=-1))
    for part in np.split(by_leader, starts[1:]):
        yield part, clusters


def _shuffle_keys(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return pseudo-random sort keys of ids: the finalizer of SplitMix64 (Steele et al. 2014)."""
    found = ids.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


def _why(
    members: Sequence[Memory], rows: NDArray[np.int64], clusters: Clusters, *, came_back: bool
) -> MergeReason:
    """Return the reason why the members are one object."""
    others = rows[clusters.leader[rows] != rows]
    similarity = clusters.similarity[others]
    return MergeReason(
        memories=len(members),
        kind=members[0].kind,
        deviations=math.sqrt(float(clusters.distance_squared[others].max())),
        similarity=None if np.isnan(similarity).all() else float(np.nanmin(similarity)),
        came_back=came_back,
        label=members[0].label,
        map_id=members[0].map_id,
    )
