"""Areas over HTTP."""

from __future__ import annotations

from typing import Any


def test_an_area_is_set_listed_used_and_removed(client: Any) -> None:
    x, y = client.get("/api/memories/1").json()["position"][:2]
    box = [x - 0.5, y - 0.5, x + 0.5, y + 0.5]
    done = client.post("/api/areas", {"name": "bay 3", "box": box, "map_id": "default"})
    assert (done.status_code, done.json()["name"]) == (200, "bay 3")
    (area,) = client.get("/api/areas").json()["areas"]
    assert (area["name"], area["map_id"], len(area["polygon"]), area["places"]) == (
        "bay 3",
        "default",
        4,
        [],
    )
    hits = client.post("/api/query", {"area": "Bay 3"}).json()["hits"]
    assert 1 in [hit["memory"]["id"] for hit in hits]
    listed = client.get("/api/memories", params={"area": "bay 3"}).json()["memories"]
    assert sorted(each["id"] for each in listed) == sorted(hit["memory"]["id"] for hit in hits)
    assert client.post("/api/areas/remove", {"name": "bay 3"}).status_code == 200
    refused = client.post("/api/query", {"area": "bay 3"})
    assert refused.status_code == 422
    assert "no area is called 'bay 3'" in refused.json()["error"]["message"]


def test_an_area_without_a_shape_is_refused(client: Any) -> None:
    refused = client.post("/api/areas", {"name": "bay 3"})
    assert refused.status_code == 422
    assert "needs one shape" in refused.json()["error"]["message"]


def test_questions_use_areas_a_pose_and_structured_queries(client: Any) -> None:
    x, y = client.get("/api/memories/1").json()["position"][:2]
    client.post("/api/areas", {"name": "bay 3", "box": [x - 1, y - 1, x + 1, y + 1], "map_id": "default"})
    label = client.get("/api/memories/1").json()["label"]
    found = client.post("/api/ask", {"question": f"how many {label}s are in bay 3?"}).json()
    assert found["understood"]["area"] == "bay 3"
    same = client.post("/api/ask", {"query": {"question": "how_many", "what": label, "area": "bay 3"}}).json()
    assert same["answer"]["memories"] == found["answer"]["memories"] == 1
    near = client.post("/api/ask", {"question": "what is near me?", "pose": [x, y, 0.0]}).json()
    assert near["answer"]["hits"][0]["memory"]["id"] == 1
    refused = client.post("/api/ask", {"query": {"question": "how_many", "answer": 3}})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "query")
