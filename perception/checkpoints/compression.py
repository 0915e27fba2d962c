"""Compressed weights of a detector: pruned to 2:4, stored in few bits, in one file with the configuration.

Such files hold a network for inference: batch norms are folded into the weights, and the weights are unpacked
when a file is read. :func:`perception.checkpoints.weights.load_weights` reads them like any other weights.
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

#: Two of four neighbouring input channels are kept.
PATTERN = NMPattern(2, 4, "channels_last")
#: Layers that are pruned and stored in few bits: the first ones see few inputs, the last ones are small and
#: decide.
INNER = r"^(?!encoder\.|embedding\.)(?!head\.(heat|box)$)(?!refinements\.\d+\.out$)"
_CONFIG_KEY = "detector"


def inner_layers(network: Network) -> dict[str, nn.Module]:
    """The layers of ``INNER`` by name."""
    return choose_layers(network, COMPRESSIBLE, INNER).layers


def kept_masks(network: Network) -> dict[str, Tensor] | None:
    """What each inner layer keeps, bool of its weight's shape; ``None`` when a layer is not 2:4 yet.

    Where fewer than two of a group are not zero, zeros are kept too, so that each group has two.
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
    """Run a batch through every layer once, as :func:`~sparse_core.compression.prune_in_one_pass` needs it.

    Unlike a detector, which may compute a map or a list of points part by part, this calls each layer once on
    all of it.

    Args:
        network: in evaluation mode.
        clouds: (N_i, 4) float32 each, on the network's device.
    """
    config = network.config
    with torch.enable_grad():  # Without gradients the second stage takes its points in parts on a CPU.
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
    """Boxes and labels of the proposals of a frame that a detector would refine, the best one at least."""
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
    """Compress the inner layers of a network; everything else is stored as ``dtype``.

    A head for vectors of boxes is left out: it was trained on the features of the weights as they were.

    Args:
        network: folded for inference, see :meth:`~perception.model.network.Network.fold`.
        coding: of the kept values, see :class:`~sparse_core.compression.Coding`.
        pattern: ``None`` keeps all values.
        masks: what to keep by layer name; without them the largest values stay.
        dtype: of biases and of the layers that are not compressed.

    Raises:
        ValueError: a network with batch norms, or values that the coding or ``dtype`` cannot hold.
    """
    if any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in network.modules()):
        raise ValueError("this network has batch norms: fold it before compressing it (network.fold())")
    if network.embedding is not None:
        network = copy.copy(network)
        network._modules = {**network._modules, "embedding": None}
    return compress_model(network, pattern, coding, select=INNER, masks=masks, pad=True, other_dtype=dtype)


def save_compressed_weights(
    model: CompressedModel, config: DetectorConfig, path: str | Path, *, name: str | None = None
) -> Path:
    """Write what :func:`compress_network` gave, with the configuration of its network.

    Args:
        model: the weights.
        config: of the network.
        path: of the file.
        name: of the detector in the stored configuration; ``None``: as it is.
    """
    stored = config if name is None else replace(config, name=name)
    return save_compressed(model, path, extra={_CONFIG_KEY: to_dict(stored)})


def load_compressed_weights(path: str | Path, *, config: DetectorConfig | None = None) -> Network:
    """Build the network of a file of :func:`save_compressed_weights`, its weights unpacked.

    Args:
        path: of the file.
        config: use this configuration instead of the one in the file; it must fit the weights.

    Returns:
        A float32 network on the CPU, folded: it can detect, but not be trained.

    Raises:
        CheckpointError: a damaged file, one of another kind or version, or weights that do not fit the
            configuration; names the file and the field.
    """
    try:
        found = load_compressed(path)
    except (FileNotFoundError, ValueError) as error:
        raise CheckpointError(str(error)) from error
    for name, value in found.model.other.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise CheckpointError(f"{path}: {name} holds NaN or infinite values; the file is damaged")
    if config is None:
        if _CONFIG_KEY not in found.extra:
            raise CheckpointError(
                f"{path}: holds no detector configuration ({_CONFIG_KEY!r} is missing in its header)"
            )
        try:
            config = from_dict(DetectorConfig, found.extra[_CONFIG_KEY])
        except ConfigError as error:
            raise CheckpointError(f"{path}: the stored configuration cannot be used: {error}") from error
    network = make_network(fitting_config(config, found.model.other)).fold()
    try:
        found.model.load_into(network)
    except ValueError as error:
        raise CheckpointError(f"{path}: weights of another configuration: {error}") from error
    return network
