"""Names that requests give: what is misspelt is refused, and the nearest name is offered."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

#: Of every address that is read, a parameter that it has, misspelt.
READ = {
    "/api/memories": ("lable", "label"),
    "/api/memories/1": ("vectros", "vectors"),
    "/api/export": ("lable", "label"),
    "/api/explain/1": ("id", None),
    "/api/log": ("limti", "limit"),
    "/api/stats": ("chekc", "check"),
    "/api/health": ("verbose", None),
    "/api/events": ("aftre", "after"),
    "/api/map": ("mapid", "map_id"),
    "/api/path": ("map-id", "map_id"),
    "/api/sync/robot": ("name", None),
    "/api/areas": ("name", None),
    "/metrics": ("x", None),
}
#: Of every address that is written to, a field that it has, misspelt.
WRITTEN = {
    "/api/memories": ("memmories", "memories"),
    "/api/query": ("lables", "labels"),
    "/api/ask": ("qestion", "question"),
    "/api/locate": ("detectoins", "detections"),
    "/api/forget": ("id", "ids"),
    "/api/mark": ("stat", "state"),
    "/api/undo": ("generaton", "generation"),
    "/api/consolidate": ("nwo", "now"),
    "/api/sync": ("batsh", "batch"),
    "/api/pull": ("postion", "position"),
    "/api/areas/sync": ("area", "areas"),
    "/api/areas/pull": ("stor", "store"),
    "/api/areas": ("plygon", "polygon"),
    "/api/areas/remove": ("mapid", "map_id"),
}


def problem(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.text
    found: dict[str, str] = answer.json()["error"]
    return found


def test_every_address_is_listed(client: Any) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    read = {path.replace("{id}", "1").replace("{store}", "robot") for path in paths if "get" in paths[path]}
    assert read == set(READ) - {"/metrics"}
    assert {path for path in paths if "post" in paths[path]} == set(WRITTEN)


@pytest.mark.parametrize("path", READ)
def test_a_misspelt_parameter_is_refused(client: Any, path: str) -> None:
    name, meant = READ[path]
    found = problem(client.get(f"{path}?{name}=1"))
    assert found["field"] == name
    if meant is None:
        assert f"{name}: unknown parameter" in found["message"]
    else:
        assert found["message"] == f"{name}: unknown parameter. Did you mean {meant}?"


@pytest.mark.parametrize("path", WRITTEN)
def test_a_misspelt_field_is_refused(client: Any, path: str) -> None:
    name, meant = WRITTEN[path]
    found = problem(client.post(path, {name: []}))
    assert found["message"] == f"{name}: unknown field. Did you mean {meant}?"
    assert found["field"] == name
    assert "unknown parameter" in problem(client.post(f"{path}?{name}=1", {}))["message"]


def test_fields_within_lists_and_wrong_types_are_named(client: Any) -> None:
    found = problem(
        client.post("/api/memories", {"memories": [{"time_ns": 1}, {"time_ns": 1, "lable": "x"}]})
    )
    assert found["message"] == "memories[1].lable: unknown field. Did you mean label?"
    assert found["field"] == "memories[1].lable"
    assert problem(client.post("/api/query", {"labels": "car"}))["field"] == "labels"
    assert problem(client.post("/api/query", {"k": "10"}))["field"] == "k"
    assert problem(client.get("/api/memories?limit=ten"))["field"] == "limit"
    assert problem(client.get("/api/memories?marked=perhaps"))["field"] == "marked"


def test_what_is_taken_once_is_not_given_twice(client: Any) -> None:
    found = problem(client.get("/api/memories?map_id=a&map_id=b"))
    assert found == {
        "type": "invalid",
        "field": "map_id",
        "message": "map_id: given 2 times. Give it once",
    }
    assert client.get("/api/memories?label=Mug&label=Door&kind=object&state=present").status_code == 200


def test_a_question_has_one_name_and_an_old_one(client: Any) -> None:
    asked = {"now": "newest"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = client.post("/api/ask", {"question": "where is the mug?", **asked}).json()
        assert client.post("/api/ask", {"text": "where is the mug?", **asked}).json() == new
    both = client.post("/api/ask", {"question": "where is it?", "text": "where?"})
    assert problem(both)["message"] == "text: this is the old name of question. Give only question"
    schema = client.get("/openapi.json").json()["components"]["schemas"]["AskBody"]["properties"]
    assert schema["text"]["deprecated"] is True
    assert "deprecated" not in schema["question"]
    wrong = problem(client.post("/api/ask", {"question": "last_sen", "what": "Mug"}))
    assert wrong["message"] == "question: unknown question in parts. Did you mean last_seen?"
