"""Tests of the learned gate: scores, selection, loss and training."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.attention.best_blocks import best_blocks, blocks_seen
from sparse_core.attention.modules import block_probabilities as chunks
from sparse_core.attention.modules.attention import SparseAttention
from sparse_core.attention.modules.block_probabilities import block_probabilities
from sparse_core.attention.modules.learned_blocks import LearnedBlocks
from sparse_core.attention.patterns.grid import BlockGrid
from sparse_core.attention.patterns.masks import from_block_mask
from sparse_core.attention.selection import top_k_blocks


def random_operands(
    batch: int, heads: int, key_heads: int, queries: int, keys: int, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, heads, queries, 16, generator=generator, dtype=torch.float64)
    return q, torch.randn(batch, key_heads, keys, 16, generator=generator, dtype=torch.float64)


def true_probabilities(
    q: Tensor, k: Tensor, size: int, causal: bool, query_lengths: list[int], key_lengths: list[int]
) -> Tensor:
    """Sequence by sequence from the dense probabilities."""
    (batch, heads, queries, dim), keys = q.shape, k.shape[2]
    rows, columns = -(-queries // size), -(-keys // size)
    result = torch.zeros(batch, heads, rows, columns, dtype=torch.float64)
    scores = q @ k.repeat_interleave(heads // k.shape[1], 1).mT / math.sqrt(dim)
    mask = torch.ones(queries, keys, dtype=torch.bool)
    mask = mask.tril(keys - queries) if causal else mask
    for b in range(batch):
        allowed = mask.clone()
        allowed[query_lengths[b] :] = False
        allowed[:, key_lengths[b] :] = False
        probability = torch.softmax(scores[b].masked_fill(~allowed, -torch.inf), dim=-1).nan_to_num(0.0)
        for row in range(rows):
            part = slice(row * size, (row + 1) * size)
            count = max(1, int(allowed[part].any(dim=1).sum()))
            for column in range(columns):
                block = probability[:, part, column * size : (column + 1) * size]
                result[b, :, row, column] = block.sum(dim=(1, 2)) / count
    return result


RAGGED = {
    "queries": st.integers(1, 70),
    "keys": st.integers(1, 70),
    "causal": st.booleans(),
    "ragged": st.booleans(),
    "seed": st.integers(0, 50),
}


@settings(max_examples=40)
@given(limit=st.sampled_from([1, 3000, 1 << 20]), **RAGGED)
def test_block_probabilities(
    queries: int, keys: int, causal: bool, ragged: bool, seed: int, limit: int
) -> None:
    """In chunks of any size, with padding that holds NaN."""
    q, k = random_operands(2, 4, 2, queries, keys, seed)
    query_lengths, key_lengths = [queries, queries], [keys, keys]
    options: dict[str, Any] = {}
    poisoned = q.clone(), k.clone()
    if ragged:
        query_lengths, key_lengths = [queries // 2, queries], [keys, keys // 3]
        poisoned[0][0, :, query_lengths[0] :], poisoned[1][1, :, key_lengths[1] :] = math.nan, math.nan
        options = {"query_lengths": torch.tensor(query_lengths), "key_lengths": torch.tensor(key_lengths)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(chunks.CHUNK_SCORES, "cpu", limit)
        found = block_probabilities(*poisoned, block_size=16, causal=causal, **options)
    expected = true_probabilities(q, k, 16, causal, query_lengths, key_lengths)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=60)
@given(
    queries=st.integers(1, 100),
    keys=st.integers(1, 100),
    causal=st.booleans(),
    keep=st.sampled_from([0.01, 0.3, 0.5, 1.0]),
    seed=st.integers(0, 50),
)
def test_best_blocks(queries: int, keys: int, causal: bool, keep: float, seed: int) -> None:
    """Row by row in Python, with scores that are often equal."""
    grid = BlockGrid(2, queries, keys, 16)
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (2, grid.rows, grid.columns), generator=generator).double()
    scores[0, 0, 0] = math.nan
    pairs = torch.ones(grid.rows * 16, grid.columns * 16, dtype=torch.bool)
    pairs = pairs.tril(keys - queries) if causal else pairs
    inside = torch.zeros_like(pairs)
    inside[:queries, :keys] = True
    blocks = [
        part.reshape(grid.rows, 16, grid.columns, 16).any(dim=3).any(dim=1)
        for part in (pairs & inside, ~pairs & inside)
    ]
    seen, crossed = blocks[0], blocks[0] & blocks[1]
    assert torch.equal(blocks_seen(grid, causal, torch.device("cpu")), seen)
    expected = torch.zeros(2, grid.rows, grid.columns, dtype=torch.bool)
    for head in range(2):
        for row in range(grid.rows):
            visible = seen[row].nonzero()[:, 0].tolist()
            must = [column for column in visible if crossed[row, column]]
            count = min(len(visible), max(1, round(keep * len(visible)), len(must)))
            rank = {
                column: (column not in must, -scores[head, row, column].nan_to_num(-1e9).item(), column)
                for column in visible
            }
            expected[head, row, sorted(visible, key=rank.__getitem__)[:count]] = True
    found = best_blocks(scores, grid, keep, causal=causal).validate()
    wanted = from_block_mask(expected, 16, query_length=queries, key_length=keys)
    assert found == (wanted.causal() if causal else wanted)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(96, 96), (70, 160), (160, 64), (5, 32)])
def test_untrained_gate_selects_by_means(queries: int, keys: int, causal: bool) -> None:
    """For one sequence of whole key blocks that is what top_k_blocks does."""
    q, k = random_operands(1, 4, 2, queries, keys)
    gate = LearnedBlocks(4, 16, 0.4, key_heads=2, block_size=16, causal=causal)
    pattern = gate.select(q, k)
    assert pattern.validate() == top_k_blocks(q, k, 0.4, block_size=16, causal=causal)
    assert pattern == gate.select(q, k)
    with torch.no_grad():
        gate.key_weight.normal_()
    gate.reset_parameters()
    assert pattern == gate.select(q, k)


def perturbed_gate(**options: Any) -> LearnedBlocks:
    torch.manual_seed(1)
    gate = LearnedBlocks(4, 16, 0.4, key_heads=2, block_size=16, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return gate


def expected_scores(gate: LearnedBlocks, q: Tensor, k: Tensor) -> Tensor:
    """One sequence without padding, block by block."""
    q_blocks, k_blocks = q.split(16, dim=2), k.split(16, dim=2)
    result = torch.zeros(1, 4, len(q_blocks), len(k_blocks), dtype=torch.float64)
    for head in range(4):
        for row, q_block in enumerate(q_blocks):
            query = q_block[0, head].mean(0) @ gate.query_weight[head]
            for column, k_block in enumerate(k_blocks):
                keys = k_block[0, head // 2]
                pooled = torch.cat([keys.mean(0), keys.amax(0), keys.amin(0)])
                score = query @ (pooled @ gate.key_weight[head // 2]) / 4
                result[0, head, row, column] = score + math.log(len(keys) / 16)
    return result


@pytest.mark.parametrize("causal", [False, True])
def test_scores(causal: bool) -> None:
    gate = perturbed_gate(causal=causal)
    q, k = random_operands(1, 4, 2, 40, 70)
    expected = expected_scores(gate, q, k)
    if causal:
        expected = expected.masked_fill(~blocks_seen(BlockGrid(4, 40, 70, 16), True, q.device), -math.inf)
        assert bool((expected == -math.inf).any())
    torch.testing.assert_close(gate(q, k), expected)


def test_each_sequence_counts_for_itself() -> None:
    """Scores of a padded sequence are those it has alone; the selection is the average of probabilities."""
    gate = perturbed_gate()
    q, k = random_operands(2, 4, 2, 48, 64)
    lengths = {"query_lengths": torch.tensor([20, 48]), "key_lengths": torch.tensor([64, 37])}
    q[0, :, 20:], k[1, :, 37:] = math.nan, math.nan
    scores = gate(q, k, **lengths)
    torch.testing.assert_close(scores[:1, :, :2], gate(q[:1, :, :20], k[:1]))
    torch.testing.assert_close(scores[1:, :, :, :3], gate(q[1:], k[1:, :, :37]))
    assert bool((scores[1, :, :, 3] == -math.inf).all())
    probability = torch.softmax(scores.detach(), dim=3)
    probability[0, :, 2] = 0.0
    expected = best_blocks(probability.sum(dim=0), BlockGrid(4, 48, 64, 16), 0.4)
    assert gate.select(q, k, **lengths) == expected


@settings(max_examples=25)
@given(**RAGGED)
def test_gate_loss(queries: int, keys: int, causal: bool, ragged: bool, seed: int) -> None:
    gate = perturbed_gate(causal=causal)
    q, k = random_operands(2, 4, 2, queries, keys, seed)
    lengths: dict[str, Any] = {}
    query_lengths, key_lengths = [queries] * 2, [keys] * 2
    if ragged:
        query_lengths, key_lengths = [queries // 2, queries], [keys, keys // 3]
        lengths = {"query_lengths": torch.tensor(query_lengths), "key_lengths": torch.tensor(key_lengths)}
    truth = true_probabilities(q, k, 16, causal, query_lengths, key_lengths)
    estimate = torch.softmax(gate(q, k, **lengths), dim=3)
    terms = torch.where(truth > 0, truth * (truth.log() - estimate.log()), 0.0).sum(dim=3)
    counted = truth.sum(dim=3) > 0
    expected = terms[counted].sum() / max(1, int(counted.sum()))
    found = gate.gate_loss(q, k, **lengths)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    assert float(found.detach()) > -1e-12
    gradients = torch.autograd.grad(found, list(gate.parameters()))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_the_loss_is_zero_for_a_perfect_gate() -> None:
    """Keys that are equal within a block, and queries likewise, are their means."""
    q, k = random_operands(1, 2, 2, 3, 4)
    q, k = q.repeat_interleave(16, dim=2), k.repeat_interleave(16, dim=2)
    gate = LearnedBlocks(2, 16, 0.5, block_size=16, dtype=torch.float64)
    assert abs(float(gate.gate_loss(q, k).detach())) < 1e-12


def test_gradients_reach_the_gate_alone() -> None:
    gate = perturbed_gate()
    q, k = (tensor.requires_grad_() for tensor in random_operands(1, 4, 2, 48, 64))
    gate.gate_loss(q, k).backward()
    assert q.grad is None
    assert k.grad is None
    assert all(bool((parameter.grad != 0).any()) for parameter in gate.parameters())

    module = SparseAttention(64, 4, LearnedBlocks(4, 16, 0.5, block_size=16))
    x = torch.randn(1, 80, 64, requires_grad=True)
    module(x).sum().backward()
    assert all(parameter.grad is None for parameter in module.pattern.parameters())  # type: ignore[union-attr]
    module.zero_grad()
    x.grad = None
    module.gate_loss(x).backward()
    learning = {name for name, parameter in module.named_parameters() if parameter.grad is not None}
    assert learning == {"pattern.query_weight", "pattern.key_weight"}
    assert x.grad is None


def structured_operands(seed: int) -> tuple[Tensor, Tensor]:
    """Keys of a block share a direction, with both signs and a strength per block.

    Means of blocks do not show it, but the queries depend on it.
    """
    generator = torch.Generator().manual_seed(seed)
    batch, heads, length, dim, size = 2, 2, 256, 16, 16
    directions = torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(99)))[0]
    strength = torch.rand(batch, heads, length // size, 1, generator=generator) * 4
    sign = torch.tensor([1.0, -1.0]).repeat(length // 2)
    along = strength.repeat_interleave(size, dim=2) * sign[:, None]
    noise = torch.randn(batch, heads, length, dim, generator=generator)
    k = along * directions[0] + 0.3 * noise
    q = 4.0 * directions[0] + 0.3 * torch.randn(batch, heads, length, dim, generator=generator)
    return q, k


def recall(gate: LearnedBlocks, q: Tensor, k: Tensor) -> float:
    """Share of the truly best blocks that the gate selects, one sequence at a time."""
    shares = []
    for one_q, one_k in zip(q.split(1), k.split(1), strict=True):
        truth = block_probabilities(one_q, one_k, block_size=16)[0]
        grid = BlockGrid(gate.heads, one_q.shape[2], one_k.shape[2], 16)
        best = best_blocks(truth, grid, gate.keep).to_block_mask()
        found = gate.select(one_q, one_k).to_block_mask()
        shares.append(float((best & found).sum() / best.sum()))
    return sum(shares) / len(shares)


def test_training_finds_the_blocks_that_means_miss() -> None:
    gate = LearnedBlocks(2, 16, 0.25, block_size=16)
    q, k = structured_operands(1000)
    before, loss_before = recall(gate, q, k), float(gate.gate_loss(q, k).detach())
    optimiser = torch.optim.Adam(gate.parameters(), lr=0.03)
    for step in range(50):
        optimiser.zero_grad()
        gate.gate_loss(*structured_operands(step)).backward()
        optimiser.step()
    after = recall(gate, q, k)
    assert before < 0.6
    assert after > 0.9
    assert float(gate.gate_loss(q, k).detach()) < loss_before / 3


def test_autocast_and_low_precision() -> None:
    q, k = (tensor.bfloat16() for tensor in random_operands(1, 4, 2, 48, 64))
    gate = perturbed_gate().float()
    scores = gate(q, k)
    assert scores.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(gate(q, k), scores)
    torch.testing.assert_close(scores, gate(q.float(), k.float()))
    assert gate.bfloat16().select(q, k).heads == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": 0.0}, "keep must be above 0"),
        ({"block_size": 24}, "block_size must be a multiple of 16"),
        ({"key_heads": 3}, "heads a multiple of key_heads"),
        ({"heads": 0}, "must be at least 1"),
    ],
)
def test_bad_construction(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LearnedBlocks(**{"heads": 4, "dim": 16, "keep": 0.5, **arguments})


def test_bad_operands() -> None:
    gate = LearnedBlocks(4, 16, 0.5, key_heads=2, block_size=16)
    q, k = random_operands(1, 4, 4, 32, 32)
    with pytest.raises(ValueError, match=r"the gate is for .* \(4, 2, 16\), q and k have \(4, 4, 16\)"):
        gate(q, k)
    with pytest.raises(ValueError, match="at least one batch entry"):
        gate.select(q[:0], k[:0, :2])
    with pytest.raises(ValueError, match="query_lengths must have shape"):
        gate.gate_loss(q, k[:, :2], query_lengths=torch.tensor([1, 2]))


@pytest.mark.gpu
def test_gpu_equals_cpu(cuda: torch.device) -> None:
    gate = perturbed_gate(causal=True)
    q, k = random_operands(2, 4, 2, 300, 400)
    loss, pattern = gate.gate_loss(q, k), gate.select(q, k)
    gate = gate.to(cuda)
    q, k = q.to(cuda), k.to(cuda)
    torch.testing.assert_close(gate.gate_loss(q, k).cpu(), loss)
    assert gate.select(q, k).to("cpu") == pattern
    low = q.bfloat16(), k.bfloat16()
    assert gate.select(*low) == gate.select(*low)
