"""The retention study: the simulated world, when answers agree, what sets are worth, the whole in small."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
SMALL = {"days": 3, "objects": 3, "stops": 1, "stop_s": 60}


def test_the_same_seed_gives_the_same_world(load: Any) -> None:
    module = load("memory.retention_world")
    first, again, other = (module.world_of(module.WorldOptions(**SMALL, seed=seed)) for seed in (0, 0, 1))
    assert [entry.memory for entry in first.observations] == [entry.memory for entry in again.observations]
    assert [entry.memory for entry in first.observations] != [entry.memory for entry in other.observations]
    for mine, same in zip(first.observations, again.observations, strict=True):
        np.testing.assert_array_equal(mine.memory.embedding, same.memory.embedding)


def test_a_world_is_what_it_says(load: Any) -> None:
    module = load("memory.retention_world")
    world = module.world_of(module.WorldOptions(**SMALL))
    times = [entry.memory.time_ns for entry in world.observations]
    assert times == sorted(times)
    for row, entry in enumerate(world.observations):
        assert world.row_of(entry.memory) == row
        if entry.thing == module.NOTHING:
            assert entry.memory.confidence <= 0.5
            continue
        thing = world.things[entry.thing]
        assert (thing.label, thing.kind) == (entry.memory.label, entry.memory.kind)
        assert entry.memory.embedding @ thing.direction > 0.85
        assert max(abs(a - b) for a, b in zip(entry.memory.position, entry.position, strict=True)) < 1.2
        if thing.kind == "object" and thing.stays:
            assert thing.at(entry.day).position == entry.position
    assert sum(entry.memory.kind == "place" for entry in world.observations) == 60
    assert {drive.map_id for drive in world.drives} == set(module.maps())
    assert min(entry.memory.time_ns for entry in world.today) > times[-1]


def test_when_answers_agree(load: Any) -> None:
    module = load("memory.retention_questions")
    agree, sight = module.agree, module.Sight
    seen = sight(1, 2.0, 2.0, 0.0)
    assert agree("sighting", seen, sight(1, 2.3, 2.3, 3600.0))
    assert not agree("sighting", seen, sight(2, 2.0, 2.0, 0.0))
    assert not agree("sighting", seen, sight(1, 2.6, 2.0, 0.0))
    assert not agree("sighting", seen, sight(1, 2.0, 2.0, 3601.0))
    assert agree("sighting", sight(None), sight(None))
    assert not agree("sighting", sight(None), seen)
    assert agree("pose", seen, sight(1, 2.0, 2.0, 9e9))
    assert not agree("pose", seen, sight(1, 2.0, 2.6, 0.0))
    often = module.Often(20, 0.0, 1e6)
    assert agree("often", often, module.Often(18, 10.0, 1e6))
    assert not agree("often", often, module.Often(17, 0.0, 1e6))
    assert not agree("often", often, module.Often(20, 4000.0, 1e6))
    moved = module.Belief(1, "moved", (0.0, 0.0))
    assert agree("state", moved, module.Belief(1, "moved", (0.0, 0.4)))
    assert not agree("state", moved, module.Belief(1, "moved", (0.0, 0.6)))
    assert not agree("state", moved, module.Belief(1, "gone"))
    assert agree("reward", -0.5, -0.65)
    assert not agree("reward", -0.5, None)
    assert agree("things", frozenset({1, 2}), frozenset({2, 1}))
    assert not agree("labels", frozenset({"a"}), frozenset())
    with pytest.raises(ValueError, match="unknown form"):
        agree("weather", 1, 1)


def test_the_value_of_sets(load: Any) -> None:
    module = load("memory.retention_value")
    rng = np.random.default_rng(0)
    for _ in range(20):
        facts = [
            module.Fact(frozenset(rng.choice(7, rng.integers(1, 4), replace=False).tolist()), float(weight))
            for weight in rng.integers(1, 6, 6)
        ]
        sizes = [1, 2, 3, 7]
        greedy, bounds = module.greedy_values(facts, 7, sizes), module.value_bounds(facts, 7, sizes)
        for size, found, bound in zip(sizes, greedy, bounds, strict=True):
            best = max(module.value_of(facts, chosen) for chosen in itertools.combinations(range(7), size))
            assert (1 - 1 / np.e) * best - 1e-9 <= found <= best + 1e-9
            assert bound >= best - 1e-9
        assert greedy[-1] == pytest.approx(sum(fact.weight for fact in facts))


def test_the_dense_store_answers_what_the_simulator_knows(load: Any, tmp_path: Path) -> None:
    world_module, bench = load("memory.retention_world"), load("memory.retention")
    questions_module = load("memory.retention_questions")
    from memory import MemoryStore

    world = world_module.world_of(world_module.WorldOptions(**SMALL, clutter=0.0))
    questions = questions_module.questions_of(world, 5)
    with MemoryStore.open(tmp_path, dim=world.options.dim) as store:
        store.add([entry.memory for entry in world.observations])
        answers = bench._answers(questions, store)
    # Merging and views may fail, what only needs sights must not.
    exact = {"last seen", "first seen", "how often", "between: events", "between: people", "between: a drive"}
    asked = [
        questions_module.agree(question.form, answer, question.truth)
        for question, answer in zip(questions, answers, strict=True)
        if question.name in exact
    ]
    assert len(asked) > 20
    assert all(asked)
    for question in questions:
        assert all(question.needs), question.name


def test_other_choices_keep_as_many(load: Any) -> None:
    world_module, bench = load("memory.retention_world"), load("memory.retention")
    observations = world_module.world_of(world_module.WorldOptions(**SMALL)).observations
    rows = bench._recent_of_places(observations, 40)
    assert len(set(rows)) == len(rows) == 40
    assert rows == sorted(rows)
    assert rows[-1] == len(observations) - 1
    for wanted in (len(observations), len(observations) // 2, len(observations) // 8):
        config = bench._config_for(observations, wanted)
        kept = bench._count(observations, config.share, config.window_s)
        assert 0.6 * wanted <= kept <= wanted


def test_the_study_runs_and_is_drawn(
    load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    out, picture = tmp_path / "retention.json", tmp_path / "retention.png"
    bench = load("memory.retention")
    monkeypatch.setattr(bench, "_SMALL", {**SMALL, "days": 4})
    assert bench.main(["--quick", "--out", str(out), "--png", str(picture)]) == 0
    assert "Aims" in capsys.readouterr().out
    assert str(ROOT) not in out.read_text()
    assert str(tmp_path) not in out.read_text()
    values = json.loads(out.read_text())
    assert values["benchmark"] == "retention"
    for row in values["shares"]:
        # What is unique is kept, and is more than a tenth of a few days.
        assert row["achieved"] <= max(row["share"], 0.15)
        for side in row["sides"].values():
            assert side["kept"] == row["kept"]
            assert side["value"] <= row["oracle_bound"] + 1e-6
    whole = values["shares"][0]["sides"]
    assert {side["of_oracle"] for side in whole.values()} == {1.0}
    tenth = next(row["sides"] for row in values["shares"] if row["share"] == 0.1)
    assert tenth["ours"]["of_oracle"] > tenth["random"]["of_oracle"]
    assert tenth["ours"]["agree"] > tenth["random"]["agree"]
    assert values["parked"]["events_kept"] == values["parked"]["events"] == 12
    assert picture.stat().st_size > 10_000
