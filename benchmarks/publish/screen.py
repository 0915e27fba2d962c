"""Print a result that is still in memory by the tables that publish it."""

from __future__ import annotations

from typing import Any

from rich.markdown import Markdown

from benchmarks.publish.blocks import BLOCKS
from benchmarks.publish.text import Block, Table, Text


def tables(values: dict[str, Any], *names: str, **others: Block) -> list[Markdown]:
    """Render published blocks from one result.

    Args:
        values: of `benchmarks.lib.results.result`.
        names: of published blocks that are made from one file; those without rows are left out.
        others: blocks that are not published, by their titles.
    """
    made = []
    for name, block in [*((name, BLOCKS[name]) for name in names), *others.items()]:
        assert isinstance(block, Table | Text)
        if text := block.of(values):
            made.append(Markdown(f"**{name.replace('_', ' ')}**\n\n{text}"))
    return made
