"""Reassembly of fragments in captures whose identifications are used again, and what is lost of them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import sensor_packets as sensors

from perception.io.sensors.packets import PacketScans
from perception.io.sensors.pcap import read_datagrams

dpkt = pytest.importorskip("dpkt", reason="dpkt is not installed (extra 'packets')")
#: Headers of Ethernet, Linux' two cooked captures (their VLAN tag behind the header), and of no link at all.
LINKS = {
    1: bytes(12) + b"\x08\x00",
    113: bytes(14) + b"\x08\x00",
    276: b"\x08\x00" + bytes(18),
    101: b"",
}
TAGGED = {
    1: bytes(12) + b"\x88\xa8\x00\x01\x81\x00\x00\x02\x08\x00",
    113: bytes(14) + b"\x81\x00\x00\x02\x08\x00",
    276: b"\x81\x00" + bytes(18) + b"\x00\x02\x08\x00",
}


class Part(NamedTuple):
    """A fragment: when, of which datagram, where in it, and whether others follow."""

    time_s: float
    number: int
    start: int
    more: bool
    data: bytes
    sender: str = sensors.OUSTER
    receiver: str = "10.0.0.1"


def parts(
    payload: bytes,
    *,
    number: int = 7,
    time_s: float = 1.0,
    largest: int = 800,
    sender: str = sensors.OUSTER,
    checksum: int = 0,
) -> list[Part]:
    body = struct.pack(">HHHH", 7502, 7502, 8 + len(payload), checksum) + payload
    return [
        Part(time_s, number, start, start + largest < len(body), body[start : start + largest], sender)
        for start in range(0, len(body), largest)
    ]


def capture(path: Path, frames: Sequence[Part], *, link: int = 1, header: bytes | None = None) -> Path:
    with path.open("wb") as file:
        writer = (
            dpkt.pcapng.Writer(file) if path.suffix == ".pcapng" else dpkt.pcap.Writer(file, linktype=link)
        )
        for one in frames:
            addresses = b"".join(bytes(map(int, text.split("."))) for text in (one.sender, one.receiver))
            flags = one.start // 8 | (0x2000 if one.more else 0)
            head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(one.data), one.number, flags, 64, 17, 0)
            writer.writepkt((LINKS[link] if header is None else header) + head + addresses + one.data,
                            ts=one.time_s)  # fmt: skip
    return path


def payloads(path: Path, incomplete: Counter[str] | None = None) -> list[bytes]:
    return [one.data for one in read_datagrams(path, incomplete)]


A, B, C = (bytes([value]) * 2000 for value in (65, 66, 67))


@pytest.mark.parametrize("suffix", [".pcap", ".pcapng"])
def test_all_datagrams_of_one_identification_are_delivered(suffix: str, tmp_path: Path) -> None:
    """A sensor that counts to 65,535 soon uses an identification again; one with id 0 does so at once."""
    frames = [part for payload in (A, B, A, C) for part in parts(payload)]
    incomplete = Counter[str]()
    assert payloads(capture(tmp_path / f"a{suffix}", frames), incomplete) == [A, B, A, C]
    assert not incomplete


def test_a_lost_fragment_costs_one_datagram_and_no_other(tmp_path: Path) -> None:
    first, second = parts(A), parts(B)
    for lost in range(3):
        incomplete = Counter[str]()
        frames = [*first[:lost], *first[lost + 1 :], *parts(B, time_s=3.0), *parts(C, time_s=3.0)]
        assert payloads(capture(tmp_path / "a.pcap", frames), incomplete) == [B, C]
        assert incomplete == {sensors.OUSTER: 1}
    # Within a second too: the repeated offset, or the last part at another place, tells.
    assert payloads(capture(tmp_path / "a.pcap", [*first[:2], *second])) == [B]


def test_fragments_out_of_order_and_sent_twice(tmp_path: Path) -> None:
    first, second, third = parts(A)
    for frames in ([third, first, second], [second, third, first], [first, first, second, second, third]):
        incomplete = Counter[str]()
        assert payloads(capture(tmp_path / "a.pcap", frames), incomplete) == [A]
        assert not incomplete


def test_fragments_that_overlap_are_of_different_datagrams(tmp_path: Path) -> None:
    """Another size of fragments, or another length in the header: nothing of A may be in B."""
    first = parts(A)
    for held in ([first[0]], [first[1]], [first[2]], first[1:], first[:2]):
        for second in (parts(B, largest=1200), parts(B[:-8]), parts(B + B)):
            incomplete = Counter[str]()
            found = payloads(capture(tmp_path / "a.pcap", [*held, *second]), incomplete)
            assert found == [b"B" * (len(b"".join(part.data for part in second)) - 8)]
            assert incomplete == {sensors.OUSTER: 1}


def checked(payload: bytes) -> list[Part]:
    """With the checksum that dpkt computes."""
    udp = dpkt.udp.UDP(sport=7502, dport=7502, data=payload)
    udp.ulen = len(udp)
    addresses = {"src": bytes([10, 0, 0, 3]), "dst": bytes([10, 0, 0, 1])}
    packet = dpkt.ip.IP(p=17, data=udp, len=20 + len(udp), **addresses)
    bytes(packet)
    return parts(payload, checksum=udp.sum)


def test_a_checksum_tells_datagrams_of_one_size_apart(tmp_path: Path) -> None:
    incomplete = Counter[str]()
    frames = [*checked(A), *checked(B)[1:], *checked(C), *checked(A + b"odd"), *checked(B)]
    assert payloads(capture(tmp_path / "a.pcap", frames), incomplete) == [A, C, A + b"odd", B]
    assert incomplete == {sensors.OUSTER: 1}
    # All are wrong where a tool replaced the addresses, which a checksum covers.
    renamed = [part._replace(receiver="10.9.9.9") for part in [*checked(A), *checked(B)]]
    assert payloads(capture(tmp_path / "a.pcap", renamed)) == [A, B]


def test_senders_and_receivers_have_identifications_of_their_own(tmp_path: Path) -> None:
    there = [part._replace(receiver="10.0.0.9") for part in parts(B)]
    other = parts(C, sender=sensors.VELODYNE)
    mixed = [part for three in zip(parts(A), there, other, strict=True) for part in three]
    assert payloads(capture(tmp_path / "a.pcap", mixed)) == [A, B, C]


def test_old_fragments_expire_by_the_time_of_the_capture(tmp_path: Path) -> None:
    late = [part._replace(time_s=time_s) for part, time_s in zip(parts(A), (10, 10.5, 10.9), strict=True)]
    assert payloads(capture(tmp_path / "a.pcap", late)) == [A]
    # Each half is of a datagram whose other half was lost; a clock may also have been set back.
    for time_s in (11.5, 8.5, 1e5):
        incomplete = Counter[str]()
        frames = [*parts(A, time_s=10)[:1], *parts(B, time_s=time_s)[1:], *parts(C, number=8, time_s=time_s)]
        assert payloads(capture(tmp_path / "a.pcap", frames), incomplete) == [C]
        assert incomplete == {sensors.OUSTER: 2}


def test_lost_fragments_do_not_pile_up(tmp_path: Path) -> None:
    """300 datagrams without their end in a moment: 256 wait, and whole ones are still delivered."""
    frames = [parts(A, number=number)[0] for number in range(300)]
    incomplete = Counter[str]()
    path = capture(tmp_path / "a.pcap", [*frames, *parts(B, number=400)])
    reader = read_datagrams(path, incomplete)
    assert next(reader).data == B
    assert incomplete == {sensors.OUSTER: 300 + 1 - 256}
    assert not list(reader)
    assert incomplete == {sensors.OUSTER: 300}


@pytest.mark.parametrize("link", list(TAGGED))
def test_fragments_with_and_without_vlan_tags(link: int, tmp_path: Path) -> None:
    for header in (LINKS[link], TAGGED[link]):
        path = capture(tmp_path / "a.pcap", [*parts(A), *parts(B)], link=link, header=header)
        assert payloads(path) == [A, B]


def test_a_turn_warns_of_incomplete_packets(tmp_path: Path) -> None:
    path, profile = tmp_path / "drive.pcap", "RNG19_RFL8_SIG16_NIR16"
    sensors.ouster_drive(path, profile, turns=3)
    whole = path.read_bytes()
    frame = 16 + 14 + 20 + 512
    # The second frame of the first packet.
    begin = 24 + frame
    path.write_bytes(whole[:begin] + whole[begin + frame :])
    found = [one.cloud for one in PacketScans(path).attempts() if not isinstance(one, Exception)]
    told = "1 packet is incomplete"
    assert [sum(told in text for text in cloud.warnings) for cloud in found] == [0, 0, 1]
