"""The long drive of the demo: percepts in files, who is believed, and the benchmark that sums it up."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.memory import drive as bench_drive
from benchmarks.publish.blocks import BLOCKS
from memory import Memory, MemoryStore
from memory.merging import MergeOptions
from memory.observe.presence import PresenceOptions, look_again
from memory.observe.views import Views
from perception import Detections, PointCloud

SECOND_NS, DAY_NS = 10**9, 24 * 3600 * 10**9
PRESENCE = PresenceOptions(same=MergeOptions(max_distance_m=2.0))


@pytest.fixture(scope="module")
def drive() -> Any:
    """Parts of the demo by their names."""
    return lambda name: importlib.import_module(f"drive.{name}")


def sight(x: float, y: float, time_s: float, label: str = "Car", **fields: Any) -> Memory:
    return Memory(
        **{
            "time_ns": round(time_s * SECOND_NS),
            "position": (x, y, 0.0),
            "label": label,
            "covariance": np.diag([0.09, 0.09, 0.1]),
            "provenance": "detector",
            **fields,
        }
    )


def passing(times: np.ndarray) -> Views:
    """Looks ahead of a robot that drives along x, two and a half metres a second."""
    position = np.column_stack([2.5 * times, np.zeros_like(times), np.zeros_like(times)])
    time_ns = np.round(times * SECOND_NS).astype(np.int64)
    return Views(position, np.zeros(len(times)), time_ns, range_m=27.0, field_of_view_rad=1.6, near_m=4.0)


def test_what_is_seen_from_one_of_many_viewpoints_is_doubted(drive: Any) -> None:
    judging = drive("verdicts")
    views = passing(np.arange(0.0, 60.0))
    often = [sight(60.0, 6.0, time_s) for time_s in range(12, 20)]
    seen = sorted([*often, sight(100.0, 6.0, 30.0, confidence=0.6)], key=lambda entry: entry.time_ns)
    known = [sight(60.0, 6.0, 12.0, id=1), sight(100.0, 6.0, 30.0, id=2, confidence=0.6)]
    verdicts = judging.judge(known, seen, look_again(known, seen, views, PRESENCE), views)
    assert list(verdicts.doubtful) == [2]
    assert "false positive: seen from 1 of" in verdicts.doubtful[2]
    assert verdicts.left == {}


def test_a_sure_sight_was_there_for_a_moment(drive: Any) -> None:
    views = passing(np.arange(0.0, 60.0))
    seen = [sight(100.0, 6.0, 30.0, confidence=0.97)]
    known = [sight(100.0, 6.0, 30.0, confidence=0.97, id=1)]
    verdicts = drive("verdicts").judge(known, seen, look_again(known, seen, views, PRESENCE), views)
    assert verdicts.doubtful == {}
    assert verdicts.left[1].startswith("present for a moment only: seen from 1 of")


def test_people_seen_once_by_an_unsure_detector_are_doubted(drive: Any) -> None:
    """Of few viewpoints one sight is no improbable share; a second sight or a sure one is believed."""
    views = passing(np.arange(0.0, 4.0))
    once = sight(45.0, -7.0, 3.0, "Cyclist", confidence=0.72)
    sure = sight(45.0, 7.0, 3.0, "Cyclist", confidence=0.9)
    twice = [sight(35.0, 0.0, time_s, "Pedestrian", confidence=0.72) for time_s in (2.0, 3.0)]
    car = sight(35.0, 10.0, 3.0, confidence=0.72)
    seen = [twice[0], once, sure, twice[1], car]
    known = [replace(each, id=id) for id, each in enumerate((once, sure, twice[0], car), 1)]
    change = look_again(known, seen, views, PRESENCE)
    verdicts = drive("verdicts").judge(known, seen, change, views)
    assert verdicts.doubtful == {1: "false positive: seen once, with a score below 0.85"}
    assert verdicts.left == {}


def test_who_walks_has_left_and_who_stands_has_not(drive: Any) -> None:
    judging = drive("verdicts")
    views = passing(np.arange(0.0, 12.0))
    walker = [sight(40.0 + 1.3 * k, 7.0, 3.0 + k, "Pedestrian") for k in range(3)]
    stander = [sight(45.0, -7.0, 3.0 + k, "Pedestrian") for k in range(4)]
    seen = sorted([*walker, *stander], key=lambda entry: entry.time_ns)
    known = [sight(40.0, 7.0, 3.0, "Pedestrian", id=1), sight(45.0, -7.0, 3.0, "Pedestrian", id=2)]
    known.append(sight(50.0, -7.0, -DAY_NS / SECOND_NS, "Pedestrian", id=3))
    verdicts = judging.judge(known, seen, look_again(known, seen, views, PRESENCE), views)
    assert verdicts.left == {1: "it was walking", 3: "people do not stay overnight"}
    assert verdicts.doubtful == {}


def test_of_two_labels_at_one_place_the_rarer_is_wrong(drive: Any) -> None:
    views = passing(np.arange(0.0, 12.0))
    seen = [sight(45.0, -7.0, 3.0 + k, "Pedestrian") for k in range(4)]
    seen.insert(1, sight(45.1, -7.0, 3.5, "Cyclist"))
    known = [
        sight(
            45.0,
            -7.0,
            3.0,
            "Pedestrian",
            id=1,
            count=4,
            first_seen_ns=3 * SECOND_NS,
            last_seen_ns=6 * SECOND_NS,
        ),
        sight(45.1, -7.0, 3.5, "Cyclist", id=2, confidence=0.99),
    ]
    verdicts = drive("verdicts").judge(known, seen, look_again(known, seen, views, PRESENCE), views)
    assert verdicts.doubtful == {2: "false positive: a Pedestrian is at its place"}


def test_standing_looks_are_one_viewpoint(drive: Any) -> None:
    """A false alarm of a long stop is seen thirty times from one place."""
    judging = drive("verdicts")
    times = np.concatenate([np.arange(0.0, 10.0), np.linspace(10.0, 10.9, 30), np.arange(11.0, 20.0)])
    position = np.column_stack(
        [2.5 * np.where((times >= 10) & (times < 11), 10.0, times), 0 * times, 0 * times]
    )
    views = Views(
        position, np.zeros(len(times)), np.round(times * SECOND_NS).astype(np.int64),
        range_m=27.0, field_of_view_rad=1.6, near_m=4.0,
    )  # fmt: skip
    seen = [sight(45.0, 6.0, time_s, confidence=0.7) for time_s in times[10:40]]
    known = [sight(45.0, 6.0, 10.0, id=1, confidence=0.7)]
    verdicts = judging.judge(known, seen, look_again(known, seen, views, PRESENCE), views)
    assert "seen from 1 of" in verdicts.doubtful[1]


def test_percepts_come_back_as_they_were(drive: Any, tmp_path: Path) -> None:
    frames, senses, percepts = drive("frames"), drive("senses"), drive("percepts")
    rng = np.random.default_rng(0)
    present = {7: ("Car", np.array([1.25, -3.5])), 8: ("Cyclist", np.array([0.1, 0.2]))}
    frame = frames.Frame(
        "day0-loop0-000", 0, 123, PointCloud(np.zeros((5, 4), np.float32)), rng.normal(size=(4, 4)),
        (frames.Place(7, *present[7]),), present, True,
    )  # fmt: skip
    found = Detections(
        rng.normal(size=(2, 7)).astype(np.float32), np.array([0.9, 0.4], np.float32), ["Car", "Car"]
    )
    percept = senses.Percept(found, rng.normal(size=256).astype(np.float32), np.array([1.5, np.inf]), 12.5)
    nothing = percept._replace(detections=Detections.empty())
    percepts.write_percepts(tmp_path / "day", [(frame, percept), (frame, nothing)])
    (again, same), (_, empty) = percepts.read_percepts(tmp_path / "day")
    for name in ("name", "day", "time_ns", "standing"):
        assert getattr(again, name) == getattr(frame, name)
    assert np.array_equal(again.map_from_lidar, frame.map_from_lidar)
    assert again.visible[0].key == 7
    assert again.present.keys() == present.keys()
    assert np.array_equal(again.present[8][1], present[8][1])
    assert np.array_equal(same.detections.boxes, found.boxes)
    assert np.array_equal(same.detections.scores, found.scores)
    assert np.array_equal(same.vector, percept.vector)
    assert np.array_equal(same.free_m, percept.free_m)
    assert (same.detections.labels, same.detection_ms) == (["Car", "Car"], 12.5)
    assert len(empty.detections) == 0


def test_a_day_is_the_same_alone_and_after_others(drive: Any) -> None:
    frames, town = drive("frames"), drive("town")
    small = town.Town(town.TownConfig(half_m=(22.0, 20.0)), 2, 3)
    config = frames.DriveConfig(2, 1, 20.0, 1, 3)
    whole = [frame for frame in frames.simulated_frames(small, config) if frame.day == 1]
    alone = list(frames.simulated_frames(small, config, [1]))
    assert [frame.name for frame in alone] == [frame.name for frame in whole]
    for one, other in zip(alone, whole, strict=True):
        assert np.array_equal(one.cloud.points, other.cloud.points)
        assert np.array_equal(one.map_from_lidar, other.map_from_lidar)


def test_a_trimmed_log_gives_its_room_back(tmp_path: Path) -> None:
    """A day of undone-no-more operations leaves pages that the next day uses."""
    with MemoryStore.open(tmp_path / "store", dim=4) as store:
        sizes = []
        for day in range(4):
            ids = store.add([sight(k, day, k + 1000 * day, caption="x" * 500) for k in range(400)])
            store.forget(ids)
            store.database.trim_log(keep_operations=0)
            assert not store.database.tidy()
            sizes.append((tmp_path / "store" / "memory.db").stat().st_size)
        assert sizes[-1] < 1.4 * sizes[0]


@pytest.mark.slow
def test_the_benchmark_runs_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, percepts = tmp_path / "drive-cpu.json", tmp_path / "percepts"
    arguments = ["--quick", "--json", "--out", str(out), "--percepts", str(percepts)]
    with pytest.raises(SystemExit, match="2 days are not perceived yet"):
        bench_drive.main([*arguments, "--again"])
    assert bench_drive.main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert first == json.loads(out.read_text())
    written = {path: path.stat().st_mtime_ns for path in percepts.rglob("*.gz")}
    assert len(written) == 2
    assert bench_drive.main([*arguments, "--again"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {path: path.stat().st_mtime_ns for path in percepts.rglob("*.gz")} == written
    one, other = (values["seeds"][0] for values in (first, again))
    assert one["observations"] == other["observations"] > 0
    for name, store in one["stores"].items():
        assert store["what_is_where_now"] == other["stores"][name]["what_is_where_now"]
        assert store["questions"]["right"] == other["stores"][name]["questions"]["right"]
        kinds = first["summary"][name]["kinds"]
        assert sum(kind["right"] for kind in kinds.values()) == store["questions"]["right"]
    monkeypatch.setattr("benchmarks.publish.text.RESULTS", tmp_path)
    for name in ("drive", "drive-kinds"):
        assert [line.split("|")[1].strip() for line in BLOCKS[name]().splitlines()[2:]] == [
            "ours",
            "keeps everything",
            "keeps the most recent",
        ]
    assert f"Of {one['observations']:,} observations" in BLOCKS["drive-became"]()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--days", "1"], "at least 2"),
        (["--seeds", "1", "1"], "must differ"),
        (["--processes", "0"], "at least 1"),
    ],
)
def test_wrong_options(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_drive.main(arguments)
    assert message in capsys.readouterr().err
