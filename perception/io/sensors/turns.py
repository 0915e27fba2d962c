"""Assembly of packets of a spinning sensor into turns, from a capture or live."""

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

#: Size of Velodyne packets.
VELODYNE_BYTES = 1206
#: An HDL-64E repeats its calibration within so many packets.
CALIBRATION_PACKETS = 3 * 4160
_INSTALL = "pip install 'sparsight[packets]'"
#: Beyond any sensor's range; the library's default limit is 200 m.
_FARTHEST_M = 1000.0
#: More packets than any turn has; without a complete turn by then, the sensor does not spin.
_MOST_PACKETS = 8192


def names_model(packets: Iterable[bytes]) -> bool:
    """Return True if Velodyne packets end with their model; only those of an HDL-64E do not."""
    return len({packet[-2:] for packet in packets}) == 1


class VelodyneTurns:
    """Assembler of the turns of a Velodyne sensor.

    Args:
        place: origin of the packets, for errors.
        calibration: :data:`CALIBRATION_PACKETS` consecutive packets of an HDL-64E, which hold its
            calibration; None for other sensors.

    Raises:
        DataError: the packets hold no calibration.
        ImportError: velodyne-decoder is missing; the message has the pip command.
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
        """Add a packet; return the turn that it completes, and the time of its first packet.

        Raises:
            DataError: the packet is damaged.
        """
        # Seconds since the first packet, because float64 seconds since the epoch are too coarse.
        self._first_ns = one.time_ns if self._first_ns is None else self._first_ns
        self._packets += 1
        with _damage(self._place):
            if self._packets > _MOST_PACKETS:
                self._packets, self._decoder = 0, self._library.StreamDecoder(self._config)
                raise DataError(
                    f"{self._place}: {_MOST_PACKETS} packets without a complete turn. Check that the sensor"
                    " spins."
                )
            found = self._decoder.decode((one.time_ns - self._first_ns) / 1e9, one.data)
        return self._turn(found)

    def end(self) -> tuple[int, RawCloud] | None:
        """Return the unfinished turn, or None."""
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
                f"{self._place}: an HDL-64E needs {CALIBRATION_PACKETS // 3} consecutive packets for its"
                f" calibration ({error}). Record a few seconds more."
            ) from error
        models = self._library.Model
        s3 = found["status"]["Model"] == "S3"
        self._config.model = models.HDL64E_S3 if s3 else models.HDL64E_S2
        self._config.calibration = self._library.Calibration.from_string(yaml.safe_dump(found))


class OusterTurns:
    """Assembler of the turns of an Ouster sensor, described by its metadata."""

    def __init__(self, sensor: OusterSensor) -> None:
        self._sensor = sensor
        self._parts: list[Columns] = []
        self._started_ns = 0
        # Twice the packets of a turn: a frame number that never changes means that the sensor stands still.
        self._most = 2 * -(-sensor.columns_per_frame // sensor.columns_per_packet)

    def add(self, one: Datagram) -> tuple[int, RawCloud] | None:
        """Add a packet; if it starts a new turn, return the last one and the time of its first packet."""
        found = self._sensor.columns(one.data)
        other = bool(self._parts) and found.frame != self._parts[0].frame
        done = self.end() if other or len(self._parts) >= self._most else None
        if not self._parts:
            self._started_ns = one.time_ns
        self._parts.append(found)
        return done

    def end(self) -> tuple[int, RawCloud] | None:
        """Return the unfinished turn, or None."""
        if not self._parts:
            return None
        parts, self._parts = self._parts, []
        return self._started_ns, self._sensor.cloud(parts)


def turns_of(
    datagrams: Iterable[Datagram], turns: VelodyneTurns | OusterTurns
) -> Iterator[tuple[int, RawCloud]]:
    """Yield all turns of datagrams, with a partial last one; raise ``DataError`` for a damaged packet."""
    for one in datagrams:
        done = turns.add(one)
        if done is not None:
            yield done
    done = turns.end()
    if done is not None:
        yield done


@contextmanager
def _damage(place: str) -> Iterator[None]:
    """Convert the library's errors to a ``DataError``."""
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:
        raise DataError(
            f"{place}: decoding packets failed ({str(error)[:300]}). Check that the sensor is supported."
        ) from error
