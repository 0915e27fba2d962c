"""What is wrong with a file that is read, and where."""

from __future__ import annotations

from memory.errors import RecallError


class DataError(RecallError, ValueError):
    """A file that cannot be used; the message begins with its name and the line."""
