"""``perceive pseudo-label``: label the scans of a drive automatically, for training."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command, add_device_option, add_weights_option, counted
from sparse_core.common.console import progress_bar


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(
        commands,
        "pseudo-label",
        run,
    )
    parser.add_argument(
        "data",
        type=Path,
        help="folder of scans in order of time, or data set (its labels are ignored)",
    )
    parser.add_argument("--out", required=True, type=Path, help="output folder, in KITTI's layout")
    add_weights_option(parser)
    parser.add_argument(
        "--poses",
        type=Path,
        help="LiDAR poses: rows of 3x4 matrices, or JSONL (default: poses of the data set; without poses,"
        " only scores decide)",
    )
    parser.add_argument(
        "--score", type=float, help="minimum score of a label (default: by class, from the weights)"
    )
    parser.add_argument(
        "--doubt",
        type=float,
        default=0.2,
        help="remove the points of unlabelled detections above this score (default: 0.2)",
    )
    parser.add_argument(
        "--agree",
        type=int,
        default=3,
        help="of the four nearest scans, how many must confirm a label (default: 3)",
    )
    parser.add_argument(
        "--memory",
        metavar="STORE",
        help="store that knows the place (recall import): the mean score of an object, remembered or tracked"
        " in this drive, decides about its detections",
    )
    parser.add_argument(
        "--map", default="default", metavar="NAME", help="map of the poses in the store (default: default)"
    )
    add_device_option(parser)


def run(options: argparse.Namespace) -> int:
    """Detect, compare neighbouring scans, write the labels."""
    from perception.data import Frame, open_data_set
    from perception.detector import Detector
    from perception.io.poses import ScanPoses
    from perception.train.data.evidence import read_known
    from perception.train.data.pseudo import PseudoLabelling, pseudo_labels, write_pseudo_labels

    frames = open_data_set(options.data)
    settings = PseudoLabelling(score=options.score, doubt=options.doubt, agree=options.agree)
    # Before the detector loads, so that a wrong store is reported at once.
    known = None if options.memory is None else read_known(options.memory, options.map)
    detector = Detector.from_pretrained(options.weights, device=options.device)
    given = None if options.poses is None else ScanPoses(options.poses)

    def pose_of(frame: Frame, number: int) -> tuple[Any, int | None]:
        if given is None:
            return frame.pose, frame.time_ns
        found = given.find(frame.frame_id, number)
        return found.map_from_lidar, found.time_ns or frame.time_ns

    with progress_bar() as bar:
        task = bar.add_task("detecting", total=len(frames))
        found = pseudo_labels(
            detector,
            frames,
            settings,
            known=known,
            poses=pose_of,
            on_frame=lambda done: bar.update(task, completed=done),
        )
        counts = write_pseudo_labels(found, options.out)
    doubtful = counts.pop("")
    labels = ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no labels"
    OUTPUT.print(
        f"{len(frames)} scans in {options.out}: {labels}; {counted(doubtful, 'uncertain object')} removed",
        soft_wrap=True,
    )
    return 0
