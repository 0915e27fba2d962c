"""Memories of a labelled sequence judged by its labels: a drive of `benchmarks.memory.memory_drives`."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drive.labelled_questions import LEAST_SIGHTS, SAME_M, About, asked_of, stands
from drive.labelled_seen import Moment, Seen, Sees, add_truth, in_map, labels_of, seen_of
from drive.labelled_sides import EveryBox, Held, Ours, Side
from drive.truth import Truth, pairs

#: Makes a side in a new folder.
Makes = Callable[[Path], Side]
#: Where there is no place to be wrong about.
_NOWHERE: dict[str, float | None] = {"error_median_m": None, "error_95_m": None}


def studied(passed: Iterator[Moment], sees: Sees, others: Mapping[str, Makes]) -> dict[str, Any]:
    """See a sequence, give it to every side, and judge them by what its labels say of the boxes.

    Things are the labelled ones that boxes were of, and last seen is the last of these.

    Args:
        passed: of :func:`drive.labelled_seen.moments`.
        sees: what is seen in them.
        others: sides beside ours, one that keeps every box and one that keeps the newest.

    Returns:
        Plain numbers: what was seen, and of each side its figures.
    """
    seen = list(seen_of(passed, sees))
    truth, identities, labelled = Truth(), [], set[int]()
    for one in seen:
        keys = _identities(one)
        identities += keys
        # What no side was shown, none can know.
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
        makes: dict[str, Makes] = {
            "ours": Ours,
            "everything": EveryBox,
            "latest": lambda folder: EveryBox(folder, most=figures["sides"]["ours"]["memories"]),
            **others,
        }
        for number, (name, make) in enumerate(makes.items()):
            side = make(Path(scratch) / f"{number}")
            started = time.perf_counter()
            side.remember(seen)
            took_s = time.perf_counter() - started
            questions = asked_of(truth)
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


def _identities(one: Seen) -> list[int | None]:
    """Of each sight, the labelled thing of its label that is nearest, each once; ``None``: a false alarm."""
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
    """Things that were seen often enough."""
    return [key for key, sights in truth.sights.items() if len(sights) >= LEAST_SIGHTS * len(truth.days)]


def _permanence(
    held: Sequence[Held],
    owners: Sequence[Hashable | None],
    identities: Sequence[int | None],
    truth: Truth,
) -> dict[str, Any]:
    """How memories and labelled things go together.

    A memory is of the thing that most of its sights are of. A thing that drives may have one of each pass:
    nobody knows it again.

    Returns:
        ``one``: share of the things that have one memory and no more; ``split``: memories too many of a
        thing; ``joined``: things without a memory whose sights are in that of another; ``lost``: those whose
        sights are in none; ``false``: memories of nothing.
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
    """The labelled thing that most sights of each memory are of; ``None`` where they are of none."""
    votes: dict[Hashable, Counter[int | None]] = defaultdict(Counter)
    for owner, key in zip(owners, identities, strict=True):
        if owner is not None:
            votes[owner][key] += 1
    return {owner: counts.most_common(1)[0][0] for owner, counts in votes.items()}


def _position_error(
    held: Sequence[Held],
    owners: Sequence[Hashable | None],
    identities: Sequence[int | None],
    truth: Truth,
) -> dict[str, Any]:
    """Metres from the places of memories to the means of labels, of things that stand."""
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


def _answers(side: Side, questions: Sequence[About]) -> dict[str, Any]:
    """How many are right, by kind; what was counted, with what there was; and how long an answer takes."""
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
