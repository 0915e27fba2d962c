"""One network of the pruning study from a seed: trained, pruned in every way, checked and measured."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from benchmarks.layers.pruning_models import Split, accuracy, build, fit, load_split, pruned_layer
from benchmarks.layers.pruning_rows import LAYOUT, Pruned, Task, Ways, sensitivity_of, train_on
from sparse_core.common.surgery import choose_layers, weight_parameter
from sparse_core.nm.masks import check_nm
from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.pruning.selection import PRUNABLE

DENSE, TRAINED_ON = "dense", "dense, trained on"


def measure(task: Task) -> dict[str, Any]:
    """All rows of one network and seed, on one thread, so that results do not depend on how many run.

    Returns:
        ``model``, ``seed``, ``dense`` (the two dense rows) and ``patterns``: by pattern and row the accuracy,
        kept magnitude and sparsity.
    """
    torch.set_num_threads(1)
    device = torch.device(task.device)
    split = load_split(device)
    digits = split.training
    torch.manual_seed(task.seed)
    dense = build(task.model).to(device)
    fit(dense, digits, steps=task.dense_steps, peak_rate=task.dense_rate, seed=task.seed)
    longer = copy.deepcopy(dense)
    train_on(longer, digits, task)
    sensitivity = sensitivity_of(dense, digits)
    found: dict[str, dict[str, Any]] = {}
    for text in task.patterns:
        plain = NMPattern.parse(text)
        ways = Ways(dense, NMPattern(plain.n, plain.m, LAYOUT), digits, sensitivity, task)
        found[text] = {
            name: {"group": group, **_measured(make(), split, task)}
            for name, (group, make) in ways.rows().items()
        }
    both = {DENSE: dense, TRAINED_ON: longer}
    return {
        "model": task.model,
        "seed": task.seed,
        "weights": _sizes(dense),
        "dense": {name: _measured(Pruned(model, {}, {}, model), split, task) for name, model in both.items()},
        "patterns": found,
    }


def check(pruned: Pruned) -> None:
    """Raise ``ValueError`` unless every mask fits its pattern and the weights are zero where it is false."""
    for name, mask in pruned.masks.items():
        weight = weight_parameter(pruned.model.get_submodule(name))
        pattern = pruned.patterns[name] if isinstance(pruned.patterns, Mapping) else pruned.patterns
        if isinstance(pattern, NMPattern):
            check_nm(mask, pattern.n, pattern.m, conv_layout=pattern.conv_layout, name=name)
            check_nm(weight, pattern.n, pattern.m, conv_layout=pattern.conv_layout, name=name)
        if bool(weight[~mask].any()):
            raise ValueError(f"layer {name!r} has weights that its mask drops")


def _measured(pruned: Pruned, split: Split, task: Task) -> dict[str, float]:
    check(pruned)
    kept = total = 0.0
    zeros = count = 0
    for name, layer in choose_layers(pruned.reference, PRUNABLE, pruned_layer).layers.items():
        before = weight_parameter(layer).detach().double().abs()
        mask = pruned.masks.get(name, torch.ones_like(before, dtype=torch.bool))
        kept += float((before * mask).sum())
        total += float(before.sum())
        zeros += int((~mask).sum())
        count += mask.numel()
    return {
        "accuracy": accuracy(pruned.model, split.test if task.part == "test" else split.validation),
        "kept_magnitude": kept / total,
        "sparsity": zeros / count,
    }


def _sizes(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters, and of those the patterns apply to."""
    layers = choose_layers(model, PRUNABLE, pruned_layer).layers.values()
    return {
        "all": sum(parameter.numel() for parameter in model.parameters()),
        "pruned_layers": sum(weight_parameter(layer).numel() for layer in layers),
    }
