"""Sentences of answers and refusals, with the words of the question and of the store."""

from __future__ import annotations

from collections.abc import Sequence

from memory.query import Filter
from memory.questions.answers import (
    THAT_LEFT,
    Answer,
    Changed,
    DrivePose,
    HowMany,
    HowOften,
    SearchResult,
    Sighting,
    Similar,
    StillThere,
    WhenLeft,
    quoted,
)
from memory.questions.asking import Questions
from memory.questions.boxes import box_of
from memory.questions.changes import Happened
from memory.questions.comparisons import Distance, Related
from memory.questions.measuring import time_of
from memory.questions.places import areas_around, names_place, room_meant
from memory.questions.ranking import Ordering
from memory.questions.reading.arguments import metres_in
from memory.questions.reading.lexicon import PHRASES
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.reading.refusals import EXAMPLES, TOO_MANY
from memory.questions.visits import DAY_NS
from memory.terms import fold
from memory.types import AWAY, Memory
from memory.wording.meaning import is_word
from memory.wording.words import (
    DAY_S,
    STATE_WORDS,
    counted,
    duration,
    listed,
    moment,
    name,
    plural,
    point,
)

EMPTY = "The store is empty. Add memories to it first."
#: Seconds of the units that questions ask for.
_SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": DAY_S, "weeks": 7 * DAY_S}


def answer_sentence(questions: Questions, parsed: ParsedQuestion, found: Answer) -> str:
    """Return the sentence of an answer. If nothing was found, add what the store has."""
    sentence = str(found)
    nothing = sentence.startswith("No memor")
    if (nothing or isinstance(found, Changed)) and is_empty(questions):
        return EMPTY
    if not nothing:
        extent = _extent_sentence(parsed, found)
        if parsed.describes and isinstance(found, Sighting) and found.memory and found.memory.caption:
            extent += f" Its caption is {quoted(found.memory.caption)}."
        after = f"{_area_sentence(questions, found)}{extent}{_caption_sentence(questions, parsed, found)}"
        return f"{_amount_first(parsed, found)}{sentence}{after}"
    words = found.what if isinstance(found, SearchResult) else getattr(found, "what", "")
    words = words.removesuffix(THAT_LEFT)
    named = words and not isinstance(found, Similar) and not isinstance(parsed.what, int)
    if named and not questions.knows(words.partition(" (read for ")[0]):
        if parsed.described:
            return f"No caption has the words {quoted(words)}. {_store_contents(questions)}"
        unknown = f"I don't know an object called {quoted(words)}."
        if parsed.typed:
            foreign = " I only understand questions in English, and know none of these words."
            unknown = f"No memories match {quoted(words)}.{foreign if _is_foreign(questions, words) else ''}"
        mention = mention_of(questions, words)
        if mention is not None:
            return f"{unknown} The caption of {name(mention)} mentions it: {mention.caption!r}."
        if words.split()[-1].isdecimal():
            return f"{unknown} Name a memory by its id, for example: 'where is memory {words.split()[-1]}?'"
        # Without "house" the question is another one, so "house keys" is not read as "keys".
        head = questions.label_of(words.split()[-1]) if len(words.split()) > 1 else None
        if head is not None:
            return f"{unknown} Ask for {head} alone, for example: 'where is the {head.lower()}?'"
        return f"{unknown} {_examples(questions)} {_store_contents(questions)}"
    if isinstance(found, Sighting | WhenLeft | DrivePose | HowOften | StillThere):
        # The object may be known elsewhere, so name the place.
        limit = "" if parsed.map_id is None else f" in map {parsed.map_id}"
        limit = limit if parsed.area is None else f" in area {parsed.area}{limit}"
        if parsed.near is not None and parsed.radius_m is not None:
            limit = f" within {parsed.radius_m:g} m of {point(parsed.near)}{limit}"
        sentence = f"{sentence[:-1]}{limit}."
    return f"{sentence} {_store_contents(questions, timed=time_of(parsed) is not None)}"


def is_empty(questions: Questions) -> bool:
    """Return True if the store has no memories."""
    return not questions.store.label_counts()


def _is_foreign(questions: Questions, words: str) -> bool:
    """Return True for several words, or one in another script, that neither we nor the store knows."""
    each = words.split()
    return (len(each) > 1 or not words.isascii()) and not any(
        is_word(word) or (fold(word),) in PHRASES or mention_of(questions, word) for word in each
    )


def _extent_sentence(parsed: ParsedQuestion, found: Answer) -> str:
    """Return how long ago an observation was, or a distance in the unit that the question names."""
    if isinstance(found, Distance) and parsed.unit is not None and found.distance_m is not None:
        return f" That is {found.distance_m / metres_in(parsed.unit):.1f} {parsed.unit}."
    if isinstance(found, Ordering) and parsed.unit is not None and found.first:
        return f" That is {_in_lengths(found, parsed.unit)}."
    days = parsed.time_unit in (None, "days")
    if isinstance(found, HowOften) and parsed.stayed and found.first_ns is not None and days:
        return f" That is {duration(_span_s(found))} from the first to the last observation."
    when = _time_of(found)
    if parsed.now_ns is None or when is None or when > parsed.now_ns:
        return ""
    text = "" if parsed.time_unit else f" That is {duration((parsed.now_ns - when) / 1e9)} ago."
    memory = found.memory if isinstance(found, Sighting) and parsed.stayed else None
    if memory is not None and memory.state in AWAY:
        text += f" It is {STATE_WORDS[memory.state]} now, last seen on {moment(memory.last_sight_ns)}."
    return text


def _in_lengths(found: Ordering, unit: str) -> str:
    """Return the value of the first object in a unit of length; of a volume, the sides of the box."""
    box = box_of(found.memories[0]) if found.measure == "size" else None
    values = (found.first[0].value,) if box is None else (box.length, box.width, box.height)
    return f"{' x '.join(f'{value / metres_in(unit):.1f}' for value in values)} {unit}"


def _caption_sentence(questions: Questions, parsed: ParsedQuestion, found: Answer) -> str:
    """Return that a word such as *grey* was searched in captions."""
    what = parsed.what
    if not isinstance(what, str) or not isinstance(found, Happened | HowMany | Related | SearchResult):
        return ""
    plain = isinstance(found, Happened | SearchResult) and " " not in what and not parsed.typed
    named = questions.label_of(what) or questions.synonym_of(what) or questions.category_of(what)
    if not (parsed.described or plain) or named:
        return ""
    return f" '{what}' is a description in captions; other properties are not stored."


def _amount_first(parsed: ParsedQuestion, found: Answer) -> str:
    """Return the number of days or hours that a question asks for, to begin the sentence with it.

    Days are those of the calendar in UTC.
    """
    unit = parsed.time_unit
    if unit is None:
        return ""
    if isinstance(found, HowOften) and found.first_ns is not None and found.last_ns is not None:
        if unit != "days":
            seconds, what = found.total_s, "in view"
            if parsed.stayed:
                seconds, what = _span_s(found), "from the first to the last observation"
            return f"{_in_unit(seconds, unit)} {what}: "
        if not parsed.stayed:
            return f"{plural(found.days, 'day')}: "
        days = plural(found.last_ns // DAY_NS - found.first_ns // DAY_NS + 1, "day")
        return f"{days} from the first to the last day, with observations on {found.days}: "
    when = _time_of(found)
    if parsed.now_ns is None or when is None or when > parsed.now_ns:
        return ""
    seconds = (parsed.now_ns - when) / 1e9
    since = "since its first observation" if parsed.stayed else "ago"
    if unit == "days":
        days = plural(parsed.now_ns // DAY_NS - when // DAY_NS, "day")
        return f"{days} {since} by the calendar ({duration(seconds)}): "
    return f"{_in_unit(seconds, unit)} {since}: "


def _time_of(found: Answer) -> int | None:
    """Return the time of the observation that an answer is about."""
    if isinstance(found, Sighting):
        return found.time_ns
    return found.last_seen_ns if isinstance(found, WhenLeft) else None


def _span_s(found: HowOften) -> float:
    """Return the time from the first to the last observation in seconds."""
    return ((found.last_ns or 0) - (found.first_ns or 0)) / 1e9


def _in_unit(seconds: float, unit: str) -> str:
    return f"{seconds / _SECONDS[unit]:.1f} {unit}"


def mention_of(questions: Questions, words: str) -> Memory | None:
    """Return the latest memory whose caption has the words as a detail, or ``None``."""
    return next(iter(questions.store.find(Filter(text=words), limit=1, vectors=False)), None)


def _area_sentence(questions: Questions, found: Answer) -> str:
    """Return in which areas an object was seen."""
    memory = found.memory if isinstance(found, Sighting | StillThere) else None
    if memory is None or memory.position is None:
        return ""
    names = areas_around(questions.store.areas(), *memory.position[:2], memory.map_id)
    return f" That is in {listed(names)}." if names else ""


def refusal(questions: Questions, problem: str, nouns: Sequence[str]) -> str:
    """Return the reason of a refusal, with the words of the question that the store knows or does not."""
    places = {fold(name) for name in (*questions.store.maps(), *(a.name for a in questions.store.areas()))}
    known = [noun for noun in nouns if questions.knows(noun) or fold(noun) in places]
    unknown = [noun for noun in nouns if noun not in known]
    if "{noun}" in problem and not unknown:
        problem = TOO_MANY.replace("{nouns}", listed([f"'{noun}'" for noun in nouns]))
    labels = (questions.label_of(noun) for noun in known)
    thing = next((label.lower() for label in labels if label), None) or example_of(questions)
    return problem.replace("{noun}", next(iter(unknown), "")).replace("{thing}", thing)


def _examples(questions: Questions) -> str:
    """Return example questions that the store can answer."""
    *others, last = (f"'{each.format(thing=example_of(questions))}'" for each in EXAMPLES)
    return f"Ask for example: {', '.join(others)} or {last}."


def example_of(questions: Questions) -> str:
    """Return the most frequent label, for example questions."""
    labels = sorted(questions.store.label_counts().items(), key=lambda entry: (-entry[1], entry[0]))
    return next((label.lower() for label, _ in labels if label), "mug")


def _store_contents(questions: Questions, *, timed: bool = False) -> str:
    """Return a sentence about the memories of the store, or about the newest one."""
    if timed:
        return f"The newest memory is of {moment(questions.store.newest_ns)}."
    counts = questions.store.label_counts()
    return f"The store has {plural(sum(counts.values()), 'memory', 'memories')}: {counted(counts)}."


def synonyms_note(questions: Questions, parsed: ParsedQuestion) -> str:
    """Return which words were read as a label or an area that means the same."""
    sides = parsed.sides or ()
    named = [
        each for part in (parsed, *sides) for each in (part.what, part.beside, part.beside_too, part.room)
    ]
    words = [word for word in named if isinstance(word, str) and not names_place(questions.store, word)]
    synonyms = {
        word: room_meant(questions.store, word) or questions.synonym_of(word)
        for word in words
        if questions.label_of(word) is None
    }
    notes = [f"'{word}' read as '{label}'" for word, label in synonyms.items() if label is not None]
    return f"({', '.join(notes)}.)" if notes else ""
