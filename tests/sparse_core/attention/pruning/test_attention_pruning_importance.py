"""Importance of blocks against autograd through the scores themselves, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from reference_attention import reference_attention
from torch import Tensor

from sparse_core.attention.patterns.builders import full, local_window, random_blocks
from sparse_core.attention.patterns.masks import from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.pruning import importance as importance_module
from sparse_core.attention.pruning.average import BlockImportance
from sparse_core.attention.pruning.importance import Measure, block_importance


def random_operands(
    batch: int, heads: int, key_heads: int, queries: int, keys: int, seed: int = 0
) -> list[Tensor]:
    """q, k, v and the gradient of the result."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, queries), (key_heads, keys), (key_heads, keys), (heads, queries))
    return [torch.randn(batch, *size, 16, generator=generator, dtype=torch.float64) for size in sizes]


def block_sums(pairs: Tensor, size: int) -> Tensor:
    """(batch, heads, queries, keys) to (heads, block rows, block columns), the slow way."""
    rows, columns = (-(-length // size) for length in pairs.shape[2:])
    sums = torch.zeros(pairs.shape[1], rows, columns, dtype=pairs.dtype)
    for row in range(rows):
        for column in range(columns):
            block = pairs[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size]
            sums[:, row, column] = block.sum(dim=(0, 2, 3))
    return sums


def direct(operands: list[Tensor], mask: Tensor, scale: float, measure: Measure) -> Tensor:
    """``|s * dL/ds|`` or ``|p * dL/dp|`` of every pair, by autograd; zero outside the mask."""
    q, k, v, grad_out = operands
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).mT * scale
    scores.requires_grad_()
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=3).nan_to_num(0.0)
    weights.retain_grad()
    (weights @ v.repeat_interleave(group, 1) * grad_out).sum().backward()
    chosen = scores if measure == "score" else weights
    assert chosen.grad is not None
    return (chosen * chosen.grad).abs().nan_to_num(0.0).detach()


def measured(operands: list[Tensor], pattern: BlockPattern, scale: float = 0.3, **options: Any) -> Tensor:
    q, k, v, grad_out = operands
    out, lse = reference_attention(q, k, v, pattern, scale=scale)
    if options.pop("with_lse", True):
        return block_importance(q, k, v, out, grad_out, lse, scale=scale, pattern=pattern, **options)
    return block_importance(q, k, v, out, grad_out, scale=scale, pattern=pattern, **options)


@pytest.mark.parametrize("measure", ["score", "weight"])
@pytest.mark.parametrize(("heads", "key_heads", "pattern_heads"), [(2, 2, 1), (4, 2, 4), (3, 1, 1)])
@pytest.mark.parametrize(("queries", "keys"), [(48, 64), (50, 37)])
def test_equals_autograd(
    queries: int, keys: int, heads: int, key_heads: int, pattern_heads: int, measure: Measure
) -> None:
    operands = random_operands(2, heads, key_heads, queries, keys)
    random = random_blocks(queries, 0.5, 16, heads=pattern_heads, key_length=keys)
    pattern = random | local_window(queries, 7, 16, key_length=keys)
    expected = block_sums(direct(operands, pattern.to_token_mask(), 0.3, measure), 16)
    for with_lse in (True, False):
        found = measured(
            operands, pattern, block_size=16, allowed=pattern, measure=measure, with_lse=with_lse
        )
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_dropped_pairs_count_as_if_each_returned_alone() -> None:
    operands = random_operands(1, 2, 2, 40, 40, seed=3)
    q, k, v, grad_out = operands
    pattern = random_blocks(40, 0.4, 16, heads=2, seed=1)
    allowed = local_window(40, 30, 16)
    out, lse = reference_attention(q, k, v, pattern, scale=0.3)
    scores = q @ k.mT * 0.3
    lse = lse[..., None]
    weights = torch.where(pattern.to_token_mask(), (scores - lse).exp(), 1 / (1 + (lse - scores).exp()))
    grads = weights * (grad_out @ v.mT - (grad_out * out).sum(dim=-1, keepdim=True))
    pairs = (scores * grads).abs() * allowed.to_token_mask()
    found = measured(operands, pattern, block_size=16, allowed=allowed)
    torch.testing.assert_close(found, block_sums(pairs, 16), rtol=1e-10, atol=1e-12)
    everything = measured(operands, pattern, block_size=16)
    torch.testing.assert_close(everything, block_sums((scores * grads).abs(), 16), rtol=1e-10, atol=1e-12)


def test_without_a_pattern_everything_takes_part() -> None:
    operands = random_operands(1, 2, 1, 40, 40)
    q, k, v, grad_out = operands
    found = block_importance(
        q, k, v, reference_attention(q, k, v, full(40, 16), scale=0.3).out, grad_out, block_size=16, scale=0.3
    )
    torch.testing.assert_close(found, measured(operands, full(40, 16), block_size=16))
    causal = full(40, 16).causal()
    out = reference_attention(q, k, v, causal, scale=0.3).out
    found = block_importance(q, k, v, out, grad_out, block_size=16, scale=0.3, allowed=causal)
    torch.testing.assert_close(found, measured(operands, causal, block_size=16, allowed=causal))
    assert not found[:, 0, 1:].any()


def test_rows_without_keys_and_padded_keys() -> None:
    operands = random_operands(2, 2, 2, 40, 40)
    q, k, v, grad_out = operands
    mask = torch.zeros(40, 40, dtype=torch.bool)
    mask[5:20, 3:30] = True
    assert bool(measured(operands, from_token_mask(mask, 16), block_size=16).isfinite().all())
    lengths = torch.tensor([40, 17])
    out, lse = reference_attention(q, k, v, full(40, 16), key_lengths=lengths)
    exists = (torch.arange(40) < lengths[:, None])[:, None, None, :]
    expected = block_sums(direct(operands, exists, 0.25, "score"), 16)
    for given in (lse, None):
        found = block_importance(q, k, v, out, grad_out, given, block_size=16, key_lengths=lengths)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 2 * 16 * 70, 3 * 4 * 16 * 70])
@pytest.mark.parametrize("pattern_heads", [1, 4])
def test_chunks_do_not_matter(chunk: int, pattern_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    operands = random_operands(3, 4, 2, 70, 70)
    pattern = random_blocks(70, 0.5, 16, heads=pattern_heads)
    expected = measured(operands, pattern, block_size=16)
    monkeypatch.setattr(importance_module, "CHUNK_SCORES", {"cpu": chunk})
    torch.testing.assert_close(measured(operands, pattern, block_size=16), expected)


def test_half_precision_is_summed_in_float32() -> None:
    operands = [tensor.to(torch.bfloat16) for tensor in random_operands(1, 2, 2, 40, 40)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = measured(operands, full(40, 16), block_size=16)
    assert found.dtype == torch.float32
    exact = measured([tensor.double() for tensor in operands], full(40, 16), block_size=16)
    torch.testing.assert_close(found.double(), exact, rtol=0.02, atol=0.02)


def test_average_is_corrected_for_its_start() -> None:
    average = BlockImportance(0.5)
    with pytest.raises(ValueError, match="no importance was measured"):
        average.value()
    first, second = torch.rand(2, 3, 4), torch.rand(2, 3, 4)
    average.add(first)
    torch.testing.assert_close(average.value(), first)
    average.add(second)
    torch.testing.assert_close(average.value(), (first + 2 * second) / 3)
    with pytest.raises(ValueError, match="heads and lengths must stay the same"):
        average.add(first[:1])


def test_measurements_that_are_not_finite_are_left_out() -> None:
    average = BlockImportance(0.5)
    bad = torch.ones(1, 2, 2)
    bad[0, 1, 0] = math.inf
    average.add(bad)
    assert not average.value().any()
    good = torch.rand(1, 2, 2)
    average.add(good)
    average.add(bad * math.nan)
    assert torch.equal(average.value(), good)
    assert average.count == 3


def test_update_measures_and_state_is_restored() -> None:
    q, k, v, grad_out = random_operands(1, 2, 2, 40, 40)
    pattern = random_blocks(40, 0.5, 16)
    out, lse = reference_attention(q, k, v, pattern)
    average = BlockImportance(block_size=16, measure="weight")
    average.update(q, k, v, out, grad_out, lse, pattern=pattern)
    expected = block_importance(q, k, v, out, grad_out, lse, pattern=pattern, block_size=16, measure="weight")
    torch.testing.assert_close(average.value(), expected)
    restored = BlockImportance(block_size=16, measure="weight")
    restored.load_state_dict(average.state_dict())
    for one in (average, restored):
        one.update(q + 1, k, v, out, grad_out, lse, pattern=pattern)
    assert torch.equal(average.value(), restored.value())
    restored.load_state_dict(BlockImportance().state_dict())
    assert restored.count == 0


def test_bad_arguments() -> None:
    q, k, v, out = random_operands(1, 2, 2, 40, 40)
    with pytest.raises(ValueError, match="grad_out must have shape"):
        block_importance(q, k, v, out, out[:, :1])
    with pytest.raises(ValueError, match="allowed has blocks of 16 but block_size is 64"):
        block_importance(q, k, v, out, out, allowed=full(40, 16))
    with pytest.raises(ValueError, match="pattern is for 41 queries"):
        block_importance(q, k, v, out, out, pattern=full(41))
    with pytest.raises(ValueError, match="measure must be one of score, weight"):
        block_importance(q, k, v, out, out, measure="loss")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="measure must be one of"):
        BlockImportance(measure="loss")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="momentum must be at least 0 and below 1"):
        BlockImportance(1.0)


@pytest.mark.gpu
def test_equals_the_cpu_on_a_gpu(cuda: torch.device) -> None:
    operands = random_operands(2, 4, 2, 200, 300)
    pattern = random_blocks(200, 0.3, 64, heads=4, key_length=300)
    expected = measured(operands, pattern)
    found = measured([tensor.to(cuda) for tensor in operands], pattern.to(cuda))
    torch.testing.assert_close(found.cpu(), expected)
