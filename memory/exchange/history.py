"""Lines of a file that earlier imports stored, according to the log."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from memory.exchange.sources import Entry
from memory.persistence.database import Database
from memory.store import MemoryStore

OPERATION = "import"
#: Name under which :meth:`memory.store.MemoryStore.observe` logs.
OBSERVED = "observe"
#: Log entries read at a time.
_LOG_PORTION = 5000


class ImportHistory(NamedTuple):
    """Earlier imports that were not undone.

    Attributes:
        stretches: first line of a stretch -> last lines -> digests, for one kind of content.
        spaces: name of a store's vectors -> their encoder, where imports recorded it.
        ended: recording -> lines after which all of its tracks were stored.
    """

    stretches: dict[int, dict[int, set[str]]]
    spaces: dict[str, str]
    ended: dict[str, set[int]]


def read_history(database: Database | MemoryStore, sort: str) -> ImportHistory:
    """Read the import history from the log.

    Args:
        sort: kind of content whose lines count.
    """
    imports: dict[int, dict[str, Any]] = {}
    undos: list[tuple[int, int]] = []
    after = 0
    while entries := database.log(after, limit=_LOG_PORTION):
        after = entries[-1].generation
        for entry in entries:
            if entry.undoes is not None:
                undos.append((entry.generation, entry.undoes))
            elif entry.operation in (OPERATION, OBSERVED) and "sort" in entry.detail:
                imports[entry.generation] = entry.detail
    undone: set[int] = set()
    for generation, target in reversed(undos):
        # An undo that was itself undone later has no effect.
        if generation not in undone:
            undone.add(target)
    found = ImportHistory({}, {}, {})
    for generation, detail in imports.items():
        if generation in undone:
            continue
        found.spaces.update(detail.get("spaces", {}))
        if "ended" in detail:
            found.ended.setdefault(str(detail["recording"]), set()).add(int(detail["ended"]))
        if detail["sort"] == sort:
            lasts = found.stretches.setdefault(int(detail["first"]), {})
            lasts.setdefault(int(detail["last"]), set()).add(str(detail["sha256"]))
    return found


def mark_known(
    entries: Iterable[Entry], stretches: dict[int, dict[int, set[str]]]
) -> Iterator[tuple[Entry, bool]]:
    """Yield each entry with True if it lies in a stretch of lines that was imported before.

    Entries wait until every logged stretch that may contain them has ended, at most for the longest stretch.
    So this works on streams too.
    """
    waiting: deque[tuple[Entry, list[bool]]] = deque()
    running: dict[int, Any] = {}
    for entry in entries:
        waiting.append((entry, [False]))
        if entry.number in stretches:
            running[entry.number] = hashlib.sha256()
        for first, digest in list(running.items()):
            digest.update(entry.raw + b"\n")
            lasts = stretches[first]
            if entry.number in lasts and digest.hexdigest() in lasts[entry.number]:
                for held, known in waiting:
                    known[0] |= held.number >= first
            if entry.number >= max(lasts):
                del running[first]
        while waiting and (not running or min(running) > waiting[0][0].number):
            held, known = waiting.popleft()
            yield held, known[0]
    for held, known in waiting:
        yield held, known[0]
