"""``perceive demo``: quick start on the simulated street that comes with the package."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perception.cli.console import OUTPUT, add_command
from perception.cli.detect.pages import PAGE
from perception.data import Frame
from perception.data.own import OwnWriter
from perception.data.sample import LEAST_POINTS, SampleFrame, sample_frames
from perception.types import Detections

#: Classes of the shipped weights.
CLASSES = ("Car", "Pedestrian", "Cyclist")
#: An object is found if a box of its class lies this close.
FOUND_M = 1.0


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "demo", run)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("sparsight-demo"),
        help="output folder (default: sparsight-demo)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the scans as a data set, detect in the last one, track through all, and list the results."""
    frames = sample_frames()
    street = options.out / "street"
    _write(street, frames)
    last = frames[-1].frame_id
    scan, found, tracks = street / "scans" / f"{last}.bin", options.out / "detections", options.out / "tracks"
    say(f"{len(frames)} scans of a simulated street, with poses and labels, are in {street}\n")
    quiet = ["-q"] if options.verbosity < 0 else []
    for command in (
        ["detect", f"{scan}", "--out", f"{found}", "--overwrite", *quiet],
        ["track", f"{street / 'scans'}", "--out", f"{tracks}", "--pictures", "--overwrite", *quiet],
    ):
        say(f"$ perceive {shlex.join(command)}")
        status: int = options.main(command)
        say("")
        if status:
            return status
    say(_judged(frames, tracks / "detections.jsonl"))
    say("Open")
    for path, what in (
        (
            found / PAGE,
            "interactive 3D view of the scan; dashed boxes are labels",
        ),
        (found / f"{last}.png", "the scan from above"),
        (tracks / PAGE, "3D player of all scans with tracks"),
        (tracks / f"{last}.png", "tracks and their trajectories from above"),
    ):
        say(f"  {path}  {what}")
    say("Next")
    memory, records = options.out / "memory", tracks / "detections.jsonl"
    for command in (
        ["perceive", "detect", "YOUR_SCAN.bin", "--out", "OUT"],
        ["recall", "import", f"{memory}", f"{records}"],
        ["recall", "ask", f"{memory}", "how many cars are there?"],
        ["recall", "demo"],
    ):
        say(f"  {shlex.join(command)}")
    return 0


def say(text: str) -> None:
    """Print a line unmodified."""
    OUTPUT.print(text, highlight=False, markup=False, soft_wrap=True)


def _write(folder: Path, frames: list[SampleFrame]) -> None:
    writer = OwnWriter(folder, "json")
    for frame in frames:
        writer.write(frame)
    names = [frame.frame_id for frame in frames]
    writer.write_split("train", names[:-1])
    writer.write_split("val", names[-1:])
    labels = dict.fromkeys(name for frame in frames for name in frame.labels)
    writer.write_description({name: name for name in labels}, None)


def _judged(frames: Sequence[Frame], records: Path) -> str:
    """Count the labelled objects that have a detection of their class nearby."""
    known = count = 0
    for frame, line in zip(frames, records.read_text().splitlines(), strict=True):
        found = Detections.from_dict(json.loads(line))
        for row, name in enumerate(frame.labels):
            if name in CLASSES:
                same = found.boxes[[other == name for other in found.labels]]
                away = np.linalg.norm(same[:, :2] - frame.boxes[row, :2], axis=1)
                known, count = known + 1, count + bool((away <= FOUND_M).any())
    return (
        f"Found {count} of {known} labelled cars, pedestrians and cyclists (at least {LEAST_POINTS} points)"
        f" within {FOUND_M:g} m."
    )
