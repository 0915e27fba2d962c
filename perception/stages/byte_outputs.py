"""Ranges of a network's features, which an int8 frame on a CPU needs, and their form in weights files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

from torch import nn

from perception.errors import CheckpointError
from perception.model.layers import DenseUnit, SparseUnit
from perception.model.network import Network
from perception.model.refine import RefineStage

#: Key in the header of weights files.
RANGES_KEY = "sparsight.ranges"


def byte_outputs(network: Network) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules whose outputs are bytes, by name.

    The output of a residual block is that of its second unit, with the residual and after the ReLU. The
    output of ``neck.up`` is the finer map after the ReLU. The output of ``backbone.lateral`` is the only one
    with negative values.
    """
    names = {module: name for name, module in network.named_modules()}
    layers: list[nn.Module] = [network.encoder]
    for part in (network.backbone, network.neck):
        layers += [unit for unit in part.modules() if isinstance(unit, SparseUnit | DenseUnit)]
    for stage in network.refinements:
        assert isinstance(stage, RefineStage)
        layers += stage.point_layers
    for layer in layers:
        yield names[layer], layer


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
