"""Evaluation of memories on a labelled sequence, for `benchmarks.memory.memory_drives`."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drive.labelled.questions import LEAST_SIGHTS, SAME_M, LabelQuestion, label_questions, stands
from drive.labelled.scans import Moment, Observation, Observer, add_truth, in_map, labels_of, observe
from drive.labelled.stores import BoxMemory, MemoryUnderTest, StoredObject, TrackMemory
from drive.truth import Truth, pairs

#: Creates a memory under test in a new folder.
MemoryFactory = Callable[[Path], MemoryUnderTest]
#: Position errors of drives without poses.
_NOWHERE: dict[str, float | None] = {"error_median_m": None, "error_95_m": None}


def run_study(
    passed: Iterator[Moment], sees: Observer, others: Mapping[str, MemoryFactory]
) -> dict[str, Any]:
    """Feed the observations of a sequence to every memory, and evaluate them against its labels.

    Only labelled objects that were observed count, until their last observation.

    Args:
        passed: from :func:`drive.labelled.scans.moments`.
        sees: source of tracked boxes.
        others: further memories, compared with ours, one of every box and one of the newest boxes.

    Returns:
        Plain numbers about the observations and each memory.
    """
    seen = list(observe(passed, sees))
    truth, identities, labelled = Truth(), [], set[int]()
    for one in seen:
        keys = _identities(one)
        identities += keys
        # Unobserved objects are excluded, because no memory can know them.
        add_truth(truth, one.moment, {key for key in keys if key is not None})
        assert one.moment.frame.track_ids is not None
        labelled.update(one.moment.frame.track_ids.tolist())
    placed = all(one.moment.frame.pose is not None for one in seen)
    figures: dict[str, Any] = {
        "frames": len(seen),
        "boxes": len(identities),
        "labelled": len(labelled),
        "things": len(_asked_about(truth)),
        "seeing_ms": round(float(np.median([one.took_ms for one in seen])), 3),
        "sides": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        makes: dict[str, MemoryFactory] = {
            "ours": TrackMemory,
            "everything": BoxMemory,
            "latest": lambda folder: BoxMemory(folder, most=figures["sides"]["ours"]["memories"]),
            **others,
        }
        for number, (name, make) in enumerate(makes.items()):
            side = make(Path(scratch) / f"{number}")
            started = time.perf_counter()
            side.remember(seen)
            took_s = time.perf_counter() - started
            questions = label_questions(truth)
            figures["sides"][name] = {
                "memories": len(side.held()),
                "bytes": side.bytes,
                "remembering_ms_a_frame": round(1e3 * took_s / max(len(seen), 1), 3),
                **_permanence(side.held(), side.owners(), identities, truth),
                **(_position_error(side.held(), side.owners(), identities, truth) if placed else _NOWHERE),
                "questions": _answers(side, questions),
            }
            side.close()
    return figures


def _identities(one: Observation) -> list[int | None]:
    """Return, for each box, the nearest unused labelled object of its label; None for a false positive."""
    frame, sights = one.moment.frame, one.sights
    places, names = in_map(frame.boxes, one.moment.pose)[:, :2], labels_of(frame)
    away = np.full((len(sights.labels), len(names)), np.inf)
    for row, (label, box) in enumerate(zip(sights.labels, sights.boxes, strict=True)):
        of_label = np.array([name == label for name in names], dtype=bool)
        away[row, of_label] = np.hypot(*(places[of_label] - box[:2]).T)
    found: list[int | None] = [None] * len(sights.labels)
    assert frame.track_ids is not None
    for row, column in pairs(away, SAME_M):
        found[row] = int(frame.track_ids[column])
    return found


def _asked_about(truth: Truth) -> list[int]:
    """Return the objects that were observed often enough."""
    return [key for key, sights in truth.sights.items() if len(sights) >= LEAST_SIGHTS * len(truth.days)]


def _permanence(
    held: Sequence[StoredObject],
    owners: Sequence[Hashable | None],
    identities: Sequence[int | None],
    truth: Truth,
) -> dict[str, Any]:
    """Measure how memories and labelled objects correspond.

    A memory belongs to the object that most of its boxes show. A moving object may have one memory per pass,
    because it cannot be recognized.

    Returns:
        ``one``: share of the objects with exactly one memory; ``split``: surplus memories of an object;
        ``joined``: objects without a memory whose boxes went into that of another; ``lost``: objects whose
        boxes went into none; ``false``: memories of no object.
    """
    of_memory = _things_of(owners, identities)
    went: dict[int | None, set[Hashable]] = defaultdict(set)
    for owner, key in zip(owners, identities, strict=True):
        if owner is not None:
            went[key].add(owner)
    memories: dict[int | None, set[Hashable]] = defaultdict(set)
    for one in held:
        memories[of_memory.get(one.thing)].add(one.thing)
    found: Counter[str] = Counter()
    for key in _asked_about(truth):
        count, still = len(memories[key]), stands(truth.sights[key])
        allowed = 1 if still else len(truth.days)
        found["one"] += 1 <= count <= allowed
        found["split"] += max(count - allowed, 0)
        found["joined" if went[key] else "lost"] += count == 0
    return {
        "one": round(found["one"] / max(len(_asked_about(truth)), 1), 4),
        **{name: found[name] for name in ("split", "joined", "lost")},
        "false": len(memories[None]),
    }


def _things_of(
    owners: Sequence[Hashable | None], identities: Sequence[int | None]
) -> dict[Hashable, int | None]:
    """Return the labelled object that most boxes of each memory show; None if they show none."""
    votes: dict[Hashable, Counter[int | None]] = defaultdict(Counter)
    for owner, key in zip(owners, identities, strict=True):
        if owner is not None:
            votes[owner][key] += 1
    return {owner: counts.most_common(1)[0][0] for owner, counts in votes.items()}


def _position_error(
    held: Sequence[StoredObject],
    owners: Sequence[Hashable | None],
    identities: Sequence[int | None],
    truth: Truth,
) -> dict[str, Any]:
    """Measure distances in metres between memories and mean labels of static objects."""
    of_memory = _things_of(owners, identities)
    errors: list[float] = []
    middles: dict[int, NDArray[np.float64]] = {
        key: np.mean([sight.position for sight in truth.sights[key]], axis=0)
        for key in _asked_about(truth)
        if stands(truth.sights[key])
    }
    for one in held:
        key = of_memory.get(one.thing)
        if one.place is not None and key in middles:
            errors.append(float(np.hypot(*(np.array(one.place) - middles[key]))))
    if not errors:
        return dict(_NOWHERE)
    return {
        "error_median_m": round(float(np.median(errors)), 4),
        "error_95_m": round(float(np.percentile(errors, 95)), 4),
    }


def _answers(side: MemoryUnderTest, questions: Sequence[LabelQuestion]) -> dict[str, Any]:
    """Count right answers by kind, list counts and wrong answers, and measure the time of an answer."""
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    took: list[float] = []
    wrong: list[str] = []
    counts: list[list[int]] = []
    for about in questions:
        started = time.perf_counter()
        said, is_right = about.answer(side.asked)
        took.append(1e3 * (time.perf_counter() - started))
        asked[about.kind] += 1
        right[about.kind] += is_right
        if about.kind == "how many":
            counts.append([int(said), int(about.expected)])
        if not is_right:
            wrong.append(f"{about.text} {said}; true: {about.expected}")
    return {
        "asked": asked.total(),
        "right": right.total(),
        "by_kind": {kind: [right[kind], asked[kind]] for kind in asked},
        "counts": counts,
        "median_ms": round(float(np.median(took)), 4) if took else None,
        "wrong": wrong,
    }
