"""The write-ahead log as SQLite's recovery reads it, and what lies behind the first damage in it.

SQLite stops at the first frame whose checksum is wrong, without a word: after a power cut that is the end of
what was committed. Frames behind it that continue each other, and follow a commit, were synced: then the log
was damaged, and SQLite passes over operations that were acknowledged. The format is that of
https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HEADER, FRAME_HEADER = 32, 24
MAGIC = 0x377F0682
#: What a step of the checksum makes of its two numbers: s0' = s0 + s1 + a; s1' = s0' + s1 + b.
_STEP = np.array([[1, 1], [1, 2]], np.uint64)
_MASK = np.uint64(0xFFFFFFFF)


class Wal(NamedTuple):
    """What a write-ahead log holds.

    Attributes:
        pages: by number, the newest of each, with the frames behind a damage.
        damaged: whether commits that had been synced are behind a damage.
    """

    pages: dict[int, bytes]
    damaged: bool


def read(log: Path) -> Wal:
    """Read a log; nothing where there is none.

    Raises:
        OSError: it cannot be read.
    """
    data = log.read_bytes() if log.exists() else b""
    size = int.from_bytes(data[8:12], "big")
    if len(data) < HEADER or size not in (512, 1024, 2048, 4096, 8192, 16384, 32768):
        return Wal({}, False)
    order = ">" if int.from_bytes(data[:4], "big") & 1 else "<"
    count = (len(data) - HEADER) // (FRAME_HEADER + size)
    if count == 0:
        return Wal({}, False)
    frames = np.frombuffer(data, np.uint8, count * (FRAME_HEADER + size), HEADER).reshape(count, -1)
    heads = np.ascontiguousarray(frames[:, :FRAME_HEADER]).view(">u4").astype(np.uint64)
    covered = np.concatenate([frames[:, :8], frames[:, FRAME_HEADER:]], axis=1)
    steps, sums = _parts(covered.view(f"{order}u4").astype(np.uint64))
    start = _parts(np.frombuffer(data, f"{order}u4", 6)[None].astype(np.uint64))[1][0]
    head = np.frombuffer(data, ">u4", HEADER // 4).astype(np.uint64)
    sound_head = int(head[0]) & ~1 == MAGIC and (start == head[6:8]).all()
    before = np.concatenate([head[None, 6:8], heads[:-1, 4:6]])
    follows = (((before @ steps.T) + sums) & _MASK == heads[:, 4:6]).all(axis=1)
    follows &= (heads[:, 2:4] == head[4:6]).all(axis=1) & (heads[:, 0] > 0)
    end = count if follows.all() else int(np.flatnonzero(~follows)[0])
    end = end if sound_head else 0
    commits = np.flatnonzero((heads[:, 1] > 0) & follows)
    last = int(commits[commits < end][-1]) + 1 if (commits < end).any() else 0
    later = np.flatnonzero(follows)
    # A frame of the log after one that ends a commit behind the damage: it was written once that was synced.
    damaged = sound_head and bool(
        len(commits) and (commits >= end).any() and later[-1] > commits[commits >= end][0]
    )
    # As SQLite sees them, then what it does not.
    kept = [*range(last), *(later.tolist() if sound_head else ())]
    return Wal({int(heads[at, 0]): frames[at, FRAME_HEADER:].tobytes() for at in kept}, damaged)


def _parts(words: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """What stretches of (n, 2 k) words make of a checksum: the (2, 2) matrix, and (n, 2) what is added."""
    steps = words.shape[1] // 2
    power = np.eye(2, dtype=np.uint64)
    first, second = np.empty((2, steps), np.uint64), np.empty((2, steps), np.uint64)
    for at in range(steps - 1, -1, -1):
        # Of a step's numbers a and b, a and a + b are added; the later steps turn them.
        first[:, at] = (power[:, 0] + power[:, 1]) & _MASK
        second[:, at] = power[:, 1]
        power = (power @ _STEP) & _MASK
    a, b = words[:, 0::2], words[:, 1::2]
    low = np.uint64(0xFFFF)
    found = np.zeros((len(words), 2), np.uint64)
    for part, weights in ((a, first), (b, second)):
        # In halves, so that no product leaves 64 bits.
        found += ((part & low) @ weights.T) & _MASK
        found += ((((part >> np.uint64(16)) @ weights.T) & _MASK) << np.uint64(16)) & _MASK
    return power, found & _MASK
