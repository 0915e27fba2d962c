"""``recall`` on a store of a server, and ``recall serve`` on it from two processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.cli import main


@pytest.fixture
def address(postgresql: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return postgresql()


def test_commands_work_on_an_address(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def recall(*words: str) -> str:
        assert main(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert main(["stats", address]) == 2
    said = capsys.readouterr().err
    assert "recall init" in said
    password = address.split(":")[2].split("@")[0]
    assert password not in said
    made = recall("init", address, "--dim", "4", "--capacity", "9", "--json")
    assert password not in made
    assert json.loads(made)["dim"] == 4
    assert main(["init", address]) == 2
    assert "already" in capsys.readouterr().err
    recall("add", address, "--label", "cup", "--caption", "on the bench", "--at", "1", "2")
    monkeypatch.setenv("RECALL_STORE", address)
    recall("add", "--label", "trolley", "--at", "5", "6", "--embedding", "[0, 0, 1, 0]")
    found = recall("query", "--text", "benches")
    assert "cup" in found
    assert "trolley" not in found
    recall("forget", "1")
    recall("undo", "3")
    recall("export", str(tmp_path / "out.jsonl"))
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    assert "sound" in recall("check")
    assert json.loads(recall("stats", "--json"))["memories"] == 2
    assert "trolley" in recall("ask", "where is the trolley?")


@pytest.mark.slow
def test_two_services_share_a_store(address: str) -> None:
    assert main(["init", address, "--dim", "4"]) == 0
    command = [sys.executable, "-m", "memory.cli", "serve", address, "--port", "0", "--json"]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) for _ in range(2)
    ]
    try:
        pages = [json.loads((process.stdout or sys.stdin).readline())["address"] for process in running]
        for page in pages:
            body = json.dumps({"memories": [{"time_ns": 1, "position": [0, 0, 0], "label": "cup"}]}).encode()
            request = urllib.request.Request(
                f"{page}api/memories", body, {"content-type": "application/json"}, method="POST"
            )
            with urllib.request.urlopen(request) as answer:
                assert answer.status in (200, 201)
        for page in pages:
            with urllib.request.urlopen(f"{page}api/stats") as answer:
                assert json.load(answer)["memories"] == 2
            with urllib.request.urlopen(f"{page}api/map") as answer:
                assert answer.status == 200
        # One dies, perhaps with the store's lock: the server gives it to the other.
        running[0].kill()
        running[0].wait()
        body = json.dumps({"memories": [{"time_ns": 2, "position": [0, 0, 0], "label": "jug"}]}).encode()
        request = urllib.request.Request(
            f"{pages[1]}api/memories", body, {"content-type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            assert answer.status in (200, 201)
    finally:
        running[1].send_signal(signal.SIGTERM)
        running[1].communicate(timeout=300)
        running[0].kill()
        running[0].communicate()
        assert running[1].returncode == 0
