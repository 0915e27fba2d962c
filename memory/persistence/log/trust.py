"""Trust in robots, as the log records it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.persistence.log.journal import Counters, read_entries, read_identity, undone_after, write_entry
from memory.persistence.log.operations import OperationResult
from memory.persistence.sql import Connection
from memory.types import check_text

#: Operation name in the log.
OPERATION = "trust"


@dataclass(frozen=True)
class RobotTrust:
    """Trust as of an operation.

    Attributes:
        by_robot: from 0 to 1; missing robots have 1.
        read: the operation.
        identity: identity of the log up to there.
    """

    by_robot: Mapping[str, float] = field(default_factory=dict)
    read: int = 0
    identity: str | None = None

    def refresh(self, connection: Connection) -> RobotTrust:
        """Return the present trust."""
        (latest,) = connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()
        same = self.read == 0 or read_identity(connection, self.read) == self.identity
        if same and latest == self.read:
            return self
        sql = "SELECT 1 FROM log WHERE generation > ? AND operation IN ('trust', 'undo') LIMIT 1"
        after = self.read if same else 0
        changed = not same or connection.execute(sql, (after,)).fetchone() is not None
        by_robot = read_trust(connection) if changed else self.by_robot
        return RobotTrust(by_robot, int(latest), read_identity(connection, latest))


def read_trust(connection: Connection) -> dict[str, float]:
    """Return the trust from 0 to 1 by robot; missing robots have 1."""
    entries = read_entries(connection, operation=OPERATION)
    undone = undone_after(connection, 0) if entries else set()
    trusts = {
        entry.detail["robot"]: float(entry.detail["trust"])
        for entry in entries
        if entry.generation not in undone
    }
    return {robot: trust for robot, trust in trusts.items() if trust != 1.0}


def check_trust(robot: str, trust: float) -> tuple[str, float]:
    """Return both, or raise :class:`ValueError`."""
    if not check_text("robot", robot).strip():
        raise ValueError(f"give the name of a robot, got {robot!r}")
    if isinstance(trust, bool) or not (math.isfinite(trust) and 0.0 <= trust <= 1.0):
        raise ValueError(f"trust must be from 0 to 1, got {trust}")
    return robot, float(trust)


def write_trust(connection: Connection, counters: Counters, detail: Mapping[str, Any]) -> OperationResult:
    """Set the trust of a robot, as an operation that can be undone."""
    return OperationResult(write_entry(connection, counters, OPERATION, detail), [])
