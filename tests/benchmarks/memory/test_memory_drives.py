"""The benchmark of memories on drives: what it says of things, and that peers are asked as ours is."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.data import CameraCalibration, objects_from_boxes
from perception.data.kitti import write_calibration

FRAMES = 20


@pytest.fixture
def drives(load: Callable[[str], Any]) -> Iterator[Any]:
    return load("memory.memory_drives")


@pytest.fixture
def study(drives: Any) -> Any:
    return importlib.import_module("drive.labelled.study")


@pytest.fixture
def sequence(tmp_path: Path) -> Path:
    """KITTI's tracking sequences: one in which two cars stand and one drives by, without poses."""
    folder = tmp_path / "kitti_tracking"
    for name in ("label_02", "calib"):
        (folder / name).mkdir(parents=True)
    write_calibration(folder / "calib/0007.txt", CameraCalibration.default())
    lines = []
    for number in range(FRAMES):
        boxes = np.array(
            [[*place, -0.9, 4, 1.7, 1.5, 0] for place in ((20, 4), (20, -6), (9 + number, 0))], np.float32
        )
        items = objects_from_boxes(boxes, ["Car"] * 3, None, CameraCalibration.default())
        for track, item in enumerate(items):
            values = (item.alpha, *item.box_2d, item.height_m, item.width_m, item.length_m, *item.location)
            words = " ".join(f"{value:.6f}" for value in (*values, item.rotation_y))
            lines.append(f"{number} {track} Car 0 0 {words}")
        lines.append(f"{number} -1 DontCare -1 -1 -10 0 0 0 0 -1 -1 -1 -1000 -1000 -1000 -10")
    (folder / "label_02/0007.txt").write_text("\n".join(lines) + "\n")
    (folder / "seqmap.txt").write_text(f"0007 empty 000000 {FRAMES:06d}\n")
    return tmp_path


def test_a_sequence_without_poses_is_counted(drives: Any, sequence: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert drives.main(["--data", str(sequence), "--quick", "--json", "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    (case,) = values["cases"]
    assert (case["drive"], case["boxes"], case["things"]) == ("KITTI tracking 0007", 3 * FRAMES, 3)
    ours, every = case["sides"]["ours"], case["sides"]["everything"]
    assert (ours["memories"], ours["one"], ours["error_median_m"]) == (3, 1.0, None)
    assert ours["questions"]["counts"] == [[3, 3]]
    assert (every["memories"], every["one"], every["split"]) == (3 * FRAMES, 0.0, 3 * FRAMES - 3)
    summary = values["summary"]["without poses"]["ours"]
    assert summary["counted"] == [3, 3]
    assert summary["questions"]["parked"] == [0, 0]


def test_no_data_is_named(drives: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        drives.main(["--data", str(tmp_path)])
    assert "no kitti_sequences, nuscenes or kitti_tracking in it" in capsys.readouterr().err


def test_permanence_tells_split_from_joined_and_lost(study: Any) -> None:
    truth_module = importlib.import_module("drive.truth")
    held = importlib.import_module("drive.labelled.stores").StoredObject
    truth = truth_module.Truth(days={0: {}})
    for key, place in enumerate([(0.0, 0.0), (5.0, 0.0), (9.0, 0.0), (14.0, 0.0)]):
        truth.sights[key] = [truth_module.Sight(at, 0, "Car", np.array(place)) for at in range(3)]
    # The first has two memories, the second went into one of them, the third into none, the fourth is right.
    owners = ["a", "a", "a", "b", "b", "b", "a", "a", None, "d", "d", "d", "e"]
    identities = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3, None]
    things = [held(name, "Car", place) for name, place in (("a", (0.0, 0.5)), ("b", (0.0, 0.1)), ("d", None))]
    things.append(held("e", "Car", (40.0, 0.0)))
    found = study._permanence(things, owners, identities, truth)
    assert found == {"one": 0.25, "split": 1, "joined": 1, "lost": 1, "false": 1}
    error = study._position_error(things, owners, identities, truth)
    assert error["error_median_m"] == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["rtsm", "robotmem"])
def test_peers_know_what_stands(load: Callable[[str], Any], drives: Any, tmp_path: Path, name: str) -> None:
    pytest.importorskip(name, reason=f"{name} is no dependency: pip install {name}")
    seen_module = importlib.import_module("drive.labelled.scans")
    sights_of = importlib.import_module("memory.tracks").Sights
    seen = []
    for frame in range(10):
        boxes = np.array([[20.0, -4, 0, 4, 1.7, 1.5, 0], [40.0, 9, 0, 4, 1.7, 1.5, 0]])
        moment = seen_module.Moment(0, frame, frame * 10**8 + 10**18, None, np.eye(4))
        sights = sights_of(
            time_ns=moment.time_ns, track_id=[1, 2], boxes=boxes, labels=["Car", "Tram"], scores=[0.9, 0.8]
        )
        seen.append(seen_module.Observation(moment, sights, None, 0.0))
    peer = load("memory.drive_peers").peers()[name](tmp_path / name)
    peer.remember(seen)
    asked = peer.asked
    assert len(peer.held()) == 2
    assert asked.how_many("Car", (10**18, 2 * 10**18)) == 1
    assert asked.how_many("Car", (0, 10**17)) == 0
    assert asked.stood_at("Car", (20.5, -4.0))
    assert not asked.stood_at("Car", (40.0, 9.0))
    assert asked.last_seen("Tram", (40.0, 9.5)) == 10**18 + 9 * 10**8
    owners = peer.owners()
    assert len(owners) == 20
    assert len(set(owners)) == 2
    peer.close()
