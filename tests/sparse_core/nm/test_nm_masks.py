"""Masks against exhaustive search, their ties, and what is refused."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sparse_core.nm.masks import COMPARED_GROUP, block_mask, check_nm, nm_mask, pattern_mask
from sparse_core.nm.pattern import Block, NMPattern, weight_matrix
from sparse_core.nm.pruning.selection import magnitude_masks

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def best_mask_exhaustive(score: Tensor, n: int, m: int) -> Tensor:
    """All choices tried; of equally good ones the lexicographically first is kept."""
    mask = torch.zeros_like(score, dtype=torch.bool)
    for row in range(score.shape[0]):
        for start in range(0, score.shape[1], m):
            group = score[row, start : start + m].tolist()
            # combinations() come in lexicographic order and max() keeps the first of equals. Sorted values
            # are compared, not sums, because that decides between infinities too.
            best = max(
                combinations(range(m), n), key=lambda chosen: sorted((group[i] for i in chosen), reverse=True)
            )
            mask[row, [start + i for i in best]] = True
    return mask


@st.composite
def scored(draw: st.DrawFn) -> tuple[Tensor, int, int]:
    """Scores with many ties and infinities, and n:m."""
    m = draw(st.integers(1, 11))
    n = draw(st.integers(1, m))
    rows, groups = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    values = st.sampled_from([-2.0, -0.0, 0.0, 0.5, 1.0, 3.0, float("inf"), float("-inf")])
    entries = draw(st.lists(values, min_size=rows * groups * m, max_size=rows * groups * m))
    return torch.tensor(entries).reshape(rows, groups * m), n, m


@settings(max_examples=150)
@given(scored())
def test_mask_is_the_best_of_all(found: tuple[Tensor, int, int]) -> None:
    score, n, m = found
    mask = nm_mask(torch.ones_like(score), n, m, score)
    assert torch.equal(mask, best_mask_exhaustive(score, n, m))
    check_nm(mask, n, m)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 4), (3, 4), (4, 8), (2, 16), (5, 32)])
def test_magnitude_keeps_the_largest_sum(n: int, m: int, dtype: torch.dtype) -> None:
    weight = torch.randn(7, 3 * m, generator=torch.Generator().manual_seed(1)).to(dtype)
    mask = nm_mask(weight, n, m)
    check_nm(mask, n, m)
    kept = (weight.double().abs() * mask).reshape(7, 3, m).sum(2)
    largest = weight.double().abs().reshape(7, 3, m).topk(n, dim=2).values.sum(2)
    torch.testing.assert_close(kept, largest)


@pytest.mark.parametrize("m", [4, 16])
def test_all_zero_groups_keep_the_first(m: int) -> None:
    mask = nm_mask(torch.zeros(3, 2 * m), 2, m)
    assert torch.equal(mask, (torch.arange(2 * m) % m < 2).expand(3, -1))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_integer_weights(dtype: torch.dtype) -> None:
    # -128 has no absolute value in int8.
    weight = torch.tensor([[-128, 127, 126, 1]], dtype=dtype)
    assert nm_mask(weight, 1, 4).tolist() == [[True, False, False, False]]


@pytest.mark.parametrize("layout", ["unfold", "channels_last"])
def test_convolution_groups_follow_the_layout(layout: str) -> None:
    weight = torch.randn(5, 8, 3, 3, generator=torch.Generator().manual_seed(2))
    mask = nm_mask(weight, 2, 4, conv_layout=layout)  # type: ignore[arg-type]
    assert mask.shape == weight.shape
    ordered = mask.permute(0, 2, 3, 1) if layout == "channels_last" else mask
    groups = ordered.reshape(-1, 4)
    assert torch.equal(groups.sum(1), torch.full((len(groups),), 2))
    assert mask.is_contiguous()
    check_nm(mask, 2, 4, conv_layout=layout)  # type: ignore[arg-type]


def test_strides_and_gradients_do_not_matter() -> None:
    weight = torch.randn(16, 12, generator=torch.Generator().manual_seed(3), requires_grad=True)
    mask = nm_mask(weight.T, 2, 4)
    assert not mask.requires_grad
    assert torch.equal(mask, nm_mask(weight.detach().T.contiguous(), 2, 4))


def test_nan_is_named_or_ranks_last() -> None:
    weight = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, float("nan"), 2.0, 3.0]])
    with pytest.raises(ValueError, match=r"weight is NaN at \(1, 1\); 1 of 8"):
        nm_mask(weight, 2, 4)
    with pytest.raises(ValueError, match=r"score is NaN at \(1, 1\)"):
        nm_mask(torch.ones(2, 4), 2, 4, weight)
    assert nm_mask(weight, 2, 4, check_nan=False)[1].tolist() == [False, False, True, True]
    nothing = torch.full((1, 4), float("nan"))
    assert nm_mask(nothing, 2, 4, check_nan=False).tolist() == [[True, True, False, False]]


def test_bad_arguments() -> None:
    weight = torch.ones(2, 6)
    with pytest.raises(ValueError, match="not divisible by m=4"):
        nm_mask(weight, 2, 4)
    with pytest.raises(ValueError, match="1 <= n <= m"):
        nm_mask(weight, 3, 2)
    with pytest.raises(ValueError, match=r"score must have the weight's shape \(2, 6\), got \(6, 2\)"):
        nm_mask(weight, 1, 2, weight.T)
    with pytest.raises(ValueError, match="score must be 'magnitude'"):
        nm_mask(weight, 1, 2, "wanda")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Linear weight"):
        nm_mask(torch.ones(2, 2, 2), 1, 2)
    with pytest.raises(TypeError, match="must be real"):
        nm_mask(weight.to(torch.complex64), 1, 2)
    with pytest.raises(TypeError, match="must be real"):
        nm_mask(weight, 1, 2, weight.to(torch.complex64))


def test_check_nm_names_row_and_group() -> None:
    weight = torch.zeros(3, 8)
    weight[2, 4:7] = 1
    with pytest.raises(ValueError, match=r"head is not 2:4: row 2, group 1 \(columns 4 to 7\) has 3"):
        check_nm(weight, 2, 4, name="head")
    check_nm(weight, 3, 4)
    with pytest.raises(ValueError, match=r"mask is not 3:4: row 0, group 0 .* has 0, expected exactly 3"):
        check_nm(weight != 0, 3, 4)


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.integers(0, 5))
def test_block_mask_keeps_the_strongest_blocks(rows: int, columns: int, sparsity: float, seed: int) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    block = Block(8, sparsity)
    mask = block_mask(weight, block)
    energies, kept = [], []
    for top in range(0, rows, 8):
        for left in range(0, columns, 8):
            tile = mask[top : top + 8, left : left + 8]
            assert tile.all() or not tile.any()
            energies.append(float(weight[top : top + 8, left : left + 8].double().square().sum()))
            kept.append(bool(tile.all()))
    count = max(1, round(block.density * len(kept)))
    assert sum(kept) == count
    assert set(np.flatnonzero(kept)) == set(np.argsort(energies)[::-1][:count])


def test_block_mask_ties_scores_and_convolutions() -> None:
    weight = torch.zeros(16, 16)
    assert block_mask(weight, Block(8, 0.5))[:, 0].tolist() == [True] * 8 + [False] * 8
    score = weight.clone()
    score[8:, 8:] = -1  # A score counts squared.
    assert block_mask(weight, Block(8, 0.75), score)[8:, 8:].all()
    kernel = torch.randn(8, 8, 3, 3, generator=torch.Generator().manual_seed(1))
    mask = block_mask(kernel, Block(8, 0.5), conv_layout="channels_last")
    tiles = weight_matrix(mask, "channels_last").reshape(8, 9, 8).permute(1, 0, 2).reshape(9, 64)
    assert torch.equal(tiles.all(1), tiles.any(1))
    assert int(tiles.all(1).sum()) == round(0.5 * 9)


def test_both_ways_of_ranking_agree_at_the_boundary() -> None:
    score = torch.randint(0, 4, (50, 8), generator=torch.Generator().manual_seed(1)).float()
    assert COMPARED_GROUP == 8
    wide = torch.cat([score, torch.full((50, 1), -1.0)], dim=1)
    assert torch.equal(nm_mask(score, 3, 8), nm_mask(wide, 3, 9, wide)[:, :8])


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "m"), [(2, 4), (3, 16)])
def test_masks_are_the_same_on_cuda(n: int, m: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    pattern = NMPattern(n, m)
    score = torch.randint(-3, 4, (64, 8 * m), generator=torch.Generator().manual_seed(1)) * 0.5
    for ranked in (score, -score.abs(), score * 0):
        here = nm_mask(ranked, pattern.n, pattern.m, ranked)
        assert torch.equal(here, nm_mask(ranked.cuda(), n, m, ranked.cuda()).cpu())
    assert torch.equal(block_mask(score, Block(8)), block_mask(score.cuda(), Block(8)).cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_each_pattern_has_its_mask(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(16, 8, 3, 3, generator=generator).to(dtype)
    score = torch.rand(weight.shape, generator=generator)
    assert pattern_mask(weight, None).all()
    assert torch.equal(pattern_mask(weight, NMPattern(1, 3)), nm_mask(weight, 1, 3))
    assert torch.equal(pattern_mask(weight, NMPattern(1, 3), score), nm_mask(weight, 1, 3, score))
    across = pattern_mask(weight, NMPattern(2, 4, "channels_last"))
    assert torch.equal(across, nm_mask(weight, 2, 4, conv_layout="channels_last"))
    assert torch.equal(pattern_mask(weight, Block(8, 0.5), score), block_mask(weight, Block(8, 0.5), score))
    with pytest.raises(TypeError, match="NMPattern, Block or None, got '2:4'"):
        pattern_mask(weight, "2:4")  # type: ignore[arg-type]


def test_masks_of_a_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 6), nn.Linear(6, 2))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    masks = magnitude_masks(model)
    assert {name: int(mask.sum()) for name, mask in masks.items()} == {"0": 32, "1": 24}
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    mixed = magnitude_masks(model, {"0": NMPattern(1, 8), "1": None, "2": NMPattern(1, 2)})
    assert {name: int(mask.sum()) for name, mask in mixed.items()} == {"0": 8, "2": 6}
    assert list(magnitude_masks(model, NMPattern(1, 2), select="^[12]$")) == ["1", "2"]
    with pytest.raises(ValueError, match="no layer matches"):
        magnitude_masks(model, NMPattern(1, 7))
