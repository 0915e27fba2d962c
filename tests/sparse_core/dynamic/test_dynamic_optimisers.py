"""Sparse optimisers against torch's own, and 8-bit state against 32 bits."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sparse_core.dynamic.optimisers import SparseAdam
from sparse_core.dynamic.quantised_state import QuantisedState
from sparse_core.dynamic.rigl.layers import RigLLinear
from sparse_core.dynamic.rigl.schedule import RigLScheduler


def _fit(parameter: nn.Parameter, optimiser: torch.optim.Optimizer, steps: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    goal = torch.randn(parameter.shape, generator=generator)
    for _ in range(steps):
        optimiser.zero_grad()
        noise = torch.randn(parameter.shape, generator=generator) * 0.1
        (parameter - goal + noise).square().mul(torch.linspace(0.1, 2, parameter.numel())).sum().backward()
        optimiser.step()
    return (parameter.detach() - goal).abs().mean()


def test_equals_torch() -> None:
    mine, other = nn.Parameter(torch.ones(40)), nn.Parameter(torch.ones(40))
    _fit(mine, SparseAdam([mine], lr=0.02, weight_decay=0.1), 30)
    _fit(other, torch.optim.AdamW([other], lr=0.02, weight_decay=0.1), 30)
    assert torch.allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_eight_bits_reach_the_goal_like_thirty_two() -> None:
    distance, size = {}, {}
    for bits in (8, 32):
        parameter = nn.Parameter(torch.zeros(1000))
        optimiser = SparseAdam([parameter], lr=0.05, state_bits=bits)
        distance[bits] = float(_fit(parameter, optimiser, 90))
        size[bits] = sum(optimiser.state[parameter][name].nbytes for name in ("mean", "square"))
    assert distance[8] < 0.1
    assert abs(distance[8] - distance[32]) < 0.03
    # One byte a number and four for each 256.
    assert size == {32: 2 * 4000, 8: 2 * (1000 + 4 * 4)}


def test_moving_averages_do_not_freeze() -> None:
    # Each step changes the average by a hundredth, far less than the distance of two levels (9 %).
    average, state = 1.0, torch.full((512,), 1.0)
    for step in range(200):
        average *= 0.99
        quantised = QuantisedState.of(state * 0.99, signed=False, turn=step)
        # A second number fixes the scale of the block.
        state = quantised.read()
        state[::256] = 1.0
    decayed = state[torch.arange(512) % 256 != 0].mean()
    assert abs(float(decayed) - average) < 0.2 * average


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=300), st.integers(0, 10))
@settings(max_examples=50)
def test_quantised_numbers_lie_near(numbers: list[float], turn: int) -> None:
    tensor = torch.tensor(numbers)
    found = QuantisedState.of(tensor, signed=True, turn=turn).read()
    limit = torch.stack([part.abs().max() for part in tensor.split(256)]).repeat_interleave(256)[
        : len(tensor)
    ]
    assert ((found - tensor).abs() <= 0.1 * tensor.abs() + 1.01e-5 * limit + 1e-37).all()
    positive = QuantisedState.of(tensor.abs(), signed=False, turn=turn).read()
    usual = tensor.abs() > 1e-30
    assert (positive[usual] > 0).all() or float(limit.max()) < 1e-25
    assert torch.equal(found, QuantisedState.of(tensor, signed=True, turn=turn).read())


@pytest.mark.parametrize("bits", [8, 32])
def test_state_follows_the_topology(bits: int) -> None:
    torch.manual_seed(0)
    layer = RigLLinear(64, 32, sparsity=0.8)
    optimiser = SparseAdam(layer.parameters(), lr=0.01, state_bits=bits)
    scheduler = RigLScheduler(layer, optimiser, update_every=2, stop_step=1000, drop_fraction=0.5)

    def moment() -> Tensor:
        kept = optimiser.state[layer.values]["mean"]
        return layer.grid.scatter(kept.read() if isinstance(kept, QuantisedState) else kept, layer.cells)

    layer(torch.randn(8, 64)).square().sum().backward()
    scheduler.step()
    before, old = moment(), layer.mask
    optimiser.zero_grad()
    layer(torch.randn(8, 64)).square().sum().backward()
    scheduler.step()
    fresh, stayed = layer.mask & ~old, layer.mask & old
    assert int(fresh.sum()) > 10
    assert (moment()[fresh] == 0).all()
    tolerance = (
        {"rtol": 0.1, "atol": 1e-5 * float(before.abs().max())} if bits == 8 else {"rtol": 0.0, "atol": 0.0}
    )
    assert torch.allclose(moment()[stayed], before[stayed], **tolerance)
    assert before[stayed].abs().max() > 0


@pytest.mark.parametrize("bits", [8, 32])
def test_an_optimiser_resumes(bits: int) -> None:
    whole, part, rest = (nn.Parameter(torch.ones(300)) for _ in range(3))
    gradients = [torch.randn(300, generator=torch.Generator().manual_seed(at)) for at in range(6)]

    def run(parameter: nn.Parameter, optimiser: torch.optim.Optimizer, steps: range) -> None:
        for at in steps:
            parameter.grad = gradients[at].clone()
            optimiser.step()

    optimisers = [SparseAdam([p], lr=0.1, state_bits=bits) for p in (whole, part, rest)]
    run(whole, optimisers[0], range(6))
    run(part, optimisers[1], range(3))
    with torch.no_grad():
        rest.copy_(part)
    optimisers[2].load_state_dict(copy.deepcopy(optimisers[1].state_dict()))
    run(rest, optimisers[2], range(3, 6))
    assert torch.equal(whole, rest)
    other = SparseAdam([nn.Parameter(torch.ones(4))], state_bits=bits)
    with pytest.raises(ValueError, match=r"shape \(300,\), the parameter \(4,\)"):
        other.load_state_dict(optimisers[1].state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state_bits": 4}, "state_bits must be 8 or 32, got 4"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"lr": -1.0}, "must not be negative"),
        ({"weight_decay": float("nan")}, "must not be negative"),
    ],
)
def test_bad_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseAdam([nn.Parameter(torch.ones(2))], **options)


def test_damaged_eight_bit_state_is_refused() -> None:
    packed = QuantisedState.of(torch.ones(300), signed=True, turn=0).pack()
    with pytest.raises(ValueError, match=r"lacks \['scale'\]"):
        QuantisedState.unpack({k: v for k, v in packed.items() if k != "scale"}, torch.device("cpu"))
    with pytest.raises(ValueError, match="299 codes"):
        QuantisedState.unpack({**packed, "codes": packed["codes"][:299]}, torch.device("cpu"))
