"""Base of all layers with a coded weight: casting, the form for files, and the dense form."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.model import LayerSettings


class CodedLayer(nn.Module):
    """Base of the layers that hold a coded instead of a dense weight.

    Attributes:
        pinned: names of tensors whose type is part of the coding, so that a cast of the model skips them.
        values: kept values, as the coding stores them.
        bias: (out,) or ``None``.
    """

    pinned: ClassVar[tuple[str, ...]] = ()
    bias: nn.Parameter | None
    values: Tensor

    @property
    def coded(self) -> CompressedWeight | BlockWeight:
        """Weight as files hold it; shares memory with the layer if the coding is the same."""
        raise NotImplementedError

    @property
    def settings(self) -> LayerSettings | None:
        """Description of the layer in files; ``None`` for one that unpacks its weight."""
        return None

    @property
    def weight(self) -> Tensor:
        """Dense weight, unpacked at each access."""
        raise NotImplementedError

    def to_dense(self) -> nn.Module:
        """Return the dense layer with the same weight and bias."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CodedLayer:
        # A parameter is cast in place, so its old content must be saved.
        held = {name: getattr(self, name) for name in self.pinned}
        stored = {name: tensor.data for name, tensor in held.items() if tensor is not None}
        super()._apply(fn, recurse)
        for name, before in stored.items():
            moved: Tensor = getattr(self, name)
            if moved.dtype == before.dtype:
                continue
            self._note_cast(moved.dtype)
            if isinstance(moved, nn.Parameter):
                moved.data = before.to(moved.device)
            else:
                setattr(self, name, before.to(moved.device))
        return self

    def _note_cast(self, dtype: torch.dtype) -> None:
        """Record a cast of the model to a type that the pinned tensors do not have."""


def own_copy(tensor: Tensor) -> Tensor:
    """Return a contiguous, detached copy that can be trained, even if made in inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        return tensor.detach().clone(memory_format=torch.contiguous_format)


def own_bias(bias: Tensor | None, out: int) -> nn.Parameter | None:
    """Return a copy of a bias (out,) with its ``requires_grad``; ``ValueError`` for another shape."""
    if bias is None:
        return None
    if tuple(bias.shape) != (out,):
        raise ValueError(f"bias must have shape {(out,)}, got {tuple(bias.shape)}")
    return nn.Parameter(own_copy(bias), requires_grad=bias.requires_grad)


def dense_linear(weight: Tensor, bias: Tensor | None, *, requires_grad: bool, training: bool) -> nn.Linear:
    """Return an ``nn.Linear`` that holds ``weight`` (out, in) itself and a copy of ``bias`` (out,)."""
    out, columns = weight.shape
    linear = nn.Linear(columns, out, bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=requires_grad)
    linear.register_parameter("bias", own_bias(bias, out))
    return linear.train(training)


def through_parts(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a function of (rows, in) to a nested tensor; keeps the layout and passes gradients."""
    parts = x.unbind()
    lengths = [len(part) for part in parts]
    rows = layer(torch.cat(parts))
    return torch.nested.as_nested_tensor(list(rows.split(lengths)), layout=x.layout)


def trains_weight(linear: nn.Linear) -> bool:
    """Return True if the weight of a Linear layer, or a parameter behind it, requires grad."""
    parameters = dict(linear.named_parameters())
    return any(found.requires_grad for name, found in parameters.items() if name != "bias")
