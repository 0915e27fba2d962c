"""How well memories fit a sentence: by its words, its dates, and what was remembered just before and after.

A word counts for a memory by how few have it (the weight of BM25, Robertson and Zaragoza 2009, with presence
in place of frequency: captions are short, and their words seldom repeated); so does a date by the memories
of that day. Of what its words make a memory score, a share goes to those beside it in time that have one of
the words too: an answer is in the reply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.columns import ColumnCache
from memory.index import Neighbours
from memory.query import Filter, Query
from memory.wording.dates import falls_on
from memory.wording.sentences import Sentence, read_sentence

#: Shares of the scores of the memories one and two places away, and how far away in time they may be.
BESIDE = (0.4, 0.2)
BESIDE_NS = 60 * 10**9
#: What words count where vectors are compared too, each by its best.
WORDS_SHARE = 0.5
#: The best by words and by vectors that are compared by both.
FUSED = 256


def sentence_of(query: Query) -> Sentence | None:
    """What the text of a query asks for where it is a sentence; ``None`` of mere words, and without."""
    return None if query.text is None else read_sentence(query.text)


def required(query: Query) -> Filter:
    """What every hit must be: the words of a sentence may be missing."""
    return query.filter if sentence_of(query) is None else query.where


class Succession(NamedTuple):
    """In which order memories were made, map by map.

    Attributes:
        order: (memories,) int64 rows by map, time and id.
        place: (rows,) int64 of each row in it, -1 for removed ones.
    """

    order: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def of(cls, columns: ColumnCache) -> Succession:
        """That of the memories as they are now."""
        alive = np.flatnonzero(columns.column("alive"))
        keys = columns.column("time_ns")[alive], columns.column("map_ids")[alive]
        order = alive[np.lexsort(keys)]
        place = np.full(len(columns.column("alive")), -1, np.int64)
        place[order] = np.arange(len(order))
        return cls(order, place)


def fits(
    sentence: Sentence, found: Sequence[NDArray[np.int64]], columns: ColumnCache, succession: Succession
) -> NDArray[np.float64]:
    """How well each row fits a sentence.

    Args:
        sentence: that is asked.
        found: for each of its words the ids of the memories that have it.
        columns: of the memories.
        succession: of the same.

    Returns:
        (rows,) float64; 0 for rows that have none of the words and dates, and for removed ones.
    """
    own = np.zeros(len(columns.column("ids")))
    for ids in found:
        rows = columns.rows(ids)
        rows = rows[rows >= 0]
        own[rows] += rarity(len(rows), len(columns))
    scores = own.copy()
    rows = np.flatnonzero(own)
    for step, share in enumerate(BESIDE, 1):
        for way in (-step, step):
            scores[rows] += share * _beside(own, rows, way, columns, succession)
    for date in sentence.dates:
        rows = np.flatnonzero(columns.column("alive") & falls_on(columns.column("time_ns"), date))
        scores[rows] += rarity(len(rows), len(columns))
    # What is equal but for the order of additions is equal.
    return scores.round(9)


def rarity(having: int, total: int) -> float:
    """What it counts that a memory has a word that so many of all have."""
    return math.log1p((total - having + 0.5) / (having + 0.5))


def _beside(
    own: NDArray[np.float64],
    rows: NDArray[np.int64],
    way: int,
    columns: ColumnCache,
    succession: Succession,
) -> NDArray[np.float64]:
    """Scores of what is so many places further, 0 where that is of another map or time."""
    place = succession.place[rows] + way
    other = succession.order[np.clip(place, 0, len(succession.order) - 1)]
    time, maps = columns.column("time_ns"), columns.column("map_ids")
    # Of rising times, so that the difference is the later less the earlier, without the sign of 64 bits.
    later, earlier = (time[other], time[rows]) if way > 0 else (time[rows], time[other])
    near = (place >= 0) & (place < len(succession.order)) & (maps[other] == maps[rows])
    near &= (later - earlier).view(np.uint64) <= BESIDE_NS
    return np.where(near, own[other], 0.0)


def best(scores: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Rows of the highest positive scores, the first of equal ones first."""
    rows = np.flatnonzero(scores > 0.0)
    if len(rows) > most:
        least = np.partition(scores[rows], len(rows) - most)[len(rows) - most]
        rows = rows[scores[rows] >= least]
    return rows[np.argsort(-scores[rows], kind="stable")][:most]


class Fused(NamedTuple):
    """Memories by words and vectors together, the best first.

    Attributes:
        ids: (n,) int64.
        scores: (n,) float64, at most 1.
        text: (n,) float64, how well they fit the sentence.
        similarity: (n,) float32 cosines, 0 for what has no vector.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]
    text: NDArray[np.float64]
    similarity: NDArray[np.float32]


def fuse(ids: NDArray[np.int64], text: NDArray[np.float64], compared: Sequence[Neighbours]) -> Fused:
    """Order memories by both, each divided by its best.

    Args:
        ids: (n,) different ones.
        text: (n,) of :func:`fits`.
        compared: searches of one query that give the cosines of all of them that have a vector.
    """
    cosines = {
        int(id): float(score)
        for found in compared
        for id, score in zip(found.ids[0], found.scores[0], strict=True)
    }
    similarity = np.array([cosines.get(id, 0.0) for id in ids.tolist()], np.float32)
    scores = WORDS_SHARE * _by_best(text) + (1.0 - WORDS_SHARE) * _by_best(similarity.astype(np.float64))
    order = np.lexsort((ids, -scores))
    return Fused(ids[order], scores[order], text[order], similarity[order])


def _by_best(values: NDArray[np.float64]) -> NDArray[np.float64]:
    most = values.max(initial=0.0)
    return values / most if most > 0.0 else values
