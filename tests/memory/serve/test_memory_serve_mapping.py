"""The columns of the map: what they say is what the store holds, whole or by changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memory.serve.routes.map_points import MapColumns
from memory.store import MemoryStore
from memory.types import Memory

START = 1_700_000_000 * 10**9


def read(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the columns, with the strings in place of their codes."""
    length = int(np.frombuffer(body, "<u4", 1)[0])
    header = json.loads(body[4 : 4 + length])
    columns: dict[str, Any] = {
        each["name"]: np.frombuffer(body, each["type"], each["length"], each["at"])
        for each in header["columns"]
    }
    assert all(each["at"] % 8 == 0 for each in header["columns"])
    for axis, name in enumerate("xy"):
        columns[name] = columns[name].astype(np.float64) + header["origin"][axis]
    for name, table in (("map", "maps"), ("label", "labels"), ("kind", "kinds"), ("state", "states")):
        columns[name] = [header[table][code] for code in columns[name]]
    return header, columns


def memories(count: int, seed: int = 0) -> list[Memory]:
    random = np.random.default_rng(seed)
    return [
        Memory(
            time_ns=START + row * 10**9,
            position=tuple(random.uniform(-300, 300, 3)),
            label=f"thing {row % 7}",
            kind="place" if row % 5 == 0 else "object",
            map_id="yard" if row % 3 == 0 else "default",
            state="gone" if row % 4 == 0 else "present",
            count=1 + row % 9,
            importance=None if row % 6 == 0 else float(random.random()),
            marked=row % 11 == 0,
            last_seen_ns=START + (row + 50) * 10**9,
        )
        for row in range(count)
    ]


def rows_of(columns: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    names = ("first", "last", "x", "y", "count", "map", "label", "kind", "state", "marked")
    values = [list(columns[name]) for name in names]
    return {int(id): row for id, *row in zip(columns["id"], *values, strict=True)}


def test_columns_say_what_the_store_holds(make_client: Callable[..., Any], store: MemoryStore) -> None:
    client = make_client()
    given = memories(300)
    ids = store.add(given)
    header, columns = read(client.get("/api/map").content)
    assert (header["base"], header["count"], header["total"]) == (None, 300, 300)
    assert columns["id"].tolist() == ids
    assert columns["label"] == [memory.label for memory in given]
    assert columns["map"] == [memory.map_id for memory in given]
    assert columns["kind"] == [memory.kind for memory in given]
    assert columns["state"] == [memory.state for memory in given]
    np.testing.assert_allclose(columns["x"], [memory.position[0] for memory in given], atol=0.005)
    np.testing.assert_allclose(columns["y"], [memory.position[1] for memory in given], atol=0.005)
    np.testing.assert_array_equal(columns["first"], [memory.time_ns / 1e9 for memory in given])
    np.testing.assert_array_equal(columns["last"], [(memory.last_seen_ns or 0) / 1e9 for memory in given])
    np.testing.assert_array_equal(columns["count"], [memory.count for memory in given])
    np.testing.assert_array_equal(columns["marked"], [memory.marked for memory in given])
    expected = [np.nan if memory.importance is None else memory.importance for memory in given]
    np.testing.assert_allclose(columns["importance"], expected, rtol=1e-6)
    assert dict(zip(header["maps"], header["map_counts"], strict=True)) == {"yard": 100, "default": 200}


@pytest.mark.parametrize("known", [0, 1, 3])
def test_memories_at_no_known_place_are_told_without_one(
    make_client: Callable[..., Any], store: MemoryStore, known: int
) -> None:
    given = memories(known) + [Memory(time_ns=START, kind="note", label="mug") for _ in range(2)]
    ids = store.add(given)
    header, columns = read(make_client().get("/api/map").content)
    assert (header["total"], columns["id"].tolist()) == (known + 2, ids)
    assert np.isnan([columns["x"][known:], columns["y"][known:]]).all()
    # Unknown places widen no column: what is known stays exact in single precision.
    kinds = {each["name"]: each["type"] for each in header["columns"]}
    assert kinds["x"] == ("float32" if known else "float64")
    np.testing.assert_allclose(columns["x"][:known], [each.place[0] for each in given[:known]], atol=0.005)


def test_an_empty_store_has_empty_columns(make_client: Callable[..., Any]) -> None:
    header, columns = read(make_client().get("/api/map").content)
    assert (header["count"], header["maps"], header["labels"]) == (0, [], [])
    assert all(len(column) == 0 for column in columns.values())


@pytest.mark.parametrize("map_id", [None, "yard"])
def test_changes_lead_to_the_same_as_everything(
    make_client: Callable[..., Any], store: MemoryStore, map_id: str | None
) -> None:
    client = make_client()
    wanted: dict[str, str] = {} if map_id is None else {"map_id": map_id}
    ids = store.add(memories(120))
    header, columns = read(client.get("/api/map", params=wanted).content)
    known = rows_of(columns)
    operations: list[Callable[[], Any]] = [
        lambda: store.forget(ids[10:20]),
        lambda: store.mark(ids[30:33], "moved"),
        lambda: store.add(memories(40, seed=1)),
        lambda: store.undo(2),
        lambda: store.forget([ids[40]]),
        lambda: store.add([Memory(time_ns=START, label="mug", map_id="yard")]),
        lambda: store.repose([161], [(4.0, 5.0, 0.0)], [0.0]),
        lambda: store.undo(store.generation),
        lambda: None,
    ]
    for operation in operations:
        operation()
        answer = client.get("/api/map", params=wanted | {"since": header["version"]})
        before = header
        header, columns = read(answer.content)
        assert header["base"] == before["version"]
        assert len(columns["id"]) <= 40
        for id in columns["removed"].tolist():
            known.pop(int(id), None)
        known.update(rows_of(columns))
        _, whole = read(client.get("/api/map", params=wanted).content)
        assert {id: row[4:] for id, row in known.items()} == {
            id: row[4:] for id, row in rows_of(whole).items()
        }
        for id, row in rows_of(whole).items():
            np.testing.assert_allclose(known[id][:4], row[:4], atol=0.005)


def test_a_version_that_is_not_known_gets_everything(
    make_client: Callable[..., Any], store: MemoryStore
) -> None:
    store.add(memories(5))
    version = read(make_client().get("/api/map").content)[0]["version"]
    other = make_client()
    for since in (version, "x", "x-1", "-", version.split("-")[0] + "-99999", "-1", "é-1"):
        header, columns = read(other.get("/api/map", params={"since": since}).content)
        assert (header["base"], len(columns["id"])) == (None, 5), since
    own = read(other.get("/api/map").content)[0]["version"].split("-")[0]
    assert read(other.get("/api/map", params={"since": f"{own}-99"}).content)[0]["base"] is None


def test_the_last_seen_of_many(make_client: Callable[..., Any], store: MemoryStore) -> None:
    ids = store.add(memories(50))
    client = make_client()
    header, columns = read(client.get("/api/map?most=7").content)
    assert (header["count"], header["total"], columns["id"].tolist()) == (7, 50, ids[-7:])
    for wrong in ("most=0", "most=1000000", "most=x", "map_id=%00"):
        assert client.get(f"/api/map?{wrong}").status_code == 422, wrong


def test_compressed_where_it_pays_and_not_sent_twice(
    make_client: Callable[..., Any], store: MemoryStore
) -> None:
    client = make_client()
    store.add(memories(3))
    assert "content-encoding" not in client.get("/api/map").headers
    store.add(memories(1000))
    plain = client.get("/api/map", headers={"accept-encoding": "identity"})
    packed = client.get("/api/map", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
    again = client.get("/api/map", headers={"if-none-match": plain.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    store.forget([1])
    assert client.get("/api/map", headers={"if-none-match": plain.headers["etag"]}).status_code == 200


def test_places_far_apart_stay_exact(make_client: Callable[..., Any], store: MemoryStore) -> None:
    places = [(5_000_000.125, 1e300), (5_000_100.25, -1e300)]
    store.add([Memory(time_ns=1, position=(x, y, 0.0)) for x, y in places])
    _, columns = read(make_client().get("/api/map").content)
    assert columns["x"].tolist() == [x for x, _ in places]
    assert columns["y"].tolist() == [y for _, y in places]


def test_a_token_is_needed_where_the_service_has_one(
    make_client: Callable[..., Any], store: MemoryStore
) -> None:
    client = make_client(token="open sesame")
    assert client.get("/api/map").status_code == 401
    assert client.get("/api/map", headers={"authorization": "Bearer open sesame"}).status_code == 200


@pytest.mark.slow
def test_a_hundred_thousand_are_a_few_megabytes(store: MemoryStore) -> None:
    for seed in range(10):
        store.add(memories(10_000, seed=seed))
    columns = MapColumns(store.database)
    plain = columns.answer(map_id=None, since=None, limit=200_000, compress=False)
    packed = columns.answer(map_id=None, since=None, limit=200_000, compress=True)
    assert len(plain.body) < 48 * 100_000 + 4096
    assert len(packed.body) < 0.75 * len(plain.body)
    store.forget([5])
    change = columns.answer(map_id=None, since=plain.version, limit=200_000, compress=True)
    assert len(change.body) < 4096
