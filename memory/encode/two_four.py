"""Encoders in half precision with 2:4 sparse Linear layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from sparse_core.nm import prune
from sparse_core.nm import sparsify as pack_layers

Precision = Literal["float32", "float16", "bfloat16"]
"""Type of a network's weights and features; the vectors that come out are float32."""

Sparsity = Literal["2:4"]
"""What Linear layers keep of their weights."""


def check_network_options(precision: str, sparsify: str | None, calibrated: bool) -> None:
    """Raise ``ValueError`` for an unknown option, or for calibration without sparsity."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")
    if sparsify not in (None, *get_args(Sparsity)):
        raise ValueError(f"sparsify must be '2:4' or None, got {sparsify!r}")
    if calibrated and sparsify is None:
        raise ValueError("calibration needs sparsify='2:4'")


def change_network(
    network: nn.Module,
    *,
    precision: Precision,
    sparsify: Sparsity | None,
    typical: Sequence[Callable[[], Any]] = (),
) -> None:
    """Prune and pack the Linear layers of a network in place, and change its dtype.

    Layers that ``typical`` calls do not reach stay dense, and so does ``torch.nn.MultiheadAttention``.

    Args:
        network: float32, in evaluation mode.
        precision: dtype of the result.
        sparsify: ``"2:4"``, or ``None`` for dense.
        typical: calls that run the network on typical inputs, by which weights are chosen and corrected
            (SparseGPT). Without calls, the largest weights stay.

    Raises:
        ValueError: no layer can be pruned.
    """
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    masks: dict[str, Tensor] = {}
    if sparsify is not None:
        layers = _reached(network, typical[0]) if typical else set(_linears(network))
        report = prune(
            _Calls(network),
            calibration=[[call] for call in typical] or None,
            score="sparsegpt" if typical else "magnitude",
            select=lambda name, layer: layer in layers,
        )
        masks = {name.removeprefix("network."): mask for name, mask in report.masks.items()}
    network.to(getattr(torch, precision))
    if sparsify is not None:
        pack_layers(network, masks=masks, select=lambda name, layer: name in masks)


class _Calls(nn.Module):
    """Module that runs given calls."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, call: Callable[[], Any]) -> Any:
        """Run a call."""
        return call()


def _linears(network: nn.Module) -> Iterator[nn.Module]:
    """Return Linear layers that are called; torch's attention uses its last one only for the weight."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear) and not isinstance(layer, NonDynamicallyQuantizableLinear):
            yield layer


def _reached(network: nn.Module, call: Callable[[], Any]) -> set[nn.Module]:
    """Return the Linear layers that a call runs; some models have unused heads."""
    reached: set[nn.Module] = set()
    hooks = [
        layer.register_forward_pre_hook(lambda layer, given: reached.add(layer))
        for layer in _linears(network)
    ]
    call()
    for hook in hooks:
        hook.remove()
    return reached
