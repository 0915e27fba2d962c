"""Read, write, convert, compress and share weights."""
