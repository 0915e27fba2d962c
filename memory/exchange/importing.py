"""Import that can be interrupted and repeated.

Memories are stored in portions. The log entry of each, which is on the disk with the memories or not at
all, says which lines they came from and the SHA-256 of these lines. A later import passes over lines with
the same numbers and the same content, whatever the file is called, unless the operation was undone. So what
a file has grown by is imported, and so is a line that was corrected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory.exchange.errors import DataError
from memory.exchange.sources import Entry, Source
from memory.persistence.sqlite import Database
from memory.types import Memory

OPERATION = "import"
#: Memories that are stored at a time.
PORTION = 1000
#: Operations of the log that are read at a time.
_LOG_PORTION = 5000
#: First line of a stretch -> its last lines -> digests.
Stretches = dict[int, dict[int, set[str]]]


@dataclass
class ImportReport:
    """What an import did.

    Attributes:
        path: of the file.
        memories: that were stored.
        lines: that they came from.
        known_lines: that were imported before and passed over.
        problems: of lines that were left out.
        operations: numbers for undoing, in order.
        first_id, last_id: of the memories, or ``None``.
    """

    path: Path
    memories: int = 0
    lines: int = 0
    known_lines: int = 0
    problems: list[str] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    first_id: int | None = None
    last_id: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "path": str(self.path)}


def import_source(
    database: Database,
    source: Source,
    *,
    again: bool = False,
    skip_bad: bool = False,
    portion: int = PORTION,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Store what a file holds.

    Args:
        database: open for writing.
        source: the file.
        again: also lines that were imported before.
        skip_bad: leave lines out that cannot be used; the report names them.
        portion: memories that are stored at a time.
        progress: called with how much is done and of how much.

    Raises:
        DataError: a line cannot be used; those before it are stored, and passed over when the import is
            repeated. Names file and line.
    """
    known = [] if again else _known_stretches(source, _logged_stretches(database, source.sort))
    report = ImportReport(source.path)
    stretch = _Stretch(database, source, report)
    dims = database.slots()
    done = 0
    for entry in source.entries():
        while known and known[0][1] < entry.number:
            known.pop(0)
        done += source.weight(entry)
        if known and known[0][0] <= entry.number:
            stretch.store()
            report.known_lines += 1
        else:
            try:
                memories = source.parse(entry, dims)
            except DataError as error:
                stretch.store()
                if not skip_bad:
                    raise
                report.problems.append(str(error))
                continue
            stretch.append(entry, memories)
            if len(stretch.memories) >= portion:
                stretch.store()
        if progress is not None:
            progress(done, max(source.size, done))
    stretch.store()
    return report


class _Stretch:
    """Lines in a row that are stored together."""

    def __init__(self, database: Database, source: Source, report: ImportReport) -> None:
        self._database, self._source, self._report = database, source, report
        self._clear()

    def _clear(self) -> None:
        self.memories: list[Memory] = []
        self._first = self._last = self._lines = 0
        self._digest = hashlib.sha256()

    def append(self, entry: Entry, memories: list[Memory]) -> None:
        self._first = self._first or entry.number
        self._last = entry.number
        self._lines += 1
        self._digest.update(entry.raw + b"\n")
        self.memories += memories

    def store(self) -> None:
        if self.memories:
            name = self._source.path.name
            detail = {
                "reason": f"imported from {name}, lines {self._first} to {self._last}",
                "file": name,
                "sort": self._source.sort,
                "first": self._first,
                "last": self._last,
                "sha256": self._digest.hexdigest(),
            }
            applied = self._database.apply(add=self.memories, operation=OPERATION, detail=detail)
            report = self._report
            report.memories += len(applied.ids)
            report.operations.append(applied.generation)
            report.first_id = applied.ids[0] if report.first_id is None else report.first_id
            report.last_id = applied.ids[-1]
        self._report.lines += self._lines
        self._clear()


def _logged_stretches(database: Database, sort: str) -> Stretches:
    """What was imported before and not undone."""
    imports: dict[int, dict[str, Any]] = {}
    undos: list[tuple[int, int]] = []
    after = 0
    while entries := database.log(after, limit=_LOG_PORTION):
        after = entries[-1].generation
        for entry in entries:
            if entry.undoes is not None:
                undos.append((entry.generation, entry.undoes))
            elif entry.operation == OPERATION and entry.detail.get("sort") == sort:
                imports[entry.generation] = entry.detail
    undone: set[int] = set()
    for generation, target in reversed(undos):
        # An undo that was undone itself, later, counts for nothing.
        if generation not in undone:
            undone.add(target)
    found: Stretches = {}
    for generation, detail in imports.items():
        if generation not in undone:
            lasts = found.setdefault(int(detail["first"]), {})
            lasts.setdefault(int(detail["last"]), set()).add(str(detail["sha256"]))
    return found


def _known_stretches(source: Source, logged: Stretches) -> list[tuple[int, int]]:
    """First and last lines of the stretches of a file that are among the logged ones, rising."""
    return sorted(_matching(source, logged)) if logged else []


def _matching(source: Source, logged: Stretches) -> Iterator[tuple[int, int]]:
    still_to_come = max(max(lasts) for lasts in logged.values())
    running: dict[int, Any] = {}
    for entry in source.entries(content=False):
        if entry.number > still_to_come:
            return
        if entry.number in logged:
            running[entry.number] = hashlib.sha256()
        for first, digest in list(running.items()):
            digest.update(entry.raw + b"\n")
            lasts = logged[first]
            if entry.number in lasts and digest.hexdigest() in lasts[entry.number]:
                yield first, entry.number
            if entry.number >= max(lasts):
                del running[first]
