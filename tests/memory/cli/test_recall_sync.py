"""``recall sync``: between folders, to a service, and what goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import MemoryStore

Recall = Callable[..., Any]


@pytest.fixture
def shared(recall: Recall, tmp_path: Path) -> Path:
    assert recall("init", tmp_path / "shared", "--dim", 3).status == 0
    return tmp_path / "shared"


def test_a_folder_to_another(recall: Recall, store: Path, shared: Path) -> None:
    done = recall("sync", store, shared)
    assert done.status == 0
    assert done.output == "sent as store: 4 new memories\n"
    recall("forget", store, 1)
    done = recall("sync", store, shared, "--robot", "store")
    assert done.output == "sent as store: 0 new memories, 1 removed\n"
    assert recall("sync", store, shared).output == "sent as store: nothing new\n"
    found = recall("sync", store, shared, "--json").json
    counts = dict.fromkeys(("added", "changed", "removed", "kept", "batches", "future", "ahead_ns"), 0)
    areas = {"set": 0, "removed": 0, "waiting": 0, "refused": 0, "conflicts": [], "supported": True}
    assert found == {"sent": {"robot": "store", **counts, "areas": areas}, "pulled": None}
    (mug,) = recall("query", shared, "--text", "red mug", "--json").json["hits"]
    assert mug["memory"]["payload"]["seen_by"]["store"][2] == 1
    assert mug["memory"]["provenance"] == "store"


def test_what_others_saw_comes_back(recall: Recall, store: Path, shared: Path, tmp_path: Path) -> None:
    recall("init", tmp_path / "two", "--dim", 3)
    recall("add", tmp_path / "two", "--label", "trolley", "--at", "5", "6")
    recall("sync", tmp_path / "two", shared)
    done = recall("sync", store, shared, "--pull")
    assert done.output == "sent as store: 4 new memories\npulled: 1 new memory\n"
    assert "two" in recall("query", store, "--text", "trolley", "--json").output
    assert recall("sync", store, shared, "--pull", "--json").json["pulled"]["batches"] == 0


def test_a_store_put_back_is_refused(recall: Recall, store: Path, shared: Path, tmp_path: Path) -> None:
    recall("backup", store, tmp_path / "copy")
    recall("add", store, "--label", "cup")
    recall("sync", store, shared)
    shutil.rmtree(store)
    shutil.move(tmp_path / "copy", store)
    recall("add", store, "--label", "fork")
    refused = recall("sync", store, shared)
    assert refused.status == 2
    assert "--forked" in refused.remarks
    assert recall("sync", store, shared, "--forked").output == "sent as store: 1 new memory, 4 changed\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("store", "nowhere"), "no store at nowhere"),
        (("store", "store"), "both sides are the same store"),
        (("store", "copy"), "one is a copy of the other"),
        (("nowhere", "shared"), "no store in nowhere"),
        (("store",), "an argument is missing"),
        (("store", "shared", "--limit-rate", "5"), "--limit-rate needs"),
        (("store", "http://127.0.0.1:9", "--limit-rate", "0"), "--limit-rate must be above 0"),
        (("store", "http://127.0.0.1:9"), "cannot reach http://127.0.0.1:9"),
        (("store", "shared", "--batch", "0"), "--batch must be at least 1"),
        (("store", "shared", "--follow", "0"), "--follow must be above 0"),
    ],
)
def test_what_is_wrong_is_said(
    recall: Recall, store: Path, shared: Path, words: tuple[str, ...], said: str
) -> None:
    shutil.copytree(store, store.parent / "copy")
    done = recall("sync", *words)
    assert done.status != 0
    assert said in done.remarks


@pytest.fixture
def service(shared: Path) -> Iterator[str]:
    """The shared store behind a service with a token."""
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    command = [
        sys.executable,
        "-m",
        "memory.cli",
        "serve",
        str(shared),
        "--port=0",
        "--json",
        "--token=secret",
    ]
    environment = {**os.environ, "RECALL_TOKEN": "secret"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
        process.send_signal(signal.SIGTERM)


def test_a_service(
    recall: Recall, store: Path, shared: Path, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = recall("sync", store, service)
    assert refused.status != 0
    assert (
        "refused the request: the token is missing or wrong. Give --token or $RECALL_TOKEN" in refused.remarks
    )
    monkeypatch.setenv("RECALL_TOKEN", "secret")
    start = time.monotonic()
    done = recall("sync", store, service, "--pull", "--batch", "2", "--limit-rate", "8")
    assert done.output == "sent as store: 4 new memories\npulled: nothing new\n", done.remarks
    assert time.monotonic() - start > 0.1
    with MemoryStore.open(shared, readonly=True) as there, MemoryStore.open(store, readonly=True) as here:
        assert len(there) == len(here) == 4
        for one, other in zip(there.database.get([1, 2, 3, 4]), here.database.get([1, 2, 3, 4]), strict=True):
            assert (one.embedding == other.embedding).all()
    recall("forget", store, 1)
    assert recall("sync", store, service).output == "sent as store: 0 new memories, 1 removed\n"
