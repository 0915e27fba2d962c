"""``perceive calibrate``: sizes, scores and thresholds of a folder of frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception import Detector
from perception.checkpoints.weights import load_weights, save_calibrated
from perception.config import DetectorConfig
from perception.data import open_data_set
from perception.data.kitti import KittiWriter
from perception.evaluate.sizes import grown

Perceive = Callable[..., Any]


@pytest.fixture(scope="module")
def cars(tmp_path_factory: pytest.TempPathFactory, kitti_directory: Path) -> Path:
    """The four fullest validation frames, with cars 0.3 m longer and 0.2 m wider, as in another market."""
    source = sorted(open_data_set(kitti_directory, "val"), key=lambda frame: -frame.labels.count("Car"))
    folder = tmp_path_factory.mktemp("market") / "kitti"
    writer = KittiWriter(folder, "velodyne_reduced")
    for frame in source[:4]:
        objects = [
            replace(entry, length_m=entry.length_m + 0.3, width_m=entry.width_m + 0.2)
            if entry.type == "Car"
            else entry
            for entry in frame.objects
        ]
        writer.write(frame.frame_id, frame.cloud, objects, frame.calibration)
    return folder


@pytest.mark.slow
def test_sizes_scores_and_thresholds(perceive: Perceive, cars: Path, tmp_path: Path) -> None:
    made = tmp_path / "market.safetensors"
    given = ("calibrate", "--data", cars, "--weights", "pointpillars-kitti", "--out", made)
    done = perceive(*given, "--thresholds", "--json")
    assert done.status == 0, done.remarks
    record = json.loads(done.output)
    car = record["sizes"]["Car"]
    assert car["saved"]
    assert car["IoU_fitted"] > car["IoU"] + 0.02
    before, after = load_weights("pointpillars-kitti").config, load_weights(made).config
    assert after.nms.size_offsets_m["Car"] == pytest.approx(car["offsets_m"])
    assert after.nms.size_offsets_m["Car"][:2] == pytest.approx((0.3, 0.2), abs=0.1)
    assert after.nms.report_thresholds["Car"] == record["thresholds"]["Car"]["threshold"]
    unsaved = [name for name, entry in record["calibration"].items() if not entry["saved"]]
    assert unsaved
    for name in unsaved:
        assert after.nms.score_maps[name] == before.nms.score_maps[name]
    cloud = open_data_set(cars)[0].cloud
    found, changed = (
        Detector.from_pretrained(name).with_score_threshold(0.3)(cloud).filter(labels=["Car"])
        for name in ("pointpillars-kitti", made)
    )
    rows = min(len(found), len(changed))
    assert rows > 0
    order = np.argsort(found.boxes[:rows, 0]), np.argsort(changed.boxes[:rows, 0])
    np.testing.assert_allclose(
        grown(found.boxes[order[0]], car["offsets_m"])[:, 3:6], changed.boxes[order[1]][:, 3:6], atol=1e-3
    )


@pytest.mark.slow
def test_sizes_of_a_market_are_given(perceive: Perceive, cars: Path, tmp_path: Path) -> None:
    made = tmp_path / "market.safetensors"
    given = ("calibrate", "--data", cars, "--weights", "pointpillars-kitti", "--out", made)
    done = perceive(*given, "--sizes", "Car=4.6,1.9,1.6")
    assert done.status == 0, done.remarks
    assert "Metres to add to boxes" in done.output
    assert "sizes of Car" in done.output
    detector = Detector.from_pretrained(made)
    boxes = [detector(frame.cloud).filter(labels=["Car"]).boxes for frame in open_data_set(cars)]
    assert np.median(np.concatenate(boxes)[:, 3:6], axis=0) == pytest.approx((4.6, 1.9, 1.6), abs=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sizes", "Car=4.6"), "--sizes must be CLASS=LENGTH,WIDTH,HEIGHT"),
        (("--sizes", "Car=4.6,1.9,-1"), "--sizes must be CLASS=LENGTH,WIDTH,HEIGHT"),
        (("--sizes", "Lorry=4.6,1.9,2"), "Lorry"),
        (("--weights", "pointpillars-nowhere"), "no weights"),
    ],
)
def test_what_is_refused(
    perceive: Perceive, kitti_folder: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = perceive("calibrate", "--data", kitti_folder, "--out", tmp_path / "w.safetensors", *options)
    assert done.status == 2
    assert message in done.remarks
    assert not (tmp_path / "w.safetensors").exists()


def test_fitting_nothing_is_an_error(
    perceive: Perceive, kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "w.safetensors"
    done = perceive("calibrate", "--data", kitti_folder, "--weights", tiny_weights, "--out", out)
    assert done.status == 2
    assert "no size, score or threshold could be improved" in done.remarks
    assert not out.exists()


def test_offsets_add_up_and_thresholds_are_replaced(
    tiny_weights: Path, tiny_config: DetectorConfig, tmp_path: Path
) -> None:
    save_calibrated(tiny_weights, tmp_path / "one.safetensors", {}, offsets_m={"Car": (0.2, 0.1, 0.0)})
    save_calibrated(
        tmp_path / "one.safetensors",
        tmp_path / "two.safetensors",
        {"Car": (1.0, 0.0)},
        offsets_m={"Car": (0.1, 0.1, 0.1)},
        thresholds={"Car": 0.4},
    )
    nms = load_weights(tmp_path / "two.safetensors").config.nms
    assert nms.size_offsets_m["Car"] == pytest.approx((0.3, 0.2, 0.1))
    assert nms.report_thresholds["Car"] == 0.4
    other = [name for name in tiny_config.head.classes if name != "Car"]
    assert not set(other) & set(nms.size_offsets_m)
