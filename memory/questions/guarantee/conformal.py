"""Split-conformal answers: sets of outcomes that hold the true one with a chosen probability.

Vovk, Gammerman and Shafer 2005; Papadopoulos et al. 2002. Past cases with a known outcome give scores, which
are high if the outcome was a surprise. An answer for a new case holds all outcomes that would be no more
surprising than the given share of past cases with that outcome. If new cases are like past ones of their
outcome, the answer holds the truth with at least that probability, for each outcome (Vovk 2012). It does not
matter whether one outcome is more frequent than in the past. An answer with one outcome is yes or no, any
other is "unknown".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["yes", "no", "unknown"]
#: Fewest past cases, whatever the confidence.
LEAST_CASES = 10


@dataclass(frozen=True)
class Guarantee:
    """Answer with a guaranteed error.

    Attributes:
        confidence: guaranteed share of answers that hold the truth, if it is yes, and if it is no.
        verdict: ``"yes"``, ``"no"``, or ``"unknown"`` if both are possible or nothing is guaranteed.
        available: False if the store has too few past cases.
        cases: number of past cases of the rarer outcome that calibrated the answer.
        probability: estimated probability of yes, without a guarantee; None if it was not estimated.
        memories: ids of the memories that are evidence.
        last_seen_ns: last observation that is evidence; None if there is none.
        last_free_ns: last observation of free space at the place since then; None if there is none.
        reason: why the answer is unknown, or what the past cases were.
    """

    confidence: float
    verdict: Verdict
    available: bool
    cases: int
    probability: float | None
    memories: tuple[int, ...]
    last_seen_ns: int | None
    last_free_ns: int | None
    reason: str

    def __str__(self) -> str:
        word = {"yes": "Yes", "no": "No", "unknown": "Unknown"}[self.verdict]
        return f"{word} at {self.confidence:.0%} confidence: {self.reason}."


def check_confidence(confidence: float) -> float:
    """Return a confidence between 0.5 and 1, or raise ``ValueError``."""
    if not 0.5 <= confidence < 1.0:
        raise ValueError(f"confidence must be at least 0.5 and below 1, got {confidence}")
    return confidence


def cases_needed(confidence: float) -> int:
    """Return the fewest past cases that can guarantee a confidence."""
    return max(LEAST_CASES, math.ceil(confidence / (1.0 - confidence) - 1e-9))


def largest_score(scores: Sequence[float], confidence: float) -> float | None:
    """Return the largest score that is not too surprising; None if there are too few past cases.

    With n past cases it is the score of rank ``ceil((n + 1) confidence)``.
    """
    if len(scores) < cases_needed(confidence):
        return None
    rank = math.ceil((len(scores) + 1) * confidence - 1e-9)
    return sorted(scores)[rank - 1]


def largest_score_of_groups(groups: Sequence[Sequence[float]], confidence: float) -> float | None:
    """Return the largest score that is not too surprising in any group, nor in all of them together.

    Cases of one day or drive resemble each other more than those of another one. A limit that held on each of
    them is more likely to hold on the next (Dunn, Wasserman and Ramdas 2023 discuss such groups).

    Args:
        groups: past cases by day or drive; groups with too few cases count only together.
        confidence: from 0.5 to 1.
    """
    pooled = largest_score([score for some in groups for score in some], confidence)
    if pooled is None:
        return None
    limits = [largest_score(some, confidence) for some in groups]
    return max([pooled, *(limit for limit in limits if limit is not None)])


def verdict_of(yes: bool, no: bool) -> Verdict:
    """Return the answer from whether each outcome is possible."""
    if yes == no:
        return "unknown"
    return "yes" if yes else "no"
