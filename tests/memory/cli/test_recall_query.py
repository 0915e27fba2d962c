"""``recall query``, ``explain``, ``stats`` and ``ask``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Recall = Callable[..., Any]


def ids(done: Any) -> list[int]:
    assert done.status == 0, done.remarks
    return [hit["memory"]["id"] for hit in done.json["hits"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [4, 3, 2, 1]),
        ("--k 2", [4, 3]),
        ("-k 1 --order recency --map default", [3]),
        ("--text mug", [2, 3]),
        ("--text mug --near 1 2 --radius 1", [2]),
        ("--near -5 -5 --radius 2", [3]),
        ("--near 0 0 --order distance --map default", [1, 2, 3]),
        ("--between 2026-01-02 2026-01-02", [2]),
        ("--between 2026-01-01T10:00 2026-01-02T10:00", [2, 1]),
        ("--between 2026-01-01T10:00:01 2026-01-02T09:59:59Z", []),
        ("--between 0 1767261600000000000", [1]),
        ("--label mug --label door", [3, 2, 1]),
        ("--label mug --min-confidence 0.8", [3]),
        ("--kind place", [4]),
        ("--map yard", [4]),
        ("--like 2 -k 2", [3, 4]),
        ("--like 2 --label door", [1]),
        ("--text mug --near 1 2 --radius 5 --between 2026-01-01 2026-01-02T10:00 --label mug --like 3", [2]),
    ],
)
def test_parts_alone_and_together(recall: Recall, store: Path, options: str, expected: list[int]) -> None:
    found = ids(recall("query", store, "--json", *options.split()))
    if "--text" in options and "--near" not in options:
        assert sorted(found) == expected
    else:
        assert found == expected


def test_by_movement(recall: Recall, store: Path, tmp_path: Path) -> None:
    lines = [
        {"time": f"2026-03-0{day}T00:00:00Z", "label": "van", "velocity": velocity}
        for day, velocity in ((1, [3.0, 4.0, 0.0]), (2, [0.1, 0.0]), (3, None))
    ]
    source = tmp_path / "vans.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert recall("import", store, source).status == 0
    fast, slow, unknown = sorted(ids(recall("query", store, "--json", "--label", "van")))
    assert ids(recall("query", store, "--json", "--moving")) == [fast]
    assert ids(recall("query", store, "--json", "--standing")) == [slow]
    hits = recall("query", store, "--json", "--moving").json["hits"]
    assert hits[0]["memory"]["velocity"] == [3.0, 4.0, 0.0]
    explained = recall("explain", store, str(fast))
    assert "it moved when it was last seen, at 5.0 m/s" in explained.output
    assert "m/s" not in recall("explain", store, str(unknown)).output
    with pytest.raises(SystemExit):
        recall("query", store, "--moving", "--standing")
    assert "--moving" in recall("ask", store, "how-many", "van", "--moving").remarks


def test_by_state(recall: Recall, store: Path) -> None:
    assert recall("mark", store, "2").status == 0
    assert ids(recall("query", store, "--json", "--state", "gone")) == [2]
    assert ids(recall("query", store, "--json", "--label", "mug", "--state", "present")) == [3]
    near = ("ask", store, "near", "--near", "1", "2", "--radius", "0.5", "--json", "--state")
    assert recall(*near, "gone").json["total"] == 1
    assert recall(*near, "present", "--state", "moved").json["total"] == 0
    similar = recall("ask", store, "similar", "1", "--state", "gone", "--json").json
    assert [hit["memory"]["id"] for hit in similar["hits"]] == [2]


def test_the_kinds_of_index(recall: Recall, tmp_path: Path) -> None:
    told = recall("indexes", "--json").json["indexes"]
    assert [kind["name"] for kind in told if not kind["why_not"]] == [
        "lsh", "itq", "faiss", "faiss-rabitq", "faiss-gpu", "cuda",
    ]  # fmt: skip
    assert "faiss-rabitq" in recall("indexes").output
    assert recall("init", tmp_path / "new", "--index", "faiss").status == 0
    assert '"index": "faiss"' in (tmp_path / "new" / "config.json").read_text()


def test_the_plan_says_which_index_answered(recall: Recall, store: Path) -> None:
    told = recall("query", store, "--like", "2", "--plan", "--json").json["plan"]
    assert told["method"] in ("subset", "all")
    assert told["answered"] == "flat: all rows compared"
    assert "flat: all rows compared (" in recall("query", store, "--like", "2", "--plan").output
    assert "compares no vectors" in recall("query", store, "--label", "mug", "--plan").output


def test_polygon_and_embedding(recall: Recall, store: Path, tmp_path: Path) -> None:
    inside = recall("query", store, "--json", "--map", "default", "--polygon", "-5,-5 -3,-5 -3,-3 -5,-3")
    assert ids(inside) == [3]
    np.save(tmp_path / "vector.npy", np.array([1.0, 0.1, 0.0]))
    for vector in (tmp_path / "vector.npy", "[1, 0.1, 0]"):
        done = recall("query", store, "--json", "--embedding", vector, "-k", 1, "--aggregate")
        assert ids(done) == [1]
        (hit,) = done.json["hits"]
        assert hit["parts"]["similarity"] == pytest.approx(1 / np.hypot(1, 0.1), abs=1e-3)
        # All memories with a vector are attended to, of which the nearest is shown.
        assert 0.5 < hit["attention"] <= 1.0
        assert done.json["attended"] >= 1
        assert len(done.json["context"]) == 3
        assert hit["memory"]["time"] == "2026-01-01T10:00:00Z"


def test_the_table(recall: Recall, store: Path) -> None:
    done = recall("query", store, "--text", "red")
    assert done.status == 0
    for text in ("1 memory", "2026-01-02 10:00:00", "mug", "red mug", "0.50"):
        assert text in done.output
    nothing = recall("query", store, "--label", "cat")
    assert (nothing.status, nothing.output) == (
        0,
        "no memory matches; recall stats shows what the store has\n",
    )
    assert "The labels are" in nothing.remarks


def test_labels_cannot_be_markup(recall: Recall, store: Path) -> None:
    assert recall("add", store, "--label", "[bold]x[/nonsense]", "--caption", "[red]").status == 0
    assert "[bold]x[/nonsense]" in recall("query", store).output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--between", "2026-01-02", "2026-01-01"], "the first time is after the last"),
        (["--between", "noon", "2026-01-01"], "'noon' is not a time"),
        (["--near", "1"], "--near needs two or three numbers (x y or x y z), got 1"),
        (["--radius", "1"], "--radius needs a centre. Give --near X Y"),
        (["--polygon", "1,2 3"], "'3' is not a corner"),
        (["--k", "0"], "k must be at least 1"),
        (["--min-confidence", "2"], "min_confidence must be from 0 to 1"),
        (["--like", "99"], "99"),
        (["--embedding", "[1, 2]"], "3"),
        (["--embedding", "missing.npy"], "missing.npy"),
        (["--embedding", "[0, 0, 0]"], "--embedding [0, 0, 0]: embedding must not be zero"),
        (["--like", "1", "--encoder", "image"], "image"),
    ],
)
def test_bad_questions(recall: Recall, store: Path, options: list[str], message: str) -> None:
    done = recall("query", store, *options)
    assert (done.status, done.output) == (2, "")
    assert message in done.remarks


def test_an_unknown_map_is_named(recall: Recall, store: Path) -> None:
    done = recall("query", store, "--map", "moon")
    assert (done.status, "no memory matches" in done.output) == (0, True)
    assert "no memory is in the map 'moon'. The maps are default, yard" in done.remarks


def test_long_labels_are_shortened(recall: Recall, store: Path) -> None:
    assert recall("add", store, "--label", "L" * 5000).status == 0
    for command in (("query", store), ("stats", store), ("query", store, "--label", "no")):
        done = recall(*command)
        assert f"{'L' * 20}" in done.output + done.remarks
        assert len(done.output + done.remarks) < 5000


def test_explain(recall: Recall, store: Path) -> None:
    done = recall("explain", store, 2, "--json")
    assert done.json["status"] == "kept"
    assert done.json["memory"]["caption"] == "red mug"
    assert done.json["history"][0][1:] == ["import", "imported from first.jsonl, lines 1 to 4"]
    assert "imported from first.jsonl" in recall("explain", store, 2).output
    recall("forget", store, 2, "--reason", "broken")
    gone = recall("explain", store, 2, "--json").json
    assert (gone["status"], gone["memory"]) == ("forgotten", None)
    assert "broken" in recall("explain", store, 2).output


def test_stats(recall: Recall, store: Path) -> None:
    found = recall("stats", store, "--json").json
    assert found["memories"] == 4
    assert found["by_map"] == {"default": 3, "yard": 1}
    assert found["by_label"] == {"mug": 2, "door": 1, "charger": 1}
    assert found["by_kind"] == {"object": 3, "place": 1}
    assert (found["first_time"], found["last_time"]) == ("2026-01-01T10:00:00Z", "2026-01-04T10:00:00Z")
    assert found["dim"] == 3
    shown = recall("stats", store).output
    assert "mug 2" in shown
    assert "default 4 (default: 3 numbers)" in shown


def test_stats_of_an_empty_store(recall: Recall, tmp_path: Path) -> None:
    recall("init", tmp_path / "empty")
    found = recall("stats", tmp_path / "empty", "--json").json
    assert (found["memories"], found["first_time"], found["by_label"]) == (0, None, {})
    assert recall("stats", tmp_path / "empty").status == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("last-seen mug", "mug was last seen on 2026-01-03"),
        ("first-seen mug", "2026-01-02"),
        ("last-seen 1", "2026-01-01"),
        ("near --near 0 0 --radius 3 --map default", "2 memories within 3 m"),
        ("between --between 2026-01-02 2026-01-03", "2 memories between"),
        ("changed --since 2026-01-03", "new"),
        ("how-often mug", "2 times on 2 days"),
        ("still-there door", "door"),
        ("summarise --map default", "3 memories"),
        ("similar 2", "expected reward"),
        ("go-to door --coming-from 3 0 --distance 1", "drive to (1.00, 0.00)"),
        ("last-seen unicorn", "called 'unicorn'"),
        ("how-many mug", "2 memories of mug"),
        ("where is the red mug?", "red mug was last seen on 2026-01-02 10:00:00 UTC at (1.0, 2.0)"),
        ("how many mugs are there?", "2 memories of mug"),
        ("show me all mugs", "2 memories of mug in map default: mug (memory 3) at (-4.0, -4.0) and mug"),
        ("is the mug at (1, 2) still there?", "last seen on 2026-01-02 10:00:00 UTC at (1.0, 2.0)"),
        (
            "is the mug at (50, 2) still there?",
            "No memory of 'mug' within 5 m of (50.0, 2.0). The store has 4 memories: 2 mug",
        ),
        ("what did you see in the last two days --now newest", "3 memories between 2026-01-02 10:00:00"),
        ("what happened this morning --now 2026-01-02T12:00", "mug (memory 2) on 2026-01-02 10:00:00 UTC"),
        ("what happened today --now 2026-02-02", "The newest memory is of 2026-01-04 10:00:00 UTC."),
        ("what is near the door?", "1 memory within 5 m of (0.0, 0.0): mug (memory 2) at 2.2 m"),
        ("are there mugs near the door", "1 memory of mug"),
        ("how many mugs are near the unicorn", "called 'unicorn'. Ask for example: 'where is the mug?'"),
        (
            "where is the nearest mug to (5, 5)?",
            "Nearest to (5.0, 5.0): mug (memory 2) at (1.0, 2.0), 5.00 m.",
        ),
        ("show mugs near (50, 50)", "No memories of 'mug' within 5 m of (50.0, 50.0). The store has 4"),
        ("how many memories are there", "4 memories: 2 mug, 1 charger and 1 door; seen 4 times"),
        ("how many things are there", "3 memories: 2 mug and 1 door; seen 3 times"),
        ("show me all mugs --k 1", "2 memories of mug in map default: mug (memory 3) at (-4.0, -4.0) and 1"),
        ("where is the charegr?", "charger (read for 'charegr') was last seen"),
        ("is there a unicorn?", "called 'unicorn'"),
        ("asdf qwer", "Ask for example: 'where is the mug?'"),
    ],
)
def test_ask(recall: Recall, store: Path, words: str, sentence: str) -> None:
    done = recall("ask", store, *words.split())
    assert done.status == 0, done.remarks
    assert sentence in done.output
    assert isinstance(recall("ask", store, *words.split(), "--json").json, dict)


def test_notes_are_named_apart_from_objects(recall: Recall, store: Path) -> None:
    assert recall("add", store, "--label", "keys", "--at", 1, 2).status == 0
    sentence = recall("ask", store, "how many things are near (1, 2)?").output
    assert sentence.startswith("2 memories in a radius of 5 m")
    assert sentence.endswith(" Not counted: 1 note.\n")
    assert "Not counted" not in recall("ask", store, "how many memories are there?").output


@pytest.mark.parametrize(
    "words",
    [
        "where is the car?",
        "how many things are there?",
        "what changed since yesterday?",
        "the car and the mug",
    ],
)
def test_an_empty_store_says_so_once(recall: Recall, tmp_path: Path, words: str) -> None:
    recall("init", tmp_path / "empty")
    done = recall("ask", tmp_path / "empty", words)
    assert (done.status, done.output) == (0, "The store is empty. Add memories to it first.\n")
    refused = recall("ask", tmp_path / "empty", "what is on the table?")
    assert refused.status == 2
    assert "The store is empty. Add memories to it first. I don't know" in refused.remarks


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("last-seen", "recall ask STORE last-seen"),
        ("near", "near needs --near and --radius"),
        ("between", "between needs --between FROM TO"),
        ("changed", "changed needs --since"),
        ("where is the mug --since 2026-01-01", "a question in words does not accept --since"),
        ("?", "the question is empty"),
        ("similar mug", "similar needs the id of a memory"),
        ("last-seen mug --near 1 2", "last-seen does not accept --near"),
        ("go-to mug --min-confidence 0.5", "go-to does not accept --min-confidence"),
        ("last-seen mug --embedding [1,0,0]", "WHAT and --embedding exclude each other"),
    ],
)
def test_bad_ask(recall: Recall, store: Path, words: str, message: str) -> None:
    done = recall("ask", store, *words.split())
    assert (done.status, done.output) == (2, "")
    assert message in done.remarks
