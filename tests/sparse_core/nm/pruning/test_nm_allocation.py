"""The mixed n:m budget against brute force, and what the table says."""

from __future__ import annotations

import copy
import itertools
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparse_core.nm.masks import pattern_mask
from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.pruning.allocation import CANDIDATES, allocate


class Block(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.attn_qkv = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)


def transformer() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict(
        {"embed": nn.Embedding(10, 16), "first": Block(), "second": Block(), "head": nn.Linear(16, 10)}
    )


layer_shapes = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([4, 6, 8, 16, 24])), min_size=1, max_size=4
)


@settings(max_examples=60)
@given(
    shapes=layer_shapes,
    target=st.floats(0.0, 0.8),
    overshoot=st.sampled_from([0.0, 0.01, 0.1, 1.0]),
    data=st.data(),
)
def test_the_choice_is_that_of_brute_force(
    shapes: list[tuple[int, int]], target: float, overshoot: float, data: st.DataObject
) -> None:
    model = nn.ModuleList(nn.Linear(columns, out) for out, columns in shapes)
    candidates = [NMPattern(1, 4), NMPattern(2, 4), NMPattern(3, 4), NMPattern(2, 8), None]
    costs: dict[str, dict[NMPattern, float]] = {
        str(place): {
            pattern: data.draw(st.floats(0, 1e6, allow_subnormal=False)) for pattern in candidates if pattern
        }
        for place in range(len(shapes))
    }
    fits = [
        [pattern for pattern in candidates if pattern is None or columns % pattern.m == 0]
        for _, columns in shapes
    ]
    total = sum(out * columns for out, columns in shapes)
    reachable = 0.0
    allowed: list[tuple[int, float]] = []
    for choice in itertools.product(*fits):
        kept = sum(
            out * columns if pattern is None else out * columns // pattern.m * pattern.n
            for pattern, (out, columns) in zip(choice, shapes, strict=True)
        )
        reachable = max(reachable, 1 - kept / total)
        if kept <= (1 - target) * total + 1e-3:
            cost = sum(costs[str(place)][pattern] for place, pattern in enumerate(choice) if pattern)
            allowed.append((kept, cost))
    if not allowed:
        with pytest.raises(ValueError, match=f"allow at most {reachable:.6f}"):
            allocate(model, target, candidates=candidates, sensitivity=costs, overshoot=overshoot)
        return
    # The cheapest that is close enough to the target, or of the closest.
    least = min((1 - target - overshoot) * total - 1e-3, max(kept for kept, _ in allowed))
    best = min(cost for kept, cost in allowed if kept >= least)
    found = allocate(model, target, candidates=candidates, sensitivity=costs, overshoot=overshoot)
    largest = max(cost for by_pattern in costs.values() for cost in by_pattern.values())
    assert found.sensitivity == pytest.approx(best, rel=2e-7, abs=1e-9 * largest)
    assert found.sparsity >= target - 1e-3 / total - 1e-9
    dense = sum(
        out * columns * (pattern.density if pattern else 1)
        for pattern, (out, columns) in zip(found.patterns.values(), shapes, strict=True)
    )
    assert found.sparsity == pytest.approx(1 - dense / total)


@pytest.mark.parametrize("cost", [0.0, 2.3e-308])
def test_programs_that_trouble_the_solver(cost: float) -> None:
    """The presolve of HiGHS fails on this one, and tiny costs must not overflow when they are scaled."""
    model = nn.Sequential(*(nn.Linear(columns, out) for out, columns in [(4, 6), (2, 16), (5, 24), (5, 24)]))
    candidates = (NMPattern(1, 4), NMPattern(2, 4), NMPattern(3, 4), NMPattern(2, 8), None)
    costs = {str(place): dict.fromkeys(candidates[:-1], cost) for place in range(4)}
    found = allocate(model, 0.5625, candidates=candidates, sensitivity=costs, overshoot=0.01)
    assert found.sparsity >= 0.5625


def test_cost_without_sensitivity_is_the_share_of_squares_that_is_dropped() -> None:
    model = transformer()
    found = allocate(model, 0.6)
    assert found.sparsity >= 0.6
    for layer in found.layers:
        weight = model.get_submodule(layer.name).weight
        assert isinstance(weight, torch.Tensor)
        squares = weight.detach().double().square()
        dropped = squares[~pattern_mask(weight, layer.pattern)].sum() / squares.sum()
        assert layer.sensitivity == pytest.approx(float(dropped))
    assert allocate(model, 0.6) == found


def test_the_size_of_a_layer_s_weights_does_not_matter() -> None:
    # A layer norm or the next layer takes a factor back, so it must not decide.
    model = transformer()
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        for place, layer in enumerate(module for module in scaled.modules() if isinstance(module, nn.Linear)):
            layer.weight.mul_(10.0 ** (place % 5 - 2))
        model.head.weight.zero_()
        scaled.head.weight.zero_()
    found, other = allocate(model, 0.6), allocate(scaled, 0.6)
    assert other.patterns == found.patterns
    assert other.sensitivity == pytest.approx(found.sensitivity, rel=1e-5)
    assert found.layers[-1].sensitivity == 0


def test_coarse_models_do_not_become_sparser_than_asked() -> None:
    # One large layer beside a small one that is dear: sparing the small one takes the large one to 1:4.
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 4))
    candidates = [NMPattern(1, 4), NMPattern(2, 4), None]
    costs = {
        name: {NMPattern(1, 4): 0.3, NMPattern(2, 4): 0.1}
        if name != "2"
        else {NMPattern(1, 4): 2.0, NMPattern(2, 4): 1.0}
        for name in ("0", "1", "2")
    }
    close = allocate(model, 0.5, candidates=candidates, sensitivity=costs)
    assert set(close.patterns.values()) == {NMPattern(2, 4)}
    assert close.sparsity == 0.5
    wide = allocate(model, 0.5, candidates=candidates, sensitivity=costs, overshoot=0.2)
    assert wide.patterns == {"0": NMPattern(1, 4), "1": NMPattern(2, 4), "2": None} or wide.patterns == {
        "0": NMPattern(2, 4),
        "1": NMPattern(1, 4),
        "2": None,
    }
    assert wide.sensitivity < close.sensitivity
    # Nothing is within three hundredths of this target, so the closest is taken: one large layer at 1:4.
    closest = allocate(model, 0.55, candidates=candidates, sensitivity=costs)
    assert closest.sparsity == pytest.approx((0.75 + 0.5) * 64 / 132)
    with pytest.raises(ValueError, match="overshoot must be 0 or more, got -1"):
        allocate(model, 0.5, overshoot=-1)


@pytest.mark.parametrize("target", [0.25, 0.5, 0.75, 0.7])
def test_targets_that_the_candidates_meet_exactly(target: float) -> None:
    model = nn.ModuleList(nn.Linear(40, 4) for _ in range(10))
    candidates = [NMPattern(3, 10), NMPattern(5, 10), NMPattern(3, 4), NMPattern(1, 4)]
    found = allocate(model, target, candidates=candidates)
    assert found.sparsity == pytest.approx(target, abs=0.03)
    assert found.sparsity >= target - 1e-9
    assert allocate(model, 0.7, candidates=[NMPattern(3, 10)]).sparsity == pytest.approx(0.7)


def test_conservative_layers_keep_more() -> None:
    model = transformer()
    careful = ("first.attn_qkv", "first.out_proj", "second.attn_qkv", "second.out_proj", "head")
    found = allocate(model, 0.55, conservative=careful)
    assert all(layer.density >= 0.75 for layer in found.layers if layer.name in careful)
    assert found.sparsity >= 0.55
    free = allocate(model, 0.55)
    assert free.sensitivity < found.sensitivity
    by_expression = allocate(model, 0.55, conservative="attn_|out_proj|head")
    by_function = allocate(model, 0.55, conservative=lambda name, module: name in careful)
    assert found == by_expression == by_function
    with pytest.raises(ValueError, match=r"allow at most 0\.656091"):
        allocate(model, 0.7, conservative=careful)


def test_the_table_has_every_column() -> None:
    model = transformer()
    found = allocate(model, 0.7, select="first|head")
    lines = str(found).splitlines()
    assert lines[0].split("  ")[0] == "layer"
    for title in ("pattern", "index bits per group", "entropy bound", "bits per weight", "sensitivity"):
        assert title in lines[0]
    assert len(lines[0]) == len(lines[2])
    assert lines[2 + len(found.layers)].startswith("total")
    assert ["embed", "Embedding is not among Linear, Conv2d"] in [line.split(maxsplit=1) for line in lines]
    assert f"sparsity {found.sparsity:.4f}, asked for 0.7000" in lines
    data = json.loads(json.dumps(found.to_json()))
    assert data["sparsity"] == found.sparsity
    assert [layer["name"] for layer in data["layers"]] == list(found.patterns)


@pytest.mark.parametrize(
    ("pattern", "index", "entropy", "bits"),
    [
        # C(4, 2) = 6, C(4, 1) = 4, C(8, 2) = 28.
        (NMPattern(2, 4), 3, 2.585, 16 + 3 / 4),
        (NMPattern(1, 4), 2, 2.0, 8 + 2 / 4),
        (NMPattern(2, 8), 5, 4.807, 8 + 5 / 8),
    ],
)
def test_bits(pattern: NMPattern, index: int, entropy: float, bits: float) -> None:
    (layer,) = allocate(nn.Linear(16, 8), 0.4, candidates=[pattern]).layers
    assert (layer.name, layer.index_bits) == ("", index)
    assert layer.entropy_bits == pytest.approx(entropy, abs=1e-3)
    assert layer.bits_a_weight == pytest.approx(bits)
    (half,) = allocate(nn.Linear(16, 8).bfloat16(), 0.4, candidates=[pattern]).layers
    assert half.bits_a_weight == pytest.approx(bits - 16 * pattern.density)
    dense = allocate(nn.Linear(16, 8), 0.0, candidates=[pattern, None])
    assert dense.patterns == {"": None}
    assert (dense.bits_a_weight, dense.sparsity, dense.sensitivity) == (32.0, 0.0, 0.0)


def test_layers_that_nothing_divides_stay_dense_and_count() -> None:
    model = nn.Sequential(nn.Linear(7, 4), nn.Linear(4, 7))
    found = allocate(model, 0.3, candidates=[NMPattern(1, 4)])
    assert found.patterns == {"0": None, "1": NMPattern(1, 4)}
    assert found.sparsity == pytest.approx(0.375)


def test_bad_arguments() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4))
    for target in (-0.1, 1.0):
        with pytest.raises(ValueError, match="target_sparsity must be at least 0"):
            allocate(model, target)
    with pytest.raises(ValueError, match=r"cannot be reached: the candidates allow at most 0\.833333"):
        allocate(model, 0.9)
    with pytest.raises(TypeError, match="NMPattern patterns or None"):
        allocate(model, 0.5, candidates=["2:4"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="candidates is empty"):
        allocate(model, 0.5, candidates=[])
    with pytest.raises(ValueError, match="layers that are not selected: 9"):
        allocate(model, 0.5, conservative=["9"])
    with pytest.raises(ValueError, match=r"'1' has no candidate of density 0\.75 or more among 2:4"):
        allocate(model, 0.5, candidates=[NMPattern(2, 4)], conservative="1")
    with pytest.raises(ValueError, match="no number for layer '0' under 2:4"):
        allocate(model, 0.5, candidates=[NMPattern(2, 4)], sensitivity={"1": {NMPattern(2, 4): 1.0}})
    with pytest.raises(ValueError, match="'0' under 2:4 must be finite and 0 or more, got -1"):
        allocate(model, 0.5, candidates=[NMPattern(2, 4)], sensitivity={"0": {NMPattern(2, 4): -1.0}})
    with pytest.raises(ValueError, match="no layer matches"):
        allocate(nn.ReLU(), 0.5)
    assert None in CANDIDATES


def test_hundreds_of_layers_are_solved() -> None:
    shapes = [(10 + 37 * place % 91, 8 * (4 + 53 * place % 67)) for place in range(150)]
    torch.manual_seed(0)
    model = nn.ModuleList(nn.Linear(columns, out) for out, columns in shapes)
    found = allocate(model, 0.6137)
    assert 0.6137 <= found.sparsity < 0.6138
    uniform = sum(
        layer.sensitivity
        for layer in allocate(model, 0.75, candidates=[NMPattern(2, 8)], sensitivity=None).layers
    )
    assert found.sensitivity < uniform
