"""Hash tables over a range of rows: the rows sorted by code, and the start of each code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index.hashing import Codes

# Larger buckets are read only up to this many rows, because thousands of rows in one bucket are copies.
BUCKET_LIMIT = 2048
# Buckets per row; several, so that few rows share one by chance.
_SPREAD = 4


class Buckets(NamedTuple):
    """All tables over rows start to stop; immutable, so that searches need no lock.

    Attributes:
        start, stop: range of rows.
        address_bits: bits of an address, the highest bits of a code.
        offsets: (tables * 2^address_bits + 1,) start of each bucket in ``postings``.
        postings: (tables * rows,) int32 rows counted from ``start``, rising within a bucket.
    """

    start: int
    stop: int
    address_bits: int
    offsets: NDArray[np.int32] | NDArray[np.int64]
    postings: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.offsets.nbytes + self.postings.nbytes

    def read(self, codes: NDArray[np.int64], code_bits: int) -> BucketRows:
        """Return the rows of some buckets.

        Args:
            codes: (probes,) pair codes, with the table number above their bits.
        """
        address = codes >> (code_bits - self.address_bits)
        first = self.offsets.take(address)
        address += 1
        lengths = self.offsets.take(address)
        lengths -= first
        np.minimum(lengths, BUCKET_LIMIT, out=lengths)
        ends = np.cumsum(lengths, dtype=np.int64)
        # Stay in 32 bits if they are enough, which halves the memory traffic.
        first -= (ends - lengths).astype(first.dtype)
        place = np.repeat(first, lengths)
        place += np.arange(len(place), dtype=first.dtype)
        rows = self.postings.take(place)
        if self.start:
            rows = rows + np.int32(self.start)
        return BucketRows(rows, ends)


class BucketRows(NamedTuple):
    """Rows of some buckets.

    Attributes:
        rows: (found,) int32, bucket after bucket.
        ends: (probes,) end of each bucket in ``rows``.
    """

    rows: NDArray[np.int32]
    ends: NDArray[np.int64]


def pair_codes(codes: Codes, first: int, second: int, bits: int) -> NDArray[np.int64]:
    """Return (rows,) codes that combine the values of two functions."""
    return (codes[:, first].astype(np.int64) << bits) | codes[:, second]


def build_buckets(codes: Codes, start: int, pairs: list[tuple[int, int]], bits: int) -> Buckets:
    """Sort rows into tables.

    Args:
        codes: (rows, functions) codes of the rows from ``start`` on.
        pairs: functions of each table.
    """
    rows = len(codes)
    address_bits = min(2 * bits, max(1, int(np.ceil(np.log2(max(_SPREAD * rows, 2))))))
    addresses = 1 << address_bits
    postings = np.empty(len(pairs) * rows, np.int32)
    size = len(pairs) * addresses + 1
    offsets: NDArray[np.int32] | NDArray[np.int64] = np.empty(size, np.int64)
    if postings.size < 2**31:
        offsets = np.empty(size, np.int32)
    offsets[-1] = postings.size
    numbers = np.arange(rows, dtype=np.int64)
    for table, (first, second) in enumerate(pairs):
        address = pair_codes(codes, first, second, bits) >> (2 * bits - address_bits)
        # One sort of integers, address above row, is faster than a stable sort of the addresses.
        order = (address << 32) | numbers
        order.sort()
        postings[table * rows : (table + 1) * rows] = order & 0xFFFFFFFF
        sizes = np.bincount(address, minlength=addresses)
        offsets[table * addresses : (table + 1) * addresses] = table * rows + np.cumsum(sizes) - sizes
    return Buckets(start, start + rows, address_bits, offsets, postings)
