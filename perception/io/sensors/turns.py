"""Packets of a spinning sensor put together to turns, out of a capture or as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import yaml

from perception.errors import DataError
from perception.io.raw import RawCloud
from perception.io.sensors.ouster import Columns, OusterSensor
from perception.io.sensors.pcap import Datagram

#: Size of Velodyne's packets.
VELODYNE_BYTES = 1206
#: An HDL-64E tells its calibration in so many packets, again and again.
CALIBRATION_PACKETS = 3 * 4160
_INSTALL = "pip install 'sparsight[packets]'"
#: No sensor sees so far; the library's own limit is 200 m.
_FARTHEST_M = 1000.0
#: More packets than the slowest turn of the densest sensor has: one without an end by then does not spin.
_MOST_PACKETS = 8192


def tells_model(packets: Iterable[bytes]) -> bool:
    """Whether Velodyne's packets end with their model, as those of all sensors but the HDL-64E do."""
    return len({packet[-2:] for packet in packets}) == 1


class VelodyneTurns:
    """Turns of a Velodyne sensor.

    Args:
        place: of the packets, for errors.
        calibration: packets of an HDL-64E in which it tells its own, :data:`CALIBRATION_PACKETS` in a row;
            ``None`` for other sensors, whose packets name their model.

    Raises:
        DataError: the packets hold no calibration.
        ImportError: velodyne-decoder is missing; the message names the extra.
    """

    def __init__(self, place: str, calibration: Iterable[bytes] | None = None) -> None:
        try:
            import velodyne_decoder
        except ImportError as error:
            raise ImportError(f"decoding Velodyne packets needs velodyne-decoder: {_INSTALL}") from error
        self._library, self._place = velodyne_decoder, place
        with _damage(place):
            self._config: Any = velodyne_decoder.Config()
            self._config.timestamp_first_packet = True
            self._config.max_range = _FARTHEST_M
            if calibration is not None:
                self._calibrate(calibration)
            self._decoder = velodyne_decoder.StreamDecoder(self._config)
        self._first_ns: int | None = None
        self._packets = 0

    def add(self, one: Datagram) -> tuple[int, RawCloud] | None:
        """The turn that a packet completes, with the time of its first one.

        Raises:
            DataError: the packet cannot be decoded.
        """
        # Seconds since the first packet: as float64 a time since the epoch is a quarter of a microsecond.
        self._first_ns = one.time_ns if self._first_ns is None else self._first_ns
        self._packets += 1
        with _damage(self._place):
            if self._packets > _MOST_PACKETS:
                self._packets, self._decoder = 0, self._library.StreamDecoder(self._config)
                raise DataError(f"{self._place}: {_MOST_PACKETS} packets and no turn; does the sensor spin?")
            found = self._decoder.decode((one.time_ns - self._first_ns) / 1e9, one.data)
        return self._turn(found)

    def end(self) -> tuple[int, RawCloud] | None:
        """What has been seen of the turn that goes on."""
        if self._first_ns is None:
            return None
        with _damage(self._place):
            return self._turn(self._decoder.finish())

    def _turn(self, found: Any) -> tuple[int, RawCloud] | None:
        if found is None:
            return None
        assert self._first_ns is not None
        self._packets = 0
        table = np.asarray(found[1], np.float32)
        raw = RawCloud(np.ascontiguousarray(table[:, :3]), table[:, 3].astype(np.uint8))
        return self._first_ns + round(found[0].host * 1e9), raw

    def _calibrate(self, packets: Iterable[bytes]) -> None:
        reader = self._library.hdl64e
        try:
            found = reader.status_info_to_calib_dict(reader.read_status_info(packets))
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{self._place} is an HDL-64E, whose calibration is in some {CALIBRATION_PACKETS // 3}"
                f" packets in a row ({error}); record for some seconds more"
            ) from error
        models = self._library.Model
        s3 = found["status"]["Model"] == "S3"
        self._config.model = models.HDL64E_S3 if s3 else models.HDL64E_S2
        self._config.calibration = self._library.Calibration.from_string(yaml.safe_dump(found))


class OusterTurns:
    """Turns of an Ouster sensor.

    Args:
        sensor: by its metadata.
    """

    def __init__(self, sensor: OusterSensor) -> None:
        self._sensor = sensor
        self._parts: list[Columns] = []
        self._started_ns = 0
        # A turn has so many packets; a frame number that stays is of a sensor that stands still.
        self._most = 2 * -(-sensor.columns_per_frame // sensor.columns_per_packet)

    def add(self, one: Datagram) -> tuple[int, RawCloud] | None:
        """The turn before, with the time of its first packet, where a packet is of the next one."""
        found = self._sensor.columns(one.data)
        other = bool(self._parts) and found.frame != self._parts[0].frame
        done = self.end() if other or len(self._parts) >= self._most else None
        if not self._parts:
            self._started_ns = one.time_ns
        self._parts.append(found)
        return done

    def end(self) -> tuple[int, RawCloud] | None:
        """What has been seen of the turn that goes on."""
        if not self._parts:
            return None
        parts, self._parts = self._parts, []
        return self._started_ns, self._sensor.cloud(parts)


def turns_of(
    datagrams: Iterable[Datagram], turns: VelodyneTurns | OusterTurns
) -> Iterator[tuple[int, RawCloud]]:
    """All turns of datagrams, the last one as far as it goes.

    Raises:
        DataError: a packet cannot be decoded.
    """
    for one in datagrams:
        done = turns.add(one)
        if done is not None:
            yield done
    done = turns.end()
    if done is not None:
        yield done


@contextmanager
def _damage(place: str) -> Iterator[None]:
    """What the library raises for odd packets, as a ``DataError`` that names their place."""
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:
        raise DataError(f"{place}: packets that cannot be decoded ({str(error)[:300]})") from error
