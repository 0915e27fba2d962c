"""Interface between a store and the engine that keeps its rows.

The log, undo, observations and visits use the same tables and statements in every engine. The engine decides
how memories lie in tables and how filters are answered. Every function runs within the caller's transaction.
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
    """Storage of memories in tables, and filters.

    Attributes:
        last_log_row: SQL of the last row number of ``log_row``, or 0.
        without_was: SQL of ``log_row.before`` of a counted observation without the previous summary.
        vector_counts: SQL of slot numbers with their number of vectors.
    """

    last_log_row: str
    without_was: str
    vector_counts: str

    def read_images(self, connection: Any, ids: Sequence[int], *, vectors: bool = True) -> list[Image]:
        """Return the memories in order of the ids, or raise :class:`UnknownMemoryError`."""

    def insert_prepared(
        self, connection: Any, slots: dict[str, Slot], prepared: PreparedRows, first_id: int
    ) -> None:
        """Insert new memories with rising ids."""

    def insert_images(self, connection: Any, slots: dict[str, Slot], images: Sequence[Image]) -> None:
        """Restore removed memories, bit for bit."""

    def replace_images(
        self, connection: Any, slots: dict[str, Slot], before: Sequence[Image], after: Sequence[Image]
    ) -> None:
        """Replace images of memories; access counts stay."""

    def delete_images(self, connection: Any, images: Sequence[Image]) -> None:
        """Remove the memories and all their rows."""

    def read_poses(
        self, connection: Any, ids: NDArray[np.int64], *, spread: bool = False
    ) -> NDArray[np.float64]:
        """Return (n, 4) float64 poses, or (n, 10) with ``spread``; NaN for unknown ids."""

    def move(self, connection: Any, ids: NDArray[np.int64], table: NDArray[np.float64], last_id: int) -> bool:
        """Set poses of rising ids; return True if the place index was rebuilt up to ``last_id``."""

    def update_places(self, connection: Any, last_id: int, placed: int, *, moved: bool) -> int:
        """Update the place index and return the last id in it."""

    def renew(self, connection: Any, layout: Layout, keys: Sequence[int]) -> None:
        """Recompute the checksums of changed rows."""

    def one_of(self, column: str, values: Sequence[int]) -> Condition:
        """Return the condition that a column is one of these numbers."""

    def select_ids(
        self, connection: Any, filter: Filter, *, order: Order = "id", limit: int | None = None
    ) -> NDArray[np.int64]:
        """Return the ids of the matching memories in an order."""

    def select_among(self, connection: Any, filter: Filter, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the rising ids match."""

    def times_of(self, connection: Any, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n,) int64 ``time_ns`` of existing memories in order of the ids."""

    def count_matches(self, connection: Any, filter: Filter) -> int:
        """Return the exact number of matches."""

    def search_words(
        self, connection: Any, text: str, filter: Filter, *, limit: int, any_word: bool
    ) -> TextHits:
        """Return the matching memories whose label and caption fit the words best."""

    def word_ids(self, connection: Any, text: str) -> NDArray[np.int64]:
        """Return the rising ids of the memories with all words, in any form."""

    def read_captions(self, connection: Any, ids: Sequence[int]) -> dict[int, str]:
        """Return the captions of the existing ones of these memories by id."""

    def read_vectors(self, connection: Any, ids: Sequence[int], slot: Slot) -> Vectors:
        """Return the existing vectors of the ids, in their order."""

    def scan_vectors(self, connection: Any, slot: Slot, *, after_id: int, limit: int) -> Vectors:
        """Return the next vectors in order of their ids."""

    def scan_columns(
        self, connection: Any, *, after_id: int = 0, limit: int = -1, ids: Sequence[int] | None = None
    ) -> Columns:
        """Return columns by rising id: a range, or the existing ones of ``ids``."""


class EngineConnection(Connection, Protocol):
    """A connection that knows its engine."""

    engine: Engine


def engine_of(connection: Connection) -> Engine:
    """Return the engine of a connection."""
    return cast(EngineConnection, connection).engine
