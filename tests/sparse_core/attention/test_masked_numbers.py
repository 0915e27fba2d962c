"""NaN and infinities reach the rows that may attend to them, and no others.

On a GPU: ``pytest -m gpu tests/sparse_core/attention/test_masked_numbers.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allowed_rows import attend, differences, poisoned
from hypothesis import given, settings
from hypothesis import strategies as st
from token_masks import Masked, masked, random_mask
from triton_scripts import run_script

from sparse_core.attention import gathered_attention, sparse_attention

SCRIPT = Path(__file__).with_name("compare_masked_numbers.py")
REPOSITORY = Path(__file__).parents[3]
#: Cases of the script, for blocks that the CUDA kernel takes and for others.
LARGE = ("shared large masks", "own large masks", "blocks of 128", "blocks of 64", "wide heads")
SMALL = (
    "small masks",
    "small, ragged",
    "shared masks",
    "own masks",
    "bigbird",
    "ragged",
    "odd lengths",
    "empty rows",
)


def run(
    given_mask: Masked, impl: str, seed: int, *, lengths: bool = False, gradients: bool = True
) -> list[str]:
    """Return differences from attention computed row by row, for operands with non-finite numbers."""
    numbers, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    mask = given_mask.mask if given_mask.mask.ndim == 3 else given_mask.mask[None]
    queries, keys = mask.shape[1:]
    heads = len(mask) if len(mask) > 1 else int(numbers.choice([1, 2, 4]))
    key_heads = heads if heads % 2 else heads // int(numbers.choice([1, 2]))
    batch, dim = int(numbers.choice([1, 2])), int(numbers.choice([5, 16]))
    shapes = [(batch, count, length, dim) for count, length in ((heads, queries), (key_heads, keys))]
    operands = [torch.randn(shape, generator=generator) for shape in (*shapes, shapes[1], shapes[0])]
    operands.append(torch.randn(shapes[0][:3], generator=generator))
    operands = poisoned(operands, 2, seed)
    if not gradients:
        operands[3:] = (one.nan_to_num(0.0, 0.0, 0.0) for one in operands[3:])
    options: dict[str, Any] = {}
    true = [[queries] * batch, [keys] * batch]
    if lengths:
        true = [numbers.integers(0, length + 1, batch).tolist() for length in (queries, keys)]
        options = {"query_lengths": torch.tensor(true[0]), "key_lengths": torch.tensor(true[1])}
    expected = attend(operands, mask, dim**-0.5, *true)
    q, k, v = (one.requires_grad_(gradients) for one in operands[:3])
    pattern = given_mask.pattern()
    out, lse = sparse_attention(q, k, v, pattern, impl=impl, return_lse=True, **options)  # type: ignore[call-overload]
    found = [out, lse]
    if gradients:
        # Without a block there is nothing that lse depends on.
        given = [pair for pair in zip(found, operands[3:], strict=True) if pair[0].requires_grad]
        outputs, incoming = zip(*given, strict=True)
        found += torch.autograd.grad(outputs, (q, k, v), incoming, materialize_grads=True)
    return differences(found, expected, 1e-4)


@settings(max_examples=15)
@given(given_mask=masked(), impl=st.sampled_from(["cpu", "reference"]), seed=st.integers(0, 2**32 - 1))
def test_non_finite_values_reach_their_queries(given_mask: Masked, impl: str, seed: int) -> None:
    assert not run(given_mask, impl, seed)


@settings(max_examples=8)
@given(given_mask=masked(), seed=st.integers(0, 2**32 - 1))
def test_non_finite_values_in_padded_sequences(given_mask: Masked, seed: int) -> None:
    assert not run(given_mask, "reference", seed, lengths=True)


def test_non_finite_values_in_flex_attention() -> None:
    given_mask = Masked(random_mask(40, 50, 16, seed=1), 16)
    assert not run(given_mask, "vendor", 1, gradients=False)


@pytest.mark.parametrize("seed", range(5))
def test_non_finite_values_in_gathered_attention(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((2, 4, 9, 16), (2, 2, 12, 16), (2, 2, 12, 16), (2, 4, 9, 16), (2, 4, 9))
    operands = poisoned([torch.randn(shape, generator=generator) for shape in shapes], 2, seed)
    # Keys in order, without repeats, as a mask has them.
    mask = torch.rand(4, 9, 12, generator=generator) < 0.3
    index = torch.where(mask, torch.arange(12), -1).expand(2, -1, -1, -1)
    expected = attend(operands, mask, 0.25, [9, 9], [12, 12])
    q, k, v = (one.requires_grad_() for one in operands[:3])
    out, lse = gathered_attention(q, k, v, index, impl="reference", return_lse=True)
    gradients = torch.autograd.grad((out, lse), (q, k, v), operands[3:])
    assert not differences([out, lse, *gradients], expected, 1e-4)


@pytest.mark.parametrize("impl", ["cpu", "reference"])
def test_a_key_reaches_one_of_two_queries_in_a_tile(impl: str) -> None:
    mask = torch.ones(32, 32, dtype=torch.bool)
    mask[3, 5] = False
    q, k, v = torch.randn(3, 1, 1, 32, 16, generator=torch.Generator().manual_seed(0))
    v[0, 0, 5] = torch.nan
    out = sparse_attention(q, k, v, Masked(mask, 32).pattern(), impl=impl)  # type: ignore[call-overload]
    assert out.isfinite().all(dim=3)[0, 0].nonzero().flatten().tolist() == [3]


def check(report: dict[str, list[str]], count: int) -> None:
    assert len(report) == count
    assert not {name: lines for name, lines in report.items() if lines}


def test_non_finite_values_in_interpreted_kernels() -> None:
    names = ("small masks", "small, ragged")
    check(run_script(SCRIPT, REPOSITORY, "float32", "triton", "1", *names, interpret=True), len(names))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "impl", "names"),
    [
        ("float32", "triton", SMALL + LARGE),
        ("bfloat16", "triton", SMALL + LARGE),
        ("float16", "cuda", LARGE),
        ("bfloat16", "cuda", LARGE),
        ("float32", "reference", SMALL),
    ],
)
def test_non_finite_values_on_a_gpu(
    cuda: torch.device, dtype: str, impl: str, names: tuple[str, ...]
) -> None:
    check(run_script(SCRIPT, REPOSITORY, dtype, impl, "4", *names, interpret=False), len(names))
