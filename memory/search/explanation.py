"""Explanations why a memory was kept, merged or forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from memory.merging.robots import seen_by, trust_of
from memory.persistence.log.journal import LogEntry
from memory.persistence.log.observations import ObservationCount
from memory.types import Explanation, Memory
from memory.wording.words import listed, moment, plural


def explain_memory(
    id: int,
    history: list[LogEntry],
    memory: Memory | None,
    observed: ObservationCount | None = None,
    trust: Mapping[str, float] = MappingProxyType({}),
) -> Explanation:
    """Explain what happened to a memory.

    Args:
        id: id of the memory.
        history: its log entries, at least one.
        memory: the memory, or ``None`` if it no longer exists.
        observed: later observations that were counted on it.
        trust: trust by robot, from 0 to 1; missing robots have 1.
    """
    events = [(entry.time_ns, entry.operation, _detail(id, entry)) for entry in history]
    merges = [entry for entry in history if entry.operation == "merge"]
    made_of = [entry.detail.get("sources", ()) for entry in merges if id in entry.added]
    sources = tuple(int(source) for source in made_of[-1]) if made_of else ()
    into = [entry.added[0] for entry in merges if id not in entry.added and entry.added]
    last = history[-1].operation
    if memory is None:
        status = "merged" if into and last == "merge" else "forgotten"
        return Explanation(
            id, status, [_sentence(*events[-1])], history=events, into=into[-1] if into else None,
            sources=sources,
        )  # fmt: skip
    parts = {"confidence": memory.confidence, "reward": memory.reward, "count": float(memory.count)}
    reasons = [f"stored on {moment(events[0][0])}"]
    if history[0].operation == "observe":
        reasons.append(events[0][2])
    if memory.importance is not None:
        parts["importance"] = memory.importance
        reasons.append(f"its importance was {memory.importance:.2f} when it was stored")
    if memory.speed_m_s is not None:
        parts["speed_m_s"] = memory.speed_m_s
        did = "it moved" if memory.moving else "it stood"
        reasons.append(f"{did} when it was last seen, at {memory.speed_m_s:.1f} m/s")
    if memory.marked:
        reasons.insert(0, "it is marked, so it is never forgotten automatically")
    if sources:
        reasons.append(f"it represents {memory.count} observations, merged from {len(sources)} memories")
    if observed is not None and observed.sights > 0:
        more = f"seen {plural(observed.sights, 'more time')} like this"
        reasons.append(f"{more}, last at {moment(observed.last_ns)}")
        parts["more_sights"] = float(observed.sights)
    doubted = [f"{robot} is trusted {trust[robot]:g}" for robot in sorted(seen_by(memory)) if robot in trust]
    if doubted:
        reasons.append(f"robots that saw it: {listed(doubted)}")
        parts["trust"] = trust_of(memory, trust)
    if memory.state != "present":
        marks = [_sentence(*event) for event in events if event[1] == "mark"]
        reasons.insert(0, marks[-1] if marks else f"it is believed to be {memory.state}")
    if last == "undo":
        reasons.insert(0, _sentence(*events[-1]))
    status = "undone" if last == "undo" else "kept"
    return Explanation(id, status, reasons, parts=parts, history=events, sources=sources)


def _detail(id: int, entry: LogEntry) -> str:
    """Return what an operation did to a memory."""
    if entry.undoes is not None:
        return f"operation {entry.undoes} was undone"
    detail = entry.readable_detail()
    why = str(detail.get("reason", ""))
    if isinstance(detail.get("kept"), list) and id in entry.added:
        why = str(detail["kept"][entry.added.index(id)])
    if isinstance(detail.get("reasons"), dict):
        why = str(detail["reasons"].get(str(id), why))
    if entry.operation == "merge" and id in entry.added:
        return f"merged from {', '.join(map(str, detail.get('sources', ())))}: {why}"
    if entry.operation == "merge" and id in detail.get("sources", ()):
        return f"merged into {entry.added[0] if entry.added else None}: {why}"
    if entry.operation == "mark":
        change = f"{detail['state']} since {moment(detail['at_ns'])}, {detail['was'].get(str(id))} before"
        return f"{change}: {why}" if why else change
    return why


def _sentence(time_ns: int, operation: str, detail: str) -> str:
    return f"{operation} on {moment(time_ns)}" + (f": {detail}" if detail else "")
