"""Settings that the log records, such as trust and areas: their present values, read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from memory.persistence.log.journal import read_identity
from memory.persistence.sql import Connection

Value = TypeVar("Value")


@dataclass(frozen=True)
class LoggedSetting(Generic[Value]):
    """Value of a setting as of an operation.

    Attributes:
        operation: name of the operations that set it.
        load: reads it from the log.
        value: its value.
        read: the operation up to which the log was read.
        identity: identity of the log up to there.
    """

    operation: str
    load: Callable[[Connection], Value]
    value: Value
    read: int = 0
    identity: str | None = None

    def refresh(self, connection: Connection) -> LoggedSetting[Value]:
        """Return the present value."""
        (latest,) = connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()
        same = self.read == 0 or read_identity(connection, self.read) == self.identity
        if same and latest == self.read:
            return self
        sql = "SELECT 1 FROM log WHERE generation > ? AND operation IN (?, 'undo') LIMIT 1"
        after = self.read if same else 0
        changed = not same or connection.execute(sql, (after, self.operation)).fetchone() is not None
        value = self.load(connection) if changed else self.value
        return replace(self, value=value, read=int(latest), identity=read_identity(connection, latest))
