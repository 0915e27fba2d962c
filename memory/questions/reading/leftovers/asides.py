"""Side sentences (*I'm allergic*), clauses about persons (*that I can use*) and owners (*my daughter's*).

Each rule takes such words off, and the rest is read as the question. Nothing is taken off if the answer would
depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from memory.questions.reading.arguments import ENDS, pattern
from memory.questions.reading.grammar import PREPOSITIONS, Chunk, chunks_of
from memory.questions.reading.lexicon import PERSONS

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
_SUBJECTS = ("it", "they")
#: Classes that make a noun phrase a question or a condition.
_NARROWING = frozenset({
    "COMPARE", "COUNT", "LAST", "NOT", "QUANTITY", "SHOW", "SUPERLATIVE", "WHAT", "WHEN", "WHERE", "WHICH",
})  # fmt: skip
_THERE_IS = pattern(r"^there(?:'s|'re| (?:is|are|was|were|will|has|have))\b")
#: *Could I borrow a drill?*: the question follows in another sentence.
_REQUEST = pattern(
    r"^(?:can|could|may|might|would it be okay if|is it ok if) (?:i|we) (?:please )?(?:borrow|use|have"
    r"|take|get|grab)\b"
)
_WANTS = pattern(
    r"^(?:i|we)(?:'m| am|'re| are)? (?:looking for|can't find|cannot find|can not find|need "
    r"to find|searching for) "
)
#: Words that begin a clause: of reasons, and of times.
_REASONS = ("because", "cause", "'cause", "cuz", "so that", "so", "as", "in case", "although", "though")
_TIMES = ("while", "before", "after", "until", "till", "since")
_SUBJECT = r"(?:(?:i|we|he|she|they)(?:'(?:m|s|d|re|ve|ll))?|you(?=(?:'d|'ll| can| could| would| might)\b))"
_LEADING = pattern(rf"^(?P<word>{'|'.join((*_REASONS, *_TIMES))}) (?={_SUBJECT}\b)")
#: A clause of time, also with an adverb: *shortly after the doorbell rang*.
_TIME_CLAUSE = pattern(rf"^(?:(?:\w+ly|right|just|soon|long|straight) )?(?P<word>{'|'.join(_TIMES)}) (?=\w)")
_CLAUSE = pattern(
    rf"[\s,]+(?:(?P<word>{'|'.join((*_REASONS, *_TIMES))})|(?P<that>that|which|who|whom))? ?\b"
    rf"(?P<subject>{_SUBJECT}) (?P<rest>[^,;?]+)"
)
_PARENTHESES = pattern(r"\((?P<inside>[^()\d]*[^()\d\s][^()\d]*)\)")
_PURPOSE = pattern(
    r"(?<=\w),? (?:that|which|so that|so) (?:i|we|he|she|they) (?:have to|has to|need to|needs to|want to"
    r"|wants to|must)"
    r" (?:(?!still\b|there\b)[^,;?])+$"
)
#: Clauses that change no answer about present objects.
_CIRCUMSTANCE = pattern(r"(?<=\w),? (?:now that|given that|considering that|seeing (?:that|as)) [^?;]+$")
#: Pronouns in a question that may mean words of another sentence.
_PRONOUN = pattern(r"\b(?:it(?! true| correct)|its|them|they|he|she|him|hers|theirs|ones?)\b(?! of\b)")
#: *How far is it from A to B*: this word means nothing.
_EXPLETIVE = pattern(
    r"(?<=how far is) it\b|(?<=how far was) it\b|(?<=metres is) it\b|(?<=meters is) it\b|(?<=how long is) "
    r"it(?= since)"
    r"|(?<=has) it(?= been since)|\bis it (?=true|correct|possible|okay|ok)"
)
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
    """

    question: str
    remark: str


class Sentences(NamedTuple):
    """The only question of several sentences or clauses.

    Attributes:
        question: the question.
        statements: the other sentences.
        topics: noun phrases that stand alone, before or after the question.
        commas: True if only commas separate them.
    """

    question: str
    statements: tuple[str, ...]
    topics: tuple[str, ...]
    commas: bool


def remark_on(*said: str) -> str:
    """Return a sentence that names the words that were left out."""
    quoted = ", ".join(f"'{words.strip(ENDS)}'" for words in said)
    return f"{quoted} {'was' if len(said) == 1 else 'were'} not considered."


def sentences_of(words: str, names: Collection[str]) -> Sentences | None:
    """Return the only question of several sentences or clauses, if all others are no questions."""
    breaks = list(_BREAK.finditer(words))
    starts = [0, *(each.end() for each in breaks)]
    ends = [*(each.start() for each in breaks), len(words)]
    marks = [*(each["mark"] for each in breaks), ""]
    parts: list[tuple[str, int, int]] = []
    for start, end, mark, before in zip(starts, ends, marks, ["", *marks], strict=False):
        kind = _kind_of(words[start:end], mark, names)
        if kind == "rest" and parts and not before.startswith(("?", "!", ".", ";")):
            parts[-1] = (parts[-1][0], parts[-1][1], end)
        else:
            parts.append(("topic" if kind == "rest" else kind, start, end))
    found: dict[str, list[str]] = {"question": [], "statement": [], "topic": []}
    for kind, start, end in parts:
        found[kind].append(words[start:end])
    if not found["question"] and len(parts) > 1:
        # "I'm looking for the mug, it was here" asks for the mug.
        wanted = [part for part in found["statement"] if _WANTS.match(part)]
        found["question"] = wanted[:1]
        found["statement"] = [part for part in found["statement"] if part not in wanted[:1]]
    if len(found["question"]) != 1 or len(parts) == 1:
        return None
    topics = tuple(found["topic"])
    if any(not _is_noun_phrase(chunks_of(topic, names)) for topic in topics):
        return None
    only_commas = set(marks) <= {",", ""}
    return Sentences(found["question"][0], tuple(found["statement"]), topics, only_commas)


def _is_noun_phrase(chunks: Sequence[Chunk]) -> bool:
    """Return True for words that name an object, such as *that cookery book I was reading*."""
    kinds = [chunk.kind for chunk in chunks]
    return "NOUN" in kinds and kinds[0] in ("DET", "NOUN", "THIS") and not set(kinds) & _NARROWING


def limits_answer(sentences: Sentences, names: Collection[str]) -> bool:
    """Return True if the answer depends on the time of a clause such as *while I was out*."""
    parts = (*sentences.statements, *sentences.topics)
    return any(_limits_time(part, sentences.question, names) for part in parts)


def _kind_of(part: str, mark: str, names: Collection[str]) -> str:
    """Return whether words are a question, a statement, or the rest of the words before."""
    chunks = chunks_of(part, names)
    while chunks and (chunks[0].kind in _BEFORE or chunks[0].text.lower() == "but"):
        chunks = chunks[1:]
    if _REQUEST.match(part):
        return "statement"
    if mark.startswith("?"):
        return "question"
    if _LEADING.match(part) or _THERE_IS.match(part) or _lacks_subject(chunks):
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
    if first.kind == "THIS" and (second in _VERBS or (second and first.text.lower() in _SUBJECTS)):
        return "statement"
    subject = chunks[1:] if first.kind == "DET" else chunks
    states = [chunk.kind for chunk in subject[:2]]
    asks = any(chunk.kind in ("WHEN", "WHERE", "WHICH", "WHO") for chunk in chunks)
    if len(states) == 2 and states[0] == "NOUN" and states[1] in _VERBS and not asks:
        return "statement"
    return "rest"


def _lacks_subject(chunks: Sequence[Chunk]) -> bool:
    """Return True for *can't read a thing without them*, whose subject is *I*."""
    kinds = [chunk.kind for chunk in chunks[:3]]
    negated = len(kinds) == 3 and kinds[0] in ("DO", "HAVE", "MODAL") and chunks[1].text.lower() == "not"
    return negated and kinds[2] not in ("ANYONE", "ANYTHING", "DET", "PERSON", "THERE", "THIS")


def pronoun_of(question: str, names: Collection[str]) -> str | None:
    """Return the pronoun of a question that another sentence may explain."""
    question = _EXPLETIVE.sub("", question)
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
    clause = _TIME_CLAUSE.match(part)
    if clause is None:
        return False
    if clause["word"].lower() != "while" and _LEADING.match(part) is None:
        return True  # Something happened then, as in *shortly after the doorbell rang*.
    kinds = {chunk.kind for chunk in chunks_of(question, names)}
    return bool(kinds & _TIMED) or not kinds & {"ANYONE", "NOUN"}


def without_parentheses(words: str, mentions: Callable[[str], bool]) -> Aside | None:
    """Return a question without words in parentheses, unless a point or a word of the store is among them."""
    found = _PARENTHESES.search(words)
    if found is None or any(mentions(word) for word in found["inside"].split()):
        return None
    rest = f"{words[: found.start()].rstrip()} {words[found.end() :].lstrip()}"
    return Aside(rest.strip(), remark_on(found["inside"]))


def without_purpose(words: str) -> Aside | None:
    """Return a question without its last clause if that names a purpose: *that I have to clean*."""
    found = _PURPOSE.search(words)
    if found is None:
        return None
    return Aside(words[: found.start()], remark_on(found[0].strip(" ,")))


def without_clause(words: str, names: Collection[str]) -> Aside | None:
    """Return a question without its first clause about a person, such as *that I can use*."""
    circumstance = _CIRCUMSTANCE.search(words)
    if circumstance is not None:
        return Aside(words[: circumstance.start()], remark_on(circumstance[0].strip(" ,")))
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
            return Aside(rest, remark_on(said))
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
    subject = next((place for place, chunk in enumerate(said) if chunk.kind == "PERSON"), None)
    if subject is None:
        return True
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


def without_owners(words: str, names: Collection[str], knows: Callable[[str], bool]) -> Aside | None:
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
        return Aside(rest, f"Owners are not stored: {remark_on(' '.join(owner))}")
    return None


def _is_person(owner: str, knows: Callable[[str], bool] | None) -> bool:
    """Return True for *daughter's*, and for *John's* if it has no determiner and ``knows`` is given."""
    word = owner.lower()
    person = word[:-2] if word.endswith("'s") else word[:-1]
    if person in PERSONS:
        return True
    return knows is not None and word.endswith("'s") and person not in _NO_NAMES and not knows(person)
