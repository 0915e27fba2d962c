"""Scans out of the packets of a sensor in a network capture: Velodyne's and Ouster's, a turn a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from perception.errors import DataError
from perception.io.bag_scans import BagScan
from perception.io.bags import listed
from perception.io.ouster import Columns, OusterSensor, read_ouster_metadata
from perception.io.pcap import Datagram, read_datagrams
from perception.io.raw import RawCloud, transformed, unit_intensity
from perception.io.transform import ScanTransform
from perception.types import PointCloud

_INSTALL = "pip install 'sparsight[packets]'"
_VELODYNE_BYTES = 1206
#: No sensor sees so far; the library's own limit is 200 m.
_FARTHEST_M = 1000.0
#: Datagrams of the beginning from which the sensors of a capture are known.
_BEGINNING = 2000
#: An HDL-64E tells its calibration in so many packets, again and again.
_CALIBRATION = 3 * 4160


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
        sizes = {_VELODYNE_BYTES} if self._ouster is None else {self._ouster.packet_bytes}
        streams = sorted({name for name, size in seen if size in sizes})
        if stream is None and len(streams) > 1:
            raise DataError(f"{path}: {len(streams)} sensors: {listed(streams)}; choose with --topic")
        if not streams or stream not in (None, *streams):
            what = f"no packets of {sizes.pop()} bytes" + ("" if stream is None else f" from {stream!r}")
            told = listed(f"{name} ({size} bytes)" for name, size in sorted(seen)) or "none"
            raise DataError(
                f"{path}: {what}; datagrams: {told}; read are Velodyne's of {_VELODYNE_BYTES} bytes and, with"
                f" the sensor's metadata in {metadata.name}, Ouster's"
            )
        self.stream = streams[0] if stream is None else stream

    def attempts(self) -> Iterator[BagScan | DataError]:
        """Scans; the first and the last may be parts of a turn. Their time is that of the first packet.

        Raises:
            DataError: the capture is damaged; after the scans before.
        """
        broken: list[DataError] = []
        datagrams = self._datagrams(broken)
        turns = self._velodyne(datagrams) if self._ouster is None else _turns(datagrams, self._ouster)
        divisor = 1.0
        for number, (time_ns, raw) in enumerate(turns):
            place = f"{self.path}: {self.stream}, turn {number}:"
            raw = transformed(raw, self.transform)
            intensity, divisor = unit_intensity(place, raw, least=divisor)
            cloud = PointCloud(
                np.column_stack([raw.xyz, intensity]),
                timestamp_ns=time_ns,
                source=f"{self.path}:{self.stream}#{number}",
                sensor_height_m=self.transform.sensor_height_m,
            )
            yield BagScan(number, cloud, "")
        if broken:
            raise broken[0]

    def _datagrams(self, broken: list[DataError]) -> Iterator[Datagram]:
        """Those of the sensor; an error at their end is put aside, so that the turn before it is had."""
        size = _VELODYNE_BYTES if self._ouster is None else self._ouster.packet_bytes
        try:
            for one in read_datagrams(self.path):
                if one.stream == self.stream and len(one.data) == size:
                    yield one
        except DataError as error:
            broken.append(error)

    def _velodyne(self, datagrams: Iterator[Datagram]) -> Iterator[tuple[int, RawCloud]]:
        try:
            import velodyne_decoder
        except ImportError as error:
            raise ImportError(f"decoding Velodyne packets needs velodyne-decoder: {_INSTALL}") from error
        with _damage(self.path):
            config = velodyne_decoder.Config()
            config.timestamp_first_packet = True
            config.max_range = _FARTHEST_M
            self._calibrate(velodyne_decoder, config)
            decoder = velodyne_decoder.StreamDecoder(config)
        first_ns: int | None = None
        for one in datagrams:
            # Seconds since the first packet: as float64 a time since the epoch is a quarter of a microsecond.
            first_ns = one.time_ns if first_ns is None else first_ns
            with _damage(self.path):
                turn = decoder.decode((one.time_ns - first_ns) / 1e9, one.data)
            if turn is not None:
                yield first_ns + round(turn[0].host * 1e9), _unpacked(turn[1])
        if first_ns is not None:
            with _damage(self.path):
                turn = decoder.finish()
            if turn is not None:
                yield first_ns + round(turn[0].host * 1e9), _unpacked(turn[1])

    def _calibrate(self, library: Any, config: Any) -> None:
        """An HDL-64E's own calibration: other sensors end all packets with their model."""
        ends = {one.data[-2:] for one in islice(self._datagrams([]), 5)}
        if len(ends) == 1:
            return
        packets = (one.data for one in islice(self._datagrams([]), _CALIBRATION))
        try:
            found = library.hdl64e.status_info_to_calib_dict(library.hdl64e.read_status_info(packets))
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{self.path}: {self.stream} is an HDL-64E, whose calibration is in some {_CALIBRATION // 3}"
                f" packets in a row ({error}); record for some seconds more"
            ) from error
        models = library.Model
        config.model = models.HDL64E_S3 if found["status"]["Model"] == "S3" else models.HDL64E_S2
        config.calibration = library.Calibration.from_string(yaml.safe_dump(found))


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


def _turns(datagrams: Iterator[Datagram], sensor: OusterSensor) -> Iterator[tuple[int, RawCloud]]:
    parts: list[Columns] = []
    started = 0
    for one in datagrams:
        found = sensor.columns(one.data)
        if parts and found.frame != parts[0].frame:
            yield started, sensor.cloud(parts)
            parts = []
        if not parts:
            started = one.time_ns
        parts.append(found)
    if parts:
        yield started, sensor.cloud(parts)


def _unpacked(points: Any) -> RawCloud:
    table = np.asarray(points, np.float32)
    return RawCloud(np.ascontiguousarray(table[:, :3]), table[:, 3].astype(np.uint8))


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """What the library raises for odd packets, as a ``DataError`` that names the capture."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path}: packets that cannot be decoded ({str(error)[:300]})") from error
