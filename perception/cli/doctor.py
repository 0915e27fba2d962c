"""``perceive doctor``: examine a custom data set before training or detection."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command, progress_bar
from perception.cli.scan_options import add_scan_options, columns_of, transform_of


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(
        commands, "doctor", "Say in words what is wrong with a data set; exit status 1 if something is.", run
    )
    parser.add_argument("directory", type=Path, help="folder of a data set, or of point clouds")
    parser.add_argument(
        "--classes", default="Car,Pedestrian,Cyclist", help="class names, separated by commas"
    )
    parser.add_argument("--max-frames", type=int, help="examine at most this many frames")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_scan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Examine and report."""
    from perception.doctor import examine_data_set, format_report

    with progress_bar() as bar:
        task = bar.add_task("examining", total=None)
        report = examine_data_set(
            options.directory,
            classes=tuple(name.strip() for name in options.classes.split(",") if name.strip()),
            columns=columns_of(options),
            transform=transform_of(options),
            max_frames=options.max_frames,
            on_frame=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if options.json:
        print(json.dumps(report.to_dict()))
    else:
        OUTPUT.print(format_report(report))
    return 0 if report.ok else 1
