"""``perceive convert``: convert a data set to another layout."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command
from perception.data.convert import TARGETS, convert
from sparse_core.common.console import LOG, progress_bar


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "convert", run)
    parser.add_argument("source", type=Path, help="data set to convert")
    parser.add_argument("target", type=Path, help="output folder")
    parser.add_argument(
        "--to",
        required=True,
        choices=TARGETS,
        help="layout: scans with labels in JSON or CSV, OpenPCDet's custom data set, or KITTI",
    )
    parser.add_argument("--skip-damaged", action="store_true", help="skip unreadable frames")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Convert; the exit status is 1 if frames were skipped."""
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
        LOG.error("skipped: %s", message)
    for note in outcome.notes:
        LOG.warning(note)
    before = f", {outcome.kept} from an earlier run" if outcome.kept else ""
    OUTPUT.print(f"{outcome.written} frames in {options.target}{before}", soft_wrap=True)
    return 1 if outcome.damaged else 0
