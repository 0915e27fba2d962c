"""Times, places and things in words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from memory.types import Memory, State

DAY_S = 86_400.0
#: Things that a sentence names; the rest is counted.
NAMED = 3
#: What is believed of a thing, after "is".
STATE_WORDS: Mapping[State, str] = {
    "present": "present",
    "gone": "gone",
    "moved": "moved away",
    "unknown": "in an unknown state",
}


def moment(time_ns: int) -> str:
    """To the second, in UTC; plain seconds for times outside the calendar's years."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_ns // 1_000_000_000)) + " UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ns / 1e9:.0f} s"


def duration(seconds: float) -> str:
    """In the unit that reads best."""
    for size, unit in ((DAY_S, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def point(position: Sequence[float] | None) -> str:
    """x and y in metres."""
    if position is None:
        return "an unknown place"
    return f"({position[0]:.1f}, {position[1]:.1f})"


def plural(count: int, one: str, many: str | None = None) -> str:
    """The number with its word."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def name(memory: Memory) -> str:
    """What it is, with its id."""
    return f"{memory.label or memory.kind} (memory {memory.id})"


def listed(parts: Sequence[str], *, total: int | None = None, most: int = NAMED) -> str:
    """The first of them, and how many more there are of ``total``."""
    shown = list(parts[:most])
    total = len(parts) if total is None else total
    if total > len(shown):
        shown.append(f"{total - len(shown)} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def counted(counts: Mapping[str, int]) -> str:
    """How many of each, the most first."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return listed([f"{count} {what or 'without a label'}" for what, count in ordered], most=5)
