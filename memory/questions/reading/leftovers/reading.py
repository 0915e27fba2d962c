"""Questions with words that the store cannot check: these are left out, and the answer names them.

The rules are tried from the least to the most that they leave out. The rest must be a question that is
understood and whose names are known.
"""

from __future__ import annotations

from collections.abc import Iterator

from memory.questions.errors import QuestionError
from memory.questions.reading.arguments import pattern
from memory.questions.reading.leftovers.asides import (
    Aside,
    Sentences,
    limits_answer,
    pronoun_of,
    sentences_of,
    without_clause,
    without_owners,
    without_parentheses,
    without_purpose,
)
from memory.questions.reading.leftovers.days import with_dates_of_days
from memory.questions.reading.leftovers.keywords import without_free_words
from memory.questions.reading.leftovers.modifiers import without_modifiers
from memory.questions.reading.leftovers.points import points_in, with_both_objects, with_objects_at_points
from memory.questions.reading.leftovers.pronouns import (
    named_questions,
    placed_question,
    timed_question,
)
from memory.questions.reading.leftovers.references import (
    with_followed_names,
    with_placed_objects,
    without_floor,
    without_included,
    without_one,
    without_part_of_room,
    without_second_place,
)
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.reading.refusals import UNNAMED, UNUSED_POINT, WHICH_IS_MEANT
from memory.questions.reading.understanding import understand_words, words_of
from memory.questions.reading.vocabulary import Vocabulary

#: Words of a statement that choose one of several objects: *I mean the red one*.
_CHOICE = pattern(r"\b(?:the|that|this|those|these) (?:\w+ )?ones?\b|\bi (?:mean|meant)\b|\btalking about\b")
_BEFORE = pattern(r"\b(?:seen|met|noticed|encountered) .*\bbefore\b")
_ID = pattern(r"^#\d+$")
#: Rules that leave words out or replace them, from the least to the most.
_RULES = (
    with_both_objects,
    with_followed_names,
    without_included,
    without_floor,
    without_one,
    without_modifiers,
    with_placed_objects,
    without_second_place,
    without_part_of_room,
    without_free_words,
)


def read_question(text: str, now_ns: int, store: Vocabulary) -> ParsedQuestion:
    """Return what a question asks for, with remarks on the words that were left out.

    Args:
        text: as typed.
        now_ns: the moment that words such as yesterday count from.
        store: words that the store knows.

    Raises:
        QuestionError: the text is empty or too long, or depends on the robot's pose.
        ValueError: a time does not exist.
    """
    return _read(words_of(text), now_ns, store)


def _read(words: str, now_ns: int, store: Vocabulary) -> ParsedQuestion:
    names = store.names()
    placed = with_objects_at_points(words, store)
    if placed is not None:
        of_object = _with_remark(placed, now_ns, store)
        wanted = (of_object, *of_object.parts)
        if any(part.question == "search" and isinstance(part.what, int) for part in wanted):
            # "Was it last seen today or yesterday": the rest says no more.
            what = next(part.what for part in wanted if isinstance(part.what, int))
            return ParsedQuestion("last_seen", what=what, asides=of_object.asides)
        return of_object
    dated = with_dates_of_days(words, store)
    if dated is not None:
        return _with_remark(dated, now_ns, store)
    sentences = sentences_of(words, names)
    if sentences is not None and not limits_answer(sentences, names):
        found = _of_sentences(words, sentences, now_ns, store)
        if found is not None:
            return found
    certain = (
        without_parentheses(words, store.mentions)
        or without_purpose(words)
        or without_owners(words, names, store.knows)
    )
    if certain is not None:
        return _with_remark(certain, now_ns, store)
    error: QuestionError | None = None
    try:
        plain = understand_words(words, now_ns, names)
        if _is_clear(plain, store) or store.knows(words):
            return plain
    except QuestionError as raised:
        error, plain = raised, _refused(words, str(raised))
    clause = without_clause(words, names) if plain.problem is not None else None
    found = _attempt(clause, now_ns, store)
    if found is not None and found.problem is None:
        return found
    for rule in _RULES:
        found = _attempt(rule(words, store), now_ns, store)
        if found is not None and _is_clear(found, store):
            return found
    if error is not None:
        raise error
    return plain


def _of_sentences(words: str, sentences: Sentences, now_ns: int, store: Vocabulary) -> ParsedQuestion | None:
    """Return the question of several sentences; ``None`` if it has to be read as a whole."""
    others = (*sentences.statements, *sentences.topics)
    points = points_in(*others)
    if points:
        there = placed_question(sentences, points[0]) if len(points) == 1 else None
        if there is None:
            return None if sentences.commas else _refused(words, UNUSED_POINT.replace("{point}", points[0]))
        return _with_remark(there, now_ns, store)
    pronoun = pronoun_of(sentences.question, store.names())
    if pronoun is not None and _BEFORE.search(sentences.question):
        return _refused(words, UNNAMED.replace("{word}", pronoun))  # Is it the same one?
    if pronoun is not None:
        for aside in named_questions(sentences, pronoun, store):
            found = _attempt(aside, now_ns, store)
            if found is not None and _is_clear(found, store):
                return found
        return None if sentences.commas else _refused(words, UNNAMED.replace("{word}", pronoun))
    found = _with_remark(timed_question(sentences), now_ns, store)
    chooses = any(_CHOICE.search(part) for part in sentences.statements)
    if (sentences.topics or chooses) and not _is_unique(found, store):
        return None if sentences.commas else _refused(words, WHICH_IS_MEANT)
    return found


def _refused(words: str, problem: str) -> ParsedQuestion:
    return ParsedQuestion("search", what=words, typed=words, problem=problem)


def _with_remark(aside: Aside, now_ns: int, store: Vocabulary) -> ParsedQuestion:
    found = _read(words_of(aside.question), now_ns, store)
    found.asides = (*([aside.remark] if aside.remark else []), *(found.asides or ())) or None
    return found


def _attempt(aside: Aside | None, now_ns: int, store: Vocabulary) -> ParsedQuestion | None:
    """Return a question without an aside, or ``None`` if there is none or it depends on the robot's pose."""
    if aside is None:
        return None
    try:
        return _with_remark(aside, now_ns, store)
    except QuestionError:
        return None


def _is_clear(found: ParsedQuestion, store: Vocabulary) -> bool:
    """Return True if a question is understood, and the store knows all of its names."""
    if found.problem is not None or (found.question == "search" and found.typed is not None):
        return False
    # A person at the door is near a door, though the store knows no door.
    near = str(found.beside) if found.relation is None and not found.inside else ""
    return all(_is_name(name, store) or (name == near and store.mentions(name)) for name in _names_of(found))


def _is_name(words: str, store: Vocabulary) -> bool:
    return bool(_ID.match(words)) or store.knows(words) or store.is_place(words)


def _is_unique(found: ParsedQuestion, store: Vocabulary) -> bool:
    """Return True if each name of a question is that of one object at most."""
    return _is_clear(found, store) and all(len(store.objects(name)) <= 1 for name in _names_of(found))


def _names_of(found: ParsedQuestion) -> Iterator[str]:
    """Return the words for objects and places of a question."""
    named = (found.what, found.beside, found.beside_too, found.room)
    yield from (each for each in named if isinstance(each, str))
    if found.comparing is not None:
        yield from found.comparing.choices if found.sides is None else ()
    for condition in found.conditions:
        yield from [condition.anchor] if isinstance(condition.anchor, str) else []
        for asked in condition.asked:
            yield from _names_of(asked)
    for part in (*found.parts, *(found.sides or ())):
        yield from _names_of(part)
