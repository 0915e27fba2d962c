"""Datagrams of network captures, ``.pcap`` and ``.pcapng``, by dpkt (extra ``packets``).

dpkt reads the containers. Frames of Ethernet (with VLAN tags), Linux' cooked captures, loopback and raw IP
are looked into here, and fragments of IPv4 (RFC 791, 3.2) put together: packets of Ouster's sensors are
larger than frames.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perception.errors import DataError
from perception.io.bounded import BoundedReader

#: Suffixes of captures, lower case.
PCAP_SUFFIXES = (".pcap", ".pcapng")
_INSTALL = "pip install 'sparsight[packets]'"
#: Bytes before what says the protocol, and after which the next layer begins, by the kind of the link.
_LINKS = {1: (12, 14), 113: (14, 16), 276: (0, 20)}
#: Links that are IP as such, with so many bytes before it.
_BARE = {0: 4, 12: 0, 14: 0, 101: 0, 108: 4, 228: 0}
_IPV4, _VLAN, _UDP = 0x0800, (0x8100, 0x88A8, 0x9100), 17
#: Datagrams that wait for more of their fragments; older ones are given up.
_MOST_WAITING = 64


class Datagram(NamedTuple):
    """A datagram of UDP.

    Attributes:
        time_ns: of the capture, nanoseconds since the epoch.
        stream: who sent it to which port: ``192.168.1.201:2368``.
        data: its payload.
    """

    time_ns: int
    stream: str
    data: bytes


def is_pcap(path: Path) -> bool:
    """Whether a path is taken for a capture, by its suffix."""
    return path.suffix.lower() in PCAP_SUFFIXES and not path.is_dir()


def read_datagrams(path: Path) -> Iterator[Datagram]:
    """The datagrams of UDP over IPv4 of a capture, in its order; other packets are passed over.

    Raises:
        DataError: the file is missing, no capture, or cut off; after what could be read.
        ImportError: dpkt is missing; the message names the extra.
    """
    try:
        import dpkt
    except ImportError as error:
        raise ImportError(f"reading captures needs dpkt: {_INSTALL}") from error
    try:
        file = BoundedReader(io.FileIO(path))
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror}); check the path") from error
    with file:
        try:
            reader = dpkt.pcap.UniversalReader(file)
            link = reader.datalink()
            fragments = _Fragments()
            packet = None
            for time_s, frame in reader:
                packet = _ip(link, bytes(frame))
                whole = None if packet is None or packet.cut else fragments.add(packet)
                if whole is not None and len(whole[1]) >= 8:
                    source, payload = whole
                    _, port, length = struct.unpack_from(">HHH", payload)
                    stream = f"{socket.inet_ntoa(source)}:{port}"
                    yield Datagram(round(time_s * 10**9), stream, payload[8 : max(length, 8)])
            if packet is not None and packet.cut:
                raise ValueError("its last packet is not whole")
        except Exception as error:
            # dpkt's own errors, ValueError, struct.error, OverflowError of times: all are damage.
            said = str(error)[:300] or type(error).__name__
            raise DataError(
                f"{path}: no capture, or cut off at byte {file.tell()} ({said}); record it again, or mend it"
                " with pcapfix"
            ) from error


class _Fragment(NamedTuple):
    """A packet of IPv4: its sender, what it is a part of, and which; cut where bytes are missing."""

    source: bytes
    key: bytes
    start: int
    more: bool
    data: bytes
    cut: bool


def _ip(link: int, frame: bytes) -> _Fragment | None:
    """The packet of UDP over IPv4 in a frame."""
    if link in _BARE:
        begin = _BARE[link]
    elif link in _LINKS:
        at, begin = _LINKS[link]
        kind = int.from_bytes(frame[at : at + 2], "big")
        while kind in _VLAN and link == 1:
            at, begin = at + 4, begin + 4
            kind = int.from_bytes(frame[at : at + 2], "big")
        if kind != _IPV4:
            return None
    else:
        return None
    packet = frame[begin:]
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[9] != _UDP:
        return None
    total, number, flags = struct.unpack_from(">HHH", packet, 2)
    # Captured where the card does the splitting, packets have no length.
    end = total or len(packet)
    body = packet[4 * (packet[0] & 15) : end]
    return _Fragment(
        packet[12:16],
        packet[12:20] + number.to_bytes(2, "big"),
        (flags & 0x1FFF) * 8,
        bool(flags & 0x2000),
        body,
        end > len(packet),
    )


class _Fragments:
    """Fragments that wait for others of the same datagram."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, list[_Fragment]] = {}

    def add(self, one: _Fragment) -> tuple[bytes, bytes] | None:
        """Sender and content of the datagram that a fragment completes."""
        if not one.start and not one.more:
            return one.source, one.data
        parts = self._waiting.setdefault(one.key, [])
        parts.append(one)
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        parts.sort(key=lambda part: part.start)
        end = 0
        for part in parts:
            if part.start != end:
                return None
            end += len(part.data)
        if parts[-1].more:
            return None
        self._waiting.pop(one.key, None)
        return one.source, b"".join(part.data for part in parts)
