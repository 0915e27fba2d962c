"""SQLite engine, see :class:`memory.persistence.engine.Engine`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.persistence.rows import SLOTS
from memory.persistence.sql import Condition
from memory.persistence.sqlite import places, poses, search, tables


class SqliteEngine:
    """Memories as rows of several tables, with indexes over words and places that this library maintains."""

    last_log_row = "SELECT coalesce(max(row), 0) FROM log_row"
    without_was = "json_remove(before, '$.was')"
    vector_counts = f"SELECT key % {SLOTS}, count(*) FROM vector GROUP BY 1"
    read_images = staticmethod(tables.read_images)
    insert_prepared = staticmethod(tables.insert_prepared)
    insert_images = staticmethod(tables.insert_images)
    replace_images = staticmethod(tables.replace_images)
    delete_images = staticmethod(tables.delete_images)
    renew = staticmethod(tables.renew)
    read_captions = staticmethod(search.read_captions)
    read_vectors = staticmethod(tables.read_vectors)
    scan_vectors = staticmethod(tables.scan_vectors)
    scan_columns = staticmethod(tables.scan_columns)
    read_poses = staticmethod(poses.read)
    update_places = staticmethod(places.update_blocks_if_many)
    select_ids = staticmethod(search.select_ids)
    select_among = staticmethod(search.select_among)
    times_of = staticmethod(search.times_of)
    count_matches = staticmethod(search.count_matches)
    search_words = staticmethod(search.search_words)
    word_ids = staticmethod(search.word_ids)

    @staticmethod
    def move(
        connection: sqlite3.Connection, ids: NDArray[np.int64], table: NDArray[np.float64], last_id: int
    ) -> bool:
        """Set poses and update the place index."""
        poses.write(connection, ids, table)
        return places.follow(connection, ids, table, last_id)

    @staticmethod
    def one_of(column: str, values: Sequence[int]) -> Condition:
        """Bind the numbers as one text."""
        return Condition(f"{column} IN (SELECT value FROM json_each(?))", (json.dumps(list(values)),))
