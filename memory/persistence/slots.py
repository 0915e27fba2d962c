"""Slots of vectors: one per encoder, at most ``SLOTS`` per store. Calls run within a transaction."""

from __future__ import annotations

from memory.errors import DimensionError
from memory.persistence import checksums
from memory.persistence.engine import engine_of
from memory.persistence.rows import DEFAULT_SLOT, SLOTS, Slot
from memory.persistence.sql import Connection


def read_slots(connection: Connection) -> dict[str, Slot]:
    """Return the slots by name."""
    return {
        name: Slot(slot, dim) for slot, name, dim in connection.execute("SELECT slot, name, dim FROM slot")
    }


def add_slot(connection: Connection, slots: dict[str, Slot], name: str, dim: int) -> Slot:
    """Return the slot of this name; create it if needed.

    Raises:
        DimensionError: it exists with another length.
        ValueError: all numbers are used by encoders with vectors.
    """
    if name not in slots:
        if len(slots) == SLOTS:
            drop_empty_slots(connection, slots)
        numbers = {slot.number for slot in slots.values()}
        number = next((each for each in range(SLOTS) if each not in numbers), None)
        if number is None:
            raise ValueError(f"a store has at most {SLOTS} encoders, so {name!r} does not fit")
        connection.execute(
            "INSERT INTO slot (slot, name, dim, crc) VALUES (?, ?, ?, ?)",
            (number, name, dim, checksums.SLOT.sum((number, dim), name.encode())),
        )
        slots[name] = Slot(number, dim)
    if slots[name].dim != dim:
        raise DimensionError(f"the {name!r} embedding has {dim} numbers, but the store has {slots[name].dim}")
    return slots[name]


def drop_empty_slots(connection: Connection, slots: dict[str, Slot]) -> None:
    """Delete slots without vectors to make room, except the default one.

    It reads all vectors, so it runs only when a number is needed.
    """
    used = {number for number, _ in connection.execute(engine_of(connection).vector_counts)}
    for name in [name for name, slot in slots.items() if slot.number not in used and name != DEFAULT_SLOT]:
        connection.execute("DELETE FROM slot WHERE slot = ?", (slots.pop(name).number,))
