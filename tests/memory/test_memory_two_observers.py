"""``demos/two_observers.py`` and what it is made of: two observers, one memory, judged by labels."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from memory.merging.motion import Motion
from memory.merging.robots import seen_by
from memory.observe.views import Views

START, TENTH = 10**18, 10**8
SIZE = [4.2, 1.8, 1.5]


@pytest.fixture(scope="module")
def scenes() -> ModuleType:
    return importlib.import_module("observers.scenes")


@pytest.fixture(scope="module")
def sharing() -> ModuleType:
    return importlib.import_module("observers.sharing")


@pytest.fixture(scope="module")
def judging() -> ModuleType:
    return importlib.import_module("observers.judging")


def cars(at: int) -> np.ndarray:
    """Six cars on lanes of their own, every other one the other way, and a parked one."""
    starts = [(0.0, 0.0), (7.0, 4.0), (2.0, 9.0), (11.0, 15.0), (5.0, 22.0), (9.0, 30.0)]
    moving = [
        [(0.9 * at - 20.0 + x) * (-1) ** lane, y, 0.5, *SIZE, math.pi * (lane % 2)]
        for lane, (x, y) in enumerate(starts)
    ]
    return np.array([*moving, [8.0, -8.0, 0.5, *SIZE, 1.0]])


def observer(scenes: ModuleType, name: str, rows: slice, *, shift: tuple[float, float] = (0.0, 0.0)) -> Any:
    """What stands at the origin and sees some of the cars for three seconds; its pose is off by a shift."""
    pose = np.eye(4)
    pose[:2, 3] -= shift
    records = [
        {
            "frame": str(at), "timestamp_ns": START + at * TENTH, "boxes": cars(at)[rows].tolist(),
            "scores": [1.0] * len(cars(at)[rows]), "labels": ["Car"] * len(cars(at)[rows]),
            "pose": {"map_from_lidar": pose[:3].tolist()},
        }
        for at in range(30)
    ]  # fmt: skip
    count = len(records)
    views = Views(
        np.tile(pose[:3, 3], (count, 1)), np.zeros(count), START + np.arange(count) * TENTH, range_m=60.0
    )
    return scenes.Observer(name, records, views)


@pytest.fixture
def scene(scenes: ModuleType) -> Any:
    both = (
        observer(scenes, "vehicle", slice(0, 6)),
        observer(scenes, "roadside", slice(1, 7), shift=(0.7, 0.6)),
    )
    truth = [
        scenes.Instant(START + at * TENTH, cars(at), ["car"] * 7, lambda places: np.ones(len(places), bool))
        for at in range(5, 25)
    ]
    return scenes.SharedScene("lanes", both, truth, (0.7, 0.6), (0.7, 0.6))


def test_both_together_know_more_than_either(
    scene: Any, sharing: ModuleType, judging: ModuleType, tmp_path: Path
) -> None:
    shared = sharing.share(scene.observers, tmp_path)
    assert shared.motion == pytest.approx(Motion(0.0, 0.7, 0.6), abs=0.01)
    assert (shared.before, len(shared.memories), shared.objects) == (12, 7, 7)
    assert sum(len(seen_by(memory)) == 2 for memory in shared.memories) == 5
    score = judging.judge(shared.memories, scene.truth)
    assert (score.precision, score.recall, score.doubled) == (1.0, 1.0, 0)
    alone = judging.judge(shared.alone["vehicle"], scene.truth)
    assert (alone.precision, alone.recall) == pytest.approx((1.0, 6 / 7))
    who = [sharing.witnesses(memory, scene.observers, shared.motion) for memory in shared.memories]
    assert sorted(one["vehicle"] for one in who) == ["in view"] + ["saw it"] * 6


@pytest.mark.parametrize("how", [{"send_twice": True}, {"last_first": True}])
def test_the_order_and_number_of_messages_do_not_matter(
    scene: Any, sharing: ModuleType, tmp_path: Path, how: dict[str, bool]
) -> None:
    places = []
    for folder, options in (("calm", {}), ("disturbed", how)):
        shared = sharing.share(scene.observers, tmp_path / folder, **options)
        places.append(sorted((memory.place, memory.count) for memory in shared.memories))
    np.testing.assert_allclose([(*place, count) for place, count in places[0]],
                               [(*place, count) for place, count in places[1]], atol=1e-6)  # fmt: skip


def test_wrong_poses_double_objects_and_alignment_undoes_that(
    scene: Any, scenes: ModuleType, sharing: ModuleType, judging: ModuleType, tmp_path: Path
) -> None:
    wrong = scenes.disturbed(scene.observers[1], shift_m=(0.0, -2.5), turn_rad=math.radians(1.0))
    observers = (scene.observers[0], wrong)
    trusting = sharing.share(observers, tmp_path / "trusting", align=False)
    aligned = sharing.share(observers, tmp_path / "aligned")
    assert len(trusting.memories) == 12
    assert len(aligned.memories) == 7
    assert judging.judge(aligned.memories, scene.truth).recall == 1.0
    assert judging.judge(trusting.memories, scene.truth).precision < 0.7


@pytest.mark.parametrize("clock_s", [0.1, 0.3, 1.0])
def test_a_wrong_clock_is_corrected_with_the_pose(
    scene: Any, scenes: ModuleType, sharing: ModuleType, judging: ModuleType, tmp_path: Path, clock_s: float
) -> None:
    late = scenes.disturbed(scene.observers[1], clock_s=clock_s)
    shared = sharing.share((scene.observers[0], late), tmp_path)
    assert shared.motion == pytest.approx(Motion(0.0, 0.7, 0.6, shared.motion.clock_ns), abs=0.01)
    assert shared.motion.clock_ns / 1e9 == pytest.approx(-clock_s, abs=0.005)
    assert (len(shared.memories), shared.objects) == (7, 7)
    score = judging.judge(shared.memories, scene.truth)
    assert (score.precision, score.recall, score.doubled) == (1.0, 1.0, 0)
    who = [sharing.witnesses(memory, (scene.observers[0], late), shared.motion) for memory in shared.memories]
    assert sorted(one["roadside"] for one in who) == ["in view"] + ["saw it"] * 6


def test_lost_frames_and_clocks(scene: Any, scenes: ModuleType) -> None:
    roadside = scene.observers[1]
    lost = scenes.disturbed(roadside, lost=0.5, seed=1)
    assert 5 < len(lost.records) < 25
    late = scenes.disturbed(roadside, clock_s=0.5)
    assert late.records[0]["timestamp_ns"] - roadside.records[0]["timestamp_ns"] == 5 * TENTH
    assert late.views.time_ns[0] - roadside.views.time_ns[0] == 5 * TENTH


def test_doubled_and_wrong_memories_lower_precision(
    scene: Any, sharing: ModuleType, judging: ModuleType, tmp_path: Path
) -> None:
    memories = sharing.share(scene.observers, tmp_path).memories
    doubled = [Motion(0.0, 0.5, 0.0).memory(memories[0]), *memories]
    doubled[0].payload.pop("tracks")
    score = judging.judge(doubled, scene.truth)
    assert (score.recall, score.doubled) == (1.0, len(scene.truth))
    far = [Motion(0.0, 30.0, 30.0).memory(memory) for memory in memories]
    assert judging.judge(far, scene.truth).right == 0


@pytest.mark.slow
def test_kills_change_nothing(scene: Any, sharing: ModuleType, tmp_path: Path) -> None:
    killing = importlib.import_module("observers.killing")
    calm = killing.share_by_commands(scene.observers, tmp_path / "calm")
    killed = killing.share_by_commands(scene.observers, tmp_path / "killed", kills=1, most_s=1.5)
    assert killed.kills > 0
    found = [sorted((m.place, m.count, m.label) for m in one.memories) for one in (calm, killed)]
    assert found[0] == found[1]
    assert len(found[0]) == 7


@pytest.mark.slow
def test_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("open3d", reason="Open3D is not installed (extra 'simulate')")
    demo = importlib.import_module("two_observers")
    monkeypatch.setattr("sys.argv", ["two_observers.py", "--frames", "8", "--out", str(tmp_path), "--json"])
    demo.main()
    report = json.loads(capsys.readouterr().out)
    alone, both = (report["scores"][name]["recall"] for name in ("vehicle alone", "both, aligned"))
    assert both > alone
    page = Path(report["page"]).read_text()
    assert page.count("<rect") == report["memories"]
    for words in ("saw it", "hidden", "vehicle", "roadside"):
        assert words in page
    with pytest.raises(SystemExit):
        demo.main()  # The folder holds a store.


def test_without_data_the_demo_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = importlib.import_module("two_observers")
    monkeypatch.setattr("sys.argv", ["two_observers.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit):
        demo.main()
    assert "Leave out --data to simulate a street" in capsys.readouterr().err
