"""Checksums of rows: what they cover, how old stores get them, and which bit they find."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from memory.persistence import checksums
from memory.persistence.sqlite import migrations, tables
from memory.persistence.sqlite.database import SqliteDatabase
from memory.persistence.sqlite.repair import bits
from memory.types import Memory


def test_a_checksum_by_nothing_but_the_page(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        database.add(
            [Memory(time_ns=7, label="cup", caption="a cup", embedding=[1, 0, 0, 0], importance=0.5)]
        )
    raw = sqlite3.connect(tmp_path / "memory.db")
    try:
        none = -(2**63)
        numbers = struct.pack("<qqddqqqqdqqqq", 1, 7, 1.0, 0.0, 0, 1, none, none, 0.5, 0, none, 1, 0)
        texts = b"default\0object\0cup\0present"
        (told,) = raw.execute("SELECT crc FROM memory").fetchone()
        assert told == crc32(numbers + texts, 1) - 2**31
        (told,) = raw.execute("SELECT crc FROM body").fetchone()
        assert told == crc32(struct.pack("<q", 1) + b"a cup\0{}\0\0", 2) - 2**31
        half, told = raw.execute("SELECT half, crc FROM vector").fetchone()
        assert told == crc32(struct.pack("<q", 64) + half, 6) - 2**31
        value, told = raw.execute("SELECT value, crc FROM meta WHERE name = 'created_ns'").fetchone()
        assert told == crc32(f"created_ns\0{value}".encode(), 11) - 2**31
    finally:
        raw.close()


def test_an_old_store_without_room_for_checksums_opens_and_gets_them_later(
    old_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = old_store
    monkeypatch.setattr(migrations, "AT_ONCE", 2)
    renewed, done = tables.renew, 0

    def full(connection: sqlite3.Connection, layout: checksums.Layout, keys: list[int]) -> None:
        nonlocal done
        done += 1
        if done > 2:
            raise sqlite3.OperationalError("database or disk is full")
        renewed(connection, layout, keys)

    monkeypatch.setattr(tables, "renew", full)
    with SqliteDatabase.open(folder) as database:
        (said,) = database.remarks
        assert "have no checksums yet" in said
        monkeypatch.setattr(tables, "renew", renewed)
        assert "no checksums yet" in str(database.check())
        before = database.get(database.ids())
        assert before
    with SqliteDatabase.open(folder) as database:
        assert database.remarks == []
        assert database.check().ok
        assert [row.label for row in database.get(database.ids())] == [row.label for row in before]


def test_the_bit_that_is_wrong_is_found_wherever_it_is() -> None:
    random = np.random.default_rng(0)
    for size in (1, 7, 300, 4032):
        data = random.bytes(size)
        told = crc32(data, 5)
        for at in {0, size // 2, size - 1}:
            for bit in range(8):
                changed = bytearray(data)
                changed[at] ^= 1 << bit
                assert bits.repaired_bytes(bytes(changed), 5, told) == data
        assert bits.repaired_bytes(data, 5, told ^ 4) == data, "the bit is one of the checksum"
        if size > 7:
            two = bytes([data[0] ^ 1]) + data[1:-1] + bytes([data[-1] ^ 1])
            assert bits.repaired_bytes(two, 5, told) is None
