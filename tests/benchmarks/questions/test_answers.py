"""The question benchmark: its files are consistent, and most questions get right answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.questions import answers as benchmark
from benchmarks.questions.answers import Case, judge_all, read_cases
from benchmarks.questions.stores import SETS, all_stores, text_store


@pytest.mark.parametrize("name", ["home", "town", "drives"])
def test_every_question_is_asked_once(name: str) -> None:
    cases = read_cases(SETS / f"{name}.txt")
    assert len({case.question for case in cases}) == len(cases) > 80
    assert all(case.accepted for case in cases)


def test_answers_in_the_flat() -> None:
    with all_stores()["home"]() as (store, keys, now_ns):
        judged = judge_all(store, keys, now_ns, read_cases(SETS / "home.txt"))
        wrong = [each for each in judged if each.verdict == "wrong"]
        assert sum(each.verdict == "right" for each in judged) >= 0.9 * len(judged)
        assert len(wrong) <= 0.02 * len(judged), wrong
        # A verdict depends on what is accepted.
        others = [Case("where is the sofa?", ("at:ladder",)), Case("how many chairs do we have?", ("7",))]
        assert [each.verdict for each in judge_all(store, keys, now_ns, others)] == ["wrong", "wrong"]
        with pytest.raises(ValueError, match="no memory is called 'sofaa'"):
            judge_all(store, keys, now_ns, [Case("where is the sofa?", ("at:sofaa",))])


def test_the_benchmark_writes_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "questions.json"
    assert benchmark.main(["--quick", "--out", str(out), "--show", "wrong"]) == 0
    cases = json.loads(out.read_text())["cases"]
    assert [case["set"] for case in cases] == [
        "home", "town", "together", "held-out", "fresh", "ranked", "later", "visitor",
        "papers", "speakers", "reader", "household", "engineers", "people", "neighbours", "friends", "office",
        "strangers", "site", "callers", "ward", "researchers", "threads", "reviewer", "second", "third",
    ]  # fmt: skip
    for case in cases:
        parts = (case[name] for name in ("answered", "rightly_refused", "refused", "mistaken"))
        assert sum(parts) == case["questions"]
        assert case["mistaken"] <= 0.05 * case["questions"]
    assert "Questions" in capsys.readouterr().out


def test_a_store_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shop_store.txt"
    rows = [
        "# now 2026-05-01 12:00",
        "# area window | shop | 0 0 2 2",
        "bag | bag | object | shop | 1 1 0.2 | 0.4 0.2 0.4 | 2026-05-01 09:00 | 2026-05-01 11:00 | 3 | "
        "present | a red bag",
        "note | letter | note | shop | - | - | 2026-05-01 09:00 | 2026-05-01 09:00 | 1 | present |",
    ]
    path.write_text("\n".join(rows), encoding="utf-8")
    with text_store(path) as (store, keys, now_ns):
        cases = [
            Case("where is the bag?", ("at:bag",)),
            Case("how many bags are at the window?", ("1",)),
        ]
        assert [each.verdict for each in judge_all(store, keys, now_ns, cases)] == ["right", "right"]
        assert store.get([keys["note"]])[0].position is None
    path.write_text("\n".join(rows[1:]), encoding="utf-8")
    with pytest.raises(ValueError, match="# now"), text_store(path):
        pass
