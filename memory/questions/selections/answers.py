"""Answers with the objects that meet conditions, and lists of answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from memory.questions.answers import Answer, between_words, quoted
from memory.questions.reading.parsed import Quantifier
from memory.types import AWAY, Memory
from memory.wording.words import STATE_WORDS, listed, name, plural, point


@dataclass(frozen=True)
class Selection(Answer):
    """The objects of a list that meet conditions.

    Attributes:
        what: object in words; empty for all.
        place: place of the list in words; empty for everywhere.
        between_ns: first and last nanosecond; ``None`` for all times.
        conditions: in words, with the values of bounds.
        quantifier: how many have to meet them; ``None`` for a list.
        holds: whether that many do; ``None`` if it is not known, or for a list.
        memories: objects that meet all conditions, the latest first, up to the limit.
        total: number of these objects.
        others: objects that do not meet them, up to the limit.
        compared: number of objects of the list.
        unclear: objects of which it is not known, for example because their size is not.
        values: measured values of ``memories`` and then ``others`` in words, if a condition is a bound.
        left: number of objects of the list that left, and so do not count.
        notes: what the words of the conditions mean.
    """

    question: Literal["select"] = field(default="select", init=False)
    what: str
    place: str
    between_ns: tuple[int, int] | None
    conditions: tuple[str, ...]
    quantifier: Quantifier | None
    holds: bool | None
    memories: tuple[Memory, ...]
    total: int
    others: tuple[Memory, ...]
    compared: int
    unclear: tuple[Memory, ...] = ()
    values: tuple[str, ...] = ()
    left: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        when = "" if self.between_ns is None else f" {between_words(self.between_ns)}"
        if not self.compared:
            return f"No memories{f' of {quoted(self.what)}' if self.what else ''}{self.place}{when}."
        of = f" of {self.what}" if self.what else ""
        domain = f"{plural(self.compared, 'memory', 'memories')}{of}{self.place}{when}"
        if not self.conditions:
            return f"{domain}: {self._listed(self.memories, self.total)}."
        seen = self.conditions[0].removeprefix("not ").startswith("seen")
        verb = ("was" if seen else "is") if self.total == 1 else ("were" if seen else "are")
        count = str(self.total) if self.total else "none"
        verdict = {True: "Yes: ", False: "No: ", None: ""}[self.holds]
        if self.quantifier is not None and self.holds is None:
            verdict = "Not known: "
        text = f"{verdict}{count} of {domain} {verb} {' and '.join(self.conditions)}"
        exceptions = self.quantifier in ("all", "both") and self.others
        if self.memories and not exceptions:
            text += f": {self._listed(self.memories, self.total)}"
        if exceptions:
            missing = self.compared - self.total - len(self.unclear)
            text += f". The {'exception is' if missing == 1 else 'exceptions are'} "
            text += self._listed(self.others, missing)
        text = f"{text[:1].upper()}{text[1:]}."
        if self.left:
            counted = "is" if self.left == 1 else "are"
            text += f" {plural(self.left, 'more memory', 'more memories')} left and {counted} not counted."
        if self.unclear:
            text += f" It is not known of {self._listed(self.unclear, len(self.unclear))}."
        return " ".join((text, *self.notes))

    def _listed(self, memories: tuple[Memory, ...], total: int) -> str:
        """Return memories with their places, values and states."""
        measured = (memory.id for memory in (*self.memories, *self.others))
        values = dict(zip(measured, self.values, strict=False))
        parts = []
        for memory in memories:
            value = f", {values[memory.id]}" if values.get(memory.id) else ""
            state = f", {STATE_WORDS[memory.state]} now" if memory.state in AWAY else ""
            parts.append(f"{name(memory)} at {point(memory.position)}{value}{state}")
        return listed(parts, total=total)


@dataclass(frozen=True)
class KindList(Answer):
    """The labels of a list of objects.

    Attributes:
        what: object in words; empty for all.
        place: place of the list in words; empty for everywhere.
        labels: each label with the number of its objects, the most frequent first.
    """

    question: Literal["kinds"] = field(default="kinds", init=False)
    what: str
    place: str
    labels: Mapping[str, int]

    def __str__(self) -> str:
        of = f" of {self.what}" if self.what else ""
        if not self.labels:
            return f"No memories{of}{self.place}."
        parts = [f"{count} {label or 'without a label'}" for label, count in self.labels.items()]
        kinds = listed(parts, most=len(parts))
        return f"{plural(len(parts), 'kind')}{of}{self.place}, by their labels: {kinds}."


@dataclass(frozen=True)
class AnswerList(Answer):
    """The answers to the parts of a question, in their order.

    Attributes:
        answers: one per part.
    """

    question: Literal["several"] = field(default="several", init=False)
    answers: tuple[Answer, ...]

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memories of all answers, without those of counts."""
        found: list[Memory] = []
        for answer in self.answers:
            memory, memories = getattr(answer, "memory", None), getattr(answer, "memories", ())
            found += [] if memory is None else [memory]
            found += [hit.memory for hit in getattr(answer, "hits", ())]
            found += [] if isinstance(memories, int) else memories
        return tuple(found)

    def __str__(self) -> str:
        return " ".join(map(str, self.answers))
