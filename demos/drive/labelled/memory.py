"""Memory of a labelled real sequence, driven there and back, with one memory per track."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from drive.labelled.scans import PASSES, Observation, add_truth
from drive.robot import Tally
from drive.truth import Truth
from memory import Memory, MemoryStore
from memory.observe.free_space import Looks, mark_free
from memory.tracks import Sights, TrackMemories

_MAP = "sequence"
_FURTHER = "further observations of a track, which is one memory"


@dataclass
class SequenceResult:
    """Result of remembering a sequence.

    Attributes:
        truth: of the labels.
        tally: of the boxes.
        path: of the sensor in the first pass.
        trails: label and (n, 2) trajectory of each track in the first pass.
        gone: memories found to be gone, with the reason.
        every: one memory per box, as for a store without tracks.
        since: number of the store's last operation before the way back.
    """

    truth: Truth = field(default_factory=Truth)
    tally: Tally = field(default_factory=Tally)
    path: list[tuple[float, float]] = field(default_factory=list)
    trails: dict[int, tuple[str, list[tuple[float, float]]]] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    every: list[Memory] = field(default_factory=list)
    since: int = 0


def remember_sequence(store: MemoryStore, seen: Iterable[Observation]) -> SequenceResult:
    """Remember the tracks of all observations.

    Args:
        store: empty.
        seen: from :func:`drive.labelled.scans.observe`.
    """
    driven = SequenceResult()
    things, looks, day = TrackMemories(PASSES[0], map_id=_MAP), Looks(), 0
    for moment, sights, free_m, took_ms in seen:
        if moment.day != day:
            _end_pass(store, driven, things, looks)
            driven.since = store.generation
            things, looks, day = TrackMemories(PASSES[1], map_id=_MAP), Looks(), moment.day
        add_truth(driven.truth, moment)
        driven.tally.detection_ms.append(took_ms)
        started = time.perf_counter()
        _keep(store, driven, things.see(sights))
        driven.tally.observe_ms.append(1e3 * (time.perf_counter() - started))
        driven.tally.offered += len(sights.labels)
        driven.tally.timeline.append((driven.tally.offered, len(store)))
        if free_m is not None:
            yaw = math.atan2(moment.pose[1, 0], moment.pose[0, 0])
            looks.add(_MAP, moment.time_ns, moment.pose[:3, 3].tolist(), yaw, free_m)
        driven.every += [box_memory(sights, row) for row in range(len(sights.labels))]
        if day == 0:
            driven.path.append((float(moment.pose[0, 3]), float(moment.pose[1, 3])))
            for key, label, box in zip(sights.track_id, sights.labels, sights.boxes, strict=True):
                trail = driven.trails.setdefault(int(key), (label, []))
                trail[1].append((float(box[0]), float(box[1])))
    _end_pass(store, driven, things, looks)
    return driven


def box_memory(sights: Sights, row: int) -> Memory:
    """Return the memory of a single box, without its track."""
    box = np.asarray(sights.boxes[row], np.float64)
    return Memory(
        time_ns=sights.time_ns,
        position=(float(box[0]), float(box[1]), float(box[2])),
        yaw=float(box[6]),
        map_id=_MAP,
        label=sights.labels[row],
        confidence=min(float(sights.scores[row]), 1.0),
        payload={"size_m": np.round(box[3:6], 2).tolist()},
        provenance="detector",
    )


def _keep(store: MemoryStore, driven: SequenceResult, memories: list[Memory]) -> None:
    result = store.observe_logged(memories)
    tally = driven.tally
    for kept in result.kept:
        if kept.id is None:
            tally.dropped[f"a track: {kept.reason}"] += 1
    tally.kept += sum(kept.id is not None for kept in result.kept)
    tally.displaced += len(result.displaced)


def _end_pass(store: MemoryStore, driven: SequenceResult, things: TrackMemories, looks: Looks) -> None:
    """End open tracks, consolidate memories, and mark those that are gone."""
    _keep(store, driven, things.end())
    started = time.perf_counter()
    merged = store.consolidate().merged
    driven.tally.consolidation_s.append(time.perf_counter() - started)
    driven.tally.merges += len(merged)
    driven.tally.merged += sum(len(sources) - 1 for _, sources in merged)
    started = time.perf_counter()
    driven.gone |= mark_free(store, looks)
    driven.tally.presence_s.append(time.perf_counter() - started)
    driven.tally.gone = len(driven.gone)
    tally = driven.tally
    tally.dropped[_FURTHER] += tally.offered - tally.kept - tally.dropped.total()
