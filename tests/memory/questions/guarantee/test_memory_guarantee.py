"""Answers with a guaranteed error: ranks of past cases, what a store's history tells, and refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.guarantee.answering import guarantee_of
from memory.questions.guarantee.conformal import (
    cases_needed,
    largest_score,
    largest_score_of_groups,
    verdict_of,
)
from memory.questions.guarantee.history import place_similarities, presence_outcomes
from memory.questions.guarantee.persistence import Outcome, Persistence, PresenceCalibration
from memory.types import Visit

SECOND, HOUR = 10**9, 3600 * 10**9
ENCODER = "scene-encoder"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore.open(tmp_path / "store", dim=4) as opened:
        yield opened


@pytest.mark.parametrize(("confidence", "least"), [(0.8, 10), (0.9, 10), (0.95, 19), (0.99, 99)])
def test_a_confidence_needs_enough_past_cases(confidence: float, least: int) -> None:
    assert cases_needed(confidence) == least
    assert largest_score([0.5] * (least - 1), confidence) is None
    assert largest_score([0.5] * least, confidence) == 0.5


def test_the_limit_has_the_rank_of_split_conformal_prediction() -> None:
    # ceil(20 * 0.9) = 18 of 19 cases.
    assert largest_score([n / 100 for n in range(1, 20)], 0.9) == 0.18
    assert largest_score([n / 100 for n in range(1, 20)], 0.95) == 0.19


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_new_cases_like_past_ones_are_covered(confidence: float) -> None:
    random = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        scores = random.exponential(size=60)
        limit = largest_score(scores[:40].tolist(), confidence)
        assert limit is not None
        covered.append(float((scores[40:] <= limit).mean()))
    assert confidence - 0.01 <= np.mean(covered) <= confidence + 0.04


def test_the_worst_group_sets_the_limit() -> None:
    easy, hard = [0.1] * 30, [0.7] * 12
    assert largest_score_of_groups([easy, hard], 0.8) == 0.7
    # A group with too few cases counts only together with the others.
    assert largest_score_of_groups([easy, [0.9] * 3], 0.8) == 0.1
    assert largest_score_of_groups([[0.1] * 3, [0.2] * 3], 0.8) is None


def test_only_one_possible_outcome_is_an_answer() -> None:
    assert verdict_of(True, False) == "yes"
    assert verdict_of(False, True) == "no"
    assert verdict_of(True, True) == "unknown"
    assert verdict_of(False, False) == "unknown"


def stays(count: int, *, label: str = "Car", known_s: float, gap_s: float, there: bool, first: int = 0):  # type: ignore[no-untyped-def]
    """Equal cases of different objects."""
    return [Outcome(first + key, 0, label, known_s, gap_s, there) for key in range(count)]


def test_objects_that_were_known_longer_stay_longer() -> None:
    known = [
        *stays(60, known_s=1e6, gap_s=86_400, there=True),
        *stays(40, known_s=60, gap_s=86_400, there=False, first=100),
        *stays(20, known_s=60, gap_s=86_400, there=True, first=200),
    ]
    fitted = Persistence.fit(known)
    assert fitted.probability("Car", 1e6, 86_400) > 0.9
    assert fitted.probability("Car", 60, 86_400) < 0.5
    assert fitted.probability("Car", 60, 60) > fitted.probability("Car", 60, 86_400)


def test_answers_are_yes_no_and_unknown_where_the_past_tells_so() -> None:
    known = [
        *stays(80, known_s=1e6, gap_s=3600, there=True),
        *stays(80, known_s=1, gap_s=86_400, there=False, first=1000),
    ]
    calibration = PresenceCalibration.of(known)
    assert calibration.counts("Car") == (40, 40)
    assert calibration.answer("Car", 1e6, 3600, 0.9) == "yes"
    assert calibration.answer("Car", 1, 86_400, 0.9) == "no"
    # A label without past cases has no guarantee.
    assert calibration.answer("Sofa", 1e6, 3600, 0.9) == "unknown"
    assert calibration.counts("Sofa") == (0, 0)
    # Outcomes that nothing predicts stay unknown.
    mixed = [
        *stays(80, known_s=100, gap_s=3600, there=True),
        *stays(80, known_s=100, gap_s=3600, there=False, first=1000),
    ]
    assert PresenceCalibration.of(mixed).answer("Car", 100, 3600, 0.9) == "unknown"


def parked(number: int, visits: int, *, label: str = "Car") -> Memory:
    """A car that was seen for a minute on some hours."""
    seen = tuple(Visit(hour * HOUR, hour * HOUR + 60 * SECOND, 5) for hour in range(visits))
    return Memory(
        time_ns=seen[-1].last_ns, position=(10.0 * number, 0.0, 0.0), label=label, count=5 * visits,
        first_seen_ns=0, last_seen_ns=seen[-1].last_ns, visits=seen if visits > 1 else (),
    )  # fmt: skip


def fill(store: MemoryStore, stayed: int, left: int) -> list[int]:
    """Add cars that were seen again, and others that were found gone a day later."""
    kept = store.add([parked(number, 12) for number in range(stayed)])
    gone = store.add([parked(1000 + number, 1) for number in range(left)])
    if gone:
        store.mark(gone, "gone", at_ns=24 * HOUR)
    return kept


def test_the_history_of_a_store_has_outcomes(store: MemoryStore) -> None:
    fill(store, 2, 1)
    outcomes = presence_outcomes(store)
    assert sum(each.there for each in outcomes) == 2 * 11
    (gone,) = [each for each in outcomes if not each.there]
    assert gone.gap_s == pytest.approx(24 * 3600 - 60)
    assert gone.known_s == pytest.approx(60)
    assert {round(each.gap_s) for each in outcomes if each.there} == {3540}


def test_an_undone_mark_is_no_outcome(store: MemoryStore) -> None:
    (id,) = store.add([parked(0, 1)])
    store.undo(store.mark([id], "gone", at_ns=24 * HOUR))
    assert presence_outcomes(store) == []


def test_still_there_has_a_guarantee_with_its_evidence(store: MemoryStore) -> None:
    kept = fill(store, 20, 30)
    answer = Questions(store).still_there(kept[0])
    soon = guarantee_of(store, answer, 0.9, now_ns=12 * HOUR)
    assert (soon.verdict, soon.available) == ("yes", True)
    assert soon.memories == (kept[0],)
    assert soon.last_seen_ns == 11 * HOUR + 60 * SECOND
    assert soon.cases == 15
    assert str(soon).startswith("Yes at 90% confidence: estimated probability")
    late = guarantee_of(store, answer, 0.9, now_ns=10**6 * HOUR)
    assert late.verdict in ("no", "unknown")
    assert late.probability is not None
    assert soon.probability is not None
    assert late.probability < soon.probability


def test_too_few_outcomes_have_no_guarantee(store: MemoryStore) -> None:
    kept = fill(store, 20, 5)
    found = guarantee_of(store, Questions(store).still_there(kept[0]), 0.9, now_ns=12 * HOUR)
    assert (found.verdict, found.available) == ("unknown", False)
    assert "not available" in found.reason
    assert "10 of each are needed" in found.reason


def test_a_gone_object_names_when_its_place_was_seen_free(store: MemoryStore) -> None:
    fill(store, 20, 0)
    (gone,) = store.add([parked(500, 1)])
    store.mark([gone], "gone", at_ns=30 * HOUR)
    found = guarantee_of(store, Questions(store).still_there(gone), 0.9, now_ns=31 * HOUR)
    assert found.last_free_ns == 30 * HOUR
    assert found.verdict == "unknown"


def test_other_questions_have_no_guarantee(store: MemoryStore) -> None:
    fill(store, 2, 0)
    with pytest.raises(QuestionError, match="have a guaranteed error"):
        guarantee_of(store, Questions(store).how_many("Car"), 0.9, now_ns=0)
    with pytest.raises(ValueError, match=r"confidence must be at least 0.5 and below 1, got 1.0"):
        guarantee_of(store, Questions(store).still_there("Car"), 1.0, now_ns=0)


def street(store: MemoryStore, count: int = 60) -> None:
    """Places a metre apart, whose vectors turn slowly."""
    store.add([
        Memory(time_ns=n * SECOND, kind="place", position=(float(n), 0.0, 0.0), embeddings={ENCODER: turn(n)})
        for n in range(count)
    ])  # fmt: skip


def turn(x: float) -> np.ndarray:
    """A vector for a place."""
    steps = np.arange(1, 9)
    return np.concatenate([np.cos(0.05 * steps * x), np.sin(0.05 * steps * x)]).astype(np.float32)


def test_been_here_is_calibrated_by_the_places_of_the_store(store: MemoryStore) -> None:
    street(store)
    same, apart = place_similarities(store, ENCODER, 3.0, 15.0)
    assert len(same) == len(apart) == 60
    assert same.min() > apart.max()
    questions = Questions(store, encoder=ENCODER)
    for vector, verdict in ((turn(30.2), "yes"), (-sum(turn(n) for n in range(60)), "no")):
        answer = questions.seen_before(vector, kind="place")
        found = guarantee_of(store, answer, 0.9, now_ns=0, encoder=ENCODER)
        assert (found.verdict, found.available) == (verdict, True)
        assert len(found.memories) == 1


def test_few_places_have_no_guarantee(store: MemoryStore) -> None:
    street(store, 5)
    answer = Questions(store, encoder=ENCODER).seen_before(turn(2.0), kind="place")
    found = guarantee_of(store, answer, 0.9, now_ns=0, encoder=ENCODER)
    assert (found.verdict, found.available) == ("unknown", False)
    assert math.isclose(found.confidence, 0.9)
