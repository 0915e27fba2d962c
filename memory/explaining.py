"""Why a memory was kept, merged or forgotten, in words; and what of that the log may keep."""

from __future__ import annotations

import time
from collections.abc import Sequence

from memory.merging import MergeProposal
from memory.persistence.journal import LogEntry
from memory.persistence.sights import Sighted
from memory.types import Explanation, Memory


def explained(
    id: int, history: list[LogEntry], memory: Memory | None, sighted: Sighted | None = None
) -> Explanation:
    """Sentences about what happened to a memory.

    Args:
        id: of the memory.
        history: what the log says about it, at least one entry.
        memory: as it is now, or ``None`` where it is gone.
        sighted: what was seen like it since it was stored, and not kept.
    """
    events = []
    into: int | None = None
    sources: tuple[int, ...] = ()
    for entry in history:
        detail = str(entry.detail.get("reason", ""))
        kept = entry.detail.get("kept")
        if isinstance(kept, list) and id in entry.added:
            detail = str(kept[entry.added.index(id)])
        if entry.undoes is not None:
            detail = f"operation {entry.undoes} was taken back"
        reasons = entry.detail.get("reasons")
        if isinstance(reasons, dict):
            detail = str(reasons.get(str(id), detail))
        if entry.operation == "merge":
            if id in entry.added:
                sources = tuple(int(source) for source in entry.detail.get("sources", ()))
                detail = f"made of {', '.join(map(str, sources))}: {detail}"
            elif id in entry.detail.get("sources", ()):
                into = entry.added[0] if len(entry.added) else None
                detail = f"merged into {into}: {detail}"
        if entry.operation == "mark":
            detail = _marked(id, entry)
        events.append((entry.time_ns, entry.operation, detail))
    if memory is None:
        last = history[-1]
        status = "merged" if into is not None and last.operation == "merge" else "forgotten"
        return Explanation(id, status, [_sentence(*events[-1])], history=events, into=into, sources=sources)
    parts = {"confidence": memory.confidence, "reward": memory.reward, "count": float(memory.count)}
    reasons_kept = [f"it is stored since {_moment(events[0][0])}"]
    if history[0].operation == "observe":
        reasons_kept.append(events[0][2])
    if memory.importance is not None:
        parts["importance"] = memory.importance
        reasons_kept.append(f"its importance was {memory.importance:.2f} when it came")
    if memory.marked:
        reasons_kept.insert(0, "it is marked: it is never forgotten on its own")
    if sources:
        reasons_kept.append(f"it stands for {memory.count} observations, merged of {len(sources)} memories")
    if sighted is not None and sighted.sights > 0:
        more = f"seen {sighted.sights} more time{'s' if sighted.sights != 1 else ''} like this"
        reasons_kept.append(f"{more}, last at {_moment(sighted.last_ns)}")
        parts["more_sights"] = float(sighted.sights)
    if memory.state != "present":
        marks = [_sentence(*event) for event in events if event[1] == "mark"]
        reasons_kept.insert(0, marks[-1] if marks else f"it is believed to be {memory.state}")
    undone = history[-1].operation == "undo"
    if undone:
        reasons_kept.insert(0, _sentence(*events[-1]))
    return Explanation(
        id, "undone" if undone else "kept", reasons_kept, parts=parts, history=events, sources=sources
    )


def kept_because(memory: Memory, reason: str, words: Sequence[str]) -> str:
    """For the log, which outlives the memory and therefore names nothing of it."""
    named = f"the first {memory.label or memory.kind} at"
    return "; ".join([reason.replace(named, "the first of its kind at"), *words])


def without_names(proposal: MergeProposal) -> str:
    """Why memories are merged, for the log."""
    result = proposal.result
    why = proposal.why.replace(f" and label {result.label!r}", "")
    return why.replace(f" in map {result.map_id!r}", "")


def _marked(id: int, entry: LogEntry) -> str:
    """What a marking says about a memory."""
    was, why = entry.detail["was"].get(str(id)), entry.detail.get("reason")
    told = f"{entry.detail['state']} since {_moment(entry.detail['at_ns'])}, {was} before"
    return f"{told}: {why}" if why else told


def _sentence(time_ns: int, operation: str, detail: str) -> str:
    return f"{operation} on {_moment(time_ns)}" + (f": {detail}" if detail else "")


def _moment(time_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_ns // 1_000_000_000)) + " UTC"
