"""Questions in plain words over known stores: share of right, refused and wrong answers.

    python -m benchmarks.questions.answers
    python -m benchmarks.questions.answers --show wrong

Stores (:mod:`benchmarks.questions.stores`): a flat over three weeks, an office over two, the town of ``recall
demo``, and three real drives. The file ``sets/NAME_STORE.txt`` has the questions of the set *NAME* about a
store. Each line is a question and the answers that are accepted, separated by spaces:

    at:KEY            the answer is about this memory (a key of the store, ``Label`` or ``Label@x,y``)
    set:KEY,KEY?      the answer lists exactly these; a question mark marks an optional one, ``*`` any summary
    12                this number, of present objects or of all
    yes, no           something is there, nothing is there; the comparison holds or not
    is:NAME, equal    the winner of a comparison, or that there is none
    m:8.0             a distance in metres
    gone, unknown     the state of the object
    none, refuse      nothing is remembered, or the question is refused
    at:KEY+12         the accepted answers to the parts of the question

An answer is *refused* if it is an error or says that nothing is remembered, else *wrong* unless accepted.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.lib.environment import data_root
from benchmarks.lib.options import asked, common_parser, parse
from benchmarks.lib.results import result, save, show, table
from benchmarks.questions.stores import all_stores, files_of
from memory import Filter, Memory, MemoryStore
from memory.questions import Questions
from memory.questions.answers import (
    Changed,
    HowMany,
    HowOften,
    SearchResult,
    StillThere,
    Summary,
    WhenLeft,
)
from memory.questions.changes import SeenInTime
from memory.questions.comparisons import Comparison, Distance, Related
from memory.questions.ranking import LENGTHS, Ordering
from memory.questions.replying import Reply, ReplyOptions, reply
from memory.questions.rooms import RoomList, SameRoom
from memory.questions.selections.answers import AnswerList, KindList, Selection
from memory.types import AWAY

#: Longest list of an answer, and distance of ``Label@x,y`` from a memory, in metres.
_MOST, _SAME_M = 50, 0.3


class Case(NamedTuple):
    """A question, and the answers that are accepted."""

    question: str
    accepted: tuple[str, ...]


class Judged(NamedTuple):
    """A question, its sentence or refusal, and the verdict: right, refused or wrong.

    ``answered`` is false if the question was refused or nothing was found.
    """

    case: Case
    sentence: str
    verdict: str
    answered: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "answers", quick="without the drives")
    parser.add_argument("--show", choices=("wrong", "refused", "right"), help="also print these answers")
    options = parse(parser, arguments)
    found: dict[str, list[Judged]] = {}
    for store_name, opened in all_stores().items():
        if store_name == "drives" and (options.quick or not data_root().is_dir()):
            print("skipped the drives, which need real data: set SPARSIGHT_DATA", file=sys.stderr)
            continue
        with opened() as (store, keys, now_ns):
            for name, path in files_of(store_name).items():
                found.setdefault(name, []).extend(judge_all(store, keys, now_ns, read_cases(path)))
    found = {name: found[name] for name in sorted(found, key=_order)}
    tuned = [each for name in _TUNED for each in found.get(name, [])]
    rows = [{"set": name, **_shares(judged)} for name, judged in found.items()]
    rows.insert(sum(name in _TUNED for name in found), {"set": "together", **_shares(tuned)})
    for each in [each for judged in found.values() for each in judged]:
        if each.verdict == options.show and not options.json:
            print(f"{each.case.question}\n    {each.sentence}")
    values = result("answers", torch.device("cpu"), asked(options, "show"), cases=rows)
    save(values, options)
    cells = [[str(row["set"]), *(str(row[name]) for name in _COUNTED)] for row in rows]
    show(values, [table("Questions", ["set", *_COUNTED], cells)], [], as_json=options.json)
    return 0


#: Sets that the grammar was written for, and the others by the time at which they were first asked.
_TUNED = ("home", "town", "drives")
_ASIDE = (
    "held-out", "fresh", "ranked", "later", "visitor", "papers", "speakers", "reader", "household",
    "engineers", "people", "neighbours", "friends", "office", "strangers", "site", "callers", "ward",
    "researchers", "threads", "reviewer", "second", "third",
)  # fmt: skip
_COUNTED = ("questions", "answered", "rightly_refused", "refused", "mistaken")


def _order(name: str) -> tuple[int, str]:
    """Return the place of a set in the table; unknown ones come last."""
    known = (*_TUNED, *_ASIDE)
    return known.index(name) if name in known else len(known), name


def _shares(judged: Sequence[Judged]) -> dict[str, int]:
    """Return how many were answered right, rightly refused, refused though the store knows, and wrong."""
    right = [each for each in judged if each.verdict == "right"]
    answered = sum(each.answered for each in right)
    counts = Counter(each.verdict for each in judged)
    return {
        "questions": len(judged),
        "answered": answered,
        "rightly_refused": len(right) - answered,
        "refused": counts["refused"],
        "mistaken": counts["wrong"],
    }


def read_cases(path: Path) -> list[Case]:
    """Return the cases of a file of questions."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    split = [line.split(" | ") for line in lines if line.strip()]
    return [Case(question.strip(), tuple(accepted.split())) for question, accepted in split]


def judge_all(store: MemoryStore, keys: dict[str, int], now_ns: int, cases: Sequence[Case]) -> list[Judged]:
    """Ask all questions and judge the answers."""
    questions = Questions(store)
    memories = {memory.id or 0: memory for memory in store.find(Filter(), vectors=False)}
    judged = []
    for case in cases:
        answer: Reply | None = None
        try:
            answer = reply(questions, questions.understand(case.question, now_ns), ReplyOptions(k=_MOST))
            sentence = answer.sentence
        except ValueError as error:
            sentence = str(error)
        answered = answer is not None and not _is_empty(answer.answer)
        verdict = _verdict(answer, case, _Names(keys, memories))
        judged.append(Judged(case, sentence, verdict, answered))
    return judged


class _Names:
    """Memories by the names of the files of questions."""

    def __init__(self, keys: dict[str, int], memories: dict[int, Memory]) -> None:
        self._keys, self.memories = keys, memories

    def ids(self, name: str) -> set[int]:
        """Return the ids of a key, a label, or a label at a point."""
        if name in self._keys:
            return {self._keys[name]}
        label, _, place = name.partition("@")
        found = {id for id, memory in self.memories.items() if memory.label == label}
        if place:
            at = tuple(map(float, place.split(",")))
            found = {id for id in found if math.dist(self.memories[id].place[:2], at) < _SAME_M}
        if not found:
            raise ValueError(f"no memory is called {name!r}: correct the file of questions")
        return found


def _verdict(answer: Reply | None, case: Case, names: _Names) -> str:
    found = None if answer is None else answer.answer
    if any(_accepts(word, found, names) for word in case.accepted):
        return "right"
    return "refused" if found is None or _is_empty(found) else "wrong"


def _accepts(word: str, found: Any, names: _Names) -> bool:
    """Return True if an accepted answer is the one that was given; ``None`` is a refusal."""
    if isinstance(found, AnswerList) and "+" in word:
        parts = word.split("+")
        return len(parts) == len(found.answers) and all(
            _accepts(part, answer, names) for part, answer in zip(parts, found.answers, strict=True)
        )
    nothing = found is None or _is_empty(found)
    if word in ("refuse", "none"):
        return nothing
    if found is None:
        return False
    if isinstance(found, Ordering) and word.startswith("m:"):
        measured = found.first[0].value if found.first and found.measure in LENGTHS else math.inf
        return found.measure != "size" and abs(measured - float(word[2:])) <= _SAME_M
    if (
        isinstance(found, Comparison)
        and "(memory " in (found.winner or "")
        and word.startswith(("at:", "is:"))
    ):
        return any(f"(memory {id})" in str(found.winner) for id in names.ids(word.partition(":")[2]))
    if isinstance(found, Comparison | Distance):
        return _accepts_number(word, found)
    if isinstance(found, RoomList):
        return _accepts_rooms(word, found)
    if isinstance(found, SameRoom):
        return word in ("yes", "no") and found.holds is (word == "yes")
    if isinstance(found, KindList):
        return word == str(len(found.labels))
    if isinstance(found, HowMany | Ordering) and found.holds is not None and word in ("yes", "no"):
        return found.holds is (word == "yes")
    if isinstance(found, Selection) and found.quantifier is not None and word in ("yes", "no"):
        return found.holds is (word == "yes")
    here = (
        not isinstance(found, HowMany)
        or found.between_ns is not None
        or found.past
        or found.by_state.get("present")
    )
    if word == "yes":
        return not nothing and bool(here) and not (isinstance(found, StillThere) and found.state in AWAY)
    if word == "no":
        return nothing or not here
    if word in ("gone", "unknown"):
        if not isinstance(found, StillThere | WhenLeft) or found.memory is None:
            return False
        state = found.state if isinstance(found, StillThere) else found.memory.state
        return state in AWAY or word == "unknown"
    if word.isdecimal():
        if isinstance(found, Related):
            return int(word) == len(found.memories)
        if isinstance(found, Selection):
            return int(word) == found.total
        if isinstance(found, HowOften):
            return int(word) == found.sightings
        if isinstance(found, Changed):
            return int(word) == len(_ids_of(found))
        if isinstance(found, SeenInTime):
            return int(word) == found.total
        counts = (found.by_state.get("present", 0), found.memories) if isinstance(found, HowMany) else ()
        return int(word) in counts
    if word == "set:*":
        return not nothing and (isinstance(found, Summary) or len(_ids_of(found)) > 1)
    kind, _, listed = word.partition(":")
    if kind == "set":
        wanted = re.split(r",(?=[A-Za-z])", listed)
        must = set().union(*(names.ids(name) for name in wanted if not name.endswith("?")))
        may = set().union(*(names.ids(name.rstrip("?")) for name in wanted))
        return not isinstance(found, StillThere) and must <= set(_ids_of(found)) <= may
    if kind == "at" and isinstance(found, HowOften):
        meant = {found.what.lower(), found.what.lower().partition(" (memory ")[0]}
        return any(names.memories[id].label.lower() in meant for id in names.ids(listed))
    ids = _ids_of(found)
    return kind == "at" and bool(ids) and ids[0] in names.ids(listed)


def _accepts_rooms(word: str, found: RoomList) -> bool:
    """Return True if the rooms of an answer, their number or its verdict are accepted."""
    kind, _, listed = word.partition(":")
    rooms = {room.lower().replace(" ", "_") for room in found.rooms}
    if kind in ("at", "is", "set"):
        names = listed.split(",")
        must = {name for name in names if not name.endswith("?")}
        return must <= rooms <= {name.rstrip("?") for name in names}
    return word == str(len(rooms)) or (word in ("yes", "no") and found.holds is (word == "yes"))


def _accepts_number(word: str, found: Comparison | Distance) -> bool:
    """Return True if a distance or the result of a comparison is accepted."""
    kind, _, value = word.partition(":")
    if isinstance(found, Distance):
        return (
            kind == "m" and found.distance_m is not None and abs(found.distance_m - float(value)) <= _SAME_M
        )
    if word == "equal":
        return found.winner is None
    if len(found.sides) == 1 and word.isdecimal():
        return abs((found.sides[0].value or 0.0) - int(word)) < 0.5
    if kind == "is" or (kind == "at" and found.measure == "area"):
        return found.winner is not None and value in found.winner.lower().replace(" ", "_")
    return word in ("yes", "no") and found.holds is (word == "yes")


def _is_empty(found: Any) -> bool:
    """Return True if an answer says that nothing is remembered."""
    if isinstance(found, HowMany | Summary):
        return found.memories == 0
    if isinstance(found, HowOften):
        return found.sightings == 0
    if isinstance(found, Distance):
        return found.distance_m is None
    if isinstance(found, Comparison):
        return any(side.value is None for side in found.sides)
    if isinstance(found, RoomList | SameRoom):
        return False
    if isinstance(found, KindList):
        return not found.labels
    if isinstance(found, AnswerList):
        return all(map(_is_empty, found.answers))
    if isinstance(found, Selection) and found.holds is not None:
        return False
    return not _ids_of(found)


def _ids_of(found: Any) -> list[int]:
    """Return the ids of the memories that an answer names, the first the most important."""
    if isinstance(found, Changed):
        return [memory.id or 0 for memory in (*found.new, *found.gone, *found.moved)]
    if isinstance(found, SearchResult) or hasattr(found, "hits"):
        return [hit.memory.id for hit in found.hits]
    if hasattr(found, "memories") and not isinstance(found.memories, int):
        return [memory.id for memory in found.memories]
    memory = getattr(found, "memory", None)
    return [] if memory is None else [memory.id]


if __name__ == "__main__":
    raise SystemExit(main())
