"""Vectors of boxes from the CUDA graph: those of the eager network, and the same boxes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from perception import Detector
from perception.checkpoints.weights import load_weights
from perception.model.embedding import EmbeddingHead

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def scan(seed: int) -> np.ndarray:
    """A street with blocks of the size of cars."""
    random = np.random.default_rng(seed)
    ground = random.uniform([0, -30, -1.75, 0], [60, 30, -1.65, 0.4], (12_000, 4))
    places = random.uniform([6, -15, -1.7, 0], [45, 15, -1.7, 0], (12, 4))
    blocks = [place + random.uniform([-2, -0.8, 0, 0], [2, 0.8, 1.5, 0.6], (300, 4)) for place in places]
    return np.concatenate([ground, *blocks]).astype(np.float32)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_graphs_give_the_vectors_of_the_eager_network(precision: str) -> None:
    network = load_weights("pointpillars-kitti")
    torch.manual_seed(0)
    network.add_embedding(EmbeddingHead().eval())
    fast = Detector(network, device="cuda", precision=precision)  # type: ignore[arg-type]
    plain = Detector(network, device="cuda", fast=False)
    every = [detector.with_score_threshold(0.003) for detector in (fast, plain)]
    clouds = [scan(0), np.zeros((0, 4), np.float32), scan(1)]
    least = 0.9999 if precision == "float32" else 0.99
    compared = 0
    for found, expected in zip(*(detector.detect_batch(clouds) for detector in every), strict=True):
        assert found.embeddings is not None
        assert expected.embeddings is not None
        assert found.embeddings.shape == (len(found), 128)
        for box, vector in zip(found.boxes, found.embeddings, strict=True):
            away = np.abs(expected.boxes[:, :6] - box[:6]).max(axis=1)
            if len(away) and away.min() < 0.02:
                assert vector @ expected.embeddings[away.argmin()] > least
                compared += 1
    assert compared > 3
    streamed = list(every[0].stream(clouds))
    alone = [every[0](cloud) for cloud in clouds]
    for one, other in zip(streamed, alone, strict=True):
        assert one.embeddings is not None
        assert other.embeddings is not None
        assert np.array_equal(one.embeddings, other.embeddings)


def test_boxes_do_not_change() -> None:
    told, plain = (load_weights("pointpillars-kitti") for _ in range(2))
    told.add_embedding(EmbeddingHead().eval())
    plain.embedding = None
    with_head, without = (
        Detector(network, device="cuda").with_score_threshold(0.003) for network in (told, plain)
    )
    cloud = scan(2)
    one, other = with_head(cloud), without(cloud)
    assert one.boxes.tobytes() == other.boxes.tobytes()
    assert one.scores.tobytes() == other.scores.tobytes()
    assert other.embeddings is None
