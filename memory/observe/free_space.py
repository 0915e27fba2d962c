"""Objects that are gone because their place was seen to be free."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.merging.sizes import size_of
from memory.observe.views import Views, seen_through
from memory.query import Filter
from memory.types import Memory, State


@dataclass(frozen=True, kw_only=True)
class FreeOptions:
    """Thresholds for believing that a place is free.

    Attributes:
        range_m: maximum distance at which an object would certainly block the view.
        near_m: minimum distance of an object to be judged.
        looks: number of views that must pass through its place.
        apart_s: minimum time between these views, in seconds.
        least_height_m: minimum height of an object to be judged; views pass over lower ones.

    Raises:
        ValueError: a number is out of range.
    """

    range_m: float = 25.0
    near_m: float = 3.0
    looks: int = 3
    apart_s: float = 1.0
    least_height_m: float = 0.8

    def __post_init__(self) -> None:
        for name in ("range_m", "near_m", "apart_s", "least_height_m"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} must be finite and not negative, got {value}")
        if self.looks < 1:
            raise ValueError(f"looks must be at least 1, got {self.looks}")


class Look(NamedTuple):
    """Free space around a sensor.

    Attributes:
        map_id: map of the pose.
        time_ns: time in nanoseconds.
        position: x, y, z of the sensor in metres.
        yaw: direction of its x axis in the map, in radians.
        free_m: (bins,) free distance by bearing from -pi counter-clockwise; 0 if unknown.
    """

    map_id: str
    time_ns: int
    position: tuple[float, float, float]
    yaw: float
    free_m: NDArray[np.float64]


class Looks:
    """Looks of a recording, at most one per ``apart_s`` seconds."""

    def __init__(self, apart_s: float = 0.5) -> None:
        self._apart_ns = apart_s * 1e9
        self._looks: dict[str, list[Look]] = defaultdict(list)

    def __len__(self) -> int:
        return sum(map(len, self._looks.values()))

    def add(
        self, map_id: str, time_ns: int, position: Sequence[float], yaw: float, free_m: ArrayLike
    ) -> None:
        """Add a look; see :class:`Look`."""
        known = self._looks[map_id]
        if not known or abs(time_ns - known[-1].time_ns) >= self._apart_ns:
            x, y, z = (float(one) for one in position)
            known.append(Look(map_id, time_ns, (x, y, z), float(yaw), np.asarray(free_m, np.float64)))

    def views(self, map_id: str, options: FreeOptions) -> Views:
        """Return the looks in a map."""
        looks = [look for look in self._looks.get(map_id, []) if len(look.free_m)]
        bins = max((len(look.free_m) for look in looks), default=0)
        looks = [look for look in looks if len(look.free_m) == bins]
        return Views(
            np.array([look.position for look in looks], np.float64).reshape(-1, 3),
            np.array([look.yaw for look in looks], np.float64),
            np.array([look.time_ns for look in looks], np.int64),
            range_m=options.range_m,
            near_m=options.near_m,
            free_m=np.stack([look.free_m for look in looks]) if looks else None,
        )

    @property
    def maps(self) -> list[str]:
        """Return the maps with looks."""
        return sorted(self._looks)


def free_since(
    memories: Sequence[Memory], views: Views, options: FreeOptions | None = None
) -> list[tuple[int, int]]:
    """Count the views through the place of each memory since it was last seen.

    Args:
        memories: N memories of one map. Those without ``size_m`` in their payload, or too low, get no
            views.
        views: views in the map.
        options: thresholds; ``apart_s`` decides which views count.

    Returns:
        (number of views, time of the last in nanoseconds) of each memory, (0, 0) without views.
    """
    options = options or FreeOptions()
    sizes = [None if memory.position is None else size_of(memory) for memory in memories]
    rows = [row for row, size in enumerate(sizes) if size is not None and size[2] >= options.least_height_m]
    found = [(0, 0)] * len(memories)
    cells: dict[tuple[int, int], list[int]] = defaultdict(list)
    side = max(options.range_m, 1.0)
    for row in rows:
        x, y, _ = memories[row].place
        cells[math.floor(x / side), math.floor(y / side)].append(row)
    for (x, y), some in cells.items():
        # Views that reach this part of the map, in order of time.
        place = np.floor(views.position[:, :2] / side)
        near = views.select(np.flatnonzero((np.abs(place - (x, y)) <= 1).all(axis=1)))
        length, width = (np.array([(sizes[row] or (0.0,) * 3)[axis] for row in some]) for axis in (0, 1))
        through = seen_through(near, np.array([memories[row].place for row in some]), width, length)
        for at, row in enumerate(some):
            count, last = 0, memories[row].last_sight_ns
            for time_ns in sorted(near.time_ns[through[:, at]].tolist()):
                if time_ns - last >= 1e9 * options.apart_s:
                    count, last = count + 1, time_ns
            found[row] = (count, last) if count else (0, 0)
    return found


class MarkableStore(Protocol):
    """The part of :class:`memory.store.MemoryStore` that marks objects."""

    def find(self, filter: Filter, *, newest_first: bool = True) -> list[Memory]:
        """Return all memories that match a filter."""
        ...

    def mark(self, ids: list[int], state: State, *, at_ns: int, why: str) -> int:
        """Set the state of objects; return the operation number."""
        ...


def mark_free(store: MarkableStore, looks: Looks, options: FreeOptions | None = None) -> dict[int, str]:
    """Mark objects as gone if enough views passed through their place since they were last seen.

    Hidden, distant and low objects keep their state.

    Args:
        store: store open for writing.
        looks: looks of the recording.
        options: thresholds.

    Returns:
        Ids of the objects that are gone, with the reasons.
    """
    options = options or FreeOptions()
    gone: dict[int, str] = {}
    for map_id in looks.maps:
        views = looks.views(map_id, options)
        if not len(views):
            continue
        known = store.find(
            Filter(map_id=map_id, kinds=("object",), states=("present", "unknown")), newest_first=False
        )
        for memory, (count, last_ns) in zip(known, free_since(known, views, options), strict=True):
            if count >= options.looks and memory.id is not None:
                why = f"its place was seen free: {count} looks went through it"
                store.mark([memory.id], "gone", at_ns=last_ns, why=why)
                gone[memory.id] = why
    return gone
