"""Layers that are pruned while they train."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from reference_attention import reference_attention
from torch import Tensor, nn

from sparse_core.attention.operands import AttentionResult
from sparse_core.attention.patterns.builders import local_window
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.pruning.importance import block_importance
from sparse_core.attention.pruning.pruner import AttentionPruner
from sparse_core.attention.pruning.report import PruningReport
from sparse_core.attention.pruning.schedule import DensitySchedule

BLOCKS, SIZE, CLASSES, WIDTH = 8, 16, 4, 32
LENGTH = BLOCKS * SIZE


class Layer(nn.Module):
    """Two heads over (batch, length, WIDTH)."""

    def __init__(self, pattern: BlockPattern | None = None, with_lse: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.pattern = pattern
        self.with_lse = with_lse

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern | None, **options: Any
    ) -> Tensor | AttentionResult:
        if pattern is None:
            return nn.functional.scaled_dot_product_attention(q, k, v, scale=options["scale"])
        result = reference_attention(q, k, v, pattern, scale=options["scale"])
        return result if self.with_lse else result.out

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (linear(x).unflatten(2, (2, -1)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        found = self.attend(q, k, v, self.pattern, scale=0.3)
        out = found.out if isinstance(found, AttentionResult) else found
        return self.out(out.transpose(1, 2).flatten(2))


class Model(nn.Module):
    """Tokens of every block tell the class of another block, the one that ``sources`` names."""

    sources = torch.tensor([3, 6, 1, 4, 7, 2, 5, 0])

    def __init__(self, layers: int = 1, pattern: BlockPattern | None = None, with_lse: bool = False) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(BLOCKS, WIDTH))
        self.content = nn.Linear(CLASSES, WIDTH)
        self.layers = nn.ModuleList(Layer(pattern, with_lse) for _ in range(layers))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.content(x) + self.place.repeat_interleave(SIZE, 0)
        for layer in self.layers[:-1]:
            hidden = hidden + layer(hidden)
        # Only attention can bring the answer.
        return self.head(self.layers[-1](hidden))


def batch(generator: torch.Generator, count: int = 8) -> tuple[Tensor, Tensor]:
    classes = torch.randint(CLASSES, (count, BLOCKS), generator=generator)
    x = nn.functional.one_hot(classes, CLASSES).float().repeat_interleave(SIZE, 1)
    noisy = x + 0.3 * torch.randn(x.shape, generator=generator)
    return noisy, classes[:, Model.sources].repeat_interleave(SIZE, 1)


def train(
    model: Model,
    steps: int,
    generator: torch.Generator,
    pruner: AttentionPruner | None,
    optimiser: Any = None,
) -> list[PruningReport]:
    optimiser = optimiser or torch.optim.Adam(model.parameters(), lr=1e-2)
    reports = []
    for _ in range(steps):
        x, target = batch(generator)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if pruner is not None and (report := pruner.step()) is not None:
            reports.append(report)
    return reports


@torch.no_grad()
def accuracy(model: Model) -> float:
    x, target = batch(torch.Generator().manual_seed(99), 64)
    return float((model(x).argmax(dim=2) == target).float().mean())


@pytest.mark.parametrize("measure", ["score", pytest.param("weight", marks=pytest.mark.slow)])
def test_a_quarter_of_the_blocks_keeps_the_accuracy(measure: Any) -> None:
    """The pattern also has the blocks that the task needs, in any head."""
    torch.manual_seed(0)
    dense = Model()
    pruned = copy.deepcopy(dense)
    train(dense, 200, torch.Generator().manual_seed(1), None)
    schedule = DensitySchedule(1, 0.25, 60, 140)
    pruner = AttentionPruner(list(pruned.layers), schedule, every=20, block_size=SIZE, measure=measure)
    reports = train(pruned, 200, torch.Generator().manual_seed(1), pruner)
    assert [report.step for report in reports] == list(range(20, 201, 20))
    pattern = pruned.layers[0].pattern
    assert pattern.block_density == 0.25
    assert bool(pattern.to_block_mask().any(dim=0)[torch.arange(BLOCKS), Model.sources].all())
    assert accuracy(dense) > 0.97
    assert accuracy(pruned) >= accuracy(dense) - 0.005
    # Other blocks are not sufficient.
    pruned.layers[0].pattern = local_window(LENGTH, 0, SIZE)
    assert accuracy(pruned) < 0.6


def test_layers_follow_the_schedule() -> None:
    torch.manual_seed(0)
    model = Model(layers=3)
    schedule = DensitySchedule(3, [0.5, 0.25, 0.75], 2, 11)
    pruner = AttentionPruner(list(model.layers), schedule, every=3, block_size=SIZE)
    reports = train(model, 14, torch.Generator().manual_seed(1), pruner)
    assert [report.step for report in reports] == [3, 6, 9, 11, 12]
    for report in reports:
        wanted = schedule.densities_at(report.step)
        assert tuple(layer.wanted for layer in report.layers) == wanted
        for layer, density in zip(report.layers, wanted, strict=True):
            assert layer.blocks == 2 * max(BLOCKS, int(density * BLOCKS**2 + 0.5))
            assert layer.density == layer.blocks / (2 * BLOCKS**2)
    assert reports[0].layers[2].density == 1.0
    assert [layer.pattern.block_density for layer in model.layers] == [0.5, 0.25, 0.75]
    first = reports[0].layers[0]
    # From a dense pattern, all changes are removals.
    assert first.changed == pytest.approx(1 - first.density)
    assert pruner.report is reports[-1]
    lines = str(reports[0]).splitlines()
    assert lines[0] == "step 3"
    assert len(lines) == 6
    assert reports[0].to_json()["layers"][2]["wanted"] == 1.0


def test_measures_what_the_function_does() -> None:
    """Also measure layers that return lse; measure nothing without gradients."""
    torch.manual_seed(0)
    pattern = local_window(LENGTH, 40, SIZE)
    model = Model(pattern=pattern, with_lse=True)
    pruner = AttentionPruner(list(model.layers), DensitySchedule(1, 0.5, 0, 9))
    seen: dict[str, Tensor] = {}
    own = model.layers[0].attend

    def spy(q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, **options: Any) -> AttentionResult:
        result = own(q, k, v, pattern, **options)
        seen.update(q=q.detach(), k=k.detach(), v=v.detach(), out=result.out.detach())
        if result.out.requires_grad:
            result.out.register_hook(lambda grad: seen.update(grad_out=grad))
        return result

    model.layers[0].attend = spy
    x, target = batch(torch.Generator().manual_seed(2))
    with torch.no_grad():
        model(x)
    assert pruner.importance[0].count == 0
    nn.functional.cross_entropy(model(x).flatten(0, 1), target.flatten()).backward()
    expected = block_importance(**seen, block_size=SIZE, scale=0.3, pattern=pattern, allowed=pattern)
    torch.testing.assert_close(pruner.importance[0].value(), expected)
    assert not expected[:, ~pattern.to_block_mask()].any()


def test_density_is_relative_to_the_pattern_that_was_there() -> None:
    torch.manual_seed(0)
    window = local_window(LENGTH, 40, SIZE)
    model = Model(pattern=window)
    pruner = AttentionPruner(
        list(model.layers), DensitySchedule(1, 0.5, 0, 4), every=2, causal=True, shared=True
    )
    train(model, 4, torch.Generator().manual_seed(1), pruner)
    pattern = model.layers[0].pattern
    bounds = window.causal()
    assert pattern.heads == 1
    assert pattern.blocks == int(bounds.blocks * 0.5 + 0.5)
    assert not (pattern.to_token_mask() & ~bounds.to_token_mask()).any()
    assert bool(pattern.to_token_mask().diagonal().all())


@pytest.mark.parametrize("stop", [1, 7, 10])
def test_resumes_to_the_bit(stop: int, tmp_path: Any) -> None:
    torch.manual_seed(0)
    start = Model(layers=2).state_dict()

    def made() -> tuple[Model, AttentionPruner, torch.optim.Optimizer]:
        model = Model(layers=2)
        model.load_state_dict(start)
        pruner = AttentionPruner(
            list(model.layers), DensitySchedule(2, 0.25, 3, 12), every=4, measure_every=2, block_size=SIZE
        )
        return model, pruner, torch.optim.Adam(model.parameters(), lr=1e-2)

    model, pruner, optimiser = made()
    whole = train(model, 16, torch.Generator().manual_seed(1), pruner, optimiser)
    first, first_pruner, first_optimiser = made()
    generator = torch.Generator().manual_seed(1)
    before = train(first, stop, generator, first_pruner, first_optimiser)
    state = {"model": first.state_dict(), "pruner": first_pruner.state_dict()}
    torch.save({**state, "optimiser": first_optimiser.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt")
    second, second_pruner, second_optimiser = made()
    second.load_state_dict(state["model"])
    second_pruner.load_state_dict(state["pruner"])
    second_optimiser.load_state_dict(state["optimiser"])
    after = train(second, 16 - stop, generator, second_pruner, second_optimiser)
    assert before + after == whole
    for one, other in zip(model.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(model.layers, second.layers, strict=True):
        assert one.pattern == other.pattern
    for one, other in zip(pruner.importance, second_pruner.importance, strict=True):
        assert torch.equal(one.value(), other.value())


def test_frozen_and_removed() -> None:
    torch.manual_seed(0)
    model = Model()
    own = model.layers[0].attend
    pruner = AttentionPruner(
        list(model.layers), DensitySchedule(1, 0.5, 0, 4), every=2, freeze_after=5, block_size=SIZE
    )
    reports = train(model, 12, torch.Generator().manual_seed(1), pruner)
    assert [report.step for report in reports] == [2, 4, 5]
    assert pruner.importance[0].count == 5
    assert not pruner.measuring
    pattern = model.layers[0].pattern
    pruner.remove()
    pruner.remove()
    assert model.layers[0].attend == own
    assert model.layers[0].pattern is pattern


def test_bad_arguments() -> None:
    layers, schedule = [Layer(), Layer()], DensitySchedule(2, 0.5, 0, 9)
    with pytest.raises(ValueError, match="the schedule is for 2 layers, got 1"):
        AttentionPruner(layers[:1], schedule)
    with pytest.raises(ValueError, match="listed twice"):
        AttentionPruner([layers[0], layers[0]], schedule)
    with pytest.raises(TypeError, match=r"layer 1 \(Linear\) must have a pattern and a method"):
        AttentionPruner([layers[0], nn.Linear(2, 2)], schedule)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="every must be at least 1 step"):
        AttentionPruner(layers, schedule, every=0)
    with pytest.raises(ValueError, match="measure_every=4 must be at most every=3"):
        AttentionPruner(layers, schedule, every=3, measure_every=4)
    with pytest.raises(ValueError, match=r"freeze_after=8 is before the schedule ends \(step 9\)"):
        AttentionPruner(layers, schedule, freeze_after=8)
    layers[0].pattern = local_window(LENGTH).expand_heads(2)
    with pytest.raises(ValueError, match="that of layer 0 has 2"):
        AttentionPruner(layers, schedule, shared=True)
    layers[0].pattern = "window"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="pattern of layer 0 must be a BlockPattern or None, got str"):
        AttentionPruner(layers, schedule)
    assert "attend" not in layers[0].__dict__


def test_bad_use() -> None:
    layer = Layer()
    pruner = AttentionPruner([layer], DensitySchedule(1, 0.5, 0, 2), every=1, block_size=SIZE)
    with pytest.raises(ValueError, match="no importance was measured in layer 0 before step 1"):
        pruner.step()
    layer(torch.randn(1, 64, WIDTH)).sum().backward()
    with pytest.raises(ValueError, match="heads and lengths changed"):
        layer(torch.randn(1, 80, WIDTH))
    with pytest.raises(ValueError, match="the state has 0 layers but the pruner has 1"):
        pruner.load_state_dict({"count": 0, "layers": []})
