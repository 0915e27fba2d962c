"""Text search of the store on LoCoMo: recall, and the gain of each part of the search.

    python -m benchmarks.memory.sentences --conversations FOLDER

FOLDER has turns.jsonl and queries.jsonl of LoCoMo (Maharana et al., ACL 2024). Each conversation is a store;
a turn is a memory, one second after the previous turn. Each question asks its conversation for ten turns.
Reported: the share of answering turns among the first ten, with 95 % intervals, and the share of answering
sessions among the first five and ten sessions that the hits name.

One row is cross-validated: for each conversation, the constants are those of a grid that serve the other
conversations best. Other rows add the turns in random order, give them the times of their sessions only,
or put all conversations into one store. BM25 is implemented here as published (Robertson and Zaragoza 2009),
and changed step by step into what the store does. Vectors are those of :class:`memory.encode.TextEncoder`
(extra 'text'; left out without). Times are of calls of ``store.query``, on these memories and on as many as
``--memories``, whose captions are halves of turns put together.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import memory.search.relevance
import memory.wording.cues
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.scenes import default_data
from benchmarks.publish.screen import tables
from memory import Memory, MemoryStore, Query
from memory.encode import TextEncoder
from memory.wording import fold, stem
from memory.wording.sentences import FUNCTION_WORDS

#: Memories that are found, those whose sessions are ranked, and draws of questions for an interval.
K, LONGER, DRAWS = 10, 50, 2000
#: Constant of reciprocal rank fusion (Cormack, Clarke and Buettcher 2009), and the results it takes from each
#: side.
RRF, DEEP = 60, 256
_WORD = re.compile(r"[^\W_]+")

Words = Callable[[str], list[str]]
#: Gives for the place of a question the turns that are found, at most ``LONGER``.
Finds = Callable[[int], list[str]]
#: Values of constants of the search, by name.
Constants = Mapping[str, Any]
_MODULES = (memory.search.relevance, memory.wording.cues)
_NO_CUES: Constants = {"SPEAKER": 0.0, "TIME": 0.0, "QUESTION": 0.0}
_ALONE: Constants = {"BESIDE": (0.0,), "IN_SESSION": 0.0, **_NO_CUES}
#: Constants among which cross-validation chooses.
_BESIDES = ((0.8, 0.6, 0.4), (0.7, 0.5, 0.3), (0.7, 0.5, 0.4, 0.35), (0.6, 0.4, 0.3))
_GRID: tuple[Constants, ...] = tuple(
    {"BESIDE": beside, "IN_SESSION": session, "SPEAKER": 2.0 * cues, "TIME": 2.0 * cues, "QUESTION": cues / 2}
    for beside, session, cues in product(_BESIDES, (0.2, 0.25, 0.3), (0.0, 0.5, 1.0, 1.5))
)


class Talk(NamedTuple):
    """Turns of conversations, and questions about them.

    Attributes:
        turns: with id, content and created_at.
        questions: with id, category, query and relevant.
    """

    turns: list[dict[str, Any]]
    questions: list[dict[str, Any]]

    def of(self, name: str) -> Talk:
        """A conversation, and the questions about it."""
        return Talk(
            [turn for turn in self.turns if turn["id"].split(":")[0] == name],
            [question for question in self.questions if question["id"].split("_")[0] == name],
        )

    @property
    def names(self) -> list[str]:
        """Of the conversations."""
        return list(dict.fromkeys(turn["id"].split(":")[0] for turn in self.turns))

    @property
    def texts(self) -> list[str]:
        """Of the questions."""
        return [question["query"] for question in self.questions]


class Vectors(NamedTuple):
    """Vectors of turns and questions, and how long a question takes.

    Attributes:
        turns, questions: (n, dim) float32.
        times: of a question at a time.
    """

    turns: NDArray[np.float32]
    questions: NDArray[np.float32]
    times: dict[str, float]


class Bm25:
    """Okapi BM25 of lists of words.

    Args:
        texts: the words of each.
        k1, b: of the frequency and of the length.
    """

    def __init__(self, texts: Sequence[list[str]], k1: float = 1.2, b: float = 0.75) -> None:
        self._holds: dict[str, list[tuple[int, float]]] = {}
        self._count = len(texts)
        mean = sum(map(len, texts)) / max(self._count, 1)
        for row, words in enumerate(texts):
            norm = k1 * (1 - b + b * len(words) / mean)
            for word, often in Counter(words).items():
                self._holds.setdefault(word, []).append((row, often * (k1 + 1) / (often + norm)))

    def best(self, words: list[str]) -> list[int]:
        """The rows that fit best."""
        scores = np.zeros(self._count)
        for word, often in Counter(words).items():
            having = self._holds.get(word, [])
            weight = math.log1p((self._count - len(having) + 0.5) / (len(having) + 0.5))
            for row, share in having:
                scores[row] += often * weight * share
        found: list[int] = np.argsort(-scores, kind="stable")[:LONGER].tolist()
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    talk = read(options.conversations, 60 if options.quick else None)
    notes = [f"{len(talk.turns)} turns, {len(talk.questions)} questions"]
    vectors = encoded(talk, notes)
    with tempfile.TemporaryDirectory() as folder:
        parts = measured(Path(folder), talk, vectors, options)
    values = result(
        "sentences", device, asked(options, "conversations"), turns=len(talk.turns), notes=notes, **parts,
    )  # fmt: skip
    save(values, options)
    show(values, tables(values, "sentences", "sentences-times"), notes, as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "sentences", quick="sixty questions, few memories")
    known = default_data().parent / "locomo"
    parser.add_argument(
        "--conversations", type=Path, default=known if known.is_dir() else None, help="folder of LoCoMo"
    )
    parser.add_argument("--memories", type=int, help="of the larger store (100,000; 3,000)")
    options = parse(parser, arguments)
    if options.conversations is None:
        parser.error("--conversations is missing: name a folder with turns.jsonl and queries.jsonl")
    options.memories = options.memories or (3_000 if options.quick else 100_000)
    return options


def read(folder: Path, most: int | None = None) -> Talk:
    """The files of a folder; of the questions at most so many, from all of them."""
    turns, questions = (
        [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        for name in ("turns.jsonl", "queries.jsonl")
    )
    return Talk(turns, questions if most is None else questions[:: max(1, len(questions) // most)])


def encoded(talk: Talk, notes: list[str]) -> Vectors | None:
    """Vectors of all; ``None`` without the package, which a note says."""
    try:
        encoder = TextEncoder()
    except ImportError as error:
        notes.append(f"no vectors: {error}")
        return None
    turns, questions = (
        encoder.encode(texts) for texts in ([turn["content"] for turn in talk.turns], talk.texts)
    )
    times = _times(lambda place: encoder.encode([talk.texts[place]]), min(len(talk.texts), 100))
    return Vectors(turns, questions, times)


class Stores:
    """Stores with one or all conversations each.

    Args:
        folder: of the stores.
        talk: the conversations.
        vectors: of turns and questions.
        apart: False puts all conversations into one store.
        seed: of a random order of adding; ``None`` adds as spoken.
        turn_times: False gives every turn the time of its session.
    """

    def __init__(
        self, folder: Path, talk: Talk, vectors: Vectors | None, *, apart: bool = True,
        seed: int | None = None, turn_times: bool = True,
    ) -> None:  # fmt: skip
        self._talk, self._vectors, self._open = talk, vectors, ExitStack()
        self._stores: dict[str, MemoryStore] = {}
        self._names: dict[tuple[str, int], str] = {}
        made = memories(talk, vectors, turn_times=turn_times)
        order = np.arange(len(made))
        if seed is not None:
            np.random.default_rng(seed).shuffle(order)
        for name in talk.names:
            key = name if apart else "all"
            if key not in self._stores:
                store = MemoryStore.open(folder / key, dim=384)
                self._stores[key] = self._open.enter_context(store)
            rows = [row for row in order.tolist() if talk.turns[row]["id"].split(":")[0] == name]
            ids = self._stores[key].add([made[row] for row in rows])
            self._names |= {(key, id): talk.turns[row]["id"] for id, row in zip(ids, rows, strict=True)}

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def find(self, place: int, k: int = LONGER, *, words: bool = True, compared: bool = False) -> list[str]:
        """The turns that a question finds."""
        name = self._talk.questions[place]["id"].split("_")[0]
        key = name if name in self._stores else "all"
        query = _query(self._talk, self._vectors, place, k, words=words, compared=compared)
        return [self._names[key, hit.memory.id or 0] for hit in self._stores[key].query(query)]

    def by_ranks(self, place: int) -> list[str]:
        """The turns by reciprocal ranks of words and vectors."""
        scores: dict[str, float] = {}
        for side in (self.find(place, DEEP), self.find(place, DEEP, words=False, compared=True)):
            for rank, name in enumerate(side, 1):
                scores[name] = scores.get(name, 0.0) + 1 / (RRF + rank)
        return sorted(scores, key=lambda name: -scores[name])[:LONGER]


def measured(
    folder: Path, talk: Talk, vectors: Vectors | None, options: argparse.Namespace
) -> dict[str, Any]:
    """Rows of recall by side, query times, and storing times."""
    rows = [_side(name, _bm25(talk, words, k1, b), talk) for name, words, k1, b in _STEPS]
    start = time.perf_counter()
    with Stores(folder / "apart", talk, vectors) as stores:
        stored_s = time.perf_counter() - start
        with _constants(_ALONE):
            rows.append(
                _side("and dates, misspellings: the store without sessions and cues", stores.find, talk)
            )
        with _constants(_NO_CUES):
            rows.append(_side("and sessions: the store without cues", stores.find, talk))
        rows.append(_side("the store, `text=` alone", stores.find, talk))
        grid = _GRID[:: 12 if options.quick else 1]
        rows.append(cross_validated(stores, talk, grid))
        short = _bound(stores.find, k=K)
        times = {"`text=`": _times(short, len(talk.questions))}
        if vectors is not None:
            near = _bound(stores.find, words=False, compared=True)
            both = _bound(stores.find, compared=True)
            rows.append(_side("vectors alone", near, talk))
            rows.append(_side("words and vectors by reciprocal ranks", stores.by_ranks, talk))
            rows.append(_side("the store, `text=` and `embedding=`", both, talk))
            times["`text=` and `embedding=`"] = _times(_bound(short, compared=True), len(talk.questions))
            times["a question's vector"] = vectors.times
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for name, kept in (
        ("`text=` alone, turns added in random order", {"seed": options.seed}),
        ("`text=` alone, times of sessions only", {"turn_times": False}),
        ("`text=` alone, times of sessions only, random order", {"turn_times": False, "seed": options.seed}),
        ("`text=` alone, all conversations in one store", {"apart": False}),
    ):
        with Stores(folder / f"again-{len(rows)}", talk, vectors, **kept) as stores:
            rows.append(_side(name, stores.find, talk))
    stored = {
        "memories": len(talk.turns), "bytes": size, "ms_a_memory": 1e3 * stored_s / max(len(talk.turns), 1),
    }  # fmt: skip
    with MemoryStore.open(folder / "large", dim=384) as store:
        for part in many(talk, vectors, options.memories, options.seed):
            store.add(part)

        def ask(place: int, *, compared: bool = False) -> None:
            store.query(_query(talk, vectors, place, K, compared=compared))

        ask(0)
        several = min(len(talk.questions), 300)
        times[f"`text=`, {options.memories:,} memories"] = _times(ask, several)
        if vectors is not None:
            ask(0, compared=True)
            also = _bound(ask, compared=True)
            times[f"`text=` and `embedding=`, {options.memories:,} memories"] = _times(also, several)
    return {"sides": rows, "times": times, "stored": stored}


def cross_validated(stores: Stores, talk: Talk, grid: Sequence[Constants]) -> dict[str, Any]:
    """The recall with constants that never saw the conversation of the question."""
    found = []
    for constants in grid:
        with _constants(constants):
            found.append([stores.find(place) for place in range(len(talk.questions))])
    recalls = np.array(
        [
            [_share(question, names[:K]) for question, names in zip(talk.questions, each, strict=True)]
            for each in found
        ]
    )
    conversations = np.array([question["id"].split("_")[0] for question in talk.questions])
    best = {name: int(recalls[:, conversations != name].mean(axis=1).argmax()) for name in talk.names}
    chosen = [found[best[name]][place] for place, name in enumerate(conversations)]
    side = _side("`text=` alone, cross-validated over conversations", chosen.__getitem__, talk)
    return {**side, "constants": {name: dict(grid[at]) for name, at in best.items()}}


def memories(talk: Talk, vectors: Vectors | None, *, turn_times: bool = True) -> list[Memory]:
    """A memory per turn: the time of its session, and a second for each turn before it.

    The data have the time of a session only. The number of a turn within it is part of its id.
    """
    starts = [int(datetime.fromisoformat(turn["created_at"]).timestamp()) for turn in talk.turns]
    return [
        Memory(
            time_ns=(start + turn_times * int(turn["id"].split(":")[-1])) * 10**9,
            kind="note", caption=turn["content"],
            embedding=None if vectors is None else vectors.turns[row],
        )
        for row, (turn, start) in enumerate(zip(talk.turns, starts, strict=True))
    ]  # fmt: skip


def many(talk: Talk, vectors: Vectors | None, count: int, seed: int) -> Iterator[list[Memory]]:
    """Portions of so many memories: the first half of one turn and the second of another."""
    random = np.random.default_rng(seed)
    for first in range(0, count, 5000):
        rows = random.integers(0, len(talk.turns), (min(5000, count - first), 2))
        near = random.normal(size=(len(rows), 384)).astype(np.float32)
        made = []
        for at, (one, other) in enumerate(rows.tolist()):
            head, tail = (talk.turns[row]["content"].split() for row in (one, other))
            caption = " ".join(head[: len(head) // 2] + tail[len(tail) // 2 :])
            vector = None if vectors is None else vectors.turns[one] + 0.03 * near[at]
            made.append(
                Memory(time_ns=(first + at) * 30 * 10**9, kind="note", caption=caption, embedding=vector)
            )
        yield made


def _query(
    talk: Talk, vectors: Vectors | None, place: int, k: int, *, words: bool = True, compared: bool = False
) -> Query:
    vector = vectors.questions[place] if compared and vectors is not None else None
    return Query(text=talk.texts[place] if words else None, embedding=vector, k=k)


def _plain(text: str) -> list[str]:
    return _WORD.findall(fold(text))


def _telling(text: str) -> list[str]:
    return [word for word in _plain(text) if word not in FUNCTION_WORDS]


def _stems(text: str) -> list[str]:
    return [stem(word) for word in _telling(text)]


#: From BM25 as it is written to the weights of the store: name, words, k1 and b.
_STEPS: tuple[tuple[str, Words, float, float], ...] = (
    ("BM25 (k1 1.2, b 0.75)", _plain, 1.2, 0.75),
    ("without function words", _telling, 1.2, 0.75),
    ("and by stems", _stems, 1.2, 0.75),
    ("and by presence, whatever the length", _stems, 0.0, 0.0),
)


def _bm25(talk: Talk, words: Words, k1: float, b: float) -> Finds:
    parts = {name: talk.of(name).turns for name in talk.names}
    indexes = {name: Bm25([words(turn["content"]) for turn in turns], k1, b) for name, turns in parts.items()}

    def find(place: int) -> list[str]:
        question = talk.questions[place]
        name = question["id"].split("_")[0]
        return [parts[name][row]["id"] for row in indexes[name].best(words(question["query"]))]

    return find


@contextmanager
def _constants(values: Constants) -> Iterator[None]:
    """The search with other constants."""
    owners = {name: module for module in _MODULES for name in values if hasattr(module, name)}
    usual = {name: getattr(module, name) for name, module in owners.items()}
    try:
        for name, module in owners.items():
            setattr(module, name, values[name])
        yield
    finally:
        for name, module in owners.items():
            setattr(module, name, usual[name])


def _bound(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda place, **more: function(place, **options, **more)


def _share(question: Mapping[str, Any], found: Sequence[str], part: Callable[[str], str] = str) -> float:
    """The share of the answering turns, or of a part of their names, among these."""
    wanted = {part(entry["corpus_item_id"]) for entry in question["relevant"]}
    return len(wanted.intersection(found)) / len(wanted)


def _session(turn: str) -> str:
    return turn.rsplit(":", 1)[0]


def _side(name: str, finds: Finds, talk: Talk) -> dict[str, Any]:
    """The recall of a side: of all questions, by category, by conversation, and of sessions."""
    lists = [finds(place) for place in range(len(talk.questions))]
    pairs = list(zip(talk.questions, lists, strict=True))
    found = np.array([_share(question, turns[:K]) for question, turns in pairs])
    kinds = np.array([question["category"] for question in talk.questions])
    by_kind = {str(kind): float(found[kinds == kind].mean()) for kind in np.unique(kinds)}
    print(f"{name}: {found.mean():.3f}", file=sys.stderr, flush=True)
    names = np.array([question["id"].split("_")[0] for question in talk.questions])
    by_name = {str(each): float(found[names == each].mean()) for each in np.unique(names)}
    ranked = [(question, list(dict.fromkeys(map(_session, turns)))) for question, turns in pairs]
    sessions = {
        str(most): float(np.mean([_share(question, each[:most], _session) for question, each in ranked]))
        for most in (5, 10)
    }
    return {
        "name": name, "all": _recall(found), "sessions": sessions, "by_category": by_kind,
        "by_conversation": by_name,
    }  # fmt: skip


def _recall(found: NDArray[np.float64]) -> dict[str, float]:
    drawn = np.random.default_rng(0).integers(0, len(found), (DRAWS, len(found)))
    low, high = np.quantile(found[drawn].mean(axis=1), (0.025, 0.975))
    return {"recall": float(found.mean()), "low": float(low), "high": float(high), "questions": len(found)}


def _times(ask: Callable[[int], Any], count: int) -> dict[str, float]:
    wall, cpu = zip(*(_taken(_bound(ask), place) for place in range(count)), strict=True)
    return {
        "median_ms": float(np.median(wall)), "p99_ms": float(np.quantile(wall, 0.99)),
        "cpu_ms": float(np.median(cpu)),
    }  # fmt: skip


def _taken(call: Callable[..., Any], *arguments: Any) -> tuple[float, float]:
    """Milliseconds of a call: wall clock, and CPU of this thread."""
    start, spent = time.perf_counter(), time.thread_time()
    call(*arguments)
    return 1e3 * (time.perf_counter() - start), 1e3 * (time.thread_time() - spent)


if __name__ == "__main__":
    sys.exit(main())
