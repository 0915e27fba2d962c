"""``recall init``, ``add``, ``forget``, ``undo``, ``consolidate``, ``check``, ``backup``."""

from __future__ import annotations

import io
import json
import re
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.config import StoreConfig
from memory.persistence.sqlite.database import SqliteDatabase
from memory.store import MemoryStore

Recall = Callable[..., Any]


def count(store: Path) -> int:
    with SqliteDatabase.open(store, readonly=True) as database:
        return database.count()


def test_init_with_settings(recall: Recall, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"half_life_s": 60.0}))
    done = recall("init", "a", "--dim", 8, "--config", "settings.json", "--capacity", 5, "--json")
    assert done.json == {"store": str(tmp_path / "a"), "dim": 8}
    config = StoreConfig.load(tmp_path / "a")
    assert (config.half_life_s, config.capacity) == (60.0, 5)
    assert "vector length 256" in recall("init", "b").output


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ('{"colour": 1}', [], "settings.json: unknown setting 'colour'"),
        ("[1]", [], "settings.json: expected a JSON object"),
        ("{", [], "settings.json: "),
        ("{}", ["--dim", 0], "dim must be at least 1"),
        ("{}", ["--capacity", 0], "--capacity must be at least 1"),
    ],
)
def test_bad_init(recall: Recall, tmp_path: Path, settings: str, options: list[object], message: str) -> None:
    (tmp_path / "settings.json").write_text(settings)
    done = recall("init", "a", "--config", "settings.json", *options)
    assert done.status == 2
    assert message in done.remarks
    assert not (tmp_path / "a" / "memory.db").exists()


def test_add(recall: Recall, store: Path) -> None:
    options = (
        "--label cat --at -1 2 0.5 --yaw -0.5 --time 2026-02-01 --kind event --map yard --confidence 0.5"
    )
    more = [
        "--caption",
        "a cat on the fence",
        "--payload",
        '{"a": [1]}',
        "--embedding",
        "[3, 4, 0]",
        "--mark",
    ]
    last = ["--reward", "-1", "--evidence", "cat.png", "--provenance", "me", "--json"]
    assert recall("add", store, *options.split(), *more, *last).json == {"id": 5}
    with SqliteDatabase.open(store, readonly=True) as database:
        (memory,) = database.get([5])
    assert (memory.label, memory.kind, memory.map_id, memory.marked) == ("cat", "event", "yard", True)
    assert (memory.position, memory.yaw, memory.reward) == ((-1.0, 2.0, 0.5), -0.5, -1.0)
    assert memory.payload == {"a": [1]}
    assert memory.embedding == pytest.approx([0.6, 0.8, 0.0], abs=1e-3)
    assert memory.time_ns == 1_769_904_000 * 10**9
    assert recall("add", store, "--at", 1, 2).output == "stored memory 6\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--at", "1"], "--at needs two or three numbers"),
        (["--payload", "["], "--payload is not valid JSON"),
        (["--payload", "[1]"], "--payload must be a JSON object"),
        (["--embedding", "[1, 2]"], "2 numbers"),
        (["--embedding", "[1, 2"], "--embedding [1, 2: "),
        (["--confidence", "2"], "confidence must be from 0 to 1"),
        (["--time", "soon"], "'soon'"),
        ([], "nothing to store"),
    ],
)
def test_bad_add(recall: Recall, store: Path, options: list[str], message: str) -> None:
    done = recall("add", store, *options)
    assert (done.status, done.output) == (2, "")
    assert message in done.remarks
    assert count(store) == 4


def test_embedding_files(recall: Recall, store: Path, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text("[3, 4, 0]")
    np.save(tmp_path / "v.npy", np.array([3.0, 4.0, 0.0]))
    for name in ("v.json", "v.npy"):
        assert recall("add", store, "--label", "cat", "--embedding", name).status == 0
    hits = recall("query", store, "--embedding", "v.json", "--k", 2, "--json").json["hits"]
    assert sorted(hit["memory"]["id"] for hit in hits) == [5, 6]
    (tmp_path / "v.json").write_text('{"a": 1}')
    assert "not a list of numbers" in recall("query", store, "--embedding", "v.json").remarks


def test_add_warns_about_seconds(recall: Recall, store: Path) -> None:
    done = recall("add", store, "--label", "cat", "--time", "1767603600")
    assert done.status == 0
    assert "warning: the time is 1970-01-01T00:00:01Z" in done.remarks
    assert "warning" not in recall("add", store, "--label", "cat", "--time", "2026-01-05").remarks


def test_undo_lists_names(recall: Recall, store: Path) -> None:
    assert recall("area", store, "desk", "--box", 0, 0, 1, 1, "--map", "default").status == 0
    assert recall("trust", store, "one", 0.5).status == 0
    listed = recall("undo", store).output
    assert "desk" in listed
    assert "one: 0.5" in listed
    assert "recall undo without a number lists them" in recall("undo", store, 99).remarks


def test_a_file_that_is_no_vector(recall: Recall, store: Path, tmp_path: Path) -> None:
    for content in (b"", b"not numpy"):
        (tmp_path / "v.npy").write_bytes(content)
        done = recall("add", store, "--embedding", "v.npy")
        assert done.status == 2
        assert "--embedding v.npy: " in done.remarks


def test_forget_and_undo(recall: Recall, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = recall("forget", store, "1", "3-4", "--json").json
    assert (done["forgotten"], done["secure"]) == ([1, 3, 4], False)
    assert count(store) == 1
    again = recall("undo", store, done["operation"], "--json").json
    assert [entry["operation"] for entry in again["undone"]] == [done["operation"]]
    assert count(store) == 4
    shown = recall("forget", store, 2).output
    assert "forgot 1 memory; undo with: recall undo" in shown
    assert recall(*shlex.split(shown)[-3:]).status == 0, "as it is printed, with the store"
    assert count(store) == 4
    monkeypatch.setenv("RECALL_STORE", str(store))
    shown = recall("forget", 2).output
    assert re.search(r"undo with: recall undo \d+\n", shown), "which the environment names"


def test_a_list_of_operations(recall: Recall, store: Path) -> None:
    recall("forget", store, 1, "--reason", "dusty")
    shown = recall("undo", store).output
    assert "imported from first.jsonl, lines 1 to 4" in shown
    assert "dusty" in shown
    (last,) = recall("undo", store, "--last", 1, "--json").json["operations"]
    assert last["name"] == "remove"
    assert last["detail"]["reason"] == "dusty"


def test_several_are_undone_the_latest_first(recall: Recall, store: Path) -> None:
    operations = [recall("forget", store, id, "--json").json["operation"] for id in (1, 2)]
    undone = recall("undo", store, f"{operations[0]}-{operations[1]}", "--json").json["undone"]
    assert [entry["operation"] for entry in undone] == operations[::-1]
    assert count(store) == 4


def test_secure_asks(recall: Recall, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = recall("forget", store, 2, "--secure")
    assert done.status == 2
    assert "--yes" in done.remarks
    for answer, status, left in (("no\n", 1, 4), ("", 1, 4), ("yes\n", 0, 3)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", terminal)
        done = recall("forget", store, 2, "--secure")
        assert (done.status, count(store)) == (status, left)
        assert "Erase 1 memory for good? This cannot be undone. Type yes: " in done.remarks
    assert b"red mug" not in b"".join(path.read_bytes() for path in store.iterdir() if path.is_file())


def test_secure_with_yes(recall: Recall, store: Path) -> None:
    done = recall("forget", store, 3, "--secure", "--yes", "--json")
    assert done.json["secure"] is True
    assert count(store) == 3
    refused = recall("undo", store, done.json["operation"])
    assert refused.status == 2
    assert "was erased" in refused.remarks


def test_visits_are_shown(recall: Recall, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    recall("init", folder, "--dim", 2)
    for hour in range(22):
        for second in (5, 25):
            moment = f"2026-01-02T{hour:02}:00:{second:02}Z"
            recall("add", folder, "--kind", "object", "--label", "door", "--at", 1, 1, "--time", moment)
    (merged,) = recall("consolidate", folder, "--json").json["merged"]
    found = recall("explain", folder, merged["id"], "--json").json["memory"]["visits"]
    assert (len(found), found[0]) == (22, ["2026-01-02T00:00:05Z", "2026-01-02T00:00:25Z", 2])
    (hit,) = recall("query", folder, "--json").json["hits"]
    assert hit["memory"]["visits"] == found
    shown = recall("explain", folder, merged["id"]).output
    assert "visits, the last 20 of 22" in shown
    assert "2026-01-02 21:00:25" in shown
    assert "2026-01-02 01:00:05" not in shown
    answer = recall("ask", folder, "how-often", "door", "--json").json
    assert (answer["sightings"], answer["visits"], answer["total_s"]) == (44, 22, 440.0)
    for name in ("out.jsonl", "out.parquet"):
        assert recall("export", folder, tmp_path / name).status == 0
        recall("init", tmp_path / f"store of {name}", "--dim", 2)
        recall("import", tmp_path / f"store of {name}", tmp_path / name)
        (hit,) = recall("query", tmp_path / f"store of {name}", "--json").json["hits"]
        assert hit["memory"]["visits"] == found


def test_consolidate(recall: Recall, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    recall("init", folder, "--dim", 2, "--capacity", 2)
    for moment in range(3):
        recall("add", folder, "--kind", "object", "--label", "door", "--at", 1, 1, "--time", moment)
    for label in ("a", "b", "c"):
        recall("add", folder, "--kind", "note", "--label", label, "--time", 10)
    done = recall("consolidate", folder, "--now", "1970-01-02", "--json").json
    assert (done["memories_before"], done["memories"]) == (6, 2)
    assert done["merged"] == [{"id": 7, "sources": [1, 2, 3]}]
    assert len(done["forgotten"]) == 2
    for operation in reversed(done["operations"]):
        assert recall("undo", folder, operation).status == 0
    assert count(folder) == 6
    shown = recall("consolidate", folder, "--now", "1970-01-02").output
    for text in ("1 merge", "1, 2, 3", "2 forgotten", "6 memories before, 2 now", "recall undo"):
        assert text in shown
    assert recall("consolidate", folder, "--now", "1970-01-02").output == "2 memories before, 2 now\n"


def test_check_and_repair(recall: Recall, store: Path) -> None:
    assert recall("check", store).output == "4 memories: sound\n"
    connection = sqlite3.connect(store / "memory.db")
    # A vector of memory 99, which there is not.
    connection.execute("INSERT INTO vector (key, half) SELECT 64 * 99, half FROM vector LIMIT 1")
    connection.commit()
    connection.close()
    done = recall("check", store, "--json")
    assert (done.status, done.json["ok"]) == (1, False)
    assert recall("check", store, "--repair").status == 0
    assert recall("check", store, "--json").json["ok"] is True


def test_check_of_a_damaged_file_and_of_nothing(recall: Recall, store: Path) -> None:
    file = store / "memory.db"
    file.write_bytes(file.read_bytes()[:5000])
    done = recall("check", store, "--json")
    assert (done.status, done.json["ok"]) == (1, False)
    assert "truncated" in done.json["problems"][0]
    assert "folder not found" in recall("check", store / "deeper").remarks
    assert recall("check", store.parent).status == 2


def test_while_another_writes(recall: Recall, store: Path) -> None:
    with MemoryStore.open(store) as _:
        done = recall("check", store)
        assert (done.status, done.output) == (0, "4 memories: sound\n")
        assert "checking as a reader" in done.remarks
        assert recall("check", store, "--repair").status == 2
        assert recall("query", store).status == 0
        assert recall("backup", store, store.parent / "copy").status == 0
        locked = recall("add", store, "--label", "lamp")
        assert locked.status == 2
        assert "is being written by process" in locked.remarks


def test_backup(recall: Recall, store: Path, tmp_path: Path) -> None:
    config = StoreConfig(capacity=7)
    config.save(store)
    done = recall("backup", store, tmp_path / "copy", "--json").json
    assert (done["memories"], done["check"]["ok"]) == (4, True)
    assert StoreConfig.load(tmp_path / "copy") == config
    assert recall("query", "copy", "--text", "red").output.count("red mug") == 1
    again = recall("backup", store, tmp_path / "copy")
    assert again.status == 2
    assert "backup folder without a store" in again.remarks
