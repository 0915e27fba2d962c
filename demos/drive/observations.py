"""All observations of a drive in one store, and how well they are found by an index and by brute force."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drive.comparison import size_of
from drive.frames import SECOND_NS, Frame
from drive.robot import CONFIG, MAP
from drive.senses import VECTORS, Percept, memories_of, place_of
from memory import Memory, MemoryStore, Query
from memory.config import StoreConfig
from memory.questions import Questions

#: Length of a place's vector.
DIM = 256
#: Range of the detector; all confident detections are stored.
RANGE_M = 70.0
#: Greatest distance between a detection and its true object.
OWN_M = 1.5
#: Memories per call of ``add``.
_AT_ONCE = 1000
#: Larger than any number of vectors, so that no index is used.
_NEVER = 10**12
#: Observations within this time belong to the same visit.
_VISIT_NS = 60 * SECOND_NS
_WARM_UP = 10


@dataclass
class ObservationLog:
    """Summary of a drive.

    Attributes:
        days: number of days; the last one provides the queries.
        scans, memories, added_s: counts, and the time spent adding memories.
        path: (2,) of the robot, metres.
        asked: observations of the first loop of the last day, each with the number of its true object, if
            known.
        known: times (nanoseconds) and (2,) positions (metres) at which each true object was in view.
    """

    days: int
    scans: int = 0
    memories: int = 0
    added_s: float = 0.0
    path: list[tuple[float, float]] = field(default_factory=list)
    asked: list[tuple[Memory, int | None]] = field(default_factory=list)
    known: dict[int, list[tuple[int, NDArray[np.float64]]]] = field(default_factory=lambda: defaultdict(list))

    def seen(self, key: int, memory: Memory, within_m: float) -> bool:
        """True if an object was in view on an earlier visit, near its current position."""
        here = np.array(memory.position[:2])
        before = memory.time_ns - _VISIT_NS
        return any(when <= before and np.linalg.norm(at - here) <= within_m for when, at in self.known[key])


def settings(index: str, index_from: int) -> StoreConfig:
    """Return the configuration of a store of all observations."""
    return replace(CONFIG, index=index, index_from=index_from)


def store_all(
    folder: Path, frames: Iterable[tuple[Frame, Percept]], days: int, config: StoreConfig
) -> ObservationLog:
    """Store every observation of all days but the last.

    Args:
        folder: of the store; an existing one is replaced.
        frames: of the drive, in time order.
        days: number of days.
        config: of the store.
    """
    shutil.rmtree(folder, ignore_errors=True)
    sights, waiting = ObservationLog(days), list[Memory]()
    with MemoryStore.open(folder, dim=DIM, config=config) as store:

        def add() -> None:
            started = time.perf_counter()
            store.add(waiting)
            sights.added_s += time.perf_counter() - started
            sights.memories += len(waiting)
            waiting.clear()

        for frame, percept in frames:
            seen = memories_of(frame, percept.detections, MAP, range_m=RANGE_M)
            sights.scans += 1
            sights.path.append((float(frame.map_from_lidar[0, 3]), float(frame.map_from_lidar[1, 3])))
            for place in frame.visible:
                sights.known[place.key].append((frame.time_ns, place.position))
            if frame.day == days - 1:
                if "-loop0-" in frame.name:
                    sights.asked += [(memory, _object_of(memory, frame)) for memory in seen]
                continue
            waiting += [*seen, place_of(frame, percept.vector, MAP)]
            if len(waiting) >= _AT_ONCE:
                add()
        add()
    return sights


def _object_of(memory: Memory, frame: Frame) -> int | None:
    """Return the number of the true object that an observation shows."""
    own = [place for place in frame.visible if place.label == memory.label]
    away = [float(np.linalg.norm(place.position - memory.position[:2])) for place in own]
    return own[int(np.argmin(away))].key if own and min(away) <= OWN_M else None


def found_again(folder: Path, asked: Sequence[Memory], *, k: int = 10) -> dict[str, Any]:
    """Search vectors by the store's index and, interleaved, by comparing all of them.

    Args:
        folder: of the store; a temporary copy of it compares all vectors.
        asked: observations with vectors that are not in the store.
        k: number of nearest vectors.

    Returns:
        ``recall`` of the k nearest, ``ms`` of both sides through :meth:`MemoryStore.query` with quartiles,
        the time to open with the first search, statistics of the index, and its ``plan``.
    """
    twin = folder.with_name(folder.name + "-compared")
    shutil.rmtree(twin, ignore_errors=True)
    shutil.copytree(folder, twin)
    try:
        with MemoryStore.open(twin, dim=DIM) as store:
            compared = replace(store.config, index_from=_NEVER)
        with MemoryStore.open(folder, dim=DIM) as store:
            store.query(_query(asked[0], k))
            store.settle()
        started = time.perf_counter()
        with (
            MemoryStore.open(folder, dim=DIM) as ours,
            MemoryStore.open(twin, dim=DIM, config=compared) as all_of_them,
        ):
            ours.query(_query(asked[0], k))
            opened_s = time.perf_counter() - started
            for memory in asked[:_WARM_UP]:
                ours.query(_query(memory, k))
                all_of_them.query(_query(memory, k))
            times, shares = np.zeros((len(asked), 2)), np.zeros(len(asked))
            for row, memory in enumerate(asked):
                ids = []
                # Alternate which side goes first.
                for side in (0, 1) if row % 2 else (1, 0):
                    started = time.perf_counter()
                    hits = (ours, all_of_them)[side].query(_query(memory, k))
                    times[row, side] = 1e3 * (time.perf_counter() - started)
                    ids.append({hit.memory.id for hit in hits})
                shares[row] = len(ids[0] & ids[1]) / k
            plan, tier = ours.explain(_query(asked[0], k)), ours.tiers()[VECTORS]
    finally:
        shutil.rmtree(twin, ignore_errors=True)
    return {
        "asked": len(asked),
        "k": k,
        "recall": round(float(shares.mean()), 4),
        "all_found": round(float((shares == 1.0).mean()), 4),
        "ms": {"index": _quartiles(times[:, 0]), "compared": _quartiles(times[:, 1])},
        "compared_over_index": round(float(np.median(times[:, 1] / times[:, 0])), 2),
        "opened_s": round(opened_s, 3),
        "vectors": tier.recent + tier.long_term,
        "index": tier.to_json(),
        "plan": {"method": plan.method, "reason": plan.reason, "answered": plan.answered},
        "bytes": size_of(folder),
    }


def recognised_again(folder: Path, sights: ObservationLog, *, most: int, seed: int) -> dict[str, Any]:
    """Ask "have I seen this before?" for parked cars at the start of the last day, judged by the simulator.

    Args:
        folder: of the store, to which these observations are added.
        sights: summary of the drive.
        most: number of questions.
        seed: of their selection.
    """
    with MemoryStore.open(folder, dim=DIM) as store:
        ids = store.add([memory for memory, _ in sights.asked])
        within = store.config.merging.max_distance_m
        cars = [
            (id, memory, key)
            for id, (memory, key) in zip(ids, sights.asked, strict=True)
            if memory.label == "Car" and key is not None
        ]
        chosen = np.random.default_rng(seed).permutation(len(cars))[:most]
        ask, right, times, said = Questions(store, encoder=VECTORS), [], [], ""
        old = []
        for row in chosen:
            id, memory, key = cars[row]
            started = time.perf_counter()
            answer = ask.seen_before(id)
            times.append(1e3 * (time.perf_counter() - started))
            known = sights.seen(key, memory, within)
            old.append(known)
            right.append((answer.last_ns is not None) == known)
            said = said or str(answer)
        size = size_of(folder)
    return {
        "asked": len(chosen),
        "seen_before": int(np.sum(old)),
        "right": round(float(np.mean(right)), 4) if right else None,
        "right_of_seen": _share(right, old),
        "right_of_new": _share(right, [not one for one in old]),
        "ms": _quartiles(np.array(times)) if times else None,
        "said": said,
        "memories": sights.memories + len(sights.asked),
        "bytes": size,
    }


def _query(memory: Memory, k: int) -> Query:
    return Query(embedding=memory.embeddings[VECTORS], encoder=VECTORS, k=k)


def _quartiles(times: NDArray[np.float64]) -> dict[str, float]:
    low, middle, high = (round(float(np.percentile(times, share)), 3) for share in (25, 50, 75))
    return {"median": middle, "lower_quartile": low, "upper_quartile": high}


def _share(right: Sequence[bool], of: Sequence[bool]) -> float | None:
    some = [one for one, taken in zip(right, of, strict=True) if taken]
    return round(float(np.mean(some)), 4) if some else None
