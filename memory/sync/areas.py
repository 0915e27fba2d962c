"""Exchange of areas between two stores, name by name, after each transfer of memories.

The log of each store records which operation of the other an area came from. An area that only one side
changed since then is taken over. If both changed it differently, that is a conflict, and each side keeps its
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from memory.areas import Area, Corners, check_name, check_places, key_of, polygon_area
from memory.errors import DataError
from memory.merging.motion import Motion
from memory.persistence.database import Database
from memory.persistence.log.journal import LogEntry
from memory.persistence.log.reception import PeerState
from memory.types import check_integer, check_text

#: Maximum areas of a message.
MOST_AREAS = 10_000
_Key = tuple[str, str]


@dataclass(frozen=True)
class SentArea:
    """An area of the sender, or its removal.

    Attributes:
        name, map_id: of the area.
        changed: the sender's last operation on it.
        area: None if it was removed. Ids of places are the sender's, except those in ``returned``.
        returned: ids of places that came from the receiver, by the receiver's numbers, with x, y in metres.
        base: the receiver's operation up to which the sender has its area; None if it got none from there.
        unchanged: the sender has not changed what it got from the receiver.
    """

    name: str
    map_id: str
    changed: int
    area: Area | None
    returned: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    base: int | None = None
    unchanged: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        found: dict[str, Any] = {"name": self.name, "map": self.map_id, "changed": self.changed}
        if self.area is not None:
            found["area"] = self.area.to_json()
            found["returned"] = [[id, x, y] for id, (x, y) in self.returned.items()]
        return found | {"base": self.base, "unchanged": self.unchanged}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> SentArea:
        """Return the area of :meth:`to_json`; raise ``ValueError``, ``TypeError`` or ``KeyError``."""
        name, map_id = check_name(values["name"]), check_text("map", values["map"])
        base = values["base"]
        area = None if values.get("area") is None else _checked(name, map_id, values["area"])
        returned = {
            check_integer("returned", id): (float(x), float(y)) for id, x, y in values.get("returned", ())
        }
        return cls(
            name, map_id, check_integer("changed", values["changed"]), area, returned,
            None if base is None else check_integer("base", base), values["unchanged"] is True,
        )  # fmt: skip


@dataclass(frozen=True)
class AreaMessage:
    """The areas of a store, for one receiver.

    Attributes:
        store: random name of the sending store.
        robot: name of its robot.
        generation: number of its last operation.
        areas: those it has, and those that it removed.
    """

    store: str
    robot: str
    generation: int
    areas: Sequence[SentArea]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        areas = [area.to_json() for area in self.areas]
        return {"store": self.store, "robot": self.robot, "generation": self.generation, "areas": areas}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> AreaMessage:
        """Return the message of :meth:`to_json`, or raise ``DataError``."""
        try:
            if len(values["areas"]) > MOST_AREAS:
                raise ValueError(f"at most {MOST_AREAS} areas at once")
            return cls(
                check_text("store", values["store"]), check_text("robot", values["robot"]),
                check_integer("generation", values["generation"]), [*map(SentArea.of_json, values["areas"])],
            )  # fmt: skip
        except KeyError as error:
            raise DataError(f"areas: {error.args[0]} is missing") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"areas: {error}") from error


@dataclass
class AreaReport:
    """Result of an exchange of areas, as counted by the receiver.

    Attributes:
        set: areas that are new or changed in the receiving store.
        removed: areas that were removed there.
        waiting: areas around places that have not arrived there.
        refused: areas that this user may not set there.
        conflicts: name and map of areas that both sides changed; each side keeps its own.
        supported: False if the other side is of an earlier release and takes no areas.
    """

    set: int = 0
    removed: int = 0
    waiting: int = 0
    refused: int = 0
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    supported: bool = True

    @property
    def changed(self) -> bool:
        """True if the receiving store changed."""
        return self.set > 0 or self.removed > 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return vars(self) | {"conflicts": [list(each) for each in self.conflicts]}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> AreaReport:
        """Return the report of :meth:`to_json`."""
        return cls(**{**values, "conflicts": [(name, map_id) for name, map_id in values["conflicts"]]})


def areas_for(
    database: Database, robot: str, receiver: str, maps: Sequence[str] | None = None
) -> AreaMessage:
    """Return the areas of a store, for the store of this random name.

    Args:
        database: the store; read-only is enough.
        robot: name of its robot.
        receiver: random name of the receiving store.
        maps: maps whose areas are sent; None: all.
    """
    history = _History.of(database, receiver)
    ids = {id for area in history.areas.values() for id in area.places or ()}
    theirs: dict[int, int] = {}
    if ids:
        known = PeerState(receiver)
        database.follow(known)
        theirs = known.remote_ids(ids)
    sent = []
    for key, changed in history.changed.items():
        area, got = history.areas.get(key), history.received.get(key)
        detail = history.last[key]
        if maps is not None and detail["map"] not in maps:
            continue
        places = area.places if area is not None and area.places else {}
        mine = {id: point for id, point in places.items() if id not in theirs}
        sent.append(
            SentArea(
                area.name if area else detail["name"],
                detail["map"],
                changed,
                area and replace(area, places=mine or None),
                {theirs[id]: point for id, point in places.items() if id in theirs},
                None if got is None else int(got.detail["from"]["generation"]),
                got is not None and got.generation == changed,
            )
        )
    return AreaMessage(database.store, robot, database.generation, sent)


def take_areas(database: Database, message: AreaMessage, known: PeerState) -> AreaReport:
    """Set and remove areas as another store did; each in one operation that can be undone.

    Places are matched by the memories that arrived before. Corners follow the alignment of the robot's map.
    On a server, only the owner of the store sets areas.

    Args:
        database: the receiving store, open for writing.
        message: of the sending store.
        known: state of the sending store, updated.
    """
    report = AreaReport()
    if not message.areas:
        return report
    history = _History.of(database, message.store)
    database.follow(known)
    for sent in message.areas:
        key = key_of(sent.name, sent.map_id)
        mine, last = history.areas.get(key), history.received.get(key)
        changed_here = history.changed.get(key, 0)
        if sent.base is not None and (last is None or sent.base >= last.generation):
            kept_there, kept_here = sent.unchanged, changed_here <= sent.base
        elif last is not None:
            was = int(last.detail["from"]["generation"])
            kept_there = sent.changed <= was <= message.generation
            kept_here = changed_here == last.generation
        else:
            kept_there, kept_here = sent.area is None, mine is None
        if kept_there:
            continue
        area = None if sent.area is None else _here(sent, message.robot, known)
        if sent.area is not None and area is None:
            report.waiting += 1
        elif _shape(area) == _shape(mine):
            continue
        elif not kept_here:
            report.conflicts.append((sent.name, sent.map_id))
        elif database.guarded:
            report.refused += 1
        else:
            origin = {"store": message.store, "robot": message.robot, "generation": message.generation}
            if area is not None:
                database.set_area(area, origin=origin)
                report.set += 1
            elif mine is not None:
                database.remove_area(mine, origin=origin)
                report.removed += 1
    return report


def words_of(report: AreaReport) -> list[str]:
    """Return warnings about areas that were not taken over, with what to do."""
    found = [
        f"area '{name}' in map {map_id} differs in the two stores, and each keeps its own. Remove it in"
        " one of them with recall area --remove, then sync again"
        for name, map_id in report.conflicts
    ]
    if report.waiting:
        found.append(f"{report.waiting} areas wait for memories of their places, which have not arrived")
    if report.refused:
        found.append(f"{report.refused} areas were not set: only the owner of a store on a server sets areas")
    if not report.supported:
        found.append("the service is of an earlier release and takes no areas. Update it")
    return found


@dataclass(frozen=True)
class _History:
    """Areas of a store and the operations on them.

    Attributes:
        areas: present ones.
        changed: last operation on each, undos included.
        last: what the last operation recorded.
        received: last operation, undone ones too, that took over each area of the other store.
    """

    areas: dict[_Key, Area]
    changed: dict[_Key, int]
    last: dict[_Key, Mapping[str, Any]]
    received: dict[_Key, LogEntry]

    @classmethod
    def of(cls, database: Database, other: str) -> _History:
        """Read the history of a store that exchanges areas with a store of this random name."""
        entries = database.log(operation="area")
        undos = database.log(operation="undo") if entries else []
        keys: dict[int, _Key] = {}
        changed: dict[_Key, int] = {}
        last: dict[_Key, Mapping[str, Any]] = {}
        received: dict[_Key, LogEntry] = {}
        for entry in sorted([*entries, *undos], key=lambda entry: entry.generation):
            if entry.operation == "area":
                key = key_of(entry.detail["name"], entry.detail["map"])
                last[key] = entry.detail
                if entry.detail.get("from", {}).get("store") == other:
                    received[key] = entry
            elif entry.undoes in keys:
                key = keys[entry.undoes]
            else:
                continue
            keys[entry.generation], changed[key] = key, entry.generation
        areas = {key_of(area.name, area.map_id): area for area in database.areas()}
        return cls(areas, changed, last, received)


def _here(sent: SentArea, robot: str, known: PeerState) -> Area | None:
    """Return an area in this store's frame and ids; None if none of its places is here."""
    area = sent.area
    motion = known.frames.get((robot, sent.map_id), Motion())
    if area is None or area.polygon:
        return None if area is None else replace(area, polygon=_moved(area.polygon, motion))
    theirs = dict(area.places or {})
    ids = known.local_ids(list(theirs)).tolist()
    moved = _moved(tuple(theirs.values()), motion)
    places = {id: point for id, point in zip(ids, moved, strict=True) if id} | dict(sent.returned)
    return replace(area, places=places) if places else None


def _moved(points: Corners, motion: Motion) -> Corners:
    if motion == Motion() or not points:
        return points
    return tuple((x, y) for x, y in motion.points(np.array(points)).tolist())


def _shape(area: Area | None) -> object:
    """Return what makes two areas of one key the same, without the points of places, which may move."""
    if area is None:
        return None
    return area.name, area.polygon, sorted(area.places or ()), area.radius_m if area.places else 0.0


def _checked(name: str, map_id: str, values: Mapping[str, Any]) -> Area:
    area = Area.of_json({**values, "name": name, "map": map_id})
    if area.polygon:
        return polygon_area(name, map_id, area.polygon)
    if area.places:
        _, radius = check_places(area.places, area.radius_m)
        return replace(area, radius_m=radius)
    return area
