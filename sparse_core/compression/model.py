"""Compress the weights of a whole model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rich.progress import track
from torch import Tensor, nn

from sparse_core.common.surgery import (
    Select,
    check_names,
    choose_layers,
    is_parametrised,
)
from sparse_core.conv import SparseConv2d, SparseInverseConv2d, SubmanifoldConv2d
from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.coding import Coding, as_coding
from sparse_core.nm.packing.compress import compress
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.matrix_view import Layout
from sparse_core.nm.packing.model import CompressedModel, split_tied, weight_key
from sparse_core.nm.packing.positions import IndexCoding
from sparse_core.nm.packing.report import CompressionReport, LayerCompression, describe_weight
from sparse_core.nm.pattern import TWO_FOUR, ConvLayout, NMPattern

SPARSE_CONVOLUTIONS: tuple[type[nn.Module], ...] = (SubmanifoldConv2d, SparseConv2d, SparseInverseConv2d)
"""Layers of :mod:`sparse_core.conv`; the 3-D ones are subclasses."""

COMPRESSIBLE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d, *SPARSE_CONVOLUTIONS)
"""Layers whose weight :func:`sparse_core.compression.compress_model` compresses."""


def layout_of(module: nn.Module, conv_layout: ConvLayout = "unfold") -> Layout:
    """Return the matrix layout for the weight of a layer; ``conv_layout`` applies to dense convolutions."""
    if isinstance(module, nn.ConvTranspose2d):
        return "transposed"
    if isinstance(module, nn.Conv2d) and conv_layout == "channels_last":
        return "channels_last"
    return "rows"


def compress_model(
    model: nn.Module,
    pattern: NMPattern | Mapping[str, NMPattern | None] | None = TWO_FOUR,
    coding: Coding | str | Mapping[str, Coding | str] = "int8",
    *,
    select: Select = None,
    masks: Mapping[str, Tensor] | None = None,
    index: IndexCoding = "combinatorial",
    pad: bool = False,
    other_dtype: torch.dtype | None = None,
    progress: bool = False,
) -> CompressedModel:
    """Compress the weights of Linear, Conv2d, ConvTranspose2d and sparse convolution layers.

    The model itself does not change.

    Args:
        model: any module.
        pattern: n:m for all layers, or one by layer name; ``None`` for a name keeps all values, a missing
            name skips the layer.
        coding: one for all layers, or one by layer name; a missing name skips the layer.
        select: layers to compress, see :data:`sparse_core.common.surgery.Select`.
        masks: weights to keep by layer name, for example ``PruneReport.masks``.
        index: coding of the positions.
        pad: pad the last group if m does not divide the columns; otherwise such a layer is skipped and
            reported.
        other_dtype: type in which all other floating-point tensors are stored; ``None`` keeps their type.
        progress: show a progress bar.

    Raises:
        TypeError, ValueError: as for :func:`compress`, naming the layer; or the pattern is a string, no layer
            matches, a name is unknown, or ``other_dtype`` cannot hold a tensor.
    """
    if isinstance(pattern, str):
        raise TypeError(
            f"pattern must be NMPattern(n, m) or None, got {pattern!r}: for a coding alone, pass coding="
        )
    for what, given in (("pattern", pattern), ("coding", coding), ("masks", masks)):
        check_names(model, given, what)

    def obstacle(name: str, module: nn.Module) -> str | None:
        settings = _settings(name, pattern, coding)
        if settings is None:
            return "the pattern or coding skips it"
        return _obstacle(module, settings[0], pad)

    selection = choose_layers(
        model,
        COMPRESSIBLE,
        select,
        rule=obstacle,
        nothing="no layer can be compressed: no layer matches the pattern and coding",
    )
    weights: dict[str, CompressedWeight | BlockWeight] = {}
    reports: list[LayerCompression] = []
    for name, module in track(selection.layers.items(), "compressing", disable=not progress):
        settings = _settings(name, pattern, coding)
        assert settings is not None
        wanted, form = settings
        before = module.weight
        assert isinstance(before, Tensor)
        weights[name] = found = compress(
            before,
            wanted,
            form,
            mask=None if masks is None else masks.get(name),
            layout=layout_of(module, wanted.conv_layout if wanted else "unfold"),
            index=index,
            pad=pad,
            name=f"layer {name or '(model)'}",
        )
        reports.append(describe_weight(name, before, found))
    stored, tied = split_tied(model.state_dict())
    compressed = {weight_key(name) for name in weights}
    rest = {name: value for name, value in stored.items() if name not in compressed}
    other = {name: _stored_copy(name, value, other_dtype) for name, value in rest.items()}
    sizes = (sum(tensor.nbytes for tensor in tensors.values()) for tensors in (other, rest))
    report = CompressionReport(reports, selection.skipped, *sizes)
    twins = {name: source for name, source in tied.items() if name not in compressed}
    return CompressedModel(weights, other, report, twins)


def _settings(
    name: str,
    pattern: NMPattern | Mapping[str, NMPattern | None] | None,
    coding: Coding | str | Mapping[str, Coding | str],
) -> tuple[NMPattern | None, Coding] | None:
    """Return pattern and coding of a layer; ``None`` if it is skipped."""
    if isinstance(pattern, Mapping) and name not in pattern:
        return None
    if isinstance(coding, Mapping) and name not in coding:
        return None
    wanted = pattern[name] if isinstance(pattern, Mapping) else pattern
    return wanted, as_coding(coding[name] if isinstance(coding, Mapping) else coding)


def _obstacle(module: nn.Module, pattern: NMPattern | None, pad: bool) -> str | None:
    if is_parametrised(module):
        return "its weight is parametrised: call MaskedModel.remove or remove_parametrizations first"
    if isinstance(module, (nn.ConvTranspose2d, *SPARSE_CONVOLUTIONS)) and module.groups != 1:
        return "a sparse or transposed convolution of several groups"
    weight = module.weight
    assert isinstance(weight, Tensor)
    columns = len(weight) if isinstance(module, nn.ConvTranspose2d) else weight[0].numel()
    if pattern is not None and columns % pattern.m and not pad:
        return f"its input dimension {columns} is not divisible by m={pattern.m} (use pad=True)"
    return None


def _stored_copy(name: str, value: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return a copy of an uncompressed tensor; floating-point ones as ``dtype``."""
    stored = value.to(dtype) if dtype is not None and value.is_floating_point() else value
    if value.is_floating_point() and not bool(stored.isfinite().all()):
        raise ValueError(
            f"{name} holds NaN or infinite values, or values that {stored.dtype} cannot hold:"
            " load or train it again, or use other_dtype=torch.float32"
        )
    return stored.clone()
