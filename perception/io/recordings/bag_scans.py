"""Scans of a recording, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from perception.errors import DataError
from perception.io.raw import transformed, unit_intensity
from perception.io.recordings import foxglove, ros
from perception.io.recordings.bags import Bag, BagMessage, Topic, listed
from perception.io.transform import ScanTransform
from perception.types import PointCloud

#: Types of messages that are scans.
CLOUD_TYPES = (ros.CLOUD, foxglove.CLOUD)


class BagScan(NamedTuple):
    """A scan of a recording.

    Attributes:
        number: its place among the messages of the topic, from 0.
        cloud: points, with the time in the message's header; frame ``"lidar"``.
        frame_id: what the recording calls the sensor's frame.
        divisor: that brought its intensity to [0, 1]; of the scans that follow it is not less.
    """

    number: int
    cloud: PointCloud
    frame_id: str
    divisor: float = 1.0


class BagScans:
    """The scans of one topic; every iteration reads the recording again.

    Intensity is brought to [0, 1] as ``load_point_cloud`` does, except that a range, once seen, holds for all
    scans that follow: a dim scan of a sensor that counts to 255 stays dim.

    Args:
        bag: open.
        topic: name of the topic; by default the only one that holds point clouds.
        transform: as for ``load_point_cloud``.

    Raises:
        DataError: there is no such topic, none with point clouds, or several to choose from.
    """

    def __init__(self, bag: Bag, topic: str | None = None, *, transform: ScanTransform | None = None) -> None:
        self.bag = bag
        self.topic = cloud_topic(bag, topic)
        self.transform = transform or ScanTransform()
        self._running: _Messages | None = None

    def __len__(self) -> int:
        return self.topic.size

    def __iter__(self) -> Iterator[BagScan]:
        """Raises ``DataError`` at the first scan that cannot be used."""
        for scan in self.attempts():
            if isinstance(scan, DataError):
                raise scan
            yield scan

    def attempts(self) -> Iterator[BagScan | DataError]:
        """Scans, and an error in the place of each message that cannot be used.

        Raises:
            DataError: the recording itself is damaged.
        """
        return self._scans(_Messages(self), 0, None, 1.0)

    def stretch(
        self, first: int, stop: int | None = None, *, least: float = 1.0
    ) -> Iterator[BagScan | DataError]:
        """The same for some messages in a row. Those before are passed over, not decoded.

        One that begins where the last one ended, or later, goes on there; another reads from the beginning.

        Args:
            first, stop: numbers of the first message and of the one behind the last; None: to the end.
            least: divisor of intensity that the scans before have shown.

        Raises:
            DataError: the recording is damaged from there on. Where it is before, nothing is yielded.
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
                cloud, frame_id, least = decoded_cloud(message, place, least, self.transform)
            except DataError as error:
                yield error
            else:
                yield BagScan(number, replace(cloud, source=self.source(number)), frame_id, least)

    def source(self, number: int) -> str:
        """What a scan says of where it is from."""
        return f"{self.bag.path}:{self.topic.name}#{number}"


class _Messages:
    """The messages of a topic, from the first one on; some in a row are asked for at a time.

    Attributes:
        number: of the next one.
    """

    def __init__(self, scans: BagScans) -> None:
        self._messages = iter(scans.bag.messages([scans.topic.name]))
        self.number = 0

    def until(self, first: int, stop: int | None) -> Iterator[tuple[int, BagMessage]]:
        """Those from ``first`` on, not before where this stands, with their numbers."""
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
    """The topic of a recording that scans are read from.

    Raises:
        DataError: see ``BagScans``.
    """
    clouds = bag.topics_of(CLOUD_TYPES)
    if name is not None:
        chosen = next((topic for topic in bag.topics if topic.name == name), None)
        if chosen is None or chosen.type not in CLOUD_TYPES:
            what = "no topic" if chosen is None else f"{chosen.type}, no point clouds, in topic"
            raise DataError(f"{bag.path}: {what} {name!r}; topics: {bag.described()}")
        return chosen
    if not clouds:
        raise DataError(
            f"{bag.path}: no topic holds {' or '.join(CLOUD_TYPES)} messages; topics: {bag.described()}"
        )
    if len(clouds) > 1:
        names = listed(f"{topic.name} ({topic.size})" for topic in clouds)
        raise DataError(f"{bag.path}: {len(clouds)} topics hold point clouds: {names}; choose with --topic")
    return clouds[0]


class DecodedCloud(NamedTuple):
    """A scan, what its message calls the sensor's frame, and the divisor of its intensity."""

    cloud: PointCloud
    frame_id: str
    divisor: float


def decoded_cloud(message: BagMessage, place: str, least: float, transform: ScanTransform) -> DecodedCloud:
    """The scan of a message.

    Args:
        message: of one of :data:`CLOUD_TYPES`.
        place: where it comes from, for errors.
        least: divisor of the scans before; it never becomes less, so that a dim scan stays dim.
        transform: as for ``load_point_cloud``.

    Raises:
        DataError: it cannot be decoded.
    """
    decode = ros.ros_cloud if message.topic.type == ros.CLOUD else foxglove.foxglove_cloud
    found = decode(message, place)
    raw = transformed(found.raw, transform)
    intensity, divisor = unit_intensity(f"{place}:", raw, least=least)
    cloud = PointCloud(
        np.column_stack([raw.xyz, intensity]),
        timestamp_ns=found.time_ns,
        sensor_height_m=transform.sensor_height_m,
    )
    return DecodedCloud(cloud, found.frame_id.lstrip("/"), divisor)
