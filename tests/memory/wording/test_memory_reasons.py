"""Reasons are values: said in words once, kept as JSON without names, and old sentences stay readable."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.config import ReservoirConfig, StoreConfig
from memory.errors import StoreVersionError
from memory.persistence.sqlite.database import SqliteDatabase
from memory.store import MemoryStore
from memory.types import Memory
from memory.wording.reasons import (
    FirstReason,
    FixedReason,
    ForgettingReason,
    FreeText,
    MergeReason,
    NoveltyReason,
    RankReason,
    Reason,
    ScoreReason,
    in_words,
    reason_of,
)

STORES = Path(__file__).parents[1] / "persistence" / "stores"
WORTH: dict[str, Any] = {"half_life_s": 86_400.0, "value": 0.5, "unused_s": 7200.0, "uses": 3}
REASONS: list[tuple[Reason, str]] = [
    (FreeText(text="the owner asked"), "the owner asked"),
    (FirstReason(thing="Secret"), "the first of its kind at this place"),
    (FixedReason(sort="first vector"), "the first with an embedding at this place"),
    (FixedReason(sort="again"), "a new event at this place"),
    (FixedReason(sort="marked"), "marked by the user"),
    (FixedReason(sort="track"), "a track with all observations of an object"),
    (FixedReason(sort="displaced"), "replaced by a more important one"),
    (
        FixedReason(sort="gave way"),
        "replaced by more important observations of the same place and time",
    ),
    (NoveltyReason(similarity=0.256), "not similar to any unique memory at this place, similarity 0.26"),
    (RankReason(sort="room", seen=9, room=2), "of 9 at this place and time, 2 are kept, and there is room"),
    (
        RankReason(sort="more", seen=9, room=2, than=7),
        "of 9 at this place and time, 2 are kept; it is more important than memory 7",
    ),
    (
        RankReason(sort="more", seen=9, room=2),
        "of 9 at this place and time, 2 are kept; it is more important than one that came just before it",
    ),
    (
        RankReason(sort="less", seen=9, room=2, similarity=0.9),
        "similar to a kept one, similarity 0.90; of 9 at this place and time, 2 are kept, and others are"
        " more important",
    ),
    (
        ScoreReason(total=0.8, parts={"novelty": (1.0, 0.5), "uncertainty": (0.1, 0.3)}),
        "importance 0.80; nothing similar is known here (+0.50); the detector was almost sure, uncertainty"
        " 0.10 (+0.30)",
    ),
    (
        ForgettingReason(
            sort="full", policy="frequency", keep_value=3.0, held=9, most=8, map_id="Secret", **WORTH
        ),
        "its map has 9 memories, its capacity is 8: used 3 times",
    ),
    (
        ForgettingReason(sort="faded", policy="decay", keep_value=0.25, least=0.3, map_id="Secret", **WORTH),
        "its keep-value is below 0.3: decayed to 0.25, not used for 2.0 hours, half-life 24.0 hours",
    ),
    (
        MergeReason(
            memories=2, kind="object", deviations=1.4142, similarity=0.9, label="Secret", map_id="Secret"
        ),
        "2 memories of kind object within 1.41 standard deviations of one place, similarity at least 0.90",
    ),
    (
        MergeReason(memories=3, kind="object", deviations=0.0, came_back=True),
        "3 memories of kind object within 0.00 standard deviations of one place; it was gone and came back",
    ),
]


@pytest.mark.parametrize(("reason", "words"), REASONS, ids=[words[:40] for _, words in REASONS])
def test_the_log_has_a_reason_without_names(reason: Reason, words: str) -> None:
    text = json.dumps(reason.to_json())
    assert "Secret" not in text
    logged = json.loads(text)
    assert str(reason_of(logged)) == in_words(logged) == words
    assert reason_of(logged).to_json() == logged


def test_with_names_while_the_memory_is_there() -> None:
    assert str(FirstReason(thing="Car")) == "the first Car at this place"
    full = ForgettingReason(sort="full", policy="lru", keep_value=1.0, held=2, most=1, map_id="home", **WORTH)
    assert str(full) == "map 'home' has 2 memories, its capacity is 1: not used for 2.0 hours"
    same = MergeReason(memories=2, kind="object", deviations=1.0, label="Cup", map_id="home")
    assert "kind object and label 'Cup' within" in str(same)
    assert str(same).endswith("of one place in map 'home'")


@pytest.mark.parametrize("said", ["", "tidy", 7, {"sort": "none"}, {"sort": "first", "name": 1}, {"a": 1}])
def test_what_is_no_reason_is_somebodys_words(said: Any) -> None:
    assert reason_of(said) == FreeText(text=str(said))


def test_no_reason_is_no_words() -> None:
    assert in_words(None) == ""


def numbers(value: Any) -> Iterator[float]:
    """All numbers of JSON, and those that its texts name."""
    if isinstance(value, dict):
        yield from numbers(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, str):
        yield from map(float, re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", re.sub(r"\d+-\d+-\d+", "", value)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


@pytest.mark.parametrize("seed", range(5))
def test_a_provisional_key_is_never_seen(tmp_path: Path, seed: int) -> None:
    """Whatever gives way in whatever batch: the log, its words and what is told have ids of memories only."""
    random = np.random.default_rng(seed)
    config = StoreConfig(reservoir=ReservoirConfig(share=0.0, least=2, window_s=1e9))
    vectors = np.eye(4, dtype=np.float32)
    with MemoryStore.open(tmp_path, dim=4, config=config) as store:
        displaced_new = 0
        for batch in range(8):
            memories = [
                Memory(
                    time_ns=100 * batch + row,
                    label="Secret",
                    map_id="Secret",
                    position=(1.0, 1.0, 0.0),
                    confidence=0.95 - 0.015 * (6 * batch + row) + float(random.uniform(-0.03, 0.03)),
                    embedding=vectors[int(random.integers(0, 2))],
                )
                for row in range(6)
            ]
            told = store.observe_logged(memories, detail={"batch": batch})
            displaced_new += sum(kept.why.sort == "displaced" for kept in told.kept)
            for kept in told.kept:
                assert min(numbers(kept.reason), default=0.0) >= 0.0, kept.reason
                assert kept.like is None or kept.like > 0
        assert displaced_new, "nothing was displaced before it had an id"
        for entry in store.log():
            assert min(numbers(entry.detail), default=0.0) >= 0.0, entry.detail
            assert min(numbers(entry.readable_detail()), default=0.0) >= 0.0, entry.readable_detail()
            assert "Secret" not in json.dumps([entry.detail, entry.readable_detail()])
            for id in entry.added:
                found = store.explain(id)
                assert min(numbers([*found.reasons, *(what for _, _, what in found.history)])) >= 0.0


def test_the_sentences_of_a_store_of_version_3_stay(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(gzip.decompress((STORES / "version_3.db.gz").read_bytes()))
    with pytest.raises(StoreVersionError, match="for writing"):
        SqliteDatabase.open(tmp_path, readonly=True)
    with MemoryStore.open(tmp_path) as store:
        assert store.check().ok
        details = [what for id in range(1, 12) for _, _, what in store.explain(id).history]
        assert details[0] == (
            "the first of its kind at this place; importance 0.70; nothing like it is known here (+0.50);"
            " its class is rare, rarity 1.00 (+0.20)"
        )
        assert "displaced by more important observations of the same place and time" in details
        assert (
            "merged from 6, 7: 2 memories of kind object within 0.24 standard deviations of one place,"
            " similarity at least 1.00"
        ) in details
        assert any(what.startswith("its map holds 5 of at most 4: value 0.50") for what in details)
        assert details[-1] == "gone since 1970-01-01 16:40:00 UTC, present before: the shelf was empty"
        assert isinstance(store.log()[0].detail["kept"][0], str)
        # Old and new stand beside each other.
        store.observe([Memory(time_ns=1, label="cup", position=(500.0, 0.0, 0.0))])
        assert store.log()[-1].detail["kept"][0][0] == {"sort": "first"}
        assert store.explain(12).history[0][2].startswith("the first of its kind at this place; importance")
        store.undo(7)
        store.undo(5)
        assert [memory.label for memory in store.get([6, 7])] == ["key", "key"]
