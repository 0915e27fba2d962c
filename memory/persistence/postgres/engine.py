"""PostgreSQL engine, see :class:`memory.persistence.engine.Engine`."""

from __future__ import annotations

from typing import Any

from memory.persistence.postgres import images, search


class PostgresEngine:
    """Memories as rows of one table; the server maintains the place index itself."""

    last_log_row = "SELECT last_log_row()"
    without_was = "(before::jsonb - 'was')::text"
    vector_counts = "SELECT slot, count(*) FROM embedding GROUP BY 1"
    read_images = staticmethod(images.read_images)
    insert_prepared = staticmethod(images.insert_prepared)
    insert_images = staticmethod(images.insert_images)
    replace_images = staticmethod(images.replace_images)
    delete_images = staticmethod(images.delete_images)
    read_poses = staticmethod(images.read_poses)
    move = staticmethod(images.move)
    renew = staticmethod(images.renew)
    read_captions = staticmethod(search.read_captions)
    read_vectors = staticmethod(images.read_vectors)
    scan_vectors = staticmethod(images.scan_vectors)
    one_of = staticmethod(search.one_of)
    select_ids = staticmethod(search.select_ids)
    select_among = staticmethod(search.select_among)
    times_of = staticmethod(search.times_of)
    count_matches = staticmethod(search.count_matches)
    search_words = staticmethod(search.search_words)
    word_ids = staticmethod(search.word_ids)
    scan_columns = staticmethod(search.scan_columns)

    @staticmethod
    def update_places(connection: Any, last_id: int, placed: int, *, moved: bool) -> int:
        """Return ``placed``, because the server needs no update."""
        return placed
