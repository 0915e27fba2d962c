"""Predict the increase of the loss if a layer is pruned: Taylor terms of first and second order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from rich.progress import track
from torch import Tensor, nn

from sparse_core.common.surgery import Select, choose_layers, is_parametrised, weight_parameter
from sparse_core.common.table import Report, Table, left_out
from sparse_core.nm.forward_pass import evaluation_mode
from sparse_core.nm.masks import pattern_mask
from sparse_core.nm.pattern import TWO_FOUR, Block, NMPattern, Pattern
from sparse_core.nm.pruning.selection import PRUNABLE

Hessian = Literal["fisher", "exact"]


@dataclass(frozen=True)
class LayerSensitivity:
    """Taylor terms of one layer under one pattern; Δw is the pruned minus the current weight.

    Attributes:
        name: dotted name of the layer.
        pattern: pattern of the pruning.
        shape: shape of its weight.
        first: Σ g·Δw, the signed first-order change of the loss.
        first_absolute: Σ |g·Δw|, in which opposite signs do not cancel.
        second: ½ Δwᵀ H Δw; 0 if only the first order was requested.
    """

    name: str
    pattern: Pattern
    shape: tuple[int, ...]
    first: float
    first_absolute: float
    second: float
    derived: ClassVar = ("predicted", "sensitivity")

    @property
    def predicted(self) -> float:
        """Predicted change of the loss: the sum of both terms."""
        return self.first + self.second

    @property
    def sensitivity(self) -> float:
        """``first_absolute + |second|``, the non-negative measure of rankings and :func:`allocate`.

        Near a minimum the signed first order cancels, so it ranks layers badly.
        """
        return self.first_absolute + abs(self.second)


@dataclass(frozen=True)
class SensitivityReport(Report):
    """Result of :func:`layer_sensitivity`.

    Attributes:
        layers: one entry per layer and fitting pattern, in the model's order.
        order: 1 or 2.
        hessian: source of the second order.
        batches: number of batches averaged.
        loss: mean loss of the unpruned model.
        skipped: reasons for the layers without an entry.
    """

    layers: tuple[LayerSensitivity, ...]
    order: int
    hessian: Hessian
    batches: int
    loss: float
    skipped: dict[str, str]

    def of(self, name: str, pattern: Pattern) -> LayerSensitivity:
        """Return the entry of a layer and pattern.

        Raises:
            ValueError: there is none.
        """
        for layer in self.layers:
            if layer.name == name and layer.pattern == pattern:
                return layer
        raise ValueError(f"the report has no entry for layer {name!r} under {pattern}")

    def ranking(self, pattern: Pattern | None = None) -> tuple[str, ...]:
        """Return layer names, least sensitive first.

        Args:
            pattern: entries to rank; optional if the report has a single pattern.

        Raises:
            ValueError: the report has several patterns and none is given, or lacks the given one.
        """
        patterns = list(dict.fromkeys(layer.pattern for layer in self.layers))
        if pattern is None and len(patterns) > 1:
            raise ValueError(f"name one of the report's patterns: {', '.join(map(str, patterns))}")
        wanted = patterns[0] if pattern is None else pattern
        if wanted not in patterns:
            raise ValueError(f"the report has no {wanted}, only {', '.join(map(str, patterns))}")
        entries = [layer for layer in self.layers if layer.pattern == wanted]
        return tuple(layer.name for layer in sorted(entries, key=lambda layer: layer.sensitivity))

    def tables(self) -> list[Table | str]:
        """Return one row per layer and pattern, the skipped layers, and the loss."""
        columns = {
            "layer": "name",
            "shape": "shape",
            "pattern": "pattern",
            "Σ g·Δw": "first:.3e",
            "Σ |g·Δw|": "first_absolute:.3e",
            "½ Δwᵀ H Δw": "second:.3e",
            "sensitivity": "sensitivity:.3e",
        }
        second = f", Hessian: {self.hessian}" if self.order == 2 else ""
        loss = f"loss {self.loss:.6g} over {self.batches} batches, order {self.order}{second}"
        return [Table.of(self.layers, columns), left_out(self.skipped), loss]


# torch's errors for the second derivative of its kernels and of an autograd.Function.
_ONCE_DIFFERENTIABLE = ("is not implemented", "differentiate twice")

LossFunction = Callable[[nn.Module, Any], Tensor]
"""Function of model and batch that returns the mean loss of the batch, a () tensor."""


def layer_sensitivity(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Iterable[Any],
    *,
    patterns: Pattern | Sequence[Pattern] = TWO_FOUR,
    order: int = 1,
    hessian: Hessian = "fisher",
    select: Select = None,
    progress: bool = False,
) -> SensitivityReport:
    """Predict the change of the loss when one layer at a time is pruned by magnitude.

    The first order is that of Molchanov et al., "Importance Estimation for Neural Network Pruning" (2019),
    summed over a layer. The second order adds ½ Δwᵀ H Δw within the layer ("Optimal Brain Damage", LeCun,
    Denker and Solla 1990).

    - ``"fisher"`` uses the mean of g gᵀ over batches for H at no extra cost. It is the empirical Fisher
      matrix if a batch is one sample, and about B times too small for batches of B samples.
    - ``"exact"`` multiplies by the Hessian itself: one more backward pass per layer, pattern and batch,
      through a loss that must be twice differentiable. Torch's fused kernels of
      ``scaled_dot_product_attention`` are not: use ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` or
      ``"fisher"``.

    The model runs in evaluation mode; its mode, parameters and gradients are restored.

    Args:
        model: any module.
        loss_fn: returns the mean loss of a batch.
        batches: arguments of ``loss_fn``; each counts the same.
        patterns: one or several; a layer gets an entry for each that fits.
        order: 1 or 2.
        hessian: source of the second order.
        select: layers to measure, see :data:`sparse_core.common.surgery.Select`.
        progress: show a progress bar over the batches.

    Returns:
        The report; printing it gives a table.

    Raises:
        TypeError: not a pattern.
        ValueError: invalid ``order`` or ``hessian``, no patterns, no batches, or no layer that fits. Or the
            loss is not one finite number, does not depend on a layer's weight, or with ``"exact"`` cannot be
            differentiated twice.
    """
    wanted = (patterns,) if isinstance(patterns, NMPattern | Block) else tuple(dict.fromkeys(patterns))
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order}")
    if hessian not in get_args(Hessian):
        raise ValueError(f"hessian must be one of {', '.join(get_args(Hessian))}; got {hessian!r}")
    if not wanted:
        raise ValueError("patterns is empty")
    for pattern in wanted:
        if not isinstance(pattern, NMPattern | Block):
            raise TypeError(f"patterns must be NMPattern or Block, got {pattern!r}")
    weights, skipped = _fitting_weights(model, wanted, select)
    changes = {name: _changes(weight, wanted) for name, weight in weights.items()}
    terms = _Terms(weights, changes, exact=order == 2 and hessian == "exact")
    with evaluation_mode(model), _differentiable(list(weights.values())):
        for batch in track(batches, description="sensitivity", disable=not progress):
            terms.add(loss_fn(model, batch))
    entries = terms.entries(second_order=order == 2)
    return SensitivityReport(entries, order, hessian, terms.count, terms.mean_loss(), skipped)


def _fitting_weights(
    model: nn.Module, patterns: Sequence[Pattern], select: Select
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return weights by name that fit at least one pattern, and reasons for the others."""

    def obstacle(name: str, module: nn.Module) -> str | None:
        columns = weight_parameter(module)[0].numel()
        if is_parametrised(module):
            return "its weight is parametrised: remove masks before measuring"
        if not any(_fits(columns, pattern) for pattern in patterns):
            return f"its input dimension {columns} fits none of {', '.join(map(str, patterns))}"
        return None

    nothing = f"no selected layer fits {', '.join(map(str, patterns))}"
    selection = choose_layers(model, PRUNABLE, select, rule=obstacle, nothing=nothing)
    weights = {name: weight_parameter(module) for name, module in selection.layers.items()}
    return weights, selection.skipped


def _fits(columns: int, pattern: Pattern) -> bool:
    return isinstance(pattern, Block) or columns % pattern.m == 0


Changes = Mapping[str, Mapping[Pattern, Tensor]]


class _Terms:
    """Sums over batches, on the device until the end."""

    def __init__(self, weights: Mapping[str, Tensor], changes: Changes, *, exact: bool) -> None:
        self.weights = weights
        self.changes = changes
        self.exact = exact
        self.count = 0
        self.loss = torch.zeros((), dtype=torch.float64)
        self.gradients = {
            name: torch.zeros_like(weight, dtype=_to_double(weight)) for name, weight in weights.items()
        }
        #: Δwᵀ H Δw.
        self.bends = {
            (name, pattern): torch.zeros((), dtype=torch.float64, device=weights[name].device)
            for name, by_pattern in changes.items()
            for pattern in by_pattern
        }

    def add(self, loss: Tensor) -> None:
        """Differentiate the loss of one batch."""
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            found = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"loss_fn must return the mean loss, one number, got {found}")
        if not loss.requires_grad:
            raise ValueError("loss_fn returned a loss without gradient: it must run the model it is given")
        loss = loss.reshape(())
        names = list(self.weights)
        gradients = torch.autograd.grad(
            loss, list(self.weights.values()), create_graph=self.exact, allow_unused=True
        )
        unused = [name for name, gradient in zip(names, gradients, strict=True) if gradient is None]
        if unused:
            raise ValueError(
                f"the loss does not depend on layers {', '.join(unused)}: exclude them with select="
            )
        for name, gradient in zip(names, gradients, strict=True):
            self.gradients[name] += gradient.detach()
            for pattern, change in self.changes[name].items():
                slope = _dot(gradient, change)
                bend = self._curvature(name, slope, change) if self.exact else slope.detach().square()
                self.bends[name, pattern] = self.bends[name, pattern] + bend
        self.loss = self.loss.to(loss.device) + loss.detach()
        self.count += 1

    def _curvature(self, name: str, slope: Tensor, change: Tensor) -> Tensor:
        """Return Δwᵀ H Δw by differentiating g·Δw once more."""
        if not slope.requires_grad:  # The loss is linear in this weight.
            return torch.zeros_like(slope)
        try:
            (product,) = torch.autograd.grad(slope, self.weights[name], retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if not any(part in str(error) for part in _ONCE_DIFFERENTIABLE):
                raise
            raise ValueError(
                "hessian='exact' differentiates the loss twice, and a kernel in this model allows that only"
                " once. Use hessian='fisher', which needs no second derivative. If the kernel is"
                " scaled_dot_product_attention, call layer_sensitivity within"
                f" torch.nn.attention.sdpa_kernel(SDPBackend.MATH) instead. Error of torch: {error}"
            ) from error
        return torch.zeros_like(slope) if product is None else _dot(product, change)

    def mean_loss(self) -> float:
        """Return the mean over the batches."""
        loss = float(self.loss) / self.count
        if not math.isfinite(loss):
            raise ValueError(f"the mean loss is {loss}: the model or a batch is not finite")
        return loss

    def entries(self, *, second_order: bool) -> tuple[LayerSensitivity, ...]:
        """Return means over the batches, read from the device in one transfer per layer and pattern."""
        if not self.count:
            raise ValueError("batches is empty: sensitivity needs at least one batch")
        found = []
        for name, by_pattern in self.changes.items():
            gradient = self.gradients[name] / self.count
            for pattern, change in by_pattern.items():
                product = gradient.to(torch.float64) * change
                bend = self.bends[name, pattern] / self.count if second_order else product.new_zeros(())
                first, absolute, second = torch.stack([product.sum(), product.abs().sum(), bend / 2]).tolist()
                shape = tuple(change.shape)
                found.append(LayerSensitivity(name, pattern, shape, first, absolute, second))
        return tuple(found)


def _changes(weight: Tensor, patterns: Sequence[Pattern]) -> dict[Pattern, Tensor]:
    """Return the change of the weight by magnitude pruning for every pattern that fits it."""
    columns = weight[0].numel()
    weight = weight.detach()
    return {
        pattern: -weight.masked_fill(pattern_mask(weight, pattern), 0)
        for pattern in patterns
        if _fits(columns, pattern)
    }


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a.to(torch.float64) * b).sum()


def _to_double(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


@contextmanager
def _differentiable(weights: Sequence[Tensor]) -> Iterator[None]:
    """Enable gradients of the weights, even frozen ones; restored at the end."""
    trainable = [weight.requires_grad for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        with torch.enable_grad():
            yield
    finally:
        for weight, wanted in zip(weights, trainable, strict=True):
            weight.requires_grad_(wanted)
