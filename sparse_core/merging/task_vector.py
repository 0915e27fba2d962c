"""Task vectors: what fine-tuning added to a base, to add, scale, negate, trim and merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import shapes_of, state_difference
from sparse_core.merging.arithmetic.masks import Keep, band, largest, random_share
from sparse_core.merging.arithmetic.pieces import Delta, compute_dtype, piece_size, spans

#: A state dict, or a module that has one.
State = Mapping[str, Tensor] | nn.Module


def state_of(model: State, what: str = "the model") -> dict[str, Tensor]:
    """Return the tensors of a state dict or module by name."""
    state = model.state_dict() if isinstance(model, nn.Module) else model
    if not isinstance(state, Mapping):
        raise TypeError(f"{what} must be a state dict or a module, got {type(model).__name__}")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{what}: {name!r} is {type(value).__name__}, expected a tensor")
    return {name: value.detach() for name, value in state.items()}


def check_same_tensors(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], whose: str, of_what: str
) -> None:
    """Raise ``ValueError`` unless two models have tensors of the same names and shapes.

    ``whose`` names the model with the shapes ``found`` in the error, ``of_what`` the expected one.
    """
    difference = state_difference(expected, found, owner=of_what)
    if difference is not None:
        raise ValueError(
            f"{whose} has other tensors than {of_what}: {difference};"
            " only models tuned from one base can be merged"
        )


@dataclass(frozen=True)
class TaskVector:
    """Differences of a fine-tuned model from its base (Ilharco et al. 2023).

    Vectors add, subtract, scale and negate: ``base + a - b / 2`` is ``(a - 0.5 * b).apply(base)``.

    Attributes:
        deltas: floating-point differences by name; integer tensors of a model have none.
    """

    deltas: dict[str, Tensor]

    @classmethod
    def between(cls, base: State, tuned: State) -> TaskVector:
        """Return the vector from a base to a model tuned from it.

        Differences are computed in float32, or float64 if a tensor is.

        Raises:
            ValueError: other tensors or shapes, or NaN or infinity in one.
        """
        before, after = state_of(base, "the base"), state_of(tuned, "the tuned model")
        check_same_tensors(shapes_of(before), shapes_of(after), "the tuned model", "the base")
        deltas = {}
        for name, value in before.items():
            if not value.is_floating_point():
                continue
            dtype = compute_dtype(value, after[name])
            deltas[name] = after[name].to(dtype) - value.to(dtype)
            Delta(deltas[name], label=f"tensor {name!r} of the base or the tuned model").require_finite(
                deltas[name]
            )
        return cls(deltas)

    def apply(self, base: State, scale: float = 1.0) -> dict[str, Tensor]:
        """Return the base plus ``scale`` times the vector, in the base's types; the base does not change."""
        before = state_of(base, "the base")
        floating = {name: tuple(value.shape) for name, value in before.items() if value.is_floating_point()}
        check_same_tensors(floating, self._shapes(), "the task vector", "the base")
        return {
            name: torch.add(value.to(self.deltas[name].dtype), self.deltas[name], alpha=scale).to(value.dtype)
            if name in self.deltas
            else value.clone()
            for name, value in before.items()
        }

    def __add__(self, other: TaskVector) -> TaskVector:
        if not isinstance(other, TaskVector):
            return NotImplemented
        check_same_tensors(self._shapes(), other._shapes(), "the second task vector", "the first")
        return TaskVector({name: value + other.deltas[name] for name, value in self.deltas.items()})

    def __sub__(self, other: TaskVector) -> TaskVector:
        return self + -other if isinstance(other, TaskVector) else NotImplemented

    def __mul__(self, factor: float) -> TaskVector:
        return TaskVector({name: value * factor for name, value in self.deltas.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> TaskVector:
        return self * (1 / divisor)

    def __neg__(self) -> TaskVector:
        """Return the vector that unlearns the task."""
        return self * -1.0

    def trim(self, density: float) -> TaskVector:
        """Keep the largest magnitudes of each tensor (TIES' first step): exact counts, ties by position.

        Args:
            density: share to keep, in (0, 1].
        """
        _check_share(density, "density")
        return self._kept(lambda name, delta: largest(delta, density))

    def breadcrumbs(self, density: float, gamma: float = 0.01) -> TaskVector:
        """Drop the largest and the smallest magnitudes of each tensor.

        Args:
            density: share to keep, in (0, 1].
            gamma: share of the largest to drop.
        """
        _check_share(density, "density")
        if not 0 <= gamma < 1:
            raise ValueError(f"gamma must be at least 0 and below 1, got {gamma}")
        return self._kept(lambda name, delta: band(delta, density, gamma))

    def dare(self, density: float, *, seed: int = 0, rescale: bool = True, number: int = 0) -> TaskVector:
        """Keep a random share of the numbers, divided by that share so that the expectation stays.

        Args:
            density: probability to keep a number, in (0, 1].
            seed: seed of the choice, with the names of the tensors.
            rescale: divide by the probability.
            number: number of the vector among those with the same seed, so that each drops others.
        """
        _check_share(density, "density")
        made = self._kept(lambda name, delta: random_share(density, seed=seed, vector=number, name=name))
        share = random_share(density, seed=seed, vector=number, name="")
        return made / share.probability if rescale and share is not None else made

    def _kept(self, rule: Callable[[str, Delta], Keep | None]) -> TaskVector:
        made = {}
        for name, value in self.deltas.items():
            delta = Delta(value, label=f"tensor {name!r} of the task vector")
            keep = rule(name, delta)
            made[name] = kept = value.clone(memory_format=torch.contiguous_format)
            if keep is not None:
                # In the compute type, because a 16-bit type may not represent the threshold.
                flat, buffer = kept.view(-1), delta.buffer()
                for start, stop in spans(0, flat.numel(), piece_size(flat.device)):
                    flat[start:stop] = keep(delta.read(start, stop, buffer), start)
        return TaskVector(made)

    @property
    def numel(self) -> int:
        """Number of elements of all tensors."""
        return sum(value.numel() for value in self.deltas.values())

    @property
    def nnz(self) -> int:
        """Number of non-zero elements."""
        return sum(int(torch.count_nonzero(value)) for value in self.deltas.values())

    @property
    def density(self) -> float:
        """Share of non-zero elements."""
        return self.nnz / self.numel if self.numel else 0.0

    def __len__(self) -> int:
        return len(self.deltas)

    def __iter__(self) -> Iterator[str]:
        return iter(self.deltas)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return shapes_of(self.deltas)


def _check_share(value: float, what: str) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{what} must be above 0 and at most 1, got {value}")
