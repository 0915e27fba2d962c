"""Compressed weights of a detector: pruned to 2:4 and quantised, with the configuration in the same file.

The files are for inference only: batch norms are folded.
:func:`perception.checkpoints.weights.load_weights` reads and unpacks them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from perception.config import DetectorConfig, from_dict, to_dict
from perception.errors import CheckpointError, ConfigError
from perception.model.embedding import fitting_config
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.nms import rotated_nms
from perception.registry import make_network
from sparse_core.common.surgery import choose_layers
from sparse_core.compression import (
    CompressedModel,
    MatrixView,
    compress_model,
    load_compressed,
    save_compressed,
)
from sparse_core.compression.model import COMPRESSIBLE, layout_of
from sparse_core.nm import NMPattern
from sparse_core.nm.masks import fits, nm_mask
from sparse_core.nm.packing.matrix_view import pad_columns

#: Keep two of four adjacent input channels.
PATTERN = NMPattern(2, 4, "channels_last")
#: Layers to prune and quantise: all but the first ones, which have few inputs, and the small last ones.
INNER = r"^(?!encoder\.|embedding\.)(?!head\.(heat|box)$)(?!refinements\.\d+\.out$)"
_CONFIG_KEY = "detector"


def inner_layers(network: Network) -> dict[str, nn.Module]:
    """Return the layers of ``INNER`` by name."""
    return choose_layers(network, COMPRESSIBLE, INNER).layers


def kept_masks(network: Network) -> dict[str, Tensor] | None:
    """Return the 2:4 mask of each inner layer, bool of its weight's shape; ``None`` if a layer is not 2:4.

    Groups with fewer than two nonzero values keep zeros, so that each group keeps two values.
    """
    masks = {}
    plain = NMPattern(PATTERN.n, PATTERN.m)
    for name, module in inner_layers(network).items():
        weight = module.weight
        assert isinstance(weight, Tensor)
        view = MatrixView(tuple(weight.shape), layout_of(module, PATTERN.conv_layout))
        matrix = pad_columns(view.to_matrix(weight.detach()), PATTERN.m)
        if not fits(matrix, plain):
            return None
        mask = nm_mask(matrix, plain.n, plain.m)[:, : view.columns]
        masks[name] = view.from_matrix(mask).contiguous()
    return masks


def run_every_layer(network: Network, clouds: Sequence[Tensor]) -> None:
    """Run a batch through every layer, for :func:`~sparse_core.compression.prune_in_one_pass`.

    Each layer is called once with its whole input, while a detector may split maps and lists of points.

    Args:
        network: network in evaluation mode.
        clouds: (N_i, C) float32 each, on the network's device.
    """
    config = network.config
    with torch.enable_grad():  # Without gradients, the second stage splits its points on a CPU.
        pillars = make_pillars(list(clouds), config.pillars)
        maps = network.maps(pillars)
        if not len(network.refinements):
            return
        found = network.propose(maps)
        parts = [
            _distinct(boxes.detach(), scores.detach(), labels, config)
            for boxes, scores, labels in zip(*found, strict=True)
        ]
        frames = torch.cat([torch.full_like(labels, frame) for frame, (_, labels) in enumerate(parts)])
        boxes, labels = (torch.cat(part) for part in zip(*parts, strict=True))
        network.refine(pillars, maps.features, boxes, frames, labels)


def _distinct(boxes: Tensor, scores: Tensor, labels: Tensor, config: DetectorConfig) -> tuple[Tensor, Tensor]:
    """Return boxes and labels of the proposals that a detector would refine, at least the best one."""
    usable = scores >= scores.max().clamp(max=config.nms.proposal_score)
    boxes, scores, labels = boxes[usable], scores[usable], labels[usable]
    kept = rotated_nms(
        boxes,
        scores,
        iou_threshold=config.nms.proposal_iou,
        labels=labels,
        max_output=config.limits.proposals,
    )
    return boxes[kept], labels[kept]


def compress_network(
    network: Network,
    coding: str = "int8",
    *,
    pattern: NMPattern | None = PATTERN,
    masks: Mapping[str, Tensor] | None = None,
    dtype: torch.dtype = torch.float16,
) -> CompressedModel:
    """Compress the inner layers of a network, and store all other layers as ``dtype``.

    An embedding head is dropped, because it was trained on features of the uncompressed weights.

    Args:
        network: folded network, see :meth:`~perception.model.network.Network.fold`.
        coding: coding of the kept values, see :class:`~sparse_core.compression.Coding`.
        pattern: sparsity pattern; ``None`` keeps all values.
        masks: mask of kept values by layer name; without masks the largest values are kept.
        dtype: dtype of biases and of uncompressed layers.

    Raises:
        ValueError: a network with batch norms, or values beyond the coding or ``dtype``.
    """
    if any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in network.modules()):
        raise ValueError("this network has batch norms. Fold it before compressing it: network.fold()")
    if network.embedding is not None:
        network = copy.copy(network)
        network._modules = {**network._modules, "embedding": None}
    return compress_model(network, pattern, coding, select=INNER, masks=masks, pad=True, other_dtype=dtype)


def save_compressed_weights(
    model: CompressedModel, config: DetectorConfig, path: str | Path, *, name: str | None = None
) -> Path:
    """Write the result of :func:`compress_network` with a configuration.

    Args:
        model: compressed weights.
        config: configuration of the network.
        path: file to write.
        name: name of the detector to store; ``None``: that of the configuration.
    """
    stored = config if name is None else replace(config, name=name)
    return save_compressed(model, path, extra={_CONFIG_KEY: to_dict(stored)})


def load_compressed_weights(path: str | Path, *, config: DetectorConfig | None = None) -> Network:
    """Load a network from a file of :func:`save_compressed_weights`.

    Args:
        path: file to read.
        config: configuration to use instead of the stored one; it must fit the weights.

    Returns:
        A folded float32 network on the CPU, for inference only.

    Raises:
        CheckpointError: a damaged file, another kind or version, or weights of another configuration.
    """
    try:
        found = load_compressed(path)
    except (FileNotFoundError, ValueError) as error:
        raise CheckpointError(str(error)) from error
    for name, value in found.model.other.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise CheckpointError(f"{path}: damaged file: {name} has NaN or infinite values")
    if config is None:
        if _CONFIG_KEY not in found.extra:
            raise CheckpointError(
                f"{path}: no detector configuration in the file ({_CONFIG_KEY!r} is missing in its header)"
            )
        try:
            config = from_dict(DetectorConfig, found.extra[_CONFIG_KEY])
        except ConfigError as error:
            raise CheckpointError(f"{path}: invalid stored configuration: {error}") from error
    network = make_network(fitting_config(config, found.model.other)).fold()
    try:
        found.model.load_into(network)
    except ValueError as error:
        raise CheckpointError(f"{path}: weights of another configuration: {error}") from error
    return network
