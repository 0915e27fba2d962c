"""Relevance of memories to a sentence: by words, dates, and what was remembered around them.

A rare word or date has a high weight (the weight of BM25, Robertson and Zaragoza 2009, with presence instead
of frequency, because captions are short). A memory that lacks a word gets a share of its weight from the
nearest memory with that word, because an answer often follows the question and does not repeat it.
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

#: Shares of the weight of a word that occurs one to four memories earlier or later, instead of here.
BESIDE = (0.7, 0.5, 0.4, 0.35)
#: Share if it only occurs elsewhere in the same session.
IN_SESSION = 0.3
#: Maximum pause within a session.
PAUSE_NS = 300 * 10**9
#: Weight of the text score if vectors are compared too.
WORDS_SHARE = 0.7
#: Number of best hits by text whose captions are read, and that are combined with those by vectors.
FUSED = 64


def sentence_of(query: Query) -> Sentence | None:
    """Return the sentence of a query; ``None`` for single words or no text."""
    return None if query.text is None else read_sentence(query.text)


def required(query: Query) -> Filter:
    """Return the conditions that every hit must meet; words of a sentence are optional."""
    return query.filter if sentence_of(query) is None else query.where


class Sessions(NamedTuple):
    """Order of the memories in time, for each map.

    Memories of one map without a pause of more than :data:`PAUSE_NS` form a session. Those with the same time
    form a moment; their order is unknown and must not depend on ids.

    Attributes:
        moments: (rows,) int64 moment of each row, in order of map and time; -1 for removed rows.
        sessions: (moments,) int64 session of each moment.
        within: (moments,) float64 share of a word that another memory of the same moment has.
    """

    moments: NDArray[np.int64]
    sessions: NDArray[np.int64]
    within: NDArray[np.float64]

    @classmethod
    def of(cls, columns: ColumnCache) -> Sessions:
        """Compute the sessions of the current memories."""
        order = np.flatnonzero(columns.column("alive"))
        for name in ("time_ns", "map_ids"):
            # Stable sorts are fast for sorted data, such as times of one robot.
            order = order[np.argsort(columns.column(name)[order], kind="stable")]
        time, maps = columns.column("time_ns")[order], columns.column("map_ids")[order]
        other_map = maps[1:] != maps[:-1]
        starts = np.concatenate([[True], (time[1:] != time[:-1]) | other_map])[: len(order)]
        # Times are sorted, so the unsigned difference cannot be negative.
        paused = (time[1:] - time[:-1]).view(np.uint64) > PAUSE_NS
        begins = np.concatenate([[True], paused | other_map])[: len(order)]
        places = np.cumsum(starts) - 1
        moments = np.full(len(columns.column("ids")), -1, np.int64)
        moments[order] = places
        return cls(moments, (np.cumsum(begins) - 1)[starts], _within_moment(np.bincount(places)))

    def around(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the (moments,) share of a word that these rows have, for other memories of each moment."""
        there = np.zeros(len(self.sessions), np.bool_)  # Faster than sorting.
        there[self.moments[rows]] = True
        having = np.flatnonzero(there)
        known = np.zeros(int(self.sessions[-1]) + 1)
        own = self.sessions[having]
        known[own] = IN_SESSION
        shares: NDArray[np.float64] = known[self.sessions]
        # The nearest occurrence counts, so nearer ones overwrite the others.
        for step, share in reversed([*enumerate(BESIDE, 1)]):
            for near in (having - step, having + step):
                inside = slice(*np.searchsorted(near, (0, len(self.sessions))))
                here = near[inside]
                shares[here[self.sessions[here] == own[inside]]] = share
        shares[having] = np.maximum(shares[having], self.within[having])
        return shares


def _within_moment(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean share of two memories at different random places of a moment of each size."""
    pairs = np.maximum(sizes * (sizes - 1) / 2.0, 1.0)
    shares = np.full(len(sizes), IN_SESSION)
    for step, share in enumerate(BESIDE, 1):
        shares += (share - IN_SESSION) * np.maximum(sizes - step, 0) / pairs
    return shares


def fits(
    sentence: Sentence, found: Sequence[NDArray[np.int64]], columns: ColumnCache, sessions: Sessions
) -> NDArray[np.float64]:
    """Score each row for a sentence.

    Args:
        sentence: the sentence.
        found: for each word, the ids of memories that have it.
        columns: columns of the memories.
        sessions: sessions of the memories.

    Returns:
        (rows,) float64; 0 for rows without any word or date, and for removed rows.
    """
    scores = np.zeros(len(columns.column("ids")))
    having = [rows[rows >= 0] for rows in map(columns.rows, found)]
    having = [rows for rows in having if len(rows)]
    said = np.zeros(len(scores), np.bool_)
    for rows in having:
        said[rows] = True
    candidates = np.flatnonzero(said)
    moments = sessions.moments[candidates]
    for rows in having:
        weight = rarity(len(rows), len(columns))
        shares = sessions.around(rows)[moments]
        shares[np.searchsorted(candidates, rows)] = 1.0
        scores[candidates] += weight * shares
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
