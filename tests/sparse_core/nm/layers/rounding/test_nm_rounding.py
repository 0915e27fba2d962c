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
    found = quantise_input(x[:5])
    assert found[1] == pytest.approx(2.5 / 127)
    assert found[0].tolist() == [25, 76, 127, -25, -76]


def test_nothing_and_integers() -> None:
    rounded, scale = quantise_input(torch.zeros(0, 4))
    assert (rounded.shape, rounded.dtype, scale.item()) == ((0, 4), torch.int8, 1.0)
    with pytest.raises(TypeError, match="floating point"):
        quantise_input(torch.arange(3))
