"""``perceive init``: look at a folder of one's own data and write what it is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command
from sparse_core.common.table import Table, cell


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "init", run)
    parser.add_argument("directory", type=Path, help="folder with scans and, in it or below, labels")
    parser.add_argument(
        "--val-share", type=float, default=0.2, help="share of the frames for validation (default: 0.2)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the choice of these (default: 0)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite what an earlier run wrote; lists of frames that you made or changed stay",
    )
    parser.add_argument(
        "--no-labels", action="store_true", help="describe the scans alone, whatever else lies in the folder"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def run(options: argparse.Namespace) -> int:
    """Describe, write, print."""
    from perception.describe import describe_folder, write_files

    described = describe_folder(
        options.directory, val_share=options.val_share, seed=options.seed, labels=not options.no_labels
    )
    written = write_files(described, force=options.force)
    if options.json:
        print(json.dumps({**described.to_dict(), "written": list(map(str, written))}))
        return 0
    rows = [(item.field, _short(item.value), item.sure, item.how) for item in described.evidence]
    heads = ("field", "value", "how sure", "how it was found")
    OUTPUT.print(Table(heads, rows, title=str(options.directory)))
    if described.classes:
        classes = [
            (
                name,
                facts.boxes,
                facts.frames,
                " x ".join(f"{size:.2f}" for size in facts.size_m),
                "-" if facts.points is None else f"{cell(facts.points, '.0f')} (of {facts.points_boxes})",
            )
            for name, facts in described.classes.items()
        ]
        sizes = (
            "class",
            "boxes",
            "frames",
            "length x width x height m",
            "points a box (median of looked-at boxes)",
        )
        OUTPUT.print(Table(sizes, classes))
    for remark in described.remarks:
        OUTPUT.print(remark, style="yellow", markup=False, soft_wrap=True)
    for path in written:
        OUTPUT.print(f"written: {path}", soft_wrap=True, markup=False)
    OUTPUT.print(f"look at it, then: perceive doctor {options.directory}", soft_wrap=True, markup=False)
    return 0


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
