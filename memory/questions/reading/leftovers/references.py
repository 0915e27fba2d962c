"""Objects that a question describes by their place, or by another noun of the question.

*The whiteboard in the meeting room* is one known object, and *the standing one* after *desks* is the standing
desk. The name or the id of the object replaces the description.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory.questions.reading.arguments import pattern
from memory.questions.reading.grammar import PREPOSITIONS, Chunk, chunks_of
from memory.questions.reading.leftovers.asides import Aside, remark_on
from memory.questions.reading.leftovers.modifiers import head_of, is_definite
from memory.questions.reading.vocabulary import NamedObject, Vocabulary
from memory.wording.stems import stems

_ONE = pattern(
    r"\b(?P<start>the|another|a|an|every) (?P<word>(?!other\b|only\b|same\b)\w+ )?(?P<one>ones?)\b"
)
#: *The armchair included*: an object that belongs to the others anyway.
_INCLUDED = pattern(
    r",? (?:(?:including|incl\.?|counting) (?P<after>[\w ]+)|(?P<before>[\w ]+?),? (?:included|as well|too))$"
)
#: Parts of a room that the store does not know, so the room is meant.
_PARTS = (
    "wall",
    "floor",
    "ceiling",
    "corner",
    "carpet",
    "side",
    "end",
    "area",
    "part",
    "windowsill",
    "walls",
)
_ON_FLOOR = pattern(
    r"\b(?:(?:standing|lying|sitting|left|placed) (?:about |around )?)?on the (?:(?P<before>[\w ]+?) )?"
    r"(?P<floor>floor|ground)\b(?: of (?:the )?(?P<after>[\w ]+?)(?=$| that| which))?"
)
_LIST = pattern(r"^(?:what|which|anything|is (?:there )?anything|are there any|list|show)\b")
#: Classes of questions for several objects.
_LISTING = frozenset({"ALL", "ANY", "COUNT", "NOT", "QUANTITY", "WHICH"})
#: What joins several questions, of which the later ones may have a pronoun for the object of the first.
_QUESTIONS = pattern(r"\? +|[?,]? and (?=(?:where|when|how|what|which|is|are|was|were|has|have|did|do)\b)")
_IT = pattern(r"\b(?P<it>it|them|they|he|she)\b(?! true| correct)")


def with_followed_names(words: str, store: Vocabulary) -> Aside | None:
    """Return several questions with the object of the first one in place of *it* in the others."""
    first, *others = _QUESTIONS.split(words)
    chunks = chunks_of(first.rstrip("?"), store.names())
    nouns = (chunk.text for chunk in chunks if chunk.kind == "NOUN")
    names = {noun if noun.startswith("#") else head_of(noun, store) for noun in nouns}
    names -= {None, *(name for name in names if name is not None and store.is_place(name))}
    found = next(filter(None, map(_IT.search, others)), None)
    if found is None or len(names) != 1:
        return None
    name = f"the {next(iter(names))}"
    remark = f"'{found['it']}' was read as '{name}'."
    return Aside("? ".join([first, *(_IT.sub(name, other) for other in others)]), remark)


def without_one(words: str, store: Vocabulary) -> Aside | None:
    """Return *all desks except the standing one* as *all desks except the standing desk*."""
    found = _ONE.search(words)
    if found is None:
        return None
    before = [chunk for chunk in chunks_of(words[: found.start()], store.names()) if chunk.kind == "NOUN"]
    heads = [head_of(chunk.text, store) for chunk in before]
    head = next((each for each in reversed(heads) if each is not None), None)
    if head is None:
        return None
    name = f"{found['start']} {found['word'] or ''}{head}"
    return Aside(
        f"{words[: found.start()]}{name}{words[found.end() :]}", f"'{found[0]}' was read as '{name}'."
    )


def without_included(words: str, store: Vocabulary) -> Aside | None:
    """Return *how many chairs are there* for *how many chairs are there, the armchair included*."""
    found = _INCLUDED.search(words)
    if found is None:
        return None
    named = re.sub(
        r"^(?:the|my|our|all) ", "", (found["after"] or found["before"]).strip(" ,"), flags=re.IGNORECASE
    )
    rest = words[: found.start()]
    nouns = [chunk.text for chunk in chunks_of(rest, store.names()) if chunk.kind == "NOUN"]
    among = {each.id for noun in nouns[:1] for each in store.objects(noun)}
    ids = {each.id for each in store.described(named)}
    belongs = store.is_place(named) or (bool(ids) and ids <= among)
    return Aside(rest, remark_on(found[0].strip(" ,"))) if belongs else None


def with_placed_objects(words: str, store: Vocabulary) -> Aside | None:
    """Return a question with the ids of single objects in place of *the whiteboard in the meeting room*."""
    chunks = chunks_of(words, store.names())
    if _LISTING & {chunk.kind for chunk in chunks}:
        return None  # In "chairs next to the table in the kitchen", the place may be that of the chairs.
    places = [place for place in range(len(chunks)) if _is_placed(chunks, place, store)]
    remarks: list[str] = []
    for place in places:
        end = place + 2 if chunks[place + 2].kind == "NOUN" else place + 3
        noun, room = chunks[place].text, chunks[end].text
        objects = store.objects(noun, room) if store.is_place(room) else _mentioning(noun, room, store)
        said = " ".join(chunk.text for chunk in chunks[place : end + 1])
        if len(objects) != 1 or said not in words:
            continue
        words = words.replace(said, f"#{objects[0].id}", 1)
        remarks.append(f"'{said}' is memory {objects[0].id}.")
    return Aside(words, " ".join(remarks)) if remarks else None


def without_part_of_room(words: str, store: Vocabulary) -> Aside | None:
    """Return *the television in the living room* for *the television on the living room wall*.

    Only one object may be meant, because more can be in a room than on its wall.
    """
    chunks = chunks_of(words, store.names())
    for place in range(2, len(chunks)):
        *room, part = chunks[place].text.split()
        start = place - 2 if chunks[place - 1].kind == "DET" else place - 1
        if part.lower() not in _PARTS or not room or not store.is_place(" ".join(room)) or start < 2:
            continue
        before = chunks[start - 1]
        single = (
            before.kind == "NOUN" and is_definite(chunks, start - 1) and len(store.objects(before.text)) == 1
        )
        said = " ".join(chunk.text for chunk in chunks[start : place + 1])
        if chunks[start].kind in ("IN", "ON", "NEAR") and single and said in words:
            return Aside(words.replace(said, f"in the {' '.join(room)}", 1), remark_on(said))
    return None


def without_floor(words: str, store: Vocabulary) -> Aside | None:
    """Return *what is lower than 10 cm in the hallway* for *what is on the hallway floor*."""
    found = _ON_FLOOR.search(words)
    if found is None or not _LIST.match(words) or store.knows(found["floor"]):
        return None
    room = found["before"] or found["after"]
    if room is not None and not store.is_place(room):
        return None
    plain = f"lower than 10 cm{f' in the {room}' if room else ''}"
    rest = f"{words[: found.start()]}{plain}{words[found.end() :]}"
    return Aside(rest, f"'{found[0]}' was read as 'less than 10 cm above the floor'.")


def without_second_place(words: str, store: Vocabulary) -> Aside | None:
    """Return *what is on the night stand* for *what is on the night stand next to her bed*.

    The first landmark must be a single object, so that the second one adds nothing.
    """
    chunks = chunks_of(words, store.names())
    nouns = [place for place, chunk in enumerate(chunks) if chunk.kind == "NOUN"]
    if len(nouns) < 2 or nouns[-1] != len(chunks) - 1:
        return None
    first, second = nouns[-2:]
    middle = [chunk.kind for chunk in chunks[first + 1 : second] if chunk.kind != "DET"]
    start = [chunk.kind for chunk in chunks[:first] if chunk.kind not in ("ALL", "DET", "FILLER", "THIS")]
    placed = len(middle) == 1 and middle[0] in PREPOSITIONS and start and start[-1] in PREPOSITIONS
    if not store.objects(chunks[second].text):
        return None
    if not placed or not is_definite(chunks, first) or len(store.objects(chunks[first].text)) != 1:
        return None
    said = " ".join(chunk.text for chunk in chunks[first + 1 :])
    if not words.endswith(said):
        return None
    return Aside(words.removesuffix(said).strip(), remark_on(said))


def _is_placed(chunks: Sequence[Chunk], place: int, store: Vocabulary) -> bool:
    """Return True if a noun with *the* stands before *in* and the name of a place."""
    after = [chunk for chunk in chunks[place + 1 : place + 4] if chunk.kind != "DET"]
    return (
        chunks[place].kind == "NOUN"
        and is_definite(chunks, place)
        and len(after) > 1
        and after[0].kind in ("IN", "ON", "NEAR")
        and after[1].kind == "NOUN"
        and (store.is_place(after[1].text) or not store.knows(after[1].text))
    )


def _mentioning(noun: str, words: str, store: Vocabulary) -> list[NamedObject]:
    """Return the objects of a name whose captions have further words: *the desk by the window*."""
    wanted = set(stems(words))
    return [each for each in store.objects(noun) if wanted <= set(stems(each.words))]
