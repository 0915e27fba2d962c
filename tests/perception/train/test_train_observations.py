"""Observations: which boxes show which object, files of them, and scans that are thinned out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from perception.data import open_data_set
from perception.errors import ConfigError, DataError
from perception.model.embedding import EmbeddingHead
from perception.model.network import Network
from perception.run.eager import EagerRunner, EagerSteps
from perception.train.data.frames import TrainingFrame
from perception.train.identity import run as towns
from perception.train.identity.observations import Observations, Observer, View, drive_views, thin_points

Street = Callable[[int], TrainingFrame]


@pytest.fixture
def eager(tiny_network: Network) -> Network:
    """A network that reports whatever it finds."""
    nms = replace(tiny_network.config.nms, score_threshold=0.0)
    tiny_network.config = replace(tiny_network.config, nms=nms)
    return tiny_network.fold()


def test_each_object_is_shown_by_the_box_that_overlaps_it_most(eager: Network, street: Street) -> None:
    points = street(0).points
    torch.manual_seed(0)
    eager.add_embedding(EmbeddingHead().eval())
    (found,) = EagerRunner(eager, EagerSteps)([torch.from_numpy(points)])
    assert len(found.boxes) > 3
    far = np.array([[500, 500, 0, 4, 2, 2, 0]], np.float32)
    # The same object twice: only one box shows it.
    truth = np.concatenate([found.boxes[2:3], far, found.boxes[:1]])
    view = View(points, truth, np.array([7, 8, 9]), "here", 1.5, thinned=True)
    sights = Observer(eager)([view, View(points[:0], truth, np.arange(3), "there", 2.0)])
    assert sights.objects.tolist() == ["here 9", "here 7"]
    np.testing.assert_array_equal(sights.boxes, found.boxes[[0, 2]])
    np.testing.assert_array_equal(sights.labels, found.labels[[0, 2]])
    assert (sights.scenes.tolist(), sights.times_s.tolist()) == (["here"] * 2, [1.5] * 2)
    assert sights.thinned.all()
    # The features are those that the head reads, and the head is in its place again.
    assert isinstance(eager.embedding, EmbeddingHead)
    assert found.embeddings is not None
    with torch.inference_mode():
        vectors = eager.embedding(torch.from_numpy(sights.features))
    torch.testing.assert_close(vectors, torch.from_numpy(found.embeddings[[0, 2]]))


def test_files_of_sights(eager: Network, street: Street, tmp_path: Path) -> None:
    points = street(0).points
    (found,) = EagerRunner(eager, EagerSteps)([torch.from_numpy(points)])
    view = View(points, found.boxes, np.arange(len(found.boxes)), "here", 0.0)
    sights = Observer(eager)([view])
    sights.save(tmp_path / "deep/one.npz")
    loaded = Observations.load(tmp_path / "deep/one.npz")
    assert loaded.objects.tolist() == sights.objects.tolist()
    np.testing.assert_allclose(loaded.features, sights.features, rtol=1e-3)
    assert len(Observations.joined([loaded, loaded])) == 2 * len(sights)
    assert len(Observations.joined([])) == len(Observer(eager)([])) == 0
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"bad.npz: damaged"):
        Observations.load(tmp_path / "bad.npz")


def test_thinning_leaves_rows_or_points_out() -> None:
    points = np.random.default_rng(0).uniform(-20, 20, (4000, 4)).astype(np.float32)
    known = {row.tobytes() for row in points}
    shares = []
    for seed in range(6):
        fewer = thin_points(points, np.random.default_rng(seed))
        assert all(row.tobytes() in known for row in fewer)
        shares.append(len(fewer) / len(points))
        np.testing.assert_array_equal(fewer, thin_points(points, np.random.default_rng(seed)))
    assert 0.2 < min(shares) < max(shares) < 0.8
    assert len(thin_points(points[:0], np.random.default_rng(0))) == 0


def test_a_data_set_without_identities_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((4, 4), np.float32))
    with pytest.raises(DataError, match="frame 'one' has no track ids"):
        list(drive_views(open_data_set(tmp_path), scene="folder", seed=0))


@pytest.mark.slow
def test_towns_are_seen_to_all_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("open3d", exc_type=ImportError)
    monkeypatch.setattr(towns, "_EXTENT_M", 20.0)
    monkeypatch.setattr(towns, "_RANGE_M", 30.0)
    monkeypatch.setattr(towns, "_PLACES_M", (0, 6))
    views = list(towns.town_views(3))
    assert [(view.scene, view.time_s) for view in views] == [
        ("town 3", float(k)) for k in (0,) * 4 + (1,) * 4
    ]
    for view in views:
        assert view.points.dtype == view.boxes.dtype == np.float32
        assert len(view.points) > 100
        assert np.abs(np.arctan2(view.points[:, 1], view.points[:, 0])).max() <= np.pi / 4 + 1e-4
    first, second = views[0], views[1]
    # The same boxes, turned by about a quarter.
    assert np.array_equal(first.identities, second.identities)
    np.testing.assert_allclose(
        np.linalg.norm(first.boxes[:, :2], axis=1), np.linalg.norm(second.boxes[:, :2], axis=1), rtol=1e-4
    )
    quarter = np.median((first.boxes[:, 6] - second.boxes[:, 6]) % (2 * np.pi))
    assert abs(quarter - np.pi / 2) < 0.5


def test_detectors_that_shrink_scans_are_refused(tiny_network: Network) -> None:
    config = tiny_network.config
    tiny_network.config = replace(config, pillars=replace(config.pillars, shrink=5.0))
    with pytest.raises(ConfigError, match=r"pillars\.shrink"):
        Observer(tiny_network)
