"""Times, places and objects in words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from memory.types import Memory, State

DAY_S = 86_400.0
#: Maximum parts that a list names.
NAMED = 3
#: Maximum runs of days that a sentence names.
_MOST_RUNS = 10
#: States, used after "is".
STATE_WORDS: Mapping[State, str] = {
    "present": "present",
    "gone": "gone",
    "moved": "moved away",
    "unknown": "in an unknown state",
}


def moment(time_ns: int) -> str:
    """Return a time to the second in UTC; plain seconds outside the years of the calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_ns // 1_000_000_000)) + " UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ns / 1e9:.0f} s"


def days_in_words(starts_ns: Sequence[int]) -> str:
    """Return dates in UTC, with runs of days as ranges: *2026-03-05 to 2026-03-07, 2026-03-10*.

    Args:
        starts_ns: first nanosecond of each day, in order.
    """
    runs: list[list[int]] = []
    for start in starts_ns:
        if runs and start - runs[-1][-1] == DAY_S * 1_000_000_000:
            runs[-1][1:] = [start]
        else:
            runs.append([start])
    return listed([" to ".join(moment(day)[:10] for day in run) for run in runs], most=_MOST_RUNS)


def duration(seconds: float) -> str:
    """Return a duration in a readable unit."""
    for size, unit in ((DAY_S, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def point(position: Sequence[float] | None) -> str:
    """Return x and y in metres."""
    if position is None:
        return "an unknown place"
    return f"({position[0]:.1f}, {position[1]:.1f})"


def truncated(text: str, longest: int = 40) -> str:
    """Return the text, or its beginning with an ellipsis, in at most ``longest`` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def name(memory: Memory) -> str:
    """Return the label of a memory with its id."""
    return f"{memory.label or memory.kind} (memory {memory.id})"


def listed(parts: Sequence[str], *, total: int | None = None, most: int = NAMED) -> str:
    """Return the first parts as a list, and how many more there are."""
    shown = list(parts[:most])
    total = len(parts) if total is None else total
    if total > len(shown):
        shown.append(f"{total - len(shown)} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def counted(counts: Mapping[str, int]) -> str:
    """Return the counts as a list, the largest first."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return listed([f"{count} {what or 'without a label'}" for what, count in ordered], most=5)
