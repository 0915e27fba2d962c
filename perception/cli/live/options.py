"""Options of ``perceive live``, and the source that they name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from perception.cli.console import add_command, add_device_option, add_precision_option, add_weights_option
from perception.cli.options import add_topic_option
from perception.cli.scans.options import add_scan_options, columns_of
from perception.cli.scans.reading import ScanReader
from perception.cli.scans.scan import Scan
from perception.cli.scans.source import find_scans
from perception.cli.scans.surroundings import Surroundings, add_surroundings_options
from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.io.recordings.bags import is_bag
from perception.io.sensors.pcap import is_pcap
from perception.io.transform import ScanTransform
from perception.live import (
    GrowingFolder,
    PacketSocket,
    Recorded,
    Replay,
    Ros2Address,
    Ros2Scans,
    Source,
    UdpAddress,
    ros2,
    udp,
)
from perception.live.running import QUEUE


def add_live_options(commands: Any, run: Callable[[argparse.Namespace], int]) -> None:
    """Declare the options."""
    parser = add_command(commands, "live", run)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="folder to watch for new scans; Velodyne or Ouster packets, udp://:2368 (extra 'packets'); ROS"
        " 2 topic,"
        " ros2:/points (extra 'ros2'); ROS bag or .mcap (extra 'ros') or capture, replayed in real time",
    )
    parser.add_argument(
        "--replay", action="store_true", help="replay the scans of a folder instead of watching it"
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="N",
        help="replay speed; 2 is twice real time (default: 1)",
    )
    add_topic_option(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder for detections.jsonl, one line per scan"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the detections.jsonl of an earlier run"
    )
    parser.add_argument(
        "--memory",
        metavar="STORE",
        help="remember tracks and places in this recall store, created if missing",
    )
    parser.add_argument("--map", default="default", help="with --memory: name of the map (default: default)")
    parser.add_argument(
        "--publish",
        action="append",
        default=[],
        metavar="VIEWER",
        help="show results (repeatable): foxglove[=HOST:PORT] serves Foxglove, rerun[=ADDRESS] opens Rerun"
        " (extras 'foxglove', 'rerun'), ros2[=[//HOST[:PORT]][/NAMESPACE]] publishes boxes and markers (extra"
        " 'ros2')",
    )
    parser.add_argument(
        "--rate",
        type=float,
        metavar="HZ",
        help="largest number of scans per second to process (default: all)",
    )
    parser.add_argument(
        "--queue", type=int, default=QUEUE, metavar="N",
        help="most waiting scans; the oldest is dropped (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--predict", type=float, nargs="?", const=0.0, metavar="MS",
        help="also report boxes predicted to the time of delivery, or MS milliseconds later, in records and"
        " to ROS 2",
    )  # fmt: skip
    parser.add_argument(
        "--keep-warm",
        action="store_true",
        help="compute empty frames between scans, so that a scan after a pause takes less time on a GPU;"
        " costs power",
    )
    parser.add_argument("--for", type=float, dest="seconds", metavar="S", help="stop after S seconds")
    parser.add_argument("--json", action="store_true", help="print statistics as JSON, one line per second")
    parser.add_argument(
        "--health",
        metavar="[HOST:]PORT",
        help="serve /healthz, and /metrics for Prometheus (extra 'live'), on this port (default host:"
        " 127.0.0.1)",
    )
    add_weights_option(parser)
    add_surroundings_options(parser)
    add_device_option(parser)
    add_precision_option(parser)
    add_scan_options(parser)


def open_source(
    options: argparse.Namespace,
    transform: ScanTransform,
    surroundings: Surroundings,
    stack: ExitStack,
    say: Callable[[str], None],
) -> Source:
    """Open the source of the options; bags stay open until the stack is closed.

    Raises:
        DataError: the source does not exist or has no scans.
        ValueError: an option does not fit the source.
    """
    if options.source.startswith(f"{ros2.SCHEME}:"):
        return Ros2Scans(Ros2Address.parse(options.source), transform=transform, say=say)
    if options.source.startswith(f"{udp.SCHEME}:"):
        return PacketSocket(UdpAddress.parse(options.source), transform=transform, say=say)
    path = Path(options.source)
    if not path.exists():
        raise DataError(
            f"{path}: no such file or folder. Name a folder to watch, a recording, a capture, udp://:PORT or"
            " ros2:/TOPIC."
        )
    recording = is_bag(path) or is_pcap(path)
    if path.is_dir() and not recording and not options.replay:
        if options.topic is not None:
            raise ValueError(
                f"--topic {options.topic} needs a recording or capture, but {path} is a folder. Leave it out."
            )
        folder = GrowingFolder(path, columns=columns_of(options), transform=transform)
        if there := folder.held():
            say(f"{path}: skipping {there} scans that are already there; --replay plays them.")
        return folder
    total = find_scans(options, transform, stack).total
    if total == 0:
        raise DataError(f"{path}: no scans. Name another recording, or another topic with --topic.")

    def recorded() -> Iterator[Recorded | DataError]:
        read = ScanReader(options, transform)
        for scan in find_scans(options, transform, stack):
            try:
                yield _recorded(scan, read, surroundings, say)
            except DataError as error:
                yield error

    return Replay(recorded, name=str(path), speed=options.speed)


def _recorded(
    scan: Scan, read: ScanReader, surroundings: Surroundings, say: Callable[[str], None]
) -> Recorded:
    """Read a scan with its time and pose; report why it has no pose."""
    found = read(scan)
    cloud = surroundings.timed(found.cloud, scan, found.frame)
    pose: ScanPose | None = None
    try:
        pose = surroundings.pose_of(scan, cloud, found.frame)
    except DataError as error:
        say(str(error))
    return Recorded(scan.name, cloud, scan.sensor, pose)


def address_of(option: str, text: str) -> tuple[str, int]:
    """Parse ``[HOST:]PORT``; raise ``ValueError``, which names the option, for another form."""
    given, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"{option} must be [HOST:]PORT, such as 127.0.0.1:8765, got {text!r}")
    return given.strip("[]") or "127.0.0.1", int(port)
