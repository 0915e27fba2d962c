"""Answers. ``str()`` returns the sentence, ``to_json()`` the plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from memory.merging.robots import seen_by
from memory.plain_values import OMITTED, to_plain
from memory.types import AWAY, Hit, Memory, State
from memory.wording.words import (
    STATE_WORDS,
    counted,
    days_in_words,
    duration,
    listed,
    moment,
    name,
    plural,
    point,
)

#: How the object of a question was found.
How = Literal["id", "label", "text", "similar"]

#: Begins the words of a search by similarity.
SIMILAR_TO = "similar to "
#: Ends the words of a search for what left.
THAT_LEFT = " that left"


def quoted(what: str) -> str:
    """Return the words of a question in quotation marks, without the note about a corrected word."""
    words, note, rest = what.partition(" (read for ")
    return f"'{words}'{note}{rest}"


class Answer:
    """Base of the answers: dataclasses with the name of the question as first field."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, without the fields that only the sentence needs."""
        found: dict[str, Any] = to_plain(self)
        return found


@dataclass(frozen=True)
class Sighting(Answer):
    """When and where an object was first or last seen.

    Attributes:
        what: object in words.
        memory: memory of it; ``None`` if there is none.
        time_ns: time of the observation.
        how: found by id, label, text or similarity.
        similarity: cosine similarity, if found by it.
    """

    question: Literal["last_seen", "first_seen"]
    what: str
    memory: Memory | None
    time_ns: int | None
    how: How
    similarity: float | None = None

    def __str__(self) -> str:
        if self.memory is None or self.time_ns is None:
            return f"No memory of {quoted(self.what)}."
        alike = "" if self.similarity is None else f", similarity {self.similarity:.2f}"
        return (
            f"{self.what} was {self.question.replace('_', ' ')} on {moment(self.time_ns)} at"
            f" {point(self.memory.position)} in map {self.memory.map_id}: {name(self.memory)}{alike}"
            f"{self._by(self.memory)}.{self._away(self.memory)}"
        )

    def _away(self, memory: Memory) -> str:
        """Return a sentence about its state if it is gone or moved."""
        if self.question == "first_seen" or memory.state not in AWAY:
            return ""
        return f" It is {STATE_WORDS[memory.state]} now."

    def _by(self, memory: Memory) -> str:
        """Return which robots saw it; the one that made the observation comes first."""
        shares = seen_by(memory)
        if not shares:
            return ""
        if self.question == "last_seen":
            first, *others = sorted(shares, key=lambda robot: (-shares[robot].last_ns, robot))
        else:
            first, *others = sorted(shares, key=lambda robot: (shares[robot].first_ns, robot))
        return f", by {first}" + (f" (also seen by {', '.join(others)})" if others else "")


@dataclass(frozen=True)
class WhenLeft(Answer):
    """When an object left its place.

    Attributes:
        what: object in words.
        memory: memory of it; ``None`` if there is none.
        last_seen_ns: time of its last observation.
        found_gone_ns: time at which it was found gone or moved; ``None`` if that is not known.
        others: number of other objects of this name that left.
    """

    question: Literal["left"] = field(default="left", init=False)
    what: str
    memory: Memory | None
    last_seen_ns: int | None = None
    found_gone_ns: int | None = None
    others: int = 0

    def __str__(self) -> str:
        if self.memory is None or self.last_seen_ns is None:
            return f"No memory of {quoted(self.what)}."
        subject = name(self.memory)
        seen = f"It was last seen on {moment(self.last_seen_ns)} at {point(self.memory.position)}"
        if self.memory.state not in AWAY:
            return f"I don't know that {subject} left. {seen}."
        others = f" {plural(self.others, 'other')} left earlier." if self.others else ""
        if self.found_gone_ns is not None:
            found = f"{moment(self.found_gone_ns)}, when it was found {STATE_WORDS[self.memory.state]}"
            return f"{subject} left before {found}. {seen}.{others}"
        state = {"gone": "is gone", "moved": "has moved away"}[self.memory.state]
        return f"{subject} {state}. {seen}; when it left is not known.{others}"


@dataclass(frozen=True)
class Nearby(Answer):
    """Memories around a point.

    Attributes:
        position: x, y (and z) in metres.
        radius_m: radius in the plane.
        total: number of memories within the radius.
        hits: the closest first, with ``"distance_m"`` in their parts.
    """

    question: Literal["near"] = field(default="near", init=False)
    position: tuple[float, ...]
    radius_m: float
    total: int
    hits: tuple[Hit, ...]

    def __str__(self) -> str:
        around = f"within {self.radius_m:g} m of {point(self.position)}"
        if not self.hits:
            return f"No memories {around}."
        parts = [f"{name(hit.memory)} at {hit.parts['distance_m']:.1f} m" for hit in self.hits]
        return f"{plural(self.total, 'memory', 'memories')} {around}: {listed(parts, total=self.total)}."


@dataclass(frozen=True)
class Changed(Answer):
    """Changes since a time.

    Attributes:
        since_ns: the time.
        new: first seen since then, the oldest first.
        gone: marked as gone since then.
        moved: marked as moved since then.
        unclear: marked since then too, but last seen before. They may have left before.
    """

    question: Literal["changed_since"] = field(default="changed_since", init=False)
    since_ns: int
    new: tuple[Memory, ...]
    gone: tuple[Memory, ...]
    moved: tuple[Memory, ...]
    unclear: tuple[Memory, ...] = ()

    def __str__(self) -> str:
        places = [memory for memory in self.new if memory.kind == "place"]
        new = [memory for memory in self.new if memory.kind != "place"]
        parts = [
            f"{len(found)} {what} ({listed([name(memory) for memory in found])})"
            for what, found in (
                ("new", new),
                ("new places" if len(places) > 1 else "new place", places),
                ("gone", self.gone),
                ("moved", self.moved),
            )
            if found
        ]
        text = f"Since {moment(self.since_ns)}: {', '.join(parts) if parts else 'nothing changed'}."
        if self.unclear:
            names = listed([name(memory) for memory in self.unclear])
            text += (
                f" {names} left too, perhaps before, because the last observation is from before this time."
            )
        return text


@dataclass(frozen=True)
class HowOften(Answer):
    """How often and how long an object was seen.

    Attributes:
        what: object in words.
        memories: number of its memories.
        sightings: number of observations.
        days: number of days (UTC) with a known observation.
        visits: number of visits, which are periods without a longer pause.
        total_s, longest_s: duration of all visits and of the longest, in seconds.
        first_ns, last_ns: first and last observation; ``None`` if there is none.
        day_starts_ns: first nanosecond of each of these days.
    """

    question: Literal["how_often"] = field(default="how_often", init=False)
    what: str
    memories: int
    sightings: int
    days: int
    visits: int
    total_s: float
    longest_s: float
    first_ns: int | None
    last_ns: int | None
    day_starts_ns: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.first_ns is None or self.last_ns is None:
            return f"No memory of {quoted(self.what)}."
        return (
            f"{self.what} was seen {plural(self.sightings, 'time')} on {plural(self.days, 'day')}"
            f" ({days_in_words(self.day_starts_ns)}), from"
            f" {moment(self.first_ns)} to {moment(self.last_ns)}; in view for {duration(self.total_s)} in"
            f" {plural(self.visits, 'visit')}, at most {duration(self.longest_s)} at a time."
        )


@dataclass(frozen=True)
class HowMany(Answer):
    """Number of memories of an object class.

    Attributes:
        what: object in words; empty for everything.
        place: place in words.
        between_ns: first and last nanosecond; ``None`` for all times.
        memories: number of memories in any state.
        sightings: number of observations.
        things: number of distinct objects. Memories that share a track are of one object, such as a car that
            parked, drove off and parked again. A memory without tracks counts as one object.
        by_label, by_state: number of memories of each.
        first_ns, last_ns: first and last observation; ``None`` if there is none.
        past: True if the question is what was there, not what is.
        holds: whether there are as many as the question says; ``None`` if it says no number.
        notes: number of notes in the same place and time, if the question is about objects only.
    """

    question: Literal["how_many"] = field(default="how_many", init=False)
    what: str
    place: str
    between_ns: tuple[int, int] | None
    memories: int
    sightings: int
    things: int
    by_label: Mapping[str, int]
    by_state: Mapping[str, int]
    first_ns: int | None
    last_ns: int | None
    past: bool = field(default=False, metadata=OMITTED)
    holds: bool | None = field(default=None, metadata=OMITTED)
    notes: int = field(default=0, metadata=OMITTED)

    def __str__(self) -> str:
        verdict = {True: "Yes: ", False: "No: ", None: ""}[self.holds]
        notes = f" Not counted: {plural(self.notes, 'note')}." if self.notes else ""
        return f"{verdict}{self._numbers()}{notes}"

    def _numbers(self) -> str:
        where = "" if self.place == "all maps" else f" in {self.place}"
        when = "" if self.between_ns is None else f" {between_words(self.between_ns)}"
        if self.first_ns is None or self.last_ns is None:
            return f"No memories{f' of {quoted(self.what)}' if self.what else ''}{where}{when}."
        states = [
            f"{self.by_state.get(state, 0)} {words}"
            for state, words in STATE_WORDS.items()
            if state == "present" or self.by_state.get(state)
        ]
        what = f" of {self.what}" if self.what else ""
        # The number of present objects comes first: it is what most people ask for.
        believed = f"{listed(states, most=len(states))}, of " if len(states) > 1 else ""
        apart = "" if self.things == self.memories else f", {plural(self.things, 'object')} by their tracks"
        in_all = "" if self.between_ns is None else " in all"  # Also before and after that time.
        kinds = f": {counted(self.by_label)}" if len(self.by_label) > 1 else ""
        if self.past and believed:
            apart, believed = f"{apart}, now {listed(states, most=len(states))}", ""
        return (
            f"{believed}{plural(self.memories, 'memory', 'memories')}{what}{where}{when}{apart}{kinds};"
            f" seen {plural(self.sightings, 'time')}{in_all}, from {moment(self.first_ns)} to"
            f" {moment(self.last_ns)}."
        )


def between_words(span: tuple[int, int]) -> str:
    """Return a time range in words; open ends are omitted."""
    if span[1] >= 2**63 - 1:
        return f"since {moment(span[0])}"
    if span[0] <= -(2**63):
        return f"before {moment(span[1])}"
    return f"between {moment(span[0])} and {moment(span[1])}"


@dataclass(frozen=True)
class StillThere(Answer):
    """Belief about whether an object is where it was.

    Attributes:
        what: object in words.
        memory: memory of it; ``None`` if there is none.
        state: believed state.
        probability: that it is at its place; ``None`` without views or later observations.
        reasons: the most important first.
        moved_to: memory of it at another place.
    """

    question: Literal["still_there"] = field(default="still_there", init=False)
    what: str
    memory: Memory | None
    state: State
    probability: float | None
    reasons: tuple[str, ...]
    moved_to: Memory | None = None

    def __str__(self) -> str:
        if self.memory is None:
            return f"No memory of {quoted(self.what)}."
        belief = {
            "present": "is still there",
            "gone": "is gone",
            "moved": "has moved",
            "unknown": "may still be there",
        }[self.state]
        to = "" if self.moved_to is None else f" to {point(self.moved_to.position)}"
        seen = f"last seen on {moment(self.memory.last_sight_ns)} at {point(self.memory.position)}"
        which = "" if "(memory " in self.what else f" (memory {self.memory.id})"
        return f"{self.what}{which} {belief}{to}: {'; '.join(self.reasons)}; {seen}."


@dataclass(frozen=True)
class Summary(Answer):
    """Summary of the memories of a place.

    Attributes:
        place: place in words.
        memories: number of memories.
        things: number of distinct objects, according to their tracks.
        sightings: number of observations.
        by_label, by_kind, by_state: number of memories of each.
        first_ns, last_ns: first and last observation; ``None`` if there is none.
        important: the most important memories first.
        changed: changes since a time, if one was given.
    """

    question: Literal["summarise"] = field(default="summarise", init=False)
    place: str
    memories: int
    things: int
    sightings: int
    by_label: Mapping[str, int]
    by_kind: Mapping[str, int]
    by_state: Mapping[str, int]
    first_ns: int | None
    last_ns: int | None
    important: tuple[Memory, ...]
    changed: Changed | None = None

    def __str__(self) -> str:
        if self.first_ns is None or self.last_ns is None:
            return f"No memories in {self.place}."
        text = (
            f"In {self.place}: {plural(self.memories, 'memory', 'memories')} of"
            f" {plural(self.sightings, 'observation')} from {moment(self.first_ns)} to"
            f" {moment(self.last_ns)}: {counted(self.by_label)}."
            f" Most important: {listed([name(memory) for memory in self.important])}."
        )
        return text if self.changed is None else f"{text} {self.changed}"


@dataclass(frozen=True)
class Similar(Answer):
    """Similar situations and their rewards.

    Attributes:
        expected_reward: mean of their rewards, weighted by attention; ``None`` without hits.
        deviation: weighted standard deviation of the rewards.
        hits: the most similar first; ``attention`` is the weight of each.
        what: the situation that they are compared with, in words.
    """

    question: Literal["similar_situations"] = field(default="similar_situations", init=False)
    expected_reward: float | None
    deviation: float | None
    hits: tuple[Hit, ...]
    what: str = "this"

    def __str__(self) -> str:
        if self.expected_reward is None or self.deviation is None:
            return f"No memories similar to {self.what}."
        if any(hit.memory.reward for hit in self.hits):
            parts = [f"{name(hit.memory)} with reward {hit.memory.reward:g}" for hit in self.hits]
            return (
                f"{plural(len(self.hits), 'situation')} similar to {self.what}, expected reward"
                f" {self.expected_reward:.3g} ± {self.deviation:.2g}: {listed(parts)}."
            )
        parts = [
            f"{name(hit.memory)} of {moment(hit.memory.time_ns)} with similarity {hit.score:.2f}"
            for hit in self.hits
        ]
        return f"{plural(len(self.hits), 'memory', 'memories')} similar to {self.what}: {listed(parts)}."


@dataclass(frozen=True)
class DrivePose(Answer):
    """Pose to drive to.

    Attributes:
        what: object in words.
        memory: memory of the object; ``None`` if there is none or the object is gone.
        position: x, y, z in metres in the map of the memory; ``None`` without a memory.
        yaw: radians, counter-clockwise from +x; the robot faces the object.
        covariance: (3, 3) of the object's position in square metres, if known.
        distance_m: distance from the object.
        reason: why this memory was chosen, or why none.
    """

    question: Literal["pose_to"] = field(default="pose_to", init=False)
    what: str
    memory: Memory | None
    position: tuple[float, float, float] | None
    yaw: float | None
    covariance: NDArray[np.float64] | None = field(default=None, compare=False)
    distance_m: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        if self.memory is None or self.position is None or self.yaw is None:
            if self.reason:
                return f"Cannot drive to {self.what}: {self.reason}."
            return f"No memory of {quoted(self.what)}."
        x, y, _ = self.position
        read = f" ({note}" if (note := self.what.partition(" (")[2]).startswith("read for ") else ""
        return (
            f"To {name(self.memory)}{read} in map {self.memory.map_id}: drive to ({x:.2f}, {y:.2f}), yaw"
            f" {self.yaw:.2f} rad, {self.distance_m:g} m from it; {self.reason}."
        )


@dataclass(frozen=True)
class SearchResult(Answer):
    """Search results.

    Attributes:
        what: search words; empty for everything.
        hits: the best first.
        total: number of matches; ``None`` if not counted.
        within: place and time of the search, in words.
    """

    question: Literal["search"] = field(default="search", init=False)
    what: str
    hits: tuple[Hit, ...]
    total: int | None = field(metadata=OMITTED)
    within: str = field(metadata=OMITTED)

    def __str__(self) -> str:
        of = f" {self.what}" if self.what.startswith(SIMILAR_TO) else f" of {self.what}" if self.what else ""
        if not self.hits:
            return f"No memories{f' of {quoted(self.what)}' if self.what else ''}{self.within}."
        shown = []
        for hit in self.hits:
            far = f", {hit.parts['distance_m']:.1f} m away" if "distance_m" in hit.parts else ""
            shown.append(f"{name(hit.memory)} at {point(hit.memory.position)}{far}")
        maps = sorted({hit.memory.map_id for hit in self.hits})
        note = f" ({self.hits[0].reason})" if self.hits[0].reason else ""
        where = f" in map {maps[0]}" if len(maps) == 1 else f" in {len(maps)} maps"
        count = plural(len(self.hits) if self.total is None else self.total, "memory", "memories")
        few = "The first " if self.total is None else ""
        return f"{few}{count}{of}{note}{self.within}{where}: {listed(shown, total=self.total)}."
