"""Guaranteed answers to "still there?" and "been here?" about a store."""

from __future__ import annotations

import numpy as np

from memory.query import Query
from memory.questions.guarantee.conformal import (
    Guarantee,
    cases_needed,
    check_confidence,
    largest_score,
    verdict_of,
)
from memory.questions.guarantee.history import last_free_ns, place_similarities, presence_outcomes
from memory.questions.guarantee.persistence import PresenceCalibration
from memory.search.reader import StoreReader
from memory.types import AWAY, Memory
from memory.wording.words import duration, plural


def guaranteed_presence(store: StoreReader, memory: Memory, now_ns: int, confidence: float) -> Guarantee:
    """Return whether an object is still there at a time, from the past of all objects of the store.

    Args:
        store: with the history.
        memory: memory of the object.
        now_ns: time of the question, by the robot's clock.
        confidence: from 0.5 to 1.
    """
    check_confidence(confidence)
    ids = () if memory.id is None else (memory.id,)
    free_ns = last_free_ns(store, memory)
    seen_ns = memory.last_sight_ns
    if memory.state in AWAY:
        reason = f"it was found {memory.state}, so its place would have to be seen again"
        return Guarantee(confidence, "unknown", False, 0, None, ids, seen_ns, free_ns, reason)
    calibration = PresenceCalibration.of(presence_outcomes(store))
    known_s = (seen_ns - memory.first_sight_ns) / 1e9
    gap_s = max(now_ns - seen_ns, 0) / 1e9
    cases, needed = calibration.cases(memory.label), cases_needed(confidence)
    stayed, left = calibration.counts
    known = calibration.labels.get(memory.label, 0)
    if cases < needed:
        reason = (
            f"not available, because past cases of this store are {stayed} objects that stayed and {left}"
            f" that left, {known} of them with the label {memory.label}; {needed} of each are needed"
        )
        return Guarantee(confidence, "unknown", False, cases, None, ids, seen_ns, free_ns, reason)
    probability = calibration.model.probability(memory.label, known_s, gap_s)
    verdict = calibration.answer(memory.label, known_s, gap_s, confidence)
    reason = (
        f"estimated probability {probability:.2f} after {duration(gap_s)} without an observation, by past"
        f" cases of this store, {stayed} objects that stayed and {left} that left"
    )
    return Guarantee(confidence, verdict, True, cases, probability, ids, seen_ns, free_ns, reason)


def guaranteed_place(
    store: StoreReader, query: Query, confidence: float, *, same_m: float, apart_m: float
) -> Guarantee:
    """Return whether a scan shows a place of the store, from the similarities of its own places.

    "Yes" is wrong for at most ``1 - confidence`` of the scans of other places, and "no" for at most that
    share of the scans of known places.

    Args:
        store: with places.
        query: search for similar places.
        confidence: from 0.5 to 1.
        same_m: distance within which two places are the same, in metres.
        apart_m: distance beyond which they are different.
    """
    check_confidence(confidence)
    same, apart = place_similarities(store, query.encoder, same_m, apart_m)
    cases, needed = min(len(same), len(apart)), cases_needed(confidence)
    hits = store.query(query)
    ids = tuple(hit.memory.id for hit in hits[:1] if hit.memory.id is not None)
    seen_ns = hits[0].memory.last_sight_ns if hits else None
    least, most = largest_score((-same).tolist(), confidence), largest_score(apart.tolist(), confidence)
    if least is None or most is None or not hits:
        reason = (
            f"not available, because this store has {plural(len(same), 'revisited place')} and"
            f" {plural(len(apart), 'other')} to compare with, and {needed} of each are needed"
        )
        return Guarantee(confidence, "unknown", False, cases, None, ids, seen_ns, None, reason)
    best = float(np.float64(hits[0].score))
    verdict = verdict_of(-best <= least, best <= most)
    reason = (
        f"similarity {best:.3f}; known places have at least {-least:.3f} and other places at most {most:.3f},"
        f" by {plural(cases, 'past case')} of this store"
    )
    return Guarantee(confidence, verdict, True, cases, None, ids, seen_ns, None, reason)
