"""Trajectories of moving objects: two observers that saw one movement at one time saw one object."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.sizes import ONE_PLACE, size_of
from memory.merging.tracks import are_different, tracks_of
from memory.types import Memory

#: Payload fields of an event: seconds since its start with x and y; the yaw at its end when it was written.
WAY, END_YAW = "way", "end_yaw"
#: Most points of a trajectory in a memory.
MOST_POINTS = 32
#: Shortest time that two trajectories must have in common, and points at which they are compared.
_COMMON_S, _POINTS = 0.25, 8
#: Least time between the points of a joined trajectory.
_APART_NS = 10_000_000
#: Time over which a velocity is measured.
_VELOCITY_S = 0.5
#: Least distance within which two trajectories are one, of small objects.
_SMALLEST_M = 0.5


class Trajectory(NamedTuple):
    """A trajectory in the map.

    Attributes:
        time_ns: (n,) int64, rising.
        places: (n, 2) float64 metres.
    """

    time_ns: NDArray[np.int64]
    places: NDArray[np.float64]

    def at(self, time_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return (k, 2) places at times within the trajectory, by interpolation."""
        start = self.time_ns[0]
        wanted, known = (time_ns - start) / 1e9, (self.time_ns - start) / 1e9
        return np.column_stack([np.interp(wanted, known, self.places[:, axis]) for axis in (0, 1)])

    def velocity_at(self, time_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return (k, 2) metres per second around times within the trajectory."""
        half_ns = round(_VELOCITY_S / 2 * 1e9)
        start = np.maximum(time_ns - half_ns, self.time_ns[0])
        end = np.minimum(time_ns + half_ns, self.time_ns[-1])
        took_s = np.maximum((end - start) / 1e9, 1e-9)
        velocity: NDArray[np.float64] = (self.at(end) - self.at(start)) / took_s[:, None]
        return velocity


def trajectory_of(memory: Memory) -> Trajectory | None:
    """Return the trajectory of an event, or ``None`` if the payload field is missing or invalid.

    The pose of the memory is that of the end. If its map was moved since the event was written, the
    trajectory is moved with it.
    """
    way = memory.payload.get(WAY)
    if memory.kind != "event" or memory.position is None or not isinstance(way, list | tuple) or len(way) < 2:
        return None
    try:
        rows = np.array(way, np.float64)
    except (TypeError, ValueError):
        return None
    if rows.shape != (len(way), 3) or not np.isfinite(rows).all() or (np.diff(rows[:, 0]) <= 0.0).any():
        return None
    end_yaw = memory.payload.get(END_YAW)
    turned = memory.yaw - end_yaw if isinstance(end_yaw, int | float) else 0.0
    sine, cosine = math.sin(turned), math.cos(turned)
    offset = rows[:, 1:] - rows[-1, 1:]
    places = offset @ np.array([[cosine, sine], [-sine, cosine]]) + memory.position[:2]
    return Trajectory(memory.first_sight_ns + np.round(rows[:, 0] * 1e9).astype(np.int64), places)


def trajectory_payload(trajectory: Trajectory, end_yaw: float) -> dict[str, Any]:
    """Return the payload fields of an event with a trajectory."""
    steps = np.diff(trajectory.places, axis=0)
    took_s = float(trajectory.time_ns[-1] - trajectory.time_ns[0]) / 1e9
    length = float(np.hypot(steps[:, 0], steps[:, 1]).sum())
    seconds = (trajectory.time_ns - trajectory.time_ns[0]) / 1e9
    return {
        "length_m": round(length, 2),
        "speed_m_s": round(length / took_s, 2) if took_s > 0 else 0.0,
        WAY: np.column_stack([np.round(seconds, 3), np.round(trajectory.places, 2)]).tolist(),
        END_YAW: round(end_yaw, 4),
    }


def motion_caption(label: str, payload: Mapping[str, Any]) -> str:
    """Return the caption of an event with a trajectory."""
    (_, x0, y0), (took_s, x1, y1) = payload[WAY][0], payload[WAY][-1]
    return (
        f"{label.lower() or 'thing'} moved {payload['length_m']:.0f} m in {took_s:.0f} s, from"
        f" ({x0:.0f}, {y0:.0f}) to ({x1:.0f}, {y1:.0f})"
    )


def distance_between(one: Trajectory, other: Trajectory) -> float:
    """Return the median distance of two trajectories while both were seen; infinite if that was too short."""
    first, last = max(one.time_ns[0], other.time_ns[0]), min(one.time_ns[-1], other.time_ns[-1])
    if last - first < _COMMON_S * 1e9:
        return math.inf
    times = np.linspace(first, last, _POINTS).astype(np.int64)
    apart = one.at(times) - other.at(times)
    return float(np.median(np.hypot(apart[:, 0], apart[:, 1])))


def joined(trajectories: Sequence[Trajectory]) -> Trajectory:
    """Return the mean of trajectories where several know a time, and otherwise the one that does."""
    times = _apart(np.unique(np.concatenate([one.time_ns for one in trajectories])))
    if len(times) > MOST_POINTS:
        times = times[np.linspace(0, len(times) - 1, MOST_POINTS).round().astype(np.int64)]
    total, count = np.zeros((len(times), 2)), np.zeros(len(times))
    for one in trajectories:
        within = (times >= one.time_ns[0]) & (times <= one.time_ns[-1])
        total[within] += one.at(times[within])
        count += within
    known = count > 0
    return Trajectory(times[known], total[known] / count[known, None])


def _apart(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rising times without those right after another one, which would be equal in milliseconds."""
    kept = [int(times[0])]
    for time_ns in times[1:].tolist():
        if time_ns - kept[-1] >= _APART_NS:
            kept.append(time_ns)
    return np.array(kept, np.int64)


class MotionCluster(NamedTuple):
    """Events of one movement.

    Attributes:
        rows: their rows, rising.
        apart_m: largest median distance of two of them that were joined.
    """

    rows: tuple[int, ...]
    apart_m: float


def same_motions(events: Sequence[Memory], widest_m: float) -> list[MotionCluster]:
    """Return the events that are of one movement, seen by several observers or in several tracks.

    They share map and label. While both were seen, their trajectories lie within half the length of the
    object of each other, and within ``widest_m``. The closest pairs are joined first. Two tracks of one
    recording at one time are two objects, unless their boxes are in one place.

    Args:
        events: memories; those without a trajectory stay alone.
        widest_m: largest distance of two trajectories of one object.
    """
    known = [
        (row, found) for row, memory in enumerate(events) if (found := trajectory_of(memory)) is not None
    ]
    known.sort(key=lambda each: (int(each[1].time_ns[0]), each[0]))
    pairs = []
    running: list[tuple[int, Trajectory]] = []
    for row, found in known:
        running = [each for each in running if each[1].time_ns[-1] > found.time_ns[0]]
        for other, its in running:
            one, another = events[row], events[other]
            if (one.map_id, one.label) == (another.map_id, another.label):
                apart_m = distance_between(found, its)
                if apart_m <= min(widest_m, _reach(one), _reach(another)):
                    pairs.append((apart_m, min(row, other), max(row, other)))
        running.append((row, found))
    clusters = {row: [row] for row, _ in known}
    largest: dict[int, float] = {}
    tracks = {row: tracks_of(events[row]) for row, _ in known}
    for apart_m, row, other in sorted(pairs):
        mine, theirs = clusters[row], clusters[other]
        if mine is theirs or any(
            are_different(tracks[a], tracks[b]) and apart_m > min(_double_m(events[a]), _double_m(events[b]))
            for a in mine
            for b in theirs
        ):
            continue
        largest[id(mine)] = max(apart_m, largest.get(id(mine), 0.0), largest.get(id(theirs), 0.0))
        mine += theirs
        for each in theirs:
            clusters[each] = mine
    unique = {id(cluster): cluster for cluster in clusters.values() if len(cluster) > 1}
    return [MotionCluster(tuple(sorted(cluster)), largest[key]) for key, cluster in unique.items()]


def _reach(memory: Memory) -> float:
    """Return half the length of an object in metres."""
    size = size_of(memory)
    return _SMALLEST_M if size is None else max(_SMALLEST_M, size[0] / 2.0)


def _double_m(memory: Memory) -> float:
    """Return the distance within which another box can only be a double."""
    size = size_of(memory)
    return 0.0 if size is None else ONE_PLACE * min(size) / 2.0
