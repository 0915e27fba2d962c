"""``perceive init``: inspect a folder of scans and labels, and write its description."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command
from sparse_core.common.console import LOG
from sparse_core.common.table import Table, cell


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "init", run)
    parser.add_argument("directory", type=Path, help="folder of scans and labels, also in subfolders")
    parser.add_argument(
        "--val-share", type=float, default=0.2, help="fraction of frames for validation (default: 0.2)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the validation split (default: 0)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace files of an earlier run; frame lists that you changed are kept",
    )
    parser.add_argument("--no-labels", action="store_true", help="describe only the scans")
    parser.add_argument("--json", action="store_true", help="print the description as JSON")


def run(options: argparse.Namespace) -> int:
    """Describe the folder, write the files, print a summary."""
    from perception.describe import describe_folder, write_files

    described = describe_folder(
        options.directory, val_share=options.val_share, seed=options.seed, labels=not options.no_labels
    )
    written = write_files(described, force=options.force)
    if options.json:
        print(json.dumps({**described.to_dict(), "written": list(map(str, written))}))
        return 0
    rows = [(item.field, _short(item.value), item.sure, item.how) for item in described.evidence]
    heads = ("field", "value", "certainty", "evidence")
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
            "points per box (median of sampled boxes)",
        )
        OUTPUT.print(Table(sizes, classes))
    for remark in described.remarks:
        LOG.warning(remark)
    for path in written:
        OUTPUT.print(f"written: {path}", soft_wrap=True, markup=False)
    OUTPUT.print(
        f"Check the files, then run: perceive doctor {options.directory}", soft_wrap=True, markup=False
    )
    return 0


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
