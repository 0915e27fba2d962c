"""The scans of several sensors, one merged scan for each of the first sensor's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perception.errors import DataError
from perception.io.point_cloud import is_point_cloud, load_point_cloud
from perception.io.recordings.bag_scans import BagScans
from perception.io.recordings.bags import is_bag, open_bag
from perception.io.rig import Matrix, Rig, RigSensor
from perception.io.times import ScanTimes, said_time
from perception.types import PointCloud

#: Where the common frame was at a time, (4, 4) map_from_common; None where nobody knows.
PoseAt = Callable[[int], Matrix | None]


class RigScan(NamedTuple):
    """A merged scan.

    Attributes:
        number: of the first sensor's scan, from 0.
        name: of its file; in a recording its number.
        cloud: points of all sensors in the common frame.
    """

    number: int
    name: str
    cloud: PointCloud


class _Taken(NamedTuple):
    """A scan of one sensor that may be yet to be read."""

    name: str
    time_ns: int | None
    read: Callable[[], PointCloud]


class RigScans:
    """Merged scans of a folder or recording; every iteration reads them again.

    To a scan of the first sensor belongs, of each other one, the nearest in time; where no scan has a time,
    the one of the same name. With poses the points of the others are moved to where they were seen from the
    place of the robot at the first one's time.

    Args:
        rig: the sensors.
        source: folder below which their files are, or a recording with their topics.
        pose_at: the way of the common frame.

    Raises:
        DataError: a sensor has no scans or no such topic, or some have times and others none.
    """

    def __init__(self, rig: Rig, source: Path, pose_at: PoseAt | None = None) -> None:
        self.rig, self.source = rig, source
        self._pose_at = pose_at
        self._files: dict[str, list[_Taken]] = {}
        if is_bag(source):
            with open_bag(source) as bag:
                counts = [len(BagScans(bag, sensor.scans)) for sensor in rig.sensors]
            self._count = counts[0]
            return
        self._files = {sensor.name: _files(source, sensor) for sensor in rig.sensors}
        self._count = len(self._files[rig.sensors[0].name])
        known = {name: any(one.time_ns is not None for one in found) for name, found in self._files.items()}
        if len(set(known.values())) > 1:
            without = ", ".join(name for name, timed in known.items() if not timed)
            raise DataError(
                f"{rig.path}: the names of the scans of {without} tell no time, those of others do; give a"
                " file with a time a line in the field times"
            )

    def __len__(self) -> int:
        return self._count

    def attempts(self) -> Iterator[RigScan | DataError]:
        """Merged scans, and an error in the place of each that cannot be used.

        Raises:
            DataError: a recording is damaged.
        """
        with ExitStack() as stack:
            first, *others = (self._taken(sensor, stack) for sensor in self.rig.sensors)
            found = [_Partners(one, self.rig.tolerance_s) for one in others]
            for number, one in enumerate(first):
                try:
                    cloud = self._merged(one, found)
                except DataError as error:
                    yield error
                else:
                    yield RigScan(number, one.name, cloud)

    def _merged(self, first: _Taken, others: list[_Partners]) -> PointCloud:
        names = [sensor.name for sensor in self.rig.sensors]
        if first.time_ns is None and any(one.time_ns is not None for one in self._files.get(names[0], ())):
            raise DataError(
                f"{self.source}: scan {first.name!r} of sensor {names[0]!r} has no time, by which scans of"
                " other sensors are found; write it into the file of times"
            )
        clouds = {names[0]: _timed(first)}
        taken = dict(zip(names[1:], (other.of(first) for other in others), strict=True))
        moved: dict[str, Matrix] = {}
        here = None if first.time_ns is None or self._pose_at is None else self._pose_at(first.time_ns)
        for name, one in taken.items():
            if one is None:
                continue
            clouds[name] = _timed(one)
            there = None if one.time_ns is None or self._pose_at is None else self._pose_at(one.time_ns)
            if here is not None and there is not None:
                moved[name] = np.linalg.inv(here) @ there
        return self.rig.merged(clouds, moved)

    def _taken(self, sensor: RigSensor, stack: ExitStack) -> Iterator[_Taken]:
        if self._files:
            yield from self._files[sensor.name]
            return
        scans = BagScans(stack.enter_context(open_bag(self.source)), sensor.scans, transform=sensor.transform)
        for number, scan in enumerate(scans.attempts()):
            time_ns = None if isinstance(scan, DataError) else scan.cloud.timestamp_ns
            yield _Taken(str(number), time_ns, _reading(scan if isinstance(scan, DataError) else scan.cloud))


class _Partners:
    """Scans of another sensor, of which those around the time of the last question are kept."""

    def __init__(self, taken: Iterator[_Taken], tolerance_s: float) -> None:
        self._rest = taken
        self._tolerance_ns = round(tolerance_s * 1e9)
        self._near: deque[_Taken] = deque()
        self._named: dict[str, _Taken] | None = None

    def of(self, first: _Taken) -> _Taken | None:
        """The scan that belongs to one of the first sensor."""
        if first.time_ns is None:
            if self._named is None:
                self._named = {one.name: one for one in self._rest}
            return self._named.get(first.name)
        latest = first.time_ns + self._tolerance_ns
        while not self._near or _time(self._near[-1]) <= latest:
            one = next(self._rest, None)
            if one is None:
                break
            if one.time_ns is not None:
                self._near.append(one)
        while self._near and _time(self._near[0]) < first.time_ns - self._tolerance_ns:
            self._near.popleft()
        at = first.time_ns
        best = min(self._near, key=lambda one: abs(_time(one) - at), default=None)
        return None if best is None or abs(_time(best) - at) > self._tolerance_ns else best


def _files(folder: Path, sensor: RigSensor) -> list[_Taken]:
    """The scans of a sensor in the order of their times, or names."""
    pattern = sensor.scans.lstrip("/")
    try:
        paths = sorted(filter(is_point_cloud, folder.glob(pattern or "*")))
        paths = paths or sorted(filter(is_point_cloud, (folder / pattern).glob("*")))
    except (ValueError, NotImplementedError, OSError) as error:
        raise DataError(f"{folder}: no pattern of files: {sensor.scans!r} ({error})") from error
    if not paths:
        raise DataError(f"{folder}: no scan of sensor {sensor.name!r} matches {sensor.scans!r}")
    times = None if sensor.times is None else ScanTimes(folder / sensor.times)
    found = []
    for position, path in enumerate(paths):
        time_ns = said_time(path.name) if times is None else times.find(path.stem, position)
        found.append(_Taken(path.stem, time_ns, _loading(path, sensor)))
    return sorted(found, key=lambda one: (one.time_ns or 0, one.name))


def _loading(path: Path, sensor: RigSensor) -> Callable[[], PointCloud]:
    return lambda: load_point_cloud(path, columns=sensor.columns, transform=sensor.transform)


def _reading(found: PointCloud | DataError) -> Callable[[], PointCloud]:
    def read() -> PointCloud:
        if isinstance(found, DataError):
            raise found
        return found

    return read


def _timed(one: _Taken) -> PointCloud:
    cloud = one.read()
    return cloud if one.time_ns is None else replace(cloud, timestamp_ns=one.time_ns)


def _time(one: _Taken) -> int:
    return one.time_ns or 0
