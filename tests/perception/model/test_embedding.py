"""Vectors of boxes: the head, its file beside the weights, and boxes that do not change with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from perception import Detector
from perception.checkpoints.compression import compress_network, save_compressed_weights
from perception.checkpoints.weights import load_weights, save_weights, shipped_weights
from perception.config import DetectorConfig
from perception.errors import CheckpointError, ConfigError
from perception.model.embedding import EmbeddingHead, embedding_path, load_embedding, save_embedding
from perception.model.level import Level
from perception.model.network import Network
from perception.model.thinning import thinned
from perception.registry import graph_steps
from perception.run.graph import FrameRunner
from perception.train.data.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]


def head(seed: int = 0) -> EmbeddingHead:
    torch.manual_seed(seed)
    return EmbeddingHead().eval()


@pytest.fixture
def weights(tiny_network: Network, tmp_path: Path) -> Path:
    """A detector with a head beside it."""
    save_weights(tiny_network, tmp_path / "tiny.safetensors")
    save_embedding(head(), tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


@pytest.mark.parametrize("shape", [(5, 256), (2, 3, 256), (0, 256)])
def test_vectors_have_length_one(shape: tuple[int, ...]) -> None:
    vectors = head()(torch.randn(shape).relu())
    assert (tuple(vectors.shape), vectors.dtype) == ((*shape[:-1], 128), torch.float32)
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(shape[:-1]))


def test_half_precision_gives_nearly_the_same() -> None:
    features = torch.rand(9, 256)
    low = head().half()(features.half())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, head()(features), atol=2e-3, rtol=0)


def test_the_head_beside_weights_is_taken_along(weights: Path, street: Street) -> None:
    alone = weights.with_name("alone.safetensors")
    alone.write_bytes(weights.read_bytes())
    points = street(0).points
    plain, told = (
        Detector.from_pretrained(path).with_score_threshold(0.0)(points) for path in (alone, weights)
    )
    assert plain.embeddings is None
    assert told.embeddings is not None
    assert told.embeddings.shape == (len(told), 128)
    assert len(told) > 2
    assert told.boxes.tobytes() == plain.boxes.tobytes()
    assert told.scores.tobytes() == plain.scores.tobytes()
    empty = Detector.from_pretrained(weights)(points[:0])
    assert empty.embeddings is not None
    assert empty.embeddings.shape == (0, 128)


def test_vectors_are_of_the_boxes_features(tiny_network: Network, street: Street) -> None:
    """Of one frame, of the same among others, and of those that are reported only."""
    tiny_network.add_embedding(head())
    detector = Detector(tiny_network).with_score_threshold(0.0)
    one, other = street(1).points, street(2).points
    alone = detector(one)
    _, among = detector.detect_batch([other, one])
    assert alone.embeddings is not None
    assert among.embeddings is not None
    assert alone.embeddings.tobytes() == among.embeddings.tobytes()
    assert len(np.unique(alone.embeddings.round(4), axis=0)) > 1
    least = float(np.median(alone.scores))
    fewer = detector.with_score_threshold({"Car": least, "Pedestrian": least})(one)
    assert fewer.embeddings is not None
    assert 0 < len(fewer) < len(alone)
    assert fewer.embeddings.tobytes() == alone.embeddings[alone.scores >= least].tobytes()


def test_fixed_steps_give_the_same_vectors(tiny_config: DetectorConfig, street: Street) -> None:
    torch.manual_seed(5)
    config = replace(tiny_config, refine=replace(tiny_config.refine, channels=(16, 16, 16)))
    network = Network(config).eval()
    with torch.no_grad():
        # Untrained heat is 0.01 everywhere; this makes peaks that differ.
        network.head.heat.bias.fill_(0.0)
        network.head.heat.weight.mul_(20.0)
    network.add_embedding(head())
    expected = Detector(network)._eager
    clouds = [torch.from_numpy(street(0).points), torch.zeros(0, 4), torch.from_numpy(street(3).points)]
    runner = FrameRunner(network, graph_steps(network.config), dtype=torch.float32, impl="reference")
    for mine, theirs in zip(runner(clouds), expected(clouds), strict=True):
        assert mine.embeddings is not None
        assert theirs.embeddings is not None
        assert mine.embeddings.shape == theirs.embeddings.shape == (len(theirs.boxes), 128)
        torch.testing.assert_close(mine.embeddings, theirs.embeddings, atol=1e-4, rtol=0)
    assert len(mine.boxes) > 3
    without = replace(config, embedding=replace(config.embedding, enabled=False))
    network.embedding, network.config = None, without
    plain = FrameRunner(network, graph_steps(network.config), dtype=torch.float32, impl="reference")(clouds)
    assert all(one.embeddings is None for one in plain)
    for one, other in zip(plain, runner(clouds), strict=True):
        assert np.array_equal(one.boxes, other.boxes)


def test_saved_with_the_network_it_comes_back(weights: Path) -> None:
    network = load_weights(weights)
    assert network.config.embedding.enabled
    again = weights.with_name("again.safetensors")
    save_weights(network, again)
    loaded = load_weights(again)
    assert loaded.embedding is not None
    assert torch.equal(loaded.embedding.out.weight, head().half().float().out.weight)


def test_a_configuration_decides(weights: Path, tiny_config: DetectorConfig) -> None:
    assert load_weights(weights, config=tiny_config).embedding is None
    wanted = replace(tiny_config, embedding=replace(tiny_config.embedding, enabled=True))
    assert load_weights(weights, config=wanted).embedding is not None
    embedding_path(weights).unlink()
    network = load_weights(weights, config=wanted)
    assert network.embedding is None
    assert not network.config.embedding.enabled
    with pytest.raises(ConfigError, match=r"embedding.enabled must be false without a refinement"):
        replace(wanted, refine=replace(wanted.refine, enabled=False))
    bare = Network(replace(tiny_config, refine=replace(tiny_config.refine, enabled=False)))
    with pytest.raises(CheckpointError, match="with refinement"):
        bare.add_embedding(head())


def test_compression_leaves_the_head_out(weights: Path, tmp_path: Path) -> None:
    network = load_weights(weights).fold()
    packed = tmp_path / "packed.safetensors"
    save_compressed_weights(compress_network(network), network.config, packed)
    assert network.embedding is not None
    assert load_weights(packed).embedding is None
    save_embedding(head(), packed)
    assert load_weights(packed).embedding is not None


def test_a_level_with_fewer_refinements_has_none(weights: Path) -> None:
    network = load_weights(weights)
    assert thinned(network, Level("whole")).embedding is network.embedding
    thin = thinned(network, Level("one step", refinements=1))
    assert thin.embedding is None
    assert not thin.config.embedding.enabled


def test_files_that_do_not_fit(weights: Path) -> None:
    path = embedding_path(weights)
    assert load_embedding(weights.with_name("other.safetensors")) is None
    good = path.read_bytes()
    tensors = load_file(path)
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"tiny-embedding.safetensors: not an embedding head"):
        load_weights(weights)
    path.write_bytes(good[:100])
    with pytest.raises(CheckpointError, match="not an embedding head"):
        load_weights(weights)
    path.write_bytes(good)
    broken = head()
    broken.out.weight.data[0, 0] = 1e6
    with pytest.raises(ValueError, match=r"out.weight has values beyond half precision"):
        save_embedding(broken, weights)
    network = load_weights(weights)
    with torch.no_grad():
        network.head.heat.bias.add_(1.0)
    save_weights(network, weights)
    with pytest.raises(CheckpointError, match=r"belongs to other weights than tiny.safetensors"):
        load_weights(weights)


def test_heads_are_no_shipped_detectors() -> None:
    assert not any(name.endswith("-embedding") for name in shipped_weights())
