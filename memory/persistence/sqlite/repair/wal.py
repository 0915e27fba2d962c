"""Write-ahead log as SQLite's recovery reads it, and what follows the first damage.

SQLite silently stops at the first frame with a wrong checksum; after a power cut that is the end of the
commits. Consistent frames after it, following a commit, were synced. Then the log is damaged, and SQLite
skips acknowledged operations. The format is that of https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HEADER, FRAME_HEADER = 32, 24
MAGIC = 0x377F0682
#: Effect of a checksum step on its two numbers: s0' = s0 + s1 + a; s1' = s0' + s1 + b.
_STEP = np.array([[1, 1], [1, 2]], np.uint64)
_MASK = np.uint64(0xFFFFFFFF)


class Wal(NamedTuple):
    """Content of a write-ahead log.

    Attributes:
        pages: newest version of each page by number, including frames after a damage.
        damaged: True if synced commits follow a damage.
    """

    pages: dict[int, bytes]
    damaged: bool


def read(log: Path) -> Wal:
    """Read a log; empty if there is none.

    Raises:
        OSError: the file is unreadable.
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
    # A frame after a commit frame behind the damage was written only once that commit was synced.
    damaged = sound_head and bool(
        len(commits) and (commits >= end).any() and later[-1] > commits[commits >= end][0]
    )
    # First what SQLite sees, then what it skips.
    kept = [*range(last), *(later.tolist() if sound_head else ())]
    return Wal({int(heads[at, 0]): frames[at, FRAME_HEADER:].tobytes() for at in kept}, damaged)


def _parts(words: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the effect of (n, 2 k) words on a checksum: a (2, 2) matrix and (n, 2) offsets."""
    steps = words.shape[1] // 2
    power = np.eye(2, dtype=np.uint64)
    first, second = np.empty((2, steps), np.uint64), np.empty((2, steps), np.uint64)
    for at in range(steps - 1, -1, -1):
        # A step adds a and a + b to its two numbers; later steps transform them.
        first[:, at] = (power[:, 0] + power[:, 1]) & _MASK
        second[:, at] = power[:, 1]
        power = (power @ _STEP) & _MASK
    a, b = words[:, 0::2], words[:, 1::2]
    low = np.uint64(0xFFFF)
    found = np.zeros((len(words), 2), np.uint64)
    for part, weights in ((a, first), (b, second)):
        # In halves, so that no product exceeds 64 bits.
        found += ((part & low) @ weights.T) & _MASK
        found += ((((part >> np.uint64(16)) @ weights.T) & _MASK) << np.uint64(16)) & _MASK
    return power, found & _MASK
