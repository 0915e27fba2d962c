"""Conditions on the objects of a list: negations, exceptions, bounds of measures, and quantifiers.

The words without the conditions are a question for a list, as those without a superlative are. Each condition
is such a question too, or a bound: *which chairs are not in the kitchen* is *which chairs* without those of
*what is in the kitchen*. So every place, relation and time that limits a list can be a condition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from memory.questions.answers import between_words
from memory.questions.reading.arguments import LATEST
from memory.questions.reading.grammar import PREPOSITIONS, Chunk, chunks_of
from memory.questions.reading.parsed import ObjectCondition, ParsedQuestion, Quantifier
from memory.questions.reading.selections.bounds import PRESENT, amount_of, bound_at
from memory.questions.reading.selections.conjunctions import Understand, joined_chunks_of, one_by_one
from memory.questions.reading.times import Span, since_of, span_of, until_now
from memory.types import AWAY
from memory.wording.words import moment

#: Words before what a list does not include.
_EXCEPT = (
    "except", "except for", "besides", "other than", "apart from", "aside from", "excluding", "but",
    "without",
)  # fmt: skip
_NEGATIONS = ("not", "never", "but not")
_NO_MORE = ("anymore", "any more", "any longer")
_YES_NO = ("BE", "DO", "HAVE")
#: Classes that may join a condition to its list: *that are*, *which you have*, *and*.
_JOINING = frozenset({"AND", "BE", "DO", "FILLER", "HAVE", "MODAL", "PERSON", "STOP"})
_RELATIVE = ("that", "which", "who")
#: Classes within the place of a condition.
_IN_PLACES = frozenset({"ALL", "AND", "DET", "FILLER", "NOUN", "NOW", "OF", "STOP", "TO", *PREPOSITIONS})
#: Classes before the words of a condition.
_BEFORE = frozenset({"BE", "DO", "FILLER", "HAVE", "PERSON", "STAY", "STILL"})
_BOUNDS = frozenset({"CLOSER", "COMPARE", "QUANTITY"})
#: Classes that a condition begins with, but a place does not.
_CLAUSES = frozenset({"LEFT", "MOVE", "NOT", "SEE", "STILL", "THERE", *_BOUNDS})
_QUANTIFIERS: dict[str, Quantifier] = {"both": "both", "both of": "both", "any of the": "any", "none": "none"}
#: Classes of what objects do.
_DEEDS = frozenset({"APPEAR", "CHANGE", "HAPPEN", "LEFT", "MOVE"})
#: Verbs of these classes as participles.
_PARTICIPLES = {"move": "moved", "moves": "moved", "leave": "left", "change": "changed", "changes": "changed"}
#: Questions whose answer is a list, or the number of a list.
_LISTS = ("between", "how_many", "near", "related", "search", "select", "summarise")


class _Taken(NamedTuple):
    """Conditions, and the chunks of the question that they take, with words between that stay."""

    conditions: tuple[ObjectCondition, ...]
    start: int
    end: int
    rest: str = ""


def selection_of(
    words: str, now_ns: int, names: Collection[str], understand: Understand
) -> ParsedQuestion | None:
    """Return a question for the objects that meet conditions; ``None`` for another question.

    Args:
        words: the question.
        now_ns: the moment that *older than a week* counts from.
        names: labels of the store, which are names even if they hold function words.
        understand: reads the question without its conditions, and each condition.
    """
    chunks = [
        Chunk("NOT", "not") if chunk.text.lower() == "neither" else chunk
        for chunk in joined_chunks_of(words, names)
    ]
    if not chunks:
        return None
    return (
        _no_longer(chunks, understand)
        or _quantified(chunks, now_ns, understand)
        or _measured(chunks, now_ns, understand)
        or _limited(chunks, now_ns, understand)
    )


def as_list(found: ParsedQuestion, *conditions: ObjectCondition) -> ParsedQuestion | None:
    """Return a question as one for a list of objects that meet conditions; ``None`` if it has no list."""
    if found.problem is not None or found.nearest or found.unit is not None or found.quantifier is not None:
        return None
    if found.described or found.time_unit is not None:
        return None
    conditions = (*found.conditions, *conditions)
    if found.question == "ranked" and conditions:
        return replace(found, conditions=conditions)
    if found.question not in _LISTS and not (found.question == "last_seen" and found.many):
        return None
    if found.question == "near" and found.beside is None and found.near is None:
        found = replace(found, what=None, beside=found.what)
    # What was not seen, or did not move, is compared with everything that was known.
    timed = any(
        not _is_placed(one) and (one.states, one.between, one.since) != (None, None, None)
        for each in conditions
        for one in each.asked
    )
    past = found.past or timed
    states = None if timed and found.question == "near" else found.states
    return replace(
        found, question="select", conditions=conditions, past=past, states=states, typed=None, many=False
    )


def _no_longer(chunks: Sequence[Chunk], understand: Understand) -> ParsedQuestion | None:
    """Return *which chairs are no longer in the kitchen* as those of its chairs that left."""
    at = next((place for place, chunk in enumerate(chunks) if chunk.kind == "NOT"), len(chunks))
    if at == len(chunks):
        return None
    said, after = chunks[at].text.lower(), chunks[at + 1 :]
    no_more = said == "not" and any(chunk.text.lower() in _NO_MORE for chunk in after)
    not_there = said == "not" and [chunk.kind for chunk in after] == ["THERE"]
    rest = [chunk for chunk in after if chunk.text.lower() not in _NO_MORE]
    placed = bool(rest) and rest[0].kind in ("HERE", "THERE", *PREPOSITIONS)
    if not placed or not (no_more or not_there or said == "no longer"):
        return None
    start = [chunk for chunk in chunks[:at] if chunk.kind != "FILLER"]
    if start and start[0].kind in _YES_NO and not any(chunk.kind == "THERE" for chunk in start):
        place = rest[1:] if rest[0].kind in ("HERE", "THERE") else rest
        return understand(_text([*start, Chunk("MOVE", "gone"), *place]))
    left = ObjectCondition("no longer there", (ParsedQuestion("select", states=AWAY),))
    return as_list(replace(understand(_text([*start, *rest])), states=None), left)


def _quantified(chunks: Sequence[Chunk], now_ns: int, understand: Understand) -> ParsedQuestion | None:
    """Return *are all chairs in the kitchen* as chairs, and the condition *in the kitchen*."""
    marks = [
        place
        for place, chunk in enumerate(chunks)
        if chunk.kind == "ALL" or (chunk.kind == "NOT" and chunk.text.lower() == "none")
    ]
    if chunks[0].kind not in _YES_NO or len(marks) != 1:
        return None
    (mark,) = marks
    noun = next((place for place in range(mark, len(chunks)) if chunks[place].kind == "NOUN"), 0)
    before = [chunk.kind for chunk in chunks[1:mark] if chunk.kind not in ("DET", "FILLER", "THERE")]
    if before == ["NOUN"] and noun != mark + 1:
        # Are the chairs all in the kitchen?
        noun, before, end, clause = mark - 1, [], mark, list(chunks[mark + 1 :])
    else:
        end = _end_of_place(chunks, noun + 1)
        clause = list(chunks[end:])
        if any(chunk.kind not in ("DET", "FILLER", "OF") for chunk in chunks[mark + 1 : noun]):
            return None
    if noun == 0 or (before and before != ["PERSON", "SEE"]):
        return None
    domain = as_list(understand(f"which {_text(chunks[noun:end])}"))
    if domain is None or domain.what is None or domain.conditions or domain.states is not None:
        return None
    if before:
        if clause or _is_placed(domain) or (domain.between is None and domain.since is None):
            return None
        span = domain.between or until_now(domain.since or 0)
        seen = ParsedQuestion("select", between=span)
        conditions: tuple[ObjectCondition, ...] = (ObjectCondition(f"seen {between_words(span)}", (seen,)),)
        domain = replace(domain, between=None, since=None, past=True)
    else:
        found = _clause(clause, now_ns, understand, negated=False)
        if found is None:
            return None
        conditions = found
    quantifier = _QUANTIFIERS.get(chunks[mark].text.lower(), "all")
    limited = _with_conditions(domain, conditions)
    return None if limited is None else replace(limited, quantifier=quantifier)


def _measured(chunks: Sequence[Chunk], now_ns: int, understand: Understand) -> ParsedQuestion | None:
    """Return *is the fridge taller than 1 m* as the fridge, and the condition *taller than 1 m*."""
    kinds = [chunk.kind for chunk in chunks]
    at = kinds.index("NOUN") + 1 if "NOUN" in kinds else 0
    if at == 0 or kinds[0] not in _YES_NO or not set(kinds[1 : at - 1]) <= {"DET", "FILLER"}:
        return None
    noun = chunks[at - 1]
    while at < len(chunks) and kinds[at] in (*_BEFORE, "HERE", "SEE", "THERE"):
        at += 1
    bound = bound_at(chunks, at, now_ns) if at < len(chunks) else None
    if bound is None or bound.end < len(chunks) or bound.rest or bound.conditions[0].value is None:
        return None  # Two objects are compared by other rules.
    domain = as_list(understand(f"which {noun.text}"))
    if domain is None or domain.what is None or domain.conditions or domain.states is not None:
        return None
    limited = as_list(domain, *bound.conditions)
    return None if limited is None else replace(limited, quantifier="all")


def _end_of_place(chunks: Sequence[Chunk], start: int) -> int:
    """Return where the place of *all chairs in the kitchen* ends, if another condition follows it."""
    end = start
    while end < len(chunks) and chunks[end].kind in _IN_PLACES - {"AND", "STOP"}:
        end += 1
    return end if end < len(chunks) and chunks[end].kind in _CLAUSES else start


def _limited(chunks: Sequence[Chunk], now_ns: int, understand: Understand) -> ParsedQuestion | None:
    """Return a question for a list, with its conditions; ``None`` if it has none or one is not understood."""
    rest = list(_exception_last(chunks))
    affirmed = chunks[0].kind in _YES_NO
    conditions: tuple[ObjectCondition, ...] = ()
    at = 1 if rest[0].kind == "NOT" else 0
    while at < len(rest):
        named = any(chunk.kind in ("ANYTHING", "NOUN") for chunk in rest[:at])
        taken = _taken_at(rest, at, now_ns, understand) if named or not affirmed else None
        if taken is None:
            at += 1
            continue
        between = chunks_of(taken.rest) if taken.rest else []
        rest = [*rest[: taken.start], *between, *rest[taken.end :]]
        conditions, at = (*conditions, *taken.conditions), taken.start
    if not conditions or not rest:
        return None
    return _with_conditions(understand(_text(rest)), conditions)


def _with_conditions(found: ParsedQuestion, conditions: tuple[ObjectCondition, ...]) -> ParsedQuestion | None:
    """Return a list with conditions. A time limits the list and the places of its conditions alike."""
    placed = [one for each in conditions for one in each.asked if _is_placed(one)]
    if found.between is None and found.since is None:
        timed = next((one for one in placed if one.between is not None or one.since is not None), None)
        if timed is not None:
            found = replace(found, between=timed.between, since=timed.since)
    spans = {"between": found.between, "since": found.since}
    same = tuple(
        replace(each, asked=tuple(replace(one, **spans) if _is_placed(one) else one for one in each.asked))  # type: ignore[arg-type]
        for each in conditions
    )
    return as_list(found, *same)


def _is_placed(found: ParsedQuestion) -> bool:
    return any(
        each is not None for each in (found.near, found.beside, found.robot, found.room, found.relation)
    )


def _is_limited(found: ParsedQuestion) -> bool:
    return _is_placed(found) or bool(found.conditions) or found.states is not None


def _exception_last(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """Return *besides the sofa, what is there* as *what is there besides the sofa*."""
    stop = next((place for place, chunk in enumerate(chunks) if chunk.kind == "STOP"), 0)
    if chunks[0].kind != "NOT" or chunks[0].text.lower() not in _EXCEPT or stop == 0:
        return chunks
    return [*chunks[stop + 1 :], *chunks[:stop]]


def _taken_at(chunks: list[Chunk], at: int, now_ns: int, understand: Understand) -> _Taken | None:
    """Return the conditions that begin at a chunk; ``None`` if none does, or it is not understood."""
    kind, said = chunks[at].kind, chunks[at].text.lower()
    if kind == "NOT" and said in _EXCEPT:
        return _exception(chunks, at, understand)
    start = _start_of(chunks, at)
    if kind == "NOT" and said in _NEGATIONS:
        end = _end_of(chunks, at + 1)
        found = _clause(chunks[at + 1 : end], now_ns, understand, negated=True)
        if found is not None and _repeats_a_deed(chunks, at, end, found):
            return None
        return None if found is None or start is None else _Taken(found, start, end)
    if kind == "NOT" and said == "only":
        only = _only(chunks, at, understand)
        if only is not None and start is not None:
            return only
    bound = bound_at(chunks, at, now_ns)
    if bound is None or start is None:
        return None
    return _Taken(bound.conditions, start, bound.end, bound.rest)


def _repeats_a_deed(chunks: Sequence[Chunk], at: int, end: int, found: Sequence[ObjectCondition]) -> bool:
    """Return True for *moved, but not today*: the time is that of a movement, which the store lacks."""
    deed = any(chunk.kind in _DEEDS for chunk in chunks[:at])
    seen = any(chunk.kind == "SEE" for chunk in chunks[at:end])
    timed = any(one.between is not None or one.since is not None for each in found for one in each.asked)
    return deed and timed and not seen


def _start_of(chunks: Sequence[Chunk], at: int) -> int | None:
    """Return where the words that join a condition to its list begin; ``None`` after *or*."""
    first = at
    while first > 0 and chunks[first - 1].kind in _JOINING:
        first -= 1
    joined = chunks[first:at]
    if any(chunk.kind == "AND" and chunk.text.lower() not in ("and", "then") for chunk in joined):
        return None
    if first > 1 and chunks[first - 1].text.lower() in _RELATIVE:
        return first - 1
    # Without "that", the verb is the verb of the list: *which chairs are*.
    ends = [place for place in range(first, at) if chunks[place].kind in ("AND", "STOP")]
    return ends[0] if ends else at


def _end_of(chunks: Sequence[Chunk], start: int) -> int:
    """Return where the words of a condition end: before the next condition."""
    for place in range(start + 1, len(chunks)):
        if chunks[place].kind == "NOT":
            return place
        if chunks[place].kind in ("AND", "STOP"):
            after = place + 1
            while after < len(chunks) and chunks[after].kind in (*_JOINING, "THIS", "WHICH"):
                after += 1
            if after < len(chunks) and chunks[after].kind in ("NOT", "SEE", *_BOUNDS):
                return place
    return len(chunks)


def _exception(chunks: list[Chunk], at: int, understand: Understand) -> _Taken | None:
    """Return the condition *except the chairs and the table*."""
    said = chunks[at].text.lower()
    before = {chunk.kind for chunk in chunks[:at]}
    if said == "but" and not before & {"ALL", "ANYTHING"}:
        return None
    end, kinds = at + 1, ("ALL", "AND", "DET", "FILLER", "NOUN", "STOP")
    while end < len(chunks) and chunks[end].kind in kinds:
        end += 1
    while chunks[end - 1].kind in ("AND", "FILLER", "STOP") and end > at + 1:
        end -= 1
    part = chunks[at + 1 : end]
    if said == "without" and not (
        part and part[0].text.lower() in ("the", "my", "our", "your") and "WHAT" in before
    ):
        return None  # "The car without a wheel" is a kind of car.
    if end < len(chunks) and chunks[end].kind in PREPOSITIONS:
        return None  # "Except the chairs in the kitchen": the place of the chairs, or of the list.
    asked = _named(part, understand)
    if asked is None:
        return None
    words = _text([Chunk("NOT", "other than"), *part])
    start = at - 1 if at > 1 and chunks[at - 1].kind == "STOP" else at
    return _Taken((ObjectCondition(words, asked, negated=True),), start, end)


def _named(part: Sequence[Chunk], understand: Understand) -> tuple[ParsedQuestion, ...] | None:
    """Return questions for the objects that a noun phrase names, one each."""
    texts = one_by_one(part) or ([_text(part)] if sum(chunk.kind == "NOUN" for chunk in part) == 1 else [])
    found = [as_list(understand(f"show {text}")) for text in texts]
    plain = [each for each in found if each is not None and each.what is not None]
    bare = all(not _is_limited(each) and each.between is None and each.since is None for each in plain)
    if not plain or len(plain) < len(found) or not bare:
        return None
    return tuple(plain)


def _only(chunks: list[Chunk], at: int, understand: Understand) -> _Taken | None:
    """Return the conditions of *seen only today*: then, and at no other time."""
    end = _end_of(chunks, at + 1)
    part = [chunk for chunk in chunks[at + 1 : end] if chunk.kind != "SEE"]
    if not any(chunk.kind == "SEE" for chunk in (*chunks[:at], *chunks[at + 1 : end])):
        return None
    asked = _seen(part, understand)
    if asked is None or asked.between is None or _is_placed(asked):
        return None
    first, last = asked.between
    words = f"seen only {_text(part)}"
    conditions = (
        ObjectCondition(words, measure="first_seen", bound="at least", value=first),
        ObjectCondition("", measure="last_seen", bound="at most", value=last),
    )
    return _Taken(conditions, at, end)


def _seen(part: Sequence[Chunk], understand: Understand) -> ParsedQuestion | None:
    """Return the question for what was seen at a place or time."""
    if not part:
        return None
    kinds = [chunk.kind for chunk in part]
    text = _text(part)
    if part[0].text.lower() == "for":
        bound = kinds[1:2] == ["QUANTITY"]
        if bound and part[1].text.lower() not in ("more than", "at least"):
            return None
        length = _text(part[2 if bound else 1 :])
        amount = amount_of(length)
        if amount is None or amount.kind != "time" or amount.rest:
            return None
        text = f"in the last {length}"
    elif not set(kinds) <= _IN_PLACES | {"CLAUSE", "LAST", "THIS"}:
        return None
    found = as_list(understand(f"what did you see {text}"))
    if found is None or found.what is not None or found.conditions:
        return None
    limited = _is_placed(found) or found.between is not None or found.since is not None
    return found if limited else None


def _later(part: Sequence[Chunk], now_ns: int) -> Span | None:
    """Return the time of *not seen since Monday*, which begins after Monday; ``None`` without such words."""
    if not part or part[0].text.lower() != "since":
        return None
    try:
        phrase = _text(part[1:])
        first = (
            since_of(phrase, now_ns) if phrase.lower().endswith(" ago") else span_of(phrase, now_ns).last + 1
        )
    except ValueError:
        return None
    return Span(first, LATEST) if first <= now_ns else None


def _clause(
    chunks: Sequence[Chunk], now_ns: int, understand: Understand, *, negated: bool
) -> tuple[ObjectCondition, ...] | None:
    """Return the conditions that the words after *not*, or after the objects of *all*, mean."""
    part, staying, having = list(chunks), False, False
    while part and part[0].kind in _BEFORE:
        having = having or part[0].kind == "HAVE"
        staying, part = staying or part[0].kind == "STILL", part[1:]
    negated_here = not negated and bool(part) and part[0].text.lower() in _NEGATIONS
    part = part[1:] if negated_here else part
    if not part or (staying and negated):
        return None
    inverted = negated != negated_here
    words = f"{'not ' if inverted else ''}{_text(part)}"
    there = ObjectCondition("there", (PRESENT,))
    more = (replace(there, words=""),) if staying else ()
    words = f"still {words}" if staying else words
    first, kinds = part[0].kind, {chunk.kind for chunk in part}
    found: tuple[ParsedQuestion, ...] | None = None
    if first in ("COMPARE", "CLOSER", "QUANTITY"):
        bound = bound_at(part, 0, now_ns)
        if bound is None or bound.end < len(part) or bound.rest:
            return None
        if inverted and len(bound.conditions) > 1:
            return None
        return (replace(bound.conditions[0], negated=inverted, words=words), *bound.conditions[1:], *more)
    if len(part) == 1 and first in ("THERE", "HERE"):
        return (replace(there, negated=inverted, words=words),)
    if first in ("MOVE", "LEFT") or (first == "CHANGE" and part[0].text.lower().startswith("change")):
        part[0] = Chunk(first, _PARTICIPLES.get(part[0].text.lower(), part[0].text))
        words = f"{'still ' if staying else ''}{'not ' if inverted else ''}{_text(part)}"
        return _moved(part, words, understand, inverted=inverted)
    if first in PREPOSITIONS and kinds <= _IN_PLACES:
        found = _places(part, understand, negated=inverted)
    if found is not None:
        pass
    elif first == "SEE":
        later = _later(part[1:], now_ns) if inverted else None
        seen = _seen(part[1:], understand) if later is None else ParsedQuestion("select", between=later)
        found = None if seen is None else (seen,)
        after = "" if later is None else f" (after {moment(later.first)})"
        words = f"{'not ' if inverted else ''}seen {_text(part[1:])}{after}"
    elif first in ("CLAUSE", "LAST", "THERE", "THIS", *PREPOSITIONS) or (first == "NOUN" and len(part) == 1):
        seen = _seen(part[1:] if first == "THERE" else part, understand)
        found = None if seen is None or _is_placed(seen) else (seen,)
        words = f"{'not ' if inverted else ''}seen {_text(part[1:] if first == 'THERE' else part)}"
    if found is None and not having and kinds <= {"AND", "DET", "FILLER", "NOUN", "STOP"}:
        found = _named(part, understand)
        words = f"{'not ' if inverted else ''}{_text(part)}"
    return None if found is None else (ObjectCondition(words, found, negated=inverted), *more)


def _places(
    part: Sequence[Chunk], understand: Understand, *, negated: bool
) -> tuple[ParsedQuestion, ...] | None:
    """Return the questions for what is at a place, or at any of several."""
    joins = {chunk.text.lower() for chunk in part if chunk.kind == "AND"}
    texts = _places_joined(part) or one_by_one(part)
    if not texts and sum(chunk.kind in PREPOSITIONS for chunk in part) > 1:
        return None  # "Next to the table in the kitchen": the place of the table, or of the list.
    if texts and not negated and "or" not in joins:
        return None  # Nothing is in two rooms at once.
    found = [as_list(understand(f"what is {text}")) for text in texts or [_text(part)]]
    placed = [each for each in found if each is not None and each.what is None and _is_placed(each)]
    return tuple(placed) if len(placed) == len(found) else None


def _places_joined(part: Sequence[Chunk]) -> list[str]:
    """Return the places of *in the kitchen or near the table*, one each; empty if *and* joins no places."""
    cuts = [place for place, chunk in enumerate(part) if chunk.kind == "AND"]
    ends = list(zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(part)], strict=True))
    groups = [part[start:end] for start, end in ends]
    joined = len(groups) > 1 and all(
        group and group[0].kind in PREPOSITIONS - {"BETWEEN"} for group in groups
    )
    return [_text(group) for group in groups] if joined else []


def _moved(
    part: Sequence[Chunk], words: str, understand: Understand, *, inverted: bool
) -> tuple[ObjectCondition, ...] | None:
    """Return the condition *moved*; *not moved since Monday* needs an observation before and after."""
    left = ObjectCondition(words, (ParsedQuestion("select", states=AWAY),), negated=inverted)
    if len(part) == 1:
        return (left,)
    seen = _seen(part[1:], understand) if part[1].kind == "CLAUSE" else None
    if seen is None or (seen.since is None and seen.between is None) or _is_placed(seen) or not inverted:
        return None
    since = seen.since if seen.between is None else seen.between.first
    before = ObjectCondition("known before", measure="first_seen", bound="less", value=since)
    return left, before, ObjectCondition("seen since then", (seen,))


def _text(chunks: Sequence[Chunk]) -> str:
    return " ".join(chunk.text for chunk in chunks).replace(" ,", ",").replace(" )", ")")
