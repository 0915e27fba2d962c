"""Every request of the service, on a small store whose answers are known."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest

from memory.config import StoreConfig
from memory.exchange.records import memory_from_record, record_of
from memory.serve import create_app
from memory.serve.openapi.requests import MemoryRecord
from memory.store import MemoryStore
from memory.types import Memory


def ids(answer: Any) -> list[int]:
    return [hit["memory"]["id"] for hit in answer.json()["hits"]]


def test_add_get_and_what_is_given_can_be_added_again(client: Any, store: MemoryStore) -> None:
    found = client.get("/api/memories/2?vectors=true").json()
    assert (found["label"], found["position"], found["time_ns"]) == ("Mug", [1, 2, 0], 1767348000 * 10**9)
    assert client.post("/api/memories", {"memories": [found]}).json() == {"ids": [5]}
    again = client.get("/api/memories/5?vectors=true").json()
    assert again | {"id": 2} == found
    assert "embedding" not in client.get("/api/memories/2").json()
    assert client.post("/api/memories", {"memories": []}).json() == {"ids": []}
    assert len(store) == 5


def test_a_batch_is_stored_whole_or_not_at_all(client: Any, store: MemoryStore) -> None:
    good = {"time_ns": 1, "label": "x"}
    bad: list[tuple[dict[str, Any], str]] = [
        ({"label": "no time"}, "memories[1]"),
        ({"time_ns": 1, "embedding": [1, 2]}, "memories[1]"),
        ({"time_ns": 1, "embedding": [0, 0, 0]}, "memories[1]"),
        ({"time_ns": 1, "confidence": 2}, "memories[1].confidence"),
        ({"time_ns": True}, "memories[1].time_ns"),
        ({"time_ns": 1, "lable": "typo"}, "memories[1].lable"),
        ({"time_ns": 1, "position": [1e999, 0]}, "memories[1].position[0]"),
        ({"time_ns": 1, "label": "\ud800"}, "memories[1]"),
    ]
    for record, field in bad:
        text = json.dumps({"memories": [good, record]}).replace("Infinity", "1e999")
        answer = client.ask(
            "POST", "/api/memories", content=text, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422, record
        assert str(answer.json()["error"]["field"]).startswith(field), answer.text
    assert len(store) == 4


def test_observe_says_what_became_of_each(client: Any) -> None:
    seen = {"time_ns": 10, "label": "Bin", "embedding": [1, 1, 0]}
    body = {"memories": [seen, seen | {"time_ns": 11}], "observe": True}
    answer = client.post("/api/memories", body).json()
    assert answer["ids"] == [each["id"] for each in answer["kept"]]
    assert answer["ids"][0] == 5
    assert answer["kept"][0]["reason"]
    assert answer["generation"] == 2
    assert client.post("/api/memories", {"memories": [seen | {"id": 4}], "observe": True}).status_code == 200


def test_pages_hold_each_memory_once_though_others_come(make_client: Callable[..., Any]) -> None:
    client = make_client()
    # Many of the same time.
    records = [{"time_ns": row // 40, "label": f"{row}"} for row in range(100)]
    assert client.post("/api/memories", {"memories": records}).status_code == 200
    for order in ("newest", "oldest"):
        cursor, found = "", []
        while True:
            page = client.get(f"/api/memories?limit=7&order={order}&total=true{cursor}").json()
            found += [memory["id"] for memory in page["memories"]]
            client.post("/api/memories", {"memories": [{"time_ns": 10**9 if order == "newest" else -5}]})
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        first = [id for id in found if id <= 100]
        key = sorted(range(1, 101), key=lambda id: ((id - 1) // 40, id), reverse=order == "newest")
        assert first == key
        assert len(set(found)) == len(found)
    other = client.get("/api/memories?limit=1").json()["cursor"]
    for wrong in (other, "xyz", "", "%00"):
        assert client.get(f"/api/memories?order=oldest&cursor={wrong}").status_code == 422


def test_velocities(client: Any) -> None:
    moments = ("2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z", "2026-02-03T00:00:00Z")
    velocities: tuple[list[float] | None, ...] = ([3.0, 4.0, 0.5], [0.1, 0.0], None)
    body = {
        "memories": [
            {"time": time, "label": "Car", "velocity": velocity}
            for time, velocity in zip(moments, velocities, strict=True)
        ]
    }
    fast, slow, unknown = client.post("/api/memories", body).json()["ids"]
    found = {
        memory["id"]: memory["velocity"]
        for memory in client.get("/api/memories?label=Car").json()["memories"]
    }
    assert found == {fast: [3.0, 4.0, 0.5], slow: [0.1, 0.0, 0.0], unknown: None}
    for moving, expected in (("true", [fast]), ("false", [slow])):
        listed = client.get(f"/api/memories?moving={moving}").json()["memories"]
        hits = client.post("/api/query", {"moving": moving == "true"}).json()["hits"]
        assert [memory["id"] for memory in listed] == expected
        assert [hit["memory"]["id"] for hit in hits] == expected
    explained = client.get(f"/api/explain/{fast}").json()
    assert explained["parts"]["speed_m_s"] == 5.0
    wrong = client.post("/api/memories", {"memories": [{"time": moments[0], "velocity": ["x"]}]})
    assert wrong.status_code == 422


def test_list_filters(client: Any) -> None:
    def listed(query: str) -> list[int]:
        return [memory["id"] for memory in client.get(f"/api/memories?{query}").json()["memories"]]

    assert listed("") == [4, 3, 2, 1]
    assert listed("label=Mug&label=Door&order=oldest") == [1, 2, 3]
    assert listed("text=MUG%20red") == [2]
    assert listed("kind=place") == listed("map_id=yard") == [4]
    assert listed("box=0,0,1,2&map_id=default") == [2, 1]
    assert listed("circle=-4,-4,0.5") == [3]
    assert listed("start=2026-01-02&end=2026-01-03") == [3, 2]
    assert client.get("/api/memories?label=Mug&total=true&limit=1").json()["total"] == 2
    for wrong in ("box=1,2", "box=a", "box=nan,0,1,1", "start=x", "kind=cat", "limit=0", "limit=99999",
                  "circle=0,0,-1", "min_confidence=nan", "start=2026-01-03&end=2026-01-01"):  # fmt: skip
        assert client.get(f"/api/memories?{wrong}").status_code == 422, wrong


def test_query(client: Any) -> None:
    assert ids(client.post("/api/query", {"embedding": [0, 1, 0], "k": 2})) == [2, 3]
    assert ids(client.post("/api/query", {"like": 2, "k": 1})) == [3]
    assert ids(client.post("/api/query", {"text": "blue"})) == [3]
    around = {"near": [0, 0], "radius_m": 3, "order": "distance"}
    assert ids(client.post("/api/query", around)) == [1, 4, 2]
    assert ids(client.post("/api/query", {"polygon": [[-5, -5], [-3, -5], [-3, -3], [-5, -3]]})) == [3]
    assert ids(client.post("/api/query", {"between": ["2026-01-02", "2026-01-02"]})) == [2]
    assert ids(
        client.post("/api/query", {"labels": ["Mug"], "min_confidence": 0.5, "map_id": "default"})
    ) == [3, 2]
    both = client.post("/api/query", {"embedding": [0, 1, 0], "labels": ["Mug"], "aggregate": True}).json()
    assert sum(hit["attention"] for hit in both["hits"]) == pytest.approx(1.0)
    assert both["context"] == pytest.approx([0, 0.995, 0], abs=0.01)
    for body, status in (
        ({"k": 0}, 422), ({"k": 100_000}, 422), ({"embedding": [1, 2]}, 422), ({"like": 99}, 404),
        ({"embedding": [1, 2, 3], "like": 1}, 422), ({"order": "distance"}, 422), ({"radius_m": 1}, 422),
        ({"embedding": [1] * 10_000}, 422), ({"embedding": [1e300, 0, 0]}, 422), ([], 422),
        ({"text": "a\0b"}, 422), ({"encoder": "nobody", "embedding": [1, 2, 3]}, 422),
    ):  # fmt: skip
        assert client.post("/api/query", body).status_code == status, body


def test_ask_in_words_and_in_parts(client: Any) -> None:
    def asked(**body: Any) -> Any:
        answer = client.post("/api/ask", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    listed = asked(question="Where are the mugs?")
    assert [hit["memory"]["id"] for hit in listed["answer"]["hits"]] == [3, 2]
    words = asked(question="Where is the mug?")
    assert (words["question"], words["answer"]["memory"]["id"]) == ("last_seen", 3)
    assert words["sentence"].startswith("Mug was last seen on 2026-01-03")
    assert words["answer"] == asked(question="last_seen", what="Mug")["answer"]
    assert asked(question="when was the red mug first seen?")["answer"]["memory"]["id"] == 2
    assert asked(question="how often did you see a mug")["answer"]["sightings"] == 2
    near = asked(question="what is near the red mug", map_id="default")["answer"]
    assert [hit["memory"]["id"] for hit in near["hits"]] == [1]
    changed = asked(question="what changed since yesterday", now="2026-01-04T12:00:00Z")
    assert [memory["id"] for memory in changed["answer"]["new"]] == [3, 4]
    happened = asked(question="what happened on 2026-01-02?")["answer"]
    assert [memory["id"] for memory in happened["memories"]] == [2]
    assert asked(question="is the door still there")["answer"]["state"] == "unknown"
    assert asked(question="summarise")["answer"]["by_label"]["Mug"] == 2
    assert asked(question="go to the charger")["answer"]["position"] == [0, 0, 0]
    assert [hit["memory"]["id"] for hit in asked(question="mugs")["answer"]["hits"]] == [3, 2]
    unknown = asked(question="unicorns")["sentence"]
    assert unknown.startswith("No memories match 'unicorns'. Ask for example: 'where is")
    assert unknown.endswith("The store has 4 memories: 2 Mug, 1 Charger and 1 Door.")
    many = asked(question="how many mugs are there?")
    assert (many["question"], many["answer"]["memories"]) == ("how_many", 2)
    newest = asked(question="what did you see in the last hour?", now="newest")["answer"]
    assert newest["total"] >= 1
    assert asked(question="similar_situations", what=2, k=1)["answer"]["hits"][0]["memory"]["id"] == 3
    assert asked(question="last_seen", what=[1, 0, 0])["answer"]["memory"]["id"] == 1
    for body, status in (
        ({}, 422), ({"question": "  ?"}, 422), ({"text": "x", "question": "near"}, 422),
        ({"question": "near"}, 422),
        ({"question": "last_seen"}, 422), ({"question": "last_seen", "what": 77}, 404),
        ({"question": "between"}, 422), ({"question": "similar_situations", "what": "mug"}, 422),
        ({"question": "last_seen", "what": [1, 2]}, 422), ({"question": "a" * 501}, 422),
    ):  # fmt: skip
        assert client.post("/api/ask", body).status_code == status, body


def test_forget_undo_log_and_explain(client: Any, store: MemoryStore) -> None:
    done = client.post("/api/forget", {"ids": [2, 3, 2], "reason": "tidy"}).json()
    assert done == {"generation": 2, "forgotten": 2, "can_be_undone": True}
    gone = client.get("/api/explain/2").json()
    assert (gone["status"], gone["memory"]) == ("forgotten", None)
    assert "tidy" in gone["reasons"][0]
    last = client.get("/api/log?limit=1").json()["operations"][0]
    assert (last["operation"], last["ids_count"], last["undone"]) == ("remove", 2, False)
    assert client.post("/api/undo", {"generation": 2}).json() == {"generation": 3, "undone": 2}
    assert client.get("/api/explain/2").json()["status"] == "undone"
    entries = client.get("/api/log?after=0").json()["operations"]
    assert [entry["undone"] for entry in entries] == [False, True, False]
    assert [
        entry["generation"] for entry in client.get("/api/log?before=3&limit=1").json()["operations"]
    ] == [2]
    assert client.post("/api/undo", {"generation": 2}).status_code == 409
    assert client.post("/api/forget", {"ids": [1, 99]}).status_code == 404
    assert len(store) == 4
    assert client.post("/api/forget", {"ids": [1], "secure": True}).json()["can_be_undone"] is False
    assert client.post("/api/undo", {"generation": 4}).status_code == 409
    assert client.get("/api/explain/77").status_code == 404


def test_marking_what_is_gone(client: Any, store: MemoryStore) -> None:
    done = client.post("/api/mark", {"ids": [2, 3, 2], "why": "not seen in passing"}).json()
    assert done == {"generation": 2, "marked": 2, "state": "gone"}
    assert [memory.state for memory in store.get([1, 2, 3])] == ["present", "gone", "gone"]
    assert (
        client.post("/api/ask", {"question": "is the Mug still there?"}).json()["answer"]["state"] == "gone"
    )
    assert client.get("/api/log?limit=1").json()["operations"][0]["operation"] == "mark"
    assert ids(client.post("/api/query", {"labels": ["Mug"], "states": ["gone"]})) == [3, 2]
    assert ids(client.post("/api/query", {"embedding": [0, 1, 0], "states": ["present"], "k": 1})) != [2]
    asked = {"question": "search", "what": "Mug", "states": ["present"]}
    assert "No memories of 'Mug'" in client.post("/api/ask", asked).json()["sentence"]
    assert client.post("/api/query", {"states": ["lost"]}).status_code == 422
    assert "not seen in passing" in json.dumps(client.get("/api/explain/2").json()["history"])
    assert client.post("/api/undo", {"generation": 2}).json()["undone"] == 2
    assert store.get([2])[0].state == "present"
    assert client.post("/api/mark", {"ids": [1], "state": "unknown", "at": "2026-01-09"}).status_code == 200
    for body, status in (
        ({"ids": []}, 422), ({"ids": [99]}, 404), ({"ids": [1], "state": "lost"}, 422),
        ({"ids": [4], "at": "2026-01-01"}, 422), ({"ids": [1], "at": "soon"}, 422),
        ({"ids": [1], "why": "x" * 501}, 422), ({"ids": [1], "why": "a\0"}, 422),
    ):  # fmt: skip
        assert client.post("/api/mark", body).status_code == status, body


def test_consolidate_says_what_can_no_longer_be_undone(tmp_path: Path) -> None:
    config = StoreConfig(undo_keep_s=0.0, undo_keep_operations=0)
    with MemoryStore.open(tmp_path / "robot-store", dim=3, config=config) as store:
        store.forget(store.add([Memory(time_ns=1), Memory(time_ns=2)]))
    with MemoryStore.open(tmp_path / "robot-store") as store:
        app = create_app(store)

        async def ask() -> tuple[Any, int]:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                done = await client.post("/api/consolidate", json={})
                undone = await client.post("/api/undo", json={"generation": 2})
            async with app.state.service.running():
                return done.json()["trimmed"], undone.status_code

        trimmed, status = asyncio.run(ask())
    assert (trimmed["generation"], trimmed["operations"] > 0, status) == (2, True, 409)


def test_relevance_needs_something_to_compare(client: Any) -> None:
    answer = client.post("/api/query", {"order": "relevance", "labels": ["Mug"]})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "order"


def test_addresses_say_what_they_take(client: Any) -> None:
    for method, path, allowed in (
        ("DELETE", "/api/memories", "GET, POST"), ("GET", "/api/query", "POST"),
        ("PUT", "/api/memories/3", "GET"), ("POST", "/", "GET, HEAD"),
    ):  # fmt: skip
        answer = client.ask(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed), path
        assert answer.json()["error"]["type"] == "method_not_allowed"


def test_consolidate_stats_and_health(client: Any, store: MemoryStore) -> None:
    place = {"label": "Car", "x": 50, "y": 50, "covariance": [[0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]]}
    cars = [place | {"time_ns": 10**18 + row, "embedding": [1, 0, 0]} for row in range(3)]
    client.post("/api/memories", {"memories": cars})
    done = client.post("/api/consolidate", {"now": "2026-01-05"}).json()
    assert (done["merged_count"], done["merged"][0]["sources"]) == (1, [5, 6, 7])
    stats = client.get("/api/stats").json()
    assert (stats["memories"], stats["by_label"]["Mug"], stats["check"]) == (len(store), 2, None)
    checked = client.get("/api/stats?check=true").json()["check"]
    assert checked["ok"]
    assert client.get("/api/stats?check=true").json()["check"] == checked
    assert client.get("/api/health").json() == {"status": "ok", "generation": 3, "readonly": False}


def test_export_is_what_import_reads(client: Any, store: MemoryStore) -> None:
    lines = client.get("/api/export?label=Mug").text.splitlines()
    assert [memory_from_record(json.loads(line)).caption for line in lines] == ["red mug", "blue mug"]
    assert json.loads(lines[0]) == json.loads(json.dumps(record_of(store.get([2])[0])))
    assert client.get("/api/export?label=nothing").text == ""
    assert "embedding" not in client.get("/api/export?vectors=false").text


def test_a_record_has_the_fields_of_a_memory() -> None:
    more = {"time", "x", "y", "z", "first_seen", "last_seen"}
    assert set(get_type_hints(MemoryRecord)) == {field.name for field in dataclasses.fields(Memory)} | more


def test_adds_at_the_same_time_are_all_there(make_client: Callable[..., Any], store: MemoryStore) -> None:
    client = make_client()
    body = {"json": {"memories": [{"time_ns": 1}, {"time_ns": 2}]}}
    answers = client.together([("POST", "/api/memories", body)] * 40)
    found = sorted(id for answer in answers for id in answer.json()["ids"])
    assert found == list(range(1, 81))
    assert len(store) == 80


def test_the_schema_names_every_request(client: Any) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/api/memories", "/api/memories/{id}", "/api/query", "/api/ask", "/api/explain/{id}", "/api/forget",
        "/api/mark", "/api/undo", "/api/consolidate", "/api/log", "/api/stats", "/api/export", "/api/events",
        "/api/health", "/api/map", "/api/path", "/api/sync", "/api/sync/{store}", "/api/pull", "/api/areas",
        "/api/areas/remove", "/api/areas/sync", "/api/areas/pull", "/api/locate",
    }  # fmt: skip
    text = json.dumps(schema)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(schema["components"]["schemas"])
    assert schema["components"]["schemas"]["QueryBody"]["properties"]["k"]["maximum"] == 1000


def test_numbers_at_the_ends_of_their_range(client: Any) -> None:
    for path in ("forget", "mark"):
        assert client.post(f"/api/{path}", {"ids": [1, -(2**63), 2**63 - 1]}).status_code == 404
    record = {"time_ns": -(2**63), "embedding": [1e300, 0, 0]}
    assert client.post("/api/memories", {"memories": [record]}).status_code == 422
