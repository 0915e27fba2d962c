"""SparseGPT against the plain optimal brain surgeon, and row compensation against least squares."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.nm.masks import check_nm, nm_mask
from sparse_core.nm.pattern import Block, NMPattern, weight_from_matrix, weight_matrix
from sparse_core.nm.pruning.calibration import InputStatistics
from sparse_core.nm.pruning.single_weight import compensate_scale
from sparse_core.nm.pruning.sparsegpt import CalibrationWarning, sparsegpt


def problem(rows: int, columns: int, samples: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Weight, correlated inputs and their Hessian, float64."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    mixing = torch.randn(columns, columns, generator=generator, dtype=torch.float64) / columns**0.5
    inputs = torch.randn(samples, columns, generator=generator, dtype=torch.float64)
    inputs = inputs @ (mixing + 0.3 * torch.eye(columns, dtype=torch.float64))
    return weight, inputs, 2 / samples * inputs.T @ inputs


def optimal_brain_surgeon(weight: Tensor, hessian: Tensor, n: int, m: int, damping: float) -> Tensor:
    """Column by column; the inverse of what is left of the Hessian is computed again each time."""
    left = weight.clone()
    columns = weight.shape[1]
    damped = hessian + damping * hessian.diagonal().mean() * torch.eye(columns, dtype=hessian.dtype)
    inverses = [torch.linalg.inv(damped[start:, start:]) for start in range(columns)]
    for row in left:
        dropped: list[int] = []
        for column in range(columns):
            if column % m == 0:
                loss = [float(row[place] ** 2 / inverses[place][0, 0]) for place in range(column, column + m)]
                ranked = sorted(range(m), key=lambda place: (-loss[place], place))
                dropped = [column + place for place in ranked[n:]]
            if column in dropped:
                inverse = inverses[column]
                row[column:] -= row[column] / inverse[0, 0] * inverse[0]
                row[column] = 0
    return left


def output_error(weight: Tensor, pruned: Tensor, inputs: Tensor) -> float:
    return float((inputs @ (weight - pruned).T).square().sum() / len(inputs))


@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 2), (3, 4), (2, 8), (4, 4)])
@pytest.mark.parametrize("block_size", [1, 8, 128])
def test_sparsegpt_is_the_plain_algorithm(n: int, m: int, block_size: int) -> None:
    weight, _, hessian = problem(5, 24, 60)
    found = sparsegpt(weight, hessian, NMPattern(n, m), damping=0.01, block_size=block_size)
    torch.testing.assert_close(found.weight, optimal_brain_surgeon(weight, hessian, n, m, 0.01))
    check_nm(found.mask, n, m)
    assert torch.equal(found.weight != 0, found.mask)
    assert (found.damping_used, found.attempts) == (0.01, 1)


@settings(max_examples=25)
@given(st.integers(0, 1000), st.sampled_from([(2, 4), (1, 4), (2, 8)]))
def test_loss_is_the_output_error_and_at_least_the_optimum_of_its_mask(
    seed: int, shape: tuple[int, int]
) -> None:
    weight, inputs, hessian = problem(12, 16, 64, seed)
    found = sparsegpt(weight, hessian, NMPattern(*shape), damping=0.0)
    assert float(found.loss) == pytest.approx(output_error(weight, found.weight, inputs))
    best = torch.zeros_like(weight)
    for row, kept in enumerate(found.mask):
        best[row, kept] = torch.linalg.lstsq(inputs[:, kept], inputs @ weight[row]).solution
    assert output_error(weight, best, inputs) <= float(found.loss) * (1 + 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types_of_weights(dtype: torch.dtype) -> None:
    weight, inputs, hessian = problem(16, 32, 100)
    weight = weight.to(dtype)
    found = sparsegpt(weight, hessian.float(), NMPattern(2, 4))
    assert found.weight.dtype == dtype
    assert torch.equal(found.weight * found.mask, found.weight)
    magnitude = output_error(weight.double(), (weight * nm_mask(weight, 2, 4)).double(), inputs)
    error = output_error(weight.double(), found.weight.double(), inputs)
    assert error < magnitude
    assert float(found.loss) == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize("layout", ["unfold", "channels_last"])
def test_convolutions_in_both_layouts(layout: str) -> None:
    pattern = NMPattern(2, 4, layout)  # type: ignore[arg-type]
    matrix, _, hessian = problem(6, 4 * 6, 80)  # In unfold order.
    weight = matrix.reshape(6, 4, 2, 3)
    found = sparsegpt(weight, hessian, pattern)
    check_nm(found.mask, 2, 4, conv_layout=pattern.conv_layout)
    order = weight_matrix(torch.arange(24).reshape(1, 4, 2, 3), pattern.conv_layout)[0]
    expected = optimal_brain_surgeon(matrix[:, order], hessian[order][:, order], 2, 4, 0.01)
    torch.testing.assert_close(
        found.weight, weight_from_matrix(expected, (6, 4, 2, 3), pattern.conv_layout).contiguous()
    )


def test_dead_inputs_lose_their_weights_where_others_fill_the_group() -> None:
    weight, inputs, _ = problem(4, 16, 60)
    inputs[:, [1, 2, 9]] = 0
    found = sparsegpt(weight, 2 / 60 * inputs.T @ inputs, NMPattern(2, 4), rows=60)
    assert (found.weight[:, [1, 2]] == 0).all()
    assert (found.weight[:, 9] == 0).all()
    assert torch.equal(found.weight != 0, found.mask)
    check_nm(found.mask, 2, 4)


@pytest.mark.parametrize("dead", [0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("rows", [1, 4, 200])
def test_no_more_weights_are_dropped_than_asked_for(dead: float, rows: int) -> None:
    weight, inputs, _ = problem(8, 64, rows)
    silent = torch.randperm(64, generator=torch.Generator().manual_seed(0))[: int(64 * dead)]
    inputs[:, silent] = 0
    with pytest.warns(CalibrationWarning) as caught:
        found = sparsegpt(weight, 2 / rows * inputs.T @ inputs, NMPattern(2, 4), rows=rows, name="fc3")
    assert (found.weight != 0).sum(dim=1).tolist() == [32] * 8
    assert torch.equal(found.weight != 0, found.mask)
    check_nm(found.mask, 2, 4)
    messages = [str(one.message) for one in caught]
    assert any(f"{len(silent)} of 64 inputs of fc3 are zero" in one for one in messages)
    live = 64 - len(silent)
    few = [one for one in messages if f"of fc3 has {rows} input rows, fewer than its {live} inputs" in one]
    assert len(few) == (rows < live)
    # Weights of silent inputs are kept as they are, or not at all.
    kept = found.mask[:, silent]
    assert torch.equal(found.weight[:, silent], weight[:, silent] * kept)


def test_failed_factorisation_is_retried_and_reported() -> None:
    hessian = torch.eye(4).double()
    hessian[0, 1] = hessian[1, 0] = 1.5  # Eigenvalue -0.5.
    weight = problem(3, 4, 10)[0]
    with pytest.warns(CalibrationWarning, match=r"Hessian of fc1 .* damping 0\.01: SparseGPT used 1, at att"):
        found = sparsegpt(weight, hessian, NMPattern(2, 4), name="fc1")
    assert found.damping_used == pytest.approx(1.0)
    assert found.attempts == 3
    torch.testing.assert_close(found.weight, optimal_brain_surgeon(weight, hessian, 2, 4, 1.0))


def test_too_few_inputs_without_damping_are_reported() -> None:
    weight, _, hessian = problem(3, 16, 5)
    hessian[0, 0] -= 1e-9
    with pytest.warns(CalibrationWarning, match="used 1e-06"):
        assert sparsegpt(weight, hessian, NMPattern(2, 4), damping=0.0).attempts == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sparsegpt(weight, hessian, NMPattern(2, 4)).attempts == 1


def test_hopeless_hessians_and_bad_arguments() -> None:
    weight, _, hessian = problem(3, 8, 30)
    hopeless = torch.eye(8).double()
    hopeless[0, 1] = hopeless[1, 0] = 1e12
    with pytest.raises(ValueError, match=r"fc2 could not be factored with damping from 0\.01 to 1e\+06"):
        sparsegpt(weight, hopeless, NMPattern(2, 4), name="fc2")
    with pytest.raises(ValueError, match=r"must have shape \(8, 8\), got \(4, 4\)"):
        sparsegpt(weight, hessian[:4, :4], NMPattern(2, 4))
    with pytest.raises(ValueError, match="not divisible by m=3"):
        sparsegpt(weight, hessian, NMPattern(1, 3))
    with pytest.raises(ValueError, match="damping must be at least 0"):
        sparsegpt(weight, hessian, NMPattern(2, 4), damping=-0.1)
    with pytest.raises(TypeError, match="prunes to n:m patterns"):
        sparsegpt(weight, hessian, Block(8))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Hessian of weight has values that are not finite"):
        sparsegpt(weight, hessian * float("nan"), NMPattern(2, 4))
    with pytest.raises(ValueError, match=r"^weight has values that are not finite"):
        sparsegpt(weight * float("nan"), hessian, NMPattern(2, 4))


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu_and_repeats_itself() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    weight, _, hessian = problem(64, 256, 1000)
    here = sparsegpt(weight, hessian, NMPattern(2, 4))
    there, again = (sparsegpt(weight.cuda(), hessian.cuda(), NMPattern(2, 4)) for _ in range(2))
    assert torch.equal(there.weight, again.weight)
    assert torch.equal(here.mask, there.mask.cpu())
    torch.testing.assert_close(here.weight, there.weight.cpu())


def statistics(inputs: Tensor, hessian: Tensor | None) -> InputStatistics:
    return InputStatistics(len(inputs), inputs.square().sum(0), inputs.abs().amax(), hessian)


def test_compensation_keeps_the_norm_of_each_row() -> None:
    weight = problem(6, 16, 10)[0]
    weight[2] = 0
    mask = nm_mask(weight, 2, 4)
    mask[3] = False
    factor = compensate_scale(weight, mask)
    kept = weight * mask * factor[:, None]
    rows = [0, 1, 4, 5]
    torch.testing.assert_close(kept.norm(dim=1)[rows], weight.norm(dim=1)[rows])
    assert factor[[2, 3]].tolist() == [1.0, 1.0]
    assert compensate_scale(weight.half(), mask).dtype == torch.float32


def test_compensation_by_least_squares_is_the_best_factor() -> None:
    weight, inputs, hessian = problem(6, 16, 50)
    mask = nm_mask(weight, 2, 4)
    factor = compensate_scale(weight, mask, statistics(inputs, hessian))
    for row in range(6):
        basis = (inputs @ (weight * mask)[row])[:, None]
        best = torch.linalg.lstsq(basis, inputs @ weight[row]).solution
        assert float(factor[row]) == pytest.approx(float(best))
    other = weight * mask * 0.5
    torch.testing.assert_close(
        compensate_scale(weight, mask, statistics(inputs, hessian), pruned=other), 2 * factor
    )


def test_compensation_of_grouped_convolutions() -> None:
    weight = problem(4, 12, 10)[0].reshape(4, 3, 2, 2)
    hessians = torch.stack([problem(1, 12, 40, seed)[2] for seed in (1, 2)])
    inputs = problem(1, 12, 40)[1]
    mask = nm_mask(weight, 2, 4)
    whole = compensate_scale(weight, mask, statistics(inputs, hessians))
    halves = [
        compensate_scale(weight[rows], mask[rows], statistics(inputs, hessian))
        for rows, hessian in zip((slice(0, 2), slice(2, 4)), hessians, strict=True)
    ]
    torch.testing.assert_close(whole, torch.cat(halves))


def test_compensation_refuses() -> None:
    weight, inputs, hessian = problem(4, 8, 20)
    mask = nm_mask(weight, 2, 4)
    with pytest.raises(ValueError, match="mask must have the weight's shape"):
        compensate_scale(weight, mask[:2])
    with pytest.raises(ValueError, match="pruned must have the weight's shape"):
        compensate_scale(weight, mask, pruned=weight[:2])
    with pytest.raises(ValueError, match="needs the Hessian"):
        compensate_scale(weight, mask, statistics(inputs, None))
    with pytest.raises(ValueError, match="does not fit"):
        compensate_scale(weight, mask, statistics(inputs, hessian[:4, :4]))
