"""Search of a store on a server, which compares the vectors itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memory.index import Neighbours, Plan
from memory.index.effort import check_aim
from memory.index.neighbours import check_k, unit_rows
from memory.index.planner import Method
from memory.persistence.postgres.database import PostgresDatabase
from memory.query import Filter, Query
from memory.search.columns import ColumnCache
from memory.search.indexes import DEFAULT
from memory.search.ranking import Ranking, rank_hits
from memory.search.retriever import Retriever

#: Most of the newest matches that the server is asked for.
_MOST_NEWEST = 10_000


class RemoteRetriever(Retriever):
    """Retriever for a server. This process caches columns, but no vectors.

    Args:
        database: database on a server.
        index_from: number of vectors above which :meth:`settle` creates an index on the server.
    """

    def __init__(self, database: PostgresDatabase, *, index_from: int) -> None:
        super().__init__(database, index_from=index_from)
        self._database: PostgresDatabase = database
        self._index_from = index_from

    def neighbours(
        self,
        vectors: NDArray[np.float32],
        k: int,
        *,
        encoder: str = DEFAULT,
        map_id: str | None = None,
        aim: float = 0.99,
    ) -> Neighbours:
        """See :meth:`memory.search.reader.StoreReader.search`."""
        questions = unit_rows(vectors, self._dim(encoder))
        k = min(check_k(k), max(self._database.count(), 1))
        found = Neighbours(
            np.full((len(questions), k), -np.inf, np.float32), np.full((len(questions), k), -1, np.int64)
        )
        filter = Filter(map_id=map_id)
        for row, vector in enumerate(questions):
            nearest = self._database.nearest(vector, k, filter, encoder, aim=check_aim(aim))
            found.scores[row, : len(nearest.ids)] = nearest.scores
            found.ids[row, : len(nearest.ids)] = nearest.ids
        return found

    def settle(self) -> None:
        """Create the tables of the month and the vector indexes on the server if needed."""
        self._database.begin_part()
        self._database.make_indexes(self._index_from)

    def _dim(self, encoder: str) -> int:
        if encoder == DEFAULT:  # Every store has the default encoder.
            return self._database.dim
        slots = self._database.slots()
        if encoder not in slots:
            raise ValueError(
                f"no memory has a vector of encoder {encoder!r}."
                f" Known encoders: {', '.join(sorted(slots)) or 'none'}"
            )
        return slots[encoder]

    def _filtered(self, query: Query) -> Ranking:
        """Let the server find the newest, because reading the columns of all memories takes seconds."""
        if query.ordered_by == "recency" and self._columns is None and query.k <= _MOST_NEWEST:
            return Ranking(self._database.newest(query.where, query.k))
        return super()._filtered(query)

    def _similar_to(self, query: Query, vector: NDArray[np.float32]) -> Ranking:
        """Return memories similar to a vector; the server compares them without the lock."""
        found = self._nearest(query, query.filter, vector)
        if query.ordered_by == "relevance":
            return found
        with self._lock:
            return rank_hits(self._database, self._follow(), query, found)

    def _similar(
        self,
        columns: ColumnCache,
        query: Query,
        filter: Filter,
        vector: NDArray[np.float32],
        said: NDArray[np.int64] | None,
    ) -> Ranking:
        return self._nearest(query, filter, vector)

    def _compared(
        self, query: Query, vector: NDArray[np.float32], ids: NDArray[np.int64], count: int
    ) -> Neighbours:
        dim = self._dim(query.encoder)
        found = self._database.vectors(ids.tolist(), query.encoder)
        scores = unit_rows(found.halves.astype(np.float32), dim) @ unit_rows(vector[None], dim)[0]
        order = np.lexsort((found.ids, -scores))
        return Neighbours(scores[None, order], found.ids[None, order])

    def _nearest(self, query: Query, filter: Filter, vector: NDArray[np.float32]) -> Ranking:
        question = unit_rows(vector[None], self._dim(query.encoder))[0]
        wanted = query.k + (1 if query.like is not None else 0)
        nearest = self._database.nearest(question, wanted, filter, query.encoder)
        kept = np.flatnonzero(nearest.ids != (-1 if query.like is None else query.like))[: query.k]
        how = "the server's HNSW index, further until enough pass" if nearest.indexed else "all that match"
        method: Method = "index" if nearest.indexed else "all"
        chosen = Plan(method, f"the server compares {how}", len(nearest.ids), f"pgvector: {how}")
        return Ranking(nearest.ids[kept], nearest.scores[kept], plan=chosen)
