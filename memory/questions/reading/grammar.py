"""The grammar of questions: chunks of words, then an intent by the classes of the chunks.

A question is cut into chunks: function words by their class (:mod:`memory.questions.reading.lexicon`), and
noun phrases of all other words. ``where did you see the red mug near the sofa`` becomes ``WHERE DO PERSON
SEE`` *red mug* ``NEAR`` *sofa*. A noun phrase after a preposition is a landmark, the other one is the target.
The first row of `_INTENTS` whose classes are there decides. A chunk that no row uses is refused, never left
out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from memory.questions.boxes import Relation
from memory.questions.reading.lexicon import LONGEST, NUMBERS, PHRASES, THINGS
from memory.wording import fold

_ID = re.compile(r"#?\d{1,18}$")
_TOKEN = re.compile(r"#?\d+(?:\.\d+)?(?![\w:-])|[,;]|[^\s,;]+")
_IN_UNITS = re.compile(r"how many (?:different )?(?P<unit>(?:second|minute|hour|day|week)s)\b", re.IGNORECASE)
#: Contractions, written out.
_CONTRACTIONS = (
    (re.compile(r"\b(wh\w+|how|that|there|it|he|she)'s\b", re.IGNORECASE), r"\1 is"),
    (re.compile(r"\b(what|where|who|how)s\b(?!')", re.IGNORECASE), r"\1 is"),
    (re.compile(r"\bi'm\b", re.IGNORECASE), "I am"),
    (re.compile(r"\b(wh(?:at|ere|o|en)|how)'d\b", re.IGNORECASE), r"\1 did"),
    (re.compile(r"\b(i|you|he|she|we|they|it)'d\b", re.IGNORECASE), r"\1 would"),
    (re.compile(r"\b(i|you|he|she|we|they|it)'ll\b", re.IGNORECASE), r"\1 will"),
    (re.compile(r"\b(\w+)'re\b", re.IGNORECASE), r"\1 are"),
    (re.compile(r"\b(\w+)'ve\b", re.IGNORECASE), r"\1 have"),
    (re.compile(r"\bcan'?t\b", re.IGNORECASE), "can not"),
    (re.compile(r"\b((?:is|are|was|were|ha[sd]|have|do|does|did))nt\b", re.IGNORECASE), r"\1 not"),
    (re.compile(r"\bive\b", re.IGNORECASE), "I have"),
    (re.compile(r"\b(\w+)n't\b", re.IGNORECASE), r"\1 not"),
)
#: Classes that stand before a noun phrase as adjectives: *the parked car*, *my old bike*, *the front door*.
_ADJECTIVES = frozenset({"ACT", "ATTRIBUTE", "CHANGE", "COMPARE", "QUALITY", "SIMILAR", "STAY"})
#: Classes before the first word that matters, and classes without a meaning for the intent.
_UNSTRESSED = frozenset({"ANYONE", "DET", "FILLER", "MODAL", "PERSON"})
#: Words of seeing that are about now.
_SEEN_NOW = ("see", "sees", "visible", "in view", "known", "stored", "recorded", "remember", "perceive")
#: Deeds of *anyone*; without them, *anyone* is the object of the question.
_DEEDS = frozenset({"APPEAR", "CHANGE", "HAPPEN", "LEFT", "MOVE"})
_SILENT = frozenset({"ALL", "ANY", "DET", "FILLER", "OF", "TO"})
#: Words after *newest* that mean the last observation, not the last object to appear.
_OBSERVATIONS = ("memory", "memories", "observation", "observations", "sighting", "sightings")
#: Relation to a landmark by the class of the preposition; the others mean the surroundings.
RELATION_OF: Mapping[str, Relation] = {
    "ON": "on",
    "CARRYING": "carrying",
    "IN": "inside",
    "NEXT": "next to",
    "BETWEEN": "between",
    "UNDER": "under",
    "ABOVE": "above",
    "SIDE_LEFT": "left of",
    "SIDE_RIGHT": "right of",
    "SIDE_FRONT": "in front of",
    "SIDE_BACK": "behind",
}
#: Classes of prepositions.
PREPOSITIONS = frozenset({*RELATION_OF, "NEAR"})


#: Words that ask for something else than whether an object is still there.
_NO_STATES = ("new", "different", "together")


class Chunk(NamedTuple):
    """Words of a question.

    Attributes:
        kind: class of function words, or ``"NOUN"``.
        text: the words.
    """

    kind: str
    text: str


@dataclass
class Parse:
    """A question in parts.

    Attributes:
        question: the intent, one of the questions of the store or ``"nearest"``; None if no row fits.
        target: words of what the question is about.
        landmarks: the preposition of each object whose place is meant, and its words.
        functions: chunks of function words.
        unparsed: noun phrases that no rule uses.
        dangling: True if a pronoun stands for an object, as in *under it* and *see me*.
    """

    question: str | None
    target: str | None
    landmarks: list[Chunk] = field(default_factory=list)
    functions: list[Chunk] = field(default_factory=list)
    unparsed: list[Chunk] = field(default_factory=list)
    dangling: bool = False

    @property
    def nouns(self) -> tuple[str, ...]:
        """All noun phrases."""
        target = () if self.target is None else (self.target,)
        return (*target, *(chunk.text for chunk in (*self.landmarks, *self.unparsed)))

    def has(self, *kinds: str) -> bool:
        """Return True if there is a function word of one of these classes."""
        return any(chunk.kind in kinds for chunk in self.functions)

    def means_objects(self) -> bool:
        """Return True for *things* or *objects*, which are not the places that the robot visited."""
        return any(chunk.kind == "ANYTHING" and chunk.text.lower() in THINGS for chunk in self.functions)


def chunks_of(text: str, names: Collection[str] = ()) -> list[Chunk]:
    """Cut a question into chunks.

    Args:
        text: without times and points.
        names: labels of the store; words of a label are a noun phrase, whatever their class.
    """
    for contraction, written_out in _CONTRACTIONS:
        text = contraction.sub(written_out, text)
    tokens = _TOKEN.findall(text)
    known = {tuple(fold(name).split()) for name in names}
    longest_name = max(map(len, known), default=0)
    chunks: list[Chunk] = []
    at = 0
    while at < len(tokens):
        size, kind = _class_at(tokens, at, known, longest_name)
        words = " ".join(tokens[at : at + size])
        if words.lower() == "newest" and fold(" ".join(tokens[at + size : at + size + 1])) in _OBSERVATIONS:
            kind = "LAST"
        if words.lower() == "before" and at + size < len(tokens):
            following = PHRASES.get((fold(tokens[at + size]),), "NOUN")
            if following in ("ANYTHING", "DET", "NOUN", "PERSON", "THIS"):
                kind = "CLAUSE"  # Before it was seen: a time that is not known.
        if kind == "WHO" and words.lower() != "whose" and chunks and chunks[-1].kind == "NOUN":
            kind = "FILLER"  # The person who is at the door.
        if kind == "THERE" and words.lower() in ("present", "existing") and _names_next(tokens, at + size):
            kind, words = "STILL", "still"  # "Present objects" are those that are still there.
        if kind in _ADJECTIVES and _is_adjective(tokens, at, size, chunks):
            kind = "DET" if words.lower() in ("different", "parked") else "NOUN"
        if kind == "NOUN" and chunks and chunks[-1].kind == "NOUN":
            chunks[-1] = Chunk("NOUN", f"{chunks[-1].text} {words}")
        else:
            chunks.append(Chunk(kind, words))
        at += size
    return _counted(chunks)


def _counted(chunks: list[Chunk]) -> list[Chunk]:
    """Return *are there (at least) two mugs* as *are there how many mugs*: the answer has the number."""
    if not chunks or chunks[0].kind not in ("BE", "DO", "HAVE"):
        return chunks
    place = next((place for place, chunk in enumerate(chunks) if chunk.kind == "NOUN"), 0)
    number, _, rest = chunks[place].text.partition(" ")
    before = chunks[place - 1].kind
    if before == "THAN" or any(chunk.kind == "ANYTHING" for chunk in chunks[:place]):
        return chunks  # Is anything longer than 5 m?
    if not (number.isdecimal() or number.lower() in NUMBERS) or not rest or before in PREPOSITIONS:
        return chunks
    start = chunks[: place - 1] if before == "QUANTITY" else chunks[:place]
    return [*start, Chunk("COUNT", number), Chunk("NOUN", rest), *chunks[place + 1 :]]


def is_past(chunks: Sequence[Chunk]) -> bool:
    """Return True if a question is about what was there: *were there*, *did you see*, *have you seen*."""
    past = ("was", "were", "did", "had", "been")
    return any(
        chunk.text.lower() in past or (chunk.kind == "SEE" and chunk.text.lower() not in _SEEN_NOW)
        for chunk in chunks
    )


def unit_of(chunks: Sequence[Chunk]) -> str | None:
    """Return the unit of *how many days ago* and *for how many hours*; None for other questions."""
    said = (_IN_UNITS.search(chunk.text) for chunk in chunks if chunk.kind in ("LONG", "OFTEN", "WHEN"))
    return next((found["unit"].lower() for found in said if found is not None), None)


def holds_function_word(label: str) -> bool:
    """Return True if a label has a word that questions are made of, such as ``stop at line``."""
    return any((fold(token),) in PHRASES for token in _TOKEN.findall(label))


def subject_of(description: str) -> str:
    """Return the words of a description before its first preposition: *a mug* of *a mug next to the sink*."""
    chunks = chunks_of(description)
    cut = next((place for place, chunk in enumerate(chunks) if _adds_detail(chunk)), len(chunks))
    return " ".join(chunk.text for chunk in chunks[:cut])


def _adds_detail(chunk: Chunk) -> bool:
    return chunk.kind in (*PREPOSITIONS, "TO") or chunk.text.lower() in ("with", "without")


def _class_at(
    tokens: Sequence[str], at: int, names: Collection[tuple[str, ...]], longest_name: int
) -> tuple[int, str]:
    """Return how many tokens the chunk at a place has, and its class."""
    folded = [fold(token) for token in tokens[at : at + max(LONGEST, longest_name)]]
    for size in range(min(longest_name, len(folded)), 0, -1):
        if tuple(folded[:size]) in names:
            return size, "NOUN"
    for size in range(min(LONGEST, len(folded)), 0, -1):
        kind = PHRASES.get(tuple(folded[:size]))
        # An area called "office" is meant by "in the office", which otherwise means everywhere.
        named = size > 1 and kind == "FILLER" and tuple(folded[size - 1 : size]) in names
        if kind is not None and not named:
            return size, kind
    return 1, "STOP" if folded[0] in (",", ";") else "NOUN"


def _names_next(tokens: Sequence[str], at: int) -> bool:
    """Return True if a noun or a word such as *objects* follows."""
    return at < len(tokens) and PHRASES.get((fold(tokens[at]),)) in (None, "ANYTHING")


def _is_adjective(tokens: Sequence[str], at: int, size: int, chunks: Sequence[Chunk]) -> bool:
    """Return True for a word after a determiner or noun and before a noun."""
    if at + size >= len(tokens) or not chunks or size > 1:
        return False
    following = PHRASES.get((fold(tokens[at + size]),))
    before = ("DET", "NOUN", "COUNT", "SHOW", "NEAREST")
    return chunks[-1].kind in before and following in (None, "ANYTHING")


class Intent(NamedTuple):
    """A row of the table of intents.

    Attributes:
        question: that is asked.
        needs: classes that must be there; alternatives are separated by ``|``.
        target: True if a target must be there, False if none may, None for either.
        landmark: the same of a landmark.
        first: class of the first chunk, if that matters.
        also: further classes of `_MEANINGFUL` that it answers.
    """

    question: str
    needs: str
    target: bool | None = None
    landmark: bool | None = None
    first: str = ""
    also: str = ""


#: The first row that fits decides.
_INTENTS = (
    Intent("similar_situations", "SIMILAR", first="WHAT|WHICH|SHOW|SIMILAR|ANYTHING"),
    Intent("been_here", "HERE ID"),
    Intent("been_here", "KNOW|SEE|BE HERE", target=False, first="DO|HAVE|BE", also="CHANGE"),
    Intent("seen_before", "SEE|KNOW|CHANGE THIS", target=False, first="DO|HAVE|BE"),
    Intent("seen_before", "SEE|KNOW ID EVER"),
    Intent("most", "WHERE|WHICH MOST", target=True, also="WHERE|MOST"),
    Intent("most", "WHERE|WHICH MOST ANYTHING", target=False, also="WHERE|MOST"),
    Intent("most", "WHERE EMPTIEST BE", target=False, landmark=False, also="WHERE"),
    Intent("how_often", "OFTEN", target=True, also="HAPPEN|APPEAR"),
    Intent("how_often", "LONG SEE", target=True),
    Intent("left", "LONG MOVE|LEFT", target=True),
    Intent("first_seen", "LONG", target=True),
    Intent("how_many", "COUNT", also="MOVE|LEFT|STILL|APPEAR|HAPPEN"),
    Intent("left", "WHEN|SINCE MOVE|LEFT", target=True, also="LAST|HAPPEN"),
    Intent("last_seen", "WHERE MOVE|LEFT|GO|STAY", target=True, also="LAST|WHEN"),
    Intent("visited", "WHERE BE|GO PERSON", target=False, landmark=False),
    Intent("pose_to", "GO", target=True, first="GO|HOW|SHOW", also="FIND|NEAREST|WHERE"),
    Intent("first_seen", "FIRST|SINCE", target=True, also="WHEN|WHERE|APPEAR|HAPPEN"),
    Intent("first_seen", "WHEN APPEAR", target=True, also="WHERE"),
    Intent("nearest", "NEAREST", target=True, also="WHERE|FIND"),
    Intent("nearest", "NEAREST", target=False),
    Intent("last_seen", "WHERE|WHEN|POSITION", target=True, also="LAST|FIND|WHERE|WHEN|HAPPEN"),
    Intent("search", "WHICH|SHOW|WHAT STILL", target=True),
    Intent("search", "WHICH|SHOW STILL ANYTHING", target=False),
    Intent("still_there", "STILL", target=True, also="MOVE|LEFT"),
    Intent("search", "WHICH|SHOW|WHAT MOVE|LEFT", target=True),
    Intent("search", "WHICH|SHOW MOVE|LEFT", target=False),
    Intent("search", "THERE MOVE|LEFT", target=True, first="BE"),
    Intent("search", "MOVE WHAT|ANYTHING", target=False, landmark=True),
    Intent("search", "FIND ALL|ANY|ANYTHING", target=True),
    Intent("last_seen", "FIND", target=True, also="LAST"),
    Intent(
        "still_there",
        "MOVE|LEFT|CHANGE|HAPPEN BE|HAVE|DO|WHAT",
        target=True,
        first="BE|HAVE|DO|WHAT",
        also="STILL",
    ),
    Intent("appeared", "APPEAR DO|BE|HAVE", target=True, first="DO|BE|HAVE"),
    Intent("changed_since", "FIRST SEE", target=False, landmark=False),
    Intent("changed_since", "CHANGE|MOVE|LEFT|APPEAR", target=False, also="CHANGE|MOVE|LEFT|APPEAR"),
    Intent("summarise", "DESCRIBE"),
    Intent("summarise", "SEE|KNOW WHAT", target=False, landmark=False, first="SHOW"),
    Intent("summarise", "KNOW|HAVE WHAT", target=False, landmark=False),
    Intent("near", "WHAT|WHO|ANYTHING", target=False, landmark=True),
    Intent("between", "WHAT|ANYTHING SEE|HAPPEN|BE|HAVE|APPEAR", target=False, also="HAPPEN"),
    Intent("between", "HAPPEN|SEE", target=False),
    Intent("summarise", "WHAT|ANYTHING|THERE|HERE|SHOW", target=False),
    Intent("how_many", "BE|DO THERE", target=True, first="BE|DO"),
    Intent("how_many", "ANY", target=True, first="ANY"),
    Intent("still_there", "BE", target=True, first="BE"),
    Intent("search", "WHICH|WHAT|SHOW", target=True),
    Intent("last_seen", "SEE|KNOW|HAVE", target=True, also="LAST"),
)
#: Word classes that change the meaning of a question. A row must name them to fit it.
_MEANINGFUL = frozenset({
    "APPEAR", "CHANGE", "COUNT", "DESCRIBE", "DESCRIBED", "EMPTIEST", "FIND", "FIRST", "GO", "HAPPEN", "LAST",
    "LEFT", "LONG", "MOVE", "MOST", "NEAREST", "OFTEN", "POSITION", "SIMILAR", "SINCE", "STILL", "UNSEEN",
    "WHEN", "WHERE",
})  # fmt: skip


def parse(chunks: Sequence[Chunk]) -> Parse:
    """Return the parts of a question that is cut into chunks, without times, points and maps."""
    functions = [
        chunk
        for place, chunk in enumerate(chunks)
        if chunk.kind != "NOUN" and (chunk.kind not in ("AND", "STOP") or _joins(chunks, place))
    ]
    if functions and functions[0].kind in ("BE", "DO", "HAVE"):
        functions = _affirmed(chunks, functions)
    target, landmarks, unparsed = _nouns_of(chunks)
    if any(mark.kind == "BETWEEN" for mark in landmarks):
        functions = [chunk for chunk in functions if chunk.kind != "AND"]
    kinds = frozenset(chunk.kind for chunk in functions)
    if target is None and "ANYONE" in kinds and kinds & {"BE", "SEE", "STAY"} and not kinds & _DEEDS:
        target = "person"
    first = next((chunk.kind for chunk in functions if chunk.kind not in _UNSTRESSED), "")
    if target is not None and _ID.match(target):
        kinds |= {"ID"}
    fitting = (row.question for row in _INTENTS if _fits(row, kinds, target, bool(landmarks), first))
    question = next(fitting, None)
    if first != "WHERE" and chunks and chunks[-1].kind in RELATION_OF:
        question = None  # What can I sit on?
    if first == "WHERE" and target is not None and "ANYTHING" in kinds:
        question = None  # Where is the thing for the television?
    if question == "still_there" and any(each.text.lower() in _NO_STATES for each in functions):
        question = None  # Is the backpack new?
    if first in ("WHAT", "WHICH") and functions[0].kind != "WHERE" and "WHERE" in kinds:
        question = None  # A question within a question: what is in the room where the table is?
    if question is None and target is not None and kinds <= _SILENT | PREPOSITIONS | {"ID"}:
        question = "search"
    # "Which room has the sofa in it" means the room.
    dangling = first != "WHERE" and any(_dangles(*pair) for pair in pairwise(chunks))
    return Parse(question, target, landmarks, functions, unparsed, dangling)


def _affirmed(chunks: Sequence[Chunk], functions: list[Chunk]) -> list[Chunk]:
    """Return the function words of *is there no chair* as those of *is there a chair*.

    The answer to both is the same fact.
    """
    nouns = (place for place, chunk in enumerate(chunks) if chunk.kind == "NOUN")
    start = chunks[: next(nouns, len(chunks))]
    negated = next((chunk for chunk in start if chunk.text.lower() in ("no", "not")), None)
    return [chunk for chunk in functions if chunk is not negated]


def _dangles(chunk: Chunk, after: Chunk) -> bool:
    """Return True for *under it* and *see me*."""
    if chunk.kind == "SEE":
        return after.text.lower() in ("me", "us")
    return chunk.kind in PREPOSITIONS and after.kind == "THIS"


class _Nouns(NamedTuple):
    """Noun phrases of a question: see :class:`Parse`."""

    target: str | None
    landmarks: list[Chunk]
    unparsed: list[Chunk]


def _nouns_of(chunks: Sequence[Chunk]) -> _Nouns:
    """Tell target and landmark apart by the function words in front of them."""
    target: tuple[int, str] | None = None
    landmarks: list[Chunk] = []
    unparsed: list[Chunk] = []
    nearest = any(chunk.kind == "NEAREST" for chunk in chunks)
    for place, chunk in enumerate(chunks):
        if chunk.kind != "NOUN":
            continue
        said = [each for each in chunks[:place] if each.kind not in _SILENT]
        before, words = (said[-1].kind, said[-1].text.lower()) if said else ("", "")
        to = any(each.kind == "TO" for each in chunks[max(place - 2, 0) : place])
        closest_to = before == "NEAREST" and (target is not None or words.endswith((" to", " from")))
        nearest_to = nearest and (to or closest_to)
        if before in PREPOSITIONS and _may_follow(landmarks, before):
            landmarks.append(Chunk(before, chunk.text))
        elif before == "AND" and landmarks and landmarks[-1].kind == "BETWEEN":
            landmarks.append(Chunk("BETWEEN", chunk.text))
        elif nearest_to and _may_follow(landmarks, "NEAREST"):
            landmarks.append(Chunk("NEAREST", chunk.text))
        elif not landmarks and _leaves(chunks[:place]):
            landmarks.append(Chunk("IN", chunk.text))
        elif before in PREPOSITIONS:
            unparsed.append(chunk)  # On the stand next to the bed: a place of the place.
        elif target is None:
            target = (place, chunk.text)
        elif not landmarks and before == "NOUN" and chunks[place - 1].kind in _SILENT:
            # A bottle of water, the letter from the bank.
            target = (target[0], " ".join(each.text for each in chunks[target[0] : place + 1]))
        else:
            unparsed.append(chunk)
    return _Nouns(None if target is None else target[1], landmarks, unparsed)


def _may_follow(landmarks: Sequence[Chunk], preposition: str) -> bool:
    """Return True if another landmark may follow: one place to be in, and one object to be at."""
    return not any((mark.kind == "IN") == (preposition == "IN") for mark in landmarks)


def _leaves(chunks: Sequence[Chunk]) -> bool:
    """Return True after words such as *disappeared from* and *added to*, which name the place of a change."""
    said = [chunk for chunk in chunks if chunk.kind not in ("DET", "FILLER", "ALL")]
    moved = bool(said) and said[-1].kind == "MOVE" and said[-1].text.lower().endswith(" from")
    if moved or len(said) < 2:
        return moved
    changes = {"from": ("MOVE", "LEFT"), "to": ("APPEAR",)}
    return said[-2].kind in changes.get(said[-1].text.lower(), ())


def _joins(chunks: Sequence[Chunk], place: int) -> bool:
    """Return True if a comma or *and* stands between two noun phrases, or before a second question."""
    after = next((each.kind for each in chunks[place + 1 :] if each.kind not in _SILENT), "")
    # One answer has the place and the time of an object. Other questions need two.
    second = chunks[place].kind == "AND" and after in ("COUNT", "FAR", "LONG", "OFTEN", "WHICH", "WHO", "WHY")
    return (after == "NOUN" or second) and any(each.kind == "NOUN" for each in chunks[:place])


def _fits(intent: Intent, kinds: frozenset[str], target: str | None, landmark: bool, first: str) -> bool:
    if intent.target is not None and intent.target != (target is not None):
        return False
    if intent.landmark is not None and intent.landmark != landmark:
        return False
    if intent.first and first not in intent.first.split("|"):
        return False
    groups = [set(group.split("|")) for group in intent.needs.split()]
    answered = set(intent.also.split("|")).union(*groups)
    return all(kinds & group for group in groups) and kinds & _MEANINGFUL <= answered
