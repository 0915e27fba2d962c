"""Finding memories: which filter, which index, in which order."""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.columns import ColumnCache
from memory.errors import DimensionError, UnknownMemoryError
from memory.index import FlatIndex, LSHIndex, Neighbours, Plan, TieredIndex, plan
from memory.index.calibration import reached
from memory.index.effort import HIGH, THOROUGH, Calibration
from memory.index.lsh import TAIL_LIMIT
from memory.index.neighbours import LongTermIndex, Marked
from memory.persistence.deadline import without_limit
from memory.persistence.filters import Filter, in_polygon
from memory.persistence.sqlite import Database
from memory.tiers import Mover, Tier, TierOptions
from memory.types import Query

#: Vectors that are read from the store at a time when an index is built.
_PORTION = 65_536
#: Of fewer memories than this share an index finds enough, but not the nearest: all that match are compared.
_LEAST_SHARE = 1 / 32
_DEFAULT = "default"


class Found(NamedTuple):
    """Ids in the order in which they answer.

    Attributes:
        ids: (n,) int64.
        similarity: (n,) float32 cosines, or ``None`` where nothing was compared.
        text: (n,) float64, how well words fit, or ``None``.
        plan: how vectors were searched, or ``None``.
    """

    ids: NDArray[np.int64]
    similarity: NDArray[np.float32] | None = None
    text: NDArray[np.float64] | None = None
    plan: Plan | None = None

    def of(self, ids: Sequence[int | None]) -> Found:
        """Only these of the ids."""
        return _take(self, np.flatnonzero(np.isin(self.ids, np.array(ids, dtype=np.int64))))


class Retriever:
    """Caches over a store that answer queries; they follow it before each answer.

    Args:
        database: the truth.
        index_from: vectors above which there is an index instead of comparing all.
        index: ``"lsh"``, ``"faiss"`` or ``"faiss-rabitq"``.
        tiers: which vectors stay out of the index, and how they move there.
    """

    def __init__(
        self,
        database: Database,
        *,
        index_from: int,
        index: str = "lsh",
        tiers: TierOptions | None = None,
    ) -> None:
        self._database = database
        self._index_from = index_from
        self._index_name = index
        self._tiers = tiers or TierOptions()
        self._lock = threading.RLock()
        self._columns: ColumnCache | None = None
        self._indexes: dict[str, TieredIndex] = {}
        #: What the files hold: the operation that each index was up to date with, and what was measured.
        self._on_disk: dict[str, tuple[int, Calibration | None]] = {}
        self._mover = Mover(self._move_on, self._tiers.budget)

    def find(self, query: Query) -> Found:
        """The ids that answer a query, at most ``query.k``."""
        filter = filter_of(query)
        vector = self._vector_of(query)
        if vector is None and query.text is not None:
            # In another order than how well the words fit, all that have them count.
            best_first = query.ordered_by == "relevance"
            hits = self._database.search_text(query.text, filter, limit=query.k if best_first else 2**62)
            with self._lock:
                self._follow()
                return self._ordered(query, Found(hits.ids, text=hits.scores))
        chosen = self._looked_up(filter)
        with self._lock:
            self._follow()
            if vector is not None:
                found = self._similar(query, filter, vector, chosen)
            else:
                found = Found(self._columns_of().column("ids")[self._passing(filter, chosen)])
            return self._ordered(query, found)

    def neighbours(
        self,
        vectors: NDArray[np.float32],
        k: int,
        *,
        encoder: str = _DEFAULT,
        map_id: str | None = None,
        aim: float = HIGH,
    ) -> Neighbours:
        """The k most similar memories of each of (queries, dim) vectors, by the index alone.

        Args:
            vectors: (queries, dim).
            k: of each.
            encoder: which vectors are compared.
            map_id: of which map.
            aim: share of the ten nearest that is to be found.
        """
        with self._lock:
            columns = self._followed()
            index = self._index(encoder)
            question = unit_rows(vectors, index.dim)
            if map_id is None or columns.names("map_ids") == [map_id]:
                return index.search(question, k, aim=aim)
            return index.search(question, k, allowed=self._matching(Filter(map_id=map_id)), aim=aim)

    def ids(self, filter: Filter, *, several: bool = False) -> NDArray[np.int64]:
        """Rising ids of what passes a filter without text; with ``several`` only of merged memories."""
        chosen = self._looked_up(filter)
        with self._lock:
            columns = self._followed()
            kept = self._passing(filter, chosen)
            if several:
                kept &= columns.column("counts") > 1
            found: NDArray[np.int64] = columns.column("ids")[kept]
            return found

    def there(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the ids are of memories that are there."""
        with self._lock:
            return self._followed().rows(ids) >= 0

    def label_counts(self) -> dict[str, int]:
        """Memories by label."""
        with self._lock:
            columns = self._followed()
            codes, counts = np.unique(columns.column("labels")[columns.column("alive")], return_counts=True)
            names = columns.names("labels")
            return {names[code]: int(count) for code, count in zip(codes, counts, strict=True)}

    def drop(self, folder: Path) -> None:
        """Forget the indexes, and remove their files: nothing of an erased vector stays."""
        with self._lock:
            self._indexes.clear()
            self._on_disk.clear()
            for path in folder.glob("*"):
                path.unlink(missing_ok=True)

    def stop(self) -> None:
        """End the thread that moves vectors; what waits stays in the recent tier, where it is found."""
        self._mover.stop()

    def settle(self) -> None:
        """Move everything to the tier where it belongs, now."""
        with self._lock:
            self._follow()
            for index in self._indexes.values():
                index.settle()

    def tiers(self) -> dict[str, Tier]:
        """Sizes of the tiers by encoder, of the indexes that have been used so far."""
        with self._lock:
            found = {}
            for encoder, index in self._indexes.items():
                recent, long_term = index.tiers
                name = None if long_term is None else type(long_term).__name__
                older = 0 if long_term is None else len(long_term)
                found[encoder] = Tier(
                    len(recent), older, index.waiting, name, index.nbytes, reached(long_term)
                )
            return found

    def save(self, folder: Path) -> None:
        """Write the indexes, to be mapped at the next start; they are caches and may be deleted."""
        with self._lock:
            self._follow_indexes(self._database.generation)
            for encoder, index in self._indexes.items():
                if self._on_disk.get(encoder) == _version(index):
                    continue
                folder.mkdir(exist_ok=True)
                recent, long_term = index.tiers
                # Not "or": an index without vectors is false.
                file = _index_file(folder, encoder, type(recent if long_term is None else long_term))
                index.identity = self._database.identity(index.generation) or ""
                index.save(file)
                self._on_disk[encoder] = _version(index)
                for other in folder.glob(f"{file.stem}.*"):
                    if other != file:
                        other.unlink()  # Of the time when there were fewer.

    def load(self, folder: Path) -> None:
        """Map what :meth:`save` wrote; what does not fit the store any more is built again when needed."""
        with self._lock:
            kinds: list[Any] = [FlatIndex, LSHIndex]
            lists = None
            if self._index_name.startswith("faiss"):
                from memory.index.faiss_index import FaissIndex

                kinds[1:] = [FaissIndex]
                lists = _lists(self._index_name)
            for kind in kinds:
                for encoder, dim in self._database.slots().items():
                    try:
                        index = kind.load(_index_file(folder, encoder, kind))
                    except (OSError, ValueError):
                        continue
                    if index.identity != self._database.identity(index.generation) or index.dim != dim:
                        continue
                    if lists is not None and kind is not FlatIndex and index.lists != lists:
                        continue
                    tiered = self._empty(dim)
                    tiered.adopt(index)
                    tiered.generation = index.generation
                    self._on_disk[encoder] = _version(tiered)
                    self._indexes[encoder] = tiered

    def _move_on(self, rest: Callable[[], None]) -> bool:
        """A step of the thread in the background; whether there is more to do."""
        more = False
        for encoder, index in list(self._indexes.items()):
            if index.needs_building:
                built = index.build(rest)
                with self._lock:
                    if self._indexes.get(encoder) is index:
                        index.replace(built)
                more = True
            elif index.waiting:
                with self._lock:
                    if self._indexes.get(encoder) is index:
                        index.move(self._tiers.portion)
                more = True
            elif index.needs_calibration:
                more = index.calibrate(rest) or more
            rest()
            long_term = index.tiers[1]
            if long_term is not None and long_term.tail > TAIL_LIMIT:
                index.sort()
        return more

    def _vector_of(self, query: Query) -> NDArray[np.float32] | None:
        if query.embedding is not None:
            return query.embedding
        if query.like is None:
            return None
        vectors = self._database.vectors([query.like], query.encoder)
        if not len(vectors.ids):
            self._database.get([query.like], vectors=False)  # says so where there is no such memory
            raise UnknownMemoryError(f"memory {query.like} has no vector of encoder {query.encoder!r}")
        found: NDArray[np.float32] = vectors.halves[0].astype(np.float32)
        return found

    def _looked_up(self, filter: Filter) -> NDArray[np.int64] | None:
        """Rising ids of what has the filter's words and lies in its polygon; ``None`` where it has neither.

        Found without the lock: these are the parts that may take long, and nobody else waits for them.
        """
        ids: NDArray[np.int64] | None = None
        if filter.polygon is not None:
            with self._lock:
                columns = self._followed()
                near = columns.matches(replace(filter, text=None, polygon=None))
                ids, points = columns.column("ids")[near], columns.column("positions")[near, :2]
            ids = ids[in_polygon(points, filter.polygon)]
        if filter.text is not None:
            said = self._database.ids(Filter(text=filter.text))
            ids = said if ids is None else np.intersect1d(ids, said, assume_unique=True)
        return ids

    def _passing(self, filter: Filter, chosen: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        """Which rows pass a filter, of which :meth:`_looked_up` found a part."""
        columns = self._columns_of()
        if chosen is None:
            return columns.matches(filter)
        rows = columns.rows(chosen)
        rows = rows[rows >= 0]
        kept = np.zeros(len(columns.column("ids")), np.bool_)
        kept[rows] = columns.matches(replace(filter, text=None, polygon=None), rows)
        return kept

    def _columns_of(self) -> ColumnCache:
        assert self._columns is not None
        return self._columns

    def _similar(
        self, query: Query, filter: Filter, vector: NDArray[np.float32], said: NDArray[np.int64] | None
    ) -> Found:
        index = self._index(query.encoder)
        question = unit_rows(vector[None], index.dim)
        columns = self._columns
        assert columns is not None
        wanted = query.k + (1 if query.like is not None else 0)
        costs = index.costs(THOROUGH)
        if is_empty(filter):
            chosen = plan(len(index), len(index), wanted, filtered=False, costs=costs)
            if chosen.method == "index":
                found = index.search(question, wanted, aim=THOROUGH)
                return self._found(query, found, chosen)
            every = columns.column("alive")
            found = index.search_marked(question, wanted, columns.column("ids"), every)
            return self._found(query, found, chosen)
        kept = self._passing(filter, said)
        matches = int(np.count_nonzero(kept))
        total = max(len(index), matches)
        chosen = plan(total, matches, wanted, costs=costs)
        if matches == 0:
            return Found(np.zeros(0, np.int64), np.zeros(0, np.float32), plan=chosen)
        if chosen.method == "index" and matches >= _LEAST_SHARE * total:
            # Where all pass there is nothing to leave out.
            marked = None if matches == len(columns) else Marked(columns.column("ids"), kept)
            found = index.search(question, wanted, marked=marked, aim=THOROUGH)
            # Fewer than there are: what matches lies apart from the buckets or lists of the query.
            if np.count_nonzero(found.ids >= 0) >= min(wanted, matches):
                return self._found(query, found, chosen)
        if chosen.method == "subset":
            searched = index.search_within(question, columns.column("ids")[kept], wanted)
        else:
            searched = index.search_marked(question, wanted, columns.column("ids"), kept)
        return self._found(query, searched, chosen)

    def _found(self, query: Query, found: Neighbours, chosen: Plan) -> Found:
        ids, scores = found.ids[0], found.scores[0]
        kept = np.flatnonzero((ids >= 0) & (ids != (-1 if query.like is None else query.like)))[: query.k]
        return Found(ids[kept], scores[kept], plan=chosen)

    def _matching(self, filter: Filter) -> NDArray[np.int64]:
        assert self._columns is not None
        kept: NDArray[np.int64] = self._columns.column("ids")[self._columns.matches(filter)]
        return kept

    def _ordered(self, query: Query, found: Found) -> Found:
        """Cut to ``k`` in the order that was asked for; equal ones by rising id."""
        assert self._columns is not None
        ids = found.ids
        order = query.ordered_by
        if order == "relevance":
            return _take(found, np.arange(min(query.k, len(ids))))
        rows = self._columns.rows(ids)
        if (rows < 0).any():
            # What came or went after the columns were brought up to date.
            found = _take(found, np.flatnonzero(rows >= 0))
            ids, rows = found.ids, rows[rows >= 0]
        if order == "recency":
            # Not minus, which the least number of 64 bits does not have.
            key = ~self._columns.column("time_ns")[rows]
        else:
            assert query.near is not None
            key = distances(self._columns.column("positions")[rows], query.near)
        if found.similarity is None and found.text is None and len(ids) > 4 * query.k:
            # Only the first few have to be in order.
            first = np.sort(np.argpartition(key, query.k)[: query.k + 1])
            bound = key[first].max()
            first = np.flatnonzero(key <= bound)
            return _take(found, first[np.lexsort((ids[first], key[first]))][: query.k])
        return _take(found, np.lexsort((ids, key))[: query.k])

    def _followed(self) -> ColumnCache:
        self._follow()
        assert self._columns is not None
        return self._columns

    def _follow(self) -> None:
        generation = self._database.generation
        with without_limit():
            if self._columns is None:
                self._columns = ColumnCache.of(self._database)
            elif self._columns.generation != generation:
                self._columns.follow(self._database)
            self._follow_indexes(generation)

    def _follow_indexes(self, generation: int) -> None:
        behind = [encoder for encoder, index in self._indexes.items() if index.generation != generation]
        slots = self._database.slots() if behind else {}
        for encoder in behind:
            if slots.get(encoder) == self._indexes[encoder].dim:
                self._catch_up(encoder, self._indexes[encoder])
            else:
                del self._indexes[encoder]  # No memory has such vectors any more, or they became others.

    def _catch_up(self, encoder: str, index: TieredIndex) -> None:
        changes = self._database.changes(index.generation)
        index.remove(np.concatenate([changes.removed, changes.revised, changes.added]))
        present = np.sort(np.concatenate([changes.added, changes.revised]))
        for start in range(0, len(present), _PORTION):
            vectors = self._database.vectors(present[start : start + _PORTION].tolist(), encoder)
            if len(vectors.ids):
                index.add(unit_rows(vectors.halves.astype(np.float32), index.dim), vectors.ids)
        index.generation = changes.generation
        if self._tiers.background and (index.waiting > self._tiers.portion or index.needs_building):
            self._mover.wake()

    def _empty(self, dim: int) -> TieredIndex:
        """An index of two tiers without vectors."""

        def make(count: int) -> LongTermIndex:
            if self._index_name.startswith("faiss"):
                return _faiss_index(dim, count, _lists(self._index_name))
            return LSHIndex(dim, expected=count)

        return TieredIndex(
            dim, make=make, finish=train_index, dense=self._index_from, recent=self._tiers.recent
        )

    def _index(self, encoder: str) -> TieredIndex:
        """The index of an encoder's vectors."""
        known = self._indexes.get(encoder)
        if known is not None:
            if self._tiers.background and known.needs_calibration:
                self._mover.wake()
            return known
        slots = self._database.slots()
        if encoder not in slots:
            if encoder == _DEFAULT:
                return self._empty(self._database.dim)
            raise ValueError(
                f"no memory has a vector of encoder {encoder!r};"
                f" there are {', '.join(sorted(slots)) or 'none'}"
            )
        generation = self._database.generation
        assert self._columns is not None
        dim = slots[encoder]
        index = self._empty(dim)
        after = 0

        def portion() -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
            nonlocal after
            vectors = self._database.scan_vectors(after, _PORTION, encoder)
            if not len(vectors.ids):
                return None
            after = int(vectors.ids[-1])
            return unit_rows(vectors.halves.astype(np.float32), dim), vectors.ids

        with without_limit():
            index.fill(len(self._columns), portion)
            index.generation = generation
            self._indexes[encoder] = index
            self._catch_up(encoder, index)
        return index


def _version(index: TieredIndex) -> tuple[int, Calibration | None]:
    """What a file of the index would hold."""
    long_term = index.tiers[1]
    return index.generation, None if long_term is None else long_term.calibration


def train_index(index: LongTermIndex) -> None:
    """Find the cells of an index that has some and is not trained."""
    from memory.index import faiss_index

    if isinstance(index, faiss_index.FaissIndex) and not index.trained and len(index) >= index.cells:
        index.train()


def _lists(name: str) -> Any:
    """What the lists of faiss hold."""
    return "rabitq" if name == "faiss-rabitq" else "flat"


def _faiss_index(dim: int, count: int, lists: Any) -> LongTermIndex:
    from memory.index.faiss_index import FaissIndex

    # Cells of some hundred vectors; a sixty-fourth of them holds the neighbours of nearly every query.
    cells = 1 << max(4, round(math.log2(math.sqrt(count) * 2)))
    refine = 1 if lists == "flat" else 10
    return FaissIndex(dim, lists=lists, cells=cells, probes=max(4, cells // 64), refine=refine)


def filter_of(query: Query) -> Filter:
    """The part of a query that memories pass or not; words are part of it beside a vector only."""
    compared = query.embedding is not None or query.like is not None
    circle = None
    if query.near is not None and query.radius_m is not None:
        circle = (query.near[0], query.near[1], query.radius_m)
    return Filter(
        text=query.text if compared else None,
        between_ns=query.between_ns,
        labels=query.labels,
        kinds=query.kinds,
        map_id=query.map_id,
        min_confidence=query.min_confidence,
        circle=circle,
        polygon=query.polygon,
    )


def is_empty(filter: Filter) -> bool:
    """Whether a filter passes everything."""
    return filter == Filter()


def distances(positions: NDArray[np.float64], near: tuple[float, ...]) -> NDArray[np.float64]:
    """Metres from (n, 3) positions to a point of the plane or of space, at most the largest number."""
    with np.errstate(over="ignore"):
        found: NDArray[np.float64] = np.linalg.norm(positions[:, : len(near)] - np.asarray(near), axis=1)
    return np.nan_to_num(found, copy=False, nan=np.nan, posinf=np.finfo(np.float64).max)


def unit_rows(vectors: NDArray[np.floating], dim: int) -> NDArray[np.float32]:
    """(n, dim) float32 rows of length 1.

    Raises:
        DimensionError: they have another length.
        ValueError: a vector is zero or not finite.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise DimensionError(f"vectors must have {dim} numbers, got shape {rows.shape}")
    with np.errstate(over="ignore", under="ignore"):
        length = np.linalg.norm(rows, axis=1, keepdims=True)
    if not ((length > 1e-15) & (length < 1e15)).all():
        # The square of such numbers does not fit into single precision.
        wide = rows.astype(np.float64)
        precise = np.linalg.norm(wide, axis=1, keepdims=True)
        if not (np.isfinite(precise).all() and (precise > 0).all()):
            raise ValueError("vectors must be finite and not zero")
        exact: NDArray[np.float32] = (wide / precise).astype(np.float32)
        return exact
    units: NDArray[np.float32] = rows / length
    return units


def _index_file(folder: Path, encoder: str, kind: type) -> Path:
    """A name of an encoder may be anything; only a plain one is a file name on every system."""
    plain = re.fullmatch("[a-z0-9_-]{1,64}", encoder)
    stem = encoder if plain else "~" + hashlib.sha256(encoder.encode()).hexdigest()
    return folder / f"{stem}.{kind.__name__.lower()}"


def _take(found: Found, places: NDArray[np.integer]) -> Found:
    return Found(
        found.ids[places],
        None if found.similarity is None else found.similarity[places],
        None if found.text is None else found.text[places],
        found.plan,
    )
