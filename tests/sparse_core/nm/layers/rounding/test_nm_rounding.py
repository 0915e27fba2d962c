from __future__ import annotations

from pathlib import Path

import pytest
import torch
from triton_scripts import run_script

from sparse_core.nm.layers.rounding import quantise_input

SCRIPT = Path(__file__).with_name("compare_rounding.py")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_kernels_give_the_bits_of_the_reference(
    device: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    if device == "cuda":
        request.getfixturevalue("cuda")
    report = run_script(SCRIPT, repository, device, interpret=device == "cpu")
    assert report["interpreted"] == (device == "cpu")
    assert len(report["cases"]) == 72
    assert [name for name, equal in report["cases"].items() if not equal] == []


def test_rounds_half_to_even_and_clips() -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 126.6, 900.0, -900.0, float("nan")])
    rounded, scale = quantise_input(x, torch.tensor(1.0))
    assert rounded.tolist() == [0, 2, 2, 0, -2, 127, 127, -127, 0]
    assert scale == 1.0


def test_each_row_has_a_scale() -> None:
    x = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5], [0.0, 0.0, 0.0, 0.0, 0.0], [1e-4, 0.0, -2e-4, 0.0, 0.0]])
    rounded, scales = quantise_input(x)
    assert rounded.tolist() == [[25, 76, 127, -25, -76], [0] * 5, [64, 0, -127, 0, 0]]
    torch.testing.assert_close(scales, torch.tensor([[2.5 / 127], [1.0], [2e-4 / 127]]))
    x[0, 1] = float("nan")
    rounded, scales = quantise_input(x)
    assert rounded[0].tolist() == [0] * 5
    assert scales.isnan().flatten().tolist() == [True, False, False]


def test_nothing_and_integers() -> None:
    rounded, scales = quantise_input(torch.zeros(0, 4))
    assert (rounded.shape, rounded.dtype, scales.shape) == ((0, 4), torch.int8, (0, 1))
    assert quantise_input(torch.zeros(3, 0))[1].tolist() == [[1.0]] * 3
    with pytest.raises(TypeError, match="floating point"):
        quantise_input(torch.arange(3))
