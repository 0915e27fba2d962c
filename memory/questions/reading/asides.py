"""Words of a question that the store cannot check, and that the answer therefore names.

People add side sentences (*I'm allergic*), clauses about themselves (*that I can use*) and owners (*my
daughter's*). Each rule takes such words off, and the rest is read as the question. Nothing is taken off if
the rest has a pronoun that may mean these words, or if its answer would depend on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from memory.questions.errors import QuestionError
from memory.questions.reading.arguments import ENDS, pattern
from memory.questions.reading.grammar import PREPOSITIONS, Chunk, chunks_of
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.reading.refusals import UNNAMED
from memory.questions.reading.rewording import reworded
from memory.questions.reading.understanding import MOST_CHARACTERS, understand

#: Ends of sentences and clauses.
_BREAK = pattern(r"\s*(?P<mark>[?!.;]+|[,:]|\s[-–—]+)\s+(?![-+]?\d)")
#: Classes that a question begins with, and those that may stand before its first word.
_ASKING = frozenset({
    "ADVICE", "ANY", "BE", "COUNT", "DESCRIBE", "DO", "FAR", "FIND", "GO", "HAVE", "HOW", "LONG", "MODAL",
    "OFTEN", "SHOW", "SINCE", "WHAT", "WHEN", "WHERE", "WHICH", "WHO", "WHY",
})  # fmt: skip
_BEFORE = ("AND", "FILLER")
#: Verbs after the subject of a statement.
_VERBS = ("BE", "DO", "FUTURE", "HAVE", "MODAL")
_THERE_IS = pattern(r"^there(?:'s|'re| (?:is|are|was|were|will|has|have))\b")
#: Words that begin a clause: of reasons, and of times.
_REASONS = ("because", "cause", "'cause", "cuz", "so that", "so", "as", "in case", "although", "though")
_TIMES = ("while", "before", "after", "until", "till", "since")
_SUBJECT = r"(?:(?:i|we|he|she|they)(?:'(?:m|s|d|re|ve|ll))?|you(?=(?:'d|'ll| can| could| would| might)\b))"
_LEADING = pattern(rf"^(?P<word>{'|'.join((*_REASONS, *_TIMES))}) (?={_SUBJECT}\b)")
_CLAUSE = pattern(
    rf"[\s,]+(?:(?P<word>{'|'.join((*_REASONS, *_TIMES))})|(?P<that>that|which|who|whom))? ?\b"
    rf"(?P<subject>{_SUBJECT}) (?P<rest>[^,;?]+)"
)
#: Pronouns in a question that may mean words of another sentence.
_PRONOUN = pattern(r"\b(?:it(?! true| correct)|its|them|they|he|she|him|hers|theirs|ones?)\b(?! of\b)")
_POINTING = ("this", "that", "these", "those", "her", "his", "their", "this one", "that one")
#: Answers that depend on the time of a clause.
_TIMED = frozenset({"CHANGE", "COUNT", "FIRST", "HAPPEN", "LAST", "LONG", "MOST", "OFTEN", "WHEN"})
#: Verbs of clauses that the store may know about.
_OBSERVING = frozenset({"KNOW", "SEE"})
_FINDING = ("find", "can not find", "cannot find", "locate")
#: Words before an object that a clause explains.
_ORDER = ("FIRST", "LAST", "MOST", "SUPERLATIVE")
#: Classes between a subject and its verb, and classes that belong to the question after a clause.
_AUXILIARY = frozenset({"BE", "DO", "EVER", "FILLER", "HAVE", "MODAL", "NOT", "NOW", "STILL", "TO"})
_PREDICATE = frozenset({"APPEAR", "BE", "CHANGE", "HAPPEN", "HERE", "LEFT", "MOVE", "STAY", "STILL", "THERE"})
#: Ends of verbs, as in *threw away*.
_PARTICLES = ("around", "away")
#: Verbs of a question with *do*.
_DOING = frozenset({
    "APPEAR", "CHANGE", "FIND", "GO", "HAPPEN", "HAVE", "HERE", "KNOW", "LEFT", "MOVE", "SEE", "STAY",
    "THERE",
})  # fmt: skip
_OWNER = re.compile(r"\w(?:'s|s')$", re.IGNORECASE)
#: Persons that a determiner may stand before. A name and *grandma* have none.
_PERSONS = frozenset({
    "aunt", "aunty", "baby", "babies", "babysitter", "boss", "boy", "boys", "boyfriend", "brother",
    "brothers", "child", "children", "cleaner", "client", "colleague", "colleagues", "cousin", "cousins",
    "dad", "daddy", "daughter", "daughters", "doctor", "father", "flatmate", "friend", "friends",
    "gardener", "girl", "girlfriend", "girls", "grandad", "granddad", "granddaughter", "grandfather",
    "grandma", "grandmother", "grandpa", "grandparents", "grandson", "granny", "guest", "guests", "guy",
    "husband", "kid", "kids", "lady", "landlady", "landlord", "man", "men", "mom", "mother", "mum",
    "mummy", "nanny", "neighbor", "neighbors", "neighbour", "neighbours", "nephew", "niece", "nurse",
    "parents", "partner", "people", "person", "postman", "roommate", "roommates", "sister", "sisters",
    "son", "sons", "spouse", "student", "students", "teacher", "teenager", "tenant", "toddler", "twins",
    "uncle", "visitor", "visitors", "wife", "woman", "women",
})  # fmt: skip
#: Words without a determiner that are no persons.
_NO_NAMES = frozenset({
    "today", "yesterday", "tomorrow", "tonight", "monday", "tuesday", "wednesday", "thursday", "friday",
    "saturday", "sunday", "morning", "afternoon", "evening", "night", "noon", "week", "month", "year",
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december", "everything", "something", "anything", "nothing", "one", "other", "here",
    "there", "let", "robot", "nobody", "somebody", "anybody", "everybody", "someone", "anyone", "everyone",
})  # fmt: skip


class Aside(NamedTuple):
    """A question without the words that the store cannot check.

    Attributes:
        question: the other words.
        remark: a sentence that names the words.
        pronoun: a word of the question that may mean one of the words that were left out.
    """

    question: str
    remark: str
    pronoun: str | None = None


def read_question(
    text: str, now_ns: int, names: Collection[str] = (), knows: Callable[[str], bool] = lambda _: False
) -> ParsedQuestion:
    """Return what a question asks for, with remarks on the words that were left out.

    Args:
        text: as typed.
        now_ns: the moment that words such as yesterday count from.
        names: labels of the store, which are names even if they hold function words.
        knows: returns True for words that the store has, so *driver's seat* stays whole.

    Raises:
        QuestionError: the text is empty or too long, or depends on the robot's pose.
        ValueError: a time does not exist.
    """

    def rest_of(aside: Aside) -> ParsedQuestion:
        found = read_question(aside.question, now_ns, names, knows)
        found.asides = (aside.remark, *(found.asides or ()))
        return found

    words = reworded(" ".join(text.replace("’", "'").split()).rstrip(ENDS))
    aside = _without_sentences(words, names) or _without_owners(words, names, knows)
    if len(text) <= MOST_CHARACTERS and aside is not None:
        if aside.pronoun is not None:
            problem = UNNAMED.replace("{word}", aside.pronoun)
            return ParsedQuestion("search", what=words, typed=words, problem=problem)
        return rest_of(aside)
    plain = understand(text, now_ns, names)
    aside = None if plain.problem is None else _without_clause(words, names)
    if aside is None or knows(words):
        return plain
    try:
        found = rest_of(aside)
    except QuestionError:
        return plain
    return plain if found.problem is not None else found


def _remark(*said: str) -> str:
    quoted = ", ".join(f"'{words.strip(ENDS)}'" for words in said)
    return f"{quoted} {'was' if len(said) == 1 else 'were'} not considered."


def _without_sentences(words: str, names: Collection[str]) -> Aside | None:
    """Return the only question of several sentences or clauses if all others are statements."""
    breaks = list(_BREAK.finditer(words))
    starts = [0, *(each.end() for each in breaks)]
    ends = [*(each.start() for each in breaks), len(words)]
    marks = [*(each["mark"] for each in breaks), ""]
    parts: list[tuple[str, int, int]] = []
    for start, end, mark in zip(starts, ends, marks, strict=True):
        kind = _kind_of(words[start:end], mark, names)
        if kind == "rest":
            if not parts:
                return None
            parts[-1] = (parts[-1][0], parts[-1][1], end)
        else:
            parts.append((kind, start, end))
    asked = [words[start:end] for kind, start, end in parts if kind == "question"]
    said = [words[start:end] for kind, start, end in parts if kind == "statement"]
    if len(asked) != 1 or not said or any(_limits_time(part, asked[0], names) for part in said):
        return None
    pronoun = _pronoun_of(asked[0], names)
    if pronoun is not None and set(marks) <= {",", ""}:
        return None  # "I can't find my keys, where are they": the grammar reads the whole sentence.
    return Aside(asked[0], _remark(*said), pronoun)


def _kind_of(part: str, mark: str, names: Collection[str]) -> str:
    """Return whether words are a question, a statement, or the rest of the words before."""
    chunks = chunks_of(part, names)
    while chunks and (chunks[0].kind in _BEFORE or chunks[0].text.lower() == "but"):
        chunks = chunks[1:]
    if mark.startswith("?"):
        return "question"
    if _LEADING.match(part) or _THERE_IS.match(part):
        return "statement"
    if not chunks:
        return "rest"
    first, second = chunks[0], chunks[1].kind if len(chunks) > 1 else ""
    if first.kind in _ASKING or first.text.lower().startswith("how "):
        return "question"
    if first.kind in ("ANYONE", "PERSON") and second and first.text.lower() not in ("me", "us"):
        robot = first.text.lower() not in ("i", "we", "he", "she", "they") and first.kind == "PERSON"
        return (
            "rest"
            if robot and any(chunk.kind in ("HAVE", "KNOW", "SEE") for chunk in chunks)
            else "statement"
        )
    if first.kind == "THIS" and second in _VERBS:
        return "statement"
    subject = chunks[1:] if first.kind == "DET" else chunks
    states = [chunk.kind for chunk in subject[:2]]
    asks = any(chunk.kind in ("WHEN", "WHERE", "WHICH", "WHO") for chunk in chunks)
    if len(states) == 2 and states[0] == "NOUN" and states[1] in _VERBS and not asks:
        return "statement"
    return "rest"


def _pronoun_of(question: str, names: Collection[str]) -> str | None:
    """Return the pronoun of a question that another sentence may explain."""
    found = _PRONOUN.search(question)
    if found is not None:
        return found.group()
    chunks = chunks_of(question, names)
    for chunk, after in zip(chunks, [*chunks[1:], Chunk("", "")], strict=True):
        if chunk.text.lower() in _POINTING and after.kind not in ("ANYTHING", "DET", "NOUN", "PERSON"):
            return chunk.text
    return None


def _limits_time(part: str, question: str, names: Collection[str]) -> bool:
    """Return True for a clause such as *while I was out* if the answer depends on its time."""
    leading = _LEADING.match(part)
    if leading is None or leading["word"].lower() not in _TIMES:
        return False
    kinds = {chunk.kind for chunk in chunks_of(question, names)}
    return bool(kinds & _TIMED) or not kinds & {"ANYONE", "NOUN"}


def _without_clause(words: str, names: Collection[str]) -> Aside | None:
    """Return a question without its first clause about a person, such as *that I can use*."""
    at = 0
    while (clause := _CLAUSE.search(words, at)) is not None:
        at = clause.end("subject")
        before = words[: clause.start()]
        said = words[clause.start() : clause.end()]
        if not _follows(chunks_of(before, names), clause) or _is_known(chunks_of(said, names), clause):
            continue
        end = _end_of(chunks_of(clause["rest"], names), clause)
        said = words[clause.start() : end].strip(" ,")
        rest = f"{before}{words[end:]}".strip()
        if _is_whole(chunks_of(rest, names)) and not _limits_time(said, rest, names):
            return Aside(rest, _remark(said))
    return None


def _follows(before: Sequence[Chunk], clause: re.Match[str]) -> bool:
    """Return True if a clause stands after an object, or after a question that a clause of time follows."""
    if not before:
        return False
    if clause["word"] is not None:
        return before[0].kind in _ASKING
    place = len(before)
    while place and before[place - 1].kind in ("HERE", "NOW", "THERE"):
        place -= 1
    # The clause decides which one is the last book that I bought.
    return place > 1 and before[place - 1].kind == "NOUN" and before[place - 2].kind not in _ORDER


def _is_known(said: Sequence[Chunk], clause: re.Match[str]) -> bool:
    """Return True for a clause about what the store knows: *you saw*, *I have*, *I was in*."""
    if any(chunk.kind in _OBSERVING or chunk.text.lower() in _FINDING for chunk in said):
        return True
    if clause["word"] is not None:
        return False
    subject = next(place for place, chunk in enumerate(said) if chunk.kind == "PERSON")
    verb = next((chunk.kind for chunk in said[subject + 1 :] if chunk.kind not in _AUXILIARY), "")
    return verb in ("", "STAY", *PREPOSITIONS)


def _end_of(said: Sequence[Chunk], clause: re.Match[str]) -> int:
    """Return where a clause ends: before words such as *still there*, which belong to the question."""
    end = clause.end()
    if clause["word"] is not None:
        return end
    at, verb = clause.start("rest"), False
    for chunk in said:
        place = clause.string.find(chunk.text, at)
        if verb and chunk.kind in _PREDICATE and chunk.text.lower() not in _PARTICLES and place >= 0:
            return place - 1
        verb = verb or chunk.kind not in _AUXILIARY
        at = max(place, at)
    return end


def _is_whole(rest: Sequence[Chunk]) -> bool:
    """Return False if a question has lost its verb, as *is the parcel* and *when did the parcel*."""
    kinds = [chunk.kind for chunk in rest if chunk.kind not in ("DET", "FILLER")]
    return kinds != ["BE", "NOUN"] and ("DO" not in kinds or bool(_DOING & set(kinds)))


def _without_owners(words: str, names: Collection[str], knows: Callable[[str], bool]) -> Aside | None:
    """Return a question without the first owner of an object, such as *daughter's*."""
    known = {name.lower() for name in names}
    chunks = chunks_of(words, names)
    for place, chunk in enumerate(chunks):
        *said, last = chunk.text.split()
        owners = [number for number, word in enumerate(said) if _OWNER.search(word)]
        if chunk.kind != "NOUN" or not owners or chunk.text.lower() in known:
            continue
        owner = said[: owners[-1] + 1]
        named = place == 0 or chunks[place - 1].kind != "DET"
        if knows(chunk.text) or not _is_person(owner[-1], knows if named else None):
            continue
        thing = " ".join([*said[len(owner) :], last])
        rest = words.replace(chunk.text, thing, 1)
        return Aside(rest, f"Owners are not stored: {_remark(' '.join(owner))}")
    return None


def _is_person(owner: str, knows: Callable[[str], bool] | None) -> bool:
    """Return True for *daughter's*, and for *John's* if it has no determiner and ``knows`` is given."""
    word = owner.lower()
    person = word[:-2] if word.endswith("'s") else word[:-1]
    if person in _PERSONS:
        return True
    return knows is not None and word.endswith("'s") and person not in _NO_NAMES and not knows(person)
