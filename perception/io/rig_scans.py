"""Merged scans of several sensors: one for each scan of the first sensor."""

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
from perception.io.times import ScanTimes, time_in_name
from perception.types import PointCloud

#: Returns (4, 4) map_from_common at a time, or None.
PoseAt = Callable[[int], Matrix | None]


class RigScan(NamedTuple):
    """A merged scan.

    Attributes:
        number: index of the first sensor's scan, from 0.
        name: name of its file, or its number in a recording.
        cloud: points of all sensors in the common frame.
    """

    number: int
    name: str
    cloud: PointCloud


class _SensorScan(NamedTuple):
    """A scan of one sensor; ``read`` loads it."""

    name: str
    time_ns: int | None
    read: Callable[[], PointCloud]


class RigScans:
    """Merged scans of a folder or recording; every iteration reads them again.

    Each scan of the first sensor is merged with the nearest scan in time of every other sensor, or with the
    scan of the same name if no scan has a time. With poses, points are corrected for the robot's motion.

    Args:
        rig: the sensors.
        source: folder of their files, or recording with their topics.
        pose_at: poses of the common frame.

    Raises:
        DataError: a sensor has no scans or topic, or only some sensors have times.
    """

    def __init__(self, rig: Rig, source: Path, pose_at: PoseAt | None = None) -> None:
        self.rig, self.source = rig, source
        self._pose_at = pose_at
        self._files: dict[str, list[_SensorScan]] = {}
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
                f"{rig.path}: scans of {without} have no times, those of other sensors do. Add the field"
                " times with a file of one time per line."
            )

    def __len__(self) -> int:
        return self._count

    def attempts(self) -> Iterator[RigScan | DataError]:
        """Yield merged scans, or an error for each unusable one; raise if the recording is damaged."""
        with ExitStack() as stack:
            first, *others = (self._taken(sensor, stack) for sensor in self.rig.sensors)
            found = [_NearestScans(one, self.rig.tolerance_s) for one in others]
            for number, one in enumerate(first):
                try:
                    cloud = self._merged(one, found)
                except DataError as error:
                    yield error
                else:
                    yield RigScan(number, one.name, cloud)

    def _merged(self, first: _SensorScan, others: list[_NearestScans]) -> PointCloud:
        names = [sensor.name for sensor in self.rig.sensors]
        if first.time_ns is None and any(one.time_ns is not None for one in self._files.get(names[0], ())):
            raise DataError(
                f"{self.source}: scan {first.name!r} of sensor {names[0]!r} has no time to match other"
                " sensors by. Write it into the file of times."
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

    def _taken(self, sensor: RigSensor, stack: ExitStack) -> Iterator[_SensorScan]:
        if self._files:
            yield from self._files[sensor.name]
            return
        scans = BagScans(stack.enter_context(open_bag(self.source)), sensor.scans, transform=sensor.transform)
        for number, scan in enumerate(scans.attempts()):
            time_ns = None if isinstance(scan, DataError) else scan.cloud.timestamp_ns
            yield _SensorScan(
                str(number), time_ns, _reading(scan if isinstance(scan, DataError) else scan.cloud)
            )


class _NearestScans:
    """Scans of another sensor, with a buffer around the last requested time."""

    def __init__(self, taken: Iterator[_SensorScan], tolerance_s: float) -> None:
        self._rest = taken
        self._tolerance_ns = round(tolerance_s * 1e9)
        self._near: deque[_SensorScan] = deque()
        self._named: dict[str, _SensorScan] | None = None

    def of(self, first: _SensorScan) -> _SensorScan | None:
        """Return the scan that matches one of the first sensor, or None."""
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


def _files(folder: Path, sensor: RigSensor) -> list[_SensorScan]:
    """Return the scans of a sensor, sorted by time or name."""
    pattern = sensor.scans.lstrip("/")
    try:
        paths = sorted(filter(is_point_cloud, folder.glob(pattern or "*")))
        paths = paths or sorted(filter(is_point_cloud, (folder / pattern).glob("*")))
    except (ValueError, NotImplementedError, OSError) as error:
        raise DataError(
            f"{folder}: {sensor.scans!r} is not a valid file pattern ({error}). Write for example"
            " front/*.bin."
        ) from error
    if not paths:
        raise DataError(
            f"{folder}: no file matches {sensor.scans!r}. Correct the field scans of sensor {sensor.name!r}."
        )
    times = None if sensor.times is None else ScanTimes(folder / sensor.times)
    found = []
    for position, path in enumerate(paths):
        time_ns = time_in_name(path.name) if times is None else times.find(path.stem, position)
        found.append(_SensorScan(path.stem, time_ns, _loading(path, sensor)))
    return sorted(found, key=lambda one: (one.time_ns or 0, one.name))


def _loading(path: Path, sensor: RigSensor) -> Callable[[], PointCloud]:
    return lambda: load_point_cloud(path, columns=sensor.columns, transform=sensor.transform)


def _reading(found: PointCloud | DataError) -> Callable[[], PointCloud]:
    def read() -> PointCloud:
        if isinstance(found, DataError):
            raise found
        return found

    return read


def _timed(one: _SensorScan) -> PointCloud:
    cloud = one.read()
    return cloud if one.time_ns is None else replace(cloud, timestamp_ns=one.time_ns)


def _time(one: _SensorScan) -> int:
    return one.time_ns or 0
