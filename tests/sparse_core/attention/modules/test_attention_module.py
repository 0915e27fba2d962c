"""SparseAttention against dense attention written out in float64 and against torch's own module."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from token_masks import random_mask
from torch import Tensor, nn

from sparse_core.attention.modules.attention import SparseAttention
from sparse_core.attention.modules.learned_blocks import LearnedBlocks
from sparse_core.attention.modules.selectors import DynamicBlocks, TopKBlocks
from sparse_core.attention.modules.sources import PatternCache
from sparse_core.attention.patterns.builders import full, local_window, random_blocks
from sparse_core.attention.patterns.masks import from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.selection import top_k_blocks


def heads_of(rows: Tensor, linear: nn.Linear, heads: int) -> Tensor:
    """(batch, heads, length, dim) float64."""
    bias = 0.0 if linear.bias is None else linear.bias.double()
    projected = rows.double() @ linear.weight.double().T + bias
    batch, length, width = projected.shape
    return projected.reshape(batch, length, heads, width // heads).permute(0, 2, 1, 3)


def expected_result(module: SparseAttention, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """The module's result in float64; ``mask`` broadcasts to (batch, heads, queries, keys)."""
    group = module.heads // module.key_heads
    q = heads_of(x, module.q, module.heads)
    k, v = (
        heads_of(memory, linear, module.key_heads).repeat_interleave(group, 1)
        for linear in (module.k, module.v)
    )
    scores = (q @ k.mT / module.head_dim**0.5).masked_fill(~mask, -torch.inf)
    attended = (torch.softmax(scores, dim=3).nan_to_num(0.0) @ v).permute(0, 2, 1, 3).flatten(2)
    bias = 0.0 if module.out.bias is None else module.out.bias.double()
    return attended @ module.out.weight.double().T + bias


def random_rows(batch: int, length: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, width, generator=generator, dtype=torch.float64)


def existing(lengths: Tensor, length: int) -> Tensor:
    """(batch, length) bool."""
    return torch.arange(length) < lengths[:, None]


@settings(max_examples=40)
@given(
    batch=st.integers(1, 3),
    key_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    queries=st.integers(1, 70),
    keys=st.integers(1, 70),
    bias=st.booleans(),
    per_head=st.booleans(),
    ragged=st.booleans(),
    seed=st.integers(0, 100),
)
def test_equals_dense(
    batch: int,
    key_heads: int,
    group: int,
    queries: int,
    keys: int,
    bias: bool,
    per_head: bool,
    ragged: bool,
    seed: int,
) -> None:
    """Cross-attention to a memory of another width, with fewer key heads and a head size of its own."""
    torch.manual_seed(seed)
    heads = key_heads * group
    mask = random_mask(queries, keys, 16, heads=heads if per_head else None, seed=seed)
    module = SparseAttention(
        40,
        heads,
        from_token_mask(mask, 16),
        key_heads=key_heads,
        head_dim=16,
        memory_dim=24,
        bias=bias,
        dtype=torch.float64,
    )
    x, memory = random_rows(batch, queries, 40, seed), random_rows(batch, keys, 24, seed + 1)
    if not ragged:
        expected = expected_result(module, x, memory, mask)
        torch.testing.assert_close(module(x, memory), expected, rtol=1e-10, atol=1e-10)
        return
    query_lengths = torch.randint(0, queries + 1, (batch,))
    key_lengths = torch.randint(0, keys + 1, (batch,), dtype=torch.int32)
    allowed = mask & existing(key_lengths, keys)[:, None, None, :]
    expected = expected_result(module, x, memory, allowed)
    expected = expected.masked_fill(~existing(query_lengths, queries)[..., None], 0.0)
    poisoned = x.masked_fill(~existing(query_lengths, queries)[..., None], torch.nan)
    poisoned_memory = memory.masked_fill(~existing(key_lengths, keys)[..., None], torch.nan)
    found = module(poisoned, poisoned_memory, query_lengths=query_lengths, key_lengths=key_lengths)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("sparse", [True, False])
def test_ragged_self_attention(sparse: bool) -> None:
    """Sequences do not depend on each other or on the padding, and gradients are finite."""
    pattern = functools.partial(local_window, window=5, block_size=16) if sparse else None
    module = SparseAttention(32, 2, pattern, dtype=torch.float64)
    lengths = torch.tensor([50, 17, 0])
    x = random_rows(3, 50, 32)
    exists = existing(lengths, 50)[..., None]
    out = module(x.masked_fill(~exists, torch.nan), query_lengths=lengths)
    for row, length in enumerate(lengths[:2].tolist()):
        torch.testing.assert_close(out[row : row + 1, :length], module(x[row : row + 1, :length]))
    assert torch.equal(out.masked_fill(exists, 0.0), torch.zeros_like(out))
    out.square().sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in module.parameters())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_equals_torch_multihead(bias: bool, training: bool) -> None:
    torch.manual_seed(0)
    multihead = nn.MultiheadAttention(64, 4, bias=bias, batch_first=True).train(training)
    if bias:
        nn.init.normal_(multihead.in_proj_bias)
        nn.init.normal_(multihead.out_proj.bias)
    x = random_rows(2, 90, 64).float()
    expected = multihead(x, x, x, need_weights=False)[0]
    module = SparseAttention.from_multihead(multihead, full(90, 32))
    assert module.training is training
    torch.testing.assert_close(module(x), expected, rtol=1e-5, atol=1e-6)
    module.set_pattern(None)
    torch.testing.assert_close(module(x), expected, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        module.q.weight.zero_()  # a copy
    assert torch.equal(multihead(x, x, x, need_weights=False)[0], expected)


def test_equals_torch_multihead_with_a_memory_and_masks() -> None:
    torch.manual_seed(0)
    multihead = nn.MultiheadAttention(32, 2, kdim=24, vdim=24, batch_first=True, dtype=torch.float64)
    nn.init.normal_(multihead.in_proj_bias)
    x, memory = random_rows(2, 40, 32), random_rows(2, 70, 24, 1)
    mask = random_mask(40, 70, 16, seed=1)
    mask[:, :2] = True
    lengths = torch.tensor([70, 33])
    expected = multihead(
        x,
        memory,
        memory,
        attn_mask=~mask,
        key_padding_mask=~existing(lengths, 70),
        need_weights=False,
    )[0]
    module = SparseAttention.from_multihead(multihead, from_token_mask(mask, 16))
    torch.testing.assert_close(module(x, memory, key_lengths=lengths), expected)


def test_from_multihead_refuses_other_options() -> None:
    with pytest.raises(ValueError, match="add_bias_kv"):
        SparseAttention.from_multihead(nn.MultiheadAttention(32, 2, add_bias_kv=True))
    with pytest.raises(ValueError, match="add_zero_attn"):
        SparseAttention.from_multihead(nn.MultiheadAttention(32, 2, add_zero_attn=True))
    with pytest.raises(ValueError, match="kdim=16 and vdim=24"):
        SparseAttention.from_multihead(nn.MultiheadAttention(32, 2, kdim=16, vdim=24))
    frozen = nn.MultiheadAttention(32, 2).requires_grad_(False)
    assert not any(p.requires_grad for p in SparseAttention.from_multihead(frozen).parameters())


def test_keys_outside_the_pattern_change_nothing() -> None:
    module = SparseAttention(32, 2, local_window(100, 7, 16))
    x = random_rows(1, 100, 32).float()
    changed = x.clone()
    changed[:, 60] = 100.0
    differs = (module(x) != module(changed)).any(dim=2)[0]
    assert differs.nonzero()[:, 0].tolist() == list(range(53, 68))


@pytest.mark.parametrize(
    "pattern",
    [
        local_window(50, 5, 16),
        functools.partial(local_window, window=5, block_size=16),
        TopKBlocks(0.5, 16),
        DynamicBlocks(0.5, 16, causal=True),
        None,
    ],
)
def test_gradients_reach_every_parameter(pattern: Any) -> None:
    module = SparseAttention(64, 4, pattern, key_heads=2)
    x = random_rows(2, 50, 64).float().requires_grad_()
    module(x).square().sum().backward()
    # A bias of the keys shifts all scores of a query equally and does not change the softmax.
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert name == "k.bias" or bool((parameter.grad != 0).any()), name
    assert x.grad is not None
    assert bool((x.grad != 0).any())


def test_gradients_equal_dense() -> None:
    mask = random_mask(40, 40, 16, seed=5)
    module = SparseAttention(32, 2, from_token_mask(mask | torch.eye(40, dtype=torch.bool), 16))
    module = module.double()
    x = random_rows(2, 40, 32).requires_grad_()
    inputs = [x, *module.parameters()]
    found = torch.autograd.grad(module(x).sin().sum(), inputs)
    result = expected_result(module, x, x, mask | torch.eye(40, dtype=torch.bool))
    expected = torch.autograd.grad(result.sin().sum(), inputs)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_selectors_are_asked_in_each_call() -> None:
    module = SparseAttention(32, 2, TopKBlocks(0.3, 16)).double()
    for seed in (0, 1):
        x = random_rows(2, 96, 32, seed)
        q, k = heads_of(x, module.q, 2), heads_of(x, module.k, 2)
        mask = top_k_blocks(q, k, 0.3, block_size=16).to_token_mask()
        torch.testing.assert_close(module(x), expected_result(module, x, x, mask))
    assert TopKBlocks(0.3, 16) == TopKBlocks(0.3, block_size=16) != TopKBlocks(0.3, 16, causal=True)
    assert repr(TopKBlocks(0.3)) == "TopKBlocks(keep=0.3, block_size=64, causal=False)"
    assert DynamicBlocks(0.9) == DynamicBlocks(0.9, score_dtype=torch.bfloat16) != DynamicBlocks(0.8)


@pytest.mark.parametrize("selector", [TopKBlocks(0.3, 16), DynamicBlocks(0.4, 16)])
def test_selection_does_not_read_padding(selector: Any) -> None:
    module = SparseAttention(32, 2, selector)
    x, lengths = random_rows(2, 80, 32).float(), torch.tensor([80, 37])
    results = []
    for padding in (0.0, 1e30, torch.nan):
        filled = x.masked_fill(~existing(lengths, 80)[..., None], padding)
        results.append(module(filled, query_lengths=lengths))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_everything_kept_is_dense() -> None:
    """Selectors that keep every block agree with dense attention."""
    module = SparseAttention(32, 2, dtype=torch.float64)
    x = random_rows(2, 70, 32)
    expected = module(x)
    for pattern in (TopKBlocks(1.0, 16), DynamicBlocks(1.0, 32), LearnedBlocks(2, 16, 1.0, block_size=32)):
        torch.testing.assert_close(module(x, pattern=pattern), expected)


def test_a_builder_is_called_once_for_each_pair_of_lengths() -> None:
    asked: list[tuple[int, int, str]] = []

    def build(query_length: int, key_length: int, device: torch.device) -> BlockPattern:
        asked.append((query_length, key_length, device.type))
        return full(query_length, 16, key_length=key_length, device=device).causal()

    module = SparseAttention(32, 2, build)
    for length in (20, 30, 20, 30):
        module(torch.zeros(1, length, 32))
    module(torch.zeros(1, 20, 32), torch.zeros(1, 30, 32))
    assert asked == [(20, 20, "cpu"), (30, 30, "cpu"), (20, 30, "cpu")]
    assert isinstance(module.pattern, PatternCache)
    assert module.pattern(20, 20, torch.device("cpu")) is module.pattern(20, 20, torch.device("cpu"))
    for length in range(1, PatternCache.LIMIT + 20):
        module.pattern(length, length, torch.device("cpu"))
    assert len(module.pattern._known) == PatternCache.LIMIT


def test_a_builder_of_the_package() -> None:
    module = SparseAttention(32, 2, functools.partial(local_window, window=3, block_size=16))
    x = random_rows(1, 40, 32).float()
    found = module(x)
    assert torch.equal(found, module(x, pattern=local_window(40, 3, 16)))
    assert module(x, torch.zeros(1, 60, 32)).shape == (1, 40, 32)
    assert torch.equal(copy.deepcopy(module)(x), found)
    module.set_pattern(local_window)
    assert torch.equal(module(x), module(x, pattern=local_window(40)))


def test_patterns_built_in_inference_mode_serve_training() -> None:
    cache = PatternCache(functools.partial(local_window, window=3, block_size=16))
    with torch.inference_mode():
        pattern = cache(40, 40, torch.device("cpu"))
    assert not pattern.columns.is_inference()


def test_a_pattern_for_one_call() -> None:
    module = SparseAttention(32, 2, local_window(40, 3, 16))
    x = random_rows(1, 40, 32).float()
    before = module(x)
    other = module(x, pattern=full(40, 16))
    assert not torch.equal(before, other)
    assert torch.equal(module(x), before)
    module.set_pattern(full(40, 16))
    assert torch.equal(module(x), other)


def test_exchanging_a_learned_pattern() -> None:
    module = SparseAttention(32, 2, LearnedBlocks(2, 16, 0.5, block_size=16))
    assert {name for name, _ in module.named_parameters() if name.startswith("pattern.")} == {
        "pattern.query_weight",
        "pattern.key_weight",
    }
    module.set_pattern(TopKBlocks(0.5, 16))
    assert set(module.state_dict()) == {
        f"{n}.{p}" for n in ("q", "k", "v", "out") for p in ("weight", "bias")
    }
    module.set_pattern(LearnedBlocks(2, 16, 0.5, block_size=16))
    assert "pattern.key_weight" in module.state_dict()
    assert "LearnedBlocks(heads=2" in repr(module)


def test_dropout_repeats_and_stops_in_evaluation() -> None:
    module = SparseAttention(32, 2, local_window(40, 9, 16), dropout=0.5)
    x = random_rows(1, 40, 32).float()

    def seeded(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return module(x)

    assert torch.equal(seeded(1), seeded(1))
    assert not torch.equal(seeded(1), seeded(2))
    module.eval()
    assert torch.equal(seeded(1), seeded(2))


def test_results_and_gradients_repeat() -> None:
    module = SparseAttention(64, 4, TopKBlocks(0.3, 16, causal=True), key_heads=2)
    x = random_rows(2, 150, 64).float()

    def run() -> list[Tensor]:
        out = module(x)
        return [out, *torch.autograd.grad(out.sin().sum(), list(module.parameters()))]

    assert all(torch.equal(one, other) for one, other in zip(run(), run(), strict=True))


def test_autocast_and_types() -> None:
    module = SparseAttention(32, 2, local_window(40, 9, 16))
    x = random_rows(2, 40, 32).float()
    expected = module(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.02)
    half = module.to(torch.bfloat16)(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.05, atol=0.02)


def test_state_dict_is_that_of_four_layers() -> None:
    module = SparseAttention(32, 2, local_window(40, 9, 16))
    twin = SparseAttention(32, 2)
    twin.load_state_dict(module.state_dict())
    x = random_rows(1, 40, 32).float()
    torch.testing.assert_close(twin(x, pattern=local_window(40, 9, 16)), module(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim must be at least 1"),
        ({"dim": 33}, r"dim \(33\) must be a multiple of heads \(2\)"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"head_dim": 257}, "head_dim must be from 1 to 256, got 257"),
        ({"key_heads": 3}, r"heads \(2\) must be a multiple of key_heads \(3\)"),
        ({"key_heads": 0}, "key_heads must be at least 1"),
        ({"memory_dim": 0}, "memory_dim must be at least 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"impl": "fast"}, "impl must be one of"),
        ({"pattern": random_blocks(64, 0.5, 16, heads=3)}, "pattern has 3 heads: give 1 or 2"),
        ({"pattern": LearnedBlocks(2, 32, 0.5)}, r"\(2, 2, 32\), the attention has \(2, 2, 16\)"),
    ],
)
def test_bad_construction(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseAttention(**{"dim": 32, "heads": 2, **arguments})


@pytest.mark.parametrize("pattern", ["window", 3, torch.ones(4, 4, dtype=torch.bool), TopKBlocks])
def test_bad_patterns(pattern: Any) -> None:
    with pytest.raises(TypeError, match="pattern must be a BlockPattern"):
        SparseAttention(32, 2, pattern)


@pytest.mark.parametrize("make", [TopKBlocks, DynamicBlocks])
@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_bad_shares(make: Callable[[float], object], share: float) -> None:
    with pytest.raises(ValueError, match="must be above 0 and at most 1"):
        make(share)


def test_bad_inputs() -> None:
    module = SparseAttention(32, 2, local_window(40, 9, 16), memory_dim=24)
    x, memory = torch.zeros(2, 40, 32), torch.zeros(2, 40, 24)
    for arguments, message in (
        ((x[0], memory), r"x must have shape \(batch, length, 32\), got \(40, 32\)"),
        ((x, memory[..., :8]), r"memory must have shape \(batch, length, 24\), got \(2, 40, 8\)"),
        ((x, memory[:1]), "memory must have batch 2 like x, got 1"),
        ((x,), "memory is missing"),
        ((x[:, :30], memory), "40 queries and 40 keys but q has 30 and k 40"),
    ):
        with pytest.raises(ValueError, match=message):
            module(*arguments)
    with pytest.raises(ValueError, match=r"query_lengths must be from 0 to 40, got 41 at 1"):
        module(x, memory, query_lengths=torch.tensor([3, 41]))
    with pytest.raises(TypeError, match="key_lengths must be an int32 or int64 tensor"):
        module(x, memory, key_lengths=[3, 4])
    with pytest.raises(TypeError, match="must build a BlockPattern, got int"):
        module(x, memory, pattern=lambda query_length, key_length, device: 3)
    with pytest.raises(TypeError, match="gate_loss needs a LearnedBlocks"):
        module.gate_loss(x, memory)


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor"
)  # a warning of torch after a graph break
@pytest.mark.parametrize(
    "pattern",
    [
        # The test of the layer compiles one.
        pytest.param(functools.partial(local_window, window=5), marks=pytest.mark.slow),
        pytest.param(TopKBlocks(0.5, 16), marks=pytest.mark.slow),
        None,
    ],
)
def test_compiles(pattern: Any) -> None:
    torch.compiler.reset()
    module = SparseAttention(32, 2, pattern)
    x = random_rows(2, 40, 32).float()
    compiled = torch.compile(module, backend="aot_eager")
    for _ in range(2):
        expected = torch.autograd.grad(module(x).sin().sum(), module.q.weight)
        found = torch.autograd.grad(compiled(x).sin().sum(), module.q.weight)
        torch.testing.assert_close(found, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("key_heads", [1, 4])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("kind", ["window", "top_k", "learned"])
def test_gpu_equals_reference(cuda: torch.device, kind: str, ragged: bool, key_heads: int) -> None:
    """In bfloat16, compare the default implementation with plain torch, forward and backward."""
    torch.manual_seed(0)
    length, dim = 1000, 256
    pattern: Any = {
        "window": local_window(length, 100, 64),  # The module moves it to the device.
        "top_k": TopKBlocks(0.25),
        "learned": LearnedBlocks(4, 64, 0.25, key_heads=key_heads),
    }[kind]
    module = SparseAttention(dim, 4, pattern, key_heads=key_heads).to(cuda, torch.bfloat16)
    reference = copy.deepcopy(module)
    reference.impl = "reference"
    lengths = torch.tensor([length, 333], device=cuda) if ragged else None
    x = random_rows(2, length, dim).to(cuda, torch.bfloat16)
    results = []
    for one in (module, module, reference):
        rows = x.clone().requires_grad_()
        out = one(rows, query_lengths=lengths)
        # The true gradient of the keys' bias is zero.
        learning = [
            parameter
            for name, parameter in one.named_parameters()
            if name != "k.bias" and not name.startswith("pattern.")
        ]
        results.append([out.detach(), *torch.autograd.grad(out.float().sin().sum(), [rows, *learning])])
    for first, second, expected in zip(*results, strict=True):
        assert torch.equal(first, second)
        error = (first.float() - expected.float()).abs().max() / expected.float().abs().max()
        assert float(error) < 0.03
