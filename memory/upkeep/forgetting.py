"""Choice of the memories to forget when there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.config import Policy
from memory.types import check_integer
from memory.wording.reasons import ForgettingReason, Reason


@dataclass(frozen=True, eq=False)
class Records:
    """Arrays that the policies use, one row per memory.

    Attributes:
        ids: (N,) int64, unique.
        last_used_ns: (N,) int64 time when last seen or returned by a query.
        use_count: (N,) int64 number of uses.
        value: (N,) float64 importance, not negative.
        marked: (N,) bool, True for memories that are never forgotten.
        map_ids: N names of maps.

    Raises:
        ValueError: lengths differ, an id is listed twice, or a number is negative or not finite.
    """

    ids: NDArray[np.int64]
    last_used_ns: NDArray[np.int64]
    use_count: NDArray[np.int64]
    value: NDArray[np.float64]
    marked: NDArray[np.bool_]
    map_ids: Sequence[str]

    def __post_init__(self) -> None:
        for name, dtype in (
            ("ids", np.int64),
            ("last_used_ns", np.int64),
            ("use_count", np.int64),
            ("value", np.float64),
            ("marked", np.bool_),
        ):
            given = np.asarray(getattr(self, name))
            # Times beyond 2**53 would lose their last digits as floats.
            if dtype == np.int64 and given.size and given.dtype.kind not in "iu":
                raise TypeError(f"{name} must be integers, got {given.dtype}")
            values = given.astype(dtype)
            if values.shape != (len(self.map_ids),):
                raise ValueError(f"{name} must have shape ({len(self.map_ids)},), got {values.shape}")
            object.__setattr__(self, name, values)
        if len(np.unique(self.ids)) != len(self.ids):
            raise ValueError("ids must be unique")
        if not (np.isfinite(self.value) & (self.value >= 0.0)).all():
            raise ValueError("value must be finite and not negative")
        if (self.use_count < 0).any():
            raise ValueError("use_count must not be negative")

    def __len__(self) -> int:
        return len(self.ids)


def keep_values(policy: Policy, records: Records, now_ns: int) -> NDArray[np.float64]:
    """Return (N,) float64 values; memories with larger ones are kept longer.

    By policy: the negative age in seconds since the last use, the number of uses, the decay since the last
    use (one half per half-life), or importance times this decay.
    """
    # Floats, because the difference of two 64-bit times may exceed 64 bits.
    age_s = (np.float64(now_ns) - records.last_used_ns.astype(np.float64)) / 1e9
    if policy.name == "lru":
        return -age_s
    if policy.name == "frequency":
        return records.use_count.astype(np.float64)
    decayed = np.exp2(-np.maximum(age_s, 0.0) / policy.half_life_s)
    return decayed if policy.name == "decay" else records.value * decayed


def select_to_forget(
    records: Records, policy: Policy, capacity: int | None, now_ns: int
) -> dict[int, Reason]:
    """Choose the memories to forget so that every map fits its capacity; marked memories always stay.

    Ties are broken by the earlier last use, then by the lower id.

    Args:
        records: all memories of the maps.
        policy: how memories are compared.
        capacity: most memories per map, or ``None``.
        now_ns: time by the robot's clock; later uses count as now.

    Returns:
        The reason by id, the least valuable memory of each map first.

    Raises:
        ValueError: a negative capacity.
    """
    check_integer("now_ns", now_ns)
    names = sorted(set(records.map_ids))
    if capacity is not None and check_integer("capacity", capacity) < 0:
        raise ValueError(f"capacity must not be negative, got {capacity}")
    values = keep_values(policy, records, now_ns)
    order = np.lexsort((records.ids, records.last_used_ns, values))
    number = {name: index for index, name in enumerate(names)}
    map_index = np.array([number[name] for name in records.map_ids], dtype=np.int64)
    found: dict[int, Reason] = {}
    for name in names:
        ranked = order[map_index[order] == number[name]]
        free = ranked[~records.marked[ranked]]
        excess = 0 if capacity is None else max(0, len(ranked) - capacity)
        faded = 0 if policy.least is None else int((values[free] < policy.least).sum())
        for place, row in enumerate(free[: max(excess, faded)].tolist()):
            full = place < excess
            found[int(records.ids[row])] = ForgettingReason(
                sort="full" if full else "faded",
                policy=policy.name,
                half_life_s=policy.half_life_s,
                keep_value=float(values[row]),
                value=float(records.value[row]),
                unused_s=max(0.0, (now_ns - int(records.last_used_ns[row])) / 1e9),
                uses=int(records.use_count[row]),
                held=len(ranked) if full else None,
                most=capacity if full else None,
                least=None if full else policy.least,
                map_id=name,
            )
    return found
