"""What is kept of a stream: the best share of each place and time window, and everything that is unique."""

from __future__ import annotations

import heapq
import json
import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.types import Memory, check_integer, check_numbers, check_vector
from sparse_core.files import replacing

FORMAT = "sparsight-reservoir"
VERSION = 1
#: Kept ordinary memories of a place and window, worst first: (importance, minus the order of arrival, key).
Ranking = list[tuple[float, int, int]]


@dataclass(frozen=True, kw_only=True)
class ReservoirConfig:
    """How much is kept.

    Attributes:
        share: of the memories of a place and window, from 0 to 1.
        least: kept of a place and window whatever the share.
        most: kept of a place and window whatever the share, or ``None``; unique and marked ones come on top.
        cell_m: side of the squares in x and y that are one place.
        window_s: length of a time window in seconds.
        unique_below: a memory is unique when its cosine to every unique memory of its place, kind and label
            is below this.

    Raises:
        ValueError: a number out of its range.
    """

    share: float = 0.01
    least: int = 1
    most: int | None = 16
    cell_m: float = 2.0
    window_s: float = 3600.0
    unique_below: float = 0.7

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share must be from 0 to 1, got {self.share}")
        if self.least < 0 or (self.most is not None and self.most < self.least):
            raise ValueError(f"least and most must be 0 <= least <= most, got {self.least} and {self.most}")
        for name in ("cell_m", "window_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {value}")
        if not -1.0 <= self.unique_below <= 1.0:
            raise ValueError(f"unique_below must be from -1 to 1, got {self.unique_below}")

    @property
    def window_ns(self) -> int:
        """Length of a window in nanoseconds, at least 1."""
        return max(1, round(self.window_s * 1e9))

    def room(self, seen: int) -> int:
        """How many of ``seen`` memories of a place and window are kept."""
        # A share such as 0.29 of 100 must not come out as 28.999...: round up what is as good as whole.
        wanted = max(self.least, math.floor(self.share * seen * (1.0 + 1e-12)))
        return wanted if self.most is None else min(self.most, wanted)


class Decision(NamedTuple):
    """What becomes of a memory that was offered.

    Attributes:
        kept: whether it is.
        evicted: key of the memory that gave way to it, or ``None``.
        reason: a sentence.
        similarity: cosine to the closest unique memory of its place, kind and label; NaN where there is none.
    """

    kept: bool
    evicted: int | None
    reason: str
    similarity: float


class _Window:
    """A place during a time window."""

    __slots__ = ("protected", "ranking", "seen")

    def __init__(self, seen: int = 0, protected: int = 0, ranking: Ranking | None = None) -> None:
        self.seen = seen
        self.protected = protected
        self.ranking: Ranking = ranking if ranking is not None else []


class _Unique:
    """Unique memories of a place, kind and label; those without a vector have a zero row."""

    __slots__ = ("keys", "vectors")

    def __init__(self, dim: int) -> None:
        self.keys: list[int] = []
        self.vectors = np.zeros((1, dim), dtype=np.float32)

    def append(self, key: int, vector: NDArray[np.float32] | None) -> None:
        if vector is not None and self.vectors.shape[1] == 0:
            self.vectors = np.zeros((len(self.vectors), len(vector)), dtype=np.float32)
        if len(self.keys) == len(self.vectors):
            self.vectors = np.concatenate([self.vectors, np.zeros_like(self.vectors)])
        self.vectors[len(self.keys)] = 0.0 if vector is None else vector
        self.keys.append(key)

    def similarity(self, vector: NDArray[np.float32]) -> float:
        """Largest cosine to ``vector``; NaN where none has a vector."""
        used = self.vectors[: len(self.keys)]
        if used.shape[1] == 0:
            return math.nan
        if used.shape[1] != len(vector):
            raise ValueError(f"embedding has {len(vector)} numbers, those before had {used.shape[1]}")
        products = used @ vector
        compared = products[used.any(axis=1)]
        return float(compared.max()) if compared.size else math.nan

    def remove(self, key: int) -> None:
        row = self.keys.index(key)
        del self.keys[row]
        self.vectors = np.delete(self.vectors, row, axis=0)
        if len(self.vectors) == 0:
            self.vectors = np.zeros((1, self.vectors.shape[1]), dtype=np.float32)


Place = tuple[str, int, int]
WindowKey = tuple[str, int, int, int]
UniqueKey = tuple[str, int, int, str, str]


class Reservoir:
    """Decides about a stream of memories, one after the other; the same stream gives the same decisions.

    Of each place and time window the best ``share`` is kept, by importance; of equals the earlier. A marked
    memory is always kept, and so is a unique one: the first of its kind and label at its place, or one that
    is not similar to any unique one before it. So whatever is dropped has a kept memory of its place, kind
    and label to which its cosine is at least ``unique_below`` (Gonzalez 1985 calls such a set a cover).
    Marked and unique memories use up room of their window before others do.

    Keys are the caller's: ids, or provisional numbers that :meth:`rename` replaces.
    """

    def __init__(self, config: ReservoirConfig | None = None) -> None:
        self.config = config or ReservoirConfig()
        self.seen = 0
        self._windows: dict[WindowKey, _Window] = {}
        self._unique: dict[UniqueKey, _Unique] = {}
        # Where each kept memory is; the second is None for ordinary ones, the empty tuple for marked ones.
        self._kept: dict[int, tuple[WindowKey, UniqueKey | tuple[()] | None]] = {}

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
            vector = vector / np.float32(np.linalg.norm(vector.astype(np.float64)))
        size = self.config.cell_m
        place = (map_id, math.floor(x / size), math.floor(y / size))
        window_key = (*place, time_ns // self.config.window_ns)
        unique_key = (*place, kind, label)
        unique = self._unique.get(unique_key)
        similarity = math.nan
        if unique is not None and vector is not None:
            similarity = unique.similarity(vector)
        window = self._windows.setdefault(window_key, _Window())
        self.seen += 1
        window.seen += 1
        # Without anything to compare a vector with, the memory opens the neighbourhood of its vector.
        first = unique is None or (vector is not None and math.isnan(similarity))
        if first or similarity < self.config.unique_below:
            self._unique.setdefault(unique_key, _Unique(0 if vector is None else len(vector))).append(
                key, vector
            )
            reason = (
                f"the first {label or kind} at this place"
                if unique is None
                else "the first with an embedding at this place"
                if first
                else f"unlike everything unique at this place, similarity {similarity:.2f}"
            )
            evicted = self._protect(key, window_key, window, unique_key)
            return Decision(True, evicted, reason, similarity)
        if marked:
            evicted = self._protect(key, window_key, window, ())
            return Decision(True, evicted, "marked by the user", similarity)
        return self._rank(key, importance, window_key, window, similarity)

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
        staying = self._kept.keys() - keys.keys()
        keys = {old: check_integer("key", new) for old, new in keys.items()}
        if len(set(keys.values())) < len(keys) or staying & set(keys.values()):
            raise ValueError("new keys must differ from each other and from those in use")
        entries = {keys.get(key, key): where for key, where in self._kept.items()}
        for window_key in {self._kept[old][0] for old in keys if self._kept[old][1] is None}:
            window = self._windows.get(window_key)
            if window is not None:
                # The key takes no part in the order before it: the heap stays one.
                window.ranking = [(score, order, keys.get(key, key)) for score, order, key in window.ranking]
        for unique_key in {self._kept[old][1] for old in keys}:
            if unique_key:
                unique = self._unique[unique_key]
                unique.keys = [keys.get(key, key) for key in unique.keys]
        self._kept = entries

    def discard(self, key: int) -> None:
        """Take a memory out that is no longer kept elsewhere; what was like it can be unique again.

        Raises:
            KeyError: a key that is not kept.
        """
        window_key, protection = self._kept.pop(key)
        window = self._windows.get(window_key)
        if protection is None:
            if window is not None:
                window.ranking = [entry for entry in window.ranking if entry[2] != key]
                heapq.heapify(window.ranking)
            return
        if window is not None:
            window.protected -= 1
        if protection:
            unique = self._unique[protection]
            unique.remove(key)
            if not unique.keys:
                del self._unique[protection]

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

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write settings and state as one .npz file, replaced only when complete."""
        file = Path(path)
        vectors = [u.vectors[: len(u.keys)].reshape(-1) for u in self._unique.values()]
        header = {
            "format": FORMAT,
            "version": VERSION,
            "config": asdict(self.config),
            "seen": self.seen,
            "windows": [[k, w.seen, w.protected, w.ranking] for k, w in self._windows.items()],
            "unique": [[k, u.keys, u.vectors.shape[1]] for k, u in self._unique.items()],
            "kept": [[key, *where] for key, where in self._kept.items()],
        }
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        with replacing(file) as target, target.open("wb") as stream:
            np.savez(stream, header=text, vectors=np.concatenate([np.zeros(0, np.float32), *vectors]))
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Reservoir:
        """Read what :meth:`save` wrote; later decisions are as if it had never been away.

        Raises:
            FileNotFoundError: no such file.
            ValueError: damaged, no file of a reservoir, or of another version.
        """
        file = Path(path)
        try:
            # Opened here, because numpy leaves a damaged file open.
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                header = json.loads(stored["header"].tobytes())
                vectors = stored["vectors"]
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{file}: damaged or no file of a reservoir ({error})") from error
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"{file}: not a file of a reservoir")
        if header.get("version") != VERSION:
            raise ValueError(f"{file}: version is {header.get('version')!r}, this release reads {VERSION}")
        return cls._restored(header, vectors)

    @classmethod
    def _restored(cls, header: Mapping[str, Any], vectors: NDArray[np.float32]) -> Reservoir:
        reservoir = cls(ReservoirConfig(**header["config"]))
        reservoir.seen = header["seen"]
        for key, seen, protected, ranking in header["windows"]:
            entries = [(score, order, member) for score, order, member in ranking]
            reservoir._windows[(key[0], key[1], key[2], key[3])] = _Window(seen, protected, entries)
        start = 0
        for key, members, dim in header["unique"]:
            unique = _Unique(dim)
            end = start + len(members) * dim
            unique.keys = list(members)
            unique.vectors = vectors[start:end].reshape(len(members), dim).copy()
            start = end
            reservoir._unique[(key[0], key[1], key[2], key[3], key[4])] = unique
        for key, window_key, protection in header["kept"]:
            where = None if protection is None else tuple(protection)
            reservoir._kept[key] = (tuple(window_key), where)
        return reservoir

    def _protect(
        self, key: int, window_key: WindowKey, window: _Window, protection: UniqueKey | tuple[()]
    ) -> int | None:
        """Keep a memory that never leaves; the worst ordinary one gives way where there is no room."""
        self._kept[key] = (window_key, protection)
        window.protected += 1
        room = self.config.room(window.seen) - window.protected
        if window.ranking and len(window.ranking) > room:
            return self._evict(window)
        return None

    def _rank(
        self, key: int, importance: float, window_key: WindowKey, window: _Window, similarity: float
    ) -> Decision:
        """Keep an ordinary memory if it is among the best of its window."""
        entry = (float(importance), -self.seen, key)
        room = self.config.room(window.seen) - window.protected
        share = f"of {window.seen} at this place and time, {self.config.room(window.seen)} are kept"
        if len(window.ranking) < room:
            heapq.heappush(window.ranking, entry)
            self._kept[key] = (window_key, None)
            return Decision(True, None, f"{share}, and there is room", similarity)
        if not window.ranking or entry < window.ranking[0]:
            like = "" if math.isnan(similarity) else f"like one that is kept, similarity {similarity:.2f}; "
            return Decision(False, None, f"{like}{share}, and others matter more", similarity)
        evicted = self._evict(window)
        heapq.heappush(window.ranking, entry)
        self._kept[key] = (window_key, None)
        return Decision(True, evicted, f"{share}; it matters more than {evicted}", similarity)

    def _evict(self, window: _Window) -> int:
        evicted = heapq.heappop(window.ranking)[2]
        del self._kept[evicted]
        return evicted
