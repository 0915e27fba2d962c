"""Training through masks: the forward pass uses the sparse weight, the optimiser trains a dense one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sparse_core.common.surgery import (
    Owner,
    is_parametrised,
    own_weight,
    owners,
    parametrisations,
    weight_name,
    weight_parameter,
)

Estimator = Literal["ste", "sr-ste", "fixed"]
_ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


class _StraightThrough(torch.autograd.Function):
    """``weight * mask`` with a straight-through gradient, plus a decay of dropped weights."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, mask: Tensor, decay: float) -> Tensor:
        return weight.masked_fill(~mask, 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        weight, mask, decay = inputs
        ctx.decay = decay
        if decay:
            ctx.save_for_backward(weight, mask)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if ctx.decay:
            weight, mask = ctx.saved_tensors
            gradient = gradient + ctx.decay * weight.masked_fill(mask, 0)
        return gradient, None, None


def masked_weight(weight: Tensor, mask: Tensor, estimator: Estimator = "ste", decay: float = 2e-4) -> Tensor:
    """Return ``weight`` where ``mask`` is true and zero elsewhere, with an estimator's gradient.

    ``"fixed"`` is the true gradient: dropped weights get none. ``"ste"`` passes the gradient of the sparse
    weight to all weights (Bengio, Léonard and Courville, "Estimating or Propagating Gradients Through
    Stochastic Neurons", 2013). ``"sr-ste"`` adds ``decay * weight`` at dropped weights (Zhou et al.,
    "Learning N:M Fine-grained Structured Sparse Neural Networks From Scratch", ICLR 2021, eq. 9). The decay
    is added at each use of the weight in a backward pass and is not multiplied by a loss scale.
    """
    if estimator == "fixed":
        return weight.masked_fill(~mask, 0)
    masked: Tensor = _StraightThrough.apply(weight, mask, decay if estimator == "sr-ste" else 0.0)
    return masked


class MaskedWeight(nn.Module):
    """Parametrisation of a weight by a mask; :func:`attach_masks` registers it.

    The mask is copied into a buffer. The state dict also holds ``estimator`` and ``decay``.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, estimator: Estimator, decay: float) -> None:
        super().__init__()
        self.register_buffer("mask", mask.detach().clone(memory_format=torch.contiguous_format))
        self.estimator = estimator
        self.decay = decay

    def forward(self, weight: Tensor) -> Tensor:
        """Return the sparse weight."""
        return masked_weight(weight, self.mask, self.estimator, self.decay)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the dense weight that an assignment to ``module.weight`` stores: the given one."""
        return weight

    def get_extra_state(self) -> Tensor:
        """Return (2,) float64: number of the estimator, and decay; a tensor for safetensors."""
        return torch.tensor([_ESTIMATORS.index(self.estimator), self.decay], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Undo :meth:`get_extra_state`."""
        number, decay = state.tolist()
        self.estimator, self.decay = _ESTIMATORS[int(number)], decay


class MaskedModel:
    """The masks of a model in training; see :func:`attach_masks`.

    Args:
        model: a model with masks attached, for example a deep copy of another.

    Raises:
        ValueError: no layer of ``model`` has a mask.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        if not self._parametrisations():
            raise ValueError("no layer of the model has a mask: attach_masks(model, masks) attaches them")

    @property
    def masks(self) -> dict[str, Tensor]:
        """Current masks by layer name; change them with :meth:`set_masks`."""
        return {name: masked.mask for name, masked in self._parametrisations().items()}

    @property
    def weights(self) -> dict[str, Tensor]:
        """Trained dense weights by layer name."""
        return {name: weight_parameter(self.model.get_submodule(name)) for name in self._parametrisations()}

    @property
    def frozen(self) -> bool:
        """True if every layer trains with the true gradient of its mask."""
        return all(masked.estimator == "fixed" for masked in self._parametrisations().values())

    @property
    def sparsity(self) -> float:
        """Share of the masked layers' weights that is dropped."""
        masks = self.masks.values()
        kept = torch.stack([mask.sum() for mask in masks]).sum()
        return 1 - int(kept) / sum(mask.numel() for mask in masks)

    def set_masks(self, masks: Mapping[str, Tensor]) -> None:
        """Replace the masks of all or some layers in place.

        Raises:
            TypeError: a mask is not bool.
            ValueError: unknown name or wrong shape.
        """
        found = self._parametrisations()
        for name, mask in masks.items():
            if name not in found:
                raise ValueError(f"layer {name!r} has no mask; layers with one: {', '.join(found)}")
            _check_mask(name, mask, found[name].mask.shape)
        for name, mask in masks.items():
            found[name].mask.copy_(mask)

    def freeze(self) -> None:
        """Keep the current masks: dropped weights get no gradient any more."""
        for masked in self._parametrisations().values():
            masked.estimator = "fixed"

    def remove(self) -> nn.Module:
        """Apply the masks to the weights and make ``weight`` a plain parameter again; returns the model.

        The parameters stay the same objects, so an optimiser keeps working.

        Raises:
            ValueError: the masks have been removed before.
        """
        masked = [module for module in self.model.modules() if _masked_weight_of(module) is not None]
        if not masked:
            raise ValueError("the masks have been removed already")
        for module in masked:
            _own_class(module)
            parametrize.remove_parametrizations(module, weight_name(module), leave_parametrized=True)
        return self.model

    def _parametrisations(self) -> dict[str, MaskedWeight]:
        """Return the parametrisations by layer name; a mask that tied layers share appears once."""
        found: dict[MaskedWeight, str] = {}
        for name, module in self.model.named_modules():
            masked = _masked_weight_of(module)
            if masked is not None:
                found.setdefault(masked, name)
        return {name: masked for masked, name in found.items()}


def attach_masks(
    model: nn.Module, masks: Mapping[str, Tensor], *, estimator: Estimator = "ste", decay: float = 2e-4
) -> MaskedModel:
    """Make layers compute with ``weight * mask`` while a dense weight is trained.

    The dense weight is the existing parameter, so optimisers made before or after both work. The model's
    state dict holds masks and estimator: to resume, attach any masks to a fresh model and load it. It names
    the weight ``parametrizations.weight.original`` until :meth:`MaskedModel.remove`.

    Args:
        model: any module; changed in place.
        masks: bool tensors by dotted layer name (``""`` for the model itself), of the shape of the layer's
            ``weight`` (``in_proj_weight`` of ``nn.MultiheadAttention``); true is kept. Tied layers share a
            mask.
        estimator: see :func:`masked_weight`.
        decay: λ of SR-STE; Zhou et al. use 2e-4.

    Returns:
        A handle that changes, freezes and removes the masks.

    Raises:
        TypeError: a mask is not bool.
        ValueError: no masks, an unknown layer or estimator, a negative decay, a wrong shape, or a weight that
            is already parametrised or tied to something other than a layer's ``weight``.
    """
    if estimator not in _ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(_ESTIMATORS)}; got {estimator!r}")
    if decay < 0:
        raise ValueError(f"decay must be 0 or more, got {decay}")
    if not masks:
        raise ValueError("masks is empty: magnitude_masks(model, NMPattern(2, 4)) makes some")
    modules = dict(model.named_modules(remove_duplicate=False))
    layers = {name: _layer(name, mask, modules) for name, mask in masks.items()}
    held = owners(model)
    tied = {name: _tied(name, held[id(own_weight(layer))]) for name, layer in layers.items()}
    claimed: dict[int, str] = {}
    for name, layer in layers.items():
        other = claimed.setdefault(id(own_weight(layer)), name)
        if other != name:
            raise ValueError(f"layers {other!r} and {name!r} share one weight: give one mask for both")
    for name, mask in masks.items():
        masked = MaskedWeight(mask.to(own_weight(layers[name]).device), estimator, float(decay))
        for module in tied[name]:
            parametrize.register_parametrization(module, weight_name(module), masked)
    return MaskedModel(model)


def _layer(name: str, mask: Tensor, modules: Mapping[str, nn.Module]) -> nn.Module:
    """Return the validated module for ``mask``."""
    if name not in modules:
        raise ValueError(f"the model has no layer {name!r}")
    module = modules[name]
    if is_parametrised(module):
        raise ValueError(
            f"the weight of layer {name!r} is parametrised already: set_masks changes masks that are"
            " attached, torch.nn.utils.parametrize.remove_parametrizations removes others"
        )
    key = weight_name(module)
    weight = module._parameters.get(key)
    if weight is None:
        raise ValueError(f"layer {name!r} ({type(module).__name__}) has no parameter {key!r}")
    _check_mask(name, mask, weight.shape)
    return module


def _check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    if mask.dtype != torch.bool:
        raise TypeError(f"the mask of layer {name!r} must be bool, got {mask.dtype}")
    if mask.shape != shape:
        raise ValueError(
            f"the mask of layer {name!r} has shape {tuple(mask.shape)}, its weight {tuple(shape)}"
        )


def _tied(name: str, sharing: list[Owner]) -> list[nn.Module]:
    """Return every module that holds a layer's weight."""
    for other in sharing:
        if other.key != weight_name(other.module):
            raise ValueError(
                f"the weight of layer {name!r} is tied to {other.key!r} of {other.name!r}, which cannot"
                " take a mask: leave the layer out"
            )
    return [other.module for other in sharing]


def _masked_weight_of(module: nn.Module) -> MaskedWeight | None:
    if not is_parametrised(module):
        return None
    first = parametrisations(module)[0]
    return first if isinstance(first, MaskedWeight) else None


def _own_class(module: nn.Module) -> None:
    """Give ``module`` its own class, since torch deletes the property ``weight`` from the class.

    Deep copies share the class that ``register_parametrization`` created, and would lose their weight.
    """
    shared = type(module)
    module.__class__ = type(shared.__name__, shared.__bases__, dict(shared.__dict__))
