"""Makers of the published blocks of README and pages, by the name in their markers."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lib.results import RESULTS
from benchmarks.publish import (
    archives,
    attention,
    calls,
    dynamic,
    fleet,
    layers,
    memory_drives,
    product,
    sentences,
    sparse,
    summary,
    tracking,
    weights,
)
from benchmarks.publish.text import (
    Column,
    load_result,
    markdown_table,
)


def _results() -> str:
    found = {path: load_result(path.stem) or {} for path in sorted(RESULTS.glob("*.json"))}
    trees = {True: "historical: uncommitted changes", False: "clean"}
    columns = (
        Column("file", lambda row: f"[{row[0].stem}](results/{row[0].name})"),
        Column("measured on", (1, "hardware", "gpu", "model"), missing="CPU"),
        Column("threads", (1, "threads")),
        Column("day", (1, "time"), "{:.10}"),
        Column("commit", (1, "code", "commit"), "{:.9}", "–"),
        Column("tree", lambda row: trees.get(row[1]["code"]["dirty"], "historical: not a checkout")),
    )
    rows = [(path, values["environment"]) for path, values in found.items()]
    return markdown_table(
        [column.head for column in columns], [[c.cell(row) for c in columns] for row in rows]
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "results": _results,
    **sparse.BLOCKS,
    **layers.BLOCKS,
    **attention.BLOCKS,
    **dynamic.BLOCKS,
    **product.BLOCKS,
    **summary.BLOCKS,
    **memory_drives.BLOCKS,
    **sentences.BLOCKS,
    **tracking.BLOCKS,
    **calls.BLOCKS,
    **fleet.BLOCKS,
    **weights.BLOCKS,
    **archives.BLOCKS,
}
