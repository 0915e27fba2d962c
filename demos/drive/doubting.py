"""What a day's sights say about things that are new: real and still there, walking, or a false alarm."""

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

#: What stands there is seen from this share of the viewpoints that have it in range, what hides it included.
#: What is seen from so few that this is less probable than the second number was there for a moment, or is a
#: false alarm where the detector was less sure than the third. Of people, who need not be where they were at
#: the next look, one sight is enough where the detector was as sure as that.
SEEN_SHARE, DOUBT, SURE = 0.4, 0.1, 0.85
#: Two things do not stand at one place: of two labels the one that was seen less often is wrong.
ONE_PLACE_M = 1.0
#: Looks from places that are closer than this are one viewpoint.
VIEWPOINT_M = 2.0
#: These walk, this fast, and do not stand at one place overnight.
PEOPLE = ("Pedestrian", "Cyclist")
WALKING_M_S, WALKING_S, STILL_M = (0.6, 2.5), (0.5, 2.5), 0.5


class Verdicts(NamedTuple):
    """Ids of memories with what speaks against them.

    Attributes:
        left: what is there no more, with the reason of each.
        doubtful: false alarms, with the reason of each.
    """

    left: dict[int, str]
    doubtful: dict[int, str]


def weighed(known: Sequence[Memory], seen: Sequence[Memory], change: Change, views: Views) -> Verdicts:
    """Judge what is known by the sights of a day.

    Args:
        known: objects of one map, with their ids.
        seen: observations of the day, in the order of time.
        change: which of them are of which known thing.
        views: looks of the day, in the order of time.
    """
    # Hidden or not: what hides a thing is in the share, and a false alarm is often inside a wall.
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
            verdicts.left[memory.id] = "people do not stand at one place overnight"
        elif memory.first_sight_ns < started_ns:
            continue
        elif len(sights) and moving[sights].mean() > 0.5:
            verdicts.left[memory.id] = "it was walking"
        elif other := _taken_for(memory, known):
            verdicts.doubtful[memory.id] = f"a false alarm: a {other} is there"
        elif memory.label in PEOPLE and len(sights) <= 1 and memory.confidence < SURE:
            verdicts.doubtful[memory.id] = f"a false alarm: seen once, with a score below {SURE:g}"
        else:
            seen_from = np.unique(viewpoint[look_of[sights]])
            of = np.union1d(seen_from, viewpoint[in_range[:, row]])
            if binom.cdf(len(seen_from), len(of), SEEN_SHARE) < DOUBT:
                count = f"seen from {len(seen_from)} of {len(of)} viewpoints that had it in range"
                if memory.confidence < SURE:
                    verdicts.doubtful[memory.id] = f"a false alarm: {count}"
                else:
                    verdicts.left[memory.id] = f"there for a moment: {count}"
    return verdicts


def _taken_for(memory: Memory, known: Sequence[Memory]) -> str | None:
    """Label of what stands at the place of a memory, if it was seen more often."""
    for other in known:
        away = np.hypot(other.position[0] - memory.position[0], other.position[1] - memory.position[1])
        if other.label != memory.label and other.count > memory.count and away < ONE_PLACE_M:
            return other.label
    return None


def _viewpoints(views: Views) -> NDArray[np.int64]:
    """Number of the viewpoint of each look: a new one wherever the robot has moved on."""
    found = np.zeros(len(views), np.int64)
    at = views.position[0]
    for row, position in enumerate(views.position):
        moved = np.hypot(*(position - at)[:2]) >= VIEWPOINT_M
        found[row] = found[row - 1] + int(moved) if row else 0
        at = position if moved else at
    return found


def _moving(seen: Sequence[Memory]) -> NDArray[np.bool_]:
    """Sights of people of whom one, a moment before or after, was a step away, and none at this place."""
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
