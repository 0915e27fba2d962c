"""Memories whose position nobody gave: at no place, and never at the origin of the map."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory import Filter, Memory, MemoryStore, Query
from memory.cli import main
from memory.exchange.geojson import Origin, write_geojson
from memory.exchange.records import memory_from_record, record_of
from memory.merging import propose_merges
from memory.picture import draw_map
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.reading.understanding import understand
from memory.questions.replying import reply

HOUR = 3600 * 10**9


@pytest.fixture
def store(location: Path | str) -> Iterator[MemoryStore]:
    """A note without a place, and a cup at the origin and elsewhere."""
    with MemoryStore.open(location, dim=2) as opened:
        opened.add(
            [
                Memory(time_ns=HOUR, kind="note", label="mug", yaw=0.5),
                Memory(time_ns=HOUR, label="cup", position=(0.0, 0.0, 0.0), covariance=np.eye(3)),
                Memory(time_ns=HOUR, label="cup", position=(9.0, 0.0, 0.0)),
            ]
        )
        yield opened


def test_it_is_stored_and_read_as_unknown(store: MemoryStore, location: Path | str) -> None:
    note, origin, _ = store.get([1, 2, 3])
    assert (note.position, note.yaw, origin.position) == (None, 0.5, (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="position of memory 1 is not known"):
        _ = note.place
    assert store.check().ok
    store.undo(store.forget([1]))
    assert store.get([1])[0].position is None
    store.close()
    with MemoryStore.open(location, readonly=True) as reader:
        assert reader.get([1])[0] == note


def test_no_place_finds_it(store: MemoryStore) -> None:
    everywhere = (-1e9, -1e9, 1e9, 1e9)
    for where in (
        Filter(circle=(0.0, 0.0, 1e9)),
        Filter(box=everywhere),
        Filter(polygon=[(-99.0, -99.0), (99.0, -99.0), (0.0, 99.0)]),
    ):
        assert {memory.id for memory in store.find(where)} == {2, 3}
        assert store.count(where) == 2
        assert {hit.memory.id for hit in store.query(Query(where=where))} == {2, 3}
    near = store.query(Query(near=(0.0, 0.0), order="distance", k=9))
    assert [hit.memory.id for hit in near] == [2, 3]
    by_words = store.query(Query(text="mug", near=(0.0, 0.0)))
    assert [(hit.memory.id, "distance_m" in hit.parts) for hit in by_words] == [(1, False)]


def test_it_gets_a_position_later(store: MemoryStore) -> None:
    moved = store.repose([1], [(4.0, 0.0, 0.0)], [0.0])
    assert store.get([1])[0].position == (4.0, 0.0, 0.0)
    assert {memory.id for memory in store.find(Filter(circle=(4.0, 0.0, 1.0)))} == {1}
    store.undo(moved)
    assert store.get([1])[0].position is None


def test_nobody_drives_to_it(store: MemoryStore) -> None:
    ask = Questions(store)
    found = ask.pose_to("mug")
    assert (found.memory, found.position) == (None, None)
    assert "the position of mug (memory 1) is not known" in str(found)
    assert "at an unknown place" in str(ask.last_seen("mug"))
    assert ask.still_there("mug").state == "unknown"
    assert ask.near((0.0, 0.0), 1e6).total == 2
    for question in ("what is near the mug?", "where is the cup near the mug?", "go to the cup by the mug"):
        with pytest.raises(QuestionError, match="position of mug"):
            reply(ask, understand(question, HOUR))


@pytest.mark.parametrize("first_is_placed", [True, False])
def test_what_is_like_it_was_seen_before_by_its_look(tmp_path: Path, first_is_placed: bool) -> None:
    place = (3.0, 1.0, 0.0)
    where = (place, None) if first_is_placed else (None, place)
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        given = [
            Memory(time_ns=at * HOUR, label="mug", position=each, embedding=np.array([1.0, 0.1]))
            for at, each in enumerate(where)
        ]
        store.add(given)
        found = Questions(store).seen_before(2)
        assert [hit.memory.id for hit in found.hits] == [1], str(found)
        assert found.visits == 1
        assert str(found).startswith("Yes")


def test_things_at_unknown_places_are_not_one() -> None:
    notes = [Memory(id=at, time_ns=at, label="cup") for at in (1, 2)]
    assert propose_merges(notes) == []


def test_observed_without_a_place_it_is_compared_by_its_look(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "observed", dim=2) as store:
        for at in range(3):
            store.observe([Memory(time_ns=at, label="mug")])
        assert len(store) == 3, "nothing says that they are one"
        for at in range(3):
            store.observe([Memory(time_ns=at, label="cup", embedding=np.array([1.0, 0.0]))])
        assert len(store.find(Filter(labels=["cup"]))) == 1


def test_it_leaves_and_comes_as_unknown(tmp_path: Path) -> None:
    note = Memory(time_ns=5, label="mug")
    assert "position" not in record_of(note)
    assert memory_from_record(record_of(note)) == note
    text = io.StringIO()
    write_geojson(text, [[note]], origin=Origin(48.0, 11.0))
    (feature,) = json.loads(text.getvalue())["features"]
    assert feature["geometry"] is None
    draw_map(tmp_path / "map.png", [note], title="nowhere")
    folder = str(tmp_path / "store")
    assert main(["init", folder, "--dim", "2"]) == 0
    assert main(["add", folder, "--label", "mug"]) == 0
    assert main(["query", folder, "--text", "mug"]) == 0
    for name in ("out.jsonl", "out.geojson", "out.parquet"):
        assert main(["export", folder, str(tmp_path / name)]) == 0
        if not name.endswith("geojson"):
            copy = str(tmp_path / f"copy-{name}")
            assert main(["init", copy, "--dim", "2"]) == 0
            assert main(["import", copy, str(tmp_path / name)]) == 0
            with MemoryStore.open(copy, readonly=True) as store:
                assert store.get([1])[0].position is None


def test_a_covariance_needs_a_position() -> None:
    with pytest.raises(ValueError, match="covariance needs a position"):
        Memory(time_ns=0, covariance=np.eye(3))
