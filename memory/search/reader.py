"""What a store answers: everything that is read, and nothing that changes a memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.config import StoreConfig
from memory.errors import UnknownMemoryError
from memory.index import Neighbours, Plan
from memory.persistence.database import Database
from memory.persistence.log.journal import LogEntry
from memory.persistence.reports import Stats
from memory.query import Filter, Query
from memory.search.accesses import Accesses
from memory.search.context import Attention, Context, Weighted
from memory.search.explanation import explained
from memory.search.ranking import hits_of
from memory.search.retriever import Retriever
from memory.search.tiers import Tier
from memory.types import Explanation, Hit, Memory, State
from memory.wording.meaning import read_query

INDEX_FOLDER = "indexes"


class _Answer(NamedTuple):
    """The hits of a query, whether a word of its sentence is nowhere, and what attention made of its blocks
    where that was wanted.
    """

    hits: list[Hit]
    unknown: bool
    weighted: Weighted | None


class StoreReader:
    """Reads a store; :class:`memory.store.MemoryStore` is one that writes too.

    Attributes:
        folder: of the store.
        config: see :class:`StoreConfig`.
        dim: length of the default vectors.
    """

    def __init__(self, database: Database, config: StoreConfig) -> None:
        self.folder = database.folder
        self.config = config
        self.dim = database.dim
        self._database = database
        self._retriever = _retriever_of(database, config)
        self._retriever.indexes.load(self.folder / INDEX_FOLDER)
        self._attention = Attention(database, self._retriever)
        self._accesses = Accesses(database)
        self._newest = (-1, 0)  # Operation, and time of the newest memory after it.

    def __len__(self) -> int:
        return self._database.count()

    def query(self, query: Query, *, vectors: bool = True) -> list[Hit]:
        """The memories that answer a query, the best first.

        Args:
            query: what they must be, and are compared with.
            vectors: with their vectors; without, it takes less time.

        Raises:
            DimensionError: a vector of another length.
            UnknownMemoryError: ``like`` names none.
            ValueError: nothing has a vector of that encoder.
        """
        return self._answer(query, vectors=vectors).hits

    def at_once(self, encoder: str = "default") -> AbstractContextManager[bool]:
        """Whether a query by a vector alone takes a moment, within a block: for who must not wait.

        ``False`` also where another thread is searching, or much was stored since the last query.
        """
        return self._retriever.at_once(encoder)

    def context(self, query: Query) -> Context:
        """What the store knows about a query: attention over all around it, with the weights as evidence.

        The index finds the nearest memories that pass the filter; attended to are the blocks of similar
        memories that these are in, thousands of them, see :class:`memory.search.blocks.SimilarBlocks`.

        Raises:
            ValueError: the query has no vector to attend with; else as of :meth:`query`.
        """
        if query.embedding is None and query.like is None:
            raise ValueError("context needs a query with an embedding or like")
        asked = self._answer(dataclasses.replace(query, aggregate=True))
        found = asked.weighted
        assert found is not None
        return Context(found.vector, asked.hits, found.ids, found.weights)

    def _answer(self, query: Query, *, vectors: bool = True) -> _Answer:
        """The answer to a query, or where there is none to what it may mean."""
        asked = self._answer_literally(query, vectors)
        if not asked.hits or asked.unknown or len(query.where.labels or ()) > 1:
            meant = read_query(query, self._retriever.label_counts, self._database.corrections)
            if meant.notes:
                reason = "; ".join(meant.notes)
                asked = self._answer_literally(meant.query, vectors)
                return asked._replace(hits=[dataclasses.replace(hit, reason=reason) for hit in asked.hits])
        return asked

    def _answer_literally(self, query: Query, vectors: bool) -> _Answer:
        """The answer to a query as it is said."""
        nearest = None
        if query.aggregate and (query.embedding is not None or query.like is not None):
            query = self.compared(query)
            nearest = self._attention.nearest(query)
        if nearest is not None and query.ordered_by == "relevance":
            found = nearest.of(nearest.ids[: query.k].tolist())
        else:
            found = self._retriever.find(query)
        memories = self._database.present(found.ids.tolist(), vectors=vectors)
        if len(memories) < len(found.ids):
            found = found.of([memory.id for memory in memories])
        self._accesses.note(memory.id for memory in memories if memory.id is not None)
        weighted = None if nearest is None else self._attention.weigh(query, nearest.ids)
        hits = hits_of(
            query,
            found,
            memories,
            newest_ns=lambda: self.newest_ns,
            half_life_s=self.config.half_life_s,
            attention=None if weighted is None else weighted.by_id,
        )
        return _Answer(hits, found.unknown, weighted)

    def compared(self, query: Query) -> Query:
        """A query with the encoder whose vectors it compares, see :meth:`.Retriever.compared`.

        Raises:
            UnknownMemoryError: ``like`` names no memory, or one without a vector to compare.
        """
        return self._retriever.compared(query)

    def search(
        self, vectors: ArrayLike, k: int = 10, *, encoder: str = "default", aim: float = 0.99
    ) -> Neighbours:
        """Ids and cosine similarities of the most similar memories, for many vectors at once.

        Args:
            vectors: (queries, dim).
            k: of each.
            encoder: which vectors are compared.
            aim: share of the ten nearest to find, by what was measured on the memories themselves; less takes
                less time, 1 compares all.
        """
        return self._retriever.neighbours(np.asarray(vectors, np.float32), k, encoder=encoder, aim=aim)

    def get(self, ids: Iterable[int]) -> list[Memory]:
        """Memories by their ids.

        Raises:
            UnknownMemoryError: one is not there.
        """
        return self._database.get(ids)

    def find(
        self,
        filter: Filter,
        *,
        newest_first: bool = True,
        limit: int | None = None,
        vectors: bool = True,
    ) -> list[Memory]:
        """All memories that pass a filter.

        Args:
            filter: what they must be.
            newest_first: or the oldest first.
            limit: most of them.
            vectors: with their vectors; without, it takes less time.
        """
        order: Any = "newest" if newest_first else "oldest"
        ids = self._database.ids(filter, order=order, limit=limit).tolist()
        return self._database.present(ids, vectors=vectors)

    def find_merged(self, filter: Filter) -> list[Memory]:
        """Those that pass a filter and stand for several observations, by rising id and without vectors."""
        return self._database.present(self._merged_ids(filter).tolist(), vectors=False)

    def find_last_seen(self, filter: Filter, after_ns: int) -> list[Memory]:
        """Those that pass a filter and stand for a sight after a time, as of the one that was seen last.

        Only where that is not their own ``time_ns``. Without vectors.
        """
        visited = self._database.visited_after(after_ns)
        if not len(visited.ids):
            return []
        fits = np.isin(visited.ids, self._merged_ids(filter))
        last = visited.first_ns[fits].max(initial=after_ns)
        return self._database.present(visited.ids[fits & (visited.first_ns == last)].tolist(), vectors=False)

    def _merged_ids(self, filter: Filter) -> NDArray[np.int64]:
        """Rising ids of those that pass a filter and stand for several observations."""
        ids = self._retriever.ids(dataclasses.replace(filter, text=None), several=True)
        if filter.text is not None:
            ids = np.intersect1d(ids, self._database.ids(Filter(text=filter.text)))
        return ids

    def find_seen(
        self, filter: Filter, *, limit: int | None = None, vectors: bool = True
    ) -> tuple[list[Memory], int]:
        """Memories that pass a filter and were seen within its ``between_ns``, and how many there are.

        Unlike :meth:`find`, which looks at ``time_ns`` alone, a merged memory is found by each of its visits.

        Args:
            filter: what they must be, with ``between_ns``.
            limit: most of them; those that were seen first within that time.
            vectors: with their vectors; without, it takes less time.
        """
        ids, total = self._database.seen(filter, limit=limit)
        return self._database.present(ids.tolist(), vectors=vectors), total

    def count(self, filter: Filter) -> int:
        """How many pass a filter, exactly."""
        return self._database.count(filter)

    @property
    def newest_ns(self) -> int:
        """Time of the newest memory, by the robot's clock; ``-2**63`` where there is none."""
        generation = self._database.generation
        if self._newest[0] != generation:
            ids = self._database.ids(order="newest", limit=1)
            times = self._database.columns(ids).time_ns.tolist()
            if not times:
                return -(2**63)
            self._newest = (generation, times[0])
        return self._newest[1]

    def label_counts(self) -> dict[str, int]:
        """How many memories have each label."""
        return self._retriever.label_counts()

    def corrections(self, text: str) -> dict[str, str]:
        """For words that no memory has in any form, the word of the store that differs by a slip or two."""
        return self._database.corrections(text)

    def encoders(self) -> dict[str, int]:
        """Length of the vectors by the name of their encoder."""
        return self._database.slots()

    def maps(self) -> list[str]:
        """The maps that memories are in."""
        return self._database.maps()

    @overload
    def explain(self, what: int) -> Explanation: ...
    @overload
    def explain(self, what: Query) -> Plan: ...
    def explain(self, what: int | Query) -> Explanation | Plan:
        """Why a memory was kept, merged or forgotten; or how a query is answered, for which it is asked.

        Args:
            what: id of a memory, or a query.

        Returns:
            Of a query which index answers it, what that does, and why it is the cheapest.

        Raises:
            UnknownMemoryError: there never was such a memory.
        """
        if isinstance(what, Query):
            return self._retriever.plan(what)
        history = self._database.history(what)
        if not history:
            raise UnknownMemoryError(f"there never was a memory {what}")
        memory = self._database.present([what], vectors=False)
        known = memory[0] if memory else None
        return explained(
            what, history, known, self._database.observation_count(what), self._database.trusts()
        )

    def log(self, after: int = 0, *, limit: int | None = None) -> list[LogEntry]:
        """What was done, by rising number; each can be given to :meth:`undo`."""
        return self._database.log(after, limit=limit)

    def states_at(self, generation: int, ids: Iterable[int]) -> dict[int, State]:
        """State of memories that are there now, as it was after an operation; none for those added later."""
        found: dict[int, State] = {}
        before: dict[int, dict[int | None, State]] = {}
        for memory in self._database.present(list(ids), vectors=False):
            assert memory.id is not None
            history = self._database.history(memory.id)
            if history[0].generation > generation:
                continue
            found[memory.id] = memory.state
            for entry in history:
                if entry.generation > generation:
                    if entry.generation not in before:
                        before[entry.generation] = self._states_before(entry)
                    if memory.id in before[entry.generation]:
                        found[memory.id] = before[entry.generation][memory.id]
                        break
        return found

    def _states_before(self, entry: LogEntry) -> dict[int | None, State]:
        """States of what an operation changed or removed; those before a marking outlive a trimming."""
        if entry.operation == "mark":
            return {int(id): state for id, state in entry.detail["was"].items()}
        return {row.id: row.state for row in self._database.before(entry.generation)}

    @property
    def generation(self) -> int:
        """Number of the last operation."""
        return self._database.generation

    @property
    def readonly(self) -> bool:
        """Whether it was opened for reading only."""
        return self._database.readonly

    @property
    def database(self) -> Database:
        """The tables below, which are the store's to close. A second handle in one process is no safe way to
        them: opening one lets go of the locks that SQLite holds for the first.
        """
        return self._database

    def stats(self) -> Stats:
        """Numbers about the store."""
        return self._database.stats()

    def tiers(self) -> dict[str, Tier]:
        """Sizes of the recent and the long-term tier, by encoder, of what was searched since opening."""
        return self._retriever.indexes.tiers()


def _retriever_of(database: Database, config: StoreConfig) -> Retriever:
    """What finds memories: in this process, or on a server, whose library need not be here."""
    if database.shared:
        from memory.persistence.postgres.database import PostgresDatabase
        from memory.search.server_retriever import RemoteRetriever

        assert isinstance(database, PostgresDatabase)
        return RemoteRetriever(database, index_from=config.index_from)
    return Retriever(database, index_from=config.index_from, index=config.index, tiers=config.tiers)
