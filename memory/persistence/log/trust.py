"""Trust in robots, as the log records it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from memory.persistence.log.journal import Counters, read_entries, undone_after, write_entry
from memory.persistence.log.operations import OperationResult
from memory.persistence.log.settings import LoggedSetting
from memory.persistence.sql import Connection
from memory.types import check_text

#: Operation name in the log.
OPERATION = "trust"


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


#: Every robot is trusted, as of an empty log.
FULL_TRUST: LoggedSetting[Mapping[str, float]] = LoggedSetting(OPERATION, read_trust, {})


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
