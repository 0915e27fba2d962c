"""Reasons for which memories are kept, merged and forgotten: values, said in words here and nowhere else.

The log holds them as JSON objects of their fields, told apart by ``sort``. It outlives the memories, so what
names something of them (a label, a map) is left out there, field by field; ids stay. Before version 4 of the
schema it held sentences, which are read as :class:`Said`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from memory.wording.words import duration


def _name() -> Any:
    """A field that names something of a memory; ``None`` in the log."""
    return field(default=None, metadata={"names": True})


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why something was done with a memory; ``str()`` says it.

    Attributes:
        sort: of reason.
    """

    sort: str

    def to_json(self) -> Any:
        """For the log: without what names something of a memory."""
        told = (entry.name for entry in fields(self) if not entry.metadata.get("names"))
        return {name: getattr(self, name) for name in told if getattr(self, name) is not None}


@dataclass(frozen=True, kw_only=True)
class Said(Reason):
    """Somebody's own words, or a sentence of an earlier release; in the log just that."""

    text: str
    sort: str = "said"

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str:
        """The words."""
        return self.text


_PLAIN = {
    "first vector": "the first with an embedding at this place",
    "again": "another event than the one before at this place",
    "marked": "marked by the user",
    "track": "a track, which is a thing with all its sights",
    "displaced": "displaced by a more important one",
    "gave way": "displaced by more important observations of the same place and time",
}


@dataclass(frozen=True, kw_only=True)
class Plain(Reason):
    """What its sort says all of: one of ``first vector, again, marked, track, displaced, gave way``."""

    sort: str

    def __str__(self) -> str:
        return _PLAIN[self.sort]


@dataclass(frozen=True, kw_only=True)
class First(Reason):
    """The first of its kind and label at its place.

    Attributes:
        thing: the label, or the kind where it has none.
    """

    thing: str | None = _name()
    sort: str = "first"

    def __str__(self) -> str:
        return f"the first {'of its kind' if self.thing is None else self.thing} at this place"


@dataclass(frozen=True, kw_only=True)
class Unlike(Reason):
    """Not like anything that is unique at its place.

    Attributes:
        similarity: cosine to the most similar of these.
    """

    similarity: float
    sort: str = "unlike"

    def __str__(self) -> str:
        return f"unlike everything unique at this place, similarity {self.similarity:.2f}"


@dataclass(frozen=True, kw_only=True)
class Ranked(Reason):
    """Compared with others of its place and time.

    Attributes:
        sort: there is ``room``, it matters ``more`` than one that gives way, or ``less`` than all the others.
        seen: of its place and time, itself included.
        room: how many of these are kept.
        than: id of what gives way; ``None`` where that never was stored.
        similarity: cosine of one that matters less to what stands for it, where both have vectors.
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
            return f"{share}; it matters more than {than}"
        alike = (
            "" if self.similarity is None else f"like one that is kept, similarity {self.similarity:.2f}; "
        )
        return f"{alike}{share}, and others matter more"


@dataclass(frozen=True, kw_only=True)
class Scored(Reason):
    """Its importance.

    Attributes:
        total: from 0 to 1.
        parts: what added to it, the most first: by name the part, from 0 to 1, and how much it added.
    """

    total: float
    parts: Mapping[str, tuple[float, float]]
    sort: str = "scored"

    def __str__(self) -> str:
        said = [f"{_part_words(name, value)} (+{added:.2f})" for name, (value, added) in self.parts.items()]
        return "; ".join([f"importance {self.total:.2f}", *said])


@dataclass(frozen=True, kw_only=True)
class Forgotten(Reason):
    """Its keep-value was too low.

    Attributes:
        sort: its map is ``full``, or it has ``faded``.
        policy: by which memories are compared, with its half-life in seconds.
        keep_value: that it has by that.
        value: its importance.
        unused_s: seconds since it was last used.
        uses: how often it was.
        held, most: memories of the map, and how many it may hold; where it is full.
        least: keep-value that is kept, where it has faded.
        map_id: of the map.
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
        return f"{where} holds {self.held} of at most {self.most}: {self._worth()}"

    def _worth(self) -> str:
        unused = f"not used for {duration(self.unused_s)}"
        if self.policy == "lru":
            return unused
        if self.policy == "frequency":
            return f"used {self.uses} times"
        decayed = f"decayed to {self.keep_value:.3g}, {unused}, half-life {duration(self.half_life_s)}"
        return decayed if self.policy == "decay" else f"value {self.value:.2f} has {decayed}"


@dataclass(frozen=True, kw_only=True)
class SameThing(Reason):
    """Several memories are of one thing.

    Attributes:
        memories: how many.
        kind: of all of them.
        deviations: standard deviations that they are from one place, at most.
        similarity: least cosine to the one that leads, where there are vectors.
        came_back: whether it was gone in between.
        label, map_id: of all of them.
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


_SORTS: dict[str, type[Reason]] = {
    **dict.fromkeys(_PLAIN, Plain),
    "first": First,
    "unlike": Unlike,
    **dict.fromkeys(("room", "more", "less"), Ranked),
    "scored": Scored,
    **dict.fromkeys(("full", "faded"), Forgotten),
    "same thing": SameThing,
}


def reason_of(logged: Any) -> Reason:
    """What :meth:`Reason.to_json` gave; anything else counts as somebody's words."""
    try:
        return _SORTS[logged["sort"]](**logged)
    except (TypeError, KeyError):
        return Said(text="" if logged is None else str(logged))


def in_words(logged: Any) -> str:
    """A reason of the log, or several of one thing, as a sentence."""
    return "; ".join(str(reason_of(each)) for each in (logged if isinstance(logged, list) else [logged]))


def _part_words(name: str, value: float) -> str:
    """A part of importance."""
    if name == "mark":
        return _PLAIN["marked"]
    if name == "novelty":
        if value >= 1.0:
            return "nothing like it is known here"
        return f"{'unlike' if value >= 0.3 else 'much like'} what is known here, novelty {value:.2f}"
    if name == "reward":
        return f"{'much' if value >= 0.5 else 'something'} came of it, {value:.2f}"
    if name == "uncertainty":
        return f"the detector was {'unsure' if value >= 0.3 else 'nearly sure'}, uncertainty {value:.2f}"
    return f"its class is {'rare' if value >= 0.5 else 'common'}, rarity {value:.2f}"
