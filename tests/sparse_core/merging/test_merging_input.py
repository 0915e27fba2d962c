"""What merge refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sparse_core.merging import TaskVector
from sparse_core.merging.api import merge

BASE = {"w": torch.ones(4), "n": torch.tensor(1)}
DELTA = {"w": torch.ones(4)}


@pytest.mark.parametrize(
    ("vectors", "options", "message"),
    [
        ([], {}, "task_arithmetic needs vectors, got 0"),
        ([DELTA, DELTA], {"method": "slerp"}, "slerp needs one vector, got 2"),
        ([DELTA], {"method": "tiess"}, r"unknown method 'tiess' \(did you mean 'ties'\?\)"),
        (
            [{"v": torch.ones(4)}],
            {},
            r"vector 0 has other tensors than the base: 1 tensors missing \(first: 'w'\)",
        ),
        (
            [DELTA, {"w": torch.ones(3)}],
            {},
            r"vector 1 has other .*: tensor 'w' has shape \(3,\), the base has \(4,\)",
        ),
        ([{"w": torch.tensor([1, torch.nan, 0, 0])}], {}, "vector 0, tensor 'w', holds NaN or infinity"),
        (
            [{"w": torch.tensor([1, torch.inf, 0, 0])}],
            {"method": "ties", "density": 0.5},
            "vector 0, tensor 'w'",
        ),
        (
            [{"w": torch.tensor([1, torch.nan, 0, 0])}],
            {"method": "dare", "density": 0.1},
            "vector 0, tensor 'w'",
        ),
        (
            [DELTA],
            {"density": 0.3},
            "task_arithmetic has no density: leave it out, .*: ties, dare_linear",
        ),
        ([DELTA], {"method": "ties", "gamma": 0.1}, "ties has no gamma: .*: breadcrumbs, breadcrumbs_ties$"),
        ([DELTA], {"method": "ties", "density": 0.0}, "density must be above 0"),
        ([DELTA], {"method": "ties", "density": 1.2}, "density must be from 0 to 1, got 1.2"),
        ([DELTA], {"weight": [0.5, 0.5]}, "weight: 2 numbers for 1 vectors"),
        ([DELTA], {"weight": float("nan")}, "weight must be finite, got nan"),
        ([DELTA], {"method": "breadcrumbs", "gamma": 1.0}, "gamma must be at least 0 and below 1"),
        ([DELTA], {"elect": "votes"}, "elect must be 'mass' or 'count', got 'votes'"),
        ([DELTA], {"seed": -1}, "seed must be a whole number from 0"),
    ],
)
def test_errors_say_what_is_wrong(vectors: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merge(BASE, vectors, **options)


def test_a_base_with_nan_is_named() -> None:
    with pytest.raises(ValueError, match="the base, tensor 'w', holds NaN"):
        merge({"w": torch.full((4,), torch.nan)}, [DELTA])


def test_overflow_names_the_type() -> None:
    with pytest.raises(
        ValueError, match=r"tensor 'w': the merged numbers reach 8e.04, more than float16 holds"
    ):
        merge({"w": torch.zeros(2).half()}, [{"w": torch.tensor([40000.0, 1.0])}], weight=2.0)


def test_tuned_models_are_no_vectors() -> None:
    generator = torch.Generator().manual_seed(0)
    base = {"w": torch.randn(16, 8, generator=generator)}
    delta = {"w": 0.1 * torch.randn(16, 8, generator=generator)}
    tuned = {"w": base["w"] + delta["w"]}
    with pytest.raises(ValueError, match=r"vector 1 looks like a tuned model.*TaskVector.between"):
        merge(base, [delta, tuned])
    with pytest.raises(TypeError, match=r"vector 0 is a model: pass TaskVector.between"):
        merge(base, [torch.nn.Linear(8, 16)])  # type: ignore[list-item]
    # A task vector is never checked, and neither are few numbers.
    with pytest.raises(TypeError, match=r"vectors must be a list, got one TaskVector: pass \[vector\]"):
        merge(base, TaskVector(tuned))  # type: ignore[arg-type]
    torch.testing.assert_close(merge(base, [TaskVector(tuned)], weight=1.0)["w"], base["w"] + tuned["w"])
    assert merge({"w": torch.ones(2)}, [{"w": torch.ones(2)}], weight=1.0)["w"].tolist() == [2, 2]
