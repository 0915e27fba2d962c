"""A robot that remembers percepts: it observes, consolidates, and marks what is gone."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drive.frames import FIELD_DEG, RANGE_M, Frame
from drive.senses import Percept, Senses, memories_of, place_of
from drive.verdicts import judge
from memory import Memory, MemoryStore
from memory.config import ReservoirConfig, StoreConfig
from memory.merging import MergeOptions
from memory.observe.presence import PresenceOptions, look_again
from memory.observe.views import Views
from memory.query import Filter

MAP = "town"
MERGING = MergeOptions(max_distance_m=2.0)
#: Four observations per object and hour instead of one, because their mean position is more accurate.
CONFIG = StoreConfig(reservoir=ReservoirConfig(least=4), merging=MERGING)
#: About three of ten parked cars leave per day; scans are less than a second apart.
PRESENCE = PresenceOptions(same=MERGING, prior=0.75, apart_s=0.5)

#: Operations that stay undoable; tidying a day takes a handful.
UNDO_OPERATIONS = 20


@dataclass
class Tally:
    """Counts of what happened to the observations.

    Attributes:
        offered, kept: observations, and those stored immediately.
        dropped: observations not stored, by reason.
        displaced: stored observations that better ones replaced later.
        merges: number of merges.
        merged: memories that merges removed.
        forgotten: memories deleted as false positives or over capacity, by reason.
        gone: memories of objects found to be gone or to have walked on.
        timeline: (offered, held) after each scan.
        detection_ms, observe_ms: per scan; consolidation_s, presence_s: per day.
    """

    offered: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    displaced: int = 0
    merges: int = 0
    merged: int = 0
    forgotten: Counter[str] = field(default_factory=Counter)
    gone: int = 0
    timeline: list[tuple[int, int]] = field(default_factory=list)
    detection_ms: list[float] = field(default_factory=list)
    observe_ms: list[float] = field(default_factory=list)
    consolidation_s: list[float] = field(default_factory=list)
    presence_s: list[float] = field(default_factory=list)

    @property
    def held(self) -> int:
        """Expected number of memories: kept, minus displaced, merged and forgotten."""
        return self.kept - self.displaced - self.merged - self.forgotten.total()


class Look(NamedTuple):
    """A look at the world.

    Attributes:
        map_from_lidar: (4, 4) float64.
        time_ns: time of the look.
        free_m: (bins,) float64, see :func:`drive.senses.free_distances`.
    """

    map_from_lidar: NDArray[np.float64]
    time_ns: int
    free_m: NDArray[np.float64]


class Robot:
    """A robot that detects, remembers, and tidies its memory at the end of a day.

    Args:
        store: with the vector length of :class:`SceneEncoder`, 256.
        senses: computes percepts of scans; by default the shipped detector and encoder.
        map_id: of the memories.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        senses: Callable[[Frame], Percept] | None = None,
        map_id: str = MAP,
    ) -> None:
        self.store = store
        self.map_id = map_id
        self.tally = Tally()
        self.observations: list[Memory] = []
        self.lost: list[Memory] = []
        self.path: list[tuple[float, float]] = []
        self._senses = Senses() if senses is None else senses
        self._today: list[Memory] = []
        self._looks: list[Look] = []

    def see(self, frame: Frame, *, ask_later: bool = False) -> Percept:
        """Remember a scan and return its percept.

        Args:
            frame: with its pose.
            ask_later: do not store the place itself, so that it can be queried later.
        """
        percept = self._senses(frame)
        self.tally.detection_ms.append(percept.detection_ms)
        objects = memories_of(frame, percept.detections, self.map_id)
        observed = objects if ask_later else [*objects, place_of(frame, percept.vector, self.map_id)]
        started = time.perf_counter()
        result = self.store.observe_logged(observed)
        self.tally.observe_ms.append(1e3 * (time.perf_counter() - started))
        for memory, kept in zip(observed, result.kept, strict=True):
            if kept.id is None:
                self.tally.dropped[_kind_of_reason(kept.reason)] += 1
                self.lost.append(memory)
        self.tally.offered += len(observed)
        self.tally.kept += sum(kept.id is not None for kept in result.kept)
        self.tally.displaced += len(result.displaced)
        self.tally.timeline.append((self.tally.offered, len(self.store)))
        self.observations += observed
        self._today += objects
        self._looks.append(Look(frame.map_from_lidar, frame.time_ns, percept.free_m))
        self.path.append((float(frame.map_from_lidar[0, 3]), float(frame.map_from_lidar[1, 3])))
        return percept

    def end_day(self, now_ns: int) -> None:
        """Merge, forget, mark what is gone, and drop undo data older than the day's tidying."""
        started = time.perf_counter()
        done = self.store.consolidate(now_ns=now_ns)
        self.tally.consolidation_s.append(time.perf_counter() - started)
        self.tally.merges += len(done.merged)
        self.tally.merged += sum(len(sources) - 1 for _, sources in done.merged)
        self.tally.forgotten.update(_kind_of_reason(reason) for reason in done.forgotten.values())
        started = time.perf_counter()
        tidied = tidy(self.store, self._today, views_of(self._looks), self.map_id)
        self.tally.gone += tidied.gone
        self.tally.forgotten.update(_kind_of_reason(reason) for reason in tidied.doubtful.values())
        # `MemoryStore.trim` trims earlier sessions only, but this robot runs through the night.
        self.store.database.trim_log(keep_operations=UNDO_OPERATIONS)
        self.tally.presence_s.append(time.perf_counter() - started)
        self._today, self._looks = [], []


def views_of(looks: Sequence[Look]) -> Views:
    """Return the looks of a day, limited to ranges where objects are reliably detected."""
    poses = [look.map_from_lidar for look in looks]
    return Views(
        np.array([pose[:3, 3] for pose in poses]).reshape(-1, 3),
        np.array([math.atan2(pose[1, 0], pose[0, 0]) for pose in poses]),
        np.array([look.time_ns for look in looks], dtype=np.int64),
        # At the edge of the view, detection is less reliable than `detection_probability` assumes.
        range_m=RANGE_M - 8.0,
        field_of_view_rad=math.radians(2 * FIELD_DEG - 10.0),
        near_m=4.0,
        free_m=np.stack([look.free_m for look in looks]) if looks else None,
    )


class TidyResult(NamedTuple):
    """Changes from the observations of a day.

    Attributes:
        gone: number of memories of objects found to be gone or to have walked on.
        doubtful: memories forgotten as false positives, each with the reason.
    """

    gone: int
    doubtful: dict[int, str]


def tidy(store: MemoryStore, seen: Sequence[Memory], views: Views, map_id: str) -> TidyResult:
    """Mark unseen and walked-on objects as gone, and forget false positives."""
    known = store.find(
        Filter(map_id=map_id, kinds=("object",), states=("present", "unknown")), newest_first=False
    )
    if not known or not len(views):
        return TidyResult(0, {})
    change = look_again(known, seen, views, PRESENCE)
    verdicts = judge(known, seen, change, views)
    reasons = verdicts.left | {
        memory.id: "its place was seen empty"
        for memory, presence in zip(known, change.known, strict=True)
        if presence.state in ("gone", "moved") and memory.id is not None
    }
    gone = {key: why for key, why in reasons.items() if key not in verdicts.doubtful}
    for why, ids in _by_reason(gone).items():
        store.mark(ids, "gone", why=why)
    for why, ids in _by_reason(verdicts.doubtful).items():
        store.forget(ids, reason=why)
    return TidyResult(len(gone), verdicts.doubtful)


def _by_reason(reasons: dict[int, str]) -> dict[str, list[int]]:
    """Group ids by reason."""
    found: dict[str, list[int]] = {}
    for key, why in reasons.items():
        found.setdefault(why, []).append(key)
    return found


def _kind_of_reason(reason: str) -> str:
    """Return a reason with its numbers replaced by ``n``."""
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d+(\.\d+)?", "n", reason)).strip()
