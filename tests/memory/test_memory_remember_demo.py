"""``demos/remember.py``: it adds up, it draws, and what judges the answers can say that they are wrong."""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from memory import Memory, MemoryStore
from memory.observe.views import Views
from perception import Detections, PointCloud
from perception.io import save_point_cloud

SECOND_NS, DAY_NS = 10**9, 24 * 3600 * 10**9


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """The program as a module."""
    return importlib.import_module("remember")


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    return importlib.import_module("drive.truth")


@pytest.fixture(scope="module")
def quiz() -> ModuleType:
    return importlib.import_module("drive.questions")


@pytest.fixture(scope="module")
def robot() -> ModuleType:
    return importlib.import_module("drive.robot")


@pytest.fixture(scope="module")
def senses() -> ModuleType:
    return importlib.import_module("drive.senses")


def car(x: float, y: float = 0.0, *, time_s: float = 0.0, **fields: Any) -> Memory:
    return Memory(**{"time_ns": round(time_s * SECOND_NS), "position": (x, y, 0.0), "label": "Car", **fields})


def run(demo: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["remember.py", *arguments])
    demo.main()


def check_picture(path: Path) -> None:
    picture = imread(path)
    assert min(picture.shape[:2]) > 400
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 50
    # Not a frame around nothing: ink in each quarter of it.
    height, width = (side // 2 for side in picture.shape[:2])
    for rows in (slice(None, height), slice(height, None)):
        for columns in (slice(None, width), slice(width, None)):
            assert np.ptp(picture[rows, columns, :3]) > 0.5


def check_figures(report: dict[str, Any]) -> None:
    """What was offered is kept or dropped, and what was kept is held, displaced or merged."""
    tally, stores = report["tally"], report["stores"]
    assert tally["offered"] > 0
    assert tally["kept"] + tally["dropped_total"] == tally["offered"]
    assert sum(tally["dropped"].values()) == tally["dropped_total"]
    forgotten = sum(tally["forgotten"].values())
    assert tally["held"] == tally["kept"] - tally["displaced"] - tally["merged"] - forgotten
    assert stores["ours"]["memories"] == tally["held"] == stores["latest"]["memories"]
    assert stores["everything"]["memories"] == tally["offered"]
    assert tally["detection_ms"]["median"] > 0
    asked = {store["questions"]["asked"] for store in stores.values()}
    assert len(asked) == 1
    for store in stores.values():
        questions = store["questions"]
        assert questions["right"] == sum(answer["right"] for answer in questions["answers"])
        assert questions["right"] == sum(kind["right"] for kind in questions["by_kind"].values())
        assert store["bytes"] > 0
        for part in store["what_is_where_now"].values():
            assert 0 <= part["precision"] <= part["near_truth"] <= 1
            assert part["found"] <= min(part["claimed"], part["there"])


def test_a_tiny_drive(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "stores"
    arguments = [
        "--short",
        "--days",
        "2",
        "--step",
        "20",
        "--stop",
        "2",
        "--questions",
        "2",
        "--capacity",
        "30",
        "--json",
    ]
    judged: list[Any] = []
    small = dataclasses.replace(demo.SHORT_TOWN, half_m=(22.0, 20.0), filled=0.9)
    monkeypatch.setattr(demo, "SHORT_TOWN", small)
    drive = demo.drive_through_town

    def noted(*given: Any) -> Any:
        report, results = drive(*given)
        judged.extend(results)
        return report, results

    monkeypatch.setattr(demo, "drive_through_town", noted)
    run(demo, monkeypatch, *arguments, "--out", str(tmp_path), "--store", str(store))
    report = json.loads(capsys.readouterr().out)
    check_figures(report)
    assert sum(report["tally"]["forgotten"].values()) > 0
    assert report["tally"]["held"] <= 30
    shown = io.StringIO()
    demo.show_results(Console(file=shown, width=200), judged)
    ours = report["stores"]["ours"]["questions"]
    assert re.search(rf"^ours .* {ours['right']} of {ours['asked']}", shown.getvalue(), re.MULTILINE)
    assert shown.getvalue().count("(wrong:") == shown.getvalue().count("✗") == ours["asked"] - ours["right"]
    kinds = {"last seen", "nearby", "changed", "still there", "how often", "place"}
    # In so small a town there may be no change that is well inside the radius that is asked about.
    assert kinds - {"changed"} <= set(report["stores"]["ours"]["questions"]["by_kind"]) <= kinds
    check_picture(tmp_path / "remember.png")
    with MemoryStore.open(store / "ours", readonly=True) as opened:
        assert len(opened) == report["tally"]["held"]
        assert opened.check().ok
    with pytest.raises(SystemExit):
        run(demo, monkeypatch, "--store", str(store))
    assert "already contains a store" in capsys.readouterr().err


@pytest.mark.slow
def test_the_short_drive(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(demo, monkeypatch, "--short", "--json", "--out", str(tmp_path))
    report = json.loads(capsys.readouterr().out)
    check_figures(report)
    check_picture(tmp_path / "remember.png")
    stores = report["stores"]
    ours, everything, latest = (stores[name] for name in ("ours", "everything", "latest"))
    assert ours["questions"]["right"] > everything["questions"]["right"] > latest["questions"]["right"]
    cars = ours["what_is_where_now"]["cars"]
    assert cars["recall"] > 0.9
    assert cars["precision"] > 0.7
    assert cars["error_median_m"] < 0.3
    assert ours["memories"] * 3 < everything["memories"]


def test_recorded_scans(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scans, poses = tmp_path / "scans", []
    scans.mkdir()
    frames = importlib.import_module("drive.frames")
    town = importlib.import_module("drive.town")
    small = town.Town(town.TownConfig(half_m=(24.0, 20.0), filled=0.9), 1, 0)
    for number, frame in zip(
        range(3), frames.simulated_frames(small, frames.DriveConfig(1, 1, 6.0, 0, 0)), strict=False
    ):
        save_point_cloud(scans / f"{number:06d}.bin", frame.cloud)
        poses.append(" ".join(f"{value:.9f}" for value in frame.map_from_lidar[:3].reshape(-1)))
    (tmp_path / "poses.txt").write_text("\n".join(poses) + "\n")
    arguments = ["--scans", str(scans), "--poses", str(tmp_path / "poses.txt"), "--out", str(tmp_path)]
    run(demo, monkeypatch, *arguments)
    printed = capsys.readouterr().out
    offered, held = (
        re.search(rf"^{word} +([1-9]\d*)", printed, re.MULTILINE) for word in ("observed", "held")
    )
    assert offered is not None
    assert held is not None
    assert int(offered[1]) >= int(held[1])
    assert "Car was last seen on 2026-01-05" in printed
    check_picture(tmp_path / "remember.png")
    (tmp_path / "poses.txt").write_text(poses[0] + "\n")
    with pytest.raises(SystemExit, match="needs row 1"):
        run(demo, monkeypatch, *arguments)


@pytest.mark.slow
def test_an_indoor_sequence(
    demo: ModuleType,
    data_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sequence = tmp_path / "sequence"
    sequence.mkdir()
    source = data_directory / "rgbd_indoor"
    names = [path.name.removesuffix(".depth.png") for path in sorted(source.glob("*.depth.png"))[::20]]
    for name in names:
        for ending in (".depth.png", ".color.jpg", ".pose.txt"):
            (sequence / f"{name}{ending}").symlink_to((source / f"{name}{ending}").resolve())
    (sequence / "camera-intrinsics.txt").symlink_to((source / "camera-intrinsics.txt").resolve())
    run(demo, monkeypatch, "--rgbd", str(sequence), "--json", "--out", str(tmp_path))
    report = json.loads(capsys.readouterr().out)
    assert report["frames"] == len(names) == report["asked"] + report["tally"]["offered"]
    assert report["tally"]["kept"] + report["tally"]["dropped_total"] == report["tally"]["offered"]
    assert report["memories"] == report["tally"]["held"] > 0
    assert all(share <= report["could_be_found"] for share in report["found_again"].values())
    check_picture(tmp_path / "remember.png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--days", "0"], "at least 1"),
        (["--loops", "5"], "from 1 to 4"),
        (["--step", "0"], "from 0.5 to 20"),
        (["--scans", "somewhere"], "--scans needs --poses"),
    ],
)
def test_wrong_arguments(
    demo: ModuleType,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        run(demo, monkeypatch, *arguments)
    assert message in capsys.readouterr().err


def test_no_sequence_there(demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"expected \*\.depth\.png"):
        run(demo, monkeypatch, "--rgbd", str(tmp_path), "--out", str(tmp_path / "out"))


def test_agreement(truth: ModuleType) -> None:
    places = [
        truth.Place(1, "Car", np.array([0.0, 0.0])),
        truth.Place(2, "Car", np.array([10.0, 0.0])),
        truth.Place(3, "Pedestrian", np.array([20.0, 0.0])),
    ]
    claims = [car(0.3), car(0.1), car(11.5), car(20.0), car(50.0)]
    found = truth.agreement(claims, places)
    assert (found.claimed, found.there, found.found) == (5, 3, 1)
    assert found.recall == pytest.approx(1 / 3)
    # Two claims of one car are one too many; a car is no pedestrian.
    assert found.precision == pytest.approx(1 / 5)
    assert found.near_truth == pytest.approx(2 / 5)
    assert found.error_median_m == pytest.approx(0.3)
    assert found.error_95_m == pytest.approx(0.3 + 0.9 * 1.2)
    nothing = truth.agreement([], places)
    assert (nothing.recall, nothing.precision, nothing.error_median_m) == (0.0, 1.0, None)
    wrong = truth.agreement(claims, [])
    assert (wrong.recall, wrong.precision, wrong.near_truth) == (1.0, 0.0, 0.0)


def test_the_closest_pairs_first(truth: ModuleType) -> None:
    distance = np.array([[0.4, 0.2], [0.1, 0.3], [9.0, 9.0]])
    assert truth.pairs(distance, 1.0) == [(1, 0), (0, 1)]
    assert truth.pairs(np.zeros((0, 2)), 1.0) == []


def test_answers_can_be_wrong(quiz: ModuleType, truth: ModuleType, tmp_path: Path) -> None:
    day = 1000 * DAY_NS
    at, elsewhere = np.array([0.0, 0.0]), np.array([30.0, 0.0])
    vectors = np.eye(4, dtype=np.float32)
    with MemoryStore.open(tmp_path / "store", dim=4) as store:
        old = {"first_seen_ns": day, "last_seen_ns": day + 100 * SECOND_NS, "count": 2}
        store.add([car(0.2, time_ns=day + 100 * SECOND_NS, **old)])
        since = store.generation
        store.add(
            [
                car(5.0, time_ns=day + DAY_NS),
                car(10.0, time_ns=day, state="gone"),
                Memory(time_ns=day, position=(0, 0, 0), kind="place", embedding=vectors[0]),
                Memory(time_ns=day, position=(50, 0, 0), kind="place", embedding=vectors[1]),
            ]
        )
        memories = quiz.StoreUnderTest(store, since)

        def right(question: Any) -> bool:
            (answer,) = quiz.ask(memories, [question])
            assert answer.ms > 0
            assert answer.said
            return bool(answer.right)

        seen = day + 100 * SECOND_NS
        assert right(quiz.last_seen_question("Car", day + DAY_NS))
        assert not right(quiz.last_seen_question("Car", day + DAY_NS + 60 * SECOND_NS))
        assert not right(quiz.last_seen_question("Cyclist", seen))
        assert right(quiz.last_seen_at_question("Car", at, seen))
        assert not right(quiz.last_seen_at_question("Car", at, day))
        assert not right(quiz.last_seen_at_question("Car", elsewhere, seen))

        near, new = truth.Place(1, "Car", np.array([0.0, 0.0])), truth.Place(2, "Car", np.array([5.0, 0.5]))
        left = truth.Place(3, "Car", np.array([10.0, 0.0]))
        assert right(quiz.nearby_question(at, 8.0, [near, new]))
        assert right(quiz.nearby_question(at, 12.0, [near, new]))
        assert not right(quiz.nearby_question(at, 8.0, [near]))
        assert not right(quiz.nearby_question(at, 12.0, [near, new, left]))
        assert not right(quiz.nearby_question(at, 8.0, [near, truth.Place(2, "Car", np.array([5.0, 3.0]))]))

        middle = np.array([5.0, 0.0])
        assert right(quiz.changed_question(middle, 8.0, day + DAY_NS, [new], [left]))
        assert not right(quiz.changed_question(middle, 8.0, day + DAY_NS, [new], []))
        assert not right(quiz.changed_question(middle, 8.0, day + DAY_NS, [], [left]))
        assert not right(quiz.changed_question(middle, 8.0, day + DAY_NS, [new, near], [left]))

        assert right(quiz.still_there_question("Car", at, True))
        assert not right(quiz.still_there_question("Car", at, False))
        assert right(quiz.still_there_question("Car", np.array([10.0, 0.0]), False))
        assert not right(quiz.still_there_question("Car", np.array([10.0, 0.0]), True))
        assert not right(quiz.still_there_question("Car", elsewhere, False))

        assert right(quiz.how_often_question("Car", None, 2))
        assert not right(quiz.how_often_question("Car", None, 1))
        assert right(quiz.how_often_question("Car", at, 1))
        assert not right(quiz.how_often_question("Car", elsewhere, 1))

        assert right(quiz.place_question(at, vectors[0]))
        assert not right(quiz.place_question(at, vectors[1]))


def test_questions_about_a_small_truth(quiz: ModuleType, truth: ModuleType, tmp_path: Path) -> None:
    """A car stays, one leaves, one comes: a perfect memory is always right, an empty one hardly ever."""
    frames = importlib.import_module("drive.frames")
    places = {1: (0.0, 0.0), 2: (20.0, 0.0), 3: (40.0, 0.0)}
    log = truth.Truth()
    for day, keys in ((0, (1, 2)), (1, (1, 3))):
        present = {key: ("Car", np.array(places[key])) for key in keys}
        frame = frames.Frame(
            name=f"{day}",
            day=day,
            time_ns=frames.START_NS + day * DAY_NS + 9 * 3600 * SECOND_NS,
            cloud=PointCloud(np.zeros((0, 4), np.float32)),
            map_from_lidar=np.eye(4),
            visible=tuple(frames.Place(key, *where) for key, where in present.items()),
            present=present,
        )
        log.add(frame)
    questions = quiz.questions_about(log, [], each=4, seed=0)
    assert {question.kind for question in questions} == {
        "last seen",
        "nearby",
        "changed",
        "still there",
        "how often",
    }
    times = [frames.START_NS + day * DAY_NS + 9 * 3600 * SECOND_NS for day in (0, 1)]
    with MemoryStore.open(tmp_path / "perfect", dim=4) as store:
        stays = {"first_seen_ns": times[0], "last_seen_ns": times[1], "count": 2}
        store.add([car(0.0, time_ns=times[1], **stays), car(40.0, time_ns=times[1])])
        store.add([car(20.0, time_ns=times[0], state="gone")])
        answers = quiz.ask(quiz.StoreUnderTest(store, 0), questions)
        assert [answer.text for answer in answers if not answer.right] == []
    with MemoryStore.open(tmp_path / "empty", dim=4) as store:
        answers = quiz.ask(quiz.StoreUnderTest(store, 0), questions)
        nothing = {answer.text for answer in answers if answer.right}
        assert all(answer.expected in ("0", "0 new, 0 gone") for answer in answers if answer.text in nothing)
        assert len(nothing) < len(answers) / 4


def test_what_is_not_seen_again_is_gone(robot: ModuleType, tmp_path: Path) -> None:
    times = np.arange(100, 104) * SECOND_NS
    views = Views(np.zeros((4, 3)), np.zeros(4), times, range_m=30.0, field_of_view_rad=math.pi)
    with MemoryStore.open(tmp_path / "store", dim=4) as store:
        store.add([car(10.0), car(20.0), car(-10.0), car(15.0, 3.0, state="gone")])
        seen = [car(20.1, time_s=102.0)]
        assert robot.tidy(store, seen, views, "default") == (1, {})
        states = {memory.position[0]: memory.state for memory in store.find(robot.Filter())}
        # Behind the robot nobody looked.
        assert states == {10.0: "gone", 20.0: "present", -10.0: "present", 15.0: "gone"}
        assert robot.tidy(store, seen, views, "default") == (0, {})


def test_what_is_recognised_after_a_drive(senses: ModuleType, robot: ModuleType, tmp_path: Path) -> None:
    recognition = importlib.import_module("drive.recognition")
    frame = importlib.import_module("drive.frames").Frame(
        "f", 0, 0, PointCloud(np.zeros((0, 4), np.float32)), np.eye(4)
    )
    boxes, rows = np.array([[8, 1, -1, 4, 1.8, 1.5, 0]], np.float32), np.eye(2, 128, dtype=np.float32)
    with MemoryStore.open(tmp_path / "store", dim=3) as store:
        assert recognition.recognition_answers(store)[0] == recognition.NO_VECTORS
        assert "none of the newest places has an embedding" in recognition.recognition_answers(store)[1]
        for number, vector in enumerate(rows[[0, 1, 0]]):
            seen = Detections(boxes, np.ones(1, np.float32), ["Car"], embeddings=vector[None])
            moment = dataclasses.replace(frame, time_ns=number * DAY_NS)
            store.add(senses.memories_of(moment, seen, "town"))
            where = {"position": (number, 0, 0), "embedding": [1, 0.1 * number, 0], "kind": "place"}
            store.add([Memory(time_ns=number * DAY_NS, map_id="town", **where)])
        first, second = recognition.recognition_answers(store)
    assert "Yes: Car (memory 5) was seen on 1 earlier visit" in first
    assert "Car (memory 1)" in first
    assert "Yes: place (memory 6) was visited on 2 earlier visits" in second


def test_how_far_the_view_is_free(senses: ModuleType) -> None:
    frames = importlib.import_module("drive.frames")
    points = np.array([[10, 0.1, -1, 0], [12, 0.1, -1, 0], [5, 0.1, 2, 0], [4, 0.1, -1.7, 0]], np.float32)
    frame = frames.Frame("one", 0, 0, PointCloud(points), np.eye(4))
    free = senses.free_distances(frame)
    # Overhead and on the ground nothing hides a car.
    assert np.isfinite(free).sum() == 1
    assert free.min() == pytest.approx(math.hypot(10, 0.1), abs=1e-4)
    assert np.flatnonzero(np.isfinite(free)) == [50]


def test_the_town_changes_and_repeats() -> None:
    town = importlib.import_module("drive.town")
    first, again = (town.Town(town.TownConfig(half_m=(24.0, 20.0)), 3, 5) for _ in range(2))
    days = [town.positions(first.scene(day, 7), 0.0) for day in range(3)]
    others = [town.positions(again.scene(day, 7), 0.0) for day in range(3)]
    for one, other in zip(days, others, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key][1], other[key][1]) for key in one)
    cars = [{key for key, (label, _) in day.items() if label == "Car"} for day in days]
    assert cars[0] - cars[1]
    assert cars[1] - cars[0]
    cyclists = [sum(label == "Cyclist" for label, _ in day.values()) for day in days]
    assert cyclists == [0, 2, 0]
    for day in days:
        at = np.array([position for label, position in day.values() if label == "Car"])
        apart = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1)) + 99 * np.eye(len(at))
        assert apart.min() > 5.0
    route = first.route(4.0)
    steps = np.hypot(*np.diff([(spot.u, spot.v) for spot in route], axis=0).T)
    assert steps == pytest.approx(4.0, abs=0.3)
