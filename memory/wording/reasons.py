"""Reasons why memories are kept, merged or forgotten.

The log stores them as JSON objects that are distinguished by ``sort``. It outlives the memories, so fields
that name a label or map are omitted there; ids stay. Before version 4 of the schema the log stored sentences,
which are read as :class:`FreeText`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from memory.wording.words import duration


def _name() -> Any:
    """Declare a field that names a label or map; it is omitted from the log."""
    return field(default=None, metadata={"names": True})


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Reason of an operation; ``str()`` returns the sentence.

    Attributes:
        sort: kind of reason.
    """

    sort: str

    def to_json(self) -> Any:
        """Return the values for the log, without names."""
        names = (entry.name for entry in fields(self) if not entry.metadata.get("names"))
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass(frozen=True, kw_only=True)
class FreeText(Reason):
    """A user's own words, or a sentence of an earlier release."""

    text: str
    sort: str = "said"

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str:
        """Return the words."""
        return self.text


_PLAIN = {
    "first vector": "the first with an embedding at this place",
    "again": "a new event at this place",
    "marked": "marked by the user",
    "track": "a track with all observations of an object",
    "displaced": "replaced by a more important one",
    "gave way": "replaced by more important observations of the same place and time",
}


@dataclass(frozen=True, kw_only=True)
class FixedReason(Reason):
    """Reason without values, one of ``first vector, again, marked, track, displaced, gave way``."""

    sort: str

    def __str__(self) -> str:
        return _PLAIN[self.sort]


@dataclass(frozen=True, kw_only=True)
class FirstReason(Reason):
    """First memory of its kind and label at its place.

    Attributes:
        thing: the label, or the kind without a label.
    """

    thing: str | None = _name()
    sort: str = "first"

    def __str__(self) -> str:
        return f"the first {'of its kind' if self.thing is None else self.thing} at this place"


@dataclass(frozen=True, kw_only=True)
class NoveltyReason(Reason):
    """Not similar to any unique memory at its place.

    Attributes:
        similarity: cosine similarity to the most similar one.
    """

    similarity: float
    sort: str = "unlike"

    def __str__(self) -> str:
        return f"not similar to any unique memory at this place, similarity {self.similarity:.2f}"


@dataclass(frozen=True, kw_only=True)
class RankReason(Reason):
    """Comparison with others of its place and time.

    Attributes:
        sort: ``room`` (there is room), ``more`` (more important than a replaced one) or ``less`` (less
            important than all others).
        seen: number of observations of its place and time, including it.
        room: number of them that are kept.
        than: id of the replaced memory; ``None`` if it was never stored.
        similarity: similarity of a less important one to the memory that represents it, if both have
            vectors.
    """

    sort: str
    seen: int
    room: int
    than: int | None = None
    similarity: float | None = None

    def __str__(self) -> str:
        share = f"of {self.seen} at this place and time, {self.room} are kept"
        if self.sort == "room":
            return f"{share}, and there is room"
        if self.sort == "more":
            than = "one that came just before it" if self.than is None else f"memory {self.than}"
            return f"{share}; it is more important than {than}"
        alike = (
            "" if self.similarity is None else f"similar to a kept one, similarity {self.similarity:.2f}; "
        )
        return f"{alike}{share}, and others are more important"


@dataclass(frozen=True, kw_only=True)
class ScoreReason(Reason):
    """Importance.

    Attributes:
        total: from 0 to 1.
        parts: by name the part, from 0 to 1, and its share in the total; the largest first.
    """

    total: float
    parts: Mapping[str, tuple[float, float]]
    sort: str = "scored"

    def __str__(self) -> str:
        parts = [f"{_part_words(name, value)} (+{added:.2f})" for name, (value, added) in self.parts.items()]
        return "; ".join([f"importance {self.total:.2f}", *parts])


@dataclass(frozen=True, kw_only=True)
class ForgettingReason(Reason):
    """A keep-value that is too low.

    Attributes:
        sort: ``full`` (the map is full) or ``faded``.
        policy: forgetting policy, with its half-life in seconds.
        keep_value: keep-value by the policy.
        value: importance.
        unused_s: seconds since the last access.
        uses: number of accesses.
        held, most: number of memories of a full map, and its capacity.
        least: minimum keep-value, if faded.
        map_id: the map.
    """

    sort: str
    policy: str
    half_life_s: float
    keep_value: float
    value: float
    unused_s: float
    uses: int
    held: int | None = None
    most: int | None = None
    least: float | None = None
    map_id: str | None = _name()

    def __str__(self) -> str:
        if self.sort == "faded":
            return f"its keep-value is below {self.least:g}: {self._worth()}"
        where = "its map" if self.map_id is None else f"map {self.map_id!r}"
        return f"{where} has {self.held} memories, its capacity is {self.most}: {self._worth()}"

    def _worth(self) -> str:
        unused = f"not used for {duration(self.unused_s)}"
        if self.policy == "lru":
            return unused
        if self.policy == "frequency":
            return f"used {self.uses} times"
        decayed = f"decayed to {self.keep_value:.3g}, {unused}, half-life {duration(self.half_life_s)}"
        return decayed if self.policy == "decay" else f"value {self.value:.2f} has {decayed}"


@dataclass(frozen=True, kw_only=True)
class MergeReason(Reason):
    """Several memories of one object.

    Attributes:
        memories: number of memories.
        kind: their kind.
        deviations: maximum distance from one place in standard deviations.
        similarity: minimum cosine similarity to the leading one, if there are vectors.
        came_back: True if the object was gone in between.
        label, map_id: their label and map.
    """

    memories: int
    kind: str
    deviations: float
    similarity: float | None = None
    came_back: bool = False
    label: str | None = _name()
    map_id: str | None = _name()
    sort: str = "same thing"

    def __str__(self) -> str:
        return (
            f"{self.memories} memories of kind {self.kind}"
            + (f" and label {self.label!r}" if self.label else "")
            + f" within {self.deviations:.2f} standard deviations of one place"
            + ("" if self.map_id is None else f" in map {self.map_id!r}")
            + ("" if self.similarity is None else f", similarity at least {self.similarity:.2f}")
            + ("; it was gone and came back" if self.came_back else "")
        )


@dataclass(frozen=True, kw_only=True)
class MotionReason(Reason):
    """Several events of one movement.

    Attributes:
        memories: number of memories.
        apart_m: largest median distance of their trajectories in metres.
        label, map_id: their label and map.
    """

    memories: int
    apart_m: float
    label: str | None = _name()
    map_id: str | None = _name()
    sort: str = "same motion"

    def __str__(self) -> str:
        return (
            f"{self.memories} events"
            + (f" with label {self.label!r}" if self.label else "")
            + f" whose trajectories lie within {self.apart_m:.2f} m of each other at the same times"
            + ("" if self.map_id is None else f" in map {self.map_id!r}")
        )


_SORTS: dict[str, type[Reason]] = {
    **dict.fromkeys(_PLAIN, FixedReason),
    "first": FirstReason,
    "unlike": NoveltyReason,
    **dict.fromkeys(("room", "more", "less"), RankReason),
    "scored": ScoreReason,
    **dict.fromkeys(("full", "faded"), ForgettingReason),
    "same thing": MergeReason,
    "same motion": MotionReason,
}


def reason_of(logged: Any) -> Reason:
    """Return the reason of a log value; other values count as free text."""
    try:
        return _SORTS[logged["sort"]](**logged)
    except (TypeError, KeyError):
        return FreeText(text="" if logged is None else str(logged))


def in_words(logged: Any) -> str:
    """Return a reason of the log, or several, as a sentence."""
    return "; ".join(str(reason_of(each)) for each in (logged if isinstance(logged, list) else [logged]))


def _part_words(name: str, value: float) -> str:
    """Return a part of importance in words."""
    if name == "mark":
        return _PLAIN["marked"]
    if name == "novelty":
        if value >= 1.0:
            return "nothing similar is known here"
        return (
            f"{'different from' if value >= 0.3 else 'similar to'} known memories here, novelty {value:.2f}"
        )
    if name == "reward":
        return f"{'high' if value >= 0.5 else 'low'} reward, {value:.2f}"
    if name == "uncertainty":
        return f"the detector was {'unsure' if value >= 0.3 else 'almost sure'}, uncertainty {value:.2f}"
    return f"its class is {'rare' if value >= 0.5 else 'common'}, rarity {value:.2f}"
