"""Verdicts on new memories from a day's observations: static, moving, or a false positive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from drive.frames import RANGE_M
from memory import Memory
from memory.observe.presence import Change
from memory.observe.views import Views, expected_visible

#: Share of the viewpoints in range from which a static object is seen, including occlusion.
SEEN_SHARE = 0.4
#: Objects with a less probable count and a lower confidence are false positives. A person needs one
#: observation of that confidence, because people move between looks.
DOUBT, SURE = 0.1, 0.85
#: Two objects cannot be this close; of two labels, the less often observed one is wrong.
ONE_PLACE_M = 1.0
#: Looks closer together than this share a viewpoint.
VIEWPOINT_M = 2.0
#: Classes that walk at these speeds and do not stay overnight.
PEOPLE = ("Pedestrian", "Cyclist")
WALKING_M_S, WALKING_S, STILL_M = (0.6, 2.5), (0.5, 2.5), 0.5


class Verdicts(NamedTuple):
    """Ids of memories with the evidence against them.

    Attributes:
        left: objects that are gone, with the reason.
        doubtful: false positives, with the reason.
    """

    left: dict[int, str]
    doubtful: dict[int, str]


def judge(known: Sequence[Memory], seen: Sequence[Memory], change: Change, views: Views) -> Verdicts:
    """Judge known objects by the observations of a day.

    Args:
        known: objects of one map, with ids.
        seen: observations of the day, in time order.
        change: assignment of the observations to known objects.
        views: looks of the day, in time order.
    """
    # Ignore occlusion: the share includes it, and false positives are often inside walls.
    everywhere = replace(views, free_m=None, range_m=RANGE_M)
    in_range = expected_visible(everywhere, [memory.position for memory in known])
    viewpoint = _viewpoints(views)
    look_of = np.searchsorted(views.time_ns, [sight.time_ns for sight in seen])
    moving = _moving(seen)
    started_ns = int(views.time_ns.min())
    verdicts = Verdicts({}, {})
    for row, memory in enumerate(known):
        if memory.id is None:
            continue
        sights = np.flatnonzero(change.matched == row)
        if memory.label in PEOPLE and not len(sights) and memory.last_sight_ns < started_ns:
            verdicts.left[memory.id] = "people do not stay overnight"
        elif memory.first_sight_ns < started_ns:
            continue
        elif len(sights) and moving[sights].mean() > 0.5:
            verdicts.left[memory.id] = "it was walking"
        elif other := _taken_for(memory, known):
            verdicts.doubtful[memory.id] = f"false positive: a {other} is at its place"
        elif memory.label in PEOPLE and len(sights) <= 1 and memory.confidence < SURE:
            verdicts.doubtful[memory.id] = f"false positive: seen once, with a score below {SURE:g}"
        else:
            seen_from = np.unique(viewpoint[look_of[sights]])
            of = np.union1d(seen_from, viewpoint[in_range[:, row]])
            if binom.cdf(len(seen_from), len(of), SEEN_SHARE) < DOUBT:
                count = f"seen from {len(seen_from)} of {len(of)} viewpoints that had it in range"
                if memory.confidence < SURE:
                    verdicts.doubtful[memory.id] = f"false positive: {count}"
                else:
                    verdicts.left[memory.id] = f"present for a moment only: {count}"
    return verdicts


def _taken_for(memory: Memory, known: Sequence[Memory]) -> str | None:
    """Return the label of a more often observed object at the place of a memory."""
    for other in known:
        away = np.hypot(other.position[0] - memory.position[0], other.position[1] - memory.position[1])
        if other.label != memory.label and other.count > memory.count and away < ONE_PLACE_M:
            return other.label
    return None


def _viewpoints(views: Views) -> NDArray[np.int64]:
    """Return the viewpoint number of each look; it changes when the robot has moved on."""
    found = np.zeros(len(views), np.int64)
    at = views.position[0]
    for row, position in enumerate(views.position):
        moved = np.hypot(*(position - at)[:2]) >= VIEWPOINT_M
        found[row] = found[row - 1] + int(moved) if row else 0
        at = position if moved else at
    return found


def _moving(seen: Sequence[Memory]) -> NDArray[np.bool_]:
    """Mark observations of people who were a step away a moment before or after, and not at this place."""
    moving = np.zeros(len(seen), dtype=bool)
    for label in PEOPLE:
        rows = [row for row, sight in enumerate(seen) if sight.label == label]
        at = np.array([seen[row].position[:2] for row in rows]).reshape(-1, 2)
        time_s = np.array([seen[row].time_ns for row in rows], dtype=np.int64) / 1e9
        apart_s = np.abs(time_s[:, None] - time_s[None, :])
        away = np.hypot(*(at[:, None] - at[None, :]).transpose(2, 0, 1))
        beside = (apart_s >= WALKING_S[0]) & (apart_s <= WALKING_S[1])
        speed = away / np.maximum(apart_s, 1e-9)
        stepped = (beside & (speed >= WALKING_M_S[0]) & (speed <= WALKING_M_S[1])).any(axis=1)
        moving[rows] = stepped & ~(beside & (away < STILL_M)).any(axis=1)
    return moving
