"""What is published where: the maker of every block of README and pages, by the name in its markers."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lib.results import RESULTS
from benchmarks.publish import archives as published_archives
from benchmarks.publish import backbone as published_backbone
from benchmarks.publish import calls as published_calls
from benchmarks.publish import fleet as published_fleet
from benchmarks.publish import layers as published_layers
from benchmarks.publish import memory_drives as published_memory_drives
from benchmarks.publish import product as published_product
from benchmarks.publish import sentences as published_sentences
from benchmarks.publish import sparse as published_sparse
from benchmarks.publish import summary as published_summary
from benchmarks.publish import tracking as published_tracking
from benchmarks.publish import weights as published_weights
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
    **published_sparse.BLOCKS,
    **published_layers.BLOCKS,
    **published_product.BLOCKS,
    **published_summary.BLOCKS,
    **published_backbone.BLOCKS,
    **published_memory_drives.BLOCKS,
    **published_sentences.BLOCKS,
    **published_tracking.BLOCKS,
    **published_calls.BLOCKS,
    **published_fleet.BLOCKS,
    **published_weights.BLOCKS,
    **published_archives.BLOCKS,
}
