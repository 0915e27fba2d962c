"""Memories as rows of a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.exchange.records import record_of
from memory.exchange.times import format_time
from memory.types import Hit, Memory
from memory.wording.words import truncated
from sparse_core.common.table import Table, cell

_LONGEST_CAPTION = 60
_LAST_VISITS = 20
#: Score parts, in the order of their columns.
PARTS = ("fused", "similarity", "text", "distance_m", "recency")


def hits_table(title: str, hits: Sequence[Hit]) -> Table:
    """Return one row per hit. Score parts that no hit has get no column."""
    parts = [name for name in PARTS if any(name in hit.parts for hit in hits)]
    attended = any(hit.attention is not None for hit in hits)
    heads = [*parts, *(["attention"] if attended else [])]
    columns = ["id", *heads, *_COLUMNS]
    rows = []
    for hit in hits:
        numbers = [*(hit.parts.get(name) for name in parts), *([hit.attention] if attended else [])]
        rows.append([str(hit.memory.id), *(cell(value, ".3f") for value in numbers), *_cells(hit.memory)])
    return Table(columns, rows, title=title, right=["id"])


def memories_table(title: str, memories: Sequence[Memory]) -> Table:
    """Return one row per memory."""
    rows = [[str(memory.id), *_cells(memory)] for memory in memories]
    return Table(["id", *_COLUMNS], rows, title=title, right=["id"])


def visits_table(memory: Memory) -> Table:
    """Return one row for each of the latest visits of a merged memory."""
    shown = memory.visits[-_LAST_VISITS:]
    more = f", the last {len(shown)} of {len(memory.visits)}" if len(shown) < len(memory.visits) else ""
    rows = [
        [
            format_time(visit.first_ns, digits=0)[:-1].replace("T", " "),
            format_time(visit.last_ns, digits=0)[:-1].replace("T", " "),
            visit.sights,
        ]
        for visit in shown
    ]
    return Table(["first (UTC)", "last (UTC)", "observations"], rows, title=f"visits{more}")


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """Return a hit as plain values, without vectors."""
    found = {"score": hit.score, "parts": dict(hit.parts), "memory": record_of(hit.memory, vectors=False)}
    if hit.attention is not None:
        found["attention"] = hit.attention
    return found | {"reason": hit.reason} if hit.reason else found


_COLUMNS = ("time (UTC)", "map", "kind", "label", "x m", "y m", "confidence", "caption")


def _cells(memory: Memory) -> list[str]:
    caption = truncated(" ".join(memory.caption.split()), _LONGEST_CAPTION)
    label = truncated(memory.label)
    if memory.state != "present":
        label = f"{label} ({memory.state})"
    return [
        format_time(memory.time_ns, digits=0)[:-1].replace("T", " "),
        truncated(memory.map_id),
        memory.kind,
        label,
        *(cell(value, ".2f") for value in (memory.position or (None, None))[:2]),
        cell(memory.confidence, ".2f"),
        caption,
    ]
