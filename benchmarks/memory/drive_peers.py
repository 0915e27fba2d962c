"""Two memories for robots from the package index, given the same boxes and asked the same questions.

``rtsm`` is queried through its associator and working memory, as its pipeline calls them, with a vector per
class instead of a picture's. Its distances for rooms are widened to those of cars. ``robotmem`` takes
sentences and places: a box is looked for by both, and what is near is brought up to date, else it is learned.
Its rule for known facts compares whole sentences, so a sentence with a time always counts as new.
Both are left out where they are not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.demos import drive_module

#: Things this near a place are those that are asked about, in metres.
SAME_M = 2.0
#: LiDAR axes to those of a camera, z ahead.
_CAMERA_FROM_LIDAR = np.array([[0.0, -1, 0, 0], [0, 0, -1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
#: The remaining configuration that rtsm ships, with gates for outdoor scenes instead of rooms.
_RTSM: dict[str, Any] = {
    "assoc": {"rings": 1, "nearest_m_for_cos": 8, "cos_min": 0.9, "gate_dist_base_m": SAME_M},
    "object": {"proto_ttl_s": 10.0, "promote_hits": 2, "stability_promote": 0.55, "require_view_bins": 1},
}
#: Most that robotmem gives back, and how many of them a box is compared with.
_MOST, _NEAREST = 100, 25
_SENTENCE = re.compile(r"^(\S+) at x(\S+) y(\S+) last (\d+)$")
Place = tuple[float, float]


class Thing(NamedTuple):
    """Contents of a peer.

    Attributes:
        key: of it.
        label: of it.
        place: (x, y) metres.
        first_ns, last_ns: when it was seen.
    """

    key: Hashable
    label: str
    place: Place
    first_ns: int
    last_ns: int


class Peer:
    """A memory of objects with positions; ``demos/drive/labelled/stores.py`` explains the calls."""

    def __init__(self) -> None:
        self.asked = self
        self._owners: list[Hashable | None] = []

    def things(self, label: str, place: Place | None) -> list[Thing]:
        """Return the objects of a label, all or those around a place."""
        raise NotImplementedError

    def owners(self) -> list[Hashable | None]:
        """The thing that each box went into."""
        return self._owners

    def how_many(self, label: str, between_ns: tuple[int, int]) -> int:
        """Things that were seen within a time."""
        first, last = between_ns
        return sum(thing.first_ns <= last and thing.last_ns >= first for thing in self.things(label, None))

    def stood_at(self, label: str, place: Place) -> bool:
        """Return True if there is one."""
        return bool(self.things(label, place))

    def last_seen(self, label: str, place: Place) -> int | None:
        """The latest of those around a place."""
        return max((thing.last_ns for thing in self.things(label, place)), default=None)

    def gone(self, label: str) -> int:
        """Neither reports objects that have left."""
        return 0


class Rtsm(Peer):
    """rtsm's working memory; what is not confirmed is forgotten after ten seconds.

    Args:
        folder: not used: it is written nowhere.
    """

    bytes: int | None = None

    def __init__(self, folder: Path) -> None:
        super().__init__()
        logging.getLogger("rtsm").setLevel(logging.ERROR)
        association, clock, index, memory = (
            importlib.import_module(f"rtsm.{name}")
            for name in ("core.association", "core.clock", "stores.proximity_index", "stores.working_memory")
        )
        self._clock = clock.SensorClock()
        self._index = index.ProximityIndex(index.GridSpec(cell_m=SAME_M, use_3d=False), per_cell_cap=64)
        self._memory = memory.WorkingMemory(_RTSM, index=self._index, clock=self._clock)
        self._associator = association.Associator(_RTSM)
        self._first_ns: dict[str, int] = {}
        self._last_ns: dict[str, int] = {}

    def remember(self, seen: Sequence[Any]) -> None:
        """A frame is a batch of candidates; the clock is that of the frames."""
        names = sorted({label for one in seen for label in one.sights.labels})
        vectors = dict(zip(names, np.eye(max(len(names), 1), dtype=np.float32), strict=False))
        for one in seen:
            moment, sights = one.moment, one.sights
            self._clock.advance(moment.time_ns)
            world_from_camera = moment.pose @ np.linalg.inv(_CAMERA_FROM_LIDAR)
            camera_from_world = np.linalg.inv(world_from_camera)
            found: list[Any] = []
            self._associator.update_with_candidates(
                [
                    _candidate(box, vectors[label], label, float(score), camera_from_world)
                    for box, label, score in zip(sights.boxes, sights.labels, sights.scores, strict=True)
                ],
                SimpleNamespace(pose_cam_T_world=camera_from_world.astype(np.float32), intrinsics=None),
                self._memory,
                self._index,
                frame_id=f"{moment.day}/{moment.number}",
                on_observation=found.append,
            )
            for record in found:
                key = record.get("object_id")
                self._owners.append(key)
                if key is not None:
                    self._first_ns.setdefault(key, moment.time_ns)
                    self._last_ns[key] = moment.time_ns
            self._memory.expire_timeouts()

    def things(self, label: str, place: Place | None) -> list[Thing]:
        """See :class:`Peer`; of what it has confirmed."""
        return [
            thing
            for thing in self._all()
            if thing.label == label
            and (place is None or np.hypot(*np.subtract(thing.place, place)) <= SAME_M)
        ]

    def held(self) -> list[Any]:
        """All that it has confirmed."""
        return [_held(thing) for thing in self._all()]

    def close(self) -> None:
        """Nothing to close."""

    def _all(self) -> list[Thing]:
        return [
            Thing(
                one.id,
                one.label_primary,
                (float(one.xyz_world[0]), float(one.xyz_world[1])),
                self._first_ns[one.id],
                self._last_ns[one.id],
            )
            for one in self._memory.iter_objects()
            if one.confirmed
        ]


class Robotmem(Peer):
    """robotmem by words alone: what it knows already is brought up to date.

    Args:
        folder: new.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir(parents=True)
        self._folder = folder
        logging.getLogger("robotmem").setLevel(logging.ERROR)
        sdk = importlib.import_module("robotmem.sdk")
        self._memory: Any = sdk.RobotMemory(
            db_path=str(folder / "memory.db"), collection="drive", embed_backend="none"
        )
        self._first: dict[Hashable, tuple[int, Place]] = {}

    def remember(self, seen: Sequence[Any]) -> None:
        """A box is a sentence."""
        for one in seen:
            for box, label in zip(one.sights.boxes, one.sights.labels, strict=True):
                self._owners.append(self._learn(label, (float(box[0]), float(box[1])), one.moment.time_ns))

    def things(self, label: str, place: Place | None) -> list[Thing]:
        """See :class:`Peer`; of at most a hundred that its search gives."""
        return self._recalled(label, place, _MOST)

    def held(self) -> list[Any]:
        """All that it stored."""
        rows = self._memory._db.conn.execute("SELECT id, content FROM memories WHERE status = 'active'")
        found = (self._thing({"id": row[0], "content": row[1]}) for row in rows.fetchall())
        return [_held(thing) for thing in found if thing is not None]

    @property
    def bytes(self) -> int:
        """Of its files."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def close(self) -> None:
        """Done with it."""
        self._memory.close()

    def _learn(self, label: str, place: Place, time_ns: int) -> Hashable | None:
        known = self._recalled(label, place, _NEAREST)
        if known:
            at = self._first[known[0].key][1]
            self._memory.update(known[0].key, f"{_where(label, at)} last {time_ns}")
            return known[0].key
        sentence = f"{_where(label, place)} last {time_ns}"
        said = self._memory.learn(sentence, context={"spatial": {"position": list(place)}})
        if said["status"] != "created":
            return None
        self._first[said["memory_id"]] = (time_ns, place)
        return int(said["memory_id"])

    def _recalled(self, label: str, place: Place | None, most: int) -> list[Thing]:
        """Return the objects of a label, the nearest to a place first."""
        query, near = f"{label} at", None
        if place is not None:
            query = _where(label, place)
            near = {"field": "spatial.position", "target": list(place), "max_distance": SAME_M}
        hits = self._memory.recall(query, n=most, min_confidence=0.0, spatial_sort=near)
        found = [thing for hit in hits if (thing := self._thing(hit)) is not None]
        return [thing for thing in found if thing.label == label]

    def _thing(self, hit: Mapping[str, Any]) -> Thing | None:
        match = _SENTENCE.match(hit["content"])
        if match is None:
            return None
        first_ns, place = self._first[hit["id"]]
        return Thing(hit["id"], match[1], place, first_ns, int(match[4]))


def peers() -> dict[str, Callable[[Path], Peer]]:
    """Those that are installed, by name."""
    made: dict[str, Callable[[Path], Peer]] = {"rtsm": Rtsm, "robotmem": Robotmem}
    return {name: make for name, make in made.items() if importlib.util.find_spec(name) is not None}


def _candidate(
    box: NDArray[np.float64],
    vector: NDArray[np.float32],
    label: str,
    score: float,
    camera_from_world: NDArray[np.float64],
) -> Any:
    """Convert a segment as rtsm's pipeline does: a position in the camera frame, a vector and a label."""
    place = (camera_from_world @ np.array([*box[:3], 1.0]))[:3].astype(np.float32)
    stats = SimpleNamespace(centroid_cam=place, centroid_px=None, depth_valid=1.0, coverage=1.0)
    return SimpleNamespace(stats=stats, emb_vis=vector, label_topk=[(label, score)], crop=None)


def _where(label: str, place: Place) -> str:
    """Words of a place: its whole metres, without signs, which no search by words keeps."""
    x, y = (f"{'m' if value < 0 else ''}{abs(round(value))}" for value in place)
    return f"{label} at x{x} y{y}"


def _held(thing: Thing) -> Any:
    made: Any = drive_module("labelled.stores").StoredObject
    return made(thing.key, thing.label, thing.place)
