"""The scans of a command line: files, recordings, captures, and merged scans of several sensors."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perception.cli.scans.scan import Scan
from perception.cli.scans.surroundings import Surroundings
from perception.data.dair_v2x.files import SCANS, SideFiles
from perception.data.own import OwnDataSet, read_description
from perception.errors import DataError
from perception.io import find_point_clouds
from perception.io.addresses import address_path, find_addresses
from perception.io.recordings.bag_scans import BagScan, BagScans
from perception.io.recordings.bags import is_bag, open_bag
from perception.io.rig import read_rig
from perception.io.rig_scans import RigScans
from perception.io.sensors.packets import PacketScans
from perception.io.sensors.pcap import is_pcap
from perception.io.transform import ScanTransform

_Read = TypeVar("_Read")


@dataclass(frozen=True, eq=False)
class ScanPaths:
    """Files, and recordings with the stem of their frame names."""

    files: list[Scan]
    recordings: list[tuple[Path, str, BagScans | PacketScans]]

    @property
    def total(self) -> int | None:
        """Number of scans; None if only reading tells."""
        found = [held for _, _, held in self.recordings]
        if any(isinstance(held, PacketScans) for held in found):
            return None
        return len(self.files) + sum(len(held) for held in found if isinstance(held, BagScans))

    def __iter__(self) -> Iterator[Scan]:
        """Yield all scans; those of recordings are read on the way."""
        yield from self.files
        for path, stem, found in self.recordings:
            yield from scans_of(path, stem, found.attempts())


def find_scans(options: argparse.Namespace, transform: ScanTransform, stack: ExitStack) -> ScanPaths:
    """Find all scans of the options' paths; bags stay open until the stack is closed.

    Raises:
        DataError: a path or topic does not exist.
    """
    captures = {
        path: PacketScans(path, options.topic, transform=transform)
        for path in dict.fromkeys(options.paths)
        if is_pcap(path)
    }
    bags = {
        path: BagScans(stack.enter_context(open_bag(path)), options.topic, transform=transform)
        for path in dict.fromkeys(options.paths)
        if is_bag(path)
    }
    recordings: dict[Path, BagScans | PacketScans] = {**bags, **captures}
    # Only detect takes addresses.
    given: list[str] = getattr(options, "addresses", [])
    if options.topic is not None and not recordings:
        raise DataError(
            f"--topic {options.topic} needs a ROS bag, an MCAP file or a capture. Name one, or leave it out."
        )
    rest = [_scan_folder(path) for path in options.paths if path not in recordings]
    paths = find_point_clouds(rest) if rest or not (recordings or given) else []
    addresses = list(dict.fromkeys(one for address in given for one in find_addresses(address)))
    paths += [Path(address_path(address)) for address in addresses]
    origins = [""] * (len(paths) - len(addresses)) + addresses
    files = zip(paths, _output_names(paths), origins, strict=True)
    stems = _output_names(list(recordings))
    firsts: dict[Path, tuple[Path, int]] = {}
    found = []
    for position, (path, name, address) in enumerate(files):
        first, begin = firsts.setdefault(path.parent, (path, position))
        found.append(
            Scan(
                path, name, position,
                address=address, first=None if address else first, place=position - begin,
            )
        )  # fmt: skip
    return ScanPaths(
        found,
        [(path, stem, held) for (path, held), stem in zip(recordings.items(), stems, strict=True)],
    )


def _scan_folder(path: Path) -> Path:
    """Return the scan folder of a described data set or of a side of DAIR-V2X; other paths as they are."""
    if OwnDataSet.recognises(path):
        return path / read_description(path).scans.path
    side = SideFiles.found(path)
    return path if side is None else side.folder / SCANS


class MergedScans:
    """The merged scans of several sensors.

    Args:
        options: options of the command.
        transform: transform of the options, which must be empty.
        surroundings: provides the poses of the robot.

    Raises:
        DataError: the rig file, or a file or topic that it names, is invalid.
        ValueError: an option repeats what the rig file describes.
    """

    def __init__(
        self, options: argparse.Namespace, transform: ScanTransform, surroundings: Surroundings
    ) -> None:
        self._rig = read_rig(options.sensors)
        if options.topic is not None or options.columns is not None or transform.options:
            raise ValueError(
                f"--sensors takes topics, columns, unit and axes from {options.sensors}. Write them there,"
                " for each sensor, and leave the options out."
            )
        self._found = {
            path: RigScans(self._rig, path, surroundings.trajectory(path, self._rig.frame))
            for path in dict.fromkeys(options.paths)
        }

    @property
    def total(self) -> int:
        """Number of frames."""
        return sum(map(len, self._found.values()))

    def __iter__(self) -> Iterator[Scan]:
        """Yield all merged scans, read on the way."""
        found = self._found
        for (path, merged), stem in zip(found.items(), _output_names(list(found)), strict=True):
            for position, scan in enumerate(_attempts(merged.attempts())):
                if isinstance(scan, DataError):
                    yield Scan(path, stem, position, scan, first=path, place=position)
                    continue
                name = frame_name(stem, scan.number) if is_bag(path) else scan.name
                name = name if len(found) == 1 or is_bag(path) else f"{stem}-{name}"
                yield Scan(path, name, position, scan.cloud, self._rig.frame, first=path, place=position)


def scans_of(
    path: Path, stem: str, attempts: Iterator[BagScan | DataError], first: int = 0
) -> Iterator[Scan]:
    """Yield the scans of a recording from a number on, until its end or damage."""
    for number, read in enumerate(_attempts(attempts), first):
        cloud, sensor = (read, "") if isinstance(read, DataError) else (read.cloud, read.frame_id)
        yield Scan(path, frame_name(stem, number), number, cloud, sensor, first=path, place=number)


def frame_name(stem: str, number: int) -> str:
    """Return the frame name of a scan of a recording."""
    return f"{stem}-{number:06d}"


def _attempts(scans: Iterator[_Read | DataError]) -> Iterator[_Read | DataError]:
    """Yield all scans; an error that ends the iteration is yielded last."""
    try:
        yield from scans
    except DataError as error:
        yield error


def _output_names(paths: list[Path]) -> list[str]:
    """Return unique names: file stems, with folder names or numbers if stems repeat."""
    stems = [path.stem for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    names = [f"{path.parent.name}-{path.stem}" for path in paths]
    if len(set(names)) == len(names):
        return names
    return [f"{name}-{position:06d}" for position, name in enumerate(names)]
