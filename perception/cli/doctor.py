"""``perceive doctor``: check a data set before training or detection, or the installation."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command
from perception.cli.scans.options import add_scan_options, columns_of, transform_of
from perception.cli.train.command import resolve_config
from perception.config import DetectorConfig, TrainConfig, load_config
from sparse_core.common.console import progress_bar

#: Weights that fine-tuning starts from by default.
_START = "pointpillars-kitti"


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "doctor", run)
    parser.add_argument("directory", type=Path, nargs="?", help="data set, or folder of scans")
    parser.add_argument(
        "--install",
        action="store_true",
        help="check the installation instead: versions, devices, extras, compiled parts and caches",
    )
    parser.add_argument(
        "--config",
        help="training configuration with classes and range, by file or shipped name (default: train.yaml"
        " in the directory)",
    )
    parser.add_argument(
        "--classes",
        help="class names, separated by commas (default: from the configuration, dataset.yaml, or"
        " Car,Pedestrian,Cyclist)",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WEIGHTS",
        help="weights to fine-tune, whose class names are compared; 'none' for training from scratch"
        f" (default: {_START} for a folder with dataset.yaml)",
    )
    parser.add_argument("--max-frames", type=int, help="check at most this many frames")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_scan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Check the data set or the installation and print the report; the exit status is 1 for errors."""
    if options.install == (options.directory is not None):
        raise ValueError("Name a data set, or check the installation: perceive doctor --install")
    if options.install:
        return _check_installation(options)
    from perception.doctor import examine_data_set, format_report

    classes, detector = _training_config(options)
    with progress_bar() as bar:
        task = bar.add_task("checking", total=None)
        report = examine_data_set(
            options.directory,
            classes=classes,
            pillars=None if detector is None else detector.pillars,
            headings=None if detector is None else detector.head.headings,
            weights=_weights(options),
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


def _check_installation(options: argparse.Namespace) -> int:
    from perception.doctor import examine_installation, format_installation

    report = examine_installation()
    if options.json:
        print(json.dumps(report.to_dict()))
    else:
        OUTPUT.print(format_installation(report))
    return 0 if report.ok else 1


def _weights(options: argparse.Namespace) -> str | None:
    """Return the weights to fine-tune, or None."""
    from perception.data.own import DESCRIPTION_NAME

    if options.start is None:
        return _START if (options.directory / DESCRIPTION_NAME).is_file() else None
    return None if options.start == "none" else str(options.start)


def _training_config(options: argparse.Namespace) -> tuple[tuple[str, ...] | None, DetectorConfig | None]:
    """Return the classes and the detector of the training, if known."""
    from perception.describe import TRAINING_NAME

    default = options.directory / TRAINING_NAME
    name = options.config if options.config is not None or not default.is_file() else str(default)
    classes, detector = None, None
    if name is not None:
        detector = load_config(TrainConfig, resolve_config(name)).detector
        classes = detector.head.classes
    if options.classes is not None:
        classes = tuple(name.strip() for name in options.classes.split(",") if name.strip())
    return classes, detector
