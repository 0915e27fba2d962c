"""The vectorised evaluation against the naive one, on random labels and results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from naive_kitti import NaiveKitti
from random_kitti import Frames, random_frames, write_frames

from perception.evaluate.kitti import evaluate_kitti

CLASSES = ("Car", "Pedestrian", "Cyclist")


def assert_agrees(labels: Frames, results: Frames) -> None:
    result = evaluate_kitti(labels, results)
    naive = NaiveKitti(labels, results)
    for name in CLASSES:
        for metric in ("2d", "bev", "3d"):
            for difficulty in ("easy", "moderate", "hard"):
                precision, orientation = naive.curves(name, metric, difficulty)
                place = f"{name} {metric} {difficulty}"
                np.testing.assert_allclose(
                    result.curves[name, metric, difficulty], precision, rtol=0, atol=1e-9, err_msg=place
                )
                if metric == "2d":
                    wanted = orientation if naive.has_alpha else [np.nan] * 41
                    actual = result.curves[name, "aos", difficulty]
                    np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-9, err_msg=place)


@pytest.mark.parametrize("frame_count", [1, 7, 20])
@pytest.mark.parametrize("seed", range(4))
def test_crowded_frames(seed: int, frame_count: int) -> None:
    assert_agrees(*random_frames(seed, frame_count))


@pytest.mark.parametrize("seed", range(2))
def test_long_curves(seed: int) -> None:
    labels, results = random_frames(seed, 60, neat=True)
    assert_agrees(labels, results)
    assert evaluate_kitti(labels, results).ap("Car", "2d", "hard") > 20


def test_missing_orientation() -> None:
    assert_agrees(*random_frames(11, 10, orientation=False))


def test_files_give_what_objects_give(tmp_path: Path) -> None:
    labels, results = random_frames(5, 20)
    folders = write_frames(tmp_path / "labels", labels), write_frames(tmp_path / "results", results)
    assert evaluate_kitti(*folders).to_dict() == evaluate_kitti(labels, results).to_dict()


def test_chunks_of_pairs_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, results = random_frames(6, 15)
    whole = evaluate_kitti(labels, results).to_dict()
    monkeypatch.setattr("perception.evaluate.greedy._PAIRS_PER_CHUNK", 3)
    assert evaluate_kitti(labels, results).to_dict() == whole
