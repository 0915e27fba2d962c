"""Retention over months: value and answers by the share that is kept, and a day in front of one wall.

    python -m benchmarks.memory.retention --png retention.png

The benchmark simulates months of a robot (`retention_world`) and offers the observations to the store.

- *Value*: the worth of an observation is what later questions need of it, plus the worth of its event
  (`retention_value`). No store sees it. Figures are shares of the value of the best subset of the same size.
- *Answers*: the store that kept a share and a store that keeps everything answer the same questions.
  `retention_questions` decides whether two answers agree.
- *Parked*: the reduction of a day in front of one wall, and its remaining unique events.

The baselines keep a random choice, the most recent, or the most recent of each place.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress

from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import aims, result, save, show
from benchmarks.memory import retention_questions
from benchmarks.memory.retention_questions import Question, agree, questions_of
from benchmarks.memory.retention_value import Fact, facts_of, greedy_values, value_bounds, value_of
from benchmarks.memory.retention_world import Observation, World, WorldOptions, parked_day, world_of
from benchmarks.publish.screen import tables
from memory import Filter, MemoryStore, StoreConfig
from memory.config import ReservoirConfig
from memory.merging import MergeOptions
from memory.observe.reservoir import Reservoir
from memory.questions import Questions

#: The usual gate would turn one in a hundred observations of an object into a separate memory. This gate
#: holds 99.99 % of them (chi-square, 3 degrees of freedom).
_GATE = 21.1
_SHARES = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05)
#: Shares that questions are asked at.
_ASKED = (0.5, 0.25, 0.1, 0.05)
_HOUR_S = 3600.0
#: The world of a quick run.
_SMALL = {"days": 8, "objects": 4, "stops": 1, "stop_s": 400}
_BATCH = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), options.threads)
    start = time.perf_counter()
    quick = options.quick
    shares = (1.0, 0.5, 0.1) if quick else _SHARES
    world = world_of(WorldOptions(seed=options.seed, **(_SMALL if quick else {})))
    questions = questions_of(world, 6 if quick else 30, options.seed)
    facts = facts_of(world, questions)
    with tempfile.TemporaryDirectory() as name, Progress(disable=options.json) as progress:
        task = progress.add_task("retention", total=len(shares) + 2)
        study = _Study(world, questions, facts, Path(name), options.seed)
        progress.advance(task)
        rows = []
        for share in shares:
            rows.append(study.row(share))
            progress.advance(task)
        parked = _parked(Path(name) / "parked", 2000 if quick else 86_400, 12, options.seed)
        progress.advance(task)
    values = result(
        "retention",
        torch.device("cpu"),
        {"seed": options.seed, "quick": quick, "threads": options.threads, **_sizes(world)},
        shares=rows,
        dense=study.dense_figures,
        merged=study.merged_figures,
        parked=parked,
        bars=_bars(rows, parked),
        agreement=retention_questions.__doc__,
        spent_s=round(time.perf_counter() - start, 1),
        notes=_notes(rows),
    )
    save(values, options)
    if options.png is not None:
        from benchmarks.memory.retention_chart import draw

        draw(values, options.png)
    show(
        values,
        [*tables(values, "memory-retention"), *aims(values), *aims(values, "parked")],
        values["notes"],
        as_json=options.json,
    )
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "retention", quick="a week instead of two months")
    parser.set_defaults(threads=1)
    parser.add_argument("--png", type=Path, help="draw a chart")
    return parse(parser, arguments)


class _Study:
    """Answers of the dense store, and figures for each share."""

    def __init__(
        self, world: World, questions: list[Question], facts: list[Fact], folder: Path, seed: int
    ) -> None:
        self._world, self._questions, self._facts = world, questions, facts
        self._folder, self._seed = folder, seed
        self._count = len(world.observations)
        with self._store("dense", range(self._count)) as store:
            self._dense = _answers(questions, store)
            merged = _asked(questions, store)
        self.dense_figures = self._judged(self._dense)
        self.merged_figures: dict[str, Any] = {"dense": self._judged(merged)}

    def row(self, share: float) -> dict[str, Any]:
        """Figures of all choices of one share."""
        wanted = round(share * self._count)
        config = _config_for(self._world.observations, wanted)
        folder = self._folder / f"ours-{share}"
        settings = StoreConfig(reservoir=config, merging=MergeOptions(gate=_GATE))
        start = time.perf_counter()
        with MemoryStore.open(folder, dim=self._world.options.dim, config=settings) as store:
            _observe(store, self._world.observations)
            spent = time.perf_counter() - start
            kept = sorted(map(self._world.row_of, store.find(Filter(), vectors=False)))
            ours = self._choice(kept)
            if share in _ASKED:
                ours |= self._judged(_answers(self._questions, store))
                merged = _asked(self._questions, store)
                self.merged_figures[f"ours, {share:g}"] = self._judged(merged)
        sides = {"ours": ours}
        for name, rows in self._others(len(kept)).items():
            sides[name] = self._choice(rows)
            if share in _ASKED and name in ("random", "most recent"):
                with self._store(f"{name}-{share}", rows) as store:
                    sides[name] |= self._judged(_answers(self._questions, store))
        best = greedy_values(self._facts, self._count, [len(kept)])[0]
        bound = value_bounds(self._facts, self._count, [len(kept)])[0]
        return {
            "share": share,
            "kept": len(kept),
            "achieved": round(len(kept) / self._count, 4),
            "oracle": round(best, 3),
            "oracle_bound": round(bound, 3),
            "total": round(sum(fact.weight for fact in self._facts), 3),
            "reservoir": {"share": config.share, "window_s": config.window_s, "least": config.least},
            "observe_s": round(spent, 2),
            "sides": {
                name: {"of_oracle": round(side["value"] / best, 4), **side} for name, side in sides.items()
            },
        }

    def _choice(self, rows: list[int]) -> dict[str, Any]:
        return {"kept": len(rows), "value": round(value_of(self._facts, rows), 3)}

    def _others(self, count: int) -> dict[str, list[int]]:
        """The same number of observations, chosen by another rule."""
        generator = np.random.default_rng([self._seed, 2])
        chosen = generator.choice(self._count, count, replace=False)
        return {
            "random": sorted(chosen.tolist()),
            "most recent": list(range(self._count - count, self._count)),
            "most recent of each place": _recent_of_places(self._world.observations, count),
        }

    def _store(self, name: str, rows: Iterable[int]) -> MemoryStore:
        """A store with these observations as they are."""
        settings = StoreConfig(merging=MergeOptions(gate=_GATE))
        store = MemoryStore.open(self._folder / name, dim=self._world.options.dim, config=settings)
        memories = [self._world.observations[row].memory for row in rows]
        for first in range(0, len(memories), 5000):
            store.add(memories[first : first + 5000])
        return store

    def _judged(self, answers: list[Any]) -> dict[str, Any]:
        """Shares of answers that agree with the dense store's, and that are right."""
        by_name: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
        for question, answer, dense in zip(self._questions, answers, self._dense, strict=True):
            right = question.truth is not None and agree(question.form, answer, question.truth)
            by_name[question.name].append((agree(question.form, answer, dense), right))
        every = [pair for pairs in by_name.values() for pair in pairs]
        return {
            "agree": _mean(first for first, _ in every),
            "right": _mean(second for _, second in every),
            "questions": {
                name: {
                    "agree": _mean(first for first, _ in pairs),
                    "right": _mean(second for _, second in pairs),
                }
                for name, pairs in by_name.items()
            },
        }


def _answers(questions: Sequence[Question], store: MemoryStore) -> list[Any]:
    """Answers of a store, which is merged for the questions that need it, after all others were asked."""
    asked = Questions(store)
    answers = [None if question.merged else question.ask(asked) for question in questions]
    store.consolidate(now_ns=0)
    return [
        question.ask(asked) if question.merged else answer
        for question, answer in zip(questions, answers, strict=True)
    ]


def _asked(questions: Sequence[Question], store: MemoryStore) -> list[Any]:
    asked = Questions(store)
    return [question.ask(asked) for question in questions]


def _observe(store: MemoryStore, observations: Sequence[Observation]) -> None:
    for first in range(0, len(observations), _BATCH):
        store.observe([entry.memory for entry in observations[first : first + _BATCH]])


def _config_for(observations: Sequence[Observation], wanted: int) -> ReservoirConfig:
    """The largest share with which at most so many are kept, in windows of an hour, or longer if need be.

    The number that is kept depends on places, times and vectors only, so the reservoir runs without the
    store.
    """
    if wanted >= len(observations):
        return ReservoirConfig(share=1.0, most=None)
    for hours in (1, 24, 48, 96, 192, 384, 10_000):
        window_s = hours * _HOUR_S
        if _count(observations, 0.0, window_s) <= wanted:
            break
    low, high = 0.0, wanted / len(observations)
    if _count(observations, high, window_s) <= wanted:
        low = high
    else:
        for _ in range(5):
            middle = (low + high) / 2
            if _count(observations, middle, window_s) <= wanted:
                low = middle
            else:
                high = middle
    return ReservoirConfig(share=low, most=None, window_s=window_s)


def _count(observations: Sequence[Observation], share: float, window_s: float) -> int:
    reservoir = Reservoir(ReservoirConfig(share=share, most=None, window_s=window_s))
    for row, entry in enumerate(observations):
        reservoir.offer(row, entry.memory, 0.0)
    return len(reservoir)


def _recent_of_places(observations: Sequence[Observation], count: int) -> list[int]:
    """Keep the same number of the most recent of each 2 m square; the remainder goes to the most recent."""
    cells: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for row, entry in enumerate(observations):
        x, y, _ = entry.memory.place
        cells[entry.memory.map_id, int(x // 2.0), int(y // 2.0)].append(row)
    # (rank from the end in its cell, age): all first ones, then all second ones.
    ranked = sorted((rank, -row) for rows in cells.values() for rank, row in enumerate(reversed(rows)))
    return sorted(-row for _, row in ranked[:count])


def _parked(folder: Path, seconds: int, events: int, seed: int) -> dict[str, Any]:
    """A day in front of one wall with the usual settings."""
    day = parked_day(seconds, events, seed=seed)
    start = time.perf_counter()
    with MemoryStore.open(folder, dim=64) as store:
        _observe(store, day)
        spent = time.perf_counter() - start
        left = store.find(Filter(), vectors=False)
        kept = sum(memory.kind == "event" for memory in left)
        store.consolidate(now_ns=0)
        merged = len(store)
    return {
        "observations": len(day),
        "kept": len(left),
        "factor": round(len(day) / len(left), 1),
        "factor_merged": round(len(day) / merged, 1),
        "events": events,
        "events_kept": kept,
        "observe_s": round(spent, 2),
    }


def _bars(rows: list[dict[str, Any]], parked: dict[str, Any]) -> dict[str, Any]:
    at = {row["share"]: row["sides"]["ours"] for row in rows}
    return {
        "value_at_50": at[0.5]["of_oracle"],
        "answers_at_10": at[0.1]["agree"],
        "parked_factor": parked["factor"],
        "parked_events_kept": parked["events_kept"] / parked["events"],
    }


def _sizes(world: World) -> dict[str, Any]:
    observations = world.observations
    return {
        "days": world.options.days,
        "observations": len(observations),
        "parked_share": round(
            sum(entry.memory.kind == "place" for entry in observations) / len(observations), 3
        ),
        "invented": sum(entry.thing < 0 for entry in observations),
        "things": len(world.things),
        "looks_of_a_thing_a_day": round(
            len(observations) / len({(entry.thing, entry.day) for entry in observations}), 1
        ),
    }


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    notes = [
        "other choices keep as many observations as ours does, which may be fewer than asked for",
        "labels that the detector invented count as wrong in summaries, the dense store's too",
        "changed since is asked after merging, in every store: before, each sight is a memory of its own",
        f"memories are merged with a gate of {_GATE:g} instead of the usual one",
    ]
    gap = max(1.0 - row["oracle"] / row["oracle_bound"] for row in rows)
    notes.append(f"the oracle's subset is chosen greedily and is within {100 * gap:.2f} % of the best")
    return notes


def _mean(values: Iterable[bool]) -> float:
    return round(float(np.mean([*values])), 4)


if __name__ == "__main__":
    raise SystemExit(main())
