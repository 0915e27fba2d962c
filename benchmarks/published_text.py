"""What the makers of published tables share: result files in, Markdown out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.results import RESULTS


def load_result(name: str) -> dict[str, Any] | None:
    """Values of a result file; None where there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def results() -> str:
    """Where each published file comes from."""
    rows = []
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))["environment"]
        hardware, code = found["hardware"], found["code"]
        device = hardware["gpu"]["model"] if hardware["gpu"] else f"CPU, {found['threads']} threads"
        tree = {True: "uncommitted changes", False: "clean"}.get(code["dirty"], "not a checkout")
        rows.append(
            [
                f"[{path.stem}](results/{path.name})",
                device,
                found["time"][:10],
                (code["commit"] or "–")[:9],
                tree,
            ]
        )
    return markdown_table(["file", "measured on", "day", "commit", "tree"], rows)
