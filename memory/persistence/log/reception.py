"""Reception of memories from other stores, and the mapping of their ids, as the log records it."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import StaleSyncError, UndoError
from memory.merging.motion import Motion
from memory.merging.robots import SEEN_BY, share_of
from memory.merging.tracks import TRACKS
from memory.persistence.engine import engine_of
from memory.persistence.ids import concat
from memory.persistence.log import operations
from memory.persistence.log.alignment import in_frame, read_frames
from memory.persistence.log.batches import Batch, PartialTransfer, Point, ids_of, runs_of
from memory.persistence.log.journal import Counters, read_entries, read_identity
from memory.persistence.log.operations import OperationResult
from memory.persistence.rows import SCALARS, Image, prepare
from memory.persistence.sql import Connection
from memory.types import Memory

#: Operation name in the log.
OPERATION = "sync"
#: Smallest clock difference that is reported; below it may be network delay.
LATE_NS = 60 * 10**9
_NONE = np.zeros(0, np.int64)
_STATE = SCALARS.index("state")


class Receipt(NamedTuple):
    """Effect of a batch.

    Attributes:
        added, changed, removed: numbers of memories.
        kept: refused changes, because the memory was forgotten, erased or finally merged here.
        generation: the operation; ``None`` if the batch had arrived before.
        future: memories whose time is more than a minute after their arrival.
        ahead_ns: nanoseconds that the sender's clock is ahead of this one's, less the transfer time.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    kept: int = 0
    generation: int | None = None
    future: int = 0
    ahead_ns: int = 0


@dataclass
class PeerState:
    """State of one other store as known here; follows the log.

    Attributes:
        store: its random name.
        read: operation of this log up to which this holds.
        identity: identity of this log up to there.
        points: points of its history, newest last.
        partial: unfinished transfers since.
        frames: motions from robots' maps into this store's.
    """

    store: str
    read: int = 0
    identity: str | None = None
    robot: str | None = None
    points: list[Point] = field(default_factory=list)
    partial: list[PartialTransfer] = field(default_factory=list)
    frames: dict[tuple[str, str], Motion] = field(default_factory=dict)
    _there: list[NDArray[np.int64]] = field(default_factory=list)
    _here: list[NDArray[np.int64]] = field(default_factory=list)
    _until: list[NDArray[np.int64]] = field(default_factory=list)
    _lost: set[int] = field(default_factory=set)

    def follow(self, connection: Connection) -> None:
        """Read the new log entries, or all if the history was replaced."""
        if self.read and read_identity(connection, self.read) != self.identity:
            self.read, self.robot = 0, None
            self.frames = {}
            for held in (self.points, self.partial, self._there, self._here, self._until, self._lost):
                held.clear()
        latest = connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()[0]
        if latest == self.read:
            return
        for entry in read_entries(connection, after=self.read, operation=OPERATION):
            if entry.detail.get("store") == self.store:
                self._note(entry.detail, entry.added)
        sql = "SELECT 1 FROM log WHERE generation > ? AND operation IN ('align', 'undo') LIMIT 1"
        if connection.execute(sql, (self.read,)).fetchone() is not None:
            self.frames = read_frames(connection)
        self.read, self.identity = int(latest), read_identity(connection, latest)

    def local_ids(self, ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the (n,) int64 local ids of remote ids; 0 for those that never arrived."""
        wanted = np.asarray(ids, dtype=np.int64)
        there, here = self._sorted_ids()
        if not len(there):
            return np.zeros(len(wanted), np.int64)
        # Use the last of equal ids, because a memory that arrived again after its removal has a new local id.
        rows = np.searchsorted(there, wanted, side="right") - 1
        return np.where((rows >= 0) & (there[rows] == wanted), here[rows], 0)

    def ids(self) -> NDArray[np.int64]:
        """Return the (n,) int64 rising local ids of everything that arrived, existing or gone."""
        return np.unique(self._sorted_ids()[1])

    def remote_ids(self, ids: Collection[int]) -> dict[int, int]:
        """Return the remote ids of those local ids that arrived from there."""
        there, here = self._sorted_ids()
        rows = np.isin(here, np.array(sorted(ids), dtype=np.int64))
        return dict(zip(here[rows].tolist(), there[rows].tolist(), strict=True))

    def has_all(self, batch: Batch) -> bool:
        """Return True if this batch completes its transfer."""
        if batch.whole is None:
            return False
        whole = ids_of(batch.whole)
        here = [memory.id or 0 for memory in batch.memories]
        # After a fork, earlier partial transfers do not count.
        partial = [] if batch.forked else [(part.until, ids_of(part.ids)) for part in self.partial]
        now = [ids for until, ids in partial if until == batch.until]
        came = concat([np.array(here, np.int64), np.array(batch.gone, np.int64), *now])
        expected = np.concatenate([whole, ids_of(batch.known)])
        every = concat([ids for _, ids in partial])
        return bool(np.isin(whole, came).all() and np.isin(every, expected).all())

    def lost(self, batch: Batch) -> set[int]:
        """Return the local ids of an abandoned history, whose remote ids may now mean other memories."""
        return self._lost | (self._ids_after(batch.since.generation) if batch.forked else set())

    def _note(self, detail: Mapping[str, Any], added: range) -> None:
        self.robot = str(detail["robot"])
        if detail["forked"]:
            # Memories that arrived after the fork belong to an abandoned history.
            while self.points and self.points[-1].generation > detail["since"]:
                self.points.pop()
            self.partial.clear()
            self._lost |= self._ids_after(detail["since"])
        new, until = ids_of(detail["new"]), Point(*detail["until"])
        if len(new):
            self._there.append(new)
            self._here.append(np.arange(added.start, added.stop, dtype=np.int64))
            self._until.append(np.full(len(new), until.generation, dtype=np.int64))
        if detail["last"]:
            self.points.append(until)
            self.partial.clear()
        else:
            runs = [*detail["new"], *detail["changed"], *detail["gone"]]
            self.partial.append(PartialTransfer(until, tuple((first, last) for first, last in runs)))

    def _ids_after(self, generation: int) -> set[int]:
        """Return the local ids that arrived with a later state of the store."""
        _, here = self._sorted_ids()
        return set(here[self._until[0] > generation].tolist()) if len(here) else set()

    def _sorted_ids(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not self._there:
            return _NONE, _NONE
        if len(self._there) > 1:
            there, here = np.concatenate(self._there), np.concatenate(self._here)
            order = np.lexsort((here, there))
            self._until = [np.concatenate(self._until)[order]]
            self._there, self._here = [there[order]], [here[order]]
        return self._there[0], self._here[0]


def shared_ids(connection: Connection) -> NDArray[np.int64]:
    """Return the (n,) int64 rising ids of what others saw and this robot pulled, existing or gone."""
    entries = read_entries(connection, operation=OPERATION)
    return concat([np.array(entry.added, dtype=np.int64) for entry in entries if entry.detail["shared"]])


def receive(
    connection: Connection, counters: Counters, known: PeerState, batch: Batch, *, may_undo: bool = True
) -> Receipt:
    """Store a batch as one operation; nothing if it had arrived before.

    If a memory was merged here, the merge is undone first; the next consolidation repeats it with the new
    values. Memories that were forgotten, erased or undone here do not come back.

    Args:
        known: state of the sending store, updated.
        may_undo: True if merges may be undone; on a server, only the store's owner may.

    Raises:
        StaleSyncError: the receiver is at another point than the sender knew.
        DimensionError, ValueError: a memory does not fit this store; nothing was kept.
    """
    known.follow(connection)
    if not _fits(known, batch):
        return Receipt()
    sent = _in_order(batch.memories)
    theirs = [memory.id or 0 for memory in sent]
    here_of_sent, here_of_gone = known.local_ids(theirs).tolist(), known.local_ids(batch.gone).tolist()
    fates = _Fates(connection, counters, may_undo, {*here_of_sent, *here_of_gone})
    lost = known.lost(batch)

    def here_of(memory: Memory) -> Memory:
        return in_frame(_attribute_to(memory, batch.robot), known.frames)

    add: list[Memory] = []
    update: list[Memory] = []
    remove: list[int] = []
    kept = 0
    for memory, here in zip(sent, here_of_sent, strict=True):
        another = not here or (here in lost and not fates.is_same(here, here_of(memory)))
        fate = "gone there" if another else fates.fate(here)
        if fate == "there":
            update.append(replace(memory, id=here))
        elif fate == "gone there":
            add.append(memory)
        else:
            kept += 1
    for here in here_of_gone:
        fate = "gone there" if not here or here in lost else fates.fate(here)
        if fate == "there":
            remove.append(here)
        kept += fate == "kept"
    # Read once, with what the log is to keep; no merge is undone after this.
    changing = [memory.id or 0 for memory in update]
    images = engine_of(connection).read_images(connection, [*changing, *remove])
    before = {image.id: image for image in images}
    slots = counters.slots

    new = prepare([here_of(replace(memory, id=None)) for memory in add], slots)
    stated = fates.with_local_states([here_of(memory) for memory in update], before)
    detail = {
        "store": batch.store,
        "robot": batch.robot,
        "since": batch.since.generation,
        "until": list(batch.until),
        "last": known.has_all(batch),
        "forked": batch.forked,
        "shared": batch.shared,
        "sent_ns": batch.sent_ns,
        "new": runs_of([memory.id or 0 for memory in add]),
        "changed": runs_of(sorted(set(theirs) - {memory.id for memory in add})),
        "gone": runs_of(batch.gone),
    }
    done: OperationResult = operations.apply(
        connection, counters, operation=OPERATION, detail=detail, add=new, remove=remove,
        update={memory.id or 0: prepare([memory], slots) for memory in stated}, before=before,
    )  # fmt: skip
    now_ns = time.time_ns()
    return Receipt(
        len(add),
        len(update),
        len(remove),
        kept,
        done.generation,
        future=sum(memory.last_sight_ns > now_ns + LATE_NS for memory in (*add, *update)),
        ahead_ns=batch.sent_ns - now_ns,
    )


def _fits(known: PeerState, batch: Batch) -> bool:
    """Return True if the batch continues from this store's point, False if it had arrived before."""
    points = [Point(0, batch.since.identity), *known.points]
    newest = points[-1]
    if batch.forked and batch.since in points:
        return True
    overtaken = any(part.until.generation > batch.until.generation for part in known.partial)
    if batch.since == newest and not overtaken:
        return True
    if batch.since != newest and batch.until in known.points:
        return False
    raise StaleSyncError(
        f"the receiver has {batch.robot} up to operation {newest.generation}, but the batch contains"
        f" operations {batch.since.generation} to {batch.until.generation}. Ask for its position again"
    )


def _in_order(memories: Sequence[Memory]) -> list[Memory]:
    """Sort memories by id, which determines the new ids.

    Raises:
        ValueError: an id is missing or listed twice.
    """
    ids = [memory.id for memory in memories if memory.id is not None]
    if len(set(ids)) < len(memories):
        raise ValueError("each memory of a batch needs its own id")
    return sorted(memories, key=lambda memory: memory.id or 0)


class _Fates:
    """Fate of received memories in this store.

    Args:
        may_undo: see :func:`receive`.
        ids: local ids to look up.
    """

    def __init__(
        self, connection: Connection, counters: Counters, may_undo: bool, ids: Collection[int]
    ) -> None:
        self._connection, self._counters, self._may_undo = connection, counters, may_undo
        # All ids are looked up at once; after an undo, individually.
        self._ids, self._undone = frozenset(ids), False
        condition = engine_of(connection).one_of("id", sorted(ids))
        rows = connection.execute(f"SELECT id FROM memory WHERE {condition.sql}", condition.parameters)
        self._there = {id for (id,) in rows.fetchall()}

    def fate(self, id: int) -> str:
        """Return the fate of a memory, after undoing merges if needed.

        It is ``there``, ``gone there`` (its own store had removed it) or ``kept`` (somebody here decided
        otherwise).
        """
        if self._is_there(id):
            return "there"
        row = self._connection.execute(
            "SELECT generation FROM log_row WHERE id = ? AND what = 'removed' ORDER BY row DESC LIMIT 1",
            (id,),
        ).fetchone()
        if row is None:
            return "kept"
        (entry,) = read_entries(self._connection, after=row[0] - 1, limit=1)
        if entry.operation == OPERATION:
            return "gone there"
        if entry.operation != "merge" or not self._may_undo:
            return "kept"
        if any(self.fate(result) != "there" for result in entry.added):
            return "kept"
        try:
            operations.undo(self._connection, self._counters, entry.generation)
        except UndoError:
            return "kept"
        self._undone = True
        return "there"

    def is_same(self, id: int, memory: Memory) -> bool:
        """Return True if the local memory is of the same observation."""
        row = self._connection.execute("SELECT time_ns, label FROM memory WHERE id = ?", (id,)).fetchone()
        return row is not None and tuple(row) == (memory.time_ns, memory.label)

    def with_local_states(self, memories: Sequence[Memory], before: Mapping[int, Image]) -> list[Memory]:
        """Return the memories with the states set here, unless they were seen since."""
        found = []
        for memory in memories:
            known = before[memory.id or 0]
            state = known.scalars[_STATE]
            keeps = (
                memory.state != state
                and state == self._marked_state(known.id)
                and memory.last_sight_ns <= known.memory().last_sight_ns
            )
            found.append(replace(memory, state=state) if keeps else memory)
        return found

    def _marked_state(self, id: int) -> str | None:
        """Return the state that somebody here last gave a memory."""
        row = self._connection.execute(
            "SELECT l.detail FROM log_row AS r JOIN log AS l USING (generation) WHERE r.id = ?"
            " AND r.what = 'changed' AND l.operation = 'mark' ORDER BY r.row DESC LIMIT 1",
            (id,),
        ).fetchone()
        return None if row is None else str(json.loads(row[0])["state"])

    def _is_there(self, id: int) -> bool:
        if not self._undone and id in self._ids:
            return id in self._there
        return self._connection.execute("SELECT 1 FROM memory WHERE id = ?", (id,)).fetchone() is not None


def _attribute_to(memory: Memory, robot: str) -> Memory:
    """Record the robot that saw a memory, unless it already names robots."""
    if SEEN_BY in memory.payload:
        return memory
    payload = {**memory.payload, SEEN_BY: {robot: list(share_of(memory))}}
    tracks = memory.payload.get(TRACKS)
    if isinstance(tracks, Mapping):
        # Two robots may use the same recording names.
        payload[TRACKS] = {f"{robot}:{name}": span for name, span in tracks.items()}
    provenance = f"{robot}: {memory.provenance}" if memory.provenance else robot
    return replace(memory, payload=payload, provenance=provenance)
