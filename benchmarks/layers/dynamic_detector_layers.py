"""Sparse layers in the places of the detector's convolutions, those over active cells among them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.layers.dynamic_rows import Row
from perception.model.network import Network
from perception.model.pillars import Pillars
from sparse_core.conv import SparseConv2d, SparseTensor, SubmanifoldConv2d
from sparse_core.dynamic.rigl.budgets import layer_densities
from sparse_core.dynamic.rigl.conversion import dense_training
from sparse_core.dynamic.rigl.grid import Grid, plan_grid
from sparse_core.dynamic.rigl.layers import RigLConv2d
from sparse_core.dynamic.rigl.sparse_layer import SparseTrainedLayer

BLOCK_SIZE = 16


class SparseTrainedConvolution(SparseTrainedLayer):
    """A convolution over active cells whose weight stores its connections only and can exchange them.

    The weight (out, height, width, in) is unpacked for each product, which runs as that of the dense layer.

    Args:
        layer: what it takes the place of.
        grid: of the matrix (out, height * width * in).
        seed: of topology and values.
    """

    def __init__(self, layer: SubmanifoldConv2d | SparseConv2d, grid: Grid, seed: int) -> None:
        weight = layer.weight
        super().__init__(grid, False, "dense", seed, weight.device, weight.dtype)
        # In a tuple, so that the weight of the dense layer is no parameter of this one.
        self._layer = (layer,)

    def forward(self, inputs: SparseTensor) -> SparseTensor:
        """(M, C_in) features at M cells to (M', C_out) at M' cells."""
        (layer,) = self._layer
        weight = self._unpacked(self.values.dtype).reshape(layer.weight.shape)
        output: SparseTensor = functional_call(layer, {"weight": weight}, (inputs,))
        return output

    def as_matrix(self, weight: Tensor) -> Tensor:
        """The matrix of a weight (out, height, width, in)."""
        return weight.reshape(len(weight), -1)

    def to_dense(self) -> SubmanifoldConv2d | SparseConv2d:
        """The layer that it took the place of, with the present weight."""
        (layer,) = self._layer
        with torch.no_grad():
            layer.weight = nn.Parameter(self.matrix.detach().reshape(layer.weight.shape).clone())
        return layer


def selected_convolutions(network: Network) -> dict[str, nn.Module]:
    """All convolutions of backbone and neck but the transposed one: what becomes sparse."""
    return {
        name: module
        for name, module in network.named_modules()
        if name.startswith(("backbone.", "neck."))
        and isinstance(module, nn.Conv2d | SubmanifoldConv2d | SparseConv2d | SparseTrainedLayer)
    }


def make_detector_sparse(network: Network, row: Row, *, seed: int) -> None:
    """Replace the convolutions of backbone and neck in place; connections are shared by Erdős–Rényi-kernel.

    Values start as those of the dense layer, enlarged as if for the inputs that a unit still has.
    """
    found = selected_convolutions(network)
    shapes = {name: _matrix_shape(module) for name, module in found.items()}
    densities = layer_densities(shapes, row.sparsity)
    for number, (name, module) in enumerate(found.items()):
        density = densities[name]
        if density >= 1:
            continue
        weight: Tensor = module.weight.detach()  # type: ignore[operator]
        out, inputs, height, width = shapes[name]
        options: dict[str, Any] = {"structure": row.structure, "block_size": BLOCK_SIZE}
        layer: RigLConv2d | SparseTrainedConvolution
        if isinstance(module, nn.Conv2d):
            layer = RigLConv2d(
                inputs,
                out,
                (height, width),
                (module.stride[0], module.stride[1]),
                (int(module.padding[0]), int(module.padding[1])),
                bias=False,
                sparsity=1 - density,
                execution="dense",
                seed=seed + number,
                device=weight.device,
                **options,
            )
        else:
            assert isinstance(module, SubmanifoldConv2d | SparseConv2d)
            grid = plan_grid(out, inputs * height * width, density=density, **options)
            layer = SparseTrainedConvolution(module, grid, seed + number)
        layer.load_matrix(layer.as_matrix(weight) / math.sqrt(layer.grid.density), layer.cells.clone())
        _put(network, name, layer)


def make_detector_dense(network: Network) -> Network:
    """Put layers with the same weights back that evaluation can fold and run, in place."""
    for name, module in list(network.named_modules()):
        if isinstance(module, SparseTrainedConvolution):
            _put(network, name, module.to_dense())
    dense_training(network)
    return network


def _put(network: Network, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(network.get_submodule(parent), last, layer)


def _matrix_shape(module: nn.Module) -> tuple[int, int, int, int]:
    """(out, in, height, width)."""
    shape = tuple(module.weight.shape)  # type: ignore[arg-type]
    if isinstance(module, nn.Conv2d):
        return shape[0], shape[1], shape[2], shape[3]
    return shape[0], shape[3], shape[1], shape[2]


def multiply_adds(network: Network, pillars: Pillars) -> dict[str, float]:
    """Return the cost of each convolution that may be sparse, from a forward pass of the dense network."""
    found: dict[str, float] = {}

    def count(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        weight: Tensor = module.weight  # type: ignore[assignment]
        if isinstance(module, nn.Conv2d):
            found[name] = output.numel() / output.shape[1] * weight.numel()
            return
        assert isinstance(module, SubmanifoldConv2d | SparseConv2d)
        source: SparseTensor = inputs[0]
        if module.submanifold:
            pairs = source.submanifold_table(module.kernel_size).pairs
        else:
            pairs = source.strided_table(
                module.kernel_size, module.stride, module.padding, dilating=module.dilating
            )[0].pairs
        found[name] = float(pairs * weight.shape[0] * weight.shape[-1])

    handles = [
        module.register_forward_hook(
            lambda module, inputs, output, name=name: count(name, module, inputs, output)
        )
        for name, module in selected_convolutions(network).items()
    ]
    network.eval()
    try:
        with torch.no_grad():
            network.maps(pillars)
    finally:
        for handle in handles:
            handle.remove()
    return found
