"""Storage of memories in a SQLite file or on a PostgreSQL server. See docs/memory-format.md."""
