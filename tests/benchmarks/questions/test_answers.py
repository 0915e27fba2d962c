"""The question benchmark: its files are consistent, and most questions get right answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.questions import answers as benchmark
from benchmarks.questions.answers import SETS, Case, home_store, judge_all, read_cases


@pytest.mark.parametrize("name", ["home", "town", "drives"])
def test_every_question_is_asked_once(name: str) -> None:
    cases = read_cases(SETS / f"{name}.txt")
    assert len({case.question for case in cases}) == len(cases) > 80
    assert all(case.accepted for case in cases)


def test_answers_in_the_flat() -> None:
    with home_store() as (store, keys, now_ns):
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
        "papers", "speakers", "reader", "household", "engineers", "people", "neighbours",
    ]  # fmt: skip
    for case in cases:
        parts = (case[name] for name in ("answered", "rightly_refused", "refused", "mistaken"))
        assert sum(parts) == case["questions"]
        assert case["mistaken"] <= 0.05 * case["questions"]
    assert "Questions" in capsys.readouterr().out
