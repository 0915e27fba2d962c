"""What is kept of a stream: the best share of each place and time window, and everything that is unique."""

from __future__ import annotations

import heapq
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from memory.merging.fusion import unit
from memory.types import Memory, check_integer, check_numbers, check_vector
from memory.wording.reasons import First, Plain, Ranked, Reason, Unlike
from sparse_core.files import replacing

FORMAT = "sparsight-reservoir"
VERSION = 3
#: What the file ends with: the CRC-32 of everything before it.
_END = b"\ncrc32 %08x\n"
#: Seconds that 63 bits of nanoseconds hold.
LONGEST_S = 9e9
#: Kept ordinary memories of a thing in a window, worst first: (importance, minus the order of arrival, key).
Ranking = list[tuple[float, int, int]]


@dataclass(frozen=True, kw_only=True)
class ReservoirConfig:
    """How much is kept.

    Attributes:
        share: of the memories of a place and window, from 0 to 1.
        least: kept of each thing of a place and window whatever the share.
        most: kept of a place and window whatever the share, or ``None``; unique and marked ones come on top.
        cell_m: side of the squares in x and y that are one place; what is closer than this in x and in y,
            also beyond the edge of a square, can be the same thing.
        window_s: length of a time window in seconds.
        unique_below: a memory is unique when its cosine to every unique memory that is of its kind and label,
            and close enough to be the same thing, is below this.
        event_gap_s: an event after so many seconds without one of its label at its place is another one.

    Raises:
        ValueError: a number out of its range.
    """

    share: float = 0.01
    least: int = 1
    most: int | None = 16
    cell_m: float = 2.0
    window_s: float = 3600.0
    unique_below: float = 0.7
    event_gap_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share must be from 0 to 1, got {self.share}")
        if self.least < 0 or (self.most is not None and self.most < self.least):
            raise ValueError(f"least and most must be 0 <= least <= most, got {self.least} and {self.most}")
        for name in ("cell_m", "window_s", "event_gap_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {value}")
            if name != "cell_m" and value > LONGEST_S:
                raise ValueError(f"{name} must be at most {LONGEST_S:g}, got {value}")
        if not -1.0 <= self.unique_below <= 1.0:
            raise ValueError(f"unique_below must be from -1 to 1, got {self.unique_below}")

    @property
    def window_ns(self) -> int:
        """Length of a window in nanoseconds, at least 1."""
        return max(1, round(self.window_s * 1e9))

    def room(self, seen: int, things: int = 1) -> int:
        """How many of ``seen`` memories of a place and window, which are of so many things, are kept."""
        # A share such as 0.29 of 100 must not come out as 28.999...: round up what is as good as whole.
        wanted = max(self.least * things, math.floor(self.share * seen * (1.0 + 1e-12)))
        return wanted if self.most is None else min(self.most, wanted)


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


class _Window:
    """A place during a time window: of each thing, how many are protected and a ranking of the others."""

    __slots__ = ("ordinary", "protected", "rankings", "seen")

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen
        self.protected: dict[int, int] = {}
        self.rankings: dict[int, Ranking] = {}
        self.ordinary = 0

    @property
    def things(self) -> int:
        """How many different things it has memories of."""
        return len(self.protected.keys() | self.rankings.keys())

    def protect(self, thing: int, count: int = 1) -> None:
        """Count protected memories of a thing."""
        self.protected[thing] = self.protected.get(thing, 0) + count
        if not self.protected[thing]:
            del self.protected[thing]

    def push(self, thing: int, entry: tuple[float, int, int]) -> None:
        heapq.heappush(self.rankings.setdefault(thing, []), entry)
        self.ordinary += 1

    def pop_worst(self) -> int:
        """Key of the least important memory of the things that have the most, which is taken out."""

        def count(thing: int) -> int:
            return len(self.rankings[thing]) + self.protected.get(thing, 0)

        largest = max(map(count, self.rankings))
        worst = min(
            (ranking[0], thing) for thing, ranking in self.rankings.items() if count(thing) == largest
        )
        thing = worst[1]
        key = heapq.heappop(self.rankings[thing])[2]
        self.ordinary -= 1
        if not self.rankings[thing]:
            del self.rankings[thing]
        return key

    def remove(self, thing: int, key: int) -> None:
        ranking = [entry for entry in self.rankings.pop(thing, []) if entry[2] != key]
        self.ordinary -= 1
        if ranking:
            heapq.heapify(ranking)
            self.rankings[thing] = ranking


class _Unique:
    """Unique memories of a place, kind and label; those without a vector have a zero row.

    Each opens a thing, whose number is the order of its arrival.
    """

    __slots__ = ("keys", "positions", "things", "vectors", "without")

    def __init__(self, dim: int) -> None:
        self.keys: list[int] = []
        self.things: list[int] = []
        self.positions: list[tuple[float, float]] = []
        self.without = False  # Some have no vector, or may have none.
        self.vectors = np.zeros((1, dim), dtype=np.float32)

    def append(
        self, key: int, thing: int, position: tuple[float, float], vector: NDArray[np.float32] | None
    ) -> None:
        if vector is not None and self.vectors.shape[1] == 0:
            self.vectors = np.zeros((len(self.vectors), len(vector)), dtype=np.float32)
        if len(self.keys) == len(self.vectors):
            self.vectors = np.concatenate([self.vectors, np.zeros_like(self.vectors)])
        self.vectors[len(self.keys)] = 0.0 if vector is None else vector
        self.without |= vector is None
        self.keys.append(key)
        self.things.append(thing)
        self.positions.append(position)

    def closest(
        self, vector: NDArray[np.float32] | None, position: tuple[float, float], within_m: float
    ) -> tuple[float, int] | None:
        """Largest cosine to ``vector`` of what is near, and the thing it is to; ``None``: nothing is near.

        NaN and the first thing that is near where nothing can be compared.
        """
        x, y = position
        near = [
            row
            for row, (its_x, its_y) in enumerate(self.positions)
            if abs(its_x - x) < within_m and abs(its_y - y) < within_m
        ]
        if not near:
            return None
        if vector is None or self.vectors.shape[1] == 0:
            return math.nan, self.things[near[0]]
        if self.vectors.shape[1] != len(vector):
            raise ValueError(f"embedding has {len(vector)} numbers, those before had {self.vectors.shape[1]}")
        # Mostly everything is near and has a vector: nothing is copied then.
        used = self.vectors[: len(self.keys)] if len(near) == len(self.keys) else self.vectors[near]
        products = used @ vector
        if self.without:
            products[~used.any(axis=1)] = -np.inf
        best = int(products.argmax())
        cosine = float(products[best])
        return (cosine, self.things[near[best]]) if cosine > -math.inf else (math.nan, self.things[near[0]])

    def remove(self, key: int) -> None:
        row = self.keys.index(key)
        del self.keys[row], self.things[row], self.positions[row]
        self.vectors = np.delete(self.vectors, row, axis=0)
        if len(self.vectors) == 0:
            self.vectors = np.zeros((1, self.vectors.shape[1]), dtype=np.float32)


class _Evicted(NamedTuple):
    """What gave way, and what stands for it; ``None`` for nothing."""

    key: int | None
    like: int | None


Place = tuple[str, int, int]
WindowKey = tuple[str, int, int, int]
UniqueKey = tuple[str, int, int, str, str]


class Reservoir:
    """Decides about a stream of memories, one after the other; the same stream gives the same decisions.

    A marked memory is always kept, and so is a unique one: the first of its kind and label at its place, or
    one that is not similar to any unique one near it. So whatever is dropped has a kept memory of its kind
    and label nearby to which its cosine is at least ``unique_below`` (a cover, as in Gonzalez 1985).
    What is most like the same unique memory is of one thing, and belongs to the place of that one. Of each
    place and time window the share is kept, of each thing in it at least so many; marked and unique memories
    use up room before others. Things share the room evenly: where there is no more, those of which the most
    is kept give up the least important; of equals the later.

    Keys are the caller's: ids, or provisional numbers that :meth:`rename` replaces.

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
        self._windows: dict[WindowKey, _Window] = {}
        self._unique: dict[UniqueKey, _Unique] = {}
        # Where each kept memory is; the second is None for ordinary ones, the empty tuple for marked ones;
        # and the thing that it is of.
        self._kept: dict[int, tuple[WindowKey, UniqueKey | tuple[()] | None, int]] = {}
        # The unique memory that opened each thing.
        self._openers: dict[int, int] = {}
        # When an event of a place and label was last seen.
        self._last_event: dict[UniqueKey, int] = {}

    def __len__(self) -> int:
        """Memories that are kept."""
        return len(self._kept)

    def __contains__(self, key: int) -> bool:
        return key in self._kept

    @property
    def kept(self) -> NDArray[np.int64]:
        """Keys of what is kept, rising."""
        return np.array(sorted(self._kept), dtype=np.int64)

    def offer(
        self,
        key: int,
        *,
        importance: float,
        time_ns: int,
        position: tuple[float, ...],
        map_id: str = "default",
        kind: str = "object",
        label: str = "",
        embedding: NDArray[np.float32] | None = None,
        marked: bool = False,
    ) -> Decision:
        """Decide about one memory.

        Args:
            key: a number that is not in use.
            importance: any finite number; larger is kept first.
            time_ns: decides the window; may go backwards.
            position: x, y (and z, which is not used) in metres.
            map_id, kind, label: of the memory.
            embedding: (dim,) of any length above zero, or ``None``: then only the first of its kind and label
                at its place is unique.
            marked: kept whatever its importance.

        Raises:
            ValueError: a key in use, or numbers that are not finite.
        """
        key, time_ns = check_integer("key", key), check_integer("time_ns", time_ns)
        if key in self._kept:
            raise ValueError(f"key {key} is in use")
        check_numbers("importance", (importance,), 1)
        x, y = check_numbers("position", position[:2], 2)
        vector = None
        if embedding is not None:
            vector = check_vector("embedding", embedding)
            length = np.linalg.norm(vector.astype(np.float64))
            # A length that single precision does not hold divides in double precision.
            vector = vector / np.float32(length) if 1e-30 < length < 1e30 else unit(vector)
        place, thing, similarity = self._thing_at(map_id, kind, label, (x, y), vector)
        # Without anything to compare a vector with, the memory opens the neighbourhood of its vector.
        first = thing is None or (vector is not None and math.isnan(similarity))
        again = kind == "event" and self._happens_again((*place, kind, label), time_ns)
        unique = first or again or similarity < self.config.unique_below
        if unique:
            place = self._place(map_id, x, y)
        window_key = (*place, time_ns // self.config.window_ns)
        window = self._windows.setdefault(window_key, _Window())
        self.seen += 1
        window.seen += 1
        if thing is None or unique:
            why: Reason = (
                First(thing=label or kind)
                if thing is None
                else Plain(sort="first vector")
                if first
                else Plain(sort="again")
                if again
                else Unlike(similarity=similarity)
            )
            thing, unique_key = self.seen, (*place, kind, label)
            among = self._unique.setdefault(unique_key, _Unique(0 if vector is None else len(vector)))
            among.append(key, thing, (x, y), vector)
            self._openers[thing] = key
            gone = self._protect(key, window_key, window, unique_key, thing)
            return Decision(True, gone.key, why, similarity, None, gone.like)
        like = self._openers.get(thing)
        if marked:
            gone = self._protect(key, window_key, window, (), thing)
            return Decision(True, gone.key, Plain(sort="marked"), similarity, like, gone.like)
        return self._rank(key, importance, window_key, window, similarity, thing)

    def offer_memory(self, memory: Memory, *, key: int | None = None) -> Decision:
        """Decide about a memory by its fields; its importance must be set, and ``key`` where it has no id."""
        if memory.importance is None:
            raise ValueError("importance of the memory is not set")
        if key is None:
            key = memory.id
        if key is None:
            raise ValueError("the memory has no id: give a key")
        return self.offer(
            key,
            importance=memory.importance,
            time_ns=memory.time_ns,
            position=memory.position,
            map_id=memory.map_id,
            kind=memory.kind,
            label=memory.label,
            embedding=memory.embedding,
            marked=memory.marked,
        )

    def rename(self, keys: Mapping[int, int]) -> None:
        """Give kept memories other keys: new by old; all at once.

        Raises:
            KeyError: an old key that is not kept.
            ValueError: a new key that is in use, or given twice.
        """
        for old in keys:
            if old not in self._kept:
                raise KeyError(old)
        keys = {old: check_integer("key", new) for old, new in keys.items()}
        if len(set(keys.values())) < len(keys) or any(
            new in self._kept and new not in keys for new in keys.values()
        ):
            raise ValueError("new keys must differ from each other and from those in use")
        for window_key in {self._kept[old][0] for old in keys if self._kept[old][1] is None}:
            window = self._windows.get(window_key)
            if window is not None:
                # The key takes no part in the order before it: the heaps stay ones.
                for thing, ranking in window.rankings.items():
                    window.rankings[thing] = [(score, order, keys.get(k, k)) for score, order, k in ranking]
        for unique_key in {self._kept[old][1] for old in keys}:
            if unique_key:
                unique = self._unique[unique_key]
                unique.keys = [keys.get(key, key) for key in unique.keys]
        opened = [(self._kept[old][2], old) for old in keys]
        for thing, old in opened:
            if self._openers.get(thing) == old:
                self._openers[thing] = keys[old]
        self._kept.update({keys[old]: self._kept.pop(old) for old in list(keys)})

    def discard(self, key: int) -> None:
        """Take a memory out that is no longer kept elsewhere; what was like it can be unique again.

        Raises:
            KeyError: a key that is not kept.
        """
        window_key, protection, thing = self._kept.pop(key)
        window = self._windows.get(window_key)
        if protection is None:
            if window is not None:
                window.remove(thing, key)
            return
        if window is not None:
            window.protect(thing, -1)
        if protection:
            unique = self._unique[protection]
            unique.remove(key)
            self._openers.pop(thing, None)
            if not unique.keys:
                del self._unique[protection]

    def opens(self, key: int) -> bool:
        """Whether a kept memory is unique: it stands for what is like it."""
        return bool(self._kept[key][1])

    def close_before(self, time_ns: int) -> int:
        """Free the rankings of windows that ended before ``time_ns``; what they kept stays.

        A memory of such a window that comes late finds it empty.

        Returns:
            How many windows were closed.
        """
        last = time_ns // self.config.window_ns
        old = [key for key in self._windows if key[3] < last]
        for key in old:
            del self._windows[key]
        return len(old)

    def drop_empty_windows(self) -> int:
        """Free windows of which nothing is kept: after an erasure not even their map and place stay.

        Returns:
            How many windows were freed.
        """
        used = {window_key for window_key, _, _ in self._kept.values()}
        empty = [key for key in self._windows if key not in used]
        for key in empty:
            del self._windows[key]
        self._last_event = {key: last for key, last in self._last_event.items() if key in self._unique}
        return len(empty)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write settings and state as one .npz file, replaced only when complete."""
        file = Path(path)
        vectors = [u.vectors[: len(u.keys)].reshape(-1) for u in self._unique.values()]
        header = {
            "format": FORMAT,
            "version": VERSION,
            "config": asdict(self.config),
            "seen": self.seen,
            "generation": self.generation,
            "identity": self.identity,
            "windows": [
                [k, w.seen, list(w.protected.items()), list(w.rankings.items())]
                for k, w in self._windows.items()
            ],
            "unique": [
                [k, u.keys, u.things, u.positions, u.vectors.shape[1]] for k, u in self._unique.items()
            ],
            "kept": [[key, *where] for key, where in self._kept.items()],
            "events": [[key, time_ns] for key, time_ns in self._last_event.items()],
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
        reservoir = cls(ReservoirConfig(**header["config"]))
        reservoir.seen = header["seen"]
        reservoir.generation, reservoir.identity = header["generation"], header["identity"]
        for key, seen, protected, rankings in header["windows"]:
            window = reservoir._windows[(key[0], key[1], key[2], key[3])] = _Window(seen)
            window.protected = dict(protected)
            for thing, ranking in rankings:
                window.rankings[thing] = [(score, order, member) for score, order, member in ranking]
                window.ordinary += len(ranking)
        start = 0
        for key, members, things, positions, dim in header["unique"]:
            unique = _Unique(dim)
            end = start + len(members) * dim
            unique.keys, unique.things = list(members), list(things)
            unique.positions = [(x, y) for x, y in positions]
            unique.vectors = vectors[start:end].reshape(len(members), dim).copy()
            unique.without = True
            start = end
            reservoir._unique[(key[0], key[1], key[2], key[3], key[4])] = unique
            reservoir._openers.update(zip(unique.things, unique.keys, strict=True))
        for key, time_ns in header["events"]:
            reservoir._last_event[(key[0], key[1], key[2], key[3], key[4])] = time_ns
        for key, window_key, protection, thing in header["kept"]:
            where = None if protection is None else tuple(protection)
            reservoir._kept[key] = (tuple(window_key), where, thing)
        return reservoir

    def _place(self, map_id: str, x: float, y: float) -> Place:
        size = self.config.cell_m
        return (map_id, math.floor(x / size), math.floor(y / size))

    def _thing_at(
        self,
        map_id: str,
        kind: str,
        label: str,
        position: tuple[float, float],
        vector: NDArray[np.float32] | None,
    ) -> tuple[Place, int | None, float]:
        """The thing nearby that a memory is most like, with its place and cosine; of equals the earlier."""
        here = self._place(map_id, *position)
        found: tuple[Place, int | None, float] = (here, None, math.nan)
        for column in (here[1] - 1, here[1], here[1] + 1):
            for row in (here[2] - 1, here[2], here[2] + 1):
                among = self._unique.get((map_id, column, row, kind, label))
                best = among.closest(vector, position, self.config.cell_m) if among is not None else None
                if best is not None and _closer(best, (found[2], found[1])):
                    found = ((map_id, column, row), best[1], best[0])
        return found

    def _happens_again(self, key: UniqueKey, time_ns: int) -> bool:
        """Whether it had been over before this sight of an event; notes the sight."""
        last = self._last_event.get(key)
        self._last_event[key] = time_ns
        return last is not None and abs(time_ns - last) > self.config.event_gap_s * 1e9

    def _protect(
        self,
        key: int,
        window_key: WindowKey,
        window: _Window,
        protection: UniqueKey | tuple[()],
        thing: int,
    ) -> _Evicted:
        """Keep a memory that never leaves; an ordinary one gives way where there is no room."""
        self._kept[key] = (window_key, protection, thing)
        window.protect(thing)
        if window.ordinary and window.ordinary > self._room(window):
            return self._evict(window)
        return _Evicted(None, None)

    def _rank(
        self,
        key: int,
        importance: float,
        window_key: WindowKey,
        window: _Window,
        similarity: float,
        thing: int,
    ) -> Decision:
        """Keep an ordinary memory if it is among the best of its thing, as far as the thing has room."""
        window.push(thing, (float(importance), -self.seen, key))
        self._kept[key] = (window_key, None, thing)
        seen, room = window.seen, self.config.room(window.seen, window.things)
        like = self._openers.get(thing)
        if window.ordinary <= self._room(window):
            return Decision(True, None, Ranked(sort="room", seen=seen, room=room), similarity, like)
        gone = self._evict(window)
        if gone.key == key:
            cosine = None if math.isnan(similarity) else similarity
            why = Ranked(sort="less", seen=seen, room=room, similarity=cosine)
            return Decision(False, None, why, similarity, like)
        than = gone.key if gone.key is not None and gone.key >= 0 else None
        why = Ranked(sort="more", seen=seen, room=room, than=than)
        return Decision(True, gone.key, why, similarity, like, gone.like)

    def _room(self, window: _Window) -> int:
        """For ordinary memories of a window."""
        return self.config.room(window.seen, window.things) - sum(window.protected.values())

    def _evict(self, window: _Window) -> _Evicted:
        evicted = window.pop_worst()
        thing = self._kept.pop(evicted)[2]
        return _Evicted(evicted, self._openers.get(thing))


def _closer(one: tuple[float, int], other: tuple[float, int | None]) -> bool:
    """Whether a (cosine, thing) goes before another: a cosine before none, the larger, the earlier."""
    (cosine, thing), (its_cosine, its_thing) = one, other
    if its_thing is None:
        return True
    if math.isnan(cosine) or math.isnan(its_cosine):
        return thing < its_thing if math.isnan(cosine) == math.isnan(its_cosine) else math.isnan(its_cosine)
    return (-cosine, thing) < (-its_cosine, its_thing)
