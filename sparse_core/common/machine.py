"""The machine that a program runs on."""

from __future__ import annotations

import platform
from pathlib import Path

_FACTS = Path("/proc/cpuinfo")


def processor_name() -> str:
    """Return the model of the processor, or its kind if the system has no file with the model."""
    if _FACTS.is_file():
        for line in _FACTS.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
