"""``perceive track``: track objects through scans, or through another detector's boxes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command, add_device_option, add_weights_option
from perception.cli.options import add_picture_options, add_rename_option, add_topic_option
from perception.cli.records import add_record_options
from perception.cli.scans.dates import DEFAULT_RATE_HZ, add_date_options
from perception.cli.scans.options import add_scan_options
from perception.cli.scans.surroundings import add_surroundings_options
from perception.track.recording import MODES


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "track", run)
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="SCANS",
        help="scan files or folders of them, in order of time; ROS bags and .mcap, with their poses (extra"
        " 'ros'); captures (extra 'packets')",
    )
    add_topic_option(parser)
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="track boxes instead of scans: folder with seqmap.txt, detections*/CLASS/SSSS.txt,"
        " calib/SSSS.txt and optional poses/SSSS.txt, or nuScenes detection results (.json) with --data",
    )
    parser.add_argument("--data", type=Path, help="nuScenes folder of --results FILE.json")
    parser.add_argument(
        "--split", default="val", help="with --data: split of scenes, or 'all' (default: val)"
    )
    parser.add_argument(
        "--missing",
        choices=("error", "empty", "skip"),
        default="error",
        help="with --data: treat samples without results as an error, as empty, or skip them (default:"
        " error)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for detections.jsonl and player.html")
    parser.add_argument("--pictures", action="store_true", help="also draw each scan from above (.png)")
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="online",
        help="frames that a track may use: past ones, also the next two seconds, or all (default: online)",
    )
    parser.add_argument(
        "--rate-hz",
        type=float,
        default=DEFAULT_RATE_HZ,
        help="scan rate for frames without times (default: 10)",
    )
    add_weights_option(parser)
    add_picture_options(parser)
    add_rename_option(parser)
    add_record_options(parser)
    add_surroundings_options(parser)
    add_date_options(parser)
    add_device_option(parser)
    add_scan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Track, and print the number of objects."""
    if (options.results is None) == (not options.paths):
        raise ValueError("Name either SCANS or --results FOLDER.")
    if options.results is not None and not options.results.exists():
        raise ValueError(f"--results {options.results}: no such file or folder. Check the path.")
    if (options.data is not None) != (options.results is not None and options.results.suffix == ".json"):
        raise ValueError(
            "nuScenes results need both --results FILE.json and --data FOLDER. Add the missing one."
        )
    if options.results is not None:
        lengths, what = _run_results(options)
        frames = sum(lengths.values())
        OUTPUT.print(f"{frames} frames of {len(lengths)} {what} written to {options.out}", soft_wrap=True)
        return 0
    from perception.cli.track.scans import run_scans

    return run_scans(options)


def _run_results(options: argparse.Namespace) -> tuple[dict[str, int], str]:
    """Track boxes; return frames by sequence or scene, and the word for these."""
    if options.data is None:
        from perception.track.folders import track_folder

        return track_folder(options.results, options.out, mode=options.mode), "sequences"
    from perception.data import open_data_set
    from perception.track.nuscenes import track_results

    split = None if options.split == "all" else options.split
    data_set = open_data_set(options.data, split, having="scan or labels")
    return track_results(
        data_set, options.results, options.out, mode=options.mode, missing_results=options.missing
    ), "scenes"
