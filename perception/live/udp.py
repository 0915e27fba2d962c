"""Packets of Velodyne and Ouster sensors from a socket, one scan per turn."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from perception.errors import DataError
from perception.io.raw import RawCloud, apply_transform, unit_points
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
#: Last byte of the packets by model; those of an HDL-64E differ.
MODELS = {
    "VLP-16": 0x22, "PUCK-HI-RES": 0x24, "VLP-32C": 0x28, "HDL-32E": 0x21, "VLS-128": 0xA1, "HDL-64E": None,
}  # fmt: skip
_KEYS = ("model", "sender", "metadata")
#: Requested size of the socket's buffer; the system may limit it.
_BUFFER_BYTES = 8 << 20
#: Seconds of silence before a turn restarts, before a warning, and per wait.
_GAP_S, _SILENCE_S, _WAIT_S = 1.0, 5.0, 0.2
#: Number of packets to recognise an HDL-64E.
_FIRST = 5


@dataclass(frozen=True)
class UdpAddress:
    """An address to listen on: ``udp://[HOST]:PORT[?model=...&sender=...&metadata=...]``.

    Attributes:
        host: local address, or "" for all.
        port: port that the sensor sends to.
        model: Velodyne model, a name in :data:`MODELS`; None accepts any.
        sender: address of the sensor; None accepts the first sender.
        metadata: JSON file of an Ouster sensor; None means Velodyne.
    """

    host: str
    port: int
    model: str | None = None
    sender: str | None = None
    metadata: Path | None = None

    @classmethod
    def parse(cls, text: str) -> UdpAddress:
        """Parse an address; raise ``ValueError`` if it is invalid."""
        usual = "Write udp://[HOST]:PORT[?model=MODEL&sender=ADDRESS&metadata=FILE]"
        try:
            parts = urlsplit(text)
            port, query = parts.port, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise ValueError(f"{text}: {error}. {usual}") from error
        if parts.scheme != SCHEME or port is None or parts.path not in ("", "/"):
            raise ValueError(f"{text}: not a UDP address. {usual}")
        unknown = [name for name in query if name not in _KEYS]
        if unknown:
            raise ValueError(f"{text}: unknown key {unknown[0]!r}. {usual}")
        model = query.get("model")
        if model is not None and model.upper() not in MODELS:
            raise ValueError(f"{text}: unknown model {model!r}. Choose one of {', '.join(MODELS)}.")
        if model is not None and "metadata" in query:
            raise ValueError(f"{text}: model is for Velodyne, metadata for Ouster. Leave one out.")
        file = Path(query["metadata"]) if "metadata" in query else None
        return cls(parts.hostname or "", port, model and model.upper(), query.get("sender"), file)


class PacketSocket:
    """The scans of a sensor that sends packets to a local port.

    The first turn is partial and skipped, also after silence. So are the first seconds of an HDL-64E, whose
    packets contain its calibration.

    Args:
        address: address to listen on.
        transform: transform of the scans.
        say: called with messages for the user.

    Raises:
        DataError: the metadata are invalid.
        ImportError: a library is missing; the message has the pip command.
        OSError: the port is in use or not allowed.
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
            VelodyneTurns(self.name)  # Raises now if the library is missing.
        self._bytes = VELODYNE_BYTES if self._ouster is None else self._ouster.packet_bytes
        self._position, self._divisor = 0, 1.0
        self._listen().close()

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """Yield a scan per turn, with the local time of its first packet.

        Raises:
            DataError: the packets are of another model, or hold no calibration.
            OSError: the network failed.
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
        """Create the assembler of turns; None until there are enough packets."""
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
        """Raise ``DataError`` if the packets are of another model than the address names."""
        expected = self._address.model
        if expected is None:
            return
        code = packets[0][-1] if names_model(packets) else None
        if MODELS[expected] != code:
            names = {code: name for name, code in MODELS.items()}
            other = names.get(code, "an unknown model")
            raise DataError(f"{self.name}: packets of {other}, not {expected}. Correct ?model=.")

    def _arrival(self, time_ns: int, raw: RawCloud, arrived_s: float) -> Arrival:
        raw = apply_transform(raw, self._transform)
        name = f"{self._address.port}-{self._position:06d}"
        points, self._divisor = unit_points(f"{self.name}, {name}:", raw, least=self._divisor)
        cloud = PointCloud(
            points,
            timestamp_ns=time_ns,
            source=f"{self.name}#{self._position}",
            sensor_height_m=self._transform.sensor_height_m,
        )
        self._position += 1
        return Arrival(name, self._position - 1, cloud, arrived_s)

    def _datagrams(self, stop: threading.Event) -> Iterator[Datagram | None]:
        """Yield packets of the sensor, and None after each gap."""
        sender, others, heard_s, gap, warned = (
            self._address.sender,
            set[str](),
            time.monotonic(),
            False,
            False,
        )
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
                    if silent_s > _SILENCE_S and not warned:
                        warned = True
                        self._say(
                            f"{self.name}: no packets of {self._bytes} bytes for {_SILENCE_S:g} s. Check"
                            " that the sensor is on and sends to this computer and port."
                        )
                    continue
                came_ns = time.time_ns()
                if len(data) != self._bytes:
                    self._say(f"{self.name}: skipping packets of {len(data)} bytes instead of {self._bytes}")
                    continue
                sender = sender or source[0]
                if source[0] != sender:
                    if len(others) < 8 and source[0] not in others:
                        others.add(source[0])
                        self._say(f"{self.name}: skipping packets of {source[0]}; choose with ?sender=")
                    continue
                heard_s, gap, warned = time.monotonic(), False, False
                yield Datagram(came_ns, f"{sender}:{self._address.port}", data)

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_DGRAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            listener.bind((self._address.host, self._address.port))
        except OSError as error:
            listener.close()
            problem = f"listening on {self.name} failed ({error.strerror})"
            hint = "Check that the address is local and no other program uses the port."
            raise OSError(error.errno, f"{problem}. {hint}") from error
        return listener
