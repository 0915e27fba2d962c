"""Parser of questions in English, based on patterns.

``where is the red mug`` becomes ``last_seen``, ``what changed since yesterday`` becomes ``changed_since``;
words that match no pattern become a search. Times, places and maps are removed from the end first, in any
order: ``... yesterday``, ``... between A and B``, ``... since A``, ``... within 5 m of 3, 4``,
``... near the door``, ``... in map yard``. Named questions of ``recall ask`` work too (``last-seen mug``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memory.questions.limits import QuestionError, refuse_own_place
from memory.questions.phrases import PATTERNS, WITH_PLACE, WITHOUT_PLACE, pattern
from memory.questions.times import PHRASE, Span, is_clock, since_of, span_of
from memory.wording import fold, nearest
from memory.wording.stems import says_something

#: Default radius around a point, in metres.
NEARBY_M = 5.0
#: Maximum characters of a question.
MOST_CHARACTERS = 500
_EARLIEST, _LATEST = -(2**63), 2**63 - 1
_DAY = 86_400 * 10**9
_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_POINT = rf"\(?\s*(?P<x>{_NUMBER})\s*(?:,\s*|\s+)(?P<y>{_NUMBER})(?:\s*(?:,\s*|\s+)(?P<z>{_NUMBER}))?\s*\)?"
_RADIUS = r"(?P<radius>\d+(?:\.\d+)?) ?(?:m|metres?|meters?)"
_WITHIN = rf"(?:(?:with)?in|less than|at most|closer than) {_RADIUS} (?:of|around|from|to)"
_TIME = pattern(r"\?P<\w+>").sub("?:", PHRASE)

_SINCE = pattern(rf"^(?P<rest>.*?)\s*\b(?:since|after|starting|from) (?P<when>{_TIME})(?: on(?:wards)?)?$")
_BEFORE = pattern(rf"^(?P<rest>.*?)\s*\b(?:before|until|till|up to) (?P<when>{_TIME})$")
_BETWEEN = pattern(
    rf"^(?P<rest>.*?)\s*\b(?:between|from) (?P<first>{_TIME}) (?:and|to|until|till) (?P<last>{_TIME})$"
)
_DURING = pattern(
    rf"^(?P<rest>.*?)\s*\b(?:(?:on|in|during|within|of|from|at|over|for)(?: the)? )?(?P<when>{_TIME})$"
)
_TIME_FIRST = pattern(
    rf"^(?P<when>(?:(?:since|on|in|during|within|before|after) )?(?:{_TIME})),? "
    r"(?=(?:what|where|when|how|who|which|did|is|are|was|were|has|have|show|list|anything)\b)(?P<rest>.+)$"
)
_PLACE = pattern(
    rf"^(?P<rest>.*?)\s*\b(?:{_WITHIN}|near|nearby|around|close to|next to|beside|at|by|in|on) {_POINT}"
    rf"(?: within {_RADIUS.replace('radius', 'radius2')})?(?P<more> .*)?$"
)
_BESIDE = pattern(
    rf"^(?P<rest>.+?) (?:{_WITHIN}|near|close to|next to|beside|around|nearby)"
    r" (?P<thing>\D.*|memory \d+|#\d+)$"
)
#: Only for questions, because "mug in the kitchen" may be words of a caption.
_INSIDE = pattern(
    r"^(?P<rest>(?:what|how many|is|are|which|show|list|did|have|anything)\b.*?)"
    r" (?:in|inside|at|on) (?:the|my|our|your) (?P<thing>.+)$"
)
_MAP = pattern(r"^(?P<rest>.+?)\s+(?:(?:in|on|of) (?:the )?)?map (?P<map>\S+)$")
_POLITE = pattern(
    r"^(?:(?:hey|hi|hello|ok|okay|please|robot|and|so|well|now|then|but)[, ]+"
    r"|(?:can|could|would|will) you (?:please |maybe )?"
    r"(?=tell|show|find|go|drive|take|bring|summari|list|give|count|describe)"
    r"|(?:please )?tell me(?: about(?= (?:the|a|an|my|what|where)\b))? (?=\S)|do you (?:know|remember) "
    r"(?=where|when|what|how|if|whether)|i(?: would|'d)? (?:want|like|need) to (?:know|see|find) "
    r"|i(?:'m| am) looking for |i (?:can't|cannot) find |if |whether (?=there|the|any)|by any chance )+"
)
_PLEASE = pattern(
    r"(?<!\bsince)(?<!\buntil)(?<!\btill)(?<!\band)(?<!\bto)[, ]+"
    r"(?:please|exactly|thanks|thank you|robot|again|so far|at all|in total|altogether"
    r"|right now|now|currently|at the moment)$"
)
_ARTICLE = pattern(
    r"^(?:the|teh|a|an|my|your|our|his|her|their|any|some|this|that|these|those|all|every|each|of|other|last"
    r"|latest|newest|most recent|different|distinct)\s+(?=\S)"
)
#: Questions for the nearest object; ``where`` is a point or an object.
_NEAREST = pattern(
    r"^(?:(?:where|what|which|who)(?:'s| is| are) |(?:show|find|list|give)(?: me)? )?(?:the )?"
    r"(?:nearest|closest) (?P<what>.+?)(?: (?:to|from) (?P<where>.+))?$"
)
_WHICH_NEAREST = pattern(
    r"^(?:which|what) (?P<what>.+?) (?:is|are) (?:the )?(?:nearest|closest)(?: (?:to|from) (?P<where>.+))?$"
)
_WHERE_NEAREST = pattern(
    r"^(?:(?:where(?:'s| is| are)|show(?: me)?|find|list) )?(?:the )?(?P<what>.+?)"
    r"(?: (?:that|which) (?:is|are))? (?:the )?(?:nearest|closest) to (?P<where>.+)$"
)
_ONLY_POINT = pattern(rf"^{_POINT}$")
#: Final punctuation in several scripts, and marks of the writing direction.
_ENDS, _DIRECTION = "?!.,¿？！。؟، ", pattern("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
#: First words of questions and how often each is typical; misspelled ones are corrected.
_FIRST_WORDS = {"where": 2, "when": 1, "what": 1, "which": 1, "show": 1}
_ID = pattern(r"^(?:the )?(?:memory |#|id |memory #)?(?P<id>\d{1,18})$")
_ANYTHING = pattern(
    r"^(?:memories|memory|things?|objects?|anything|something|everything|stuff|observations?)$"
)
#: Words after "near" that name no object.
_NO_THING = ("here", "there", "me", "you", "it", "past", "memory")


@dataclass
class ParsedQuestion:
    """A question in parts; missing parts are ``None``.

    Attributes:
        question: name of the question; ``"search"`` for words that match no pattern.
        what: label, words, the id of a memory or a vector.
        near: x, y (and z) in metres.
        beside: label, words or id of a memory, whose place is used instead of a point.
        radius_m: radius around the place.
        between: first and last nanosecond.
        since: start time in nanoseconds.
        map_id: id of the map.
        typed: the words, if they match no pattern.
    """

    question: str
    what: Any = None
    near: tuple[float, ...] | None = None
    beside: str | int | None = None
    radius_m: float | None = None
    between: Span | None = None
    since: int | None = None
    map_id: str | None = None
    typed: str | None = None

    def given(self) -> dict[str, Any]:
        """Return the parts that are not ``None``."""
        return {name: value for name, value in vars(self).items() if value is not None and name != "typed"}


def understand(text: str, now_ns: int) -> ParsedQuestion:
    """Parse a question.

    Args:
        text: as typed.
        now_ns: time that words such as yesterday refer to, in nanoseconds.

    Raises:
        ValueError: the text is empty or too long, or names a time that does not exist.
    """
    if len(text) > MOST_CHARACTERS:
        raise QuestionError(
            "text", f"a question may have {MOST_CHARACTERS} characters, got {len(text)}. Shorten it"
        )
    words = " ".join(_DIRECTION.sub("", text).replace("’", "'").split()).rstrip(_ENDS)
    words = _PLEASE.sub("", _POLITE.sub("", words)).rstrip(_ENDS)
    if not says_something(words):
        raise QuestionError("text", "the question is empty. Ask for example: 'where is the car?'")
    refuse_own_place(words)
    found = ParsedQuestion("search")
    nearest_of = _NEAREST.match(words) or _WHICH_NEAREST.match(words) or _WHERE_NEAREST.match(words)
    if nearest_of is not None:
        return _nearest(nearest_of)
    first = _TIME_FIRST.match(words)
    if first is not None:
        words = f"{first['rest']} {first['when']}"
    words = _PLEASE.sub("", _take_ends(words, found, now_ns))
    placed = found.near is not None or found.beside is not None
    for spelt in _spellings(words):
        for question, way in (*PATTERNS, *(WITH_PLACE if placed else WITHOUT_PLACE)):
            match = way.match(spelt)
            if match is not None:
                named = match.groupdict()
                found.question = question
                found.what = _thing(named.get("what") or named.get("what2") or "")
                _refuse_point(found)
                return _completed(found, now_ns)
    found.what, found.typed = _thing(words), words
    if found.what is None:
        # Only a time or a place was given.
        timed = found.between is not None or found.since is not None
        found.question = "between" if timed or not placed else "near"
        found.typed = None
    return _completed(found, now_ns)


def _refuse_point(found: ParsedQuestion) -> None:
    """Raise ``QuestionError`` for a point in place of an object."""
    if isinstance(found.what, str) and _ONLY_POINT.match(found.what):
        raise QuestionError(
            "text", f"{found.what} is a point, not an object. Ask for example: 'what is near {found.what}?'"
        )


def _spellings(words: str) -> list[str]:
    """Return the words, and a version with the first word corrected."""
    first, _, rest = words.partition(" ")
    better = None if fold(first) in _FIRST_WORDS else nearest(fold(first), _FIRST_WORDS)
    return [words] if better is None else [words, f"{better} {rest}"]


def _nearest(match: Any) -> ParsedQuestion:
    """Return a search in order of distance."""
    found = ParsedQuestion("search", what=_thing(match["what"]))
    where = match["where"] or ""
    point = _ONLY_POINT.match(where)
    if point is not None:
        numbers = (point["x"], point["y"], point["z"])
        found.near = tuple(float(number) for number in numbers if number is not None)
    else:
        found.beside = _thing(where)
    if found.near is None and (found.beside is None or str(found.beside).lower() in _NO_THING):
        what = found.what if isinstance(found.what, str) else "car"
        raise QuestionError(
            "text",
            "'nearest' needs a point or an object to measure from. Ask for example:"
            f" 'where is the nearest {what} to (3, 1)?'",
        )
    return found


def _take_ends(words: str, found: ParsedQuestion, now_ns: int) -> str:
    """Remove times, places and maps from the end of the words, in any order."""
    while True:
        timed = found.since is not None or found.between is not None
        placed = found.near is not None or found.beside is not None
        if found.map_id is None and (match := _MAP.match(words)):
            found.map_id = match["map"]
        elif not timed and (match := _BETWEEN.match(words)):
            found.between = _between(match["first"], match["last"], now_ns)
        elif not timed and (match := _SINCE.match(words)):
            found.since = since_of(match["when"], now_ns)
        elif not timed and (match := _BEFORE.match(words)):
            found.between = Span(_EARLIEST, span_of(match["when"], now_ns).first)
        elif not timed and (match := _DURING.match(words)) and not _is_number(match):
            found.between = span_of(match["when"], now_ns)
        elif not placed and (match := _PLACE.match(words)):
            numbers = (match["x"], match["y"], match["z"])
            found.near = tuple(float(number) for number in numbers if number is not None)
            found.radius_m = float(match["radius"] or match["radius2"] or NEARBY_M)
            words = f"{match['rest']}{match['more'] or ''}".strip().rstrip(",")
            continue
        elif not placed and (match := _BESIDE.match(words) or _INSIDE.match(words)) and _names_object(match):
            found.beside = _thing(match["thing"])
            radius = match.groupdict().get("radius")
            found.radius_m = float(radius) if radius else NEARBY_M
        else:
            return words
        words = match["rest"].strip().rstrip(",")


def _between(first_words: str, last_words: str, now_ns: int) -> Span:
    first, last = span_of(first_words, now_ns).first, span_of(last_words, now_ns).last
    if is_clock(first_words) and is_clock(last_words):
        # The end is the first such clock time after the start, even in the future.
        last = span_of(last_words, first + _DAY - 1).last
    elif first > last and is_clock(first_words):
        first = span_of(first_words, last).first  # As in "between 9:00 and 10:00 yesterday".
    if first > last:
        raise QuestionError("text", f"'{first_words}' is after '{last_words}'. Swap the two times")
    return Span(first, last)


def _names_object(match: Any) -> bool:
    """True if a place phrase names an object, unlike "near here"."""
    thing = _thing(match["thing"])
    return thing is not None and str(thing).lower() not in _NO_THING


def _is_number(match: Any) -> bool:
    """True if a number is an id, as in "memory 1234567890", and not nanoseconds."""
    ends = ("memory", "#", "id", "like", "to")
    return bool(match["when"].isdecimal() and match["rest"].lower().endswith(ends))


def _thing(words: str) -> str | int | None:
    words = words.strip().strip("\"'").strip()
    match = _ID.match(words)
    if match:
        return int(match["id"])
    while (shorter := _ARTICLE.sub("", words)) != words:
        words = shorter
    return words or None


def _completed(found: ParsedQuestion, now_ns: int) -> ParsedQuestion:
    """Fill in the parts that follow from the others."""
    if found.question == "near" and str(found.what).lower() in _NO_THING:
        found.what = None
    if isinstance(found.what, str) and _ANYTHING.match(found.what):
        found.what = None
        if found.question in ("last_seen", "how_often", "search"):
            found.question = "between" if found.between or found.since is not None else "summarise"
    if found.question == "summarise" and found.what is not None and not found.beside:
        found.what, found.beside = None, found.what
    if found.question == "changed_since" and found.since is None:
        found.since = found.between.first if found.between else now_ns - _DAY
        found.between = None
    if found.question == "near" and found.near is None and found.what is None and found.beside is None:
        found.question = "between" if found.between or found.since is not None else "summarise"
    if found.question == "near" and found.what is None and found.beside is not None:
        found.what, found.beside = found.beside, None
    placed = found.near is not None or found.beside is not None
    if found.question == "between" and found.between is None:
        if found.since is None and placed:
            found.question = "near"
        else:
            found.between = Span(found.since if found.since is not None else now_ns - _DAY, _LATEST)
            found.since = None
    if found.question == "near" and found.what is None and found.beside is not None:
        found.what, found.beside = found.beside, None
    if found.question == "summarise" and found.between is not None:
        found.question = "between"
    if found.question in ("last_seen", "still_there") and (found.between or found.since is not None):
        # A question about a time range is not about the last observation.
        found.question = "search"
    return found
