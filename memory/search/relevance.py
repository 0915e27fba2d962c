"""Relevance of memories to a sentence: by words, dates, and neighbours in time.

A rare word or date has a high weight (the weight of BM25, Robertson and Zaragoza 2009, with presence instead
of frequency, because captions are short). A share of a memory's score goes to its neighbours in time that
also have a word of the sentence, because an answer often follows the question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index import Neighbours
from memory.query import Filter, Query
from memory.search.columns import ColumnCache
from memory.wording.dates import falls_on
from memory.wording.sentences import Sentence, read_sentence

#: Shares of the scores of memories one and two places away, and their maximum distance in time.
BESIDE = (0.4, 0.2)
BESIDE_NS = 300 * 10**9
#: Weight of the text score if vectors are compared too.
WORDS_SHARE = 0.5
#: Number of best hits by text and by vectors that are combined.
FUSED = 64


def sentence_of(query: Query) -> Sentence | None:
    """Return the sentence of a query; ``None`` for single words or no text."""
    return None if query.text is None else read_sentence(query.text)


def required(query: Query) -> Filter:
    """Return the conditions that every hit must meet; words of a sentence are optional."""
    return query.filter if sentence_of(query) is None else query.where


class Succession(NamedTuple):
    """Order of the memories in time, for each map.

    Memories with the same time in a map form a moment. Their order is unknown and must not depend on ids, so
    each counts as if it were at every place of its moment equally often.

    Attributes:
        order: (memories,) int64 rows by map and time.
        linked: for each of :data:`BESIDE`, (memories - step,) bool: True if a place and the one ``step``
            later are neighbours.
        moments: (memories,) int64 moment of each place; ``None`` if every moment has one memory.
    """

    order: NDArray[np.int64]
    linked: tuple[NDArray[np.bool_], ...]
    moments: NDArray[np.int64] | None

    @classmethod
    def of(cls, columns: ColumnCache) -> Succession:
        """Compute the order of the current memories."""
        order = np.flatnonzero(columns.column("alive"))
        for name in ("time_ns", "map_ids"):
            # Stable sorts are fast for sorted data, such as times of one robot.
            order = order[np.argsort(columns.column(name)[order], kind="stable")]
        time, maps = columns.column("time_ns")[order], columns.column("map_ids")[order]
        linked = []
        for step in range(1, len(BESIDE) + 1):
            # Times are sorted, so the unsigned difference cannot be negative.
            near = (time[step:] - time[:-step]).view(np.uint64) <= BESIDE_NS
            linked.append(near & (maps[step:] == maps[:-step]))
        same = (time[1:] == time[:-1]) & (maps[1:] == maps[:-1])
        moments = np.concatenate([[0], np.cumsum(~same)])[: len(order)] if same.any() else None
        return cls(order, tuple(linked), moments)

    def shared(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the score that each place gets from its neighbours; ``scores`` is (memories,) by place."""
        found = np.zeros_like(scores)
        if self.moments is None:
            for step, (share, linked) in enumerate(zip(BESIDE, self.linked, strict=True), 1):
                found[step:] += share * linked * scores[:-step]
                found[:-step] += share * linked * scores[step:]
            return found
        moments = self.moments
        sizes = np.bincount(moments)
        totals = np.bincount(moments, scores)
        means = (totals / sizes)[moments]
        for step, (share, linked) in enumerate(zip(BESIDE, self.linked, strict=True), 1):
            # Average over the places of a moment: scores of other moments, and of its other memories.
            apart = linked & (moments[step:] != moments[:-step])
            beyond = np.bincount(moments[step:], apart * means[:-step], len(sizes))
            beyond += np.bincount(moments[:-step], apart * means[step:], len(sizes))
            within = 2.0 * np.maximum(sizes - step, 0) / np.maximum(sizes - 1, 1)
            found += share * ((beyond + within * totals) / sizes)[moments]
            found -= share * (within / sizes)[moments] * scores
        return found


def fits(
    sentence: Sentence, found: Sequence[NDArray[np.int64]], columns: ColumnCache, succession: Succession
) -> NDArray[np.float64]:
    """Score each row for a sentence.

    Args:
        sentence: the sentence.
        found: for each word, the ids of memories that have it.
        columns: columns of the memories.
        succession: their order.

    Returns:
        (rows,) float64; 0 for rows without any word or date, and for removed rows.
    """
    own = np.zeros(len(columns.column("ids")))
    for ids in found:
        rows = columns.rows(ids)
        rows = rows[rows >= 0]
        own[rows] += rarity(len(rows), len(columns))
    said = own[succession.order]
    scores = np.zeros_like(own)
    scores[succession.order] = np.where(said > 0.0, said + succession.shared(said), 0.0)
    for date in sentence.dates:
        rows = np.flatnonzero(columns.column("alive") & falls_on(columns.column("time_ns"), date))
        scores[rows] += rarity(len(rows), len(columns))
    # Round, so that the order of additions does not matter.
    return scores.round(9)


def rarity(having: int, total: int) -> float:
    """Return the weight of a word that ``having`` of ``total`` memories have."""
    return math.log1p((total - having + 0.5) / (having + 0.5))


class FusedRanking(NamedTuple):
    """Ranking by text and vectors together, the best first.

    Attributes:
        ids: (n,) int64.
        scores: (n,) float64, at most 1.
        text: (n,) float64 relevance to the sentence.
        similarity: (n,) float32 cosine similarity, 0 without a vector.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]
    text: NDArray[np.float64]
    similarity: NDArray[np.float32]


def fuse(ids: NDArray[np.int64], text: NDArray[np.float64], compared: Sequence[Neighbours]) -> FusedRanking:
    """Rank memories by text and vector scores, each divided by its maximum.

    Args:
        ids: (n,) distinct ids.
        text: (n,) scores of :func:`fits`.
        compared: searches that contain the similarities of all ids with a vector.
    """
    cosines = {
        int(id): float(score)
        for found in compared
        for id, score in zip(found.ids[0], found.scores[0], strict=True)
    }
    similarity = np.array([cosines.get(id, 0.0) for id in ids.tolist()], np.float32)
    scores = WORDS_SHARE * _by_best(text) + (1.0 - WORDS_SHARE) * _by_best(similarity.astype(np.float64))
    # Single-precision similarities differ in their last digits by the row order.
    scores = scores.round(6)
    order = np.lexsort((ids, -scores))
    return FusedRanking(ids[order], scores[order], text[order], similarity[order])


def _by_best(values: NDArray[np.float64]) -> NDArray[np.float64]:
    most = values.max(initial=0.0)
    return values / most if most > 0.0 else values
