"""Cues in captions that answer a question: who said it, a time, and no question itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.terms import fold, words
from memory.wording.sentences import FUNCTION_WORDS

#: Score of a caption whose speaker the question names. A word that one memory in eight has scores as much.
SPEAKER = 2.0
#: Score of a caption with a time, if the question starts with *when*.
TIME = 2.0
#: Deduction for a caption with a question mark, at most half of its score.
QUESTION = 0.5
#: Beginning of a caption such as ``Ann:``, of at most so many letters.
_SPEAKER = re.compile(r"\s*([^:\n]{1,40}):\s")
_TIME = re.compile(
    r"\b(yesterday|today|tomorrow|tonight|last|next|ago|weeks?|weekend|months?|years?|days?|night|morning"
    r"|since|recently|soon|(mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may|june|july"
    r"|august|september|october|november|december|(19|20)\d\d)\b"
)
_QUESTION_MARKS = frozenset("?\uff1f\u061f")


def with_cues(text: str, captions: Sequence[str], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (captions,) float64 scores of captions for a question, changed by their cues.

    Args:
        text: the question.
        captions: captions.
        scores: (captions,) positive scores.
    """
    asked = words(text)
    named = {word for word in asked if word not in FUNCTION_WORDS}
    when = asked[:1] == ["when"]
    changed = scores.copy()
    for at, caption in enumerate(captions):
        speaker = _SPEAKER.match(caption)
        if speaker is not None and not named.isdisjoint(words(speaker[1])):
            changed[at] += SPEAKER
        if when and _TIME.search(fold(caption)):
            changed[at] += TIME
        if not _QUESTION_MARKS.isdisjoint(caption):
            changed[at] -= min(QUESTION, scores[at] / 2)
    return changed.round(9)
