"""Scans out of the packets of a sensor in a network capture: Velodyne's and Ouster's, a turn a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from perception.errors import DataError
from perception.io.raw import transformed, unit_intensity
from perception.io.recordings.bag_scans import BagScan
from perception.io.recordings.bags import listed
from perception.io.sensors.ouster import read_ouster_metadata
from perception.io.sensors.pcap import Datagram, read_datagrams
from perception.io.sensors.turns import (
    CALIBRATION_PACKETS,
    VELODYNE_BYTES,
    OusterTurns,
    VelodyneTurns,
    tells_model,
    turns_of,
)
from perception.io.transform import ScanTransform
from perception.types import PointCloud

#: Datagrams of the beginning from which the sensors of a capture are known.
_BEGINNING = 2000


class PacketScans:
    """The scans of one sensor in a capture; every iteration reads it again.

    Args:
        path: of a ``.pcap`` or ``.pcapng`` file; for Ouster its metadata lies beside it, ``NAME.json``.
        stream: sender and port, such as ``192.168.1.201:2368``; by default the only one with such packets.
        transform: as for ``load_point_cloud``.

    Raises:
        DataError: no capture, no packets of a sensor, several sensors to choose from, or wrong metadata.
        ImportError: a library is missing; the message names the extra.
    """

    def __init__(
        self, path: Path, stream: str | None = None, *, transform: ScanTransform | None = None
    ) -> None:
        self.path = path
        self.transform = transform or ScanTransform()
        metadata = path.with_suffix(".json")
        self._ouster = read_ouster_metadata(metadata) if metadata.is_file() else None
        seen = _beginning(path)
        sizes = {VELODYNE_BYTES} if self._ouster is None else {self._ouster.packet_bytes}
        streams = sorted({name for name, size in seen if size in sizes})
        if stream is None and len(streams) > 1:
            raise DataError(f"{path}: {len(streams)} sensors: {listed(streams)}; choose with --topic")
        if not streams or stream not in (None, *streams):
            what = f"no packets of {sizes.pop()} bytes" + ("" if stream is None else f" from {stream!r}")
            told = listed(f"{name} ({size} bytes)" for name, size in sorted(seen)) or "none"
            raise DataError(
                f"{path}: {what}; datagrams: {told}; read are Velodyne's of {VELODYNE_BYTES} bytes and, with"
                f" the sensor's metadata in {metadata.name}, Ouster's"
            )
        self.stream = streams[0] if stream is None else stream

    def attempts(self) -> Iterator[BagScan | DataError]:
        """Scans; the first and the last may be parts of a turn. Their time is that of the first packet.

        A scan warns of the sensor's packets that were left out since the one before: lost fragments.

        Raises:
            DataError: the capture is damaged; after the scans before.
        """
        broken: list[DataError] = []
        incomplete, told = Counter[str](), 0
        sender = self.stream.rpartition(":")[0]
        divisor = 1.0
        datagrams = self._datagrams(broken, incomplete)
        for number, (time_ns, raw) in enumerate(turns_of(datagrams, self._turns())):
            place = f"{self.path}: {self.stream}, turn {number}:"
            raw = transformed(raw, self.transform)
            intensity, divisor = unit_intensity(place, raw, least=divisor)
            cloud = PointCloud(
                np.column_stack([raw.xyz, intensity]),
                timestamp_ns=time_ns,
                source=f"{self.path}:{self.stream}#{number}",
                sensor_height_m=self.transform.sensor_height_m,
                warnings=_incomplete_warning(incomplete[sender] - told),
            )
            told = incomplete[sender]
            yield BagScan(number, cloud, "")
        if broken:
            raise broken[0]

    def _datagrams(
        self, broken: list[DataError], incomplete: Counter[str] | None = None
    ) -> Iterator[Datagram]:
        """Those of the sensor; an error at their end is put aside, so that the turn before it is had."""
        size = VELODYNE_BYTES if self._ouster is None else self._ouster.packet_bytes
        try:
            for one in read_datagrams(self.path, incomplete):
                if one.stream == self.stream and len(one.data) == size:
                    yield one
        except DataError as error:
            broken.append(error)

    def _turns(self) -> VelodyneTurns | OusterTurns:
        """What puts packets together; an HDL-64E's own calibration is read before."""
        if self._ouster is not None:
            return OusterTurns(self._ouster)
        packets = (one.data for one in islice(self._datagrams([]), CALIBRATION_PACKETS))
        place = f"{self.path}: {self.stream}"
        told = tells_model(one.data for one in islice(self._datagrams([]), 5))
        return VelodyneTurns(place, None if told else packets)


def _incomplete_warning(count: int) -> tuple[str, ...]:
    if not count:
        return ()
    told = "1 packet of the sensor is" if count == 1 else f"{count} packets of the sensor are"
    return (f"{told} incomplete in the capture: fragments or bytes were lost, and points are missing",)


def _beginning(path: Path) -> Counter[tuple[str, int]]:
    """How often whom sends datagrams of which size, in the beginning of a capture."""
    seen: Counter[tuple[str, int]] = Counter()
    try:
        for one in islice(read_datagrams(path), _BEGINNING):
            seen[one.stream, len(one.data)] += 1
    except DataError:
        # One that is cut off is read as far as it goes.
        if not seen:
            raise
    return seen
