"""Decisions about a stream of memories, one after the other."""

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
from memory.wording.reasons import First, Plain, Ranked, Reason, Unlike
from sparse_core.common.files import replacing

FORMAT = "sparsight-reservoir"
VERSION = 3
#: What the file ends with: the CRC-32 of everything before it.
_END = b"\ncrc32 %08x\n"

Place = tuple[str, int, int]
#: Cell of what is at no known place: farther away than any other.
_NOWHERE = (2**62, 2**62)
WindowKey = tuple[str, int, int, int]
ThingsKey = tuple[str, int, int, str, str]


class Decision(NamedTuple):
    """What becomes of a memory that was offered.

    Attributes:
        kept: whether it is.
        evicted: key of the memory that gave way to it, or ``None``.
        why: the reason; it names no key below zero, which is the caller's for what has no id yet.
        similarity: cosine to the most similar unique memory that it could be the same thing as; NaN where
            there is none.
        like: key of that one, which stands for it where it is not kept; ``None`` where there is none.
        evicted_like: key of the one that stands for what gave way; ``None`` where that was forgotten.
    """

    kept: bool
    evicted: int | None
    why: Reason
    similarity: float
    like: int | None = None
    evicted_like: int | None = None


class _Member(NamedTuple):
    """A memory that is kept.

    Attributes:
        key: the caller's.
        window: that it is in.
        unique: where it opened its thing; the empty tuple for a marked one or a track, ``None`` for an
            ordinary one.
        thing: that it is of: the number of the unique memory that opened it.
    """

    key: int
    window: WindowKey
    unique: ThingsKey | tuple[()] | None
    thing: int


class Reservoir:
    """Decides about a stream of memories, one after the other; the same stream gives the same decisions.

    A marked memory is always kept, so is one of a track with all its sights, and a unique one: the first of
    its kind and label at its place, or one that is not similar to any unique one near it. So whatever is
    dropped has a kept memory of its kind and label nearby to which its cosine is at least ``unique_below``
    (a cover, as in Gonzalez 1985). What is most like the same unique memory is of one thing, and belongs to
    the place of that one. Of each place and time window the share is kept, of each thing in it at least so
    many; tracks, marked and unique memories use up room before others. Things share the room evenly: where
    there is no more, those of which the most is kept give up the least important; of equals the later.

    Keys are the caller's: ids, or provisional numbers that :meth:`rename` replaces. In here a memory is known
    by its number in the order of arrival, which never changes.

    Attributes:
        config: how much is kept.
        seen: memories that were offered.
        generation, identity: how far it follows the store, and of which history; kept in its file, used by
            nobody here.
    """

    def __init__(self, config: ReservoirConfig | None = None) -> None:
        self.config = config or ReservoirConfig()
        self.seen = 0
        self.generation = 0
        self.identity = ""
        self._members: dict[int, _Member] = {}
        self._numbers: dict[int, int] = {}  # Of the members, by key.
        self._windows: dict[WindowKey, Window] = {}
        self._things: dict[ThingsKey, Things] = {}
        # When an event of a place and label was last seen.
        self._last_event: dict[ThingsKey, int] = {}

    def __len__(self) -> int:
        """Memories that are kept."""
        return len(self._members)

    def __contains__(self, key: int) -> bool:
        return key in self._numbers

    @property
    def kept(self) -> NDArray[np.int64]:
        """Keys of what is kept, rising."""
        return np.array(sorted(self._numbers), dtype=np.int64)

    def offer(self, key: int, memory: Memory, importance: float) -> Decision:
        """Decide about one memory.

        Args:
            key: a number that is not in use.
            memory: its time, which may go backwards, decides the window. Without a vector only the first of
                its kind and label at its place is unique. A marked one, and a track of several sights, is
                kept whatever its importance.
            importance: any finite number; larger is kept first.

        Raises:
            ValueError: a key in use, a number that is not finite, or a vector of another length.
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
        # A track is no further sight of what is here, but a thing that had its sights and was here.
        tracked = memory.count > 1 and bool(tracks_of(memory))
        unique: ThingsKey | tuple[()] | None = () if memory.marked or tracked else None
        why: Reason = Plain(sort="marked" if memory.marked else "track")
        like = None if thing is None else self._key_of(thing)
        if thing is None or first or again or similarity < self.config.unique_below:
            why = (
                First(thing=memory.label or memory.kind)
                if thing is None
                else Plain(sort="first vector")
                if first
                else Plain(sort="again")
                if again
                else Unlike(similarity=similarity)
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
            why = Ranked(sort=sort, seen=window.seen, room=room, than=than, similarity=alike)
        if gone is None or evicted == key:
            return Decision(gone is None, None, why, similarity, like)
        return Decision(True, evicted, why, similarity, like, self._key_of(gone.thing))

    def rename(self, keys: Mapping[int, int]) -> None:
        """Give kept memories other keys: new by old; all at once.

        Raises:
            KeyError: an old key that is not kept.
            ValueError: a new key that is in use, or given twice.
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
        """Take a memory out that is no longer kept elsewhere; what was like it can be unique again.

        Raises:
            KeyError: a key that is not kept.
        """
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
        """Whether a kept memory is unique: it stands for what is like it."""
        return bool(self._members[self._numbers[key]].unique)

    def drop_empty_windows(self) -> None:
        """Free windows of which nothing is kept: after an erasure not even their map and place stay."""
        used = {member.window for member in self._members.values()}
        self._windows = {key: window for key, window in self._windows.items() if key in used}
        self._last_event = {key: last for key, last in self._last_event.items() if key in self._things}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write settings and state as one .npz file, replaced only when complete."""
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
        """Read what :meth:`save` wrote; later decisions are as if it had never been away.

        Raises:
            OSError: no such file, or it cannot be read.
            ValueError: damaged, no file of a reservoir, or of another version.
        """
        file = Path(path)
        whole = file.read_bytes()
        data, end = whole[: -len(_END % 0)], whole[-len(_END % 0) :]
        # Before any of it is read: numpy and zipfile end in many ways, or take much memory, on damaged files.
        if end != _END % crc32(data):
            raise ValueError(f"{file}: damaged or no file of a reservoir (its checksum is of other bytes)")
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
        """The key of a memory; ``None`` where it is not kept any more."""
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
        """The thing nearby that a memory is most like, with its place and cosine; of equals the earlier."""
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
        """Whether it had been over before this sight of an event; notes the sight."""
        last = self._last_event.get(key)
        self._last_event[key] = time_ns
        return last is not None and abs(time_ns - last) > self.config.event_gap_s * 1e9

    def _evict(self, window: Window, room: int) -> _Member | None:
        """Let an ordinary memory go where there is no room for all of them."""
        if not window.ordinary or window.ordinary <= room - sum(window.protected.values()):
            return None
        gone = self._members.pop(window.pop_worst())
        del self._numbers[gone.key]
        return gone


def _point(memory: Memory) -> tuple[float, float]:
    """x and y; the same for all whose place is not known: of these only what they look like tells."""
    return (0.0, 0.0) if memory.position is None else memory.position[:2]


def _direction(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """A vector at length 1."""
    length = np.linalg.norm(vector.astype(np.float64))
    # A length that single precision does not hold divides in double precision.
    return vector / np.float32(length) if 1e-30 < length < 1e30 else unit(vector)
