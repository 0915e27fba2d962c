"""What every benchmark writes: a JSON file, and a table for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.environment import ROOT, describe
from sparse_core.table import Table

RESULTS = ROOT / "benchmarks" / "results"
#: Raised when a field changes its meaning.
SCHEMA = 1


def result(benchmark: str, device: torch.device, settings: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """The common frame of a result file around the parts of one benchmark."""
    return {
        "schema": SCHEMA,
        "benchmark": benchmark,
        "environment": describe(device),
        "settings": settings,
        **parts,
    }


def write(values: dict[str, Any], path: Path) -> None:
    """Write a result file; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column is text and whose other columns are numbers."""
    return Table(columns, rows, title=title, right=columns[1:])


def show(values: dict[str, Any], tables: Sequence[Table], notes: Sequence[str], *, as_json: bool) -> None:
    """Print tables and notes, or the JSON alone."""
    if as_json:
        sys.stdout.write(json.dumps(values, indent=1, allow_nan=False) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 130)
    for built in tables:
        console.print(built)
    for note in notes:
        console.print(f"- {note}", markup=False, highlight=False)


def number(value: float | None, digits: int = 1) -> str:
    """A number for a table; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"
