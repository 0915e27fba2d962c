"""Answers: each is a sentence with ``str()`` and plain values with ``to_json()``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from memory.merging.robots import seen_by
from memory.plain_values import UNTOLD, to_plain
from memory.questions.visits import first_within
from memory.types import AWAY, Hit, Memory, State
from memory.wording.words import (
    STATE_WORDS,
    counted,
    duration,
    listed,
    moment,
    name,
    plural,
    point,
)

#: How a thing that was asked for was found.
How = Literal["id", "label", "text", "similar"]


class Answer:
    """A dataclass whose fields are the answer, ``question`` first; ``str()`` says it."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; without fields that only the sentence needs."""
        found: dict[str, Any] = to_plain(self)
        return found


@dataclass(frozen=True)
class Sighting(Answer):
    """When and where something was seen, for the last or the first time.

    Attributes:
        what: that was asked for, in words.
        memory: of it, or ``None``: it is not remembered.
        time_ns: of the observation.
        how: the memory was found by its label, its words or its likeness.
        similarity: cosine, where it was found by likeness.
    """

    question: Literal["last_seen", "first_seen"]
    what: str
    memory: Memory | None
    time_ns: int | None
    how: How
    similarity: float | None = None

    def __str__(self) -> str:
        if self.memory is None or self.time_ns is None:
            return f"{self.what} is not remembered."
        alike = "" if self.similarity is None else f", similarity {self.similarity:.2f}"
        return (
            f"{self.what} was {self.question.replace('_', ' ')} on {moment(self.time_ns)} at"
            f" {point(self.memory.position)} in map {self.memory.map_id}: {name(self.memory)}{alike}"
            f"{self._by(self.memory)}.{self._away(self.memory)}"
        )

    def _away(self, memory: Memory) -> str:
        """That it is not there any more, where that is known."""
        if self.question == "first_seen" or memory.state not in AWAY:
            return ""
        return f" It is {STATE_WORDS[memory.state]} by now."

    def _by(self, memory: Memory) -> str:
        """Who saw it, where several robots share the memory: the one that is meant first."""
        shares = seen_by(memory)
        if not shares:
            return ""
        if self.question == "last_seen":
            first, *others = sorted(shares, key=lambda robot: (-shares[robot].last_ns, robot))
        else:
            first, *others = sorted(shares, key=lambda robot: (shares[robot].first_ns, robot))
        return f", by {first}" + (f" (also seen by {', '.join(others)})" if others else "")


@dataclass(frozen=True)
class Nearby(Answer):
    """What is around a point.

    Attributes:
        position: x, y (and z) in metres.
        radius_m: in the plane.
        total: how many there are.
        hits: the closest first, with ``"distance_m"`` among their parts.
    """

    question: Literal["near"] = field(default="near", init=False)
    position: tuple[float, ...]
    radius_m: float
    total: int
    hits: tuple[Hit, ...]

    def __str__(self) -> str:
        around = f"within {self.radius_m:g} m of {point(self.position)}"
        if not self.hits:
            return f"Nothing is remembered {around}."
        parts = [f"{name(hit.memory)} at {hit.parts['distance_m']:.1f} m" for hit in self.hits]
        return f"{plural(self.total, 'memory', 'memories')} {around}: {listed(parts, total=self.total)}."


@dataclass(frozen=True)
class Happened(Answer):
    """What was between two times.

    Attributes:
        between_ns: both included.
        total: how many there are.
        memories: in the order in which they were first seen then, as many as were asked for.
        what: label or words that were asked for; empty for everything.
    """

    question: Literal["between"] = field(default="between", init=False)
    between_ns: tuple[int, int]
    total: int
    memories: tuple[Memory, ...]
    what: str = ""

    def __str__(self) -> str:
        span = between_words(self.between_ns)
        of = f" of {self.what}" if self.what else ""
        if not self.total:
            return f"Nothing is remembered{of} {span}."
        parts = [
            f"{name(memory)} on {moment(first_within(memory, self.between_ns))} at {point(memory.position)}"
            for memory in self.memories
        ]
        return f"{plural(self.total, 'memory', 'memories')}{of} {span}: {listed(parts, total=self.total)}."


@dataclass(frozen=True)
class Changed(Answer):
    """What is different since a time.

    Attributes:
        since_ns: the time.
        new: seen for the first time since then, the oldest first.
        gone: found to be no longer there since then.
        moved: found to have moved since then.
    """

    question: Literal["changed_since"] = field(default="changed_since", init=False)
    since_ns: int
    new: tuple[Memory, ...]
    gone: tuple[Memory, ...]
    moved: tuple[Memory, ...]

    def __str__(self) -> str:
        parts = [
            f"{len(found)} {what} ({listed([name(memory) for memory in found])})"
            for what, found in (("new", self.new), ("gone", self.gone), ("moved", self.moved))
            if found
        ]
        return f"Since {moment(self.since_ns)}: {', '.join(parts) if parts else 'nothing changed'}."


@dataclass(frozen=True)
class HowOften(Answer):
    """How often and how long something was seen.

    Attributes:
        what: that was asked for, in words.
        memories: that are kept of it.
        sightings: observations that these stand for.
        days: distinct days (UTC) that it is known to have been seen on.
        visits: stretches of time without a longer pause.
        total_s: length of these together, in seconds.
        longest_s: of the longest.
        first_ns, last_ns: of all; ``None`` where there is nothing.
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

    def __str__(self) -> str:
        if self.first_ns is None or self.last_ns is None:
            return f"{self.what} is not remembered."
        return (
            f"{self.what} was seen {plural(self.sightings, 'time')} on {plural(self.days, 'day')}, from"
            f" {moment(self.first_ns)} to {moment(self.last_ns)}; in view for {duration(self.total_s)} in"
            f" {plural(self.visits, 'visit')}, at most {duration(self.longest_s)} at a time."
        )


@dataclass(frozen=True)
class HowMany(Answer):
    """How many memories there are of something.

    Attributes:
        what: that was asked for, in words; empty for everything.
        place: in words.
        between_ns: of which time, both ends included; ``None`` for all times.
        memories: how many, of all states.
        sightings: observations that they stand for.
        things: how many different things they are of: memories that share a track are of one, as those of
            a car that parked, drove off and parked again; a memory without tracks is a thing of its own.
        by_label, by_state: how many of each.
        first_ns, last_ns: of the observations; ``None`` where there is nothing.
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

    def __str__(self) -> str:
        where = "" if self.place == "all maps" else f" in {self.place}".replace(" in the ", " within the ")
        when = "" if self.between_ns is None else f" {between_words(self.between_ns)}"
        if self.first_ns is None or self.last_ns is None:
            return f"{self.what or 'Anything'} is not remembered{where}{when}."
        states = [
            f"{self.by_state.get(state, 0)} {words}"
            for state, words in STATE_WORDS.items()
            if state == "present" or self.by_state.get(state)
        ]
        what = f" of {self.what}" if self.what else ""
        # The number of those that are there comes first: it is what most people mean.
        believed = f"{listed(states, most=len(states))}, of " if len(states) > 1 else ""
        apart = "" if self.things == self.memories else f", {plural(self.things, 'thing')} by their tracks"
        kinds = f": {counted(self.by_label)}" if len(self.by_label) > 1 else ""
        return (
            f"{believed}{plural(self.memories, 'memory', 'memories')}{what}{where}{when}{apart}{kinds};"
            f" seen {plural(self.sightings, 'time')}, from {moment(self.first_ns)} to {moment(self.last_ns)}."
        )


def between_words(span: tuple[int, int]) -> str:
    """A time in words; open ends are not named."""
    if span[1] >= 2**63 - 1:
        return f"since {moment(span[0])}"
    if span[0] <= -(2**63):
        return f"before {moment(span[1])}"
    return f"between {moment(span[0])} and {moment(span[1])}"


@dataclass(frozen=True)
class StillThere(Answer):
    """Whether something is where it was.

    Attributes:
        what: that was asked for, in words.
        memory: of it, or ``None``: it is not remembered.
        state: what is believed.
        probability: that it is at its place, where looks or later sights say something.
        reasons: sentences, the first the most important.
        moved_to: the memory of it elsewhere.
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
            return f"{self.what} is not remembered."
        said = {
            "present": "is still there",
            "gone": "is gone",
            "moved": "has moved",
            "unknown": "may still be there",
        }[self.state]
        to = "" if self.moved_to is None else f" to {point(self.moved_to.position)}"
        seen = f"last seen on {moment(self.memory.last_sight_ns)} at {point(self.memory.position)}"
        which = "" if "(memory " in self.what else f" (memory {self.memory.id})"
        return f"{self.what}{which} {said}{to}: {'; '.join(self.reasons)}; {seen}."


@dataclass(frozen=True)
class Summary(Answer):
    """What is remembered of a place.

    Attributes:
        place: in words.
        memories: how many.
        things: how many different things they are of, as far as tracks tell.
        sightings: observations that they stand for.
        by_label, by_kind, by_state: how many of each.
        first_ns, last_ns: of the observations; ``None`` where there is nothing.
        important: the most important memories, the most important first.
        changed: what is different since a time, where one was given.
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
            return f"Nothing is remembered of {self.place}."
        text = (
            f"Of {self.place}: {plural(self.memories, 'memory', 'memories')} of"
            f" {plural(self.sightings, 'observation')} from {moment(self.first_ns)} to"
            f" {moment(self.last_ns)}: {counted(self.by_label)}."
            f" Most important: {listed([name(memory) for memory in self.important])}."
        )
        return text if self.changed is None else f"{text} {self.changed}"


@dataclass(frozen=True)
class Similar(Answer):
    """Situations like one, and what came of them.

    Attributes:
        expected_reward: mean of their rewards weighted by attention; ``None`` without hits.
        deviation: standard deviation around it, with the same weights.
        hits: the most similar first; their ``attention`` is what each counts in the mean.
        what: that they are like, in words.
    """

    question: Literal["similar_situations"] = field(default="similar_situations", init=False)
    expected_reward: float | None
    deviation: float | None
    hits: tuple[Hit, ...]
    what: str = "this"

    def __str__(self) -> str:
        if self.expected_reward is None or self.deviation is None:
            return f"Nothing like {self.what} is remembered."
        if any(hit.memory.reward for hit in self.hits):
            parts = [f"{name(hit.memory)} with reward {hit.memory.reward:g}" for hit in self.hits]
            return (
                f"{plural(len(self.hits), 'situation')} like {self.what}, expected reward"
                f" {self.expected_reward:.3g} ± {self.deviation:.2g}: {listed(parts)}."
            )
        parts = [
            f"{name(hit.memory)} of {moment(hit.memory.time_ns)} with similarity {hit.score:.2f}"
            for hit in self.hits
        ]
        return f"{plural(len(self.hits), 'memory', 'memories')} like {self.what}: {listed(parts)}."


@dataclass(frozen=True)
class DrivePose(Answer):
    """Where to drive to be at something.

    Attributes:
        what: that was asked for, in words.
        memory: that it leads to, or ``None``: it is not remembered, or not there any more.
        position: x, y, z in metres in the map of the memory; ``None`` without a memory.
        yaw: radians, counter-clockwise from +x; the robot then faces the thing.
        covariance: (3, 3) of the position of the thing in square metres, where it is known.
        distance_m: from the thing.
        reason: why this memory, or why none.
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
                return f"There is nowhere to drive to for {self.what}: {self.reason}."
            return f"{self.what} is not remembered: there is nowhere to drive to."
        x, y, _ = self.position
        read = f" ({note}" if (note := self.what.partition(" (")[2]).startswith("read for ") else ""
        return (
            f"To {name(self.memory)}{read} in map {self.memory.map_id}: drive to ({x:.2f}, {y:.2f}), yaw"
            f" {self.yaw:.2f} rad, {self.distance_m:g} m from it; {self.reason}."
        )


@dataclass(frozen=True)
class Searched(Answer):
    """Memories that were searched for.

    Attributes:
        what: that was asked for, in words.
        hits: the best first.
        total: how many there are; ``None`` where that was not counted.
        within: place and time that were given, in words.
    """

    question: Literal["search"] = field(default="search", init=False)
    what: str
    hits: tuple[Hit, ...]
    total: int | None = field(metadata=UNTOLD)
    within: str = field(metadata=UNTOLD)

    def __str__(self) -> str:
        of = f" of {self.what}" if self.what else ""
        if not self.hits:
            return f"Nothing is remembered{of}{self.within}."
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
