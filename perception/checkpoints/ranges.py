"""Ranges of a network's features, which an int8 frame on a CPU needs: measured, and in weights files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from perception.errors import CheckpointError
from perception.model.network import Network
from perception.run.eager import EagerSteps
from perception.run.program import run_frame
from perception.stages.byte_outputs import byte_outputs
from sparse_core.common.workers import run_on_worker

#: Key in the header of weights files.
RANGES_KEY = "sparsight.ranges"
#: Range of a layer whose output is always zero.
_LEAST_RANGE = 1e-6


def measure_ranges(network: Network, scans: Iterable[Tensor]) -> dict[str, float]:
    """Return the largest absolute output of each layer of :mod:`perception.stages.byte_outputs`.

    Args:
        network: sparse network in evaluation mode, on a CPU.
        scans: (N, C) float32 point clouds; 20 of different places suffice.

    Raises:
        ValueError: no scan has points in range.
    """
    found: dict[str, float] = {}

    def watch(name: str, module: nn.Module) -> Any:
        def note(_: nn.Module, __: Any, made: Any) -> None:
            values = made if isinstance(made, Tensor) else made.features
            if values.numel():
                # A ReLU after neck.up removes negative outputs.
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


def ranges_to_header(ranges: Mapping[str, float]) -> dict[str, str]:
    """Return the entry of a header for ranges."""
    return {RANGES_KEY: json.dumps(dict(ranges))}


def ranges_of_header(header: Mapping[str, str], network: Network) -> dict[str, float] | None:
    """Return the ranges in a header; None without ranges.

    Raises:
        CheckpointError: they are damaged, or those of another network.
    """
    if RANGES_KEY not in header:
        return None
    try:
        found = {str(name): float(value) for name, value in json.loads(header[RANGES_KEY]).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"damaged int8 ranges ({error}). Measure them again: perceive quantise"
        ) from error
    for name, _ in byte_outputs(network):
        if not 0 < found.get(name, 0.0) < math.inf:
            raise CheckpointError(
                f"int8 ranges of other weights ({name} is missing). Measure them again: perceive quantise"
            )
    return found
