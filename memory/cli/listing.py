"""Memories as rows of a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from memory.cli.console import table
from memory.exchange.records import record_of
from memory.exchange.times import format_time
from memory.types import Hit, Memory

_LONGEST_CAPTION = 60
_LAST_VISITS = 20
#: Of a score, in the order of their columns.
PARTS = ("similarity", "text", "distance_m", "recency")


def hits_table(title: str, hits: Sequence[Hit]) -> Table:
    """A row a hit; columns only for the parts that there are."""
    parts = [name for name in PARTS if any(name in hit.parts for hit in hits)]
    attended = any(hit.attention is not None for hit in hits)
    heads = [*parts, *(["attention"] if attended else [])]
    columns = ["id", *heads, *_COLUMNS]
    rows = []
    for hit in hits:
        numbers = [f"{hit.parts[name]:.3f}" if name in hit.parts else "" for name in parts]
        if attended:
            numbers.append("" if hit.attention is None else f"{hit.attention:.3f}")
        rows.append([str(hit.memory.id), *numbers, *_cells(hit.memory)])
    return table(title, columns, rows, right=",".join(["id", *heads, "x m", "y m", "confidence"]))


def memories_table(title: str, memories: Sequence[Memory]) -> Table:
    """A row a memory."""
    rows = [[str(memory.id), *_cells(memory)] for memory in memories]
    return table(title, ["id", *_COLUMNS], rows, right="id,x m,y m,confidence")


def visits_table(memory: Memory) -> Table:
    """When a merged memory was seen: a row for each of the last visits."""
    shown = memory.visits[-_LAST_VISITS:]
    more = f", the last {len(shown)} of {len(memory.visits)}" if len(shown) < len(memory.visits) else ""
    rows = [
        [
            format_time(visit.first_ns, digits=0)[:-1].replace("T", " "),
            format_time(visit.last_ns, digits=0)[:-1].replace("T", " "),
            str(visit.sights),
        ]
        for visit in shown
    ]
    return table(f"visits{more}", ["first (UTC)", "last (UTC)", "sights"], rows, right="sights")


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """Plain values, without vectors."""
    found = {"score": hit.score, "parts": dict(hit.parts), "memory": record_of(hit.memory, vectors=False)}
    if hit.attention is not None:
        found["attention"] = hit.attention
    return found | {"reason": hit.reason} if hit.reason else found


_COLUMNS = ("time (UTC)", "map", "kind", "label", "x m", "y m", "confidence", "caption")


def _cells(memory: Memory) -> list[str]:
    caption = " ".join(memory.caption.split())
    if len(caption) > _LONGEST_CAPTION:
        caption = caption[: _LONGEST_CAPTION - 1] + "…"
    label = memory.label if memory.state == "present" else f"{memory.label} ({memory.state})"
    return [
        format_time(memory.time_ns, digits=0)[:-1].replace("T", " "),
        memory.map_id,
        memory.kind,
        label,
        f"{memory.position[0]:.2f}",
        f"{memory.position[1]:.2f}",
        f"{memory.confidence:.2f}",
        caption,
    ]
