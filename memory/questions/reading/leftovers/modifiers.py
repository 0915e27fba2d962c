"""Words around the name of an object that the store does not know: *my trusty old ladder*.

*The* and *my* say that there is such an object. If the store has only one object of this name, further words
cannot make it another one. Of several objects, the one whose caption has such a word is meant. Words that may
contradict what is stored, such as colours, are never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memory.questions.reading.grammar import PREPOSITIONS, Chunk, chunks_of
from memory.questions.reading.leftovers.asides import Aside
from memory.questions.reading.lexicon import NUMBERS, ORDINALS, PHRASES
from memory.questions.reading.vocabulary import NamedObject, Vocabulary
from memory.terms import fold
from memory.wording.stems import stem, stems

#: Determiners of an object that both sides know.
_DEFINITE = frozenset({
    "the", "my", "our", "your", "ur", "his", "her", "their", "its", "teh", "this", "that", "these", "those",
})  # fmt: skip
#: Classes that may stand between a determiner and its noun.
_BETWEEN = ("ALL", "FILLER")
#: Words that choose one of several objects, or make another object of it. They are never left out.
_CHOOSING = frozenset({
    *NUMBERS, *ORDINALS, "one", "first", "last", "next", "other", "another", "same", "different", "spare",
    "extra", "additional", "replacement", "backup", "new", "newer", "older", "only", "single", "left",
    "right", "upper", "lower", "top", "bottom", "front", "back", "rear", "main", "outer", "inner", "middle",
    "central", "toy", "model", "fake", "real", "dog", "cat", "pet", "baby", "wine", "paper", "sun", "empty",
    "full", "red", "blue", "green", "yellow", "black", "white", "grey", "gray", "brown", "pink", "purple",
    "orange", "violet", "beige", "silver", "gold", "golden", "turquoise", "striped", "checked", "spotted",
    "dark", "light", "bright", "transparent", "wooden", "wood", "oak", "metal", "steel", "iron", "aluminium",
    "aluminum", "plastic", "glass", "leather", "stone", "ceramic", "cardboard", "cotton", "wool", "silk",
    "rubber", "round", "square", "oval", "folding", "electric", "cordless",
})  # fmt: skip
#: Attributes that do not choose: a robot that knows one umbrella knows the old one.
_HARMLESS = frozenset({"old", "nice", "cute", "beautiful", "ugly", "expensive", "cheap", "comfortable"})
#: Words of size that mean the same.
_SAME = tuple(
    frozenset(map(stem, group))
    for group in (("big", "large", "huge"), ("small", "little", "tiny"), ("tall", "high"))
)
#: Nouns after a name that add nothing: *the sink unit*.
_GENERIC = ("unit", "set", "thing", "item", "object", "one")
#: Ends of verbs.
_ENDINGS = ("ed", "ing", "end", "got", "gone")
#: Letters that the beginning of a word shares with its relatives: *cookery* and *cook*.
_SHARED = 4


class _Split(NamedTuple):
    """A noun phrase around the name of objects."""

    before: tuple[str, ...]
    head: str
    after: tuple[str, ...]


def head_of(words: str, store: Vocabulary) -> str | None:
    """Return the name of objects at the end of a noun phrase, or ``None``."""
    split = _split(words, store)
    return None if split is None or split.after else split.head


def known_object(chunks: Sequence[Chunk], place: int, store: Vocabulary) -> Aside | None:
    """Return the name of the only object that a noun phrase means, with a remark; ``None`` for others.

    A verb after the name is left out: *that cat curled* of *where has that cat curled up*.
    """
    chunk = chunks[place]
    if chunk.kind != "NOUN" or store.is_place(chunk.text):
        return None
    if store.knows(chunk.text):
        return Aside(f"the {chunk.text}", "") if len(store.objects(chunk.text)) <= 1 else None
    split = _split(chunk.text, store)
    if split is None or not all(word.lower().endswith(_ENDINGS) for word in split.after):
        return None
    name = " ".join([*split.before, split.head])
    verb = f"'{' '.join(split.after)}' was not considered." if split.after else ""
    if not split.before:
        return Aside(f"the {name}", verb) if len(store.objects(name)) == 1 else None
    plainer = _plainer([*chunks[:place], Chunk("NOUN", name)], place, store)
    return None if plainer is None else Aside(f"the {plainer.question}", f"{plainer.remark} {verb}".strip())


def without_modifiers(words: str, store: Vocabulary) -> Aside | None:
    """Return a question whose noun phrases are names of the store; ``None`` if no word can be left out."""
    chunks = chunks_of(words, store.names())
    remarks: list[str] = []
    for place, chunk in enumerate(chunks):
        if chunk.kind != "NOUN" or store.knows(chunk.text) or store.is_place(chunk.text):
            continue
        found = _plainer(chunks, place, store)
        if found is not None and chunk.text in words:
            words = words.replace(chunk.text, found.question, 1)
            remarks.append(found.remark)
    return Aside(words, " ".join(remarks)) if remarks else None


def _plainer(chunks: Sequence[Chunk], place: int, store: Vocabulary) -> Aside | None:
    """Return the name of an object in place of a noun phrase, with a remark on its other words."""
    text = chunks[place].text
    split = _split(text, store)
    if split is None:
        return _mentioned(chunks, place, store)
    if split.after:
        return None
    room = next(
        (
            " ".join(split.before[start:])
            for start in range(len(split.before))
            if store.is_place(" ".join(split.before[start:]))
        ),
        "",
    )
    if room and not _is_in_place(chunks, place):
        left = split.before[: len(split.before) - len(room.split())]
        named = " ".join([*left, split.head])
        return Aside(f"{named} in the {room}", f"'{text}' was read as '{named} in the {room}'.")
    if room or not is_definite(chunks, place):
        return None
    objects = store.objects(split.head)
    chosen = _chosen(split, objects)
    unread = [word for word in split.before if chosen is None or not _describes(word, chosen)]
    if any(_chooses(word, store) for word in unread):
        return None
    if chosen is not None and (len(objects) > 1 or not unread):
        return Aside(f"#{chosen.id}", f"'{text}' was read as '{chosen.words.strip()}' (memory {chosen.id}).")
    if len(objects) != 1:
        return None
    if not unread:
        return Aside(split.head, f"'{text}' was read as '{split.head}'.")
    quoted = ", ".join(f"'{word}'" for word in unread)
    return Aside(split.head, f"{quoted} {'is' if len(unread) == 1 else 'are'} not stored and not considered.")


def _mentioned(chunks: Sequence[Chunk], place: int, store: Vocabulary) -> Aside | None:
    """Return *door* for *at the front door*, if only the captions of some memories have a door."""
    *said, last = chunks[place].text.split()
    before = next(
        (chunk.kind for chunk in reversed(chunks[:place]) if chunk.kind not in ("DET", "FILLER")), ""
    )
    who = any(chunk.kind in ("ANYONE", "WHO") for chunk in chunks)
    if (
        not said
        or not who
        or before != "NEAR"
        or any(_chooses(word, store) for word in said if word.lower() != "front")
    ):
        return None
    if store.mentions(chunks[place].text) or not store.mentions(last):
        return None
    return Aside(last, f"'{' '.join(said)}' is not stored and not considered.")


def _split(text: str, store: Vocabulary) -> _Split | None:
    """Return the longest name of objects at the end of a noun phrase, or else within it."""
    words = text.split()
    ends = [word.lower() for word in words]
    last = len(words)
    while last > 1 and ends[last - 1] in _GENERIC:
        last -= 1
    suffixes = [(start, last) for start in range(last)]
    inside = [(start, end) for end in range(last - 1, 0, -1) for start in range(end)]
    for start, end in (*suffixes, *inside):
        head = " ".join(words[start:end])
        if store.objects(head):
            return _Split(tuple(words[:start]), head, tuple(words[end:last]))
    return None


def is_definite(chunks: Sequence[Chunk], place: int) -> bool:
    """Return True after *the* or *my*."""
    before = place - 1
    while before >= 0 and chunks[before].kind in _BETWEEN:
        before -= 1
    return before >= 0 and chunks[before].text.lower() in _DEFINITE


def _is_in_place(chunks: Sequence[Chunk], place: int) -> bool:
    """Return True if the object of a noun phrase already has a room in the question."""
    following = next((chunk.kind for chunk in chunks[place + 1 :] if chunk.kind != "FILLER"), "")
    return following in PREPOSITIONS or any(chunk.kind == "IN" for chunk in chunks[:place])


def _chosen(split: _Split, objects: Sequence[NamedObject]) -> NamedObject | None:
    """Return the only object whose caption has one of the words before its name."""
    found = [each for each in objects if any(_describes(word, each) for word in split.before)]
    return found[0] if len(found) == 1 else None


def _describes(word: str, named: NamedObject) -> bool:
    """Return True if a caption has a word, or one that begins with the same letters."""
    root, known = stem(fold(word)), stems(named.words)
    if any(root in group and not group.isdisjoint(known) for group in _SAME):
        return True
    return root in known or any(
        len(other) >= _SHARED and root.startswith(other) for other in known if len(root) >= _SHARED
    )


def _chooses(word: str, store: Vocabulary) -> bool:
    """Return True for a word that may choose another object, such as *red*, *broken* and the name of one."""
    folded = fold(word)
    if folded in _CHOOSING or folded[:1].isdigit() or folded.endswith(("'s", "s'")):
        return True
    if folded in _HARMLESS:
        return False
    return PHRASES.get((folded,), "DET") != "DET" or bool(store.objects(word)) or store.is_place(word)
