"""Packets of Velodyne and Ouster sensors from a socket, a turn a scan."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from perception.errors import DataError
from perception.io.raw import RawCloud, apply_transform, unit_intensity
from perception.io.sensors.ouster import OusterSensor, read_ouster_metadata
from perception.io.sensors.pcap import Datagram
from perception.io.sensors.turns import (
    CALIBRATION_PACKETS,
    VELODYNE_BYTES,
    OusterTurns,
    VelodyneTurns,
    names_model,
)
from perception.io.transform import ScanTransform
from perception.live.arrivals import Arrival
from perception.types import PointCloud

SCHEME = "udp"
#: By the last byte of their packets; those of an HDL-64E end otherwise.
MODELS = {
    "VLP-16": 0x22, "PUCK-HI-RES": 0x24, "VLP-32C": 0x28, "HDL-32E": 0x21, "VLS-128": 0xA1, "HDL-64E": None,
}  # fmt: skip
_KEYS = ("model", "sender", "metadata")
#: Of the system's buffer for what comes while another thread computes; it may give less.
_BUFFER_BYTES = 8 << 20
#: After so much silence a turn is begun anew; after more, somebody should know.
_GAP_S, _SILENCE_S, _WAIT_S = 1.0, 5.0, 0.2
#: Packets by which an HDL-64E is known.
_FIRST = 5


@dataclass(frozen=True)
class UdpAddress:
    """Where to listen, and to whom: ``udp://[HOST]:PORT[?model=...&sender=...&metadata=...]``.

    Attributes:
        host: of this computer, or ``""`` for all of its addresses.
        port: that the sensor sends to.
        model: of a Velodyne sensor, as :data:`MODELS` names it, or None: as the packets say.
        sender: address of the sensor, or None: whoever sends first.
        metadata: JSON file of an Ouster sensor, or None: the packets are Velodyne's.
    """

    host: str
    port: int
    model: str | None = None
    sender: str | None = None
    metadata: Path | None = None

    @classmethod
    def parse(cls, text: str) -> UdpAddress:
        """An address in words.

        Raises:
            ValueError: it is none; says what is wrong.
        """
        usual = f"{text}: expected udp://[HOST]:PORT[?model={'|'.join(MODELS)}&sender=ADDRESS&metadata=FILE]"
        try:
            parts = urlsplit(text)
            port, said = parts.port, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise ValueError(f"{usual}; {error}") from error
        if parts.scheme != SCHEME or port is None or parts.path not in ("", "/"):
            raise ValueError(usual)
        unknown = [name for name in said if name not in _KEYS]
        if unknown:
            raise ValueError(f"{usual}; {unknown[0]!r} is none of {', '.join(_KEYS)}")
        model = said.get("model")
        if model is not None and model.upper() not in MODELS:
            raise ValueError(f"{usual}; model {model!r} is none of them")
        if model is not None and "metadata" in said:
            raise ValueError(f"{usual}; model is of Velodyne's sensors, metadata of Ouster's: one of the two")
        file = Path(said["metadata"]) if "metadata" in said else None
        return cls(parts.hostname or "", port, model and model.upper(), said.get("sender"), file)


class PacketSocket:
    """The scans of a sensor that sends packets to a port of this computer.

    The first turn, which is a part of one, is left out, also after a silence. An HDL-64E tells its
    calibration in its packets; what it sees in these first seconds is left out.

    Args:
        address: where to listen.
        transform: of the scans.
        say: called with what a person should know.

    Raises:
        DataError: the metadata cannot be used.
        ImportError: a library is missing; the message names the extra.
        OSError: the port cannot be listened at.
    """

    lasting = True

    def __init__(
        self,
        address: UdpAddress,
        *,
        transform: ScanTransform | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = f"{SCHEME}://{address.host}:{address.port}"
        self._address, self._transform, self._say = address, transform or ScanTransform(), say
        self._ouster: OusterSensor | None = None
        if address.metadata is not None:
            self._ouster = read_ouster_metadata(address.metadata)
        else:
            VelodyneTurns(self.name)  # The library is there.
        self._bytes = VELODYNE_BYTES if self._ouster is None else self._ouster.packet_bytes
        self._position, self._divisor = 0, 1.0
        self._listen().close()

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """A scan for each turn; its time is that of its first packet, by the clock of this computer.

        Raises:
            DataError: the packets are of another model than was said, or hold no calibration.
            OSError: the network went away.
        """
        turns: VelodyneTurns | OusterTurns | None = None
        held: list[Datagram] = []
        begun = False
        for one in self._datagrams(stop):
            if one is None:
                turns, held, begun = None, [], False
                continue
            held.append(one)
            if turns is None:
                turns = self._turns(held)
                if turns is None:
                    continue
            try:
                for packet in held:
                    done = turns.add(packet)
                    if done is not None and begun:
                        yield self._arrival(*done, time.monotonic())
                    begun |= done is not None
                held = []
            except DataError as error:
                turns, held, begun = None, [], False
                yield error

    def _turns(self, held: list[Datagram]) -> VelodyneTurns | OusterTurns | None:
        """What puts packets together, or ``None`` where more of them must be known before."""
        if self._ouster is not None:
            return OusterTurns(self._ouster)
        first = [one.data for one in held[:_FIRST]]
        if len(first) < _FIRST:
            return None
        self._check_model(first)
        if names_model(first):
            return VelodyneTurns(self.name)
        if len(held) < CALIBRATION_PACKETS:
            return None
        packets = [one.data for one in held]
        held.clear()
        return VelodyneTurns(self.name, packets)

    def _check_model(self, packets: list[bytes]) -> None:
        """Raise where the packets are of another sensor than was said; that does not mend itself."""
        said = self._address.model
        if said is None:
            return
        known = packets[0][-1] if names_model(packets) else None
        if MODELS[said] != known:
            names = {code: name for name, code in MODELS.items()}
            other = names.get(known, "no known model")
            raise DataError(f"{self.name}: the packets are of {other}, not {said}; mend ?model=")

    def _arrival(self, time_ns: int, raw: RawCloud, arrived_s: float) -> Arrival:
        raw = apply_transform(raw, self._transform)
        name = f"{self._address.port}-{self._position:06d}"
        intensity, self._divisor = unit_intensity(f"{self.name}, {name}:", raw, least=self._divisor)
        cloud = PointCloud(
            np.column_stack([raw.xyz, intensity]),
            timestamp_ns=time_ns,
            source=f"{self.name}#{self._position}",
            sensor_height_m=self._transform.sensor_height_m,
        )
        self._position += 1
        return Arrival(name, self._position - 1, cloud, arrived_s)

    def _datagrams(self, stop: threading.Event) -> Iterator[Datagram | None]:
        """Packets of the sensor, and ``None`` after each gap."""
        sender, others, heard_s, gap, told = self._address.sender, set[str](), time.monotonic(), False, False
        with self._listen() as listener:
            listener.settimeout(_WAIT_S)
            while not stop.is_set():
                try:
                    data, source = listener.recvfrom(65535)
                except TimeoutError:
                    silent_s = time.monotonic() - heard_s
                    if silent_s > _GAP_S and not gap:
                        gap = True
                        yield None
                    if silent_s > _SILENCE_S and not told:
                        told = True
                        self._say(
                            f"{self.name}: no packets of {self._bytes} bytes for {_SILENCE_S:g} s; is the"
                            " sensor on, and does it send to this computer and port?"
                        )
                    continue
                came_ns = time.time_ns()
                if len(data) != self._bytes:
                    told_bytes = f"packets of {len(data)} bytes, not {self._bytes}"
                    self._say(f"{self.name}: {told_bytes}, are passed over")
                    continue
                sender = sender or source[0]
                if source[0] != sender:
                    if len(others) < 8 and source[0] not in others:
                        others.add(source[0])
                        self._say(f"{self.name}: {source[0]} sends too, and is passed over; ?sender= chooses")
                    continue
                heard_s, gap, told = time.monotonic(), False, False
                yield Datagram(came_ns, f"{sender}:{self._address.port}", data)

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_DGRAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            listener.bind((self._address.host, self._address.port))
        except OSError as error:
            listener.close()
            hint = "does another program, or is it no address of this computer?"
            raise OSError(error.errno, f"cannot listen at {self.name}: {error.strerror}; {hint}") from error
        return listener
