"""Names of objects in place of pronouns: *I left my umbrella in the hall on Sunday, is it still there?*

The object of another sentence is taken if only one of its words can be meant. The place of that sentence
replaces *there*, and its time replaces *then*.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from memory.questions.reading.arguments import pattern, time_in
from memory.questions.reading.grammar import PREPOSITIONS, Chunk, chunks_of
from memory.questions.reading.leftovers.asides import Aside, Sentences, remark_on
from memory.questions.reading.leftovers.modifiers import head_of
from memory.questions.reading.lexicon import PERSONS
from memory.questions.reading.vocabulary import Vocabulary

#: Pronouns of persons and animals, which the subject of the other sentence explains.
_OF_PERSONS = ("he", "she", "him", "her")
_PRONOUNS = (*_OF_PERSONS, "it", "they", "them", "one", "ones", "that", "this", "those", "these")
#: *There* as a place, not as in *is there*.
_THERE = pattern(r"(?<!is )(?<!are )(?<!was )(?<!were )\b(?:in |over )?there$")
#: *The blue one*, of which only the noun is missing.
_THE_ONE = pattern(r"\b(?P<start>(?:the|another|my) \w+) ones?\b")
_WHICH_ONE = pattern(r"\bwhich (?:one|of them|ones)\b")
_ID = re.compile(r"#\d+")
_RESTRICTED = pattern(r"\b(?:that|which|who) (?:was|is|were|are|has|had|stood|left|came|drove|\w+ed)\b")
_THEN = pattern(r"\bsince then\b")
_PAST = pattern(r"^(?:\w+ )?(?:did|was|were|had)\b")


class _Noun(NamedTuple):
    """Words of an object or a place, and the preposition before them."""

    words: str
    preposition: str


def named_questions(found: Sentences, pronoun: str, store: Vocabulary) -> Iterator[Aside]:
    """Return questions with the object of another sentence in place of a pronoun, the most exact first."""
    parts = (*found.topics, *found.statements)
    said = pronoun.lower()
    if any(_RESTRICTED.search(part) for part in parts):
        return  # "The car that stood for 11 seconds" is not any car.
    known = None if said not in _PRONOUNS else _object_of(parts, said in _OF_PERSONS, store)
    if known is None or _WHICH_ONE.search(found.question):
        return
    if said in ("one", "ones") and _THE_ONE.search(found.question):
        known = head_of(known, store) or known
        question = _THE_ONE.sub(rf"\g<start> {known}", found.question)
        yield Aside(question, f"'{pronoun}' was read as '{known}'. {remark_on(*parts)}")
        return
    article = "" if known.startswith("#") else "a" if said == "one" else "" if said == "ones" else "the"
    name = f"{article} {known}".strip()
    question = re.sub(rf"\b{said}\b(?: one\b)?", name, found.question, flags=re.IGNORECASE)
    place = _place_of(parts, store)
    remark = f"'{pronoun}' was read as '{name}'. {remark_on(*(f'the rest of {part}' for part in parts))}"
    if place is not None and _THERE.search(question):
        yield Aside(_THERE.sub(place, question), remark)
    yield Aside(question, remark)


def placed_question(found: Sentences, point: str) -> Aside | None:
    """Return the question with the point of another sentence in place of *there*."""
    question = _THERE.sub(f"at {point}", found.question)
    return None if question == found.question else Aside(question, f"'there' was read as 'at {point}'.")


def timed_question(found: Sentences) -> Aside:
    """Return the question with the time of another sentence if it needs one: *since then*, *did it ring*."""
    times = [time for part in found.statements if (time := time_in(part)) is not None]
    question = found.question
    remark = remark_on(*found.statements, *found.topics)
    if len(times) != 1 or time_in(question) is not None:
        return Aside(question, remark)
    if _THEN.search(question):
        bare = re.sub(r"^(?:on|in|at|during|since) ", "", times[0], flags=re.IGNORECASE)
        return Aside(_THEN.sub(f"since {bare}", question), f"The time is '{times[0]}'. {remark}")
    if _PAST.search(question):
        return Aside(f"{question} {times[0]}", f"The time is '{times[0]}'. {remark}")
    return Aside(question, remark)


def _object_of(parts: Sequence[str], subject: bool, store: Vocabulary) -> str | None:
    """Return the words of the only object of sentences; those after a preposition count if no other does."""
    names = store.names()
    ids = list(dict.fromkeys(found for part in parts for found in _ID.findall(part)))
    if ids:
        return ids[0] if len(ids) == 1 else None
    nouns = [noun for part in parts for noun in _nouns_of(chunks_of(part, names))]
    if any(word in PERSONS for noun in nouns for word in noun.words.lower().split()):
        return None
    if subject:
        nouns = nouns[:1]
    nouns = [noun for noun in nouns if not store.is_place(noun.words)]
    labelled = [noun for noun in nouns if head_of(noun.words, store) is not None]
    objects = labelled or [noun for noun in nouns if store.knows(noun.words)]
    for found in ([noun for noun in objects if not noun.preposition], objects):
        words = list(dict.fromkeys(noun.words.lower() for noun in found))
        if words:
            return words[0] if len(words) == 1 else None
    return None


def _place_of(parts: Sequence[str], store: Vocabulary) -> str | None:
    """Return the only place of sentences, with its preposition."""
    nouns = [noun for part in parts for noun in _nouns_of(chunks_of(part, store.names()))]
    places = [noun for noun in nouns if noun.preposition and store.is_place(noun.words)]
    return f"{places[0].preposition} the {places[0].words}" if len(places) == 1 else None


def _nouns_of(chunks: Collection[Chunk]) -> list[_Noun]:
    """Return the noun phrases of a sentence."""
    found: list[_Noun] = []
    before = ""
    for chunk in chunks:
        if chunk.kind == "NOUN":
            found.append(_Noun(chunk.text, before))
        if chunk.kind not in ("ALL", "DET", "FILLER"):
            before = chunk.text if chunk.kind in (*PREPOSITIONS, "SIDE", "TO") else ""
    return found
