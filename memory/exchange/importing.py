"""Import that can be interrupted and repeated.

Memories are stored in portions. The log entry of a portion is written together with its memories; it records
the line numbers and the SHA-256 of these lines. A later import skips lines with the same numbers and content,
whatever the file's name, unless the operation was undone. Appended and corrected lines are therefore
imported.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memory.errors import DataError
from memory.exchange.history import OPERATION, mark_known, read_history
from memory.exchange.sources import Entry, Source
from memory.persistence.database import Database
from memory.store import Kept, MemoryStore
from memory.types import Memory

#: Memories stored at a time.
PORTION = 1000
#: Seconds after which a stream's entries are stored, if more arrive.
WAIT_S = 1.0


@dataclass
class ImportReport:
    """Result of an import.

    Attributes:
        path: the file.
        memories: number of stored memories; with observation, only the kept ones.
        lines: number of lines read.
        known_lines: number of lines skipped because they were imported before.
        problems: errors of the lines that were skipped.
        operations: operation numbers for undo, in order.
        first_id, last_id: of the stored memories, or ``None``.
        observed: number of observed memories, or ``None`` if all are stored.
        displaced: number of older memories that made room.
        why_kept, why_not: number of observed memories kept or not kept, by reason.
    """

    path: Path
    memories: int = 0
    lines: int = 0
    known_lines: int = 0
    problems: list[str] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    first_id: int | None = None
    last_id: int | None = None
    observed: int | None = None
    displaced: int = 0
    why_kept: dict[str, int] = field(default_factory=dict)
    why_not: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the fields about observation only if there was one."""
        found = {**vars(self), "path": str(self.path)}
        if self.observed is None:
            for name in ("observed", "displaced", "why_kept", "why_not"):
                del found[name]
        return found

    def note(self, operation: int, ids: Sequence[int]) -> None:
        """Record an operation and the ids that it assigned."""
        self.operations.append(operation)
        if ids:
            self.first_id = ids[0] if self.first_id is None else self.first_id
            self.last_id = ids[-1]


def import_source(
    target: Database | MemoryStore,
    source: Source,
    *,
    again: bool = False,
    skip_bad: bool = False,
    portion: int = PORTION,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Store the memories of a source.

    Args:
        target: open for writing. A database stores everything; a store observes, and keeps what matters.
        source: file or stream; at most a portion and the longest stretch of an earlier import are in memory.
        again: also import lines that were imported before.
        skip_bad: skip invalid lines; the report lists them.
        portion: memories stored at a time.
        progress: called with the work done and the total.

    Raises:
        DataError: a line is invalid. The lines before it are stored, and a repeated import skips them.
    """
    before = read_history(target, source.sort)
    source.expected, source.ended = before.spaces, {} if again else before.ended
    report = ImportReport(source.path)
    if isinstance(target, Database):
        sink: _DatabaseSink | _StoreSink = _DatabaseSink(target, report, many=source.many)
    else:
        sink = _StoreSink(target, report)
    stretch = _Stretch(sink, source, report)
    dims = sink.dims()
    done, stored_s = 0, time.monotonic()
    try:
        for entry, known in mark_known(source.entries(), {} if again else before.stretches):
            done += source.weight(entry)
            if known:
                stretch.store()
                source.skip(entry)
                report.known_lines += 1
            else:
                try:
                    memories = source.parse(entry, dims)
                except DataError as error:
                    stretch.store()
                    if not skip_bad:
                        stored = " The lines before it are imported." if report.lines else ""
                        raise DataError(
                            f"{error}.{stored} Correct it and rerun, or skip bad lines with --skip-bad"
                        ) from error
                    report.problems.append(str(error))
                    continue
                stretch.append(entry, memories)
                waited = source.streams and time.monotonic() - stored_s > WAIT_S
                if waited or len(stretch.memories) >= portion:
                    stretch.store()
                    stored_s = time.monotonic()
            if progress is not None:
                progress(done, max(source.size, done))
    except DataError:
        # Reading the next line may have failed, so store what came before it.
        stretch.store()
        raise
    stretch.end()
    return report


class _DatabaseSink:
    """Sink that stores every memory."""

    def __init__(self, database: Database, report: ImportReport, *, many: bool) -> None:
        self._database, self._report, self._many = database, report, many

    def dims(self) -> dict[str, int]:
        return self._database.slots()

    def __call__(self, memories: list[Memory], detail: dict[str, Any]) -> None:
        if self._many:
            self._database.begin_many()
            self._many = False
        applied = self._database.apply(add=memories, operation=OPERATION, detail=detail)
        self._report.memories += len(applied.ids)
        self._report.note(applied.generation, applied.ids)


class _StoreSink:
    """Sink that observes, so that only what matters stays."""

    def __init__(self, store: MemoryStore, report: ImportReport) -> None:
        self._store, self._report = store, report
        self._causes: dict[int, str] = {}
        report.observed = 0

    def dims(self) -> dict[str, int]:
        return self._store.encoders()

    def __call__(self, memories: list[Memory], detail: dict[str, Any]) -> None:
        report = self._report
        detail["reason"] += "; observed, so only what matters is kept"
        done = self._store.observe_logged(memories, detail=detail)
        assert report.observed is not None
        report.observed += len(memories)
        new = {each.id: cause_of(each) for each in done.kept if each.id is not None}
        self._causes |= new
        _count(report.why_kept, new.values())
        _count(report.why_not, [cause_of(each) for each in done.kept if each.id is None])
        for id in done.displaced:
            cause = self._causes.pop(id, None)
            if cause is None:
                report.displaced += 1
            else:
                # Stored by an earlier portion of this file.
                _count(report.why_kept, [cause], -1)
                _count(report.why_not, [DISPLACED])
        report.memories = len(self._causes)
        if done.generation is not None:
            report.note(done.generation, list(new))


DISPLACED = "displaced by more important ones"
#: Text in a report for each sort of :class:`memory.wording.reasons.Reason`.
CAUSES = {
    "first vector": "the first with an embedding at their place",
    "first": "the first of their kind at their place",
    "unlike": "unlike everything unique at their place",
    "again": "events that came again at their place",
    "marked": "marked by the user",
    "track": "tracks with all observations of an object",
    "room": "among the best of their place and time",
    "more": "among the best of their place and time",
    "less": "less important than others of their place and time",
    "displaced": DISPLACED,
}


def cause_of(kept: Kept) -> str:
    """Return the category of the reason why an observation was kept or not."""
    return CAUSES.get(kept.why.sort, "other reasons")


def _count(counts: dict[str, int], causes: Iterable[str], change: int = 1) -> None:
    for cause in causes:
        counts[cause] = counts.get(cause, 0) + change
        if not counts[cause]:
            del counts[cause]


class _Stretch:
    """Consecutive lines that are stored together."""

    def __init__(self, sink: _DatabaseSink | _StoreSink, source: Source, report: ImportReport) -> None:
        self._sink, self._source, self._report = sink, source, report
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

    def end(self) -> None:
        """Store the last lines and the memories that the source held back."""
        remainder = self._source.end()
        self.memories += remainder.memories
        self.store(remainder.detail)

    def store(self, further: Mapping[str, Any] = MappingProxyType({})) -> None:
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
            if self._source.spaces:
                detail["spaces"] = dict(self._source.spaces)
            detail.update(further)
            self._sink(self.memories, detail)
        self._report.lines += self._lines
        self._clear()
