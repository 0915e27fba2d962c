"""Print a result that is still in memory by the tables that publish it."""

from __future__ import annotations

from typing import Any

from rich.markdown import Markdown

from benchmarks.publish.blocks import BLOCKS
from benchmarks.publish.text import Table, Text


def tables(values: dict[str, Any], *names: str) -> list[Markdown]:
    """Render published blocks from one result.

    Args:
        values: of `benchmarks.lib.results.result`.
        names: of blocks that are made from one file; those without rows are left out.
    """
    made = []
    for name in names:
        block = BLOCKS[name]
        assert isinstance(block, Table | Text)
        if text := block.of(values):
            made.append(Markdown(f"**{name}**\n\n{text}"))
    return made
