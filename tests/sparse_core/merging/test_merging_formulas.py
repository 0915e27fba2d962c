"""Merges against worked examples and mergekit's documented formulas, written here in plain numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from sparse_core.merging.api import merge
from sparse_core.merging.arithmetic.pieces import PIECE
from sparse_core.merging.methods import METHODS
from sparse_core.merging.task_vector import TaskVector

WEIGHTS = (0.4, 1.1, 0.7)


def trimmed(delta: np.ndarray, density: float) -> np.ndarray:
    """The ``int(density * n)`` largest magnitudes, lower positions first among equals."""
    keep = int(density * len(delta) + 1e-6)
    order = np.argsort(-np.abs(delta), kind="stable")
    kept = np.zeros_like(delta)
    kept[order[:keep]] = delta[order[:keep]]
    return kept


def crumbs(delta: np.ndarray, density: float, gamma: float) -> np.ndarray:
    """Without the ``gamma`` largest and as many of the smallest as leave ``density``."""
    keep = int(density * len(delta) + 1e-6)
    top = min(int(gamma * len(delta) + 1e-6), len(delta) - keep)
    order = np.argsort(-np.abs(delta), kind="stable")[top : top + keep]
    kept = np.zeros_like(delta)
    kept[order] = delta[order]
    return kept


def consensus(deltas: np.ndarray, weights: np.ndarray, elect: str, normalize: bool) -> np.ndarray:
    """Sign election and the sum or mean of those that agree."""
    weighted = deltas * weights[:, None]
    votes = weighted.sum(0) if elect == "mass" else np.sign(weighted).sum(0)
    majority = np.where(votes >= 0, 1.0, -1.0)
    mask = np.sign(weighted) == majority
    total = (weighted * mask).sum(0)
    if not normalize:
        return total
    divisor = (weights[:, None] * mask).sum(0)
    divisor[divisor == 0] = 1
    return total / divisor


def random_case(count: int, models: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    # Halves, so that magnitudes tie and signs cancel exactly.
    deltas = np.where(
        generator.random((models, count)) < 0.3,
        generator.integers(-3, 4, (models, count)) / 2,
        generator.normal(size=(models, count)),
    )
    return generator.normal(size=count), deltas


def run(base: np.ndarray, deltas: np.ndarray, method: str, **options: object) -> np.ndarray:
    vectors = [{"w": torch.from_numpy(delta)} for delta in deltas]
    found = merge({"w": torch.from_numpy(base)}, vectors, method, WEIGHTS[: len(deltas)], **options)  # type: ignore[arg-type]
    return found["w"].numpy()


# Below and above the size from which the threshold comes from a sample, and threads share the work.
@pytest.mark.parametrize("count", [1, 37, 1000, 3 * PIECE + 5, 9 * PIECE + 11])
@pytest.mark.parametrize("density", [0.1, 0.55, 1.0])
@pytest.mark.parametrize("elect", ["mass", "count"])
def test_ties(count: int, density: float, elect: str) -> None:
    if count == 1 and density < 1:
        pytest.skip("one number has no share")
    base, deltas = random_case(count)
    kept = np.stack([trimmed(delta, density) for delta in deltas])
    expected = base + 0.8 * consensus(kept, np.array(WEIGHTS), elect, True)
    found = run(base, deltas, "ties", density=density, elect=elect, scale=0.8)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("normalize", [None, True, False])
@pytest.mark.parametrize("method", ["breadcrumbs", "breadcrumbs_ties"])
@pytest.mark.parametrize(("density", "gamma"), [(0.5, 0.1), (0.9, 0.3), (0.2, 0.0)])
def test_breadcrumbs(method: str, normalize: bool | None, density: float, gamma: float) -> None:
    for count in (500, 5 * PIECE + 3):
        base, deltas = random_case(count, seed=1)
        kept = np.stack([crumbs(delta, density, gamma) for delta in deltas])
        weights = np.array(WEIGHTS)
        if method.endswith("ties"):
            mixed = consensus(kept, weights, "mass", bool(normalize))
        else:
            mixed = (kept * weights[:, None]).sum(0) / (weights.sum() if normalize else 1)
        found = run(base, deltas, method, density=density, gamma=gamma, normalize=normalize)
        np.testing.assert_allclose(found, base + mixed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("normalize", [None, True, False])
def test_task_arithmetic_and_linear(normalize: bool | None) -> None:
    base, deltas = random_case(777)
    weights = np.array(WEIGHTS)
    added = (deltas * weights[:, None]).sum(0) / (weights.sum() if normalize else 1)
    np.testing.assert_allclose(run(base, deltas, "task_arithmetic", normalize=normalize), base + added)
    models = ((base + deltas) * weights[:, None]).sum(0) / (1 if normalize is False else weights.sum())
    np.testing.assert_allclose(run(base, deltas, "linear", normalize=normalize), models, rtol=1e-10)


@pytest.mark.parametrize("method", ["dare", "dare_ties"])
@pytest.mark.parametrize("rescale", [True, False])
def test_dare_follows_its_own_masks(method: str, rescale: bool) -> None:
    base, deltas = random_case(4000)
    vectors = [TaskVector({"w": torch.from_numpy(delta)}) for delta in deltas]
    kept = np.stack(
        [
            vector.dare(0.3, seed=5, rescale=rescale, number=i).deltas["w"].numpy()
            for i, vector in enumerate(vectors)
        ]
    )
    weights = np.array(WEIGHTS)
    if method == "dare_ties":
        mixed = consensus(kept, weights, "mass", False)
    else:
        mixed = (kept * weights[:, None]).sum(0)
    found = run(base, deltas, method, density=0.3, seed=5, rescale=rescale)
    np.testing.assert_allclose(found, base + mixed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_slerp(t: float) -> None:
    base, deltas = random_case(5000, models=1)
    other = base + deltas[0]
    cosine = base @ other / np.linalg.norm(base) / np.linalg.norm(other)
    angle = math.acos(cosine)
    expected = (math.sin((1 - t) * angle) * base + math.sin(t * angle) * other) / math.sin(angle)
    found = merge({"w": torch.from_numpy(base)}, [{"w": torch.from_numpy(deltas[0])}], "slerp", t)
    np.testing.assert_allclose(found["w"].numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("delta", [torch.ones(4), -torch.ones(4), 1e-6 * torch.arange(4.0)])
def test_slerp_of_parallel_and_zero_tensors_is_linear(delta: torch.Tensor) -> None:
    base = {"w": torch.ones(4)}
    found = merge(base, [{"w": delta}], "slerp", 0.25)
    torch.testing.assert_close(found["w"], base["w"] + 0.25 * delta)


def test_negative_weights_divide_as_documented() -> None:
    base, deltas = random_case(600)
    weights = np.array([1.0, -1.0, 0.5])
    vectors = [{"w": torch.from_numpy(delta)} for delta in deltas]
    found = merge({"w": torch.from_numpy(base)}, vectors, "ties", list(weights))["w"].numpy()
    np.testing.assert_allclose(found, base + consensus(deltas, weights, "mass", True), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_types_stay_and_whole_numbers_are_copied(method: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    base = {
        "w": torch.randn(30, 7).to(dtype),
        "steps": torch.tensor(7),
        "none": torch.empty(0, 3, dtype=dtype),
    }
    tuned = {"w": base["w"] + 0.1, "steps": torch.tensor(9), "none": base["none"]}
    vectors = [TaskVector.between(base, tuned)] * METHODS[method].least
    merged = merge(base, vectors, method, 1.0)
    assert {name: (value.dtype, value.shape) for name, value in merged.items()} == {
        name: (value.dtype, value.shape) for name, value in base.items()
    }
    assert int(merged["steps"]) == 7
    torch.testing.assert_close(merged["w"], tuned["w"], rtol=1e-2, atol=1e-2)


def test_modules_and_transposed_tensors_are_taken() -> None:
    torch.manual_seed(0)
    base, tuned = nn.Linear(4, 3), nn.Linear(4, 3)
    vector = TaskVector.between(base, tuned)
    for name, value in merge(base, [vector], weight=1.0).items():
        torch.testing.assert_close(value, tuned.state_dict()[name])
    matrix = torch.randn(5, 3)
    merged = merge({"w": matrix.T}, [{"w": matrix.T.contiguous()}], weight=1.0)
    torch.testing.assert_close(merged["w"], 2 * matrix.T)


@pytest.mark.parametrize("method", ["ties", "dare_ties", "breadcrumbs"])
def test_result_does_not_depend_on_threads_or_pieces(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, deltas = random_case(20 * 1024)
    plain = run(base, deltas, method, density=0.3)
    monkeypatch.setattr("sparse_core.merging.arithmetic.pieces.PIECE", 1022)
    monkeypatch.setattr("sparse_core.merging.arithmetic.thresholds._SMALL", 4096)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert (run(base, deltas, method, density=0.3) == plain).all()
    finally:
        torch.set_num_threads(before)


@pytest.mark.gpu
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_gpu_agrees(method: str, cuda: torch.device) -> None:
    torch.manual_seed(0)
    base = {"w": torch.randn(300, 500)}
    vectors = [{"w": torch.randn(300, 500)} for _ in range(METHODS[method].most or 3)]
    expected = merge(base, vectors, method, 0.3, 0.4)
    found = merge(
        {"w": base["w"].to(cuda)}, [{"w": vector["w"].to(cuda)} for vector in vectors], method, 0.3, 0.4
    )
    torch.testing.assert_close(found["w"].cpu(), expected["w"])
