"""Text search of the store on LoCoMo: recall, and the gain of each part of the search.

    python -m benchmarks.memory.sentences --conversations FOLDER

FOLDER has turns.jsonl and queries.jsonl of LoCoMo (Maharana et al., ACL 2024). Every turn of every
conversation is a memory of one store, one second after the previous turn. Times carry the order of a
conversation; the insertion order makes no difference. Each question asks all of them for ten. Reported: the
share of answering turns among the first ten, with 95 % intervals, for all questions and for those about
conversations held out from tuning. BM25 is made here as it is written (Robertson and Zaragoza 2009), and
changed step by step into what the store does. Vectors are those of :class:`memory.encode.TextEncoder` (extra
'text'; left out without). Times are of calls of ``store.query``, on these memories and on as many as
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import memory.search.relevance
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.scenes import default_data
from benchmarks.publish.screen import tables
from memory import Filter, Memory, MemoryStore, Query
from memory.encode import TextEncoder
from memory.wording import fold, stem
from memory.wording.sentences import FUNCTION_WORDS

#: Conversations by which shares and words were chosen.
CHOSEN_BY = ("conv-26", "conv-30", "conv-42")
#: Memories that are found, and how often questions are drawn for an interval.
K, DRAWS = 10, 2000
#: Constant of reciprocal rank fusion (Cormack, Clarke and Buettcher 2009), and the results it takes from each
#: side.
RRF, DEEP = 60, 256
_WORD = re.compile(r"[^\W_]+")

Words = Callable[[str], list[str]]
#: Gives for the place of a question the turns that are found.
Finds = Callable[[int], list[str]]


class Talk(NamedTuple):
    """Turns of conversations, and questions about them.

    Attributes:
        turns: with id, content and created_at.
        questions: with id, category, query and relevant.
    """

    turns: list[dict[str, Any]]
    questions: list[dict[str, Any]]

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
        found: list[int] = np.argsort(-scores, kind="stable")[:K].tolist()
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
        "sentences", device, asked(options, "conversations"), turns=len(talk.turns),
        chosen_by=list(CHOSEN_BY), notes=notes, **parts,
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


def measured(
    folder: Path, talk: Talk, vectors: Vectors | None, options: argparse.Namespace
) -> dict[str, Any]:
    """Rows of recall by side, query times, and storing times."""
    contents = [turn["content"] for turn in talk.turns]
    start = time.perf_counter()
    with MemoryStore.open(folder / "talk", dim=384) as store:
        names = dict(
            zip(store.add(memories(talk, vectors)), (turn["id"] for turn in talk.turns), strict=True)
        )
        stored_s = time.perf_counter() - start

        def by_query(place: int, k: int = K, *, words: bool = True, compared: bool = False) -> list[str]:
            query = _query(talk, vectors, place, k, words=words, compared=compared)
            return [names[hit.memory.id or 0] for hit in store.query(query)]

        def every_word(place: int) -> list[str]:
            found = store.database.search_text(talk.texts[place], Filter(), limit=K)
            return [names[id] for id in found.ids.tolist()]

        def by_ranks(place: int) -> list[str]:
            scores: dict[str, float] = {}
            for side in (by_query(place, DEEP), by_query(place, DEEP, words=False, compared=True)):
                for rank, name in enumerate(side, 1):
                    scores[name] = scores.get(name, 0.0) + 1 / (RRF + rank)
            return sorted(scores, key=lambda name: -scores[name])[:K]

        rows = [_side("every word, as before", every_word, talk)]
        for name, words, k1, b in _STEPS:
            rows.append(_side(name, _bm25(contents, talk, words, k1, b), talk))
        with _beside((0.0, 0.0)):
            rows.append(_side("and dates, slips: the store without replies", by_query, talk))
        rows.append(_side("the store, `text=` alone", by_query, talk))
        times = {"`text=`": _times(by_query, len(talk.questions))}
        if vectors is not None:
            near = _bound(by_query, words=False, compared=True)
            both = _bound(by_query, compared=True)
            rows.append(_side("vectors alone", near, talk))
            rows.append(_side("words and vectors by reciprocal ranks", by_ranks, talk))
            rows.append(_side("the store, `text=` and `embedding=`", both, talk))
            times["`text=` and `embedding=`"] = _times(both, len(talk.questions))
            times["a question's vector"] = vectors.times
        size = sum(path.stat().st_size for path in (folder / "talk").rglob("*") if path.is_file())
    stored = {"memories": len(names), "bytes": size, "ms_a_memory": 1e3 * stored_s / len(names)}
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


def memories(talk: Talk, vectors: Vectors | None) -> list[Memory]:
    """A memory per turn: the time of its session, and a second for each turn before it.

    The data have the time of a session only. The number of a turn within it is part of its id.
    """
    starts = [int(datetime.fromisoformat(turn["created_at"]).timestamp()) for turn in talk.turns]
    return [
        Memory(
            time_ns=(start + int(turn["id"].split(":")[-1])) * 10**9, kind="note", caption=turn["content"],
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


def _bm25(contents: list[str], talk: Talk, words: Words, k1: float, b: float) -> Finds:
    index = Bm25([words(text) for text in contents], k1, b)
    return lambda place: [talk.turns[row]["id"] for row in index.best(words(talk.texts[place]))]


@contextmanager
def _beside(shares: tuple[float, float]) -> Iterator[None]:
    """The store with other weights of the context around a memory."""
    usual = memory.search.relevance.BESIDE
    memory.search.relevance.BESIDE = shares
    try:
        yield
    finally:
        memory.search.relevance.BESIDE = usual


def _bound(function: Callable[..., Any], **options: Any) -> Callable[[int], Any]:
    return lambda place: function(place, **options)


def _side(name: str, finds: Finds, talk: Talk) -> dict[str, Any]:
    """The recall of a side: of all questions, those of other conversations, and by category."""
    shares = []
    for place, question in enumerate(talk.questions):
        wanted = {entry["corpus_item_id"] for entry in question["relevant"]}
        shares.append(len(wanted.intersection(finds(place))) / len(wanted))
    found = np.array(shares)
    others = np.array([question["id"].split("_")[0] not in CHOSEN_BY for question in talk.questions])
    kinds = np.array([question["category"] for question in talk.questions])
    by_kind = {str(kind): float(found[kinds == kind].mean()) for kind in np.unique(kinds)}
    print(f"{name}: {found.mean():.3f}", file=sys.stderr, flush=True)
    names = np.array([question["id"].split("_")[0] for question in talk.questions])
    by_name = {str(each): float(found[names == each].mean()) for each in np.unique(names)}
    return {
        "name": name, "all": _recall(found), "others": _recall(found[others]), "by_category": by_kind,
        "by_conversation": by_name,
    }  # fmt: skip


def _recall(found: NDArray[np.float64]) -> dict[str, float]:
    drawn = np.random.default_rng(0).integers(0, len(found), (DRAWS, len(found)))
    low, high = np.quantile(found[drawn].mean(axis=1), (0.025, 0.975))
    return {"recall": float(found.mean()), "low": float(low), "high": float(high), "questions": len(found)}


def _times(ask: Callable[[int], Any], count: int) -> dict[str, float]:
    taken = [_taken(_bound(ask), place) for place in range(count)]
    return {"median_ms": float(np.median(taken)), "p99_ms": float(np.quantile(taken, 0.99))}


def _taken(call: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    call(*arguments)
    return 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main())
