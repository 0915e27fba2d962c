"""Search of a store with filters, indexes and sort orders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memory.config import TierOptions
from memory.errors import UnknownMemoryError
from memory.index import Among, Neighbours, Plan
from memory.index.effort import HIGH, THOROUGH
from memory.index.neighbours import unit_rows
from memory.index.planner import NO_VECTORS
from memory.persistence.database import Database
from memory.persistence.deadline import without_limit
from memory.persistence.filters import in_polygon
from memory.query import EVERYTHING, Filter, Query
from memory.search.columns import ColumnCache
from memory.search.indexes import DEFAULT, Indexes
from memory.search.ranking import Ranking, first, rank_hits
from memory.search.relevance import FUSED, Sessions, fits, fuse, sentence_of
from memory.wording.cues import with_cues
from memory.wording.sentences import Sentence

#: More hits than any store has.
MOST_HITS = 2**62
#: Maximum estimated nanoseconds of a fast search on one core.
_MOMENT_NS = 2e6
#: Maximum changed memories for a fast search.
_LITTLE = 32


class Retriever:
    """Search of a store, with caches that follow the database.

    Args:
        database: database of the store.
        index_from: number of vectors above which the index is used.
        index: kind of index, see :mod:`memory.index.kinds`.
        tiers: which vectors stay outside the index, and how others move into it.

    Attributes:
        indexes: the vector indexes.
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
        self._sessions: Sessions | None = None

    def find(self, query: Query) -> Ranking:
        """Return the ids that answer a query, the best first, at most ``query.k``."""
        if query.k > MOST_HITS:
            query = replace(query, k=MOST_HITS)
        query = self.compared(query)
        if query.where.area is not None:
            query = replace(query, where=self._database.resolve(query.where))
        vector = self.vector_of(query)
        sentence = None if query.text is None else sentence_of(query)
        if sentence is not None:
            return self._fitting(query, sentence, vector)
        if vector is not None:
            return self._similar_to(query, vector)
        if query.text is not None:
            return self._having(query, query.text)
        return self._filtered(query)

    def _filtered(self, query: Query) -> Ranking:
        """Return memories that match a filter without text, in the order of the query."""
        chosen = self._looked_up(query.where)
        with self._lock:
            columns = self._follow()
            passing = np.flatnonzero(_passing(columns, query.where, chosen))
            found = Ranking(columns.column("ids")[passing])
            return rank_hits(self._database, columns, query, found)

    def plan(self, query: Query) -> Plan:
        """Answer a query, and return which index searched its vectors and why."""
        found = self.find(query)
        if found.plan is None:
            return NO_VECTORS
        if found.plan.method == "nothing" or found.plan.answered:
            return found.plan
        with self._lock:
            index = self.indexes.of(self.compared(query).encoder, len(self._follow()))
            aim, share = (1.0, 1.0) if found.share is None else (THOROUGH, found.share)
            return found.plan._replace(answered=self.indexes.describe(index, aim, share=share))

    def neighbours(
        self,
        vectors: NDArray[np.float32],
        k: int,
        *,
        encoder: str = DEFAULT,
        map_id: str | None = None,
        aim: float = HIGH,
    ) -> Neighbours:
        """See :meth:`memory.search.reader.StoreReader.search`; with ``map_id`` only those of that map."""
        with self._lock:
            columns = self._follow()
            index = self.indexes.of(encoder, len(columns))
            among = None
            if map_id is not None and columns.names("map_ids") != [map_id]:
                among = Among(columns.column("ids")[columns.matches(Filter(map_id=map_id))])
            return index.search(unit_rows(vectors, index.dim), k, among=among, aim=aim)

    def ids(self, filter: Filter, *, several: bool = False) -> NDArray[np.int64]:
        """Return sorted ids that match a filter without text; with ``several`` only merged memories."""
        filter = self._database.resolve(filter)
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
        """Return a context that is true if a vector search takes microseconds.

        This holds within the context, except for memories that are stored meanwhile.
        """
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            index, columns = self.indexes.by_encoder.get(encoder), self._columns
            if index is None or columns is None or index.price(THOROUGH) > _MOMENT_NS:
                yield False
                return
            with self._database.one_moment():
                yield self._database.is_little(min(index.generation, columns.generation), _LITTLE)
        finally:
            self._lock.release()

    def settle(self) -> None:
        """Move vectors to their tiers now."""
        self.indexes.settle()

    def there(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which ids exist."""
        with self._lock:
            return self._follow().rows(ids) >= 0

    def label_counts(self) -> dict[str, int]:
        """Return the number of memories by label."""
        with self._lock:
            columns = self._follow()
            codes, counts = np.unique(columns.column("labels")[columns.column("alive")], return_counts=True)
            names = columns.names("labels")
            return {names[code]: int(count) for code, count in zip(codes, counts, strict=True)}

    def compared(self, query: Query) -> Query:
        """Return the query with the encoder that it compares.

        If the memory ``like`` has no default vector, but vectors of one other encoder, that encoder is used.

        Raises:
            UnknownMemoryError: no memory has the id ``like``, it has no vectors, or only vectors of
                several other encoders.
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
            f"memory {query.like} has no embedding to compare. Choose a memory with an embedding, or search"
            " by text"
        )

    def vector_of(self, query: Query) -> NDArray[np.float32] | None:
        """Return the vector that a query compares with, or ``None``."""
        if query.embedding is not None:
            return query.embedding
        if query.like is None:
            return None
        vectors = self._database.vectors([query.like], query.encoder)
        if not len(vectors.ids):
            self._database.get([query.like], vectors=False)  # Raises if there is no such memory.
            raise UnknownMemoryError(f"memory {query.like} has no vector of encoder {query.encoder!r}")
        found: NDArray[np.float32] = vectors.halves[0].astype(np.float32)
        return found

    def _looked_up(self, filter: Filter) -> NDArray[np.int64] | None:
        """Return sorted ids that match the text and polygon, or ``None`` without them. Slow, so it runs
        without the lock.
        """
        ids: NDArray[np.int64] | None = None
        if filter.polygon is not None:
            assert filter.bounds is not None
            x0, y0, x1, y1 = box = filter.bounds
            if x0 > x1 or y0 > y1:
                return np.zeros(0, np.int64)
            with self._lock:
                columns = self._follow()
                near = np.flatnonzero(columns.matches(replace(filter, text=None, polygon=None, box=box)))
                ids, points = columns.column("ids")[near], columns.column("positions")[near, :2]
            ids = ids[in_polygon(points, filter.polygon)]
        if filter.text is not None:
            said = self._database.ids(Filter(text=filter.text))
            ids = said if ids is None else np.intersect1d(ids, said, assume_unique=True)
        return ids

    def _having(self, query: Query, text: str) -> Ranking:
        """Return memories that have all words of a text."""
        # For orders other than relevance, all matches are candidates.
        best_first = query.ordered_by == "relevance"
        hits = self._database.search_text(
            text, query.where, limit=query.k if best_first else MOST_HITS, equal_too=True
        )
        found = Ranking(hits.ids, text=hits.scores)
        if best_first and self._database.shared:
            # The server has sorted them. Reading the columns of a large store is slow.
            return found
        with self._lock:
            return rank_hits(self._database, self._follow(), query, found)

    def _similar_to(self, query: Query, vector: NDArray[np.float32]) -> Ranking:
        """Return memories that are similar to a vector and match the filter."""
        filter, order = query.filter, query.ordered_by
        chosen = self._looked_up(filter)
        with self._lock:
            columns = self._follow()
            found = self._similar(columns, query, filter, vector, chosen)
            if order == "relevance":
                return found
            return rank_hits(self._database, columns, query, found)

    def _fitting(self, query: Query, sentence: Sentence, vector: NDArray[np.float32] | None) -> Ranking:
        """Return memories that are relevant to a sentence, and similar to a vector if given."""
        having = self._database.ids_by_word(sentence.words)
        chosen = self._looked_up(query.where)
        with self._lock:
            columns = self._follow()
            if self._sessions is None:
                self._sessions = Sessions.of(columns)
            scores = fits(sentence, having, columns, self._sessions)
            scores[~_passing(columns, query.where, chosen)] = 0.0
            self._read_cues(columns, query, scores)
            ids = columns.column("ids")
            unknown = not all(map(len, having))
            if vector is None:
                rows = self._best(columns, scores, query.k)
                found = Ranking(ids[rows], text=scores[rows], unknown=unknown)
                return rank_hits(self._database, columns, query, found)
            deep = replace(query, k=max(query.k, FUSED))
            near = self._similar(columns, deep, query.where, vector, chosen)
            assert near.similarity is not None
            said = ids[self._best(columns, scores, deep.k)]
            said = said[said != query.like]
            known = Neighbours(near.similarity[None], near.ids[None])
            compared = self._compared(query, vector, said, len(columns))
            both = np.union1d(near.ids, said)
            fused = fuse(both, scores[columns.rows(both)], (known, compared))
            found = Ranking(fused.ids, fused.similarity, fused.text, near.plan, fused.scores, unknown)
            best = rank_hits(self._database, columns, replace(query, order="relevance"), found)
            return rank_hits(self._database, columns, query, best)

    def _read_cues(self, columns: ColumnCache, query: Query, scores: NDArray[np.float64]) -> None:
        """Change the scores of the best rows by the cues in their captions."""
        assert query.text is not None
        rows = self._best(columns, scores, max(query.k, FUSED))
        ids = columns.column("ids")[rows]
        captions = self._database.captions(ids.tolist())
        scores[rows] = with_cues(query.text, [captions.get(int(id), "") for id in ids], scores[rows])

    def _best(self, columns: ColumnCache, scores: NDArray[np.float64], most: int) -> NDArray[np.int64]:
        """Return the rows of the highest positive scores."""
        rows = np.flatnonzero(scores > 0.0)
        return rows[first(self._database, columns, columns.column("ids")[rows], -scores[rows], most)]

    def _compared(
        self, query: Query, vector: NDArray[np.float32], ids: NDArray[np.int64], count: int
    ) -> Neighbours:
        """Return the similarities of given memories; ``count`` is the total number of memories."""
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
    ) -> Ranking:
        """Return the ``k`` matching memories that are most similar to a vector."""
        known, total = columns.column("ids"), len(columns)
        passing = None if filter == EVERYTHING else _passing(columns, filter, said)
        index = self.indexes.of(query.encoder, total)
        wanted = query.k + (1 if query.like is not None else 0)
        answer = index.answer(vector, wanted, ids=known, kept=passing, total=total)
        ids, scores = answer.neighbours.ids[0], answer.neighbours.scores[0]
        # Exclude the memory that the query compares with.
        kept = np.flatnonzero((ids >= 0) & (ids != (-1 if query.like is None else query.like)))
        kept = kept[columns.rows(ids[kept]) >= 0]
        kept = kept[first(self._database, columns, ids[kept], -scores[kept], query.k)]
        return Ranking(ids[kept], scores[kept], plan=answer.plan, share=answer.share)

    def _follow(self) -> ColumnCache:
        generation = self._database.generation
        if self._columns is None or self._columns.generation != generation:
            with without_limit():
                if self._columns is None:
                    self._columns = ColumnCache.of(self._database)
                else:
                    self._columns.follow(self._database)
                    self._sessions = None
        self.indexes.follow(generation)
        return self._columns


def _passing(columns: ColumnCache, filter: Filter, chosen: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Return which rows match a filter; ``chosen`` is the result of :meth:`Retriever._looked_up`."""
    if chosen is None:
        return columns.matches(filter)
    rows = columns.rows(chosen)
    rows = rows[rows >= 0]
    kept = np.zeros(len(columns.column("ids")), np.bool_)
    kept[rows] = columns.matches(replace(filter, text=None, polygon=None), rows)
    return kept
