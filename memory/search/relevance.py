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

from memory.index import Neighbours
from memory.query import Filter, Query
from memory.search.columns import ColumnCache
from memory.wording.dates import falls_on
from memory.wording.sentences import Sentence, read_sentence

#: Shares of the scores of the memories one and two places away, and how far away in time they may be.
BESIDE = (0.4, 0.2)
BESIDE_NS = 300 * 10**9
#: What words count where vectors are compared too, each by its best.
WORDS_SHARE = 0.5
#: The best by words and by vectors that are compared by both.
FUSED = 64


def sentence_of(query: Query) -> Sentence | None:
    """What the text of a query asks for where it is a sentence; ``None`` of mere words, and without."""
    return None if query.text is None else read_sentence(query.text)


def required(query: Query) -> Filter:
    """What every hit must be: the words of a sentence may be missing."""
    return query.filter if sentence_of(query) is None else query.where


class Succession(NamedTuple):
    """In which order memories were made, map by map.

    Memories of one time in one map form a moment. Their order is not known, and ids do not give it: the same
    memories stored in another order must answer alike. So each counts as if it stood at every place of its
    moment equally often.

    Attributes:
        order: (memories,) int64 rows by map and time.
        linked: for each of :data:`BESIDE` (memories - step,) bool, whether a place of the order and the one
            so many steps on are beside each other.
        moments: (memories,) int64 number of the moment by place; ``None`` where each has one memory.
    """

    order: NDArray[np.int64]
    linked: tuple[NDArray[np.bool_], ...]
    moments: NDArray[np.int64] | None

    @classmethod
    def of(cls, columns: ColumnCache) -> Succession:
        """That of the memories as they are now."""
        order = np.flatnonzero(columns.column("alive"))
        for name in ("time_ns", "map_ids"):
            # One after the other and stable: what is in order already, as a robot's times are, takes no time.
            order = order[np.argsort(columns.column(name)[order], kind="stable")]
        time, maps = columns.column("time_ns")[order], columns.column("map_ids")[order]
        linked = []
        for step in range(1, len(BESIDE) + 1):
            # Of rising times, so that the difference of 64 bits has no sign.
            near = (time[step:] - time[:-step]).view(np.uint64) <= BESIDE_NS
            linked.append(near & (maps[step:] == maps[:-step]))
        same = (time[1:] == time[:-1]) & (maps[1:] == maps[:-1])
        moments = np.concatenate([[0], np.cumsum(~same)])[: len(order)] if same.any() else None
        return cls(order, tuple(linked), moments)

    def shared(self, said: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each place gets of the scores of those beside it.

        Args:
            said: (memories,) scores by place.
        """
        found = np.zeros_like(said)
        if self.moments is None:
            for step, (share, linked) in enumerate(zip(BESIDE, self.linked, strict=True), 1):
                found[step:] += share * linked * said[:-step]
                found[:-step] += share * linked * said[step:]
            return found
        moments = self.moments
        sizes = np.bincount(moments)
        totals = np.bincount(moments, said)
        means = (totals / sizes)[moments]
        for step, (share, linked) in enumerate(zip(BESIDE, self.linked, strict=True), 1):
            # Means over the places of a moment: of other moments there, and of the others of its own.
            apart = linked & (moments[step:] != moments[:-step])
            beyond = np.bincount(moments[step:], apart * means[:-step], len(sizes))
            beyond += np.bincount(moments[:-step], apart * means[step:], len(sizes))
            within = 2.0 * np.maximum(sizes - step, 0) / np.maximum(sizes - 1, 1)
            found += share * ((beyond + within * totals) / sizes)[moments]
            found -= share * (within / sizes)[moments] * said
        return found


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
    said = own[succession.order]
    scores = np.zeros_like(own)
    scores[succession.order] = np.where(said > 0.0, said + succession.shared(said), 0.0)
    for date in sentence.dates:
        rows = np.flatnonzero(columns.column("alive") & falls_on(columns.column("time_ns"), date))
        scores[rows] += rarity(len(rows), len(columns))
    # What is equal but for the order of additions is equal.
    return scores.round(9)


def rarity(having: int, total: int) -> float:
    """What it counts that a memory has a word that so many of all have."""
    return math.log1p((total - having + 0.5) / (having + 0.5))


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
    # Cosines of single precision differ in their last digits by where a row lies.
    scores = scores.round(6)
    order = np.lexsort((ids, -scores))
    return Fused(ids[order], scores[order], text[order], similarity[order])


def _by_best(values: NDArray[np.float64]) -> NDArray[np.float64]:
    most = values.max(initial=0.0)
    return values / most if most > 0.0 else values
