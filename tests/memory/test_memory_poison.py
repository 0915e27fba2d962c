"""Nothing that is accepted makes later operations, or reading, impossible."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.cli import main
from memory.errors import UndoError
from memory.exchange.records import memory_from_record, record_of
from memory.merging.fusion import fuse
from memory.merging.visits import join_visits
from memory.persistence.log import journal
from memory.query import Filter, Query
from memory.questions import Questions
from memory.serve.errors import ServiceError
from memory.serve.openapi.requests import AddBody, memories_of
from memory.serve.options import ServeOptions
from memory.serve.reading import Reading
from memory.store import MemoryStore
from memory.types import MOST_COUNT, MOST_COVARIANCE, MOST_DEPTH, Memory, Visit

NAN, INF, LARGEST = float("nan"), float("inf"), float(np.finfo(np.float64).max)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    # Where there is memory to write to, nothing waits for a disk.
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path))
    with MemoryStore.open(folder, dim=3) as opened:
        yield opened
    shutil.rmtree(folder)


def nested(depth: int) -> dict[str, Any]:
    found: Any = 1
    for level in range(depth - 1):
        found = [found] if level % 2 else {"in[{": found}
    return {"deep": found}


def everything_works(store: MemoryStore) -> None:
    """Each sort of operation and of reading, once."""
    memories = store.find(Filter())
    for query in (Query(), Query(text="cup"), Query(near=(0.0, 0.0), radius_m=2.0), Query(labels=["cup"])):
        store.query(query)
    questions = Questions(store)
    for asked in (questions.last_seen("cup"), questions.how_often("cup"), questions.summarise()):
        json.dumps(asked.to_json(), allow_nan=False)
        assert str(asked)
    for memory in memories:
        record = json.loads(json.dumps(record_of(memory), allow_nan=False))
        assert memory_from_record(record).count == memory.count
        store.explain(memory.id or 0)
    new = store.add([Memory(time_ns=1)])
    store.mark(new, "gone")
    generation = store.forget(new)
    store.undo(generation)
    store.undo(generation + 1)
    store.flush()
    store.consolidate(now_ns=2)


def test_what_is_out_of_range_is_refused() -> None:
    for wrong in (
        {"importance": -5.0}, {"importance": INF}, {"importance": NAN}, {"importance": 1.0001},
        {"count": MOST_COUNT + 1}, {"count": 2**63 - 1}, {"reward": INF},
        {"visits": [(0, 1, MOST_COUNT + 1)]}, {"covariance": np.eye(3) * 2 * MOST_COVARIANCE},
        {"covariance": np.eye(3) * LARGEST},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Memory(time_ns=0, **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="importance"):
        Memory(time_ns=0, importance="much")  # type: ignore[arg-type]


def test_counts_stay_whole_numbers_of_64_bits(store: MemoryStore) -> None:
    most = Memory(time_ns=0, label="cup", count=MOST_COUNT, embedding=np.ones(3, np.float32))
    for _ in range(3):
        store.observe([most])
        store.flush()
    (memory,) = store.find(Filter())
    assert memory.count == MOST_COUNT
    everything_works(store)
    assert join_visits([Visit(0, 1, MOST_COUNT), Visit(0, 1, MOST_COUNT)]) == (Visit(0, 1, MOST_COUNT),)


def test_rewards_and_counts_that_add_up_to_more_than_there_is(store: MemoryStore) -> None:
    one = Memory(
        time_ns=0, position=(0, 0, 0), label="cup", reward=1.7e308, count=2**52 + 1, embedding=np.ones(3)
    )
    store.add([one, one, one])
    done = store.consolidate(now_ns=1)
    assert len(done.merged) == 1
    assert done.failed == {}
    (memory,) = store.find(Filter())
    assert (memory.reward, memory.count) == (pytest.approx(1.7e308, rel=1e-12), MOST_COUNT)
    everything_works(store)
    opposite = [Memory(time_ns=at, reward=sign * LARGEST) for at, sign in enumerate((1.0, -1.0))]
    assert fuse(opposite).reward == 0.0
    assert fuse([Memory(time_ns=0, reward=LARGEST)] * 3).reward == LARGEST


def test_one_that_cannot_be_merged_does_not_stop_the_others(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        Memory(time_ns=at, position=(0, 0, 0), label=label)
        for label in ("bad", "cup", "door")
        for at in range(2)
    ]
    store.add(rows)

    def refuse(memories: Any, **named: Any) -> Memory:
        if memories[0].label == "bad":
            raise ValueError("reward must be finite")
        return fuse(memories, **named)

    monkeypatch.setattr("memory.merging.proposals.fuse", refuse)
    done = store.consolidate(now_ns=1)
    assert [sources for _, sources in done.merged] == [(3, 4), (5, 6)]
    assert done.failed == {(1, 2): "reward must be finite"}
    assert {memory.id for memory in store.find(Filter())} == {1, 2, 7, 8}
    store.close()
    assert main(["consolidate", str(store.folder)]) == 0
    assert "memories 1, 2 were not merged: reward must be finite" in capsys.readouterr().out


def test_payloads_are_nested_as_deep_as_can_be_handed_on(store: MemoryStore) -> None:
    store.add([Memory(time_ns=0, payload=nested(MOST_DEPTH))])
    store.add([Memory(time_ns=0, payload={"flat": [[1], {"text": "[{" * 100 + '\\"' * 100}] * 100})])
    for depth in (MOST_DEPTH + 1, 700, 5000):
        with pytest.raises(ValueError, match=f"payload must be nested at most {MOST_DEPTH} deep"):
            store.add([Memory(time_ns=0, payload=nested(depth))])
    everything_works(store)


def test_payloads_are_text_that_can_be_written_elsewhere(store: MemoryStore) -> None:
    kept = {"\U0001f600": "\U0001f600", "\\ud800": "\\ud83d\\ude00"}
    store.add([Memory(time_ns=0, payload=kept)])
    for wrong in ({"a": "\ud800"}, {"\udfff": 1}, {"a": [{"b": "x\ud83d"}]}):
        with pytest.raises(ValueError, match="payload must be valid JSON"):
            store.add([Memory(time_ns=0, payload=wrong)])
    assert store.find(Filter())[0].payload == kept
    everything_works(store)


def unchecked(**values: Any) -> Memory:
    """A memory as earlier releases took it."""
    made = Memory(time_ns=0, label="cup", embedding=np.ones(3, np.float32))
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def test_what_earlier_releases_accepted_is_read(
    store: MemoryStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = nested(700)
    old = [
        unchecked(count=2**63 - 1, importance=-5.0),
        unchecked(importance=INF),
        unchecked(reward=1.7e308),
        unchecked(payload=deep),
        unchecked(visits=(Visit(0, 1, 2**63 - 1),), count=2, covariance=np.diag([INF] * 3)),
    ]
    with monkeypatch.context() as patch:
        patch.setattr("memory.persistence.rows.MOST_DEPTH", 1000)
        store.add(old)
    found = {memory.id: memory for memory in store.find(Filter())}
    assert (found[1].count, found[1].importance) == (MOST_COUNT, 0.0)
    assert found[2].importance == 1.0
    assert json.loads(found[4].payload["nested_too_deeply"]) == deep
    assert found[5].visits == (Visit(0, 1, MOST_COUNT),)
    assert found[5].covariance is None
    everything_works(store)
    assert store.check().ok
    store.close()
    assert main(["query", str(store.folder), "--json"]) == 0
    json.loads(capsys.readouterr().out, parse_constant=lambda word: 1 / 0)


def test_encoders_that_nothing_uses_make_room(store: MemoryStore) -> None:
    vectors = {f"encoder {number}": np.ones(4, np.float32) for number in range(63)}
    (full,) = store.add([Memory(time_ns=0, embedding=np.ones(3), embeddings=vectors)])
    store.query(Query(embedding=np.ones(4), encoder="encoder 5"))
    with pytest.raises(ValueError, match="'another'"):
        store.add([Memory(time_ns=0, embeddings={"another": np.ones(5, np.float32)})])
    generation = store.forget([full])
    (kept,) = store.add([Memory(time_ns=0, embeddings={"another": np.ones(5, np.float32)})])
    assert store.encoders() == {"default": 3, "another": 5}
    assert [hit.memory.id for hit in store.query(Query(embedding=np.ones(5), encoder="another"))] == [kept]
    # One place is taken: the operation cannot be taken back, and says so; when there is room it can.
    store.add([Memory(time_ns=0, embeddings={"encoder 5": np.ones(2, np.float32)})])
    assert len(store.query(Query(embedding=np.ones(2), encoder="encoder 5"))) == 1
    with pytest.raises(UndoError, match="no longer fit"):
        store.undo(generation)
    store.forget([kept, kept + 1], secure=True)
    store.add([Memory(time_ns=0, embeddings={f"new {number}": np.ones(2)}) for number in range(62)])
    store.forget(range(kept + 2, kept + 64), secure=True)
    assert store.check().ok
    everything_works(store)


def test_a_request_brings_few_new_encoders() -> None:
    record = {"time_ns": 1, "embeddings": {f"encoder {number}": [1.0] for number in range(9)}}
    body = AddBody.model_validate({"memories": [record]})
    with pytest.raises(ServiceError, match="new encoders: at most 8"):
        memories_of(body, ServeOptions(), {"default": 3})
    known = {f"encoder {number}": 1 for number in range(9)}
    assert len(memories_of(body, ServeOptions(), known)) == 1


def test_undos_of_undos_without_end(store: MemoryStore, request: pytest.FixtureRequest) -> None:
    # More than functions may call each other.
    last = 420
    request.addfinalizer(partial(sys.setrecursionlimit, sys.getrecursionlimit()))
    sys.setrecursionlimit(last - 20)
    store.add([Memory(time_ns=0, label="cup")])
    for generation in range(1, last + 1):
        assert store.undo(generation) == generation + 1
    assert len(store) == 1
    with pytest.raises(UndoError, match="already undone"):
        store.undo(last)
    # What an even number took back stands again.
    with store.database._read() as connection:
        assert journal.undone_after(connection, 0) == set(range(last, 0, -2))
        assert [journal.is_undone(connection, number) for number in (1, 2, last, last + 1)] == [
            False, True, True, False,
        ]  # fmt: skip
    # The log of the service, and what its events are made of.
    operations = Reading(store.database).operations(0, 2000)
    assert [each.undone for each in operations] == [row % 2 == 1 for row in range(last + 1)]
    assert len(store.explain(1).history) == last + 1


@pytest.mark.parametrize("write", [lambda s: s.observe, lambda s: s.add], ids=["observe", "add"])
def test_extremes_of_everything(
    store: MemoryStore, write: Callable[[MemoryStore], Callable[[Any], Any]]
) -> None:
    rng = np.random.default_rng(0)
    choices: dict[str, list[Any]] = {
        "time_ns": [-(2**63), 2**63 - 1, 0, 1],
        "position": [(LARGEST, -LARGEST, LARGEST), (0, 0, 0), (1e-320, 0, 0), (-LARGEST, LARGEST, 0)],
        "yaw": [LARGEST, 0.0, -5e-324],
        "covariance": [None, np.eye(3) * MOST_COVARIANCE, np.zeros((3, 3)), np.eye(3) * 1e-300,
                       np.full((3, 3), MOST_COVARIANCE)],
        "label": ["cup", ""],
        "embedding": [None, np.full(3, 3e38), np.full(3, 1e-38), np.array([1, 0, 0])],
        "reward": [LARGEST, -LARGEST, 0.0],
        "count": [1, MOST_COUNT],
        "first_seen_ns": [None, -(2**63), 2**63 - 1],
        "last_seen_ns": [None, -(2**63), 2**63 - 1],
        "visits": [(), ((-(2**63), -1, MOST_COUNT), (5, 2**63 - 1, MOST_COUNT))],
        "importance": [None, 0.0, 1.0],
        "confidence": [0.0, 1.0],
        "marked": [False, True],
    }  # fmt: skip
    rows = [
        Memory(**{name: values[rng.integers(len(values))] for name, values in choices.items()})
        for _ in range(60)
    ]
    for start in range(0, 60, 20):
        write(store)(rows[start : start + 20])
        everything_works(store)
    assert store.check().ok
