"""The truth on disk: one SQLite file a store. See docs/memory-format.md."""
