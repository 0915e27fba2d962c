"""Networks with layers trained sparse, and their dense baselines: one step, one update, one inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparse_core.dynamic import RigLConv2d, RigLLinear, RigLScheduler, SparseTrainedLayer, sparse_training

#: Default interval of the scheduler, in steps.
UPDATE_EVERY = 100


@dataclass(frozen=True)
class Shape:
    """A network and its input.

    Attributes:
        name: as tables show it.
        widths: of the layers of Linear, with a GELU between them; for a convolution its channels.
        rows: of the input; for a convolution the images.
        size: height and width of the images, 0 without a convolution.
    """

    name: str
    widths: tuple[int, ...]
    rows: int
    size: int = 0

    def network(self) -> nn.Sequential:
        """The dense network on the CPU."""
        torch.manual_seed(0)
        if self.size:
            return nn.Sequential(nn.Conv2d(self.widths[0], self.widths[1], 3, padding=1))
        layers: list[nn.Module] = []
        for columns, rows in zip(self.widths[:-1], self.widths[1:], strict=True):
            layers += [nn.Linear(columns, rows), nn.GELU()]
        return nn.Sequential(*layers[:-1])

    def input(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Standard normal; images have their channels last in memory."""
        generator = torch.Generator().manual_seed(1)
        if not self.size:
            return torch.randn(self.rows, self.widths[0], generator=generator).to(device, dtype)
        x = torch.randn(self.rows, self.widths[0], self.size, self.size, generator=generator)
        return x.to(device, dtype, memory_format=torch.channels_last)


class Kind(NamedTuple):
    """Sparsity of the layers; ``structure`` None: not at all."""

    structure: str | None
    block: int = 16
    execution: str = "sparse"


KINDS: dict[str, Kind] = {
    "dense": Kind(None),
    "block 16": Kind("block", 16),
    "block 32": Kind("block", 32),
    "block 64": Kind("block", 64),
    "block 128": Kind("block", 128),
    "fan-in": Kind("fan-in"),
    "fan-in, unpacked": Kind("fan-in", execution="dense"),
    "unstructured": Kind("unstructured"),
    "unstructured, unpacked": Kind("unstructured", execution="dense"),
}


def build(shape: Shape, kind: Kind, sparsity: float, device: torch.device) -> nn.Sequential:
    """The network with its layers at that sparsity, all of them as sparse."""
    model = shape.network()
    if kind.structure is not None:
        sparse_training(
            model,
            sparsity,
            budget="uniform",
            structure=kind.structure,  # type: ignore[arg-type]
            block_size=kind.block,
            execution=kind.execution,  # type: ignore[arg-type]
        )
    for parameter in model.parameters():
        if shape.size and parameter.ndim == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last)
    return model.to(device)


def half_products(device: torch.device) -> AbstractContextManager[Any]:
    """Usual training precision: bfloat16 products of float32 weights on a GPU, float32 on a CPU."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


class Training:
    """A network, its optimiser and one batch.

    Args:
        shape, kind, sparsity: of the network.
        device: where.
    """

    def __init__(self, shape: Shape, kind: Kind, sparsity: float, device: torch.device) -> None:
        self.device = device
        self.model = build(shape, kind, sparsity, device)
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, fused=True, capturable=device.type == "cuda"
        )
        self.x = shape.input(device, torch.float32)
        if device.type == "cuda":
            # The previous layer returns bfloat16 there and needs a gradient.
            self.x = self.x.bfloat16()
        self.x.requires_grad_()
        with torch.no_grad(), half_products(device):
            self.seed = torch.randn_like(self.model(self.x))

    def gradients(self) -> None:
        """Forward and backward pass."""
        self.x.grad = None
        self.optimiser.zero_grad(set_to_none=True)
        with half_products(self.device):
            y = self.model(self.x)
        y.backward(self.seed)

    def step(self) -> None:
        """One training step."""
        self.gradients()
        self.optimiser.step()

    def scheduler(self, method: str) -> RigLScheduler:
        """One that is far from its end, on this network."""
        return RigLScheduler(
            self.model,
            self.optimiser,
            update_every=UPDATE_EVERY,
            stop_step=10**9,
            method=method,  # type: ignore[arg-type]
        )

    def update(self, scheduler: RigLScheduler) -> Callable[[], None]:
        """The step at which connections are exchanged, again and again."""

        def run() -> None:
            scheduler.steps = UPDATE_EVERY - 1
            scheduler._prepare()
            self.gradients()
            scheduler.step()

        return run

    def held_bytes(self) -> int:
        """Weights, gradients, moments and the connection state of the layers."""
        found: dict[int, int] = {}
        objects = [self.optimiser.state, *(module.__dict__ for module in self.model.modules())]
        objects += [parameter.grad for parameter in self.model.parameters()]
        for tensor in _tensors(objects, set()):
            if tensor.device.type == self.device.type:
                storage = tensor.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
        return sum(found.values())


def _tensors(thing: Any, seen: set[int]) -> Iterator[Tensor]:
    """All tensors within containers and the objects of this library."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, dict):
        for part in thing.values():
            yield from _tensors(part, seen)
    elif isinstance(thing, list | tuple):
        for part in thing:
            yield from _tensors(part, seen)
    elif type(thing).__module__.startswith("sparse_core") and hasattr(thing, "__dict__"):
        yield from _tensors(vars(thing), seen)


def sparse_layers(model: nn.Module) -> list[RigLLinear | RigLConv2d]:
    """The layers trained sparse."""
    found = [module for module in model.modules() if isinstance(module, SparseTrainedLayer)]
    return [module for module in found if isinstance(module, RigLLinear | RigLConv2d)]


def disagreement(training: Training) -> float:
    """Largest relative error of the result and of the gradients against a dense baseline in float32."""
    layers = sparse_layers(training.model)
    if not layers:
        return 0.0
    training.gradients()
    with torch.no_grad(), half_products(training.device):
        found = training.model(training.x).float()
    x = training.x.detach().float().requires_grad_()
    weights = [layer.weight.detach().requires_grad_() for layer in layers]
    y, place = x, 0
    for module in training.model:
        if isinstance(module, RigLLinear):
            y = nn.functional.linear(y, weights[place], module.bias)
        elif isinstance(module, RigLConv2d):
            y = nn.functional.conv2d(y, weights[place], module.bias, padding=1)
        else:
            y = module(y)
        place += isinstance(module, RigLLinear | RigLConv2d)
    wanted = torch.autograd.grad(y, [x, *weights], training.seed.float())
    errors = [_relative(found, y.detach()), _relative(training.x.grad, wanted[0])]
    for layer, gradient in zip(layers, wanted[1:], strict=True):
        met = layer.grid.gather(layer.as_matrix(gradient), layer.cells)
        errors.append(_relative(layer.values.grad, met))
    return max(errors)


def _relative(found: Tensor | None, expected: Tensor) -> float:
    if found is None:
        return float("inf")
    return float((found.float() - expected).norm() / expected.norm())
