"""Validation of the arguments of ``prune`` before any weight changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast, get_args

from torch import Tensor, nn

from sparse_core.common.surgery import Select, Selection, is_parametrised, own_weight
from sparse_core.nm.pattern import Block, NMPattern, Pattern
from sparse_core.nm.pruning.calibration import InputStatistics
from sparse_core.nm.pruning.scores import GradientScore, magnitude
from sparse_core.nm.pruning.selection import MASKABLE, outputs_first, selected_layers
from sparse_core.nm.pruning.single_weight import Method

Score = Literal["magnitude", "gradient", "wanda", "sparsegpt"]
WITH_INPUTS = ("wanda", "sparsegpt")


def as_pattern(
    n_or_pattern: int | Pattern | Mapping[str, Pattern | None], m: int | None
) -> Pattern | Mapping[str, Pattern | None]:
    """Return the pattern of ``prune(target, n, m)`` or ``prune(target, pattern)``."""
    if isinstance(n_or_pattern, int):
        if m is None:
            raise TypeError(
                f"prune(…, {n_or_pattern}) needs m too: prune(…, 2, 4) or prune(…, NMPattern(2, 4))"
            )
        return NMPattern(n_or_pattern, m)
    if m is not None:
        raise TypeError("m is only valid with a number n; a pattern has its own m")
    if not isinstance(n_or_pattern, NMPattern | Block | Mapping):
        raise TypeError(
            f"the pattern must be NMPattern, Block, n and m, or a dictionary; got {n_or_pattern!r}"
        )
    return n_or_pattern


def writable_layers(
    model: nn.Module,
    pattern: Pattern | Mapping[str, Pattern | None],
    select: Select,
    *,
    collecting: bool,
    statistics: Any = None,
) -> Selection:
    """Return the layers whose weight can be changed in place.

    With ``collecting``, modules that read a weight without a call are skipped, because their inputs cannot be
    collected; so are layers missing in the given ``statistics``. ``pattern`` and ``select`` are those of
    :func:`selected_layers`.
    """
    projections = {module.out_proj for module in model.modules() if isinstance(module, nn.MultiheadAttention)}

    def obstacle(name: str, module: nn.Module) -> str | None:
        if is_parametrised(module):
            return "its weight is parametrised: remove the parametrisation, or set its masks"
        if collecting and module in projections:
            return "nn.MultiheadAttention reads its weight without calling it: its inputs are unknown"
        if isinstance(module, nn.MultiheadAttention) and (
            collecting or (isinstance(statistics, Mapping) and name not in statistics)
        ):
            return "the inputs of its in_proj_weight are not collected: prune it by magnitude or gradient"
        return None

    selection = selected_layers(model, pattern, select, MASKABLE, rule=obstacle)
    for name, module in selection.layers.items():
        if not bool(plain_weight(module).isfinite().all()):
            raise ValueError(f"the weight of layer {name!r} has NaN or infinite values; nothing was pruned")
    return selection


def plain_weight(module: nn.Module) -> Tensor:
    """Return the detached weight, outputs first; writing to it changes the module."""
    return outputs_first(module, own_weight(module).detach())


def tensor_score(weight: Tensor, score: Any, gradient: Any) -> Method | Tensor:
    """Return the method, or the scores of the weight's shape, for one tensor."""
    if isinstance(score, Tensor):
        return score
    _check_score(score)
    if score != "gradient":
        return cast(Method, score)
    if not isinstance(gradient, Tensor) or gradient.shape != weight.shape:
        raise ValueError(f"score='gradient' of a tensor needs its gradient, of shape {tuple(weight.shape)}")
    return magnitude(weight) * magnitude(gradient)


def model_scores(layers: Mapping[str, nn.Module], score: Any, gradient: Any) -> dict[str, Method | Tensor]:
    """Return the method or the scores of each layer."""
    if isinstance(score, Mapping):
        _check_complete("score", score, layers)
        for name, module in layers.items():
            _check_given(name, own_weight(module), score[name])
        return {name: outputs_first(module, score[name]) for name, module in layers.items()}
    if isinstance(score, Tensor):
        raise TypeError("for a model the scores are a dictionary by layer name")
    _check_score(score)
    if score != "gradient":
        return dict.fromkeys(layers, score)
    if gradient is None:
        return {name: _current_gradient_score(name, module) for name, module in layers.items()}
    if not isinstance(gradient, GradientScore):
        raise TypeError(f"for a model gradient is a GradientScore, got {type(gradient).__name__}")
    return {name: outputs_first(module, gradient.score(name)) for name, module in layers.items()}


def _current_gradient_score(name: str, module: nn.Module) -> Tensor:
    weight = own_weight(module)
    if weight.grad is None:
        raise ValueError(f"layer {name!r} has no gradient: run backward() first, or give a GradientScore")
    return outputs_first(module, magnitude(weight) * magnitude(weight.grad))


def check_inputs(
    layers: Mapping[str, nn.Module],
    pattern: Pattern | Mapping[str, Pattern | None],
    score: Any,
    statistics: Any,
    calibration: Iterable[Any] | None,
    sequential: bool,
) -> None:
    """Raise unless the score has its statistics or batches and fits the patterns."""
    if statistics is not None:
        _check_complete("statistics", statistics, layers)
        for name, module in layers.items():
            _check_statistics(name, plain_weight(module), statistics[name], score)
    elif calibration is None and score in WITH_INPUTS:
        raise ValueError(
            f"score={score!r} needs inputs: calibration=batches, or statistics=collect_inputs(…)"
        )
    if sequential and (calibration is None or statistics is not None):
        raise ValueError(
            "sequential pruning collects its own statistics: give calibration instead of statistics"
        )
    if score == "sparsegpt":
        for name in layers:
            wanted = pattern[name] if isinstance(pattern, Mapping) else pattern
            if not isinstance(wanted, NMPattern):
                raise TypeError(f"SparseGPT prunes to n:m patterns, got {wanted} for layer {name!r}")


def _check_score(score: Any) -> None:
    if not isinstance(score, str) or score not in get_args(Score):
        raise ValueError(f"score must be one of {', '.join(get_args(Score))}, or scores; got {score!r}")


def _check_complete(what: str, given: Any, layers: Mapping[str, nn.Module]) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"for a model {what} is a dictionary by layer name, got {type(given).__name__}")
    missing = [name for name in layers if name not in given]
    if missing:
        raise ValueError(f"{what} lacks the layers {missing}: add them, or leave them out by select")


def _check_given(name: str, weight: Tensor, score: Any) -> None:
    if not isinstance(score, Tensor):
        raise TypeError(f"the score of layer {name!r} must be a tensor, got {type(score).__name__}")
    if score.shape != weight.shape:
        raise ValueError(
            f"the score of layer {name!r} must have its weight's shape {tuple(weight.shape)},"
            f" got {tuple(score.shape)}"
        )
    if bool(score.isnan().any()):
        raise ValueError(f"the score of layer {name!r} has NaN; nothing was pruned")


def _check_statistics(name: str, weight: Tensor, statistics: InputStatistics, score: Any) -> None:
    columns = weight.shape[1:].numel()
    if statistics.sum_of_squares.shape[-1] != columns:
        raise ValueError(
            f"the statistics of layer {name!r} are of {statistics.sum_of_squares.shape[-1]} columns, but its"
            f" weight of shape {tuple(weight.shape)} has {columns}"
        )
    if statistics.hessian is None and score == "sparsegpt":
        raise ValueError(f"SparseGPT needs the Hessian of layer {name!r}: collect_inputs(…, hessian=True)")
