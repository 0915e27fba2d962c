"""Days by their number: *the second day* is the second one on which something was observed."""

from __future__ import annotations

import re

from memory.questions.reading.arguments import pattern
from memory.questions.reading.leftovers.asides import Aside
from memory.questions.reading.vocabulary import Vocabulary

_PLACES = {"first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "last": -1, "1": 0, "2": 1, "3": 2}
_DAY = pattern(
    r"\b(?:the (?P<which>first|second|third|fourth|fifth|last) day|day (?P<number>[123]))\b"
    r"(?! (?:of|in|ago)\b)"
)


def with_dates_of_days(words: str, store: Vocabulary) -> Aside | None:
    """Return a question with dates in place of *the second day* and *day 2*."""
    if _DAY.search(words) is None:
        return None
    days = store.days()
    remarks: list[str] = []

    def dated(found: re.Match[str]) -> str:
        place = _PLACES[(found["which"] or found["number"]).lower()]
        if not -1 <= place < len(days) or not days:
            return found[0]
        remarks.append(f"'{found[0]}' is {days[place]}.")
        return days[place]

    text = _DAY.sub(dated, words)
    return Aside(text, " ".join(remarks)) if remarks else None
