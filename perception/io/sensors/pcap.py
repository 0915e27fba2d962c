"""Datagrams of network captures, ``.pcap`` and ``.pcapng``, by dpkt (extra ``packets``).

dpkt reads the containers. Frames of Ethernet (with VLAN tags), Linux' cooked captures, loopback and raw IP
are looked into here, and fragments of IPv4 (RFC 791, 3.2) put together: packets of Ouster's sensors are
larger than frames.
"""

from __future__ import annotations

import io
import socket
import struct
from collections import Counter
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
#: Fragments of a datagram arrive within milliseconds. Later ones are of a datagram that uses its id again.
_LONGEST_WAIT_NS = 10**9
#: Datagrams that wait for more of their fragments, of up to 64 KiB each; the oldest is given up for another.
_MOST_WAITING = 256


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


def read_datagrams(path: Path, incomplete: Counter[str] | None = None) -> Iterator[Datagram]:
    """Read the UDP datagrams over IPv4 of a capture, in its order; other packets are skipped.

    A datagram in fragments is delivered when it is complete. Its fragments must arrive within a second of
    capture time. A fragment that contradicts the held ones begins a new datagram: the sender used the
    identification again. Where a sender's checksums are right, a datagram with a wrong one is left out.

    Args:
        path: the capture.
        incomplete: counts by the sender's address, while reading, the datagrams that are left out because
            fragments or captured bytes are missing.

    Raises:
        DataError: the file is missing, no capture, or cut off; after what could be read.
        ImportError: dpkt is missing; the message names the extra.
    """
    incomplete = Counter() if incomplete is None else incomplete
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
            reassembly = _Reassembly(incomplete)
            packet = None
            for time_s, frame in reader:
                packet = _ip(link, bytes(frame), round(time_s * 10**9))
                if packet is None:
                    continue
                sender = socket.inet_ntoa(packet.source)
                if packet.cut:
                    incomplete[sender] += 1
                    continue
                payload = reassembly.add(packet)
                if payload is not None and len(payload) >= 8:
                    _, port, length = struct.unpack_from(">HHH", payload)
                    yield Datagram(packet.time_ns, f"{sender}:{port}", payload[8 : max(length, 8)])
            reassembly.close()
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
    """A packet of IPv4, which may be a part of a datagram.

    Attributes:
        time_ns: time of its frame in the capture.
        source: address of its sender.
        key: source, destination and identification; the protocol is always UDP.
        start: offset of its first byte in the datagram.
        data: its bytes.
        end: size of the datagram, which its last and its first part tell; None for the parts between.
        cut: True if the capture holds only some of the bytes.
    """

    time_ns: int
    source: bytes
    key: bytes
    start: int
    data: bytes
    end: int | None
    cut: bool

    @property
    def stop(self) -> int:
        """Offset behind its last byte."""
        return self.start + len(self.data)

    @property
    def whole(self) -> bool:
        """True if it is no part but the datagram itself."""
        return not self.start and self.end == self.stop

    def contradicts(self, other: _Fragment) -> bool:
        """True if both cannot be of one datagram: their ends differ, or they overlap with other bytes."""
        for one, two in ((self, other), (other, self)):
            if one.end is not None and (two.stop >= one.end if two.end is None else two.end != one.end):
                return True
        same = self.start == other.start and self.data == other.data
        return not same and self.start < other.stop and other.start < self.stop


def _ip(link: int, frame: bytes, time_ns: int) -> _Fragment | None:
    """The packet of UDP over IPv4 in a frame."""
    if link in _BARE:
        begin = _BARE[link]
    elif link in _LINKS:
        at, begin = _LINKS[link]
        kind = int.from_bytes(frame[at : at + 2], "big")
        while kind in _VLAN:
            # Behind the header: two bytes of the tag, then the kind of what it holds.
            kind = int.from_bytes(frame[begin + 2 : begin + 4], "big")
            begin += 4
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
    body, start, more = packet[4 * (packet[0] & 15) : end], (flags & 0x1FFF) * 8, bool(flags & 0x2000)
    size = None if more else start + len(body)
    if more and not start and len(body) >= 8:
        # The header of UDP has the length of the datagram, zero if it does not fit into 16 bits.
        size = int.from_bytes(body[4:6], "big") or None
    key = packet[12:20] + number.to_bytes(2, "big")
    return _Fragment(time_ns, packet[12:16], key, start, body, size, end > len(packet))


def _checksum_holds(key: bytes, datagram: bytes) -> bool | None:
    """True if a datagram's checksum (RFC 768) is right; None if it has none.

    Args:
        key: begins with the addresses of sender and receiver, which the checksum covers.
        datagram: with its header.
    """
    if datagram[6:8] == b"\0\0":
        return None
    covered = key[:8] + struct.pack(">HH", _UDP, len(datagram)) + datagram + b"\0" * (len(datagram) % 2)
    # 65,536 is 1 modulo 65,535: the number modulo 65,535 is the sum of its words in ones' complement.
    return int.from_bytes(covered, "big") % 0xFFFF == 0


class _Reassembly:
    """Reassembly of IPv4 datagrams (RFC 791, 3.2) whose identification may be used again.

    Args:
        incomplete: counts by sender the datagrams that are given up.
    """

    def __init__(self, incomplete: Counter[str]) -> None:
        #: Fragments by datagram, in the order of their arrival.
        self._waiting: dict[bytes, list[_Fragment]] = {}
        #: Senders with a right checksum. Captures whose addresses were replaced have wrong ones throughout.
        self._trusted: set[bytes] = set()
        self._incomplete = incomplete

    def add(self, one: _Fragment) -> bytes | None:
        """The content of the datagram that a fragment completes; a repeated fragment changes nothing."""
        if one.whole:
            return one.data
        self._expire(one.time_ns)
        held = self._held_with(one)
        if all(one.start != part.start for part in held):
            held.append(one)
        end = next((part.end for part in held if part.end is not None), None)
        if sum(len(part.data) for part in held) != end:
            return None
        whole = b"".join(part.data for part in sorted(held, key=lambda part: part.start))
        right = _checksum_holds(one.key, whole)
        if right:
            self._trusted.add(one.source)
        if right is False and one.source in self._trusted:
            # Parts of two datagrams of one size: the newest may be of one whose other parts follow.
            self._count(one.key)
            held[:] = [one]
            return None
        del self._waiting[one.key]
        return whole

    def close(self) -> None:
        """Give up what waits at the end of the capture."""
        for key in self._waiting:
            self._count(key)
        self._waiting.clear()

    def _held_with(self, one: _Fragment) -> list[_Fragment]:
        """What waits of the datagram of a fragment, without the parts of an earlier datagram.

        The oldest parts are dropped until none contradicts the fragment. Senders begin with the first part:
        where that contradicts, all others are older than it.
        """
        if one.key not in self._waiting:
            if len(self._waiting) == _MOST_WAITING:
                self._give_up(next(iter(self._waiting)))
            self._waiting[one.key] = []
        held = self._waiting[one.key]
        wrong = [place for place, part in enumerate(held) if part.contradicts(one)]
        if wrong:
            self._count(one.key)
            del held[: None if one.start == 0 else wrong[-1] + 1]
        return held

    def _expire(self, time_ns: int) -> None:
        """Give up the datagrams, the oldest first, that wait for too long."""
        for key, held in list(self._waiting.items()):
            # Both ways: a clock that is set back would keep fragments for as long as it was ahead.
            if abs(time_ns - held[0].time_ns) <= _LONGEST_WAIT_NS:
                break
            self._give_up(key)

    def _give_up(self, key: bytes) -> None:
        del self._waiting[key]
        self._count(key)

    def _count(self, key: bytes) -> None:
        self._incomplete[socket.inet_ntoa(key[:4])] += 1
