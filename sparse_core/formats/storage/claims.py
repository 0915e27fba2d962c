"""What a file claims, held against the bytes that it has."""

from __future__ import annotations

#: Memory that any file may ask for, besides a multiple of its own bytes.
FREE_BYTES = 1 << 26


def check_claim(what: str, claimed_bytes: int, held_bytes: int, *, growth: int) -> None:
    """Raise ``ValueError`` where a few bytes ask for much memory.

    Args:
        what: what takes the memory, for the message.
        claimed_bytes: memory that reading on would take.
        held_bytes: bytes of the file, or of what it unpacks to.
        growth: times ``held_bytes`` that may be taken besides 64 MiB.
    """
    if claimed_bytes > FREE_BYTES + growth * held_bytes:
        raise ValueError(f"{what} would take {claimed_bytes} bytes, from a file that holds {held_bytes}")
