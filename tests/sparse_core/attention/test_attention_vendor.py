"""FlexAttention against the reference: on a CPU without gradients, on a GPU compiled and with them."""

from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch
from reference_attention import reference_attention
from torch import Tensor

from sparse_core.attention import sparse_attention, vendor
from sparse_core.attention.patterns.builders import bigbird, full, local_window, random_blocks
from sparse_core.attention.patterns.masks import from_block_mask, from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.errors import ImplementationError

flex_attention = partial(sparse_attention, impl="vendor", return_lse=True)


def random_operands(
    heads: int, key_heads: int, queries: int, keys: int, dim: int = 16, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(heads * 1000 + queries)
    sizes = ((heads, queries), (key_heads, keys), (key_heads, keys))
    return [torch.randn(2, *size, dim, generator=generator).to(dtype) for size in sizes]


def compare(operands: list[Tensor], pattern: BlockPattern, scale: float | None = None) -> None:
    found = flex_attention(*operands, pattern, scale=scale)
    expected = reference_attention(*operands, pattern, scale=scale)
    assert (found.out.dtype, found.lse.dtype) == (expected.out.dtype, expected.lse.dtype)
    torch.testing.assert_close(found.out, expected.out, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.lse, expected.lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [1, 63, 64, 300])
def test_local_window(length: int) -> None:
    compare(random_operands(2, 2, length, length), local_window(length, 24, 48))


def test_a_ragged_thousand() -> None:
    compare(random_operands(2, 1, 1000, 1000), bigbird(1000, block_size=64))


@pytest.mark.parametrize("block_size", [16, 48, 64, 112, 128])
def test_block_sizes(block_size: int) -> None:
    """With one head for all, other keys than queries, and grouped heads."""
    pattern = local_window(200, 30, block_size, key_length=250)
    compare(random_operands(4, 2, 200, 250), pattern | random_blocks(200, 0.2, block_size, key_length=250))


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_a_pattern_a_head(key_heads: int) -> None:
    pattern = bigbird(130, block_size=16, heads=4, seed=3).causal()
    compare(random_operands(4, key_heads, 130, 130, 24), pattern, scale=0.3)


def test_float64() -> None:
    operands = random_operands(2, 2, 100, 100, dtype=torch.float64)
    pattern = random_blocks(100, 0.4, 16, heads=2)
    found = flex_attention(*operands, pattern)
    expected = reference_attention(*operands, pattern)
    torch.testing.assert_close(found.out, expected.out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.lse, expected.lse, rtol=1e-12, atol=1e-12)


def test_queries_without_keys() -> None:
    mask = torch.zeros(60, 60, dtype=torch.bool)
    mask[5, 3], mask[20:30, 10:25] = True, True
    found = flex_attention(*random_operands(2, 2, 60, 60), from_token_mask(mask, 16))
    empty = ~mask.any(dim=1)
    assert not found.out[:, :, empty].any()
    assert bool((found.lse[:, :, empty] == -math.inf).all())
    assert bool(found.lse[:, :, ~empty].isfinite().all())
    nothing = from_block_mask(torch.zeros(4, 4, dtype=torch.bool), 16)
    out, lse = flex_attention(*random_operands(2, 2, 64, 64), nothing)
    assert torch.equal(out, torch.zeros_like(out))
    assert bool((lse == -math.inf).all())


def test_lists_are_those_of_the_pattern() -> None:
    """Whole blocks are full, masked ones and those that an end cuts partial; made once."""
    pattern = (local_window(100, 20, 32) | random_blocks(100, 0.5, 32, heads=2)).causal()
    mask = vendor.block_mask(pattern)
    assert vendor.block_mask(pattern) is mask
    assert (mask.shape, mask.BLOCK_SIZE) == ((1, 2, 100, 100), (32, 32))
    tokens = torch.nn.functional.pad(pattern.to_token_mask(), (0, 28, 0, 28))
    blocks = tokens.reshape(2, 4, 32, 4, 32).transpose(2, 3)
    whole, some = blocks.all(dim=4).all(dim=3), blocks.any(dim=4).any(dim=3)
    for head in range(2):
        for row in range(4):
            full_columns = mask.full_kv_indices[0, head, row, : mask.full_kv_num_blocks[0, head, row]]
            columns = mask.kv_indices[0, head, row, : mask.kv_num_blocks[0, head, row]]
            assert full_columns.tolist() == whole[head, row].nonzero()[:, 0].tolist()
            assert columns.tolist() == (some & ~whole)[head, row].nonzero()[:, 0].tolist()


def test_patterns_of_equal_sizes_share_compiled_code() -> None:
    operands = random_operands(2, 2, 144, 144)
    compare(operands, random_blocks(144, 0.3, 16, seed=1))
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    compare(operands, random_blocks(144, 0.5, 16, seed=2))
    compare(operands, local_window(144, 40, 16))
    compare(operands, local_window(144, 40, 16).causal())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= before + 1


def test_more_sizes_than_torch_recompiles_by_default() -> None:
    for length in range(16, 16 * 11, 16):
        compare(random_operands(1, 1, length, length), full(length, 16))


def test_no_batch() -> None:
    operands = [tensor[:0] for tensor in random_operands(2, 1, 20, 30)]
    out, lse = flex_attention(*operands, full(20, 16, key_length=30))
    assert (out.shape, lse.shape) == ((0, 2, 20, 16), (0, 2, 20))


def test_autocast_changes_nothing() -> None:
    operands, pattern = random_operands(2, 2, 64, 64), local_window(64, 9, 16)
    expected = flex_attention(*operands, pattern)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = flex_attention(*operands, pattern)
    assert torch.equal(found.out, expected.out)


def test_unsupported_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    operands, pattern = random_operands(2, 2, 64, 64), local_window(64, 9, 16)
    with pytest.raises(ImplementationError, match="neither dropout nor lengths"):
        flex_attention(*operands, pattern, dropout_p=0.1)
    lengths = torch.tensor([3, 4])
    with pytest.raises(ImplementationError, match="neither dropout nor lengths"):
        flex_attention(*operands, pattern, query_lengths=lengths)
    with pytest.raises(ImplementationError, match="neither dropout nor lengths"):
        flex_attention(*operands, pattern, key_lengths=lengths)
    with pytest.raises(ValueError, match="64 queries and 64 keys but q has 63"):
        flex_attention(operands[0][:, :, :63], *operands[1:], pattern)
    operands[0].requires_grad_()
    with pytest.raises(ImplementationError, match="no gradients on a CPU"):
        flex_attention(*operands, pattern)
    with torch.no_grad():
        compare(operands, pattern)
    monkeypatch.setattr(vendor, "MATERIALISED_SCORES", 2 * 2 * 64 * 64 - 1)
    with pytest.raises(ImplementationError, match="16384 scores at once on a CPU"), torch.no_grad():
        flex_attention(*operands, pattern)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("block_size", range(16, 129, 16))
def test_tiles_divide_blocks(block_size: int, dtype: torch.dtype) -> None:
    """Check the tile options of compiled kernels, which torch must know."""
    pattern = local_window(384, 9, block_size)
    for dim, trained in itertools.product((16, 64, 256), (False, True)):
        found = vendor.KernelOptions.choose(pattern, dim, dtype, trained=trained)
        tile = found.kernel.get("fwd_BLOCK_M", 128 if not found.search else 64)
        assert block_size % tile == 0
        assert found.kernel.get("IS_DIVISIBLE", True) == (384 % block_size == 0)
        # Without a search, float32 has tiles of 16 in its backward pass, 16-bit numbers of up to 128.
        assert bool(found.search) == (trained and dtype == torch.bfloat16 and block_size < 128)
        assert callable(vendor.compiled("cuda", found.search))


def test_within_compiled_code() -> None:
    operands, pattern = random_operands(2, 2, 64, 64), local_window(64, 9, 16)
    expected = flex_attention(*operands, pattern)

    @torch.compile(backend="eager")
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q + 0.0, k, v, pattern).out

    torch.testing.assert_close(attend(*operands), expected.out)


# A warning of torch about its settings.
_compiler_warns = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def compare_on_gpu(operands: list[Tensor], pattern: BlockPattern, tolerance: float) -> None:
    """Compare out, lse and gradients with the float64 reference, and two runs bit by bit."""
    pattern = pattern.to("cuda")
    half = [tensor.cuda().requires_grad_() for tensor in operands]
    exact = [tensor.detach().double().requires_grad_() for tensor in half]
    results = []
    generator = torch.Generator("cuda").manual_seed(7)
    cotangent = torch.randn(half[0].shape, generator=generator, device="cuda").to(half[0].dtype)
    for _ in range(2):
        found = flex_attention(*half, pattern)
        results.append([found.out, found.lse, *torch.autograd.grad(found.out, half, cotangent)])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    expected = reference_attention(*exact, pattern)
    wanted = [
        expected.out,
        expected.lse,
        *torch.autograd.grad(expected.out, exact, cotangent.double()),
    ]
    for one, other in zip(results[0], wanted, strict=True):
        reachable = torch.isfinite(other)
        assert torch.equal(one.isfinite(), reachable)
        error = (one.double() - other)[reachable].abs().max() / other[reachable].abs().max().clamp(min=1e-3)
        assert float(error) < tolerance


@pytest.mark.gpu
@_compiler_warns
@pytest.mark.parametrize(
    ("length", "block_size", "dim"), [(1000, 128, 64), (1024, 128, 128), (1024, 64, 64), (1000, 64, 128)]
)
def test_gradients_on_a_gpu(cuda: torch.device, length: int, block_size: int, dim: int) -> None:
    operands = random_operands(4, 2, length, length, dim, torch.bfloat16)
    compare_on_gpu(operands, bigbird(length, block_size=block_size, heads=4), 0.03)


@pytest.mark.gpu
@_compiler_warns
@pytest.mark.parametrize("block_size", range(16, 129, 16))
def test_every_block_size_on_a_gpu(cuda: torch.device, block_size: int) -> None:
    """Lengths that are multiples of 128 but not of the block, and a query without keys; float32."""
    mask = local_window(256, 40, block_size, key_length=384).to_token_mask()
    mask[17] = False
    operands = random_operands(2, 2, 256, 384, 64)
    compare_on_gpu(operands, from_token_mask(mask, block_size), 1e-4)


@pytest.mark.gpu
@pytest.mark.slow
@_compiler_warns
@pytest.mark.parametrize("block_size", range(16, 128, 16))
def test_small_blocks_in_bfloat16_on_a_gpu(cuda: torch.device, block_size: int) -> None:
    operands = random_operands(2, 2, 256, 384, 64, torch.bfloat16)
    compare_on_gpu(operands, local_window(256, 40, block_size, key_length=384), 0.03)


@pytest.mark.gpu
@_compiler_warns
@pytest.mark.parametrize("block_size", [16, 32, 48, 64, 128])
def test_without_gradients_on_a_gpu(cuda: torch.device, block_size: int) -> None:
    operands = [tensor.to(cuda) for tensor in random_operands(4, 2, 700, 700, 64, torch.bfloat16)]
    pattern = local_window(700, 50, block_size, device=cuda)
    found = flex_attention(*operands, pattern)
    expected = reference_attention(*operands, pattern)
    torch.testing.assert_close(found.out.float(), expected.out.float(), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(found.lse, expected.lse, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_no_float64_on_a_gpu(cuda: torch.device) -> None:
    operands = [tensor.to(cuda) for tensor in random_operands(1, 1, 64, 64, dtype=torch.float64)]
    with pytest.raises(ImplementationError, match="does not support float64 on a GPU"):
        flex_attention(*operands, local_window(64, device=cuda))
