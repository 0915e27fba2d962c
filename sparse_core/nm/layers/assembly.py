"""Insert layers with coded weights into a model, and read coded weights from its layers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import replace_modules, shapes_of, share_weight
from sparse_core.nm.layers.block_linear import BlockSparseLinear
from sparse_core.nm.layers.coded_layer import CodedLayer
from sparse_core.nm.layers.compressed_layers import TILE_ROWS, CompressedConv2d, CompressedLinear, Execution
from sparse_core.nm.layers.encoder import call_packed_layers
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.model import CompressedModel, LayerSettings, memory_of, split_tied, weight_key
from sparse_core.nm.pruning.selection import Conv1D, as_linear


class _Options(NamedTuple):
    """Options of layers that unpack their weights, see :func:`compressed_layers`."""

    tile_rows: int
    execution: Execution
    train_codebook: bool


def compressed_layers(
    model: nn.Module,
    compressed: CompressedModel,
    *,
    tile_rows: int = TILE_ROWS,
    execution: Execution = "tiled",
    train_codebook: bool = False,
) -> nn.Module:
    """Replace the Linear and Conv2d layers of a model by layers with coded weights.

    Layers that shared a weight at compression share it again. Layers made by ``sparsify`` are restored, on
    the device and in the floating-point type of those in ``model``. Other compressed weights (sparse and
    transposed convolutions) and all other tensors are unpacked into the model. A layer that
    ``execution="nm"`` does not fit runs tiled. The model does not change if the weights do not fit.

    Args:
        model: built like the compressed one, changed in place; create its optimiser again.
        compressed: compressed form of such a model.
        tile_rows, execution, train_codebook: options of the layers that unpack their weights.

    Returns:
        The model, or the new layer if the model was one layer.

    Raises:
        ValueError: the compressed model is of another network.
    """
    modules = dict(model.named_modules())
    compressed.check_fits(_dense_shapes(model, compressed))
    options = _Options(tile_rows, execution, train_codebook)
    new: dict[nn.Module, CodedLayer] = {}
    for name, weight in compressed.weights.items():
        layer = _layer(name, weight, compressed.settings.get(name), modules[name], options)
        if layer is not None:
            new[modules[name]] = layer
    _share_tied(modules, compressed, new, options)
    model = replace_modules(model, new)
    held = {
        weight_key(name)
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, CodedLayer)
    }
    state = {
        weight_key(name): weight.to_dense()
        for name, weight in compressed.weights.items()
        if weight_key(name) not in held or weight_key(name) in compressed.tied.values()
    }
    state.update(compressed.other)
    state.update({name: state[source] for name, source in compressed.tied.items()})
    model.load_state_dict({name: tensor for name, tensor in state.items() if name not in held}, strict=False)
    call_packed_layers(model)
    return model


def coded_model(model: nn.Module) -> CompressedModel:
    """Return the coded weights of a model's layers, and all other tensors, without a copy."""
    state = model.state_dict()
    weights: dict[str, CompressedWeight | BlockWeight] = {}
    settings: dict[str, LayerSettings] = {}
    tied: dict[str, str] = {}
    firsts: dict[tuple[object, ...], str] = {}
    seen: set[nn.Module] = set()
    for name, layer in model.named_modules(remove_duplicate=False):
        if not isinstance(layer, CodedLayer):
            continue
        for key in layer.state_dict():
            if key != "bias":
                del state[f"{name}.{key}" if name else key]
        first = firsts.setdefault(memory_of(layer.values), name)
        if first == name:
            weights[name] = layer.coded
        else:
            tied[weight_key(name)] = weight_key(first)
        if layer not in seen and layer.settings is not None:
            settings[name] = layer.settings
        seen.add(layer)
    if not weights:
        raise ValueError("the model has no packed layer: convert it with sparsify first")
    stored, others = split_tied(state)
    return CompressedModel(weights, stored, tied={**tied, **others}, settings=settings)


def _dense_shapes(model: nn.Module, compressed: CompressedModel) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the model's state dict with dense weights, outputs first."""
    shapes = shapes_of(model.state_dict())
    for name, module in model.named_modules(remove_duplicate=False):
        key = weight_key(name)
        if isinstance(module, CodedLayer):
            for part in module.state_dict():
                if part != "bias":
                    shapes.pop(f"{name}.{part}" if name else part, None)
            shapes[key] = module.coded.view.shape
        elif isinstance(module, Conv1D) and name in compressed.weights:
            shapes[key] = shapes[key][::-1]
    return shapes


def _layer(
    name: str,
    weight: CompressedWeight | BlockWeight,
    settings: LayerSettings | None,
    old: nn.Module,
    options: _Options,
) -> CodedLayer | None:
    """Return the layer that replaces ``old``; ``None`` if its weight must be unpacked."""
    dense = old.to_dense() if isinstance(old, CodedLayer) else as_linear(old)
    if settings is not None:
        if not isinstance(dense, nn.Linear):
            raise ValueError(f"layer {name or '(model)'} is {type(old).__name__} in the model, not nn.Linear")
        layer: CodedLayer = _product_layer(weight.to(dense.weight.device), settings, dense)
    else:
        if isinstance(weight, BlockWeight):
            return None
        if type(dense) is nn.Linear:
            layer = _unpacking_linear(weight.to(dense.weight.device), dense.bias, options)
        elif type(dense) is nn.Conv2d:
            stored = weight.to(dense.weight.device)
            trains = options.train_codebook and weight.centroids is not None
            layer = CompressedConv2d(stored, dense, tile_rows=options.tile_rows, train_codebook=trains)
        else:
            return None
    return layer.train(old.training)


def _unpacking_linear(weight: CompressedWeight, bias: Tensor | None, options: _Options) -> CompressedLinear:
    whole = weight.sparse and weight.view.columns % weight.pattern.m == 0
    return CompressedLinear(
        weight,
        bias,
        tile_rows=options.tile_rows,
        execution=options.execution if whole else "tiled",
        train_codebook=options.train_codebook and weight.centroids is not None,
    )


def _product_layer(
    weight: CompressedWeight | BlockWeight, settings: LayerSettings, dense: nn.Linear
) -> SparseLinear | SparseLinearInt8 | BlockSparseLinear:
    """Return the layer of ``sparsify`` with the bias, the type and the device of a dense one."""
    dtype, trains = dense.weight.dtype, dense.weight.requires_grad
    if isinstance(weight, BlockWeight):
        matrix = weight.matrix.with_values(weight.matrix.values.to(dtype))
        blocks = BlockSparseLinear(matrix, dense.bias)
        blocks.values.requires_grad_(trains)
        return blocks
    if settings.kind == "int8":
        packed, scale = weight.to_packed(torch.int8), settings.input_scale
        assert weight.scale is not None  # Int8 weights have a scale.
        return SparseLinearInt8(
            packed,
            weight.scale[:, 0],
            dense.bias,
            activation_scale=None if scale is None else torch.tensor(scale, dtype=torch.float32),
            activation=settings.activation,
            dtype=dtype,
        )
    layer = SparseLinear(weight.to_packed(dtype), dense.bias, activation=settings.activation)
    layer.values.requires_grad_(trains)
    return layer


def _share_tied(
    modules: dict[str, nn.Module],
    compressed: CompressedModel,
    new: dict[nn.Module, CodedLayer],
    options: _Options,
) -> None:
    """Add layers that are tied to a coded weight: the same kind of layer, with the same stored parts."""
    names = {weight_key(name): name for name in modules}
    for key, source in compressed.tied.items():
        if key not in names or source not in names:
            continue
        name, old = names[key], modules[names[key]]
        first = new.get(modules[names[source]])
        if first is None or old in new:
            continue
        weight, settings = compressed.weights[names[source]], compressed.settings.get(name)
        twin = _layer(name, weight, settings, old, options)
        if twin is None or type(twin) is not type(first):
            continue
        # Each layer with int8 inputs has its own scale.
        if not isinstance(twin, SparseLinearInt8):
            share_weight(twin, first)
        new[old] = twin
