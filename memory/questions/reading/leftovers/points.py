"""Objects that a question names by their position: *the car at (3, 1)* is one memory.

Its id replaces the words, so that the question is not about the latest car within some metres of the point.
"""

from __future__ import annotations

import re

from memory.questions.reading.arguments import NUMBER, pattern, time_in
from memory.questions.reading.leftovers.asides import Aside
from memory.questions.reading.vocabulary import Vocabulary

#: A point in parentheses. Without them, numbers may be something else.
_POINT = rf"\(\s*{NUMBER}(?:\s*,\s*{NUMBER}){{1,2}}\s*\)"
_MAP = r"(?: (?:in|on) (?:the )?map (?P<map>[^\s,;?]+))?"
_THE = r"(?P<the>the|that|this|my|our|your)"
#: Words of an object: none of them begins another object or relates it to one.
_WORDS = (
    r"(?P<what>(?!(?:nearest|closest|farthest|furthest|last|first|next|other|only|two|three)\b)\w+(?: "
    r"(?!(?:the|a"
    r"|an|my|our|of|to|than|and|or|is|are|was|were|which|that|who|at|in|on|by|near|around)\b)\w+){0,2})"
)
_PLACED = (
    r"(?: (?:which|that|who) (?:is|was|stands|stood|stopped|ended up|used to (?:be|stand|sit|park)))?"
    r"(?: (?:parked|standing|located|seen|observed|waiting))?"
)
_AT = r"(?P<still> still)? (?:at|near|around|by|close to)(?: about| around)?"
_OBJECT = pattern(rf"\b{_THE} {_WORDS}{_PLACED}{_AT} (?P<point>{_POINT}){_MAP}")
#: *The cars at A and B*: the second point is that of another car.
_TWO = pattern(rf"\bthe (?P<what>\w+?)s (?P<at>at|near) (?P<first>{_POINT}) and (?:at )?(?P<second>{_POINT})")
#: *How far apart are the two cyclists*, of which there must be two.
_BOTH = pattern(r"\bhow far apart are the two (?P<what>[\w ]+?)(?=$|[?.])")
#: *The car at A or the one at B*.
_ONE_AT = pattern(
    r"\b(?P<the>the|that) one (?:across the (?:street|road) |(?:that|who) (?:is|was|stood|stopped|ended "
    r"up) )?"
    r"(?P<at>at|near) (?=\()"
)
#: The question *is the car at A*, in which A is no name of the car.
_ASKS_PLACE = pattern(r"^(?:is|are|was|were) $")


def with_objects_at_points(words: str, store: Vocabulary) -> Aside | None:
    """Return a question with the ids of objects in place of their names and positions."""
    text = _TWO.sub(r"the \g<what> \g<at> \g<first> and the \g<what> \g<at> \g<second>", words)
    remarks: list[str] = []
    last = None
    at = 0
    while True:
        found, one = _OBJECT.search(text, at), _ONE_AT.search(text, at)
        if one is not None and last is not None and (found is None or one.start() <= found.start()):
            text = f"{text[: one.start()]}{one['the']} {last} {one['at']} {text[one.end() :]}"
            continue
        if found is None:
            break
        last, at = found["what"], found.end()
        rest = text[found.end() :].strip(" ?.!")
        if _ASKS_PLACE.match(text[: found.start()]) and not found["still"] and _is_time(rest):
            continue
        x, y = map(float, re.findall(NUMBER, found["point"])[:2])
        names = found["what"].split()
        ends = (" ".join(names[start:]) for start in range(len(names)))  # The parked car is a car.
        memory = next(filter(None, (store.object_at(end, (x, y), found["map"]) for end in ends)), None)
        if memory is None:
            continue
        said = found[0]
        by = f"#{memory.id}{' still there' if found['still'] else ''}"
        text = f"{text[: found.start()]}{by}{text[found.end() :]}"
        at = found.start() + len(by)
        remarks.append(f"'{said}' is memory {memory.id}.")
    return Aside(text, " ".join(remarks)) if remarks else None


def with_both_objects(words: str, store: Vocabulary) -> Aside | None:
    """Return *how far apart are the two cyclists* with the ids of both."""
    found = _BOTH.search(words)
    pair = store.objects(found["what"]) if found is not None else ()
    if found is None or len(pair) != 2:
        return None
    first, second = (each.id for each in pair)
    text = f"{words[: found.start()]}how far apart are #{first} and #{second}{words[found.end() :]}"
    return Aside(text, f"'the two {found['what']}' are memories {first} and {second}.")


def points_in(*texts: str) -> list[str]:
    """Return the points of texts, as typed."""
    return [point for text in texts for point in re.findall(_POINT, text)]


def _is_time(words: str) -> bool:
    """Return True if words are empty, or no more than a time."""
    time = time_in(words) if words else ""
    return time is not None and not re.sub(re.escape(time), "", words).strip(" ,?")
