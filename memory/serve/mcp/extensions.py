"""MCP tools of other packages: entry points of the group ``sparsight.tools`` (docs/agents.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

GROUP = "sparsight.tools"
_LOG = logging.getLogger(__name__)
Tool = Callable[..., dict[str, Any]]


def further_tools(folder: Path, *, taken: Collection[str] = ()) -> list[Tool]:
    """Return the tools of installed packages; failures are logged.

    Args:
        folder: folder that the tools may read.
        taken: names that are already used.
    """
    found: dict[str, Tool] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            offered = list(entry.load()(folder))
        except Exception as error:
            _LOG.warning("failed to load tools %s of %s: %s", entry.name, entry.value, error)
            continue
        for tool in offered:
            if tool.__name__ in taken or tool.__name__ in found:
                _LOG.warning("tool %s of %s ignored: the name is already used", tool.__name__, entry.value)
                continue
            found[tool.__name__] = tool
    return list(found.values())
