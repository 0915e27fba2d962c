"""What a store knows about a query: attention over blocks of similar memories, and its weights."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index.neighbours import unit_rows
from memory.persistence.database import Database
from memory.persistence.queries import EVERYTHING
from memory.query import Query
from memory.search.blocks import SimilarBlocks
from memory.search.ranking import Ranking
from memory.search.relevance import required
from memory.search.retriever import Retriever
from memory.types import Hit

#: Nearest memories, found by the index, whose blocks are attended to.
_NEAREST = 64


class Weighted(NamedTuple):
    """What attention makes of the blocks around a query.

    Attributes:
        vector: (dim,) float32, the weighted mean of the vectors; zeros where nothing was attended to.
        ids: (n,) int64 of the memories, the largest weight first.
        weights: (n,) float32, which sum to 1.
    """

    vector: NDArray[np.float32]
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]

    @property
    def by_id(self) -> dict[int, float]:
        """The weights by the id of the memory."""
        return dict(zip(self.ids.tolist(), self.weights.tolist(), strict=True))


class Context(NamedTuple):
    """What a store knows about a query.

    Attributes:
        vector: (dim,) float32, the attention-weighted mean of the vectors; zeros where nothing fits.
        hits: as of the query, at most ``k``: the nearest have the largest weights; ``Hit.attention`` is the
            share of each.
        ids: (n,) int64 of all memories that were attended to, the largest weight first.
        weights: (n,) float32 of them, which sum to 1.
    """

    vector: NDArray[np.float32]
    hits: list[Hit]
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]


class Attention:
    """Attends to the memories of a store; the blocks are made when they are first asked for.

    Args:
        database: the truth.
        retriever: finds the nearest, by whatever index there is.
    """

    def __init__(self, database: Database, retriever: Retriever) -> None:
        self._database = database
        self._retriever = retriever
        self._lock = threading.Lock()
        self._blocks: dict[str, SimilarBlocks] = {}

    def nearest(self, query: Query) -> Ranking:
        """The nearest memories that pass the filter, at least as many as the blocks are chosen by."""
        return self._retriever.find(replace(query, k=max(query.k, _NEAREST), order="relevance"))

    def weigh(self, query: Query, nearest: NDArray[np.int64]) -> Weighted:
        """Attention of a query that compares a vector to everything in the blocks around it.

        Blocks in which hashes put what is alike side by side are attended to as a whole, but for what does
        not pass the filter.

        Args:
            query: that is asked.
            nearest: ids of :meth:`nearest`, whose blocks are taken.
        """
        from memory.search.attention import (
            read_out,  # Loads torch, which takes seconds; other questions do without.
        )

        vector = self._retriever.vector_of(query)
        assert vector is not None
        question = unit_rows(vector[None], len(vector))[0]
        passing = None if required(query) == EVERYTHING else self._retriever.ids(required(query))
        with self._lock:
            blocks = self._blocks.get(query.encoder)
            if blocks is None or blocks.dim != len(vector):
                blocks = self._blocks[query.encoder] = SimilarBlocks(len(vector), query.encoder)
            blocks.follow(self._database)
            ids, vectors = blocks.around(nearest, passing)
        if query.like is not None:
            ids, vectors = ids[ids != query.like], vectors[ids != query.like]
        found = read_out(question, vectors)
        order = np.lexsort((ids, -found.weights))
        return Weighted(found.context, ids[order], found.weights[order])

    def forget(self) -> None:
        """Drop the blocks: nothing of an erased vector stays."""
        with self._lock:
            self._blocks.clear()
