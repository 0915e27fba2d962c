"""Tools of other packages beside the memory's own: entry points of the group ``sparsight.tools``.

The memory imports no detector. Whoever has something for a language model declares it in a package, and it
is offered where that package is installed (docs/agents.md).
"""

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
    """What installed packages offer; one that cannot be loaded is logged and left out.

    Args:
        folder: that the tools may look into.
        taken: names that are not given again.
    """
    found: dict[str, Tool] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            offered = list(entry.load()(folder))
        except Exception as error:
            _LOG.warning("tools %s of %s cannot be used: %s", entry.name, entry.value, error)
            continue
        for tool in offered:
            if tool.__name__ in taken or tool.__name__ in found:
                _LOG.warning("tool %s of %s: there is one of that name already", tool.__name__, entry.value)
                continue
            found[tool.__name__] = tool
    return list(found.values())
