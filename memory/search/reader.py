"""Read access to a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.areas import Area
from memory.config import StoreConfig
from memory.errors import UnknownMemoryError
from memory.index import Neighbours, Plan
from memory.locate.answers import LocateOptions, LocateResult
from memory.locate.locating import locate
from memory.persistence.database import Database
from memory.persistence.log.journal import LogEntry
from memory.persistence.reports import Stats
from memory.query import Filter, Query
from memory.search.accesses import Accesses
from memory.search.context import Attention, AttentionWeights, Context
from memory.search.explanation import explain_memory
from memory.search.ranking import hits_of
from memory.search.retriever import Retriever
from memory.search.tiers import Tier
from memory.types import Explanation, Hit, Memory, State
from memory.wording.meaning import read_query

INDEX_FOLDER = "indexes"


class _Answer(NamedTuple):
    """Hits of a query; ``unknown`` is true if no memory has some word, ``weighted`` is the attention."""

    hits: list[Hit]
    unknown: bool
    weighted: AttentionWeights | None


class StoreReader:
    """Read access to a store; base of :class:`memory.store.MemoryStore`.

    Attributes:
        folder: store folder.
        config: settings.
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
        self._newest = (-1, 0)  # Operation, and the newest time after it.

    @property
    def accesses(self) -> Accesses:
        """Access counts that were not written yet."""
        return self._accesses

    def __len__(self) -> int:
        return self._database.count()

    def query(self, query: Query, *, vectors: bool = True) -> list[Hit]:
        """Search memories, the best hits first.

        Args:
            query: conditions and sort order.
            vectors: False omits the vectors of the memories, which is faster.

        Raises:
            DimensionError: the vector has the wrong length.
            UnknownMemoryError: no memory has the id ``like``.
            ValueError: no memory has a vector of the encoder.
        """
        return self._answer(query, vectors=vectors).hits

    def at_once(self, encoder: str = "default") -> AbstractContextManager[bool]:
        """Return a context that is true if a vector search takes microseconds, for callers that must not
        block.

        It is false if another thread is searching or many memories were stored since the last query.
        """
        return self._retriever.at_once(encoder)

    def context(self, query: Query) -> Context:
        """Compute attention over the memories around a query.

        The index finds the nearest matching memories. Attention reads their blocks of similar memories,
        usually thousands, see :class:`memory.search.blocks.SimilarBlocks`.

        Raises:
            ValueError: the query has no vector, or see :meth:`query`.
        """
        _check_query(query)
        if query.embedding is None and query.like is None:
            raise ValueError("context needs a query with embedding or like")
        asked = self._answer(dataclasses.replace(query, aggregate=True))
        found = asked.weighted
        assert found is not None
        return Context(found.vector, asked.hits, found.ids, found.weights)

    def _answer(self, query: Query, *, vectors: bool = True) -> _Answer:
        """Answer a query; if there are no hits, correct its words and labels."""
        _check_query(query)
        if query.where.area is not None:
            query = dataclasses.replace(query, where=self._database.resolve(query.where))
        asked = self._answer_literally(query, vectors)
        if not asked.hits or asked.unknown or len(query.where.labels or ()) > 1:
            meant = read_query(query, self._retriever.label_counts, self._database.corrections)
            if meant.notes:
                reason = "; ".join(meant.notes)
                asked = self._answer_literally(meant.query, vectors)
                return asked._replace(hits=[dataclasses.replace(hit, reason=reason) for hit in asked.hits])
        return asked

    def _answer_literally(self, query: Query, vectors: bool) -> _Answer:
        """Answer a query without corrections."""
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
        """Return the query with the encoder that it compares, see :meth:`.Retriever.compared`.

        Raises:
            UnknownMemoryError: no memory has the id ``like``, or it has no vector.
        """
        return self._retriever.compared(query)

    def search(
        self, vectors: ArrayLike, k: int = 10, *, encoder: str = "default", aim: float = 0.99
    ) -> Neighbours:
        """Find the most similar memories of many vectors at once; return ids and cosine similarities.

        Args:
            vectors: (queries, dim).
            k: number of neighbours of each.
            encoder: encoder whose vectors are compared.
            aim: measured share of the ten nearest to find; 1 compares all, less is faster.
        """
        return self._retriever.neighbours(np.asarray(vectors, np.float32), k, encoder=encoder, aim=aim)

    def locate(
        self, view: Sequence[Memory], *, map_id: str | None = None, options: LocateOptions | None = None
    ) -> LocateResult:
        """Estimate the pose that a scan was taken from, for a robot that does not know it.

        Poses are proposed and judged by the objects in view, whose labels and positions must fit those of
        stored objects, and by the place vector of the scan. The answer is refused if no pose is probable
        enough: ``verdict`` tells whether several poses fit or none, and ``pose`` is then None.

        Args:
            view: objects of one scan with positions in the frame of the sensor, and its place with a vector;
                see :func:`memory.exchange.detections.view_from_frame`.
            map_id: ``None`` for all maps.
            options: tolerance, prior probabilities and the smallest probability of an answer.

        Raises:
            ValueError: the map is too large to compare all objects, and has no place vectors.
        """
        return locate(self._database, view, options or LocateOptions(), map_id)

    def get(self, ids: Iterable[int]) -> list[Memory]:
        """Return memories by their ids; raises ``UnknownMemoryError`` for an unknown id."""
        return self._database.get(ids)

    def find(
        self,
        filter: Filter,
        *,
        newest_first: bool = True,
        limit: int | None = None,
        vectors: bool = True,
    ) -> list[Memory]:
        """Return all memories that match a filter.

        Args:
            filter: the conditions.
            newest_first: sort by time; False returns the oldest first.
            limit: maximum number of memories.
            vectors: False omits the vectors, which is faster.
        """
        order: Any = "newest" if newest_first else "oldest"
        ids = self._database.ids(filter, order=order, limit=limit).tolist()
        return self._database.present(ids, vectors=vectors)

    def find_merged(self, filter: Filter) -> list[Memory]:
        """Return matching memories with several observations, by id, without vectors."""
        return self._database.present(self._merged_ids(filter).tolist(), vectors=False)

    def find_last_seen(self, filter: Filter, after_ns: int) -> list[Memory]:
        """Return matching merged memories whose last observation is after a time, without vectors."""
        visited = self._database.visited_after(after_ns)
        if not len(visited.ids):
            return []
        fits = np.isin(visited.ids, self._merged_ids(filter))
        last = visited.first_ns[fits].max(initial=after_ns)
        return self._database.present(visited.ids[fits & (visited.first_ns == last)].tolist(), vectors=False)

    def _merged_ids(self, filter: Filter) -> NDArray[np.int64]:
        """Return sorted ids of matching memories with several observations."""
        ids = self._retriever.ids(dataclasses.replace(filter, text=None), several=True)
        if filter.text is not None:
            ids = np.intersect1d(ids, self._database.ids(Filter(text=filter.text)))
        return ids

    def find_seen(
        self, filter: Filter, *, limit: int | None = None, vectors: bool = True
    ) -> tuple[list[Memory], int]:
        """Return the memories seen within ``between_ns`` of a filter, and their total number.

        Unlike :meth:`find`, which compares ``time_ns``, this compares each visit of merged memories.

        Args:
            filter: conditions with ``between_ns``.
            limit: maximum number; those first seen in the range.
            vectors: False omits the vectors, which is faster.
        """
        ids, total = self._database.ids_seen(filter, limit=limit)
        return self._database.present(ids.tolist(), vectors=vectors), total

    def count(self, filter: Filter) -> int:
        """Return the exact number of matching memories."""
        return self._database.count(filter)

    @property
    def newest_ns(self) -> int:
        """Time of the newest memory by the robot's clock in nanoseconds; ``-2**63`` for an empty store."""
        generation = self._database.generation
        if self._newest[0] != generation:
            ids = self._database.ids(order="newest", limit=1)
            times = self._database.columns(ids).time_ns.tolist()
            if not times:
                return -(2**63)
            self._newest = (generation, times[0])
        return self._newest[1]

    def label_counts(self) -> dict[str, int]:
        """Return the number of memories of each label."""
        return self._retriever.label_counts()

    def corrections(self, text: str) -> dict[str, str]:
        """Return the most similar known word for each word that no memory has."""
        return self._database.corrections(text)

    def encoders(self) -> dict[str, int]:
        """Return the vector length by encoder name."""
        return self._database.slots()

    def maps(self) -> list[str]:
        """Return the map ids."""
        return self._database.maps()

    def areas(self) -> tuple[Area, ...]:
        """Return the named areas of all maps, by map and name; :meth:`.MemoryStore.set_area` sets them."""
        return self._database.areas()

    @overload
    def explain(self, what: int) -> Explanation: ...
    @overload
    def explain(self, what: Query) -> Plan: ...
    def explain(self, what: int | Query) -> Explanation | Plan:
        """Explain why a memory was kept, merged or forgotten, or which index answers a query and why.

        Args:
            what: id of a memory, or a query, which is run.

        Raises:
            UnknownMemoryError: no memory ever had the id.
        """
        if isinstance(what, Query):
            return self._retriever.plan(what)
        history = self._database.history(what)
        if not history:
            raise UnknownMemoryError(f"no memory ever had the id {what}")
        memory = self._database.present([what], vectors=False)
        known = memory[0] if memory else None
        return explain_memory(
            what, history, known, self._database.observation_count(what), self._database.trusts()
        )

    def log(self, after: int = 0, *, limit: int | None = None) -> list[LogEntry]:
        """Return operations in order; :meth:`undo` takes their numbers."""
        return self._database.log(after, limit=limit)

    def states_at(self, generation: int, ids: Iterable[int]) -> dict[int, State]:
        """Return the states of existing memories after an operation, except later ones."""
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
        """Return the earlier states of memories that an operation changed or removed."""
        if entry.operation == "mark":
            return {int(id): state for id, state in entry.detail["was"].items()}
        return {row.id: row.state for row in self._database.before(entry.generation)}

    @property
    def generation(self) -> int:
        """Number of the last operation."""
        return self._database.generation

    @property
    def readonly(self) -> bool:
        """True if the store was opened read-only."""
        return self._database.readonly

    @property
    def database(self) -> Database:
        """The database of the store, which the store closes.

        Do not open the database again in this process: closing a second handle releases the locks of the
        first.
        """
        return self._database

    def stats(self) -> Stats:
        """Return statistics of the store."""
        return self._database.stats()

    def tiers(self) -> dict[str, Tier]:
        """Return tier sizes by encoder, for indexes used since opening."""
        return self._retriever.indexes.tiers()


def _retriever_of(database: Database, config: StoreConfig) -> Retriever:
    """Return the retriever of a folder or server."""
    if database.shared:
        from memory.persistence.postgres.database import PostgresDatabase
        from memory.search.server_retriever import RemoteRetriever

        assert isinstance(database, PostgresDatabase)
        return RemoteRetriever(database, index_from=config.index_from)
    return Retriever(database, index_from=config.index_from, index=config.index, tiers=config.tiers)


def _check_query(query: object) -> None:
    if not isinstance(query, Query):
        raise TypeError(f"give a Query, such as Query(text='mug'), got {type(query).__name__}")
