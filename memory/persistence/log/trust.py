"""How far robots are believed: that stands in the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.persistence.log.journal import Counters, read_entries, read_identity, undone_after, write_entry
from memory.persistence.log.operations import OperationResult
from memory.persistence.sql import Connection
from memory.types import check_text

#: Name of the operations in the log.
OPERATION = "trust"


@dataclass(frozen=True)
class RobotTrust:
    """What was said up to an operation.

    Attributes:
        by_robot: from 0 to 1; 1 for those that are not there.
        read: the operation.
        identity: of the log up to there.
    """

    by_robot: Mapping[str, float] = field(default_factory=dict)
    read: int = 0
    identity: str | None = None

    def followed(self, connection: Connection) -> RobotTrust:
        """The same up to now."""
        (latest,) = connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()
        same = self.read == 0 or read_identity(connection, self.read) == self.identity
        if same and latest == self.read:
            return self
        sql = "SELECT 1 FROM log WHERE generation > ? AND operation IN ('trust', 'undo') LIMIT 1"
        after = self.read if same else 0
        told = not same or connection.execute(sql, (after,)).fetchone() is not None
        by_robot = read_trust(connection) if told else self.by_robot
        return RobotTrust(by_robot, int(latest), read_identity(connection, latest))


def read_trust(connection: Connection) -> dict[str, float]:
    """From 0 to 1 by robot; 1 for those that are not there."""
    entries = read_entries(connection, operation=OPERATION)
    undone = undone_after(connection, 0) if entries else set()
    said = {
        entry.detail["robot"]: float(entry.detail["trust"])
        for entry in entries
        if entry.generation not in undone
    }
    return {robot: trust for robot, trust in said.items() if trust != 1.0}


def check_trust(robot: str, trust: float) -> tuple[str, float]:
    """Both, or :class:`ValueError`."""
    if not check_text("robot", robot).strip():
        raise ValueError(f"a robot needs a name, got {robot!r}")
    if isinstance(trust, bool) or not (math.isfinite(trust) and 0.0 <= trust <= 1.0):
        raise ValueError(f"trust must be from 0 to 1, got {trust}")
    return robot, float(trust)


def trust_in(connection: Connection, counters: Counters, detail: Mapping[str, Any]) -> OperationResult:
    """Say how far a robot is believed from now on, as an operation that can be undone."""
    return OperationResult(write_entry(connection, counters, OPERATION, detail), [])
