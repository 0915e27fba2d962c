"""``perceive eval``: the KITTI protocol on a detector or on result files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command, add_device_option, progress_bar
from perception.evaluate.kitti import KittiResult


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(
        commands, "eval", "KITTI average precision of a detector on a data set, or of result files.", run
    )
    parser.add_argument("--data", required=True, type=Path, help="KITTI-layout folder with labels")
    parser.add_argument("--split", default="val", help="ImageSets list, or 'all' (default: val)")
    parser.add_argument(
        "--results", type=Path, help="folder of KITTI result files to evaluate instead of detecting"
    )
    parser.add_argument(
        "--missing",
        choices=("error", "empty", "skip"),
        default="error",
        help="with --results: frames without a file are an error, hold nothing, or are left out"
        " (default: error, as of the official program)",
    )
    parser.add_argument("--weights", default="pointpillars-kitti", help="shipped name or file")
    parser.add_argument("--out", type=Path, help="folder for result files, metrics.json and the PNG")
    parser.add_argument("--json", action="store_true", help="print the metrics as JSON")
    add_device_option(parser)


def run(options: argparse.Namespace) -> int:
    """Detect unless results are given, evaluate, print the table."""
    from perception.evaluate.report import format_table, plot_precision_recall

    result = _evaluate(options)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "metrics.json").write_text(json.dumps(result.to_dict(), indent=1) + "\n")
        plot_precision_recall(result, options.out / "precision_recall.png")
    if options.json:
        print(json.dumps(result.to_dict()))
    else:
        OUTPUT.print(format_table(result))
    return 0


def _evaluate(options: argparse.Namespace) -> KittiResult:
    import tempfile

    from perception.evaluate.data_set import evaluate_detector
    from perception.evaluate.kitti import evaluate_kitti
    from perception.io.kitti import KittiDataset, labelled_folder, split_ids

    split = None if options.split == "all" else options.split
    if options.results is not None:
        # Labels are all that results are compared with: neither scans nor calibration are needed.
        labels = labelled_folder(options.data) / "label_2"
        return evaluate_kitti(
            labels,
            options.results,
            frame_ids=None if split is None else split_ids(options.data, split),
            missing_results=options.missing,
        )

    from perception.detector import Detector

    data_set = KittiDataset(options.data, split)

    detector = Detector.from_pretrained(options.weights, device=options.device)
    with tempfile.TemporaryDirectory() as scratch, progress_bar() as bar:
        task = bar.add_task("detecting", total=len(data_set))
        directory = Path(scratch) if options.out is None else options.out / "results"
        return evaluate_detector(
            detector, data_set, directory, on_frame=lambda frame_id, found: bar.advance(task)
        )
