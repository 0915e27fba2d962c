"""Output of every benchmark: all measurements, a printed table and, with `--publish`, a short file.

A published file holds medians, quartiles, counts, settings and where they come from. It stays in the
repository, so it has fewer than `MOST_LINES` lines, and comes from a commit: see `publish`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, RenderableType

from benchmarks.lib.environment import ROOT, describe
from sparse_core.common.table import Table

#: Published files, which belong to the repository.
RESULTS = ROOT / "benchmarks" / "results"
#: Default folder for complete results; `--out` names a file.
WORKING = ROOT / "build" / "benchmarks"
#: Raised when a field changes its meaning.
SCHEMA = 1
#: Bound of one published file.
MOST_LINES = 300
#: Line widths to try until a file is short enough; the widest keep a case of many sides on one line.
_WIDTHS = (120, 200, 300, 400, 600, 800, 1000, 1200, 1400)
#: Fields that are not published: single samples, and what follows from other fields.
_RAW = frozenset(
    {"samples_ms", "runs", "wrong", "first_call_s", "seconds", "iqr_ms", "minimum_ms", "source_sha256"}
)
#: Further fields that are not published, by benchmark: no page, picture or check reads them.
_UNREAD: dict[str, frozenset[str]] = {
    "calls": frozenset(
        {"count", "p90", "p999", "longest", "slowest_that_check", "slowest_with_garbage_collection"}
    ),
    "compression": frozenset({"layers", "over_float16"}),
    "compression-accuracy": frozenset({"coding", "file", "source_crc32", "tensor_bytes"}),
    "conv": frozenset({"cases", "tflops"}),
    "drive": frozenset({"stores"}),
    "fleet": frozenset({"efforts"}),
    "frame": frozenset({"bars", "stages_ms"}),
    "large": frozenset({"loading"}),
    "locate": frozenset({"sides"}),
    "memory": frozenset({"build_s"}),
    "retention": frozenset({"agreement", "merged", "questions"}),
    "sentences": frozenset({"by_conversation"}),
    "serve": frozenset({"samples"}),
    "spmv": frozenset({"gb_s"}),
    "tracking": frozenset({"amota_by_class", "hota_by_sequence"}),
    "two_observers": frozenset({"labels", "right", "told"}),
}


def result(benchmark: str, device: torch.device, settings: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """The common frame of a result file around the parts of one benchmark."""
    return {
        "schema": SCHEMA,
        "benchmark": benchmark,
        "environment": describe(device),
        "settings": settings,
        **parts,
    }


def save(values: dict[str, Any], options: argparse.Namespace) -> None:
    """Write everything to `options.out` and, with `--publish`, what is published to `benchmarks/results`.

    Args:
        values: of `result`.
        options: of `benchmarks.lib.options.parse`.
    """
    write(values, options.out)
    if options.publish:
        publish(values, RESULTS / f"{options.result}.json")


def write(values: dict[str, Any], path: Path) -> None:
    """Write a result file with everything; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def publish(values: dict[str, Any], path: Path) -> None:
    """Write what is published of a result.

    Raises:
        ValueError: if it was not measured on a clean tree, or stays too long for the repository.
    """
    code = values["environment"]["code"]
    if code["dirty"] is not False:
        raise ValueError(f"{path.stem}: measured on a tree that was not clean (dirty: {code['dirty']})")
    path.write_text(published_text(values), encoding="utf-8")


def published_text(values: dict[str, Any]) -> str:
    """A result as it is published: without samples, eight digits a number, as narrow as its length allows.

    Raises:
        ValueError: if no width gives fewer than `MOST_LINES` lines.
    """
    kept = _summaries(values, _RAW | _UNREAD.get(values["benchmark"], frozenset()))
    for width in _WIDTHS:
        text = _folded(kept, width, 0, 0) + "\n"
        if text.count("\n") < MOST_LINES:
            return text
    raise ValueError(f"{values['benchmark']}: {MOST_LINES} lines and more; publish fewer cases or fields")


def _summaries(value: Any, left_out: frozenset[str]) -> Any:
    """Return a copy without these fields, and without lists `values`: the samples of an adjacent mean."""
    match value:
        case dict():
            return {
                key: _summaries(item, left_out)
                for key, item in value.items()
                if key not in left_out and not (key == "values" and isinstance(item, list))
            }
        case list():
            return [_summaries(item, left_out) for item in value]
        case float():
            return float(f"{value:.8g}")
    return value


def _folded(value: Any, width: int, indent: int, before: int) -> str:
    """Return JSON on one line if it fits, else as filled lines.

    Args:
        value: plain value.
        width: columns.
        indent: columns in front of every line.
        before: columns that a key takes in front of the value.
    """
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not value or not isinstance(value, (dict, list)) or indent + before + len(line) <= width:
        return line
    if isinstance(value, dict):
        named = [(json.dumps(key, ensure_ascii=False) + ": ", item) for key, item in value.items()]
        items = [key + _folded(item, width, indent + 1, len(key)) for key, item in named]
    else:
        items = [_folded(item, width, indent + 1, 0) for item in value]
    lines: list[str] = []
    for item in items:
        if lines and "\n" not in lines[-1] + item and indent + len(lines[-1]) + len(item) + 3 < width:
            lines[-1] += ", " + item
        else:
            lines.append(item)
    start, end = ("{", "}") if isinstance(value, dict) else ("[", "]")
    inner = (",\n" + " " * (indent + 1)).join(lines)
    return f"{start}\n{' ' * (indent + 1)}{inner}\n{' ' * indent}{end}"


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample standard deviation (null for a single value), number and the values themselves."""
    return {
        "mean": round(statistics.fmean(values), 6),
        "std": round(statistics.stdev(values), 6) if len(values) > 1 else None,
        "n": len(values),
        "values": [round(value, 6) for value in values],
    }


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column is text and whose other columns are numbers."""
    return Table(columns, rows, title=title, right=columns[1:])


def aims(values: dict[str, Any], part: str = "bars") -> list[Table]:
    """A table of the figures of one part of a result, in a list that is empty where there are none."""
    found = values.get(part) or {}
    title = {"bars": "Aims"}.get(part, part)
    return [Table(["figure", "value"], found.items(), title=title)] if found else []


def show(
    values: dict[str, Any], tables: Sequence[RenderableType], notes: Sequence[str], *, as_json: bool
) -> None:
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
