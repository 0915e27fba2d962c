"""Layers whose outputs are bytes in an int8 frame on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from perception.model.layers import DenseUnit, SparseUnit
from perception.model.network import Network
from perception.model.refine import RefineStage


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
