"""Questions about rooms: which have an object, which is the largest, and whether two objects share one."""

from __future__ import annotations

import re
from collections.abc import Callable

from memory.questions.boxes import Order
from memory.questions.reading.arguments import pattern, time_in
from memory.questions.reading.comparing import Comparing
from memory.questions.reading.lexicon import NUMBERS
from memory.questions.reading.parsed import Bound, CountBound, ParsedQuestion

_ROOM = r"(?:rooms?|areas?|zones?)"
_ROOMS = r"(?:rooms|areas|zones)"
_HAVE = r"(?:have got|has got|has|have|contains?|holds?|houses?|includes?|with)"
_WITHOUT = (
    r"(?:without|lacks?|lacking|(?:is|are) (?:without|lacking)|(?:do|does|did) ?n[o']t (?:have|contain|hold))"
)
_COUNT = rf"(?:\d+|a|an|one|{'|'.join(NUMBERS)})"
_QUANTITY = (
    rf"(?P<quantity>no|any|some|at least {_COUNT}|at most {_COUNT}|more than {_COUNT}|fewer than {_COUNT}"
    rf"|less than {_COUNT}|exactly {_COUNT}|only {_COUNT}|{_COUNT})?"
)
_WHAT = (
    r"(?P<what>(?!(?:the )?(?:most|fewest|least|more|\w+est)\b|(?:you|i|we|been|seen|visited)\b)\w.*?)"
    r"(?: in (?:it|them|there))?(?: at all)?"
)
_THERE = r"(?: currently| now| still)?"
_VERB = rf"(?:(?P<without>{_WITHOUT})|{_HAVE}) {_QUANTITY} ?{_WHAT}$"
_START = (
    r"^(?:in |list |name |show |show me |tell me )?(?:all |all of )?"
    r"(?:(?:which|what|the|every) )?(?:of the )?"
)
_LIST = pattern(rf"{_START}{_ROOMS} (?:(?:that|which) )?{_THERE}{_VERB}")
#: *Which room has no chair*: a number or negation, because *which room has a chair* asks where the chair is.
_ONE = pattern(
    rf"^(?:in )?(?:which|what) (?:room|area|zone) (?:(?P<without>{_WITHOUT}) (?:a|an|any)?"
    rf"|{_HAVE} (?P<quantity>no|at least {_COUNT}|more than {_COUNT}|exactly {_COUNT})) ?{_WHAT}$"
)
_IN_WHICH = pattern(rf"^in (?:which|what) {_ROOM} (?:is|are) there {_QUANTITY} ?{_WHAT}$")
_HOW_MANY = pattern(rf"^how many (?:of the )?{_ROOMS} (?:(?:that|which) )?{_THERE}{_VERB}")
_EVERY = pattern(
    rf"^(?:does|do) (?P<all>every|each|all|all of the|all the|any|some)(?: (?:single|of the))? {_ROOM} "
    rf"(?:(?P<without>lack)|have|contain|hold) {_QUANTITY} ?{_WHAT}$"
)
_IN_EVERY = pattern(
    rf"^(?:is|are) there {_QUANTITY} ?{_WHAT} in (?P<all>every|each|all|all of the|all the)(?: "
    rf"single)? {_ROOM}$"
)
_ANY = pattern(rf"^(?:is|are) there (?P<all>a|any|some) {_ROOM} (?:(?:that|which) )?{_VERB}")
_SAME = pattern(
    r"^(?:is|are) (?P<first>.+?),? (?:and|or) (?P<second>.+?)(?: both| all)?(?: located| standing| kept| "
    r"stored)?"
    rf" in (?:the |one and the )?(?P<kind>same|different) {_ROOM}$"
)
_SHARE = pattern(rf"^do (?P<first>.+?) and (?P<second>.+?) share (?:the same |a |one )(?P<kind>){_ROOM}$")
_ORDERS: dict[str, Order] = {
    "biggest": "more",
    "largest": "more",
    "smallest": "less",
    "tiniest": "less",
    "greatest": "more",
}
_WORDS = "|".join(_ORDERS)
_LARGEST = (
    pattern(rf"^(?:what|which)(?: one)?(?: is)?(?: the)? (?P<word>{_WORDS}) {_ROOM}$"),
    pattern(rf"^(?:what|which|tell me which|name the) {_ROOM} is (?:the )?(?P<word>{_WORDS})(?: one)?$"),
    pattern(
        rf"^(?:what|which) {_ROOM} (?:has|covers) the (?P<word>{_WORDS}) (?:floor )?(?:area|space|size)$"
    ),
)
_IS_LARGEST = pattern(rf"^is the (?P<what>.+?) the (?P<word>{_WORDS}) {_ROOM}(?: here| of all| there is)?$")
_NEITHER = pattern(rf"^(?:which|what) {_ROOM} (?:has|have|contains?) (?:neither|both|either) ")
_ALL_ROOMS = pattern(
    rf"^(?:how many {_ROOMS} (?:are there|do you know|are known|does the \w+ have|do (?:we|you|i) have)"
    rf"|(?:which|what) {_ROOMS} (?:are there|do you know(?: of)?|are known|exist)"
    rf"|(?:which|what|how many) {_ROOMS}"
    rf"|(?:list|name|show|show me) (?:all )?(?:the |your )?{_ROOMS}(?: you know)?)$"
)
_KINDS = pattern(
    r"^(?P<ask>how many|what|which)(?: all)? (?:(?:different|distinct|various) )?(?:kinds?|types?|sorts?) of "
    r"(?P<what>\w+)(?P<rest> .+)?$"
)
_KINDS_VERB = pattern(r"^ (?:are|is|do|can|did|were|have)\b")
_ARE_THERE = pattern(
    r"^(?:(?:is|are|were|was) (?:there|they)|(?:do|did) (?:we|you|i|they) (?:have|own|see)|have (?:we|you"
    r"|i)(?: got| seen)?)"
    r"(?: still| only| now)* (?:(?P<quantity>at least|at most|more than|fewer than|less than|exactly) )?"
    rf"(?P<number>\d+|one|{'|'.join(NUMBERS)}) (?!of\b)\w"
)
_ARTICLE = pattern(r"^(?:both )?(?:the|my|our|your|his|her|their|a|an) ")
_BOUNDS: dict[str, Bound] = {
    "at least": "at least",
    "at most": "at most",
    "more than": "more",
    "fewer than": "less",
    "less than": "less",
    "exactly": "exactly",
    "only": "exactly",
}


#: Rooms with an object; those with a group ``all`` ask whether every room or any has it.
_FORMS = (_LIST, _ONE, _IN_WHICH, _HOW_MANY, _EVERY, _IN_EVERY, _ANY)


def rooms_question(words: str) -> ParsedQuestion | None:
    """Return a question about rooms; ``None`` for another one, or for one about a time."""
    if time_in(words) is not None:
        return None
    if _NEITHER.match(words):
        return ParsedQuestion("search", what=words, typed=words, problem=_SEVERAL)
    if _ALL_ROOMS.match(words):
        return ParsedQuestion("rooms", bound=CountBound("at least", 0))
    if found := _IS_LARGEST.match(words):
        order = _ORDERS[found["word"].lower()]
        comparing = Comparing("area", order, (found["what"],), yes_no=True)
        return ParsedQuestion("compare", comparing=comparing)
    for largest in _LARGEST:
        if found := largest.match(words):
            return ParsedQuestion("compare", comparing=Comparing("area", _ORDERS[found["word"].lower()], ()))
    if found := _SAME.match(words) or _SHARE.match(words):
        names = tuple(_ARTICLE.sub("", found[part]).strip() for part in ("first", "second"))
        different = found["kind"].lower() == "different"
        return ParsedQuestion(
            "same_room", comparing=Comparing("count", "more" if different else "same", names)
        )
    for form in _FORMS:
        if found := form.match(words):
            return _with_object(found)
    return None


def count_bound(words: str) -> CountBound | None:
    """Return the number of *are there at least two mugs*, whose answer is yes or no; ``None`` for others."""
    found = _ARE_THERE.match(words)
    if found is None:
        return None
    quantity = (found["quantity"] or "at least").lower()
    return CountBound(_BOUNDS[quantity], _number(found["number"].lower()))


def kinds_question(words: str, read: Callable[[str], ParsedQuestion]) -> ParsedQuestion | None:
    """Return *how many kinds of objects are in the kitchen* as a count of labels; ``None`` for others."""
    found = _KINDS.match(words)
    if found is None:
        return None
    rest = found["rest"] or ""
    if found["ask"].lower() != "how many" and not _KINDS_VERB.match(rest):
        return None
    counted = read(f"how many {found['what']}{rest}")
    if counted.question != "how_many" or counted.problem is not None:
        return None
    counted.distinct = True
    return counted


def _with_object(found: re.Match[str]) -> ParsedQuestion:
    """Return the question for the rooms that have so many objects."""
    parts = found.groupdict()
    quantity = (parts["quantity"] or "").lower()
    without = bool(parts.get("without"))
    bound: Bound = "at least"
    number = 1
    words = quantity.rsplit(" ", 1)
    if quantity == "no" or (without and quantity in ("", "any", "a", "an")):
        bound, number = "exactly", 0
    elif len(words) == 2:
        bound, number = _BOUNDS[words[0]], _number(words[1])
    elif quantity not in ("", "any", "some"):
        number = _number(quantity)
    if without and quantity not in ("", "any", "a", "an"):
        return ParsedQuestion("search", what=found[0], typed=found[0], problem=_NEGATED)
    every = parts.get("all")
    quantifier = None if every is None else "any" if every.lower() in ("a", "any", "some") else "all"
    what = _ARTICLE.sub("", parts["what"]).strip()
    return ParsedQuestion("rooms", what=what, quantifier=quantifier, bound=CountBound(bound, number))  # type: ignore[arg-type]


_SEVERAL = "I check one kind of object per room. Ask for example: 'which rooms have no {thing}?'"
_NEGATED = "I can't negate a number of objects. Ask for example: 'which rooms have fewer than two {thing}s?'"


def _number(words: str) -> int:
    if words.isdecimal():
        return int(words)
    return NUMBERS.index(words) + 2 if words in NUMBERS else 1
