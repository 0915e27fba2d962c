"""``perceive track``: things followed through scans, or through another detector's boxes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command, add_device_option
from perception.cli.options import add_rename_option
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
        help="files (.bin .npy .pcd .ply) or folders of them, in order; bags of ROS and .mcap files (extra"
        " 'ros'), with the poses that are in them; captures of packets (extra 'packets')",
    )
    parser.add_argument("--topic", help="of point clouds, in bags that have several; a sensor's address:port")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="follow boxes in place of scans: seqmap.txt, detections*/CLASS/SSSS.txt, calib/SSSS.txt and, if"
        " known, poses/SSSS.txt; writes a KITTI tracking file for each sequence. Or a nuScenes detection"
        " result file (.json) with --data: writes one of the tracking task, results.json",
    )
    parser.add_argument("--data", type=Path, help="folder of nuScenes that --results FILE.json is of")
    parser.add_argument("--split", default="val", help="with --data: its scenes, or 'all' (default: val)")
    parser.add_argument(
        "--missing",
        choices=("error", "empty", "skip"),
        default="error",
        help="with --data: samples without results are an error, hold nothing, or are left out",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for records, a PNG a frame and player.html"
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="online",
        help="what a frame may know: what came before it, the next two seconds, or all (default: online)",
    )
    parser.add_argument(
        "--rate-hz", type=float, default=DEFAULT_RATE_HZ, help="of frames without times (default: 10)"
    )
    parser.add_argument("--weights", default="pointpillars-kitti", help="shipped name or file")
    parser.add_argument("--no-pictures", action="store_true", help="write detections.jsonl only")
    parser.add_argument(
        "--rerun", metavar="FILE.rrd", help="also for the Rerun viewer; 'live' opens it (extra 'viewers')"
    )
    parser.add_argument("--mcap", type=Path, metavar="FILE.mcap", help="also for Foxglove (extra 'viewers')")
    add_rename_option(parser)
    add_record_options(parser)
    add_surroundings_options(parser)
    add_date_options(parser)
    add_device_option(parser)
    add_scan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Track; print how many things there were."""
    if (options.results is None) == (not options.paths):
        raise ValueError("name scans, or --results with a folder of boxes: one of the two")
    if (options.data is not None) != (options.results is not None and options.results.suffix == ".json"):
        raise ValueError("--data is the nuScenes folder of --results FILE.json: name both")
    if options.results is not None:
        lengths, what = _run_results(options)
        frames = sum(lengths.values())
        OUTPUT.print(f"{frames} frames of {len(lengths)} {what} in {options.out}", soft_wrap=True)
        return 0
    from perception.cli.track.scans import run_scans

    return run_scans(options)


def _run_results(options: argparse.Namespace) -> tuple[dict[str, int], str]:
    """Frames by sequence or scene, and what they are called."""
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
