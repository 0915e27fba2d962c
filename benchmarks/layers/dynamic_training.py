"""One training of the study on a small task, from a seed."""

from __future__ import annotations

import re
import time
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from benchmarks.layers.dynamic_rows import (
    LayerCost,
    Row,
    count_forward,
    make_sparse,
    make_step,
    parameter_count,
    sparse_layers,
    training_cost,
)
from benchmarks.layers.dynamic_tasks import (
    SMALL_TASKS,
    Parts,
    SmallTask,
    TaskName,
    draw_batch,
    evaluate,
    load_parts,
    loss_of,
)
from sparse_core.nm.training import warmup_cosine

BLOCK_SIZE = 8
UPDATE_EVERY = 20
_WEIGHT_DECAY = 1e-2


class Run(NamedTuple):
    """One training; plain values, so that a process can be given it.

    Attributes:
        task: which.
        row: how it is trained.
        seed: of weights, topology and batches. All rows of a seed see the same batches.
        steps: of a plain training; the row's length multiplies them.
        part: examples that are measured.
        text_file: text of the character task, or Python's help topics.
        update_every: steps between two exchanges.
        rate: peak learning rate, or the task's.
    """

    task: TaskName
    row: Row
    seed: int
    steps: int
    part: Literal["test", "validation"]
    text_file: str | None = None
    update_every: int = UPDATE_EVERY
    rate: float | None = None


def train(run: Run) -> dict[str, Any]:
    """Train and measure, on one thread, so that results do not depend on how many run.

    Returns:
        ``task``, ``seed``, the fields of the row, ``steps``, ``accuracy``, ``loss`` (and ``bits``),
        ``parameters``, ``connections`` and ``density`` of the sparse layers, ``cost`` (multiply-adds over
        those of a plain dense training), ``updates`` and ``seconds``.
    """
    torch.set_num_threads(1)
    task, row = SMALL_TASKS[run.task], run.row
    parts = load_parts(run.task, run.text_file)
    torch.manual_seed(run.seed)
    dense = task.build(parts.symbols)
    names = {name for name, module in dense.named_modules() if _becomes_sparse(task, name, module)}
    counted, rest = count_forward(dense, parts.training.inputs[:1], names)
    model = _network(task, row, run.seed, dense, parts)
    steps = run.steps * row.length
    started = time.perf_counter()
    updates = _fit(model, task, run, parts, steps)
    seconds = time.perf_counter() - started
    found = evaluate(model, task, parts.test if run.part == "test" else parts.validation)
    layers = sparse_layers(model)
    if row.method == "small dense":
        own, own_rest = count_forward(model, parts.training.inputs[:1], names)
        share = (sum(own.values()) + own_rest) / (sum(counted.values()) + rest)
        cost = share * steps / run.steps
    else:
        density = {name: layers[name].grid.density if name in layers else 1.0 for name in names}
        costs = {name: LayerCost(counted[name], density[name]) for name in names}
        cost = training_cost(
            costs,
            rest,
            steps=steps,
            dense_steps=run.steps,
            updates=updates,
            by_gradient=row.method == "rigl",
        )
    return {
        "task": run.task,
        "seed": run.seed,
        **row._asdict(),
        "steps": steps,
        **found,
        "parameters": parameter_count(model),
        "connections": sum(layer.values.numel() for layer in layers.values()),
        "density": _density(model, names),
        "cost": cost,
        "updates": updates,
        "seconds": round(seconds, 2),
    }


def _becomes_sparse(task: SmallTask, name: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.Conv2d) and re.search(task.sparse, name) is not None


def _network(task: SmallTask, row: Row, seed: int, dense: nn.Module, parts: Parts) -> nn.Module:
    """The row's network; the dense one is changed in place where layers become sparse."""
    if row.method == "small dense":
        return task.build(parts.symbols, smaller_width(task, row.sparsity, parts.symbols))
    if row.is_sparse:
        make_sparse(dense, row, select=task.sparse, block_size=BLOCK_SIZE, seed=1000 * seed)
    return dense


def smaller_width(task: SmallTask, sparsity: float, symbols: int) -> int:
    """The largest width of a dense network that has no more parameters than the sparse one."""
    with torch.random.fork_rng():
        sparse = task.build(symbols)
        row = Row("static", "unstructured", sparsity, 1)
        make_sparse(sparse, row, select=task.sparse, block_size=BLOCK_SIZE, seed=0)
        allowed = parameter_count(sparse)
        return next(width for width in task.widths if parameter_count(task.build(symbols, width)) <= allowed)


def _fit(model: nn.Module, task: SmallTask, run: Run, parts: Parts, steps: int) -> int:
    """Train in place; the number of exchanges."""
    rate = run.rate or task.rate
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=_WEIGHT_DECAY)
    schedule = warmup_cosine(optimizer, max(1, min(20, steps // 10)), steps)
    step, _ = make_step(model, optimizer, run.row, steps=steps, update_every=run.update_every, seed=run.seed)
    generator = torch.Generator().manual_seed(run.seed)
    updates = 0
    model.train()
    for _ in range(steps):
        loss = loss_of(model, draw_batch(task, parts.training, generator))
        optimizer.zero_grad()
        loss.backward()
        updates += step() is not None
        schedule.step()
    return updates


def _density(model: nn.Module, names: set[str]) -> float:
    """Share of the weights of the layers that may be sparse that the model stores."""
    stored = whole = 0
    for name in names:
        layer = sparse_layers(model).get(name)
        if layer is None:
            size = next(model.get_submodule(name).parameters()).numel()
            stored += size
        else:
            size = layer.grid.rows * layer.grid.columns
            stored += layer.values.numel()
        whole += size
    return stored / whole
