from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch

from sparse_core.linalg import SolveResult, cg, save_convergence_picture


def result(
    residuals: tuple[float, ...], *, tolerance: float = 1e-3, reason: str = "converged"
) -> SolveResult:
    return SolveResult(
        x=torch.zeros(4),
        converged=reason == "converged",
        iterations=max(len(residuals) - 1, 0),
        residuals=residuals,
        tolerance=tolerance,
        reason=reason,
        true_residual=residuals[-1] if residuals else 0.0,
        method="cg",
    )


def pixels(path: Path) -> np.ndarray:
    picture = matplotlib.image.imread(path)
    assert picture.shape[0] > 300
    assert picture.shape[1] > 600
    return picture[..., :3]


def test_picture_shows_a_line_of_each_colour(tmp_path: Path) -> None:
    results = {
        "good": result((10.0, 1.0, 1e-4)),
        "bad": result((10.0, float("nan"), 3.0), reason="max_iterations"),
        "exact": result((10.0, 0.0), tolerance=1e-2),
    }
    path = save_convergence_picture(results, tmp_path / "picture.png", title="three")
    assert path == tmp_path / "picture.png"
    picture = pixels(path)
    for colour in ((0, 114, 178), (213, 94, 0), (0, 158, 115)):
        assert (np.abs(picture * 255 - colour).max(axis=-1) < 4).sum() > 100, colour


@pytest.mark.parametrize("residuals", [(0.0,), (), (float("nan"),), (1.0, 0.0)])
def test_odd_histories(residuals: tuple[float, ...], tmp_path: Path) -> None:
    pixels(save_convergence_picture({"cg": result(residuals, tolerance=0.0)}, tmp_path / "odd.png"))


def test_columns_are_drawn(tmp_path: Path) -> None:
    matrix = torch.diag(torch.arange(1.0, 6.0))
    solved = cg(matrix, torch.eye(5)[:, :2] + 0.1)
    assert len(solved.columns) == 2
    pixels(save_convergence_picture({"cg": solved}, str(tmp_path / "columns.png")))


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="results is empty"):
        save_convergence_picture({}, tmp_path / "none.png")
