"""Methods beside TIES and its relatives, against closed forms and plain numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sparse_core.merging.api import merge
from sparse_core.merging.arithmetic.pieces import PIECE


def rotated(*degrees: float) -> list[dict[str, Tensor]]:
    """Vectors of length 1, 2, 3 ... in a plane, at these angles."""
    angles = [math.radians(angle) for angle in degrees]
    return [
        {"w": (number + 1) * torch.tensor([math.cos(angle), math.sin(angle), 0.0], dtype=torch.float64)}
        for number, angle in enumerate(angles)
    ]


def zeros() -> dict[str, Tensor]:
    return {"w": torch.zeros(3, dtype=torch.float64)}


def direction(vector: Tensor) -> float:
    return math.degrees(math.atan2(float(vector[1]), float(vector[0])))


def test_rescaled_deltas_keep_their_sum_of_magnitudes() -> None:
    delta = torch.tensor([4.0, -3.0, 2.0, -1.0], dtype=torch.float64)
    base = {"w": torch.zeros(4, dtype=torch.float64)}
    found = merge(base, [{"w": delta}], "ties", 1.0, 0.5, rescale=True)["w"]
    torch.testing.assert_close(found, torch.tensor([4.0, -3.0, 0, 0], dtype=torch.float64) * 10 / 7)
    middle = merge(base, [{"w": delta}], "breadcrumbs", 1.0, 0.5, gamma=0.25, rescale="l1")["w"]
    torch.testing.assert_close(middle, torch.tensor([0, -3.0, 2.0, 0], dtype=torch.float64) * 2)
    wide = torch.randn(5 * PIECE + 3, generator=torch.Generator().manual_seed(0)).double()
    for method in ("dare", "della_linear"):
        kept = merge({"w": 0 * wide}, [{"w": wide}], method, 1.0, 0.3, rescale="l1")["w"]
        assert float(kept.abs().sum()) == pytest.approx(float(wide.abs().sum()), rel=1e-12)
        share = float((kept != 0).double().mean())
        assert share == pytest.approx(0.3, abs=5 * math.sqrt(0.3 * 0.7 / wide.numel()))
    tiny = 1e-9 * delta
    assert torch.equal(merge(base, [{"w": tiny}], "ties", 1.0, 0.25, rescale=True)["w"], tiny * (delta == 4))


def test_della_keeps_large_magnitudes_more_often() -> None:
    """Among equal ranks of many rows the share kept is the probability, within five standard errors."""
    rows, width, density, epsilon = 4000, 5, 0.5, 0.3
    order = torch.rand(rows, width, generator=torch.Generator().manual_seed(1)).argsort(dim=1)
    delta = (order + 1).double() * torch.where(order % 2 == 0, 1.0, -1.0)
    found = merge(
        {"w": torch.zeros_like(delta)},
        [{"w": delta}],
        "della_linear",
        1.0,
        density,
        3,
        epsilon=epsilon,
        rescale=False,
    )["w"]
    assert torch.equal(found[found != 0], delta[found != 0])
    for rank in range(width):
        expected = density - epsilon + 2 * epsilon * rank / (width - 1)
        share = float((found[order == rank] != 0).double().mean())
        assert share == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / rows))
    with pytest.raises(ValueError, match=r"density 0\.1 with epsilon 0.2 leaves the range"):
        merge({"w": -delta}, [{"w": delta}], "della", 1.0, 0.1, epsilon=0.2)
    single = {"w": torch.ones(1)}
    assert float(merge({"w": torch.zeros(1)}, [single], "della", 1.0, 0.5)["w"]) in (0.0, 1.0)


def test_nuslerp_goes_along_the_arc() -> None:
    first, second = rotated(10, 70)
    for weights, angle in (((1, 1), 40), ((3, 1), 25), ((0, 2), 70)):
        # Unit lengths: the arc is followed at even speed.
        unit = [{"w": vector["w"] / vector["w"].norm()} for vector in (first, second)]
        found = merge(zeros(), unit, "nuslerp", list(weights))["w"]
        assert float(found.norm()) == pytest.approx(1)
        assert direction(found) == pytest.approx(angle)
    base = {"w": torch.tensor([0.0, 0, 5], dtype=torch.float64)}
    around = merge(base, [first, second], "nuslerp", 1.0)["w"]
    torch.testing.assert_close(around, base["w"] + merge(zeros(), [first, second], "nuslerp", 1.0)["w"])
    line = merge(zeros(), [first, {"w": 3 * first["w"]}], "nuslerp", [1.0, 1.0])["w"]
    torch.testing.assert_close(line, 2 * first["w"])
    cancelling = merge(zeros(), [first, second], "nuslerp", [1.0, -1.0])["w"]
    torch.testing.assert_close(cancelling, merge(zeros(), [first, second], "nuslerp", 0.5)["w"])


@pytest.mark.parametrize("angle", [20.0, 60.0, 90.0, 120.0])
def test_model_stock_goes_as_far_as_the_angle_says(angle: float) -> None:
    first, second = rotated(0, angle)
    cosine = math.cos(math.radians(angle))
    share = 2 * cosine / (1 + cosine)
    found = merge(zeros(), [first, second], "model_stock")["w"]
    torch.testing.assert_close(found, share * (first["w"] + second["w"]) / 2)


def test_model_stock_without_a_finite_answer_keeps_the_base() -> None:
    first, second = rotated(0, 180)
    base = {"w": torch.ones(3, dtype=torch.float64)}
    assert torch.equal(merge(base, [first, second], "model_stock")["w"], base["w"])


def test_karcher_mean_is_in_the_middle() -> None:
    # Unit vectors at these angles on one great circle: the mean angle, and the mean length 2.
    found = merge(zeros(), rotated(10, 20, 60), "karcher")["w"]
    assert direction(found) == pytest.approx(30)
    assert float(found.norm()) == pytest.approx(2)
    # Corners of a cube: the diagonal.
    corners = [{"w": row} for row in torch.eye(3, dtype=torch.float64)]
    torch.testing.assert_close(
        merge(zeros(), corners, "karcher")["w"], torch.full((3,), 1 / math.sqrt(3), dtype=torch.float64)
    )
    opposite = merge(zeros(), rotated(0, 180), "karcher")["w"]
    assert torch.isfinite(opposite).all()
    nothing = merge(zeros(), [zeros(), zeros()], "karcher")["w"]
    assert not nothing.any()
    one = rotated(33)
    assert torch.equal(merge(zeros(), one, "karcher")["w"], one[0]["w"])


def sce(base: np.ndarray, deltas: np.ndarray, share: float) -> np.ndarray:
    variance = deltas.var(axis=0)
    keep = int(np.count_nonzero(variance) * share)
    mask = np.zeros(variance.size, dtype=bool)
    mask[np.argsort(-variance, kind="stable")[:keep]] = True
    deltas = np.where(mask | (share >= 1), deltas, 0)
    weights = (deltas**2).mean(axis=1)
    weights /= weights.sum()
    agree = np.sign(deltas) == np.where(deltas.sum(axis=0) >= 0, 1, -1)
    erased = weights[:, None] * agree
    return np.asarray(base + (deltas * erased).sum(axis=0) / np.maximum(erased.sum(axis=0), 1e-6))


@pytest.mark.parametrize("count", [37, 5 * PIECE + 3])
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_sce_is_the_plain_formula(count: int, share: float) -> None:
    generator = np.random.default_rng(0)
    base, deltas = generator.normal(size=count), generator.normal(size=(3, count))
    vectors = [{"w": torch.from_numpy(delta)} for delta in deltas]
    found = merge({"w": torch.from_numpy(base)}, vectors, "sce", select_topk=share)["w"].numpy()
    np.testing.assert_allclose(found, sce(base, deltas, share), rtol=0, atol=1e-12)


def test_passthrough_copies_and_scales() -> None:
    base, delta = {"w": torch.ones(4)}, {"w": torch.arange(4.0)}
    assert merge(base, [delta], "passthrough", 1.0)["w"].tolist() == [1, 2, 3, 4]
    assert merge(base, [delta], "passthrough", 0.5)["w"].tolist() == [0.5, 1, 1.5, 2]


ROWS: list[tuple[str, dict[str, Any]]] = [
    ("model_stock", {"filter_wise": True}),
    ("nuslerp", {"nuslerp_flatten": False}),
]


@pytest.mark.parametrize(("method", "options"), ROWS, ids=lambda value: str(value))
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 2), (2, PIECE + 9), (300, 200), (6,), (0, 3), ()])
def test_rows_are_merged_each_by_itself(method: str, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    base, *deltas = (torch.randn(shape, generator=generator).double() for _ in range(3))
    found = merge({"w": base}, [{"w": delta} for delta in deltas], method, 0.4, **options)["w"]
    width = shape[-1] if shape else 1
    rows = [one.reshape(-1, width) for one in (base, *deltas)] if base.numel() else []
    expected = [
        merge({"w": start}, [{"w": one} for one in others], method, 0.4)["w"]
        for start, *others in zip(*rows, strict=True)
    ]
    plain = torch.stack(expected).reshape(shape) if expected else base
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-12)


def test_columns_are_rows_of_the_transposed() -> None:
    generator = torch.Generator().manual_seed(0)
    base, *deltas = (torch.randn(5, 7, generator=generator).double() for _ in range(3))
    found = merge(
        {"w": base}, [{"w": one} for one in deltas], "nuslerp", nuslerp_flatten=False, nuslerp_row_wise=True
    )["w"]
    turned = merge({"w": base.T}, [{"w": one.T} for one in deltas], "nuslerp", nuslerp_flatten=False)["w"]
    torch.testing.assert_close(found, turned.T)


@pytest.mark.parametrize("method", ["nuslerp", "model_stock", "karcher", "sce", "della", "dare"])
def test_threads_do_not_change_a_result(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    base = {"w": torch.randn(9 * PIECE, generator=generator)}
    vectors = [{"w": torch.randn(9 * PIECE, generator=generator)} for _ in range(2)]

    def run() -> Tensor:
        # A density that DELLA's default range fits in.
        options: dict[str, Any] = {"density": 0.5} if method in ("della", "dare") else {}
        return merge(base, vectors, method, 0.4, **options, rescale="l1" if method == "dare" else None)["w"]

    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(run())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


@pytest.mark.parametrize("method", ["nuslerp", "model_stock", "karcher", "sce", "della", "passthrough"])
def test_what_is_not_finite_is_named(method: str) -> None:
    count = 1 if method == "passthrough" else 2
    vectors = [{"w": torch.tensor([1.0, 2.0, 3.0])} for _ in range(count)]
    vectors[-1]["w"][1] = torch.nan
    with pytest.raises(ValueError, match=f"vector {count - 1}, tensor 'w', holds NaN"):
        merge({"w": torch.zeros(3)}, vectors, method, 0.5)
    large = [{"w": torch.full((3,), 6e4)} for _ in range(count)]
    with pytest.raises(ValueError, match=r"more than float16 holds|holds NaN or infinity"):
        merge({"w": torch.full((3,), 3e4, dtype=torch.float16)}, large, method, 1.0)


def test_bad_arguments() -> None:
    base, vector = {"w": torch.zeros(3)}, {"w": torch.ones(3)}
    for method, count, message in (
        ("nuslerp", 1, "nuslerp needs two vectors, got 1"),
        ("model_stock", 1, "model_stock needs 2 vectors or more, got 1"),
        ("passthrough", 2, "passthrough needs one vector, got 2"),
        ("karcher", 0, "karcher needs vectors, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            merge(base, [vector] * count, method)
    with pytest.raises(ValueError, match=r"select_top: sce has no such setting \(did you mean 'select_topk'"):
        merge(base, [vector], "sce", select_top=0.5)
    with pytest.raises(
        ValueError, match="select_topk: ties has no such setting; it has no settings of its own"
    ):
        merge(base, [vector], "ties", select_topk=0.5)
    with pytest.raises(ValueError, match="tol: expected a number above 0, got 0"):
        merge(base, [vector], "karcher", tol=0)
    with pytest.raises(ValueError, match="rescale: ties has no single keep probability"):
        merge(base, [vector], "ties", rescale="probability")
    with pytest.raises(ValueError, match=r"epsilon must be from 0 to 0\.5, got 1"):
        merge(base, [vector], "della", epsilon=1)
