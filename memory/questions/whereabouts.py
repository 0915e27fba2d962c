"""Latest memory of an object, and whether the object is still there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memory.merging.robots import BELIEVED, weights_of
from memory.observe.presence import Presence, PresenceOptions, look_again
from memory.observe.views import Views
from memory.query import Filter
from memory.questions.answers import StillThere, WhenLeft
from memory.questions.guarantee.history import last_free_ns
from memory.questions.meaning import Meanings, Target
from memory.store import MemoryStore
from memory.types import AWAY, Memory

#: Maximum number of memories of one object that are compared.
LATEST_SEEN = 256


def latest(store: MemoryStore, meanings: Meanings, meant: Target) -> Memory | None:
    """Return the memory with the latest trusted observation; ``None`` if there is none."""
    trust = store.database.trusts()
    found = meanings.memories(meant, newest_first=True, limit=LATEST_SEEN if trust else 1)
    if found and meant.ids is None:
        found += store.find_last_seen(meant.filter, min(each.last_sight_ns for each in found))
    believed = {
        memory.id: share >= BELIEVED for memory, share in zip(found, weights_of(found, trust), strict=True)
    }
    return max(
        found,
        key=lambda memory: (believed[memory.id], memory.last_sight_ns, memory.id or 0),
        default=None,
    )


def still_there(
    store: MemoryStore,
    meanings: Meanings,
    meant: Target,
    near: tuple[float, ...] | None,
    *,
    views: Views | None,
    observations: Sequence[Memory],
    options: PresenceOptions | None,
) -> StillThere:
    """Judge whether an object is still where it was; see :meth:`memory.questions.Questions.still_there`."""
    found = latest(store, meanings, meant) if near is None else _closest(meanings, meant, near)
    if found is None or found.id is None:
        return StillThere(meant.words, None, "unknown", None, ())
    (known,) = store.get([found.id])
    if known.position is None:
        reason = "its position is not known"
        return StillThere(
            meant.words, known, known.state if known.state in AWAY else "unknown", None, (reason,)
        )
    later = [memory for memory in _later_than(store, known) if memory.position is not None]
    seen = [*later, *(entry for entry in observations if entry.map_id == known.map_id)]
    looks = views if views is not None else Views(np.zeros((0, 3)), np.zeros(0), np.zeros(0, np.int64))
    (presence,) = look_again([known], seen, looks, options).known
    if presence.seen == 0 and (presence.missed == 0 or _known_gone(known, presence)):
        if known.state in AWAY:
            return StillThere(meant.words, known, known.state, None, (f"it was marked as {known.state}",))
        return StillThere(meant.words, known, "unknown", None, presence.reasons[:1])
    moved_to = None if presence.moved_to is None else seen[presence.moved_to]
    return StillThere(meant.words, known, presence.state, presence.probability, presence.reasons, moved_to)


def departure(
    store: MemoryStore, meanings: Meanings, meant: Target, near: tuple[float, ...] | None
) -> WhenLeft:
    """Find when an object left; see :meth:`memory.questions.Questions.departure`."""
    others = 0
    if near is not None:
        found = _closest(meanings, meant, near)
    else:
        seen = meanings.memories(meant, newest_first=True, limit=LATEST_SEEN)
        left = [memory for memory in seen if memory.state in AWAY]
        if left:
            found, others = max(left, key=lambda memory: memory.last_sight_ns), len(left) - 1
        else:
            found = latest(store, meanings, meant)
    if found is None:
        return WhenLeft(meant.words, None)
    return WhenLeft(meant.words, found, found.last_sight_ns, last_free_ns(store, found), others)


def _closest(meanings: Meanings, meant: Target, near: tuple[float, ...]) -> Memory | None:
    """Return the memory closest to a point; of equally close ones the latest."""
    found = meanings.memories(meant, newest_first=True, limit=LATEST_SEEN)
    return min(found, key=lambda memory: math.dist(memory.place[: len(near)], near), default=None)


def _later_than(store: MemoryStore, known: Memory) -> list[Memory]:
    """Return memories of the same map, kind and label that were seen later.

    An object that left was not seen again if the other one stood beside it before.
    """
    later = Filter(
        map_id=known.map_id,
        kinds=(known.kind,),
        labels=(known.label,),
        between_ns=(min(known.last_sight_ns + 1, 2**63 - 1), 2**63 - 1),
    )
    found = [memory for memory in store.find(later, limit=LATEST_SEEN) if memory.id != known.id]
    if known.state not in AWAY:
        return found
    return [memory for memory in found if memory.first_sight_ns > known.last_sight_ns]


def _known_gone(known: Memory, presence: Presence) -> bool:
    """True if it was gone before and the views since then do not contradict that."""
    return presence.state == "unknown" and known.state in AWAY
