"""Peak memory of a process, from what the system counts."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def resident_bytes() -> int | None:
    """Memory of this process now; None where the system does not tell."""
    return _status("VmRSS")


def anonymous_bytes() -> int | None:
    """Memory of this process now that is no mapped file; None where the system does not tell."""
    return _status("RssAnon")


def peak_bytes() -> int:
    """Highest memory of this process so far, or since :func:`reset_peak` where that works.

    ``ru_maxrss`` is only the second choice: on Linux a child starts with the peak of its parent.
    """
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak() -> bool:
    """Start counting the peak afresh; False where the system does not allow it."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def available_bytes() -> int | None:
    """Memory that the machine can still give out; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _status(field: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)
