"""Cues in captions that answer a question: who said it, a time, and no question itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.terms import fold, is_unspaced, words
from memory.wording.sentences import FUNCTION_WORDS

#: Score of a caption whose speaker the question names. A word that one memory in eight has scores as much.
SPEAKER = 2.0
#: Score of a caption with a time, if the question starts with *when*.
TIME = 2.0
#: Deduction for a caption with a question mark, at most half of its score.
QUESTION = 0.5
#: Beginning of a caption such as ``Ann:``, of at most so many letters.
_SPEAKER = re.compile(r"\s*([^:：\n]{1,40})(?::\s|：)")
_TIME = re.compile(
    r"\b(yesterday|today|tomorrow|tonight|last|next|ago|weeks?|weekend|months?|years?|days?|night|morning"
    r"|since|recently|soon|(mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may|june|july"
    r"|august|september|october|november|december|(19|20)\d\d)\b"
    r"|昨天|今天|明天|昨晚|上周|下周|去年|今年|明年|上个月|昨日|今日|明日|先週|来週|어제|오늘|내일|지난|다음"
)
#: Words for *when* in scripts without spaces.
_WHEN = ("什么时候", "什麼時候", "何时", "何時", "いつ", "언제")
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
    plain = fold(text)
    when = asked[:1] == ["when"] or any(word in plain for word in _WHEN)

    def names(speaker: str) -> bool:
        return any(word in (plain if is_unspaced(word[0]) else named) for word in words(speaker))

    changed = scores.copy()
    for at, caption in enumerate(captions):
        speaker = _SPEAKER.match(caption)
        if speaker is not None and names(speaker[1]):
            changed[at] += SPEAKER
        if when and _TIME.search(fold(caption)):
            changed[at] += TIME
        if not _QUESTION_MARKS.isdisjoint(caption):
            changed[at] -= min(QUESTION, scores[at] / 2)
    return changed.round(9)
