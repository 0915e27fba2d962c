"""Files that appear whole or not at all, so that an interrupted run leaves no half one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write beside ``path`` and move into place."""
    partial = path.with_name("partial-" + path.name)
    write(partial)
    partial.replace(path)
