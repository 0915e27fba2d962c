"""Questions about a labelled sequence, with the answers that its labels give."""

from __future__ import annotations

import numpy as np

from drive.asking import BELIEVED, Memories, Question
from drive.labelled import PASSES
from drive.truth import Sight, Truth
from memory import Memory
from memory.merging.tracked import tracks_of
from memory.query import Filter

#: A thing whose labels stay this near their middle stands; one with fewer labels is not asked about.
STANDS_M, LEAST_SIGHTS = 1.0, 3
#: An answer about a place is right up to this, about a time up to that.
SAME_M, SAME_S = 2.0, 1.0


def questions_of(truth: Truth, label: str = "Car") -> list[Question]:
    """How many, which stand, where they were last seen, and what changed."""
    things = [
        sights
        for sights in truth.sights.values()
        # The same labels are seen on both ways.
        if sights[0].label == label and len(sights) >= len(PASSES) * LEAST_SIGHTS
    ]
    parked = [sights for sights in things if stands(sights)]
    found = [_how_many(things, label, day) for day in range(len(PASSES))]
    found += [_parked(sights, label) for sights in things]
    found += [_last_seen(sights, label) for sights in parked]
    return [*found, _changed(label)]


def stands(sights: list[Sight]) -> bool:
    """Whether a labelled thing stays where it is."""
    places = np.array([sight.position for sight in sights])
    away = places - np.median(places, axis=0)
    return bool(np.hypot(away[:, 0], away[:, 1]).max() <= STANDS_M)


def _how_many(things: list[list[Sight]], label: str, day: int) -> Question:
    count = sum(any(sight.day == day for sight in sights) for sights in things)

    def answer(memories: Memories) -> tuple[str, bool]:
        told = things_of(memories.store.find(Filter(labels=(label,)), vectors=False), PASSES[day])
        return f"{told}", told == count

    text = f"How many different {label.lower()}s were passed on the way {PASSES[day]}?"
    return Question("how many", text, f"{count}", None, answer)


def things_of(memories: list[Memory], recording: str) -> int:
    """How many things memories are of, of those that were seen in a recording: each track is of one.

    Memories without tracks are a thing each.
    """
    groups: list[set[str]] = []
    alone = 0
    for memory in memories:
        names = {f"{name}/{number}" for name, number, _, _ in tracks_of(memory)}
        if not names:
            alone += 1
            continue
        joined = [group for group in groups if group & names]
        groups = [group for group in groups if not group & names]
        groups.append(names.union(*joined))
    return alone + sum(any(name.startswith(f"{recording}/") for name in group) for group in groups)


def _parked(sights: list[Sight], label: str) -> Question:
    place = _middle(sights)
    stood, drove = "it stood there", "it drove"
    expected = stood if stands(sights) else drove

    def answer(memories: Memories) -> tuple[str, bool]:
        at = Filter(labels=(label,), kinds=("object",), states=BELIEVED, circle=(*place, SAME_M))
        said = stood if memories.store.find(at, vectors=False) else drove
        return said, said == expected

    text = f"Was the {label.lower()} at ({place[0]:.0f}, {place[1]:.0f}) parked?"
    return Question("parked", text, expected, place, answer)


def _last_seen(sights: list[Sight], label: str) -> Question:
    last, place = max(sight.time_ns for sight in sights), _middle(sights)

    def answer(memories: Memories) -> tuple[str, bool]:
        found = memories.latest_at(label, np.append(place, 0.0))
        if found is None:
            return "never", False
        late_s = (found.last_sight_ns - last) / 1e9
        return f"{late_s:+.1f} s from its last label", abs(late_s) <= SAME_S

    text = f"When was the {label.lower()} at ({place[0]:.0f}, {place[1]:.0f}) last seen?"
    return Question("last seen", text, "with its last label", place, answer)


def _changed(label: str) -> Question:
    """Nothing that parked has left: it is the same sequence."""

    def answer(memories: Memories) -> tuple[str, bool]:
        left = Filter(labels=(label,), kinds=("object",), states=("gone",))
        gone = memories.store.find(left, vectors=False)
        return ("nothing" if not gone else f"{len(gone)} parked {label.lower()}s", not gone)

    text = f"Which parked {label.lower()}s had left on the way back?"
    return Question("changed", text, "nothing", None, answer)


def _middle(sights: list[Sight]) -> tuple[float, float]:
    x, y = np.median(np.array([sight.position for sight in sights]), axis=0).tolist()
    return x, y
