"""The options of ``perceive live``, and the source that they name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from perception.cli.console import add_command, add_device_option, add_precision_option
from perception.cli.scans.options import add_scan_options, columns_of
from perception.cli.scans.scan import Scan
from perception.cli.scans.source import find_scans
from perception.cli.scans.surroundings import Surroundings, add_surroundings_options
from perception.data import frame_beside
from perception.errors import DataError
from perception.io import load_point_cloud
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
    """Declare them."""
    parser = add_command(commands, "live", run)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder that scans are written to; packets of a Velodyne or Ouster sensor, udp://:2368 (extra"
        " 'packets'); a topic of ROS 2, ros2:/points (extra 'ros2'); a bag of ROS, .mcap file or capture,"
        " played at its own pace (extra 'ros')",
    )
    parser.add_argument("--replay", action="store_true", help="play what is in the folder, at its own pace")
    parser.add_argument(
        "--speed", type=float, default=1.0, metavar="N", help="of a replay: 2 is twice as fast (default: 1)"
    )
    parser.add_argument("--topic", help="of point clouds, in bags that have several; a sensor's address:port")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write detections.jsonl, a line a scan")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the detections.jsonl of an earlier run"
    )
    parser.add_argument(
        "--memory", metavar="STORE", help="remember tracks and places in a store (recall), made if need be"
    )
    parser.add_argument("--map", default="default", help="with --memory: map of the poses")
    parser.add_argument(
        "--publish",
        action="append",
        default=[],
        metavar="VIEWER",
        help="foxglove or foxglove=HOST:PORT: a server that Foxglove connects to; rerun: opens its viewer, or"
        " rerun=ADDRESS of one (extra 'viewers'); ros2 or ros2=[//HOST[:PORT]][/NAMESPACE]: boxes and"
        " markers for nodes of ROS 2 (extra 'ros2'); may be given several times",
    )
    parser.add_argument(
        "--rate", type=float, metavar="HZ", help="scans a second that are looked at, at most (default: all)"
    )
    parser.add_argument(
        "--queue", type=int, default=QUEUE, metavar="N",
        help="scans that wait at most; the oldest makes way (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--for", type=float, dest="seconds", metavar="S", help="end after so many seconds")
    parser.add_argument("--json", action="store_true", help="figures as lines of JSON, one a second")
    parser.add_argument(
        "--health",
        metavar="[HOST:]PORT",
        help="answer /healthz, and /metrics for Prometheus (extra 'live'), at this port of this computer",
    )
    parser.add_argument("--weights", default="pointpillars-kitti", help="shipped name or file")
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
    """What the options name; bags stay open until the stack is closed.

    Raises:
        DataError: there is no such source, or it holds nothing that can be used.
        ValueError: options that do not belong to it.
    """
    if options.source.startswith(f"{ros2.SCHEME}:"):
        return Ros2Scans(Ros2Address.parse(options.source), transform=transform, say=say)
    if options.source.startswith(f"{udp.SCHEME}:"):
        return PacketSocket(UdpAddress.parse(options.source), transform=transform, say=say)
    path = Path(options.source)
    if not path.exists():
        raise DataError(
            f"{path}: no such file or folder; expected a folder that scans are written to, a recording, a"
            " capture, udp://:PORT or ros2:/TOPIC"
        )
    recording = is_bag(path) or is_pcap(path)
    if path.is_dir() and not recording and not options.replay:
        if options.topic is not None:
            raise ValueError(f"--topic {options.topic} is for recordings and captures; {path} is a folder")
        folder = GrowingFolder(path, columns=columns_of(options), transform=transform)
        if there := folder.held():
            say(f"{path}: scans that are there already ({there}) are left; --replay plays them")
        return folder
    total = find_scans(options, transform, stack).total
    if total == 0:
        raise DataError(f"{path}: holds no scans")

    def recorded() -> Iterator[Recorded | DataError]:
        for scan in find_scans(options, transform, stack):
            try:
                yield _read(scan, options, transform, surroundings, say)
            except DataError as error:
                yield error

    return Replay(recorded, name=str(path), speed=options.speed)


def _read(
    scan: Scan,
    options: argparse.Namespace,
    transform: ScanTransform,
    surroundings: Surroundings,
    say: Callable[[str], None],
) -> Recorded:
    """A scan of a recording with its time and, where there is one, its pose; why there is none is said."""
    if isinstance(scan.read, DataError):
        raise scan.read
    beside = frame_beside(scan.path) if scan.read is None else None
    if scan.read is not None:
        cloud = scan.read
    elif beside is not None and options.columns is None and transform == ScanTransform():
        cloud = beside.cloud
    else:
        cloud = load_point_cloud(scan.path, columns=columns_of(options), transform=transform)
    cloud = surroundings.timed(cloud, scan, beside)
    pose: ScanPose | None = None
    try:
        pose = surroundings.scan_pose(
            scan.name, scan.position, cloud.timestamp_ns, beside, bag=scan.bag, sensor=scan.sensor
        )
    except DataError as error:
        say(str(error))
    return Recorded(scan.name, cloud, scan.sensor, pose)


def address_of(option: str, text: str, *, host: str = "127.0.0.1") -> tuple[str, int]:
    """Host and port of ``[HOST:]PORT``.

    Raises:
        ValueError: it is none.
    """
    given, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"{option} must be [HOST:]PORT, got {text!r}")
    return given.strip("[]") or host, int(port)
