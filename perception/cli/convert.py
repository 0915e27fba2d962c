"""``perceive convert``: a data set of any kind in another layout."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, REMARKS, add_command, progress_bar
from perception.data.convert import TARGETS, convert


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "convert", run)
    parser.add_argument("source", type=Path, help="folder of a data set")
    parser.add_argument("target", type=Path, help="folder to write")
    parser.add_argument(
        "--to",
        required=True,
        choices=TARGETS,
        help="own folder with labels as JSON or CSV, OpenPCDet's custom layout, or KITTI's",
    )
    parser.add_argument("--skip-damaged", action="store_true", help="leave out frames that cannot be read")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run(options: argparse.Namespace) -> int:
    """Convert; the status is 1 if frames were left out."""
    with progress_bar() as bar:
        task = bar.add_task("converting", total=None)
        outcome = convert(
            options.source,
            options.target,
            options.to,
            skip_damaged=options.skip_damaged,
            on_frame=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if options.json:
        print(json.dumps(asdict(outcome)))
        return 1 if outcome.damaged else 0
    for message in outcome.damaged.values():
        REMARKS.print(f"skipped: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    for note in outcome.notes:
        OUTPUT.print(note, style="yellow", markup=False, soft_wrap=True)
    before = f", {outcome.kept} more were there before" if outcome.kept else ""
    OUTPUT.print(f"{outcome.written} frames in {options.target}{before}", soft_wrap=True)
    return 1 if outcome.damaged else 0
