"""Scans from the packets of a Velodyne or Ouster sensor in a network capture, one per turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from perception.errors import DataError
from perception.io.raw import apply_transform, unit_points
from perception.io.recordings.bag_scans import BagScan
from perception.io.recordings.bags import join_names
from perception.io.sensors.ouster import read_ouster_metadata
from perception.io.sensors.pcap import Datagram, read_datagrams
from perception.io.sensors.turns import (
    CALIBRATION_PACKETS,
    VELODYNE_BYTES,
    OusterTurns,
    VelodyneTurns,
    names_model,
    turns_of,
)
from perception.io.transform import ScanTransform
from perception.types import PointCloud

#: Datagrams to read to find the sensors of a capture.
_BEGINNING = 2000


class PacketScans:
    """The scans of one sensor in a capture; every iteration reads it again.

    Args:
        path: ``.pcap`` or ``.pcapng`` file; Ouster also needs its metadata in ``NAME.json`` next to it.
        stream: sender and port, such as ``192.168.1.201:2368``; the default is the only sensor.
        transform: as for ``load_point_cloud``.

    Raises:
        DataError: the capture is invalid, has no or several sensors, or the metadata do not fit.
        ImportError: a library is missing; the message has the pip command.
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
            raise DataError(
                f"{path}: packets of {len(streams)} sensors: {join_names(streams)}. Choose one with --topic."
            )
        if not streams or stream not in (None, *streams):
            what = f"no packets of {sizes.pop()} bytes" + ("" if stream is None else f" from {stream!r}")
            there = join_names(f"{name} ({size} bytes)" for name, size in sorted(seen)) or "none"
            raise DataError(
                f"{path}: {what}. Captures need Velodyne packets of {VELODYNE_BYTES} bytes, or Ouster"
                f" packets and the sensor's metadata in {metadata.name}. Datagrams in this file: {there}."
            )
        self.stream = streams[0] if stream is None else stream

    def attempts(self) -> Iterator[BagScan | DataError]:
        """Yield scans with the time of their first packet; the first and last turn may be partial.

        A scan carries a warning if packets before it were incomplete.

        Raises:
            DataError: the capture is damaged; raised after the scans before the damage.
        """
        broken: list[DataError] = []
        incomplete, reported = Counter[str](), 0
        sender = self.stream.rpartition(":")[0]
        divisor = 1.0
        datagrams = self._datagrams(broken, incomplete)
        for number, (time_ns, raw) in enumerate(turns_of(datagrams, self._turns())):
            place = f"{self.path}: {self.stream}, turn {number}:"
            raw = apply_transform(raw, self.transform)
            points, divisor = unit_points(place, raw, least=divisor)
            cloud = PointCloud(
                points,
                timestamp_ns=time_ns,
                source=f"{self.path}:{self.stream}#{number}",
                sensor_height_m=self.transform.sensor_height_m,
                warnings=_incomplete_warning(incomplete[sender] - reported),
            )
            reported = incomplete[sender]
            yield BagScan(number, cloud, "")
        if broken:
            raise broken[0]

    def _datagrams(
        self, broken: list[DataError], incomplete: Counter[str] | None = None
    ) -> Iterator[Datagram]:
        """Yield the sensor's datagrams; append a final error to ``broken``, after the last turn."""
        size = VELODYNE_BYTES if self._ouster is None else self._ouster.packet_bytes
        try:
            for one in read_datagrams(self.path, incomplete):
                if one.stream == self.stream and len(one.data) == size:
                    yield one
        except DataError as error:
            broken.append(error)

    def _turns(self) -> VelodyneTurns | OusterTurns:
        """Create the assembler of turns; for an HDL-64E, read its calibration first."""
        if self._ouster is not None:
            return OusterTurns(self._ouster)
        packets = (one.data for one in islice(self._datagrams([]), CALIBRATION_PACKETS))
        place = f"{self.path}: {self.stream}"
        has_model = names_model(one.data for one in islice(self._datagrams([]), 5))
        return VelodyneTurns(place, None if has_model else packets)


def _incomplete_warning(count: int) -> tuple[str, ...]:
    if not count:
        return ()
    packets = "1 packet is" if count == 1 else f"{count} packets are"
    return (f"{packets} incomplete in the capture, so points are missing. Record with a larger buffer.",)


def _beginning(path: Path) -> Counter[tuple[str, int]]:
    """Count senders and sizes of the first datagrams of a capture."""
    seen: Counter[tuple[str, int]] = Counter()
    try:
        for one in islice(read_datagrams(path), _BEGINNING):
            seen[one.stream, len(one.data)] += 1
    except DataError:
        # A truncated capture is read up to its end.
        if not seen:
            raise
    return seen
