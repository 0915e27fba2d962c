"""Event files: as TensorBoard's own reader takes them, and byte by byte without it."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from perception.train.events import EventFile, _checksum
from perception.train.log import TrainingLog

#: Checked with the reader of tensorboard 2.20: steps of loss and rate after a run that went on from step 20.
EXPECTED = {
    "loss/total": [(10, 3.0), (20, 2.0), (30, 1.5)],
    "learning_rate": [(10, 0.5), (20, 0.25), (30, 0.125)],
}


def write_run(folder: Path) -> Path:
    """A run of 40 steps that was killed behind its checkpoint of step 20, and went on."""
    rows = [(10, 3.0, 0.5), (20, 2.0, 0.25), (30, 9.0, 9.0), (40, 9.0, 9.0)]
    with TrainingLog(folder / "log.csv", 0) as log:
        for step, total, rate in rows:
            log.write({"step": step, "total": total, "heat": math.nan, "learning_rate": rate, "seconds": 1.0})
    with TrainingLog(folder / "log.csv", 20) as log:
        log.write({"step": 30, "total": 1.5, "learning_rate": 0.125, "seconds": 2.0})
    return folder / "tensorboard"


def records(path: Path) -> list[bytes]:
    data, found = path.read_bytes(), []
    while data:
        length = struct.unpack("<Q", data[:8])[0]
        event = data[12 : 12 + length]
        assert (data[8:12], data[12 + length : 16 + length]) == (_checksum(data[:8]), _checksum(event))
        found.append(event)
        data = data[16 + length :]
    return found


def test_tensorboard_reads_a_run_that_went_on(tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    events = reader.EventAccumulator(str(write_run(tmp_path)))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(EXPECTED)
    for tag, expected in EXPECTED.items():
        assert [(each.step, each.value) for each in events.Scalars(tag)] == expected


def test_bytes_of_events(tmp_path: Path) -> None:
    # Check values of CRC-32C (RFC 3720, B.4), masked.
    for data, crc in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (b"123456789", 0xE3069283)):
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        assert _checksum(data) == struct.pack("<I", masked)
    first, second = sorted(write_run(tmp_path).iterdir())
    version, start, *rows = records(first)
    assert version[0] == 0x09  # wall_time
    assert version[9:] == b"\x1a\x0dbrain.Event:2"
    assert start[9:] == b"\x10\x01\x3a\x02\x08\x01"
    assert len(rows) == 4
    total = b"\x0a\x11\x0a\x0aloss/total\x15" + struct.pack("<f", 3.0)
    rate = b"\x0a\x14\x0a\x0dlearning_rate\x15" + struct.pack("<f", 0.5)
    assert rows[0][9:] == b"\x10\x0a\x2a" + bytes([len(total + rate)]) + total + rate
    assert records(second)[1][9:] == b"\x10\x15\x3a\x02\x08\x01"  # From step 21 on.


def test_large_steps_and_many_values(tmp_path: Path) -> None:
    file = EventFile(tmp_path, 0)
    file.write(300, {f"loss/{number}": float(number) for number in range(40)})
    file.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    assert records(path)[2][9:12] == b"\x10\xac\x02"


def test_ranks_that_write_nothing_make_no_file(tmp_path: Path) -> None:
    with TrainingLog(None, 0) as log:
        log.write({"step": 10, "total": 1.0})
    assert list(tmp_path.iterdir()) == []
