"""Compared detectors: the sparse detector, its dense baseline, and the same network on spconv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from perception.checkpoints.weights import load_weights
from perception.detector import Detector
from perception.registry import graph_steps
from sparse_core.common.libraries import module_available
from sparse_core.errors import ImplementationError

SPARSE, DENSE, SPCONV = "sparse", "dense twin", "sparse on spconv"

#: Maps clouds to a repeatable function that computes their boxes.
Preparation = Callable[[Sequence[Tensor]], Callable[[], object]]


class Side(NamedTuple):
    """One row of the comparison.

    Attributes:
        name: of the row.
        make: loads the detector; raises if it cannot run here.
        slow: True if it takes part in few rounds only.
    """

    name: str
    make: Callable[[], Preparation]
    slow: bool = False


def sides_for(weights: str, dense_weights: str, device: torch.device) -> list[Side]:
    """Return the sides of a comparison.

    On CUDA, sides are float16 graphs with points and boxes on the device; on a CPU, detectors in float32.
    spconv runs layer by layer.

    Args:
        weights: of the sparse network, shipped name or file.
        dense_weights: of its dense baseline.
        device: where to run.
    """
    if device.type == "cuda":
        return [
            Side(SPARSE, lambda: _of_graphs(weights, device)),
            Side(DENSE, lambda: _of_graphs(dense_weights, device)),
            Side(SPCONV, lambda: _of_detector(_on_spconv(weights, device)), slow=True),
        ]
    return [
        Side(SPARSE, lambda: _of_detector(Detector.from_pretrained(weights, device))),
        Side(DENSE, lambda: _of_detector(Detector.from_pretrained(dense_weights, device))),
        Side(SPCONV, lambda: _of_detector(_on_spconv(weights, device))),
    ]


def _of_detector(detector: Detector) -> Preparation:
    def ready(clouds: Sequence[Tensor]) -> Callable[[], object]:
        given = list(clouds)
        return lambda: detector.detect_batch(given)

    return ready


def _of_graphs(weights: str, device: torch.device) -> Preparation:
    from perception.run.graph import FrameRunner

    network = load_weights(weights).to(device).eval().fold()
    runner = FrameRunner(network, graph_steps(network.config), dtype=torch.float16)

    def ready(clouds: Sequence[Tensor]) -> Callable[[], object]:
        # The capacity grows until the clouds fit.
        runner(clouds)
        graph = runner.graph_for(clouds)
        graph.load(clouds)
        return graph.replay

    return ready


def _on_spconv(weights: str, device: torch.device) -> Detector:
    if not module_available("spconv"):
        raise ImplementationError("spconv is not installed; run pip install 'sparsight[spconv]'")
    config = load_weights(weights).config
    vendor = replace(config, backbone=replace(config.backbone, impl="vendor"))
    return Detector(load_weights(weights, config=vendor), device=device, fast=False)
