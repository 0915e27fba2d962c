"""Corrections of queries: labels and words of the store in place of similar ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple
from unicodedata import normalize

from memory.query import Query
from memory.wording.spelling import nearest
from memory.wording.stems import is_cased, stems

#: Maximum labels of a query that are corrected, and maximum labels of a store that are compared.
MOST_SLIPS, MOST_LABELS = 16, 65536
#: Names of rooms that mean the same.
ROOMS = (
    ("living room", "lounge", "sitting room", "front room", "family room"),
    ("hallway", "hall", "corridor", "entrance hall", "entryway"), ("bathroom", "washroom"),
    ("toilet", "wc", "loo", "lavatory", "restroom"), ("bedroom", "sleeping room"), ("study", "home office"),
    ("garden", "yard", "backyard"), ("basement", "cellar"), ("attic", "loft"), ("pantry", "larder"),
)  # fmt: skip
#: Synonyms, used only if the store does not have the word itself.
SYNONYMS = (
    ("person", "pedestrian", "human", "visitor", "somebody", "someone", "anybody", "anyone", "passer-by",
     "ppl", "peoples"),
    ("car", "automobile", "auto"), ("bike", "bicycle", "cycle"), ("truck", "lorry"), ("mug", "cup"),
    ("motorbike", "motorcycle"), ("sofa", "couch", "settee"), ("tv", "television", "telly"),
    ("phone", "telephone", "mobile phone", "cell phone", "smartphone", "mobile"), ("package", "parcel"),
    ("cyclist", "bicyclist", "biker", "bike rider"), ("fridge", "refrigerator"), ("doorbell", "bell"),
    ("glasses", "spectacles", "eyeglasses"),
    ("cat", "kitty", "kitten"), ("dog", "doggy", "puppy"),
    ("trash can", "rubbish bin", "garbage can", "dustbin", "bin"),
    ("rug", "carpet"), ("pot plant", "potted plant", "houseplant", "plant"), ("tram", "streetcar", "trolley"),
    *ROOMS,
)  # fmt: skip
#: Words that mean any of several labels, used only if the store does not have the word itself.
CATEGORIES = {
    "vehicle": ("car", "van", "truck", "bus", "tram", "trailer", "motorcycle", "motorbike", "lorry"),
    "furniture": (
        "table", "dining table", "coffee table", "chair", "armchair", "sofa", "couch", "bed", "desk", "bench",
        "night stand", "cabinet", "shelf", "wardrobe", "bookcase", "stool", "drawer",
    ),
    "animal": ("dog", "cat", "bird", "horse", "rabbit"),
    "appliance": (
        "fridge", "freezer", "oven", "stove", "microwave", "dishwasher", "washing machine", "dryer", "kettle",
        "toaster", "coffee machine", "vacuum cleaner", "television", "tv", "fan", "heater", "iron",
    ),
    "seat": ("chair", "armchair", "sofa", "couch", "bench", "stool"),
    "electronics": ("laptop", "computer", "phone", "tablet", "television", "tv", "remote control", "camera"),
    "crockery": ("mug", "cup", "plate", "bowl", "glass"),
}  # fmt: skip
#: Words that the categories also go by.
_ALSO = {
    "piece of furniture": "furniture", "pieces of furniture": "furniture", "pet": "animal",
    "electronic device": "electronics", "electronic devices": "electronics", "device": "electronics",
    "devices": "electronics", "home appliance": "appliance", "household appliance": "appliance",
    "seating": "seat",
}  # fmt: skip


#: Stems of all words above. They are no misspellings: *tablets* are not *tables*.
_WORDS = frozenset(stems(word) for group in (*SYNONYMS, *CATEGORIES.values()) for word in group)


def is_word(text: str) -> bool:
    """Return True for a word that has synonyms or a category, and so is no misspelling of another."""
    return stems(text) in _WORDS


class CorrectedQuery(NamedTuple):
    """A query with corrections.

    Attributes:
        query: with labels and words of the store.
        notes: the corrections in words.
    """

    query: Query
    notes: tuple[str, ...]


class Labels:
    """Labels of a store with their counts, searchable by similar words."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts
        self._by_stems: dict[tuple[str, ...], list[str]] = {}
        self._joined: dict[str, str] = {}
        self._same: dict[str, list[str]] = {}
        for label in sorted(counts, key=lambda label: (-counts[label], label)):
            self._same.setdefault(normalize("NFC", label), []).append(label)
            root = stems(label)
            if root:
                self._by_stems.setdefault(root, []).append(label)
                self._joined.setdefault(" ".join(root), label)

    def alike(self, words: str) -> list[str]:
        """Return the labels that match except for case, accents and endings; the label itself if it exists.

        Labels that differ only in their Unicode normalization count as one.
        """
        return self._same.get(normalize("NFC", words)) or self._by_stems.get(stems(words), [])

    def synonym(self, words: str) -> str | None:
        """Return the label that means the same, or ``None``."""
        for group in SYNONYMS:
            if stems(words) in [stems(word) for word in group]:
                found = next((self.alike(word)[0] for word in group if self.alike(word)), None)
                if found is not None:
                    return found
        return None

    def category(self, words: str) -> list[str]:
        """Return the labels of a category such as *vehicle*; none for other words."""
        root = stems(_ALSO.get(words.lower(), words))
        members = next((CATEGORIES[name] for name in CATEGORIES if stems(name) == root), ())
        return list(dict.fromkeys(label for member in members for label in self.alike(member)))

    def nearest(self, words: str) -> str | None:
        """Return the label that is a synonym or differs by a misspelling, or ``None``.

        Misspellings are corrected only in scripts with upper case; in others, one different sign is another
        word.
        """
        same = self.synonym(words)
        if same is not None:
            return same
        joined = " ".join(stems(words))
        if not is_cased(joined) or is_word(words):
            return None
        entries = islice(self._joined.items(), MOST_LABELS)
        found = nearest(joined, ((root, self._counts[label]) for root, label in entries))
        return None if found is None else self._joined[found]


def read_query(
    query: Query, labels: Callable[[], Mapping[str, int]], corrections: Callable[[str], Mapping[str, str]]
) -> CorrectedQuery:
    """Replace unknown labels and words of a query by similar known ones.

    Args:
        query: the query.
        labels: returns the count of each label.
        corrections: returns a similar known word for each unknown word of a text.
    """
    notes: list[str] = []
    if query.where.labels is not None:
        known, wanted = Labels(labels()), []
        for at, label in enumerate(query.where.labels):
            near = known.nearest(label) if at < MOST_SLIPS and not known.alike(label) else None
            found = known.alike(label) or [near or label]
            wanted += found
            if found != [label]:
                notes.append(f"label {label!r} read as {' or '.join(map(repr, found))}")
        query = replace(query, where=replace(query.where, labels=list(dict.fromkeys(wanted))))
    if query.text is not None:
        better = corrections(query.text)
        if better:
            query = replace(query, text=" ".join(better.get(word, word) for word in query.text.split()))
            notes += [f"{word!r} read as {meant!r}" for word, meant in better.items()]
    return CorrectedQuery(query, tuple(notes))
