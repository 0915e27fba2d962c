"""Loss along the path between two models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from sparse_core.merging.connectivity import loss_along_path, save_path_picture


def quadratic(model: nn.Module) -> float:
    """Smallest at weight 1."""
    return float((model.weight - 1).square().sum())  # type: ignore[operator, union-attr]


def test_losses_and_barrier_of_a_known_function(tmp_path: Path) -> None:
    model = nn.Linear(1, 1, bias=False)
    before = model.weight.clone()
    ends = [{"weight": torch.tensor([[value]])} for value in (0.0, 4.0)]
    path = loss_along_path(model, *ends, quadratic, points=5)
    assert path.positions == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert path.losses == (1.0, 0.0, 1.0, 4.0, 9.0)
    # A convex loss has no barrier, and the ends themselves lie on the line.
    assert (path.barrier, path.best) == (0.0, 0.25)
    assert torch.equal(model.weight, before)
    hill = loss_along_path(model, *ends, lambda found: -quadratic(found), points=5)
    assert hill.barrier == pytest.approx(-1.0 - (0.5 * -1 + 0.5 * -9))
    assert "barrier 4.0" in str(hill)
    assert hill.to_json()["best"] == 1.0
    picture = save_path_picture(tmp_path / "path.png", {"valley": path, "hill": hill}, ends=("a", "b"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_preparation_and_whole_numbers() -> None:
    model = nn.BatchNorm1d(2)
    first, second = model.state_dict(), {name: value + 2 for name, value in model.state_dict().items()}
    prepared = []

    def loss(found: nn.Module) -> float:
        assert not found.training
        assert int(found.num_batches_tracked) == 0  # type: ignore[operator, arg-type]
        return float(found.weight.sum())  # type: ignore[operator, union-attr]

    path = loss_along_path(model, first, second, loss, points=3, prepare=prepared.append)
    assert path.losses == (2.0, 4.0, 6.0)
    assert len(prepared) == 3


def test_errors(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    state = model.state_dict()
    with pytest.raises(ValueError, match="points must be at least 2"):
        loss_along_path(model, state, state, quadratic, points=1)
    with pytest.raises(ValueError, match="the second model has other tensors"):
        loss_along_path(model, state, {"weight": state["weight"]}, quadratic)
    with pytest.raises(ValueError, match=r"the loss at position 0\.000 is nan"):
        loss_along_path(model, state, state, lambda found: float("nan"))
    with pytest.raises(ValueError, match="no curves"):
        save_path_picture(tmp_path / "x.png", {})
