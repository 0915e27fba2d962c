"""Which memories should become one, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from memory.merging.absence import Leaving
from memory.merging.clustering import Clusters, same_thing
from memory.merging.fusion import fuse
from memory.merging.matching import Features, MergeOptions
from memory.types import Memory
from memory.wording.reasons import MergeReason


@dataclass(frozen=True)
class MergeProposal:
    """Memories that should become one.

    Attributes:
        ids: of the memories, rising.
        result: the one memory, without an id.
        why: they are one thing.
        gone_ns: when the result was found to be gone, or to have moved; ``None`` where it is there.
    """

    ids: tuple[int, ...]
    result: Memory
    why: MergeReason
    gone_ns: int | None = None


def propose_merges(
    memories: Sequence[Memory],
    options: MergeOptions | None = None,
    *,
    gone_ns: Mapping[int, int] | None = None,
    failed: dict[tuple[int, ...], str] | None = None,
    trust: Mapping[str, float] = MappingProxyType({}),
) -> list[MergeProposal]:
    """Which memories should become one; those that stand for the most observations lead.

    What was seen after something was gone from its place is merged with it only where both have embeddings
    that are alike: then it came back (:mod:`memory.merging.absence`). Otherwise it is another thing.

    Args:
        memories: of any maps, each with an id of its own.
        options: the gates; the defaults where not given.
        gone_ns: by id, when those whose state is ``"gone"`` or ``"moved"`` were found to be; when they were
            last seen where not given.
        failed: takes the ids of what would be one and cannot be made so, with the reason; without it, that is
            raised.
        trust: from 0 to 1 by robot, see :func:`memory.merging.fusion.fuse`; of those trusted less than half
            as much as others who saw a thing, that it is gone does not count.

    Returns:
        Proposals in the order of their lowest id; no memory is in two.

    Raises:
        ValueError: a memory without an id, an id given twice, or embeddings of different sizes.
    """
    options = options or MergeOptions()
    ids = [memory.id for memory in memories]
    if None in ids:
        raise ValueError("every memory must have an id: add it to the store first")
    if len(set(ids)) < len(ids):
        raise ValueError("ids must differ")
    # What is at no known place is at that of nothing else.
    chosen = [m for m in memories if m.kind in options.kinds and m.position is not None]
    if len(chosen) < 2:
        return []
    features = Features.of(chosen, options)
    id_array = np.array([memory.id for memory in chosen], dtype=np.int64)
    counts = np.array([memory.count for memory in chosen], dtype=np.int64)
    # Ids rise along the robot's path; mixed up, leaders far apart are found in one round.
    clusters = same_thing(features, options, np.lexsort((id_array, _mixed(id_array), -counts)))
    leaving = Leaving.of(chosen, gone_ns or {}, trust)
    proposals = []
    waiting = list(_clusters(clusters, np.arange(len(chosen)), id_array))
    while waiting:
        rows, found = waiting.pop()
        parts = leaving.split(rows, features, options) if len(rows) > 1 else [rows]
        if len(parts) > 1:
            # Apart from each other they are perhaps no longer all like the one that led.
            for part in parts:
                order = part[np.lexsort((id_array[part], _mixed(id_array[part]), -counts[part]))]
                again = same_thing(features, options, order)
                waiting += [(some, again) for some, _ in _clusters(again, part, id_array)]
        elif len(rows) > 1:
            members = [chosen[row] for row in rows]
            try:
                fused = fuse(
                    members,
                    default_sigma_m=options.default_sigma_m,
                    floor_sigma_m=options.floor_sigma_m,
                    trust=trust,
                )
            except (ValueError, TypeError, ArithmeticError) as error:
                if failed is None:
                    raise
                failed[tuple(id_array[rows].tolist())] = str(error)
                continue
            left = leaving.of_all(rows)
            result = fused if left is None else replace(fused, state=left.state)
            why = _why(members, rows, found, came_back=left is None and leaving.any(rows))
            at = None if left is None else left.at_ns
            proposals.append(MergeProposal(tuple(id_array[rows].tolist()), result, why, at))
    return sorted(proposals, key=lambda proposal: proposal.ids[0])


def _clusters(
    clusters: Clusters, rows: NDArray[np.int64], ids: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], Clusters]]:
    """Of some rows those of each cluster, in the order of their ids."""
    by_leader = rows[np.lexsort((ids[rows], clusters.leader[rows]))]
    starts = np.flatnonzero(np.diff(clusters.leader[by_leader], prepend=-1))
    for part in np.split(by_leader, starts[1:]):
        yield part, clusters


def _mixed(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Numbers without order, from the ids alone: the finaliser of SplitMix64 (Steele et al. 2014)."""
    found = ids.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


def _why(
    members: Sequence[Memory], rows: NDArray[np.int64], clusters: Clusters, *, came_back: bool
) -> MergeReason:
    """Why they are one."""
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
