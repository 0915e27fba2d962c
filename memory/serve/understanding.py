"""What somebody means who types a question: a few patterns, no guessing.

``where is the red mug`` asks for ``last_seen``, ``what changed since yesterday`` for ``changed_since``, and
so on; words that are no question are searched for. Times and places at the end of any of them are taken off
first: ``... yesterday``, ``... between A and B``, ``... since A``, ``... within 5 m of 3, 4``,
``... in map yard``. The words of ``recall ask`` are understood too (``last-seen mug``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from memory.serve.when import PHRASE, Span, since_of, span_of

#: Metres around a point where nobody said how far.
NEARBY_M = 5.0
_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_AT = rf"\(?\s*(?P<x>{_NUMBER})\s*(?:,\s*|\s+)(?P<y>{_NUMBER})(?:\s*(?:,\s*|\s+)(?P<z>{_NUMBER}))?\s*\)?"
_RADIUS = r"(?P<radius>\d+(?:\.\d+)?)\s*(?:m|metres?|meters?)"
_NAMED = re.compile(r"\?P<\w+>")
_TIME = _NAMED.sub("?:", PHRASE)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_SINCE = _pattern(rf"^(?P<rest>.*?)\s*\bsince (?P<when>{_TIME})$")
_BETWEEN = _pattern(
    rf"^(?P<rest>.*?)\s*\b(?:between|from) (?P<first>{_TIME}) (?:and|to|until) (?P<last>{_TIME})$"
)
_DURING = _pattern(rf"^(?P<rest>.*?)\s*\b(?:(?:on|in|during|within|of|from) )?(?P<when>{_TIME})$")
_PLACE = _pattern(
    rf"^(?P<rest>.*?)\s*\b(?:within {_RADIUS} (?:of|around|from)|near|around|close to|at|by) {_AT}"
    rf"(?: within {_RADIUS.replace('radius', 'radius2')})?$"
)
_MAP = _pattern(r"^(?P<rest>.+?)\s+(?:in|on) (?:the )?map (?P<map>\S+)$")
_POLITE = _pattern(
    r"^(?:(?:hey|hi|hello|ok|okay|please|robot|and|so|well)[, ]+|(?:can|could|would) you (?:please )?"
    r"(?=tell|show|find|go|drive|take|bring|summari)|(?:please )?(?:tell|show) me(?: about)? |do you know )+"
)
_ARTICLE = _pattern(r"^(?:the|a|an|my|your|our|any|some|this|that|these|those)\s+(?=\S)")
_ID = _pattern(r"^(?:memory |#|id )?(?P<id>\d{1,18})$")

_SEE = r"(?:see|seen|saw|notice|noticed|find|found|meet|met|spot|spotted|leave|left|put|encounter)"
_WHO = r"(?:you|we|i|the robot)"
#: The first that fits decides; ``what`` is what is asked about.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (question, _pattern(f"^(?:{text})$"))
    for question, text in (
        ("first_seen", rf"when did {_WHO} first {_SEE} (?P<what>.+)"),
        ("first_seen", rf"(?:when|where) (?:was|were) (?P<what>.+?) first {_SEE}"),
        ("first_seen", r"when did (?P<what>.+?) (?:first )?(?:appear|arrive|come)"),
        ("first_seen", r"(?:since when|how long) (?:is|are|has|have) (?P<what>.+?)(?: been)? (?:there|here)"),
        ("first_seen", r"first[ _-]seen (?P<what>.+)"),
        ("still_there", r"(?:is|are) (?P<what>.+?) still (?:there|here|around|present|in place)"),
        ("still_there", r"(?:is|are) (?P<what>.+?) (?:there|here|gone|missing)(?: now)?"),
        ("still_there", r"(?:is|are) there still (?P<what>.+)"),
        ("still_there", r"(?:has|have) (?P<what>.+?) (?:moved|gone|left|disappeared|vanished)"),
        ("still_there", r"still[ _-]there (?P<what>.+)"),
        ("how_often", rf"how (?:often|many times) (?:did|do|have|has) {_WHO} {_SEE} (?P<what>.+)"),
        ("how_often", rf"how (?:often|many times) (?:was|were|is|are|has|have) (?P<what>.+?)(?: been)?"
                      rf" {_SEE}"),
        ("how_often", rf"how many (?P<what>.+?) (?:are there|were there|did {_WHO} {_SEE})"),
        ("how_often", r"how[ _-]often (?P<what>.+)"),
        ("last_seen", rf"(?:where|when)(?: and (?:where|when))? did {_WHO} (?:last )?{_SEE} (?P<what>.+?)"
                      r"(?: last| the last time)?"),
        ("last_seen", rf"(?:where|when)(?: and (?:where|when))? (?:was|were) (?P<what>.+?) (?:last )?{_SEE}"
                      r"(?: last)?"),
        ("last_seen", r"where(?:'s| is| are| was| were| have you put) (?P<what>.+?)(?: now| right now)?"),
        ("last_seen", rf"have {_WHO} (?:ever )?{_SEE} (?P<what>.+)"),
        ("last_seen", r"where (?P<what>.+?) (?:is|was|are|were)"),
        ("last_seen", r"(?:last[ _-]seen|find|locate|look for|where) (?P<what>.+)"),
        ("changed_since", r"what(?:'s| is| has| have)? (?:changed?|new|different|moved|gone|missing|appeared"
                          r"|disappeared)|changed?(?:[ _-]since)?|what changes(?: are there)?|changes"),
        ("summarise", r"summari[sz]e(?: everything| all| (?:the|this) (?:place|map|area))?|(?:a )?summary"
                      r"|overview|what do you (?:know|remember)"),
        ("between", rf"what (?:happened|was there|was seen|did {_WHO} {_SEE}|have {_WHO} {_SEE})"
                    r"|what do you remember|what happened here|between"),
        ("near", r"what(?:'s| is| are| was)? (?:near|around|close to|next to|by|beside) (?P<what>.+)"),
        ("near", r"near(?:by)?(?: (?P<what>.+))?|what(?:'s| is| are| was| were)?(?: there)?"),
        ("pose_to", r"(?:go|drive|navigate|take me|bring me|guide me|lead me)[ _-]to (?P<what>.+)"),
        ("pose_to", r"how (?:do|can) i get to (?P<what>.+)|how to get to (?P<what2>.+)"),
        ("similar_situations", r"(?:(?:what|anything|situations?|find|show)(?: is| are)? )?"
                               r"(?:similar(?: situations?)?(?: to)?|like)"
                               r" (?P<what>(?:memory |#|id )?\d{1,18})"),
    )
)  # fmt: skip


@dataclass
class Understood:
    """A question in parts; what was not said is ``None``.

    Attributes:
        question: which; ``"search"`` for words that are none.
        what: label or words, the id of a memory, or a vector where it was not typed.
        near: x, y (and z) in metres.
        radius_m: around it.
        between: first and last nanosecond.
        since: nanoseconds.
        map_id: of the map.
    """

    question: str
    what: Any = None
    near: tuple[float, ...] | None = None
    radius_m: float | None = None
    between: Span | None = None
    since: int | None = None
    map_id: str | None = None

    def given(self) -> dict[str, Any]:
        """The parts that were said."""
        return {name: value for name, value in vars(self).items() if value is not None}


def understand(text: str, now_ns: int) -> Understood:
    """What is asked.

    Args:
        text: as typed.
        now_ns: that words such as yesterday count from.

    Raises:
        ValueError: there is nothing in it, or a time does not exist.
    """
    words = " ".join(text.replace("’", "'").split()).rstrip("?!. ")
    words = _POLITE.sub("", words)
    if not any(character.isalnum() for character in words):
        raise ValueError("text: there is no question in it")
    found = Understood("search")
    words = _take_ends(words, found, now_ns)
    for question, pattern in _PATTERNS:
        match = pattern.match(words)
        if match is None:
            continue
        named = match.groupdict()
        found.question = question
        found.what = _thing(named.get("what") or named.get("what2") or "")
        return _completed(found, now_ns)
    found.what = _thing(words)
    if found.what is None:
        # Only a time or a place was said.
        found.question = "near" if found.near is not None and found.between is None else "between"
    return _completed(found, now_ns)


def _take_ends(words: str, found: Understood, now_ns: int) -> str:
    """Take times, places and maps off the end, in any order."""
    while True:
        if found.map_id is None and (match := _MAP.match(words)):
            found.map_id = match["map"]
        elif found.near is None and (match := _PLACE.match(words)):
            numbers = (match["x"], match["y"], match["z"])
            found.near = tuple(float(number) for number in numbers if number is not None)
            found.radius_m = float(match["radius"] or match["radius2"] or NEARBY_M)
        elif found.since is None and found.between is None and (match := _SINCE.match(words)):
            found.since = since_of(match["when"], now_ns)
        elif found.since is None and found.between is None and (match := _BETWEEN.match(words)):
            first, last = span_of(match["first"], now_ns).first, span_of(match["last"], now_ns).last
            if first > last:
                raise ValueError(f"text: {match['first']} is after {match['last']}")
            found.between = Span(first, last)
        elif found.since is None and found.between is None and (match := _DURING.match(words)):
            found.between = span_of(match["when"], now_ns)
        else:
            return words
        words = match["rest"].strip().rstrip(",")


def _thing(words: str) -> str | int | None:
    words = words.strip().strip("\"'")
    match = _ID.match(words)
    if match:
        return int(match["id"])
    while (shorter := _ARTICLE.sub("", words)) != words:
        words = shorter
    return words or None


def _completed(found: Understood, now_ns: int) -> Understood:
    """What follows from what was said."""
    if found.question == "changed_since" and found.since is None:
        found.since = found.between.first if found.between else now_ns - 86_400 * 10**9
        found.between = None
    if found.question == "between" and found.between is None:
        found.between = Span(found.since if found.since is not None else now_ns - 86_400 * 10**9, 2**63 - 1)
        found.since = None
    if found.question == "near" and found.near is None and found.what is None:
        found.question = "summarise"
    if found.question == "summarise" and found.between is not None:
        found.question = "between"
    if found.question == "last_seen" and (found.between or found.since is not None):
        # Where it was at a time is no question about the last time.
        found.question = "search"
    return found
