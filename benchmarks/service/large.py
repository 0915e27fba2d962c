"""One large store: load, questions, a month archived and restored, readers beside a writer, an upgrade.

    python -m benchmarks.service.large FOLDER                      # ten million rows in a folder
    python -m benchmarks.service.large FOLDER --kind server --rows 1000000 --months 12
    python -m benchmarks.service.large FOLDER --older CHECKOUT     # also an upgrade from that release

Run it again with the same arguments to resume: loading continues after the last commit, and finished steps
are read from ``FOLDER/KIND-ROWS/steps.json``. FOLDER stays; remove it afterwards. Recall is the share of the
true ten rows among those that the store found.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.options import asked as settings_of
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.timing import time_once
from benchmarks.publish.screen import tables
from benchmarks.service.fleet_questions import K, Questions, ask_words, asked, truth
from benchmarks.service.fleet_sides import (
    BLOCK,
    LABELS,
    LENGTH_M,
    STEP_NS,
    Asked,
    Store,
    rows_of,
    server_at,
    server_settings,
    store_at,
)
from benchmarks.service.large_readers import read_beside
from benchmarks.service.large_upgrade import upgrade
from memory.exchange.exporting import export_memories
from memory.exchange.formats import open_source
from memory.exchange.importing import import_source

#: Rows per commit, and commits between two lines of progress.
_BATCH, _TOLD = 2 * BLOCK, 10
#: Filters of questions for the newest rows; each question has other values.
_NEWEST: dict[str, Callable[[int, int], Asked]] = {
    "newest, label 2 %": lambda at, size: Asked(label=f"label{at % LABELS}"),
    "newest, place 1 %": lambda at, size: Asked(x=_share(at, LENGTH_M, 0.01)),
    "newest, time 10 %": lambda at, size: Asked(time_ns=_times(at, size)),
}


class Steps:
    """Finished steps of a run, on disk.

    Args:
        file: JSON file of the steps.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self._start = time.perf_counter()

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"[{time.perf_counter() - self._start:6.0f} s] {text}", file=sys.stderr, flush=True)

    def run(self, name: str, work: Callable[[], Any]) -> None:
        """Run a step, unless it is finished, and write its result."""
        if name in self.done:
            self.say(f"{name}: finished before")
            return
        self.say(f"{name} ...")
        self.keep(name, work())
        self.say(f"{name}: {self.done[name]}")

    def keep(self, name: str, found: Any) -> None:
        """Write a result."""
        self.done[name] = found
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self.done, indent=1))
        fresh.replace(self._file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), options.threads)
    folder = options.folder / f"{options.kind}-{options.rows}"
    folder.mkdir(parents=True, exist_ok=True)
    steps = Steps(folder / "steps.json")
    with ExitStack() as stack:
        place: Path | str = folder / "store"
        if options.kind == "server":
            folder.chmod(0o755)  # Root has another user run the server.
            os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # Indexes of a server's store.
            place = stack.enter_context(server_at(folder / "server", server_settings(options.buffers)))
        _measure(place, folder, steps, options)
    cases = [
        {"side": options.kind, "rows": options.rows, **steps.done},
        *_published(options),
    ]
    values = result("large", torch.device("cpu"), settings_of(options, "folder", "older"), cases=cases)
    save(values, options)
    show(
        values,
        tables(values, "large", "large-questions", "large-readers", "large-upgrades"),
        [],
        as_json=options.json,
    )
    return 0


def _measure(place: Path | str, folder: Path, steps: Steps, options: argparse.Namespace) -> None:
    """Run all steps; those that change the rows come last."""
    size, dim = options.rows, options.dim
    with store_at(place, dim) as side:
        if "load" not in steps.done:
            _load(side, steps, options)
        questions = _questions(folder / "truth.npz", options)
        steps.run("index_s", lambda: _timed(side.settle))
        steps.run("bytes_per_row", lambda: round(side.bytes() / size, 1))
    with store_at(place, dim) as side:
        steps.run("open_s", lambda: _timed(lambda: side.like(questions.vectors[0], Asked(), K)))
        for name in questions.wanted:
            steps.run(name, partial(questions.ask, side, name))
        for name, make in _NEWEST.items():
            steps.run(name, partial(_newest, side, make, options))
        steps.run("words", lambda: ask_words(side.store, options.questions))
        steps.run(
            "readers",
            lambda: read_beside(side, place, questions.vectors, readers=2, seconds=options.seconds),
        )
        month = folder / "month"
        steps.run("archive", lambda: _archive(side, month, options))
        steps.run("restore", lambda: _restore(side, month, options))
        if options.kind == "server":  # An import goes into a part without a graph.
            steps.run("restored_index_s", lambda: _timed(side.settle))
        steps.run("time 10 %, restored", lambda: _restored(side, questions, options))
        steps.run("all, restored", lambda: questions.ask(side, "all"))
    if options.older is not None:
        steps.run("upgrade", lambda: upgrade(options.older.resolve(), folder, options.kind, place))


def _load(side: Store, steps: Steps, options: argparse.Namespace) -> None:
    """Add the rows that are missing; a server begins a part for each month."""
    before = steps.done.get("loading", {"rows": 0, "s": 0.0})
    first = there = len(side.store)
    months = [options.rows * month // options.months for month in range(options.months)]
    start = time.perf_counter()
    while there < options.rows:
        if options.kind == "server" and there in months[1:]:
            side.begin_month(months.index(there))
        end = min(there + _BATCH, options.rows, *(month for month in months if month > there))
        side.add(rows_of(there, end, options.dim, options.seed), range(there, end))
        there = end
        if there // _BATCH % _TOLD == 0:
            spent = time.perf_counter() - start
            steps.say(f"{there:,} of {options.rows:,} rows, {(there - first) / spent:,.0f} per second")
            steps.keep("loading", {"rows": before["rows"] + there - first, "s": before["s"] + spent})
    spent = before["s"] + time.perf_counter() - start
    rows = before["rows"] + there - first
    steps.keep("load", {"rows": rows, "s": round(spent, 1), "per_s": round(rows / max(spent, 1e-9), 1)})


def _questions(file: Path, options: argparse.Namespace) -> Questions:
    """Return questions by a vector, with true answers from a file if they were computed before."""
    if not file.exists():
        found = Questions.of(options.rows, options.questions, options.dim, options.seed)
        np.savez(file, allow_pickle=False, vectors=found.vectors, **found.truth)
    with np.load(file) as kept:
        return Questions.known(options.rows, kept["vectors"], {name: kept[name] for name in kept.files})


def _newest(side: Store, make: Callable[[int, int], Asked], options: argparse.Namespace) -> dict[str, float]:
    """Ask for the newest rows that pass a filter."""
    filters = [make(at, options.rows) for at in range(options.questions)]
    best = [_newest_rows(wanted, options) for wanted in filters]
    side.newest(filters[-1], K)
    return asked([partial(side.newest, wanted, K) for wanted in filters], best)


def _newest_rows(wanted: Asked, options: argparse.Namespace) -> np.ndarray:
    """Return the true answer: the last rows that pass."""
    end = options.rows if wanted.time_ns is None else wanted.time_ns[1] // STEP_NS + 1
    found = np.zeros(0, np.int64)
    while end > 0 and len(found) < K:
        start = max(0, (end - 1) // BLOCK * BLOCK)
        rows = rows_of(start, end, options.dim, options.seed)
        found = np.concatenate([start + wanted.passes(rows), found])
        end = start
    return found[-K:]


def _archive(side: Store, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write the first month into a file and remove it from the store."""
    before = len(side.store)
    if before < options.rows:  # The step was interrupted after its end, so its time is lost.
        return {"rows": options.rows - before}
    shutil.rmtree(folder, ignore_errors=True)
    start = time.perf_counter()
    if options.kind == "server":
        from memory.archive import archive
        from memory.persistence.postgres.upkeep import Upkeep

        assert isinstance(side.store.database, Upkeep)
        second = side.store.database.parts()[1].begun_ns
        (done,) = archive(side.store.database, folder, before_ns=second + 1)
        removed = done.memories
    else:
        folder.mkdir()
        count = options.rows // options.months
        file = folder / "month.jsonl"
        ids = np.arange(1, count + 1)
        removed = export_memories(side.store.database, file, format="jsonl", ids=ids)
        side.store.forget(ids.tolist(), reason="archived")
    spent = time.perf_counter() - start
    if before - len(side.store) != removed:
        raise AssertionError(f"{before - len(side.store)} memories are gone, but {removed} are archived")
    return {"rows": removed, "s": round(spent, 1), "per_s": round(removed / spent, 1)}


def _restore(side: Store, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Import the month again; rows that an interrupted import stored are skipped."""
    (file,) = folder.glob("*.jsonl")
    start = time.perf_counter()
    import_source(side.store.database, open_source(file))
    spent = time.perf_counter() - start
    if len(side.store) < options.rows:
        raise AssertionError(f"only {len(side.store):,} of {options.rows:,} memories are there")
    count = options.rows // options.months
    return {"rows": count, "s": round(spent, 1), "per_s": round(count / spent, 1)}


def _restored(side: Store, questions: Questions, options: argparse.Namespace) -> dict[str, Any]:
    """Ask for the most similar rows of the restored month."""
    end = options.rows // options.months
    wanted = Asked(time_ns=(0, (end - 1) * STEP_NS))
    best = truth(end, options.dim, options.seed, questions.vectors, {"month": wanted})["month"]
    ask = [partial(side.like, vector, wanted, K) for vector in questions.vectors]
    return asked(ask, list(best))


def _share(at: int, whole: float, share: float) -> tuple[float, float]:
    """Return a stretch of this share; each number has another."""
    start = (at * 37 % 99) / 100 * whole
    return start, start + share * whole


def _times(at: int, size: int) -> tuple[int, int]:
    first = at * 37 % 90 * size // 100
    return first * STEP_NS, (first + size // 10) * STEP_NS


def _timed(work: Callable[[], object]) -> float:
    return round(time_once(work, torch.device("cpu")) / 1e3, 2)


def _published(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the cases of other stores in the same folder."""
    for file in sorted(options.folder.glob("*/steps.json")):
        kind, rows = file.parent.name.rsplit("-", 1)
        if (kind, int(rows)) != (options.kind, options.rows):
            yield {"side": kind, "rows": int(rows), **json.loads(file.read_text())}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "large", quick="12,000 rows and few questions")
    parser.add_argument("folder", type=Path, help="folder of stores and finished steps")
    parser.add_argument("--kind", choices=("folder", "server"), default="folder", help="of the store")
    parser.add_argument("--rows", type=int, help="memories (10,000,000)")
    parser.add_argument("--months", type=int, default=12, help="parts of a server; one is archived")
    parser.add_argument("--dim", type=int, default=128, help="numbers of a vector")
    parser.add_argument("--questions", type=int, help="of each kind (100)")
    parser.add_argument("--seconds", type=float, help="of readers beside a writer (30)")
    parser.add_argument("--buffers", default="1GB", help="shared_buffers of the server")
    parser.add_argument("--older", type=Path, help="checkout of an older release to upgrade from")
    options = parse(parser, arguments)
    options.rows = options.rows or (12_000 if options.quick else 10_000_000)
    options.questions = options.questions or (10 if options.quick else 100)
    options.seconds = options.seconds or (2.0 if options.quick else 30.0)
    if options.months < 2 or options.rows < 10 * options.months or options.questions < 1:
        parser.error("--months must be at least 2, --rows ten times as many, --questions at least 1")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
