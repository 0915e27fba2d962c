"""Training from finished weights: with fixed masks, or with values in their stored form."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from perception.checkpoints.compression import INNER, PATTERN, inner_layers, kept_masks
from perception.checkpoints.weights import load_weights
from perception.config import DetectorConfig
from perception.errors import CheckpointError
from perception.model.network import Network
from perception.registry import make_network
from perception.train.coded_weights import RoundedWeight, SharedWeight
from perception.train.transfer import Transfer, same_outputs, transfer_weights
from sparse_core.compression import Coding, compress, prune_in_one_pass
from sparse_core.compression.model import layout_of
from sparse_core.nm.packing.coding import INTEGER_BITS
from sparse_core.nm.training import attach_masks

Masks = dict[str, Tensor]
#: State names that torch gives to a layer's trained weight and its mask.
_ORIGINAL, _MASK = "parametrizations.weight.original", "parametrizations.weight.0.mask"


@dataclass(frozen=True)
class FineTune:
    """Starting weights of a training, and what it keeps of them.

    Attributes:
        weights: shipped name or file.
        masks: ``"2:4"``: before the first step, prune two of four weights of every inner layer by SparseGPT
            on training frames, and keep these zeros. Weights that are already 2:4 keep their zeros.
        coding: train the inner layers in their stored form: ``"int8"``, ``"int4"``, ``"int4/64"`` or
            ``"codebook64"`` (see :class:`~sparse_core.compression.Coding`). Batch norms are folded first and
            no longer trained.

    Raises:
        ValueError: unknown masks, or a coding without trainable values.
    """

    weights: str
    masks: Literal["2:4"] | None = None
    coding: str | None = None

    def __post_init__(self) -> None:
        if self.masks not in (None, "2:4"):
            raise ValueError(f"masks must be '2:4' or None, got {self.masks!r}")
        if self.coding is not None and Coding.parse(self.coding).kind not in (*INTEGER_BITS, "codebook"):
            raise ValueError(
                f"coding {self.coding!r} does not change training; use int8, int4, int4/64 or codebook64,"
                " for example"
            )


class StartingNetwork(NamedTuple):
    """The network that a training starts from.

    Attributes:
        network: in training mode, with masks and codings attached.
        transfer: report on weights with other classes; None if all weights fit.
    """

    network: Network
    transfer: Transfer | None


def starting_network(
    start: FineTune,
    config: DetectorConfig,
    device: torch.device,
    calibrate: Callable[[Network], Any],
    stored: Mapping[str, Tensor] | None = None,
) -> StartingNetwork:
    """Return the network that a training starts from, with masks and codings attached.

    Args:
        start: requested weights, masks and coding.
        config: of the detector; it must fit the weights.
        device: to train on.
        calibrate: runs a network once over training frames, from which SparseGPT collects statistics.
        stored: network state of the resumed run, whose masks and codebooks are reused; None: choose them now.

    Raises:
        CheckpointError: the weights are unreadable, already folded, or differ in more than classes.
    """
    network, transfer = _loaded(start, config)
    network = network.to(device)
    masks = _masks(network, calibrate, stored) if start.masks else None
    if start.coding is not None:
        network.fold().requires_grad_(True)
    if stored is not None and (start.masks or start.coding):
        with torch.no_grad():
            for name, module in inner_layers(network).items():
                cast(Tensor, module.weight).copy_(stored[f"{name}.{_ORIGINAL}"])
    if masks is not None:
        attach_masks(network, masks, estimator="fixed")
    if start.coding is not None:
        _attach_coding(network, Coding.parse(start.coding), masks)
    return StartingNetwork(network.train(), transfer)


def _loaded(start: FineTune, config: DetectorConfig) -> StartingNetwork:
    """Load the weights into a network of the configuration, on the CPU."""
    stored = load_weights(start.weights)
    folded = not any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in stored.modules())
    if folded and start.coding is None:
        raise CheckpointError(
            f"{start.weights}: compressed weights with folded batch norms. Start from the original weights,"
            " or add a coding (--coding int8)"
        )
    network = make_network(config)
    if same_outputs(stored, network):
        return StartingNetwork(load_weights(start.weights, config=config), None)
    if folded:
        raise CheckpointError(
            f"{start.weights}: compressed weights for {', '.join(stored.config.head.classes)} do not fit"
            f" {', '.join(config.head.classes)}. Start from the original weights"
        )
    return StartingNetwork(network, transfer_weights(stored, network, where=start.weights))


def _masks(
    network: Network, calibrate: Callable[[Network], Any], stored: Mapping[str, Tensor] | None
) -> Masks:
    """Return the masks of the resumed run, of weights that are already 2:4, or of SparseGPT, which prunes."""
    if stored is not None:
        return {name: stored[f"{name}.{_MASK}"] for name in inner_layers(network)}
    found = kept_masks(network)
    if found is not None:
        return found
    return prune_in_one_pass(network, lambda: calibrate(network), PATTERN, select=INNER).masks


def masks_of(network: Network) -> Masks:
    """Return the masks in use, by layer name."""
    found = {}
    for name, module in network.named_modules():
        if parametrize.is_parametrized(module, "weight"):
            first = cast(Any, module).parametrizations.weight[0]
            if isinstance(getattr(first, "mask", None), Tensor):
                found[name] = cast(Tensor, first.mask)
    return found


def plain_network(network: Network, state: Mapping[str, Tensor]) -> Network:
    """Return a network without masks and codings that computes the same as a training's network.

    Args:
        network: from :func:`starting_network`; not modified.
        state: of such a network.

    Returns:
        The network on the CPU in evaluation mode, folded if the given one is.
    """
    shadow = copy.deepcopy(network)
    shadow.load_state_dict(dict(state))
    plain = {name: value for name, value in shadow.state_dict().items() if ".parametrizations." not in name}
    with torch.no_grad():
        for name, module in shadow.named_modules():
            if parametrize.is_parametrized(module, "weight"):
                plain[f"{name}.weight"] = cast(Tensor, module.weight).detach()
    made = make_network(network.config).eval()
    if not any(name.endswith("running_mean") for name in plain):
        made.fold()
    made.load_state_dict({name: value.cpu() for name, value in plain.items()})
    return made


def _attach_coding(network: Network, coding: Coding, masks: Mapping[str, Tensor] | None) -> None:
    pattern = PATTERN if masks else None
    for name, module in inner_layers(network).items():
        mask = None if masks is None else masks[name]
        layout = layout_of(module, PATTERN.conv_layout if masks else "unfold")
        weight = cast(Tensor, module.weight).detach()
        if coding.kind != "codebook":
            rounded = RoundedWeight(weight, coding, pattern, layout, mask)
            parametrize.register_parametrization(module, "weight", rounded)
            continue
        stored = compress(weight, pattern, coding, mask=mask, layout=layout, pad=True, name=f"layer {name}")
        parametrize.register_parametrization(module, "weight", SharedWeight(stored))
        # Only the centroids are trained.
        cast(Any, module).parametrizations.weight.original.requires_grad_(False)
