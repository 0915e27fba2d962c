"""Kinds of detector: the table, and a whole other network with steps of its own, chosen by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from perception import Detector
from perception.budget import BudgetedDetector
from perception.checkpoints.weights import load_weights, save_weights
from perception.config import BackboneConfig, DetectorConfig, TrainConfig, from_dict, to_dict
from perception.config.backbone import BACKBONES, section_of
from perception.errors import CheckpointError, ConfigError
from perception.model.network import Network, NetworkMaps
from perception.model.pillars import Pillars
from perception.registry import KINDS, DetectorKind, graph_steps, make_network, register
from perception.run.eager import EagerLevels, EagerMap, EagerSteps
from perception.run.graph import FrameRunner, why_no_graph
from perception.train.data.frames import TrainingFrame
from perception.train.fine_tune import FineTune
from perception.train.trainer import Trainer

Street = Callable[[int], TrainingFrame]


class ContextNetwork(Network):
    """Every cell of the map also knows the mean of all of them."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__(config)
        self.context = nn.Linear(config.neck.out_channels, config.neck.out_channels)

    def with_context(self, features: Tensor) -> Tensor:
        return features + self.context(features.mean((2, 3)))[:, :, None, None]

    def maps(self, pillars: Pillars) -> NetworkMaps:
        features = self.with_context(super().maps(pillars).features)
        return NetworkMaps(features, self.head.heat_logits(features))


class ContextSteps(EagerSteps):
    """The steps of such a network."""

    network: ContextNetwork

    def neck(self, levels: EagerLevels) -> EagerMap:
        pillars, features, _ = super().neck(levels)
        features = self.network.with_context(features)
        return EagerMap(pillars, features, partial(self.network.head.heat_logits, features))


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, tiny_config: DetectorConfig) -> DetectorConfig:
    """A configuration of that kind, which is in the table meanwhile."""
    for table in (KINDS, BACKBONES):
        monkeypatch.setitem(table, "context", None)  # type: ignore[arg-type]
    register("context", DetectorKind(network=ContextNetwork, eager=ContextSteps))
    return replace(tiny_config, backbone=replace(tiny_config.backbone, kind="context"))


def test_every_section_has_its_kind() -> None:
    assert list(KINDS) == list(BACKBONES)
    assert BackboneConfig().kind == next(iter(KINDS))


@pytest.mark.parametrize("kind", ["thin", "", 3, ["sparse"], None])
def test_an_unknown_kind_names_those_there_are(kind: Any, tmp_path: Path, tiny_network: Network) -> None:
    known = r"backbone\.kind must be one of sparse, dense, anchors, centres; got "
    for ask in (lambda: BackboneConfig(kind=kind), lambda: section_of(kind),
                lambda: from_dict(TrainConfig, {"detector": {"backbone": {"kind": kind}}})):  # fmt: skip
        with pytest.raises(ConfigError, match=known):
            ask()
    path = rewritten(tiny_network, tmp_path, kind)
    with pytest.raises(CheckpointError, match=rf"{path.name}: invalid stored configuration.*{known}"):
        load_weights(path)


def rewritten(network: Network, folder: Path, *kind: Any) -> Path:
    """Weights whose configuration names another kind, or none."""
    path = folder / "weights.safetensors"
    save_weights(network, path)
    with safe_open(str(path), "pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    values = to_dict(network.config)
    del values["backbone"]["kind"]
    if kind:
        values["backbone"]["kind"] = kind[0]
    save_file(tensors, path, metadata={"sparsight.detector": json.dumps(values)})
    return path


def test_weights_that_name_no_kind_are_of_the_first(tmp_path: Path, tiny_network: Network) -> None:
    loaded = load_weights(rewritten(tiny_network, tmp_path))
    assert loaded.config == tiny_network.config
    assert type(loaded) is Network


def test_another_network_is_trained_kept_and_run(
    context: DetectorConfig, street: Street, tmp_path: Path, one_thread: None
) -> None:
    frame = street(0)
    config = TrainConfig(detector=context, steps=1, batch_size=1, workers=0, precision="float32")
    trainer = Trainer(config, tmp_path / "run", [frame])
    assert isinstance(trainer.network, ContextNetwork)
    before = trainer.network.context.weight.clone()
    trainer.train_step(next(iter(trainer._batches())))
    made = trainer.averaged_network()
    assert isinstance(made, ContextNetwork)
    assert not torch.equal(made.context.weight, before), "it learns by the losses of the others"
    path = tmp_path / "context.safetensors"
    save_weights(made, path)
    tuned = Trainer(config, tmp_path / "tuned", [frame], fine_tune=FineTune(str(path)))
    assert isinstance(tuned.averaged_network(), ContextNetwork)

    open_ = replace(context, nms=replace(context.nms, score_threshold=0.0))
    detector = Detector(load_weights(path, config=open_))
    found = detector(frame.points)
    assert len(found) > 0
    plain = Network(replace(open_, backbone=replace(open_.backbone, kind="sparse"))).eval()
    own = {name: value for name, value in load_weights(path).state_dict().items() if "context" not in name}
    plain.load_state_dict(own)
    assert Detector(plain)(frame.points).scores.tolist() != found.scores.tolist(), "its own step runs"
    assert len(BudgetedDetector(detector, 100.0)(frame.points)) > 0


def test_a_kind_without_graphs_says_so(context: DetectorConfig) -> None:
    network = make_network(context).eval().fold()
    assert "'context'" in str(why_no_graph(context, None, torch.device("cuda")))
    with pytest.raises(ValueError, match="fast=True needs CUDA graphs, but detectors of kind 'context'"):
        Detector(network, fast=True)
    with pytest.raises(ValueError, match="detectors of kind 'context'"):
        FrameRunner(network, graph_steps(network.config))
