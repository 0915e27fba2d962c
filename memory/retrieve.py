"""Finding memories: which filter, which index, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.columns import ColumnCache
from memory.errors import UnknownMemoryError
from memory.index import Among, Neighbours, Plan, plan
from memory.index.effort import HIGH, THOROUGH
from memory.index.neighbours import unit_rows
from memory.indexes import DEFAULT, Indexes
from memory.persistence.database import Database
from memory.persistence.deadline import without_limit
from memory.persistence.filters import in_polygon
from memory.persistence.queries import EVERYTHING
from memory.query import Filter, Query
from memory.relevance import FUSED, Succession, best, fits, fuse, sentence_of
from memory.tiers import TierOptions
from memory.wording.sentences import Sentence

#: Of fewer memories than this share an index finds enough, but not the nearest: all that match are compared.
_LEAST_SHARE = 1 / 32
#: Nanoseconds of one core in which something is searched in a moment.
_MOMENT_NS = 2e6
#: Memories that caches catch up with in a moment.
_LITTLE = 32


class Found(NamedTuple):
    """Ids in the order in which they answer.

    Attributes:
        ids: (n,) int64.
        similarity: (n,) float32 cosines, or ``None`` where nothing was compared.
        text: (n,) float64, how well words fit, or ``None``.
        plan: how vectors were searched, or ``None``.
        fused: (n,) float64, what words and vectors make together, or ``None``.
        unknown: whether the sentence has a word that no memory has.
    """

    ids: NDArray[np.int64]
    similarity: NDArray[np.float32] | None = None
    text: NDArray[np.float64] | None = None
    plan: Plan | None = None
    fused: NDArray[np.float64] | None = None
    unknown: bool = False

    def of(self, ids: Sequence[int | None]) -> Found:
        """Only these of the ids."""
        return _take(self, np.flatnonzero(np.isin(self.ids, np.array(ids, dtype=np.int64))))


class Retriever:
    """Caches over a store that answer queries; they follow it before each answer.

    Args:
        database: the truth.
        index_from: vectors above which there is an index instead of comparing all.
        index: which one, see :mod:`memory.index.kinds`.
        tiers: which vectors stay out of the index, and how they move there.

    Attributes:
        indexes: of the vectors.
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
        self.indexes = Indexes(database, index_from=index_from, kind=index, tiers=tiers or TierOptions())
        self._lock = self.indexes.lock
        self._columns: ColumnCache | None = None
        self._succession: Succession | None = None

    def find(self, query: Query) -> Found:
        """The ids that answer a query, at most ``query.k``."""
        query = self.compared(query)
        filter = query.filter
        vector = self.vector_of(query)
        sentence = sentence_of(query)
        if sentence is not None:
            return self._fitting(query, sentence, vector)
        if vector is None and query.text is not None:
            # In another order than how well the words fit, all that have them count.
            best_first = query.ordered_by == "relevance"
            hits = self._database.search_text(query.text, query.where, limit=query.k if best_first else 2**62)
            found = Found(hits.ids, text=hits.scores)
            if best_first:  # Which needs no columns: of a large store on a server they take long to read.
                return found
            with self._lock:
                return ordered(self._follow(), query, found)
        chosen = self._looked_up(filter)
        with self._lock:
            columns = self._follow()
            if vector is not None:
                found = self._similar(columns, query, filter, vector, chosen)
            else:
                found = Found(columns.column("ids")[_passing(columns, filter, chosen)])
            return ordered(columns, query, found)

    def neighbours(
        self,
        vectors: NDArray[np.float32],
        k: int,
        *,
        encoder: str = DEFAULT,
        map_id: str | None = None,
        aim: float = HIGH,
    ) -> Neighbours:
        """See :meth:`memory.reader.StoreReader.search`; with ``map_id`` only those of that map."""
        with self._lock:
            columns = self._follow()
            index = self.indexes.of(encoder, len(columns))
            among = None
            if map_id is not None and columns.names("map_ids") != [map_id]:
                among = Among(columns.column("ids")[columns.matches(Filter(map_id=map_id))])
            return index.search(unit_rows(vectors, index.dim), k, among=among, aim=aim)

    def ids(self, filter: Filter, *, several: bool = False) -> NDArray[np.int64]:
        """Rising ids of what passes a filter without text; with ``several`` only of merged memories."""
        chosen = self._looked_up(filter)
        with self._lock:
            columns = self._follow()
            kept = _passing(columns, filter, chosen)
            if several:
                kept &= columns.column("counts") > 1
            found: NDArray[np.int64] = columns.column("ids")[kept]
            return found

    @contextmanager
    def at_once(self, encoder: str) -> Iterator[bool]:
        """Whether a vector alone is searched in a moment, nobody to wait for, little to catch up with.

        It stays so within the block, but for what is stored meanwhile.
        """
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            index, columns = self.indexes.by_encoder.get(encoder), self._columns
            yield (
                index is not None
                and columns is not None
                and index.price(THOROUGH) <= _MOMENT_NS
                and self._database.is_little(min(index.generation, columns.generation), _LITTLE)
            )
        finally:
            self._lock.release()

    def settle(self) -> None:
        """Move vectors to the tiers where they belong now."""
        self.indexes.settle()

    def there(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the ids are of memories that are there."""
        with self._lock:
            return self._follow().rows(ids) >= 0

    def label_counts(self) -> dict[str, int]:
        """Memories by label."""
        with self._lock:
            columns = self._follow()
            codes, counts = np.unique(columns.column("labels")[columns.column("alive")], return_counts=True)
            names = columns.names("labels")
            return {names[code]: int(count) for code, count in zip(codes, counts, strict=True)}

    def compared(self, query: Query) -> Query:
        """A query with the encoder whose vectors it compares.

        What is like a memory with vectors of one encoder, and no default one, is compared by these.

        Raises:
            UnknownMemoryError: ``like`` names none, or a memory without vectors, or with those of several
                encoders and not the default one.
        """
        if query.like is None or query.encoder != DEFAULT:
            return query
        (memory,) = self._database.get([query.like])
        if memory.embedding is not None:
            return query
        names = sorted(memory.embeddings)
        if len(names) == 1:
            return replace(query, encoder=names[0])
        if names:
            raise UnknownMemoryError(
                f"memory {query.like} has no default vector, but of {', '.join(names)}: name the encoder"
            )
        raise UnknownMemoryError(
            f"memory {query.like} has no vector: nothing can be found that is like it; what was imported has"
            " vectors where the file had them, as detections by weights that give them"
        )

    def vector_of(self, query: Query) -> NDArray[np.float32] | None:
        """What a query compares with, its own or that of a memory; ``None`` where it compares none."""
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
                columns = self._follow()
                near = columns.matches(replace(filter, text=None, polygon=None))
                ids, points = columns.column("ids")[near], columns.column("positions")[near, :2]
            ids = ids[in_polygon(points, filter.polygon)]
        if filter.text is not None:
            said = self._database.ids(Filter(text=filter.text))
            ids = said if ids is None else np.intersect1d(ids, said, assume_unique=True)
        return ids

    def _fitting(self, query: Query, sentence: Sentence, vector: NDArray[np.float32] | None) -> Found:
        """What fits a sentence best, and is similar to a vector where there is one."""
        having = self._database.having(sentence.words)
        chosen = self._looked_up(query.where)
        with self._lock:
            columns = self._follow()
            if self._succession is None:
                self._succession = Succession.of(columns)
            scores = fits(sentence, having, columns, self._succession)
            scores[~_passing(columns, query.where, chosen)] = 0.0
            ids = columns.column("ids")
            unknown = not all(map(len, having))
            if vector is None:
                rows = best(scores, query.k)
                return ordered(columns, query, Found(ids[rows], text=scores[rows], unknown=unknown))
            deep = replace(query, k=max(query.k, FUSED))
            near = self._similar(columns, deep, query.where, vector, chosen)
            assert near.similarity is not None
            said = ids[best(scores, deep.k)]
            said = said[said != query.like]
            known = Neighbours(near.similarity[None], near.ids[None])
            compared = self._compared(query, vector, said, len(columns))
            both = np.union1d(near.ids, said)
            fused = fuse(both, scores[columns.rows(both)], (known, compared))
            found = Found(fused.ids, fused.similarity, fused.text, near.plan, fused.scores, unknown)
            return ordered(columns, query, _take(found, np.arange(min(query.k, len(both)))))

    def _compared(
        self, query: Query, vector: NDArray[np.float32], ids: NDArray[np.int64], count: int
    ) -> Neighbours:
        """Cosines of listed memories; ``count`` is how many there are in all."""
        index = self.indexes.of(query.encoder, count)
        question = unit_rows(vector[None], index.dim)
        return index.search(question, max(len(ids), 1), among=Among(ids), aim=1.0)

    def _similar(
        self,
        columns: ColumnCache,
        query: Query,
        filter: Filter,
        vector: NDArray[np.float32],
        said: NDArray[np.int64] | None,
    ) -> Found:
        index = self.indexes.of(query.encoder, len(columns))
        question = unit_rows(vector[None], index.dim)
        wanted = query.k + (1 if query.like is not None else 0)
        costs = index.costs(THOROUGH)
        ids = columns.column("ids")
        if filter == EVERYTHING:
            chosen = plan(len(index), len(index), wanted, filtered=False, costs=costs)
            if chosen.method == "index":
                found = index.search(question, wanted, aim=THOROUGH)
                chosen = chosen._replace(answered=self.indexes.told(index, THOROUGH))
            else:
                chosen = chosen._replace(answered=self.indexes.told(index, 1.0))
                found = index.search(question, wanted, among=Among(ids, columns.column("alive")), aim=1.0)
            return _found(query, found, chosen)
        kept = _passing(columns, filter, said)
        matches = int(np.count_nonzero(kept))
        total = max(len(index), matches)
        chosen = plan(total, matches, wanted, costs=costs)
        if matches == 0:
            return Found(np.zeros(0, np.int64), np.zeros(0, np.float32), plan=chosen)
        if chosen.method == "index" and matches >= _LEAST_SHARE * total:
            # Where all pass there is nothing to leave out.
            marked = None if matches == len(columns) else Among(ids, kept)
            found = index.search(question, wanted, among=marked, aim=THOROUGH)
            # Fewer than there are: what matches lies apart from the buckets or lists of the query.
            if np.count_nonzero(found.ids >= 0) >= min(wanted, matches):
                share = 1.0 if marked is None else matches / total
                chosen = chosen._replace(answered=self.indexes.told(index, THOROUGH, share=share))
                return _found(query, found, chosen)
        # Few are gathered; else all are passed, and those that do not match left out.
        chosen = chosen._replace(answered=self.indexes.told(index, 1.0))
        among = Among(ids[kept]) if chosen.method == "subset" else Among(ids, kept)
        return _found(query, index.search(question, wanted, among=among, aim=1.0), chosen)

    def _follow(self) -> ColumnCache:
        generation = self._database.generation
        with without_limit():
            if self._columns is None:
                self._columns = ColumnCache.of(self._database)
            elif self._columns.generation != generation:
                self._columns.follow(self._database)
                self._succession = None
            self.indexes.follow(generation)
            return self._columns


def _passing(columns: ColumnCache, filter: Filter, chosen: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Which rows pass a filter, of which :meth:`Retriever._looked_up` found a part."""
    if chosen is None:
        return columns.matches(filter)
    rows = columns.rows(chosen)
    rows = rows[rows >= 0]
    kept = np.zeros(len(columns.column("ids")), np.bool_)
    kept[rows] = columns.matches(replace(filter, text=None, polygon=None), rows)
    return kept


def _found(query: Query, found: Neighbours, chosen: Plan) -> Found:
    ids, scores = found.ids[0], found.scores[0]
    kept = np.flatnonzero((ids >= 0) & (ids != (-1 if query.like is None else query.like)))[: query.k]
    return Found(ids[kept], scores[kept], plan=chosen)


def ordered(columns: ColumnCache, query: Query, found: Found) -> Found:
    """Cut to ``k`` in the order that was asked for; equal ones by rising id."""
    ids = found.ids
    order = query.ordered_by
    if order == "relevance":
        return _take(found, np.arange(min(query.k, len(ids))))
    rows = columns.rows(ids)
    if (rows < 0).any():
        # What came or went after the columns were brought up to date.
        found = _take(found, np.flatnonzero(rows >= 0))
        ids, rows = found.ids, rows[rows >= 0]
    if order == "recency":
        # Not minus, which the least number of 64 bits does not have.
        key = ~columns.column("time_ns")[rows]
    else:
        assert query.near is not None
        key = distances(columns.column("positions")[rows], query.near)
        # What is at no known place is neither near nor far.
        placed = np.flatnonzero(~np.isnan(key))
        if len(placed) < len(key):
            found, key, ids = _take(found, placed), key[placed], ids[placed]
    if found.similarity is None and found.text is None and len(ids) > 4 * query.k:
        # Only the first few have to be in order.
        first = np.sort(np.argpartition(key, query.k)[: query.k + 1])
        bound = key[first].max()
        first = np.flatnonzero(key <= bound)
        return _take(found, first[np.lexsort((ids[first], key[first]))][: query.k])
    return _take(found, np.lexsort((ids, key))[: query.k])


def distances(positions: NDArray[np.float64], near: tuple[float, ...]) -> NDArray[np.float64]:
    """Metres from (n, 3) positions to a point of the plane or of space, at most the largest number.

    NaN from a position that is not known.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found: NDArray[np.float64] = np.linalg.norm(positions[:, : len(near)] - np.asarray(near), axis=1)
    return np.nan_to_num(found, copy=False, nan=np.nan, posinf=np.finfo(np.float64).max)


def _take(found: Found, places: NDArray[np.integer]) -> Found:
    return Found(
        found.ids[places],
        None if found.similarity is None else found.similarity[places],
        None if found.text is None else found.text[places],
        found.plan,
        None if found.fused is None else found.fused[places],
        found.unknown,
    )
