"""Merging, forgetting, object states, and trimming of the undo log."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.config import StoreConfig
from memory.errors import UnknownMemoryError
from memory.merging import MergeProposal, propose_merges
from memory.merging.robots import trust_of
from memory.merging.sizes import size_of
from memory.observe.observer import Observer
from memory.persistence.database import Database
from memory.persistence.deadline import check_deadline
from memory.persistence.ids import check_ids
from memory.persistence.log.observations import ObservationSummary
from memory.persistence.log.operations import TrimReport
from memory.persistence.rows import Columns
from memory.query import Filter
from memory.search.retriever import Retriever
from memory.types import AWAY, Memory, State, check_integer
from memory.upkeep.forgetting import Records, select_to_forget
from memory.wording.reasons import Reason
from memory.wording.words import moment

Progress = Callable[[str, int, int], None]
#: Most passes per map; a merged memory may match others.
_PASSES = 4


class Consolidated(NamedTuple):
    """Result of consolidation.

    Attributes:
        merged: (result, sources) ids of each merge.
        forgotten: reason by forgotten id.
        generations: operations, for :meth:`MemoryStore.undo`.
        trimmed: old operations that can no longer be undone.
        failed: reason by ids of a merge that failed; these memories stay unchanged.
    """

    merged: list[tuple[int, tuple[int, ...]]]
    forgotten: dict[int, str]
    generations: list[int]
    trimmed: TrimReport = TrimReport(0, 0, 0)
    failed: Mapping[tuple[int, ...], str] = MappingProxyType({})


class Care:
    """Merge, forget, mark and trim.

    Args:
        retriever: its caches are updated.
        observer: its reservoir is updated.
        indexes: folder of the caches on the disk.
    """

    def __init__(
        self, database: Database, retriever: Retriever, observer: Observer, config: StoreConfig, indexes: Path
    ) -> None:
        self._database = database
        self._retriever = retriever
        self._observer = observer
        self._config = config
        self._indexes = indexes
        # Operations after this one belong to the running session.
        self._start = database.generation

    def forget(self, ids: Iterable[int], *, secure: bool, reason: str) -> int:
        """See :meth:`memory.store.MemoryStore.forget`."""
        gone, detail = check_ids(ids), {"reason": reason}
        if not secure:
            return self._database.remove(gone, detail=detail)
        self._redact_merged(gone)
        with self._observer.lock:
            # Clear the caches before the removal, so that a crash leaves no copy; and after it, in case a
            # reader filled them meanwhile.
            self._clear_caches(gone)
            try:
                return self._database.remove(gone, secure=True, detail=detail)
            finally:
                self._clear_caches(gone)

    def mark(self, ids: Iterable[int], state: State, *, at_ns: int | None, why: str, newest_ns: int) -> int:
        """See :meth:`memory.store.MemoryStore.mark`."""
        known = check_ids(ids)
        if not known:
            return self._database.generation
        with self._observer.lock:
            self._database.flush()
            memories = self._database.get(known, vectors=False)
            last = {memory.id: last_seen_ns(memory) for memory in memories}
            if at_ns is None:
                state_ns = max([newest_ns, *last.values()])
            else:
                state_ns = check_integer("at_ns", at_ns)
                later = [id for id in known if last[id] > state_ns]
                if later and state in AWAY:
                    raise ValueError(
                        f"memory {later[0]} was seen on {moment(last[later[0]])}, after"
                        f" {moment(state_ns)}, so it was not {state} then. Give a later time"
                    )
            return self._database.mark(known, state, detail={"reason": why, "at_ns": int(state_ns)})

    def consolidate(
        self, now_ns: int, write_accesses: Callable[[], None], progress: Progress | None
    ) -> Consolidated:
        """See :meth:`memory.store.MemoryStore.consolidate`."""
        merged: list[tuple[int, tuple[int, ...]]] = []
        generations: list[int] = []
        failed: dict[tuple[int, ...], str] = {}
        self._database.flush()
        # Observations of other robots stay separate from this robot's own memories, which are sent as its
        # own.
        apart = self._database.shared_ids()
        trust = self._database.trusts()
        maps = self._database.maps()
        for place, map_id in enumerate(maps):
            if progress is not None:
                progress(f"merging map {map_id}", place, len(maps))
            again: set[tuple[str, str]] | None = None
            for _ in range(_PASSES):
                done = self._merge_map(map_id, apart, trust, again, failed)
                merged += [(result, proposal.ids) for result, _, proposal in done]
                generations += [generation for _, generation, _ in done]
                # A merged memory may now be known to be in one place with others.
                solid = [proposal.result for _, _, proposal in done if size_of(proposal.result) is not None]
                again = {(memory.kind, memory.label) for memory in solid}
                if not again:
                    break
        write_accesses()
        forgotten = self._forget_over_capacity(now_ns)
        if forgotten:
            reasons = {str(id): reason.to_json() for id, reason in forgotten.items()}
            generations.append(self._database.remove(forgotten, detail={"reasons": reasons}))
        trimmed = TrimReport(0, 0, 0)
        if self._config.undo_keep_s is not None:
            trimmed = self.trim(
                keep_ns=round(self._config.undo_keep_s * 1e9),
                keep_operations=self._config.undo_keep_operations,
            )
        self._database.tidy()
        reasons_by_id = {id: str(reason) for id, reason in forgotten.items()}
        return Consolidated(merged, reasons_by_id, generations, trimmed, failed)

    def _merge_map(
        self,
        map_id: str,
        apart: NDArray[np.int64],
        trust: Mapping[str, float],
        sorts: set[tuple[str, str]] | None,
        failed: dict[tuple[int, ...], str],
    ) -> list[tuple[int, int, MergeProposal]]:
        """Merge a map once, or some kinds and labels of it; return results, operations and proposals."""
        memories = [
            memory
            for memory in self._memories_of(map_id, apart)
            # Robots that nobody trusts add nothing to what others saw.
            if trust_of(memory, trust) > 0.0 and (sorts is None or (memory.kind, memory.label) in sorts)
        ]
        by_id = {memory.id: memory for memory in memories}
        gone_ns = self.gone_since(memories)
        done = []
        for proposal in propose_merges(
            memories, self._config.merging, gone_ns=gone_ns, failed=failed, trust=trust
        ):
            check_deadline()
            with self._observer.lock:
                if self._has_changed([by_id[id] for id in proposal.ids]):
                    continue  # Seen again, marked or forgotten meanwhile: leave it for another time.
                try:
                    result, generation = self._merge(proposal)
                except (ValueError, TypeError, ArithmeticError) as error:
                    failed[proposal.ids] = str(error)
                    continue
            done.append((result, generation, proposal))
        return done

    def trim(self, *, keep_ns: int | None, keep_operations: int | None) -> TrimReport:
        """See :meth:`memory.store.MemoryStore.trim`."""
        if keep_ns is None and keep_operations is None:
            raise ValueError("give keep_ns, keep_operations or both")
        for name, value in (("keep_ns", keep_ns), ("keep_operations", keep_operations)):
            if value is not None and check_integer(name, value) < 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        trimmed = self._database.trim_log(
            before_ns=None if keep_ns is None else time.time_ns() - keep_ns,
            keep_operations=keep_operations or 0,
            until=self._start,
        )
        if trimmed.operations:
            self._database.tidy()
        return trimmed

    def gone_since(self, memories: Sequence[Memory]) -> dict[int, int]:
        """Return when the memories that are gone or have moved were found to be so, by the robot's clock."""
        found: dict[int, int] = {}
        for memory in memories:
            if memory.state not in AWAY or memory.id is None:
                continue
            found[memory.id] = last_seen_ns(memory)
            for entry in reversed(self._database.history(memory.id)):
                if entry.operation == "mark" and entry.detail.get("state") == memory.state:
                    found[memory.id] = max(found[memory.id], int(entry.detail["at_ns"]))
                    break
                if entry.operation == "merge" and memory.id in entry.added and "gone_ns" in entry.detail:
                    found[memory.id] = max(found[memory.id], int(entry.detail["gone_ns"]))
                    break
        return found

    def _memories_of(self, map_id: str, apart: NDArray[np.int64]) -> list[Memory]:
        """Return the memories of a map that may be merged, oldest first."""
        kinds = sorted({*self._config.merging.kinds, "event"})
        ids = self._database.ids(Filter(map_id=map_id, kinds=kinds), order="oldest")
        return self._database.present(ids[~np.isin(ids, apart)].tolist())

    def _has_changed(self, memories: Sequence[Memory]) -> bool:
        """Return True if a memory changed meanwhile; a new pose alone does not count."""
        self._database.flush()
        try:
            now = self._database.get([memory.id or 0 for memory in memories], vectors=False)
        except UnknownMemoryError:
            return True
        return any(
            one.state != other.state or ObservationSummary.of(one) != ObservationSummary.of(other)
            for one, other in zip(memories, now, strict=True)
        )

    def _merge(self, proposal: MergeProposal) -> tuple[int, int]:
        """Merge the memories of a proposal; return the id of the result and the operation."""
        detail: dict[str, Any] = {"reason": proposal.why.to_json(), "sources": list(proposal.ids)}
        if proposal.gone_ns is not None:
            detail["gone_ns"] = proposal.gone_ns
        applied = self._database.apply(
            add=[dataclasses.replace(proposal.result, id=None)],
            remove=proposal.ids,
            operation="merge",
            detail=detail,
        )
        self._observer.merged(proposal.ids, applied.ids[0])
        return applied.ids[0], applied.generation

    def _redact_merged(self, ids: Sequence[int]) -> None:
        """Redact in the log the removed memories that these were merged from or into."""
        self._database.get(ids, vectors=False)  # Raises for unknown ids.
        family, new = set(ids), list(ids)
        while new:
            for entry in self._database.history(new.pop()):
                if entry.operation == "merge":
                    members = {*entry.added, *(int(id) for id in entry.detail.get("sources", ()))}
                    new += members - family
                    family |= members
        others = np.array(sorted(family - set(ids)), dtype=np.int64)
        self._database.redact(others[~self._retriever.there(others)])

    def _clear_caches(self, ids: Sequence[int]) -> None:
        """Remove copies of vectors, labels and places from the cache files."""
        self._retriever.indexes.drop(self._indexes)
        self._observer.leave_out(ids)

    def _forget_over_capacity(self, now_ns: int) -> dict[int, Reason]:
        """Choose the memories to forget; return the reason by id."""
        capacity, policy = self._config.capacity, self._config.forgetting
        if capacity is None and policy.least is None:
            return {}
        parts = []
        after = 0
        while len((columns := self._database.scan_columns(after)).ids):
            parts.append(columns)
            after = int(columns.ids[-1])
        if not parts:
            return {}
        records = Records(
            ids=np.concatenate([part.ids for part in parts]),
            last_used_ns=self._last_used_ns(parts),
            use_count=np.concatenate([part.access_counts for part in parts]),
            value=np.concatenate([np.nan_to_num(part.importance, nan=0.5) for part in parts]),
            marked=np.concatenate([part.marked for part in parts]),
            map_ids=[name for part in parts for name in part.map_ids],
        )
        return select_to_forget(records, policy, capacity, now_ns)

    def _last_used_ns(self, parts: Sequence[Columns]) -> NDArray[np.int64]:
        """Return when memories were last returned by a query or seen, whichever is later."""
        found = np.concatenate([np.maximum(part.accessed_ns, part.time_ns) for part in parts])
        visited = self._database.visited_after(-(2**63))
        ids = np.concatenate([part.ids for part in parts])
        rows = np.minimum(np.searchsorted(ids, visited.ids), len(ids) - 1)
        there = ids[rows] == visited.ids
        found[rows[there]] = np.maximum(found[rows[there]], visited.first_ns[there])
        return found


def last_seen_ns(memory: Memory) -> int:
    """Return when something was last seen, according to its memory."""
    return max(memory.time_ns, memory.last_sight_ns)
