"""Finding memories: which filter, which index, in which order."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.columns import ColumnCache
from memory.errors import DimensionError, UnknownMemoryError
from memory.index import FlatIndex, LSHIndex, Neighbours, Plan, VectorIndex, next_fetch, plan
from memory.persistence.filters import Filter
from memory.persistence.sqlite import Database
from memory.types import Query

#: Vectors that are read from the store at a time when an index is built.
_PORTION = 65_536
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


class Retriever:
    """Caches over a store that answer queries; they follow it before each answer.

    Args:
        database: the truth.
        index_from: vectors from which they are hashed instead of all compared.
    """

    def __init__(self, database: Database, *, index_from: int) -> None:
        self._database = database
        self._index_from = index_from
        self._lock = threading.RLock()
        self._columns: ColumnCache | None = None
        self._indexes: dict[str, VectorIndex] = {}

    def find(self, query: Query) -> Found:
        """The ids that answer a query, at most ``query.k``."""
        filter = filter_of(query)
        vector = self._vector_of(query)
        with self._lock:
            self._follow()
            if vector is not None:
                found = self._similar(query, filter, vector)
            elif query.text is not None:
                hits = self._database.search_text(query.text, filter, limit=query.k)
                found = Found(hits.ids, text=hits.scores)
            else:
                found = Found(self._matching(filter))
            return self._ordered(query, found)

    def neighbours(self, vectors: NDArray[np.float32], k: int, *, encoder: str = _DEFAULT) -> Neighbours:
        """The k most similar memories of each of (queries, dim) vectors, by the index alone."""
        with self._lock:
            self._follow()
            index = self._index(encoder)
            return index.search(unit_rows(vectors, index.dim), k)

    def columns(self) -> ColumnCache:
        """The columns as the store is now."""
        with self._lock:
            self._follow()
            assert self._columns is not None
            return self._columns

    def save(self, folder: Path) -> None:
        """Write the indexes, to be mapped at the next start; they are caches and may be deleted."""
        with self._lock:
            self._follow()
            for encoder, index in self._indexes.items():
                folder.mkdir(exist_ok=True)
                index.save(_index_file(folder, encoder, index))

    def load(self, folder: Path) -> None:
        """Map what :meth:`save` wrote; what does not fit the store any more is built again when needed."""
        with self._lock:
            for kind in (FlatIndex, LSHIndex):
                for path in sorted(folder.glob(f"*.{kind.__name__.lower()}")):
                    try:
                        index = kind.load(path)
                    except (OSError, ValueError):
                        continue
                    if index.generation <= self._database.generation:
                        self._indexes[path.stem] = index

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

    def _similar(self, query: Query, filter: Filter, vector: NDArray[np.float32]) -> Found:
        index = self._index(query.encoder)
        question = unit_rows(vector[None], index.dim)
        columns = self._columns
        assert columns is not None
        wanted = query.k + (1 if query.like is not None else 0)
        if is_empty(filter):
            found = index.search(question, wanted)
            chosen = plan(len(index), len(index), wanted, filtered=False)
            return self._found(query, found, chosen)
        if filter.text is None:
            kept = columns.matches(filter)
            matches = int(kept.sum())
        else:
            # Words are looked up in the store, the rest in the columns.
            ids = self._database.ids(Filter(text=filter.text))
            rows = columns.rows(ids)
            rows = rows[rows >= 0]
            kept = np.zeros(len(columns.column("ids")), np.bool_)
            kept[rows] = columns.matches(filter, rows)
            matches = int(kept.sum())
        total = max(len(index), matches)
        chosen = plan(total, matches, wanted)
        if matches == 0:
            return Found(np.zeros(0, np.int64), np.zeros(0, np.float32), plan=chosen)
        if chosen.method == "index":
            found, full = self._by_index(index, question, wanted, kept, chosen)
            if full:
                return self._found(query, found, chosen)
        allowed = columns.column("ids")[kept]
        searched = index.search_within(question, allowed, wanted)  # type: ignore[attr-defined]
        return self._found(query, searched, chosen)

    def _by_index(
        self, index: VectorIndex, question: NDArray[np.float32], k: int, kept: NDArray[np.bool_], chosen: Plan
    ) -> tuple[Neighbours, bool]:
        """Ask for more and more neighbours until enough of them pass; whether that was reached."""
        assert self._columns is not None
        fetch: int | None = max(chosen.fetch, k)
        while fetch is not None:
            found = index.search(question, fetch)
            ids, scores = found.ids[0], found.scores[0]
            rows = self._columns.rows(ids)
            good = (rows >= 0) & kept[rows]
            if int(good.sum()) >= k:
                return Neighbours(scores[good][None, :k], ids[good][None, :k]), True
            fetch = next_fetch(fetch, int(good.sum()), k, len(index))
            if fetch is not None and fetch > 64 * k:
                break
        return Neighbours(np.zeros((1, 0), np.float32), np.zeros((1, 0), np.int64)), False

    def _found(self, query: Query, found: Neighbours, chosen: Plan) -> Found:
        ids, scores = found.ids[0], found.scores[0]
        kept = (ids >= 0) & (ids != (-1 if query.like is None else query.like))
        return Found(ids[kept], scores[kept], plan=chosen)

    def _matching(self, filter: Filter) -> NDArray[np.int64]:
        assert self._columns is not None
        kept: NDArray[np.int64] = self._columns.column("ids")[self._columns.matches(filter)]
        return kept

    def _ordered(self, query: Query, found: Found) -> Found:
        """Cut to ``k`` in the order that was asked for; equal ones by rising id."""
        assert self._columns is not None
        ids = found.ids
        order = query.order or ("recency" if found.similarity is None and found.text is None else "relevance")
        rows = self._columns.rows(ids)
        if order == "recency":
            key = -self._columns.column("time_ns")[rows]
        elif order == "distance":
            assert query.near is not None
            key = distances(self._columns.column("positions")[rows], query.near)
        else:
            return _take(found, np.arange(min(query.k, len(ids))))
        if found.similarity is None and found.text is None and len(ids) > 4 * query.k:
            # Only the first few have to be in order.
            first = np.sort(np.argpartition(key, query.k)[: query.k + 1])
            bound = key[first].max()
            first = np.flatnonzero(key <= bound)
            return _take(found, first[np.lexsort((ids[first], key[first]))][: query.k])
        return _take(found, np.lexsort((ids, key))[: query.k])

    def _follow(self) -> None:
        if self._columns is None:
            self._columns = ColumnCache.of(self._database)
        elif self._columns.generation != self._database.generation:
            self._columns.follow(self._database)
        for encoder, index in self._indexes.items():
            if index.generation != self._database.generation:
                self._catch_up(encoder, index)

    def _catch_up(self, encoder: str, index: VectorIndex) -> None:
        changes = self._database.changes(index.generation)
        index.remove(np.concatenate([changes.removed, changes.changed, changes.added]))
        present = np.sort(np.concatenate([changes.added, changes.changed]))
        for start in range(0, len(present), _PORTION):
            vectors = self._database.vectors(present[start : start + _PORTION].tolist(), encoder)
            if len(vectors.ids):
                index.add(unit_rows(vectors.halves.astype(np.float32), index.dim), vectors.ids)
        index.generation = changes.generation

    def _index(self, encoder: str) -> VectorIndex:
        """The index of an encoder's vectors, hashed where there are many."""
        known = self._indexes.get(encoder)
        hashed = known is not None and not isinstance(known, FlatIndex)
        if known is not None and (hashed or len(known) < 2 * self._index_from):
            return known
        slots = self._database.slots()
        if encoder not in slots:
            if encoder == _DEFAULT:
                return FlatIndex(self._database.dim)
            raise ValueError(
                f"no memory has a vector of encoder {encoder!r};"
                f" there are {', '.join(sorted(slots)) or 'none'}"
            )
        generation = self._database.generation
        assert self._columns is not None
        count, dim = len(self._columns), slots[encoder]
        index: VectorIndex = LSHIndex(dim, expected=count) if count >= self._index_from else FlatIndex(dim)
        after = 0
        while len((vectors := self._database.scan_vectors(after, _PORTION, encoder)).ids):
            index.add(unit_rows(vectors.halves.astype(np.float32), dim), vectors.ids)
            after = int(vectors.ids[-1])
        index.generation = generation
        self._indexes[encoder] = index
        self._catch_up(encoder, index)
        return index


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
    """Metres from (n, 3) positions to a point of the plane or of space."""
    found: NDArray[np.float64] = np.linalg.norm(positions[:, : len(near)] - np.asarray(near), axis=1)
    return found


def unit_rows(vectors: NDArray[np.floating], dim: int) -> NDArray[np.float32]:
    """(n, dim) float32 rows of length 1.

    Raises:
        DimensionError: they have another length.
        ValueError: a vector is zero or not finite.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise DimensionError(f"vectors must have {dim} numbers, got shape {rows.shape}")
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (np.isfinite(length).all() and (length > 0).all()):
        raise ValueError("vectors must be finite and not zero")
    units: NDArray[np.float32] = rows / length
    return units


def _index_file(folder: Path, encoder: str, index: VectorIndex) -> Path:
    return folder / f"{encoder}.{type(index).__name__.lower()}"


def _take(found: Found, places: NDArray[np.integer]) -> Found:
    return Found(
        found.ids[places],
        None if found.similarity is None else found.similarity[places],
        None if found.text is None else found.text[places],
        found.plan,
    )
