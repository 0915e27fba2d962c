"""The page of a drive, what viewers are shown of it, and bags as its input."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memory import Memory, MemoryStore
from perception import Detections, PointCloud
from perception.errors import DataError
from perception.io.recordings.bags import open_bag
from perception.visualise.recording import RecordingMoment
from perception.visualise.recordings import open_recordings

SECOND_NS, DAY_NS = 10**9, 24 * 3600 * 10**9
START_NS = 1_767_571_200 * SECOND_NS
VOID = {"meta", "input", "br", "image", "path", "polyline", "rect", "circle", "polygon", "img", "link"}


@pytest.fixture(scope="module")
def drive() -> ModuleType:
    """The demo's package with its modules."""
    for name in ("bag_frames", "frames", "questions", "report.page", "report.picture", "robot", "senses"):
        importlib.import_module(f"drive.{name}")
    return importlib.import_module("drive")


class Page(HTMLParser):
    """Elements that are opened and closed, addresses, and text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.counts: Counter[str] = Counter()
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "action")]
        if tag not in VOID or not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] in VOID and self.open[-1] != tag:
            self.open.pop()
        assert self.open.pop() == tag


def scan(seed: int, count: int = 500) -> PointCloud:
    random = np.random.default_rng(seed)
    points = random.uniform([2, -20, -2, 0], [38, 20, 1, 1], (count, 4)).astype(np.float32)
    points[0] = np.nan
    return PointCloud(points)


def found(cars: int) -> Detections:
    boxes = np.array([[8.0 + 5 * k, 3.0, -0.8, 4.2, 1.8, 1.5, 0.2] for k in range(cars)], np.float32)
    return Detections(boxes.reshape(-1, 7), np.linspace(0.9, 0.6, cars, dtype=np.float32), ["Car"] * cars)


def memories() -> list[Memory]:
    made = [
        Memory(
            time_ns=START_NS + k,
            position=(5.0 * k, 2.0, 0.0),
            label="Car",
            payload={"size_m": [4.2, 1.8, 1.5]},
            state="gone" if k == 2 else "present",
            count=k + 1,
        )
        for k in range(4)
    ]
    return [*made, Memory(time_ns=START_NS, position=(1.0, 1.0, 0.0), kind="place", caption="<stop> & go")]


def answers(drive: ModuleType) -> list[Any]:
    Answer = drive.questions.Answer
    return [
        Answer("last seen", "When was a <Car> last seen?", "Mon", "Mon", True, 2.0, (5.0, 2.0)),
        Answer("nearby", "Which cars are near?", "2", "3", False, 4.0, None),
    ]


def reported(drive: ModuleType, **changed: Any) -> Any:
    tally = drive.robot.Tally(
        offered=20,
        kept=14,
        displaced=2,
        merged=3,
        timeline=[(5, 4), (12, 8), (20, 9)],
        detection_ms=[10.0, 30.0, 20.0],
        observe_ms=[1.0, 2.0, 3.0],
        consolidation_s=[0.5],
        presence_s=[0.25],
    )
    tally.dropped["of … at this place, … are kept"] = 5
    tally.dropped["like one that is kept"] = 1
    drawn = drive.report.picture.DriveSummary(
        "a drive", [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)], tally.timeline, memories(), memories()[:2]
    )
    examples = [drive.viewers.Example(k, f"scan-{k}", START_NS, scan(k), found(k)) for k in range(3)]
    given = {
        "title": "A drive & more",
        "settings": "seed 0",
        "drawn": drawn,
        "tally": tally,
        "bytes": 12_345,
        "days": [drive.viewers.Day(0, 0), drive.viewers.Day(1, 2)],
        "examples": examples,
        "fates": [("merged", "with … others", 3, "memory 4: with 2 others")],
    }
    return drive.report.page.ReportContent(**{**given, **changed})


def judged(drive: ModuleType, name: str) -> Any:
    from drive.comparison import StoreEvaluation  # type: ignore[import-not-found]
    from drive.truth import agreement  # type: ignore[import-not-found]

    none = agreement([], [])
    known = {"name": name, "memories": 5, "bytes": 999, "everything": none, "cars": none}
    return StoreEvaluation(**known, answers=answers(drive))


def test_the_page_is_whole_and_asks_for_nothing(drive: ModuleType, tmp_path: Path) -> None:
    shown = reported(drive, results=[judged(drive, "ours"), judged(drive, "latest")])
    text = drive.report.page.write_report(tmp_path / "new" / "a.html", shown).read_text(encoding="utf-8")
    page = Page(text)
    assert page.open in ([], ["!doctype"])
    assert page.addresses
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert not re.search(r"https?://|@import|url\(", text)
    assert page.counts["script"] == 0
    # One map, two curves, three scans.
    assert page.counts["svg"] == 6
    assert page.counts["image"] == 3
    assert "A drive &amp; more" in text
    assert "&lt;stop&gt; &amp; go" in text
    assert "<stop>" not in text


def test_a_drive_without_truth_memories_or_scans(drive: ModuleType, tmp_path: Path) -> None:
    empty = drive.report.picture.DriveSummary("nothing", [], [], [])
    shown = drive.report.page.ReportContent(
        "Nothing", "", empty, drive.robot.Tally(), answers=["It saw <nothing>."]
    )
    text = drive.report.page.write_report(tmp_path / "a.html", shown).read_text(encoding="utf-8")
    assert Page(text).counts["svg"] == 1
    assert "It saw &lt;nothing&gt;." in text
    assert "no score" in text
    with pytest.raises(ValueError, match=r"a\.txt: choose a name that ends in \.html"):
        drive.report.page.write_report(tmp_path / "a.txt", shown)


def test_fates_are_those_of_the_store(drive: ModuleType, tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=4) as store:
        ids = store.add(memories())
        store.forget(ids[:1])
    fates = drive.report.page.fates_of(tmp_path / "store", 4)
    assert sum(count for _, _, count, _ in fates) == len(ids)
    assert {status for status, *_ in fates} == {"kept", "forgotten"}
    (forgotten,) = [fate for fate in fates if fate[0] == "forgotten"]
    assert forgotten[2] == 1
    assert forgotten[3].startswith(f"memory {ids[0]}: ")


def percept(drive: ModuleType, cars: int) -> Any:
    return drive.senses.Percept(found(cars), np.zeros(4, np.float32), np.full(3, np.inf), 5.0)


def frame(drive: ModuleType, number: int, day: int = 0) -> Any:
    pose = np.eye(4)
    pose[0, 3] = number
    at = START_NS + day * DAY_NS + number * SECOND_NS
    return drive.frames.Frame(f"scan-{number}", day, at, scan(number, 20), pose)


def test_a_viewer_is_told_of_scans_days_and_memories(drive: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("foxglove")
    path = tmp_path / "a.mcap"
    with MemoryStore.open(tmp_path / "store", dim=4) as store, drive.viewers.DriveViewer(mcap=path) as view:
        store.add(memories())
        robot = SimpleNamespace(store=store, tally=drive.robot.Tally(timeline=[(20, 5)]))
        for number in range(12):
            view(robot, frame(drive, number, day=number // 8), percept(drive, 2))
        view.finish(memories())
        assert [tuple(day) for day in view.days] == [(0, 0), (1, 8)]
        assert view.examples == []
    with open_bag(path) as bag:
        sizes = {topic.name: topic.size for topic in bag.topics}
    # Memories: with the first scan of a day, every ten scans, and in the end.
    assert sizes == {
        "/points": 12,
        "/detections": 12,
        "/tf": 12,
        "/pose": 12,
        "/trajectory": 12,
        "/numbers": 12,
        "/memories": 4,
    }


def recording(path: Path, times_s: list[float], *, posed_until_s: float = 1e9) -> Path:
    """An MCAP file with scans at some times, of which the first have poses."""
    pytest.importorskip("foxglove")
    with open_recordings(mcap=path, title="a test") as written:
        for k, at in enumerate(times_s):
            pose = np.eye(4)
            pose[:2, 3] = at, 2 * at
            known = {"map_from_lidar": pose} if at <= posed_until_s else {}
            moment = RecordingMoment(k, START_NS + round(at * SECOND_NS))
            written.scan(scan(k, 20), Detections.empty(), moment, **known)
    return path


def test_a_recording_is_a_drive(drive: ModuleType, tmp_path: Path) -> None:
    path = recording(tmp_path / "town.mcap", [0.0, 1.0, 2.0, 2.5, 9.0, 24 * 3600.0], posed_until_s=2.0)
    frames = drive.bag_frames.BagFrames(path)
    assert len(frames) == 6
    seen = list(frames)
    assert [one.name for one in seen] == [f"town-{k:06d}" for k in range(4)]
    assert frames.skipped == 2
    np.testing.assert_allclose([one.map_from_lidar[:2, 3] for one in seen], [[0, 0], [1, 2], [2, 4], [2, 4]])
    assert [one.time_ns for one in seen][:2] == [START_NS, START_NS + SECOND_NS]
    poses = tmp_path / "poses.jsonl"
    poses.write_text("".join(f'{{"frame": {k}, "x": {k}, "y": 0, "yaw": 0}}\n' for k in range(6)))
    given = list(drive.bag_frames.BagFrames(path, poses_file=poses))
    assert [one.map_from_lidar[0, 3] for one in given] == [0, 1, 2, 3, 4, 5]
    assert [one.day for one in given] == [0, 0, 0, 0, 0, 1]


def test_a_recording_without_poses_is_refused(drive: ModuleType, tmp_path: Path) -> None:
    path = recording(tmp_path / "a.mcap", [0.0, 1.0], posed_until_s=-1.0)
    with pytest.raises(DataError, match=r"a\.mcap: no poses; expected nav_msgs/msg/Odometry.*--poses"):
        list(drive.bag_frames.BagFrames(path))
