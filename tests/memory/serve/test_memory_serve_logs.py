"""What the service writes to its log: whole lines, in UTC, without queries, bodies and tokens."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory.serve.logs import JsonLines, TextLines, log_config
from memory.store import MemoryStore

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def record(message: str, *arguments: Any, error: bool = False) -> logging.LogRecord:
    caught = None
    if error:
        try:
            raise RuntimeError("unforeseen")
        except RuntimeError as raised:
            caught = (type(raised), raised, raised.__traceback__)
    return logging.LogRecord("memory.serve.guard", logging.ERROR, __file__, 1, message, arguments, caught)


def test_a_line_for_people() -> None:
    line = TextLines().format(record("GET %s failed", "/api/x\nERROR forged"))
    assert re.fullmatch(rf"{TIME} ERROR memory\.serve\.guard: GET /api/x\\nERROR forged failed", line)
    text = TextLines().format(record("failed", error=True))
    assert text.splitlines()[0].endswith("guard: failed")
    assert text.splitlines()[-1] == "RuntimeError: unforeseen"


def test_a_line_for_programs() -> None:
    found = json.loads(JsonLines().format(record("GET %s failed", "/api/x\n", error=True)))
    assert re.fullmatch(TIME, found["time"])
    assert (found["level"], found["logger"]) == ("ERROR", "memory.serve.guard")
    assert found["message"] == "GET /api/x\n failed"
    assert found["traceback"].endswith("RuntimeError: unforeseen")


@pytest.mark.parametrize(("verbosity", "logged"), [(-1, "ERROR"), (0, "WARNING"), (1, "INFO")])
def test_the_lowest_level_that_is_logged(verbosity: int, logged: str) -> None:
    loggers = log_config(verbosity=verbosity, as_json=False)["loggers"]
    assert loggers["memory"]["level"] == logged
    assert loggers["uvicorn"]["level"] == ("ERROR" if verbosity < 0 else "WARNING")


def test_requests_are_told_when_asked_for(tmp_path: Path, served: Callable[..., Any]) -> None:
    folder = tmp_path / "robot-store"
    MemoryStore.open(folder, dim=3).close()
    service = served(folder, "--verbose", environment={"RECALL_TOKEN": "sesame"})
    headers = {"authorization": "Bearer sesame"}
    assert httpx.get(f"{service.address}api/memories?text=secret", headers=headers).status_code == 200
    assert httpx.post(f"{service.address}api/query", json={"text": "x"}).status_code == 401
    status, said = service.end()
    assert status == 0
    lines = [json.loads(line) for line in said.splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("GET", "/api/memories", 200),
        ("POST", "/api/query", 401),
    ]
    assert all(line["client"] == "127.0.0.1" and line["ms"] >= 0 for line in lines)
    assert "sesame" not in said
    assert "secret" not in said
