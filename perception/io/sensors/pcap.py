"""UDP datagrams of network captures, ``.pcap`` and ``.pcapng`` (extra ``packets``).

dpkt reads the containers. This module decodes frames of Ethernet (with VLAN tags), Linux cooked captures,
loopback and raw IP. It reassembles IPv4 fragments (RFC 791, 3.2), because Ouster's packets exceed a frame.
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
#: Offsets of the protocol and of the next layer, by link type.
_LINKS = {1: (12, 14), 113: (14, 16), 276: (0, 20)}
#: Link types that carry IP directly, and the offset of its header.
_BARE = {0: 4, 12: 0, 14: 0, 101: 0, 108: 4, 228: 0}
_IPV4, _VLAN, _UDP = 0x0800, (0x8100, 0x88A8, 0x9100), 17
#: Fragments arrive within milliseconds. Later ones belong to a datagram that reuses the identification.
_LONGEST_WAIT_NS = 10**9
#: Most incomplete datagrams, of up to 64 KiB each; a new one replaces the oldest.
_MOST_WAITING = 256


class Datagram(NamedTuple):
    """A UDP datagram.

    Attributes:
        time_ns: time of capture, nanoseconds since the epoch.
        stream: sender and destination port: ``192.168.1.201:2368``.
        data: payload.
    """

    time_ns: int
    stream: str
    data: bytes


def is_pcap(path: Path) -> bool:
    """Return True if the suffix of a path is that of a capture."""
    return path.suffix.lower() in PCAP_SUFFIXES and not path.is_dir()


def read_datagrams(path: Path, incomplete: Counter[str] | None = None) -> Iterator[Datagram]:
    """Read the UDP datagrams over IPv4 of a capture, in order; other packets are skipped.

    The fragments of a datagram must arrive within a second of capture time. A contradicting fragment starts a
    new datagram, because senders reuse identifications. If a sender's checksums are right, datagrams with a
    wrong one are dropped.

    Args:
        path: the capture.
        incomplete: counts datagrams, by sender address, that miss fragments or captured bytes.

    Raises:
        DataError: the file is missing, not a capture, or cut off; raised after the readable part.
        ImportError: dpkt is missing; the message has the pip command.
    """
    incomplete = Counter() if incomplete is None else incomplete
    try:
        import dpkt
    except ImportError as error:
        raise ImportError(f"reading captures needs dpkt: {_INSTALL}") from error
    try:
        file = BoundedReader(io.FileIO(path))
    except OSError as error:
        raise DataError(f"{path}: reading failed ({error.strerror}). Check the path.") from error
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
                raise ValueError("the last packet is incomplete")
        except Exception as error:
            # Damage raises dpkt's errors, ValueError, struct.error, and OverflowError for times.
            reason = str(error)[:300] or type(error).__name__
            raise DataError(
                f"{path}: not a capture, or cut off at byte {file.tell()} ({reason}). Record it again, or"
                " repair it with pcapfix."
            ) from error


class _Fragment(NamedTuple):
    """An IPv4 packet, which may be a fragment of a datagram.

    Attributes:
        time_ns: time of capture.
        source: address of the sender.
        key: source, destination and identification; the protocol is always UDP.
        start: offset of its first byte in the datagram.
        data: its bytes.
        end: size of the datagram, known to its first and last fragment; None for others.
        cut: True if the capture holds only part of the bytes.
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
        """Offset after its last byte."""
        return self.start + len(self.data)

    @property
    def whole(self) -> bool:
        """True if it holds the whole datagram."""
        return not self.start and self.end == self.stop

    def contradicts(self, other: _Fragment) -> bool:
        """Return True if two fragments differ in the datagram's size, or overlap with other bytes."""
        for one, two in ((self, other), (other, self)):
            if one.end is not None and (two.stop >= one.end if two.end is None else two.end != one.end):
                return True
        same = self.start == other.start and self.data == other.data
        return not same and self.start < other.stop and other.start < self.stop


def _ip(link: int, frame: bytes, time_ns: int) -> _Fragment | None:
    """Return the UDP packet over IPv4 in a frame, or None."""
    if link in _BARE:
        begin = _BARE[link]
    elif link in _LINKS:
        at, begin = _LINKS[link]
        kind = int.from_bytes(frame[at : at + 2], "big")
        while kind in _VLAN:
            # After the header come two bytes of the tag, then the next protocol.
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
    # With segmentation offload, captured packets have length 0.
    end = total or len(packet)
    body, start, more = packet[4 * (packet[0] & 15) : end], (flags & 0x1FFF) * 8, bool(flags & 0x2000)
    size = None if more else start + len(body)
    if more and not start and len(body) >= 8:
        # UDP's header has the size of the datagram, or zero if it exceeds 16 bits.
        size = int.from_bytes(body[4:6], "big") or None
    key = packet[12:20] + number.to_bytes(2, "big")
    return _Fragment(time_ns, packet[12:16], key, start, body, size, end > len(packet))


def _checksum_holds(key: bytes, datagram: bytes) -> bool | None:
    """Check a datagram's checksum (RFC 768); None if it has none.

    Args:
        key: starts with the addresses of sender and receiver, which the checksum covers.
        datagram: datagram with its header.
    """
    if datagram[6:8] == b"\0\0":
        return None
    covered = key[:8] + struct.pack(">HH", _UDP, len(datagram)) + datagram + b"\0" * (len(datagram) % 2)
    # Modulo 65,535 a big number equals the ones' complement sum of its 16-bit words.
    return int.from_bytes(covered, "big") % 0xFFFF == 0


class _Reassembly:
    """Reassembly of IPv4 datagrams (RFC 791, 3.2) whose senders may reuse identifications.

    Args:
        incomplete: counts dropped datagrams by sender.
    """

    def __init__(self, incomplete: Counter[str]) -> None:
        #: Fragments by datagram, in order of arrival.
        self._waiting: dict[bytes, list[_Fragment]] = {}
        #: Senders with a right checksum. Anonymized captures have only wrong ones.
        self._trusted: set[bytes] = set()
        self._incomplete = incomplete

    def add(self, one: _Fragment) -> bytes | None:
        """Add a fragment and return the datagram that it completes; a repeated one changes nothing."""
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
            # Fragments of two datagrams were mixed; the newest may belong to one that is still arriving.
            self._count(one.key)
            held[:] = [one]
            return None
        del self._waiting[one.key]
        return whole

    def close(self) -> None:
        """Drop incomplete datagrams at the end of the capture."""
        for key in self._waiting:
            self._count(key)
        self._waiting.clear()

    def _held_with(self, one: _Fragment) -> list[_Fragment]:
        """Return the held fragments of a datagram, without those of an earlier one.

        The oldest are dropped until none contradicts the new fragment. Senders start with the first fragment,
        so if that one contradicts, all others are older.
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
        """Drop datagrams that have waited too long."""
        for key, held in list(self._waiting.items()):
            # abs(): the clock may have been set back.
            if abs(time_ns - held[0].time_ns) <= _LONGEST_WAIT_NS:
                break
            self._give_up(key)

    def _give_up(self, key: bytes) -> None:
        del self._waiting[key]
        self._count(key)

    def _count(self, key: bytes) -> None:
        self._incomplete[socket.inet_ntoa(key[:4])] += 1
