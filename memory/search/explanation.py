"""Why a memory was kept, merged or forgotten, in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from memory.merging.robots import seen_by, trust_of
from memory.persistence.log.journal import LogEntry
from memory.persistence.log.observations import ObservationCount
from memory.types import Explanation, Memory
from memory.wording.words import listed, moment, plural


def explained(
    id: int,
    history: list[LogEntry],
    memory: Memory | None,
    sighted: ObservationCount | None = None,
    trust: Mapping[str, float] = MappingProxyType({}),
) -> Explanation:
    """Sentences about what happened to a memory.

    Args:
        id: of the memory.
        history: what the log says about it, at least one entry.
        memory: as it is now, or ``None`` where it is gone.
        sighted: what was seen like it since it was stored, and not kept.
        trust: from 0 to 1 by robot; 1 for those that are not there.
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
    reasons = [f"it is stored since {moment(events[0][0])}"]
    if history[0].operation == "observe":
        reasons.append(events[0][2])
    if memory.importance is not None:
        parts["importance"] = memory.importance
        reasons.append(f"its importance was {memory.importance:.2f} when it came")
    if memory.marked:
        reasons.insert(0, "it is marked: it is never forgotten on its own")
    if sources:
        reasons.append(f"it stands for {memory.count} observations, merged of {len(sources)} memories")
    if sighted is not None and sighted.sights > 0:
        more = f"seen {plural(sighted.sights, 'more time')} like this"
        reasons.append(f"{more}, last at {moment(sighted.last_ns)}")
        parts["more_sights"] = float(sighted.sights)
    doubted = [f"{robot} is trusted {trust[robot]:g}" for robot in sorted(seen_by(memory)) if robot in trust]
    if doubted:
        reasons.append(f"of those who saw it {listed(doubted)}")
        parts["trust"] = trust_of(memory, trust)
    if memory.state != "present":
        marks = [_sentence(*event) for event in events if event[1] == "mark"]
        reasons.insert(0, marks[-1] if marks else f"it is believed to be {memory.state}")
    if last == "undo":
        reasons.insert(0, _sentence(*events[-1]))
    status = "undone" if last == "undo" else "kept"
    return Explanation(id, status, reasons, parts=parts, history=events, sources=sources)


def _detail(id: int, entry: LogEntry) -> str:
    """What an operation says about a memory."""
    if entry.undoes is not None:
        return f"operation {entry.undoes} was taken back"
    said = entry.readable_detail()
    why = str(said.get("reason", ""))
    if isinstance(said.get("kept"), list) and id in entry.added:
        why = str(said["kept"][entry.added.index(id)])
    if isinstance(said.get("reasons"), dict):
        why = str(said["reasons"].get(str(id), why))
    if entry.operation == "merge" and id in entry.added:
        return f"made of {', '.join(map(str, said.get('sources', ())))}: {why}"
    if entry.operation == "merge" and id in said.get("sources", ()):
        return f"merged into {entry.added[0] if entry.added else None}: {why}"
    if entry.operation == "mark":
        told = f"{said['state']} since {moment(said['at_ns'])}, {said['was'].get(str(id))} before"
        return f"{told}: {why}" if why else told
    return why


def _sentence(time_ns: int, operation: str, detail: str) -> str:
    return f"{operation} on {moment(time_ns)}" + (f": {detail}" if detail else "")
