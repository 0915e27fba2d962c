"""Variants of the detector that are compared by training them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from perception.config import DetectorConfig
from perception.registry import make_network
from perception.train.data.batches import Batch


def test_peaks_are_at_the_nearest_point(load: Any) -> None:
    clouds = [torch.tensor([[1.0, 2.0, 0.5, 0.1], [5.0, 0.0, 9.0, 0.1]]), torch.zeros(0, 4)]
    boxes = torch.zeros(2, 2, 7)
    boxes[0, :, 0], boxes[1, :, 0] = torch.tensor([0.5, 4.0]), torch.tensor([7.0, 8.0])
    batch = Batch(
        clouds, boxes, torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 2, 2), torch.zeros(2, 0).long()
    )
    peaks = load("detector.architecture_sides").measured_peaks(batch)
    assert peaks.tolist() == [[[1.0, 2.0], [5.0, 0.0]], [[7.0, 0.0], [8.0, 0.0]]]
    assert float(boxes[0, 0, 1]) == 0


def test_sides_differ_in_what_they_say(load: Any) -> None:
    module = load("detector.architecture_sides")
    plain = DetectorConfig()
    sizes = {
        name: sum(value.numel() for value in make_network(side.change(plain)).parameters())
        for name, side in module.SIDES.items()
    }
    assert sizes["plain"] == sizes["peaks at points"] == sizes["no dilation"]
    assert sizes["no neck blocks"] < sizes["plain"] < sizes["twice the neck blocks"]
    assert not module.undilated(plain).backbone.dilating
    assert plain.backbone.dilating


@pytest.mark.slow
def test_the_benchmark_runs(load: Any, tmp_path: Path) -> None:
    bench = load("detector.architectures")
    data = bench.default_data()
    if not (data / "ImageSets" / "val.txt").is_file():
        pytest.skip(f"no KITTI frames in {data}")
    out = tmp_path / "out.json"
    sides = ["plain", "peaks at points", "no dilation"]
    arguments = ["--quick", "--data", str(data), "--parts", "val", "--out", str(out), "--sides", *sides]
    assert bench.main([*arguments, "--json"]) == 0
    values = json.loads(out.read_text())
    development, training = values["cases"]
    assert list(development["sides"]) == list(training["sides"]) == list(values["frame"]["sides"]) == sides
    assert list(development["gained"]) == list(values["frame"]["ratios"]) == sides[1:]
    losses = {side: row["loss"]["mean"] for side, row in development["sides"].items()}
    assert len(set(losses.values())) == 3
    assert str(tmp_path) not in json.dumps(values)
