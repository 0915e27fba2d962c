"""Scans of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from perception.errors import DataError
from perception.io.raw import apply_transform, unit_points
from perception.io.recordings import foxglove, ros
from perception.io.recordings.bags import Bag, BagMessage, Topic, join_names
from perception.io.transform import ScanTransform
from perception.types import PointCloud

#: Types of messages that are scans.
CLOUD_TYPES = (ros.CLOUD, foxglove.CLOUD)


class BagScan(NamedTuple):
    """A scan of a recording.

    Attributes:
        number: index among the messages of the topic, from 0.
        cloud: points in frame ``"lidar"``, with the time of the message's header.
        frame_id: the recording's name of the sensor's frame.
        divisor: divisor of its intensity, which never decreases in later scans.
    """

    number: int
    cloud: PointCloud
    frame_id: str
    divisor: float = 1.0


class BagScans:
    """The scans of one topic; every iteration reads the recording again.

    Intensity is scaled to [0, 1] as in ``load_point_cloud``. A full scale, once seen, holds for all later
    scans, so that a dim scan stays dim.

    Args:
        bag: open recording.
        topic: name of the topic; the default is the only one with point clouds.
        transform: as for ``load_point_cloud``.

    Raises:
        DataError: the topic does not exist, or no topic or several topics hold point clouds.
    """

    def __init__(self, bag: Bag, topic: str | None = None, *, transform: ScanTransform | None = None) -> None:
        self.bag = bag
        self.topic = cloud_topic(bag, topic)
        self.transform = transform or ScanTransform()
        self._running: _Messages | None = None

    def __len__(self) -> int:
        return self.topic.size

    def __iter__(self) -> Iterator[BagScan]:
        """Yield scans; raise ``DataError`` at the first unusable one."""
        for scan in self.attempts():
            if isinstance(scan, DataError):
                raise scan
            yield scan

    def attempts(self) -> Iterator[BagScan | DataError]:
        """Yield scans, or an error for each unusable message; raise if the recording is damaged."""
        return self._scans(_Messages(self), 0, None, 1.0)

    def read_range(
        self, first: int, stop: int | None = None, *, least: float = 1.0
    ) -> Iterator[BagScan | DataError]:
        """Yield the scans of a range of messages, without decoding those before it.

        A range that starts at or after the end of the last one continues there. Other ranges read from the
        beginning.

        Args:
            first: number of the first message.
            stop: number after the last message; None means to the end.
            least: intensity divisor of the scans before.

        Raises:
            DataError: the recording is damaged within the range. Damage before it yields nothing.
        """
        if self._running is None or self._running.number > first:
            self._running = _Messages(self)
        return self._scans(self._running, first, stop, least)

    def _scans(
        self, messages: _Messages, first: int, stop: int | None, least: float
    ) -> Iterator[BagScan | DataError]:
        for number, message in messages.until(first, stop):
            place = f"{self.bag.path}: topic {self.topic.name}, message {number}"
            try:
                cloud, frame_id, least = decode_cloud(message, place, least, self.transform)
            except DataError as error:
                yield error
            else:
                yield BagScan(number, replace(cloud, source=self.source(number)), frame_id, least)

    def source(self, number: int) -> str:
        """Return the source of a scan: path, topic and number."""
        return f"{self.bag.path}:{self.topic.name}#{number}"


class _Messages:
    """The messages of a topic, read range by range; ``number`` is that of the next message."""

    def __init__(self, scans: BagScans) -> None:
        self._messages = iter(scans.bag.messages([scans.topic.name]))
        self.number = 0

    def until(self, first: int, stop: int | None) -> Iterator[tuple[int, BagMessage]]:
        """Yield numbers and messages from ``first`` on, if not read before."""
        while stop is None or self.number < stop:
            try:
                message = next(self._messages, None)
            except DataError:
                if self.number < first:
                    return
                raise
            if message is None:
                return
            self.number += 1
            if self.number > first:
                yield self.number - 1, message


def cloud_topic(bag: Bag, name: str | None = None) -> Topic:
    """Choose the topic of scans; raise ``DataError`` as ``BagScans`` does."""
    clouds = bag.topics_of(CLOUD_TYPES)
    if name is not None:
        chosen = next((topic for topic in bag.topics if topic.name == name), None)
        if chosen is None or chosen.type not in CLOUD_TYPES:
            what = "no topic" if chosen is None else f"{chosen.type}, no point clouds, in topic"
            raise DataError(
                f"{bag.path}: {what} {name!r}. Choose another with --topic; topics: {bag.described()}"
            )
        return chosen
    if not clouds:
        raise DataError(
            f"{bag.path}: no topic holds {' or '.join(CLOUD_TYPES)} messages. Record one; topics:"
            f" {bag.described()}"
        )
    if len(clouds) > 1:
        names = join_names(f"{topic.name} ({topic.size})" for topic in clouds)
        raise DataError(
            f"{bag.path}: {len(clouds)} topics hold point clouds: {names}. Choose one with --topic."
        )
    return clouds[0]


class DecodedCloud(NamedTuple):
    """A scan, the sensor's frame in its message, and the divisor of its intensity."""

    cloud: PointCloud
    frame_id: str
    divisor: float


def decode_cloud(message: BagMessage, place: str, least: float, transform: ScanTransform) -> DecodedCloud:
    """Decode a message of one of :data:`CLOUD_TYPES`.

    Args:
        message: the message.
        place: its recording, topic and number, for errors.
        least: intensity divisor of the scans before, which never decreases.
        transform: as for ``load_point_cloud``.

    Raises:
        DataError: decoding failed.
    """
    decode = ros.ros_cloud if message.topic.type == ros.CLOUD else foxglove.foxglove_cloud
    found = decode(message, place)
    raw = apply_transform(found.raw, transform)
    points, divisor = unit_points(f"{place}:", raw, least=least)
    cloud = PointCloud(
        points,
        timestamp_ns=found.time_ns,
        sensor_height_m=transform.sensor_height_m,
    )
    return DecodedCloud(cloud, found.frame_id.lstrip("/"), divisor)
