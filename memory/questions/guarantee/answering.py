"""Guaranteed answers to "still there?" and "been here?" about a store."""

from __future__ import annotations

from collections.abc import Sequence

from memory.query import Query
from memory.questions.answers import Answer, HowMany, StillThere
from memory.questions.errors import QuestionError
from memory.questions.guarantee.conformal import (
    Guarantee,
    cases_needed,
    check_confidence,
    largest_score,
    verdict_of,
)
from memory.questions.guarantee.history import last_free_ns, place_similarities, presence_outcomes
from memory.questions.guarantee.persistence import PresenceCalibration
from memory.questions.recognising import HERE_M, SAME_PLACE_M, SeenBefore
from memory.search.reader import StoreReader
from memory.types import AWAY, Hit, Memory
from memory.wording.words import duration, plural

#: Why some answers have no guarantee.
_UNKNOWN: dict[type[Answer], str] = {
    HowMany: "The history of a store has no count that is known to be right. ",
    SeenBefore: "A merged memory keeps one vector, so there are no pairs of the same object to learn from. ",
}


def guarantee_of(
    store: StoreReader, answer: Answer, confidence: float, *, now_ns: int, encoder: str = "default"
) -> Guarantee:
    """Return the guarantee of an answer.

    Args:
        store: that answered.
        answer: whether an object is still there, or whether a place was visited.
        confidence: from 0.5 to 1.
        now_ns: time of the question, by the robot's clock.
        encoder: encoder whose vectors were compared, for a vector.

    Raises:
        QuestionError: another question.
        ValueError: the confidence is out of range.
    """
    check_confidence(confidence)
    if isinstance(answer, StillThere):
        if answer.memory is None:
            return Guarantee(confidence, "unknown", False, 0, None, (), None, None, "nothing is known of it")
        return guaranteed_presence(store, answer.memory, now_ns, confidence)
    if isinstance(answer, SeenBefore) and answer.kind == "place":
        if answer.memory is not None and answer.hits:
            encoder = store.compared(Query(like=answer.memory.id, encoder=encoder)).encoder
        return guaranteed_place(store, answer.hits, encoder, confidence)
    why = next((words for kind, words in _UNKNOWN.items() if isinstance(answer, kind)), "")
    raise QuestionError(
        "confidence",
        f"{why}Only 'is it still there?' and 'have I been here?' have a guaranteed error. Ask without a"
        " confidence",
    )


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
    stayed, left = calibration.counts(memory.label)
    cases, needed = min(stayed, left), cases_needed(confidence)
    if cases < needed:
        reason = (
            f"not available, because this store has {stayed} past cases of {memory.label or 'objects'} that"
            f" stayed and {left} of such that left, and {needed} of each are needed"
        )
        return Guarantee(confidence, "unknown", False, cases, None, ids, seen_ns, free_ns, reason)
    probability = calibration.model.probability(memory.label, known_s, gap_s)
    verdict = calibration.answer(memory.label, known_s, gap_s, confidence)
    reason = (
        f"estimated probability {probability:.2f} after {duration(gap_s)} without an observation, by past"
        f" cases of this store, {stayed} that stayed and {left} that left"
    )
    return Guarantee(confidence, verdict, True, cases, probability, ids, seen_ns, free_ns, reason)


def guaranteed_place(store: StoreReader, hits: Sequence[Hit], encoder: str, confidence: float) -> Guarantee:
    """Return whether a place was visited before, from the similarities of the store's own places.

    "Yes" is wrong for at most ``1 - confidence`` of the scans of other places, and "no" for at most that
    share of the scans of known places.

    Args:
        store: with places.
        hits: similar places of earlier visits, the most similar first.
        encoder: encoder whose vectors were compared.
        confidence: from 0.5 to 1.
    """
    check_confidence(confidence)
    same, apart = place_similarities(store, encoder, SAME_PLACE_M, HERE_M)
    cases, needed = min(len(same), len(apart)), cases_needed(confidence)
    ids = tuple(hit.memory.id for hit in hits[:1] if hit.memory.id is not None)
    seen_ns = hits[0].memory.last_sight_ns if hits else None
    least, most = largest_score((-same).tolist(), confidence), largest_score(apart.tolist(), confidence)
    if least is None or most is None or not hits:
        reason = (
            f"not available, because this store has {plural(len(same), 'revisited place')} and"
            f" {plural(len(apart), 'other')} to compare with, and {needed} of each are needed"
        )
        return Guarantee(confidence, "unknown", False, cases, None, ids, seen_ns, None, reason)
    best = float(hits[0].score)
    verdict = verdict_of(-best <= least, best <= most)
    reason = (
        f"similarity {best:.3f}; known places have at least {-least:.3f} and other places at most {most:.3f},"
        f" by {plural(cases, 'past case')} of this store"
    )
    return Guarantee(confidence, verdict, True, cases, None, ids, seen_ns, None, reason)
