"""Filters and word search against a loop over plain Python values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory.persistence.sqlite import places, poses, search
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory

DIM = 8
Rows = Callable[..., list[Memory]]


def matches(row: Memory, query: Filter) -> bool:
    """The filter by a loop over plain values."""
    x, y, _ = row.position
    words = f"{row.label} {row.caption}".lower().replace("é", "e").split()
    tests = [
        query.text is None or all(word.lower().replace("é", "e") in words for word in query.text.split()),
        query.between_ns is None or query.between_ns[0] <= row.time_ns <= query.between_ns[1],
        query.labels is None or row.label in query.labels,
        query.kinds is None or row.kind in query.kinds,
        query.states is None or row.state in query.states,
        query.map_id is None or row.map_id == query.map_id,
        query.marked is None or row.marked == query.marked,
        query.moving is None or row.moving is query.moving,
        row.confidence >= query.min_confidence,
        query.box is None or (query.box[0] <= x <= query.box[2] and query.box[1] <= y <= query.box[3]),
        query.circle is None or np.hypot(x - query.circle[0], y - query.circle[1]) <= query.circle[2],
        # The only polygon that is asked for is the triangle below the diagonal of a square.
        query.polygon is None or (-5 <= x <= 5 and -5 <= y <= x),
    ]
    return all(tests)


FILTERS = [
    Filter(),
    Filter(text="red chair"),
    Filter(text="CAFE cat"),
    Filter(text="red", labels=["cup"], box=(-5, -5, 5, 5)),
    Filter(between_ns=(100, 300)),
    Filter(between_ns=(100, 900), labels=["cup", "car"], map_id="home"),
    Filter(labels=["cat"], kinds=["place", "note"]),
    Filter(labels=[]),
    Filter(labels=[str(number) for number in range(300)] + ["car"]),
    Filter(states=["gone"], marked=True),
    Filter(moving=True),
    Filter(moving=False, labels=["cup", "car"], map_id="home"),
    Filter(min_confidence=0.7, map_id="work"),
    Filter(box=(0, 0, 3, 4)),
    Filter(circle=(1, 1, 4)),
    Filter(circle=(1, 1, 4), box=(0, 0, 3, 4), kinds=["object"]),
    Filter(box=(0, 0, 1, 1), circle=(9, 9, 1)),
    Filter(polygon=[(-5, -5), (5, -5), (5, 5)]),
    Filter(polygon=[(-5, -5), (5, -5), (5, 5)], text="door", min_confidence=0.2),
    Filter(map_id="nowhere"),
]


#: Where the index over places and the ways of looking change from few to many.
SIZES = {
    "as released": {},
    "all few": {"BROAD": 1e-9, "SCATTERED": 10**6},
    "blocks, all many": {"BROAD": 1e9, "FEW": 1, "PROBES": 0, "STRETCH": 2, "SCATTERED": 0},
    "probes": {"BROAD": 1e9, "FEW": 1, "COUNTED": 2, "STRETCH": 2},
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("query", FILTERS, ids=range(len(FILTERS)))
def test_filters_agree_with_a_loop(
    query: Filter, filled: SqliteDatabase, sizes: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in sizes.items():
        module = next(module for module in (places, poses, search) if hasattr(module, name))
        monkeypatch.setattr(module, name, value)
    rows = filled.get(filled.ids())
    kept = [row for row in rows if matches(row, query)]
    assert filled.ids(query).tolist() == [row.id for row in kept]
    assert filled.count(query) == len(kept)
    newest = sorted(kept, key=lambda row: (-row.time_ns, -row.id))  # type: ignore[operator]
    oldest = sorted(kept, key=lambda row: (row.time_ns, row.id))
    for limit in (None, 3):
        assert filled.ids(query, order="newest", limit=limit).tolist() == [row.id for row in newest][:limit]
        assert filled.ids(query, order="oldest", limit=limit).tolist() == [row.id for row in oldest][:limit]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, rows_of: Rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "TAIL", 100)
        patch.setattr(places, "BLOCK", 8)
        with SqliteDatabase.open(tmp_path_factory.mktemp("filled"), dim=DIM) as opened:
            opened.add(rows_of(430))
            opened.add(rows_of(70, seed=1))
            opened.remove(range(1, 500, 7))
            yield opened


def test_text_is_ranked_and_nothing_in_it_is_syntax(database: SqliteDatabase) -> None:
    captions = [
        "red chair",
        "red red chair by the door",
        "door",
        "chair NOT red",
        'say "label:cup"',
        "x OR y",
    ]
    database.add([Memory(time_ns=0, caption=text, label="cup") for text in captions])
    hits = database.search_text("red chair")
    assert sorted(hits.ids.tolist()) == [1, 2, 4]
    assert (np.diff(hits.scores) <= 0).all()
    assert (hits.scores > 0).any()
    assert set(database.search_text("red door", any_word=True).ids.tolist()) == {1, 2, 3, 4}
    assert database.search_text("chair", Filter(text="door")).ids.tolist() == [2]
    assert database.search_text("red", limit=1).ids.shape == (1,)
    assert database.ids(Filter(text="caption:red")).tolist() == []
    assert database.ids(Filter(text="x OR y")).tolist() == [6]
    assert database.ids(Filter(text='"label:cup"')).tolist() == [5]
    tricks = [
        '"',
        "'",
        'a"b',
        "*",
        "chair*",
        "NEAR(red chair)",
        "-red",
        "^red",
        "(",
        "red)",
        "{zz}:",
        "\\",
        "?",
        "😀",
    ]
    tricks += [
        "'; DROP TABLE memory; --",
        "red AND",
        "+",
        "%",
        "_",
        "",
        " ",
        "\u0301",
        "a\u0301",
        "٣",
        "x" * 100_000,
    ]
    for text in tricks:
        for query in (text, f"{text} red"):
            assert set(database.ids(Filter(text=query)).tolist()) <= {1, 2, 4}
            database.search_text(query, any_word=True)
    assert database.check().ok


def test_of_very_many_that_have_a_word_the_latest_are_compared(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.add([Memory(time_ns=i, caption="red " * (9 - i), label="ab"[i % 2]) for i in range(8)])
    assert database.search_text("red", limit=1).ids.tolist() == [1]
    monkeypatch.setattr(search, "RANKED", 4)
    assert database.search_text("red", limit=1).ids.tolist() == [5]
    assert database.search_text("red", Filter(labels=["b"]), limit=1).ids.tolist() == [2]
    assert database.search_text("red", limit=8).ids.tolist() == list(range(1, 9))
    assert database.search_text("blue").ids.size == 0


def test_sql_and_paths_in_texts_are_just_text(tmp_path: Path) -> None:
    nasty = [
        "'; DROP TABLE memory; --",
        "../../etc/passwd",
        '"',
        "%s?:x",
        "a' OR '1'='1",
        "\n\t",
        "🦊" * 50,
        "NULL",
    ]
    with SqliteDatabase.open(tmp_path / "a ? b#c%20'", dim=DIM) as database:
        for text in nasty:
            row = Memory(
                time_ns=0,
                label=text,
                map_id=text,
                caption=text,
                evidence=text,
                provenance=text,
                payload={text: text},
            )
            (id,) = database.add([row])
            assert database.get([id]) == [dataclasses.replace(row, id=id)]
            assert database.ids(Filter(labels=[text], map_id=text)).tolist() == [id]
            assert database.ids(Filter(labels=[text]), order="newest", limit=1).tolist() == [id]
        assert database.maps() == sorted(nasty, key=str.encode)
        assert database.check().ok
    assert not (tmp_path / "etc").exists()
    with SqliteDatabase.open(tmp_path / "a ? b#c%20'", readonly=True) as database:
        assert database.count() == len(nasty)


def test_scans_give_everything_in_stretches(filled: SqliteDatabase) -> None:
    rows = filled.get(filled.ids())
    after, seen, halves = 0, [], []
    while (part := filled.scan_vectors(after, limit=64)).ids.size:
        seen += part.ids.tolist()
        halves.append(part.halves)
        after = int(part.ids[-1])
    assert seen == [row.id for row in rows]
    stacked = np.concatenate(halves)
    assert stacked.dtype == np.float16
    np.testing.assert_array_equal(stacked.astype(np.float32), np.stack([row.embedding for row in rows]))
    picked = filled.vectors(seen[::-3])
    assert picked.ids.tolist() == seen[::-3]
    np.testing.assert_array_equal(picked.halves, stacked[::-3])
    columns = filled.columns([*seen, 10**9])
    assert columns.ids.tolist() == seen
    assert columns.labels == [row.label for row in rows]
    assert columns.map_ids == [row.map_id for row in rows]
    np.testing.assert_array_equal(columns.positions, [row.position for row in rows])
    np.testing.assert_array_equal(columns.confidence, [row.confidence for row in rows])
    assert np.isnan(columns.importance).all()
    assert filled.scan_columns(after_id=seen[-1]).ids.size == 0
    assert filled.scan_columns(after_id=seen[-1]).positions.shape == (0, 3)
    assert filled.scan_vectors(slot="unknown").ids.size == 0
    assert filled.vectors(seen, slot="unknown").ids.size == 0


def test_numbers_that_single_precision_cannot_hold(database: SqliteDatabase) -> None:
    places = [(16777217.0, 0.1), (1e300, -1e300), (1e-45, 1e-310), (-0.0, 5.0)]
    ids = database.add([Memory(time_ns=0, position=(x, y, 0.0)) for x, y in places])
    for id, (x, y) in zip(ids, places, strict=True):
        assert database.ids(Filter(box=(x, y, x, y))).tolist() == [id]
        assert id in database.ids(Filter(circle=(x, y, 0.0)))
        assert id in database.ids(Filter(polygon=[(x, y), (x, y), (x, y)]))
    assert database.ids(Filter(box=(-1e308, -1e308, 1e308, 1e308))).tolist() == ids
    assert database.ids(Filter(circle=(0, 0, 1e308))).tolist() == ids
    assert database.ids(Filter(box=(16777216.0, 0, 16777216.0, 1))).size == 0
    assert database.check().ok
