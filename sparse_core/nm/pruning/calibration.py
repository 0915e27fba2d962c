"""Statistics of each layer's inputs on a few batches: feature norms and second moments."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from sparse_core.common.surgery import own_weight
from sparse_core.nm.forward_pass import call_model, evaluation_mode
from sparse_core.nm.pruning.scores import score_dtype
from sparse_core.nm.pruning.selection import Conv1D

# Elements of an unfolded convolution input held in memory at once: 256 MiB of float32.
UNFOLDED_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class InputStatistics:
    """Sums over the rows of a layer's input matrix; the im2col matrix of a convolution.

    Columns are in unfold order (in, kernel height, kernel width), whatever the pattern's layout. A grouped
    convolution has a leading dimension of groups.

    Attributes:
        rows: number of input rows seen.
        sum_of_squares: (columns,) or (groups, columns) float64.
        largest: () largest absolute input, without im2col's padding.
        hessian: 2/rows · XᵀX, (columns, columns) or (groups, columns, columns), float32 or float64: the
            Hessian of the mean squared output error. ``None`` unless requested.
    """

    rows: int
    sum_of_squares: Tensor
    largest: Tensor
    hessian: Tensor | None = None

    @property
    def norm(self) -> Tensor:
        """‖x‖₂ of each column, float64, for :func:`sparse_core.nm.pruning.scores.wanda`."""
        return self.sum_of_squares.sqrt()


def collect_inputs(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    layers: Mapping[str, nn.Module] | Iterable[str],
    hessian: bool = False,
    progress: bool = False,
) -> dict[str, InputStatistics]:
    """Run ``batches`` through the model and accumulate statistics of the inputs of ``layers``.

    The model runs in evaluation mode without gradients and is restored. Tensors of a batch are moved to the
    device of the model's first parameter.

    Args:
        model: any module.
        batches: a tensor is passed as the only argument, a tuple or list as positional and a mapping as
            keyword arguments.
        layers: Linear, Conv2d and transformers' Conv1D modules of the model, or their names.
        hessian: also compute the second moments, columns² numbers per layer.
        progress: show a progress bar.

    Returns:
        Statistics by name, in the order in which the layers are first called.

    Raises:
        TypeError: a layer of another kind, or a batch with more or fewer inputs than the model takes.
        ValueError: no batch, an unknown name, a layer that is never reached, or inputs that are not finite.
    """
    wanted = _modules(model, layers)
    sums: dict[str, _InputSums] = {}
    handles = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            found = positional[0] if positional else next(iter(keywords.values()))
            if name not in sums:
                sums[name] = _InputSums(hessian)
            for part in _dense_parts(found.detach()):
                for matrix in _input_matrices(module, part):
                    sums[name].add(matrix)
                sums[name].update_largest(part)

        return hook

    first = next(iter(model.parameters()), None)
    device = None if first is None else first.device
    count = 0
    with torch.no_grad(), evaluation_mode(model):
        try:
            for name, module in wanted.items():
                handles.append(module.register_forward_pre_hook(watch(name), with_kwargs=True))
            for batch in track(batches, "calibrating", disable=not progress):
                _check_arguments(model, batch)
                call_model(model, batch if device is None else _move(batch, device))
                count += 1
        finally:
            for handle in handles:
                handle.remove()
    if not count:
        raise ValueError("batches is empty: a few batches of inputs are needed (an iterator runs only once)")
    _check_reached(wanted, sums)
    return {name: found.result(name) for name, found in sums.items()}


class _InputSums:
    """Running sums of one layer, on its device."""

    def __init__(self, hessian: bool) -> None:
        self.hessian = hessian
        self.rows = 0
        self.squares: Tensor | None = None
        self.gram: Tensor | None = None
        self.largest: Tensor | None = None

    def add(self, matrix: Tensor) -> None:
        """Add the rows of (groups, rows, columns)."""
        squares = matrix.square().sum(dim=1, dtype=torch.float64)
        self.squares = squares if self.squares is None else self.squares.add_(squares)
        if self.hessian:
            gram = matrix.mT @ matrix
            self.gram = gram if self.gram is None else self.gram.add_(gram)
        self.rows += matrix.shape[1]

    def update_largest(self, found: Tensor) -> None:
        """Update the largest absolute value."""
        if found.numel():
            largest = found.to(score_dtype(found)).abs().amax()
            self.largest = largest if self.largest is None else torch.maximum(self.largest, largest)

    def result(self, name: str) -> InputStatistics:
        if self.squares is None or self.largest is None or not self.rows:
            raise ValueError(f"layer {name!r} was only given empty inputs")
        if not bool(self.squares.isfinite().all()):
            raise ValueError(f"the inputs of layer {name!r} are not finite, or overflow when squared")
        hessian = None if self.gram is None else self.gram * (2 / self.rows)
        single = len(self.squares) == 1
        return InputStatistics(
            self.rows,
            self.squares[0] if single else self.squares,
            self.largest,
            hessian[0] if single and hessian is not None else hessian,
        )


def _modules(model: nn.Module, layers: Mapping[str, nn.Module] | Iterable[str]) -> dict[str, nn.Module]:
    if isinstance(layers, Mapping):
        wanted = dict(layers)
    else:
        known = dict(model.named_modules())
        names = list(layers)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"the model has no layers {unknown}")
        wanted = {name: known[name] for name in names}
    if not wanted:
        raise ValueError("layers is empty: give the layers whose inputs are wanted")
    for name, module in wanted.items():
        if not isinstance(module, nn.Linear | nn.Conv2d | Conv1D):
            raise TypeError(f"layer {name!r} must be Linear, Conv2d or Conv1D, got {type(module).__name__}")
    return wanted


def _dense_parts(found: Tensor) -> tuple[Tensor, ...]:
    """Return the input, or the tensors of a nested one, by which ``nn.TransformerEncoder`` drops padding."""
    return tuple(part for part in found.unbind() if part.numel()) if found.is_nested else (found,)


def _input_matrices(module: nn.Module, found: Tensor) -> Iterator[Tensor]:
    """Yield the input as (groups, rows, columns) matrices in float32 or better, in pieces that fit memory."""
    exact = found.to(score_dtype(found))
    if not isinstance(module, nn.Conv2d):
        weight = own_weight(module)
        width = weight.shape[0 if isinstance(module, Conv1D) else 1]
        if exact.shape[-1] != width:
            raise ValueError(
                f"a layer of width {width} got an input of shape {tuple(exact.shape)}: calibrate with inputs"
                " that the model accepts"
            )
        yield exact.reshape(1, -1, width)
        return
    images = exact if exact.ndim == 4 else exact[None]
    height, width = (int(size) for size in module.kernel_size)
    a_sample = max(1, images[0].numel() * height * width) if len(images) else 1
    for piece in images.split(max(1, UNFOLDED_ELEMENTS // a_sample)):
        yield _unfold(module, piece)


def _unfold(convolution: nn.Conv2d, images: Tensor) -> Tensor:
    """Return the im2col matrix (groups, images * positions, columns) in unfold order."""
    mode = "constant" if convolution.padding_mode == "zeros" else convolution.padding_mode
    padded = torch.nn.functional.pad(images, convolution._reversed_padding_repeated_twice, mode=mode)
    columns = torch.nn.functional.unfold(
        padded, convolution.kernel_size, dilation=convolution.dilation, stride=convolution.stride
    )
    count, _, positions = columns.shape
    grouped = columns.reshape(count, convolution.groups, -1, positions)
    return grouped.permute(1, 0, 3, 2).reshape(convolution.groups, count * positions, -1)


def _move(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _move(item, device) for name, item in batch.items()}
    if isinstance(batch, tuple | list):
        return [_move(item, device) for item in batch]
    return batch


def _check_arguments(model: nn.Module, batch: Any) -> None:
    """Raise ``TypeError`` if the model does not take as many inputs as a tuple or list has."""
    if not isinstance(batch, tuple | list):
        return
    try:
        taken = inspect.signature(model.forward)
    except ValueError:
        # Compiled modules may have no signature; their call checks the batch.
        return
    try:
        taken.bind(*batch)
    except TypeError:
        raise TypeError(
            f"a calibration batch has {len(batch)} parts, which {type(model).__name__} does not take as"
            " inputs: leave out labels, as in [inputs for inputs, _ in loader]"
        ) from None


def _check_reached(wanted: Mapping[str, nn.Module], sums: Mapping[str, _InputSums]) -> None:
    missing = [name for name in wanted if name not in sums]
    if missing:
        raise ValueError(
            f"no batch reached {', '.join(repr(name) for name in missing)}: exclude these layers with select."
            " (nn.MultiheadAttention reads the weight of its out_proj without calling it.)"
        )
