"""What a query means that says a label or a word otherwise than the store does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple
from unicodedata import normalize

from memory.query import Query
from memory.wording.spelling import nearest
from memory.wording.stems import is_cased, stems

#: Labels of a query in which slips are looked for, and the most frequent of a store that are compared.
MOST_SLIPS, MOST_LABELS = 16, 65536


#: Words for which stores may have another one; only where they have none of it themselves.
SYNONYMS = (
    ("person", "pedestrian", "human"), ("car", "automobile", "auto"), ("bike", "bicycle"), ("truck", "lorry"),
    ("motorbike", "motorcycle"), ("sofa", "couch"), ("tv", "television"), ("phone", "telephone"),
)  # fmt: skip


class Read(NamedTuple):
    """A query as it was read.

    Attributes:
        query: with the labels and words of the store.
        notes: what was read otherwise, in words; empty where nothing was.
    """

    query: Query
    notes: tuple[str, ...]


class Labels:
    """The labels of a store, to be found by what people say.

    Args:
        counts: how often each is there.
    """

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
        """Those that the words are but for case, accents and endings; the label itself if there.

        Labels that look the same, and differ only by how Unicode composes their letters, are one.
        """
        return self._same.get(normalize("NFC", words)) or self._by_stems.get(stems(words), [])

    def nearest(self, words: str) -> str | None:
        """The one that is another word for it, or that the words are but for a slip or two.

        Slips are allowed in scripts with capitals only: of others one sign more is another word.
        """
        for group in SYNONYMS:
            if stems(words) in [stems(word) for word in group]:
                for word in group:
                    if self.alike(word):
                        return self.alike(word)[0]
        joined = " ".join(stems(words))
        if not is_cased(joined):
            return None
        entries = islice(self._joined.items(), MOST_LABELS)
        found = nearest(joined, ((root, self._counts[label]) for root, label in entries))
        return None if found is None else self._joined[found]


def read_query(
    query: Query, labels: Callable[[], Mapping[str, int]], corrections: Callable[[str], Mapping[str, str]]
) -> Read:
    """The query with what it names otherwise than the store replaced by what the store has.

    Args:
        query: as it was asked.
        labels: gives how often each label is there.
        corrections: gives for the words of a text that are nowhere the ones that are nearly the same.
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
    return Read(query, tuple(notes))
