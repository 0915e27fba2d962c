"""The seam between what a store does and the engine that keeps its rows: what only an engine can say.

The log of operations, undoing, sights and visits are the same tables and the same statements everywhere and
stand in modules of their own. How memories lie in tables, and how filters are answered, is the engine's.
Every function works within the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from memory.persistence.checksums import Layout
from memory.persistence.rows import Columns, Image, Order, PreparedRows, Slot, TextHits, Vectors
from memory.persistence.sql import Condition, Connection
from memory.query import Filter


class Engine(Protocol):
    """Rows of memories in and out of tables, and filters.

    Attributes:
        last_log_row: SQL of the number of the last row of ``log_row``; 0 where there is none.
        without_was: SQL of ``log_row.before`` of a counted sight without what the memory was before it.
        vector_counts: SQL of the numbers of the slots that have vectors, with how many.
    """

    last_log_row: str
    without_was: str
    vector_counts: str

    def read_images(self, connection: Any, ids: Sequence[int], *, vectors: bool = True) -> list[Image]:
        """The memories in the order of the ids, or :class:`UnknownMemoryError`."""

    def insert_prepared(
        self, connection: Any, slots: dict[str, Slot], prepared: PreparedRows, first_id: int
    ) -> None:
        """New memories with rising ids."""

    def insert_images(self, connection: Any, slots: dict[str, Slot], images: Sequence[Image]) -> None:
        """Put removed memories back, to the last bit."""

    def replace_images(
        self, connection: Any, slots: dict[str, Slot], before: Sequence[Image], after: Sequence[Image]
    ) -> None:
        """Change memories from one image to another; access counts stay."""

    def delete_images(self, connection: Any, images: Sequence[Image]) -> None:
        """Remove the memories and everything that hangs on them."""

    def read_poses(
        self, connection: Any, ids: NDArray[np.int64], *, spread: bool = False
    ) -> NDArray[np.float64]:
        """(n, 4) float64 of the ids, (n, 10) with ``spread``; NaN where there is none."""

    def move(self, connection: Any, ids: NDArray[np.int64], table: NDArray[np.float64], last_id: int) -> bool:
        """Set the poses of rising ids; whether the index over places was made anew up to ``last_id``."""

    def update_places(self, connection: Any, last_id: int, placed: int, *, moved: bool) -> int:
        """Bring the index over places up to date; the last id that it has."""

    def renew(self, connection: Any, layout: Layout, keys: Sequence[int]) -> None:
        """Make the checksums of rows fit that were changed."""

    def one_of(self, column: str, values: Sequence[int]) -> Condition:
        """To be one of so many numbers."""

    def select_ids(
        self, connection: Any, filter: Filter, *, order: Order = "id", limit: int | None = None
    ) -> NDArray[np.int64]:
        """Ids of the memories that match, in an order."""

    def select_among(self, connection: Any, filter: Filter, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the rising ids are of memories that match."""

    def times_of(self, connection: Any, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) int64 ``time_ns`` of memories that are there, in the order of the ids."""

    def count_matches(self, connection: Any, filter: Filter) -> int:
        """How many match, exactly."""

    def search_words(
        self, connection: Any, text: str, filter: Filter, *, limit: int, any_word: bool
    ) -> TextHits:
        """The memories whose label and caption fit the words best, among those that match the filter."""

    def word_ids(self, connection: Any, text: str) -> NDArray[np.int64]:
        """Rising ids of the memories that have all words, in any form."""

    def read_vectors(self, connection: Any, ids: Sequence[int], slot: Slot) -> Vectors:
        """Vectors of those of the ids that have one, in their order."""

    def scan_vectors(self, connection: Any, slot: Slot, *, after_id: int, limit: int) -> Vectors:
        """The next vectors in the order of their ids."""

    def scan_columns(
        self, connection: Any, *, after_id: int = 0, limit: int = -1, ids: Sequence[int] | None = None
    ) -> Columns:
        """Columns of memories by rising id: a stretch, or those of ``ids`` that are there."""


class EngineConnection(Connection, Protocol):
    """A connection that knows its engine, as those of both engines do."""

    engine: Engine


def engine_of(connection: Connection) -> Engine:
    """Return the engine of a connection."""
    return cast(EngineConnection, connection).engine
