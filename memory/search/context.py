"""Attention of a query over blocks of similar memories."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index.neighbours import unit_rows
from memory.persistence.database import Database
from memory.query import EVERYTHING, Query
from memory.search.blocks import SimilarBlocks
from memory.search.ranking import Ranking
from memory.search.relevance import required
from memory.search.retriever import Retriever
from memory.types import Hit

#: Number of nearest memories whose blocks are read.
_NEAREST = 64


class AttentionWeights(NamedTuple):
    """Attention over the blocks around a query.

    Attributes:
        vector: (dim,) float32 weighted mean of the vectors; zeros without memories.
        ids: (n,) int64, largest weight first.
        weights: (n,) float32, sum 1.
    """

    vector: NDArray[np.float32]
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]

    @property
    def by_id(self) -> dict[int, float]:
        """The weights by memory id."""
        return dict(zip(self.ids.tolist(), self.weights.tolist(), strict=True))


class Context(NamedTuple):
    """Attention of a query over a store.

    Attributes:
        vector: (dim,) float32 attention-weighted mean of the vectors; zeros if nothing matches.
        hits: hits of the query, at most ``k``, with their weights in ``Hit.attention``.
        ids: (n,) int64 of all attended memories, largest weight first.
        weights: (n,) float32 of these memories, sum 1.
    """

    vector: NDArray[np.float32]
    hits: list[Hit]
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]


class Attention:
    """Attention over the memories of a store. Blocks are created on first use."""

    def __init__(self, database: Database, retriever: Retriever) -> None:
        self._database = database
        self._retriever = retriever
        self._lock = threading.Lock()
        self._blocks: dict[str, SimilarBlocks] = {}

    def nearest(self, query: Query) -> Ranking:
        """Return the nearest matching memories, enough to choose the blocks."""
        return self._retriever.find(replace(query, k=max(query.k, _NEAREST), order="relevance"))

    def weigh(self, query: Query, nearest: NDArray[np.int64]) -> AttentionWeights:
        """Compute the attention of a query over the blocks that contain the nearest memories.

        Args:
            query: query with a vector.
            nearest: ids from :meth:`nearest`.
        """
        from memory.search.attention import (
            read_out,  # Imports torch, which takes seconds.
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
        return AttentionWeights(found.context, ids[order], found.weights[order])

    def forget(self) -> None:
        """Drop the blocks, so that no erased vector remains."""
        with self._lock:
            self._blocks.clear()
