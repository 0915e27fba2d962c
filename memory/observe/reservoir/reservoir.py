"""Decisions about a stream of memories, one after another."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from memory.config import ReservoirConfig
from memory.merging.fusion import unit
from memory.merging.tracks import tracks_of
from memory.observe.reservoir.things import Things
from memory.observe.reservoir.window import Window
from memory.types import Memory, check_integer, check_number
from memory.wording.reasons import FirstReason, FixedReason, NoveltyReason, RankReason, Reason
from sparse_core.common.files import replacing

FORMAT = "sparsight-reservoir"
VERSION = 3
#: Trailer of the file: the CRC-32 of everything before it.
_END = b"\ncrc32 %08x\n"

Place = tuple[str, int, int]
#: Cell of memories without a position, farther away than any other.
_NOWHERE = (2**62, 2**62)
WindowKey = tuple[str, int, int, int]
ThingsKey = tuple[str, int, int, str, str]


class Decision(NamedTuple):
    """Decision about an offered memory.

    Attributes:
        kept: True if it is kept.
        evicted: key of the memory that it replaces, or ``None``.
        why: the reason, without negative keys.
        similarity: cosine similarity to the most similar unique memory nearby; NaN if there is none.
        like: key of that memory, which represents it if it is not kept; ``None`` if there is none.
        evicted_like: key of the memory that represents the replaced one; ``None`` if it was forgotten.
    """

    kept: bool
    evicted: int | None
    why: Reason
    similarity: float
    like: int | None = None
    evicted_like: int | None = None


class _Member(NamedTuple):
    """A kept memory.

    Attributes:
        key: key of the caller.
        window: its window.
        unique: place where it opened its object; empty for a marked memory or a track, ``None`` for an
            ordinary one.
        thing: number of the unique memory that opened its object.
    """

    key: int
    window: WindowKey
    unique: ThingsKey | tuple[()] | None
    thing: int


class Reservoir:
    """Decides about a stream of memories one after another; equal streams give equal decisions.

    Marked memories, tracks with their observations, and unique memories are always kept. A memory is unique
    if it is the first of its kind and label at its place, or not similar to any unique one nearby. So each
    dropped memory has a kept one of its kind and label nearby with a cosine similarity of at least
    ``unique_below`` (a cover, as in Gonzalez 1985). Memories that are most similar to the same unique memory
    are of one object and belong to its place. Of each place and time window a share is kept, and a minimum of
    each object. Tracks, marked and unique memories use this room first. Objects share the rest evenly: the
    object with the most memories drops its least important one, or of equals the later.

    Keys are those of the caller: ids, or provisional numbers that :meth:`rename` replaces. Internally a
    memory has the number of its arrival, which never changes.

    Attributes:
        config: how much is kept.
        seen: number of offered memories.
        generation, identity: operation and history of the store that it reflects; saved in its file.
    """

    def __init__(self, config: ReservoirConfig | None = None) -> None:
        self.config = config or ReservoirConfig()
        self.seen = 0
        self.generation = 0
        self.identity = ""
        self._members: dict[int, _Member] = {}
        self._numbers: dict[int, int] = {}  # Members by key.
        self._windows: dict[WindowKey, Window] = {}
        self._things: dict[ThingsKey, Things] = {}
        # When an event of a place and label was last seen.
        self._last_event: dict[ThingsKey, int] = {}

    def __len__(self) -> int:
        """Return the number of kept memories."""
        return len(self._members)

    def __contains__(self, key: int) -> bool:
        return key in self._numbers

    @property
    def kept(self) -> NDArray[np.int64]:
        """Sorted keys of the kept memories."""
        return np.array(sorted(self._numbers), dtype=np.int64)

    def offer(self, key: int, memory: Memory, importance: float) -> Decision:
        """Decide about one memory.

        Args:
            key: an unused number.
            memory: its time, which may go backwards, decides the window. Without a vector, it is unique
                only as the first of its kind and label at its place. Marked memories and tracks of several
                observations are always kept.
            importance: any finite number; larger is kept first.

        Raises:
            ValueError: the key is in use, the importance is not finite, or the vector has another length.
        """
        key, time_ns = check_integer("key", key), int(memory.time_ns)
        if key in self._numbers:
            raise ValueError(f"key {key} is in use")
        if not math.isfinite(check_number("importance", importance)):
            raise ValueError(f"importance must be finite, got {importance!r}")
        vector = None if memory.embedding is None else _direction(memory.embedding)
        place, thing, similarity = self._thing_at(memory, vector)
        # Without anything to compare a vector with, the memory opens the neighbourhood of its vector.
        first = thing is None or (vector is not None and math.isnan(similarity))
        again = memory.kind == "event" and self._happens_again((*place, "event", memory.label), time_ns)
        self.seen += 1
        # A track is not another observation of a known object, but an object with its own observations.
        tracked = memory.count > 1 and bool(tracks_of(memory))
        unique: ThingsKey | tuple[()] | None = () if memory.marked or tracked else None
        why: Reason = FixedReason(sort="marked" if memory.marked else "track")
        like = None if thing is None else self._key_of(thing)
        if thing is None or first or again or similarity < self.config.unique_below:
            why = (
                FirstReason(thing=memory.label or memory.kind)
                if thing is None
                else FixedReason(sort="first vector")
                if first
                else FixedReason(sort="again")
                if again
                else NoveltyReason(similarity=similarity)
            )
            place, thing, like = self._place(memory), self.seen, None
            unique = (*place, memory.kind, memory.label)
            opened = self._things.setdefault(unique, Things(0 if vector is None else len(vector)))
            opened.append(thing, _point(memory), vector)
        window_key = (*place, time_ns // self.config.window_ns)
        window = self._windows.setdefault(window_key, Window())
        window.seen += 1
        self._members[self.seen] = _Member(key, window_key, unique, thing)
        self._numbers[key] = self.seen
        if unique is None:
            window.push(thing, float(importance), self.seen)
        else:
            window.protect(thing)
        room = self.config.room(window.seen, window.things)
        gone = self._evict(window, room)
        evicted = None if gone is None else gone.key
        if unique is None:
            sort = "room" if gone is None else "less" if evicted == key else "more"
            than = evicted if sort == "more" and evicted is not None and evicted >= 0 else None
            alike = similarity if sort == "less" and not math.isnan(similarity) else None
            why = RankReason(sort=sort, seen=window.seen, room=room, than=than, similarity=alike)
        if gone is None or evicted == key:
            return Decision(gone is None, None, why, similarity, like)
        return Decision(True, evicted, why, similarity, like, self._key_of(gone.thing))

    def rename(self, keys: Mapping[int, int]) -> None:
        """Replace keys of kept memories, all at once.

        Raises:
            KeyError: an old key is unknown.
            ValueError: a new key is in use or given twice.
        """
        numbers = {check_integer("key", new): self._numbers[old] for old, new in keys.items()}
        if len(numbers) < len(keys) or any(new in self._numbers and new not in keys for new in numbers):
            raise ValueError("new keys must differ from each other and from those in use")
        for old in keys:
            del self._numbers[old]
        self._numbers |= numbers
        for new, number in numbers.items():
            self._members[number] = self._members[number]._replace(key=new)

    def discard(self, key: int) -> None:
        """Remove a memory, so that similar ones can be unique again; raises ``KeyError`` if unknown."""
        number = self._numbers.pop(key)
        member = self._members.pop(number)
        window = self._windows.get(member.window)
        if member.unique is None:
            if window is not None:
                window.remove(member.thing, number)
            return
        if window is not None:
            window.protect(member.thing, -1)
        if member.unique:
            self._things[member.unique].remove(number)
            if not self._things[member.unique].numbers:
                del self._things[member.unique]

    def opens(self, key: int) -> bool:
        """True if a kept memory is unique and represents similar ones."""
        return bool(self._members[self._numbers[key]].unique)

    def drop_empty_windows(self) -> None:
        """Drop windows without kept memories, so that nothing erased remains."""
        used = {member.window for member in self._members.values()}
        self._windows = {key: window for key, window in self._windows.items() if key in used}
        self._last_event = {key: last for key, last in self._last_event.items() if key in self._things}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write settings and state to an .npz file, replaced only when complete."""
        file = Path(path)
        vectors = [found.vectors[: len(found.numbers)].reshape(-1) for found in self._things.values()]
        header = {
            "format": FORMAT,
            "version": VERSION,
            "config": asdict(self.config),
            "seen": self.seen,
            "generation": self.generation,
            "identity": self.identity,
            "windows": [
                [key, window.seen, list(window.protected.items()), self._ranked(window)]
                for key, window in self._windows.items()
            ],
            "unique": [
                [key, list(map(self._key_of, t.numbers)), t.numbers, t.positions, t.vectors.shape[1]]
                for key, t in self._things.items()
            ],
            "kept": list(self._members.values()),
            "events": list(self._last_event.items()),
        }
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        archive = io.BytesIO()
        np.savez(archive, header=text, vectors=np.concatenate([np.zeros(0, np.float32), *vectors]))
        with replacing(file) as target, target.open("wb") as stream:
            stream.write(archive.getbuffer())
            stream.write(_END % crc32(archive.getbuffer()))
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Reservoir:
        """Read a file of :meth:`save`; later decisions continue from there.

        Raises:
            OSError: the file is missing or cannot be read.
            ValueError: the file is damaged, of another kind or of another version.
        """
        file = Path(path)
        whole = file.read_bytes()
        data, end = whole[: -len(_END % 0)], whole[-len(_END % 0) :]
        # Before any of it is read: numpy and zipfile end in many ways, or take much memory, on damaged files.
        if end != _END % crc32(data):
            raise ValueError(f"{file}: damaged or no file of a reservoir (the checksum does not match)")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            vectors = stored["vectors"]
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"{file}: not a file of a reservoir")
        if header.get("version") != VERSION:
            raise ValueError(f"{file}: version is {header.get('version')!r}, this release reads {VERSION}")
        return cls._restored(header, vectors)

    @classmethod
    def _restored(cls, header: Mapping[str, Any], vectors: NDArray[np.float32]) -> Reservoir:
        found = cls(ReservoirConfig(**header["config"]))
        found.seen, found.generation = header["seen"], header["generation"]
        found.identity = header["identity"]
        numbers: dict[int, int] = {}
        for window_key, seen, protected, rankings in header["windows"]:
            window = found._windows[tuple(window_key)] = Window(seen)
            window.protected = dict(protected)
            for thing, ranking in rankings:
                window.rankings[thing] = [(importance, last) for importance, last, _ in ranking]
                window.ordinary += len(ranking)
                numbers |= {key: -last for _, last, key in ranking}
        start = 0
        for things_key, keys, opened, positions, dim in header["unique"]:
            things = found._things[tuple(things_key)] = Things(dim)
            end = start + len(keys) * dim
            things.numbers, things.positions = list(opened), [(x, y) for x, y in positions]
            things.vectors = vectors[start:end].reshape(len(keys), dim).copy()
            things.without = True
            start = end
            numbers |= dict(zip(keys, opened, strict=True))
        found._last_event = {tuple(key): time_ns for key, time_ns in header["events"]}
        for key, window_key, unique, thing in header["kept"]:
            # The file has no numbers of marked ones: any that are not in use are as good.
            number = numbers.get(key, -1 - len(found._members))
            protection = None if unique is None else tuple(unique)
            found._members[number] = _Member(key, tuple(window_key), protection, thing)
            found._numbers[key] = number
        return found

    def _ranked(self, window: Window) -> list[Any]:
        """The rankings of a window with the keys of what they rank."""
        return [
            [thing, [(importance, last, self._key_of(-last)) for importance, last in ranking]]
            for thing, ranking in window.rankings.items()
        ]

    def _key_of(self, number: int) -> int | None:
        """Return the key of a memory, or ``None`` if it is not kept."""
        member = self._members.get(number)
        return None if member is None else member.key

    def _place(self, memory: Memory) -> Place:
        size = self.config.cell_m
        if memory.position is None:
            return (memory.map_id, *_NOWHERE)
        return (
            memory.map_id,
            math.floor(memory.position[0] / size),
            math.floor(memory.position[1] / size),
        )

    def _thing_at(
        self, memory: Memory, vector: NDArray[np.float32] | None
    ) -> tuple[Place, int | None, float]:
        """Return the most similar object nearby, its place and the similarity; of equals the earlier."""
        map_id, column, row = here = self._place(memory)
        found: list[tuple[Place, int, float]] = []
        for place in ((map_id, column + x, row + y) for x in (-1, 0, 1) for y in (-1, 0, 1)):
            things = self._things.get((*place, memory.kind, memory.label))
            if things is not None:
                best = things.closest(vector, _point(memory), self.config.cell_m)
                if best is not None and (memory.position is not None or not math.isnan(best[0])):
                    found.append((place, best[1], best[0]))
        if not found:
            return here, None, math.nan
        return min(found, key=lambda one: (math.inf if math.isnan(one[2]) else -one[2], one[1]))

    def _happens_again(self, key: ThingsKey, time_ns: int) -> bool:
        """Record an observation of an event; return True if the event had ended before."""
        last = self._last_event.get(key)
        self._last_event[key] = time_ns
        return last is not None and abs(time_ns - last) > self.config.event_gap_s * 1e9

    def _evict(self, window: Window, room: int) -> _Member | None:
        """Drop an ordinary memory if there is not enough room."""
        if not window.ordinary or window.ordinary <= room - sum(window.protected.values()):
            return None
        gone = self._members.pop(window.pop_worst())
        del self._numbers[gone.key]
        return gone


def _point(memory: Memory) -> tuple[float, float]:
    """Return x and y; a common point for all memories without a position."""
    return (0.0, 0.0) if memory.position is None else memory.position[:2]


def _direction(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a vector of length 1."""
    length = np.linalg.norm(vector.astype(np.float64))
    # A length that single precision does not hold divides in double precision.
    return vector / np.float32(length) if 1e-30 < length < 1e30 else unit(vector)
