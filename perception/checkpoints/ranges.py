"""Measure the ranges of a network's features, for int8 frames on a CPU."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from perception.model.network import Network
from perception.run.eager import EagerSteps
from perception.run.program import run_frame
from perception.stages.ranges import byte_outputs
from sparse_core.common.workers import run_on_worker

#: Scans that ranges are measured on by default.
RANGE_SCANS = 20
#: Range of a layer whose output is always zero.
_LEAST_RANGE = 1e-6


def measure_ranges(network: Network, scans: Iterable[Tensor]) -> dict[str, float]:
    """Return the largest absolute output of each layer, see :func:`~perception.stages.ranges.byte_outputs`.

    Args:
        network: sparse network in evaluation mode, on a CPU.
        scans: (N, C) float32 point clouds; :data:`RANGE_SCANS` of different places suffice.

    Raises:
        ValueError: no scan has points in range.
    """
    found: dict[str, float] = {}

    def watch(name: str, module: nn.Module) -> Any:
        def note(_: nn.Module, __: Any, made: Any) -> None:
            values = made if isinstance(made, Tensor) else made.features
            if values.numel():
                # What the ReLU after neck.up removes does not count.
                largest = values.max() if module is network.neck.up else values.abs().max()
                found[name] = max(found.get(name, _LEAST_RANGE), float(largest))

        return module.register_forward_hook(note)

    layers = dict(byte_outputs(network))
    with ExitStack() as stack:
        for name, module in layers.items():
            stack.callback(watch(name, module).remove)
        steps = EagerSteps(network)
        # Refine unlikely proposals too, so that every scan has some.
        steps.config = replace(network.config, nms=replace(network.config.nms, score_threshold=0.0))
        for scan in scans:
            with torch.inference_mode():
                run_on_worker(partial(run_frame, steps, [scan]), 1)
    if layers.keys() - found.keys():
        raise ValueError("no scan has points in range. Pass typical scans of the sensor.")
    return {name: found[name] for name in layers}
