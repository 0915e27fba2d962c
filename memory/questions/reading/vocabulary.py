"""What the reading of a question has to know about the store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol


class NamedObject(NamedTuple):
    """A memory that words name: its id, and its label and caption."""

    id: int
    words: str


class Vocabulary(Protocol):
    """Words of a store."""

    def names(self) -> Collection[str]:
        """Return labels and areas that hold function words, and so are names as a whole."""
        ...

    def knows(self, words: str) -> bool:
        """Return True if words are a label, a category, or occur in the label and caption of a memory."""
        ...

    def is_place(self, words: str) -> bool:
        """Return True if words are the name of an area or a map, or mean the same as one."""
        ...

    def objects(self, words: str, place: str | None = None) -> Sequence[NamedObject]:
        """Return the memories whose label is or means the same as the words, in a place if one is given."""
        ...

    def object_at(
        self, words: str, point: tuple[float, float], map_id: str | None = None
    ) -> NamedObject | None:
        """Return the memory with such a label that is nearest to a point, if it is within two metres.

        Returns ``None`` if the point means objects of several maps.
        """
        ...

    def days(self) -> Sequence[str]:
        """Return the dates on which something was observed, as 2026-01-05, rising; none for a long time."""
        ...

    def mentions(self, words: str) -> bool:
        """Return True if the label and caption of a memory have the words, be it as a detail."""
        ...

    def described(self, words: str) -> Sequence[NamedObject]:
        """Return the memories that words name by label or caption."""
        ...
