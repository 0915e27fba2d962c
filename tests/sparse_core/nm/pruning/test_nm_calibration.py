"""Input statistics against the layers' own outputs, and what a calibration run leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm.pruning import calibration
from sparse_core.nm.pruning.calibration import collect_inputs


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_pre_hooks) for module in model.modules())


def test_linear_statistics_are_those_of_the_rows() -> None:
    batches = [random(3, 5, 8, seed=seed) for seed in range(3)] + [random(8, seed=9)]
    layer = nn.Linear(8, 4)
    found = collect_inputs(layer, batches, layers={"": layer}, hessian=True)[""]
    rows = torch.cat([batch.reshape(-1, 8) for batch in batches]).double()
    assert found.rows == 46
    assert found.hessian is not None
    assert found.sum_of_squares.dtype == torch.float64
    torch.testing.assert_close(found.sum_of_squares, rows.square().sum(0), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.norm, rows.norm(dim=0), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.hessian.double(), 2 / 46 * rows.T @ rows, rtol=1e-5, atol=1e-6)
    assert float(found.largest) == pytest.approx(float(rows.abs().max()))


CONVOLUTIONS: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": (1, 3), "stride": (2, 1), "padding": (2, 1), "dilation": (1, 2)},
    {"kernel_size": (2, 4), "padding": "same", "dilation": (1, 2)},
    {"kernel_size": 3, "padding": "valid", "groups": 2},
    {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"},
    {"kernel_size": 3, "padding": 2, "padding_mode": "circular", "groups": 4},
    {"kernel_size": (3, 2), "padding": (0, 1), "padding_mode": "replicate", "stride": 2},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_hessian_predicts_the_energy_of_a_convolution(options: dict[str, Any]) -> None:
    """Σ y² of each output channel is rows/2 · w H wᵀ: the layer itself is the oracle."""
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, bias=False, **options).double()
    batches = [random(2, 4, 9, 11, seed=1).double(), random(1, 4, 7, 8, seed=2).double()]
    found = collect_inputs(layer, batches, layers=[""], hessian=True)[""]
    energy = sum(layer(batch).square().sum(dim=(0, 2, 3)) for batch in batches)
    assert found.hessian is not None
    assert found.hessian.dtype == torch.float64
    groups = layer.groups
    hessian = found.hessian.reshape(groups, *found.hessian.shape[-2:])
    rows = layer.weight.detach().reshape(groups, 8 // groups, -1)
    predicted = ((rows @ hessian) * rows).sum(2).flatten() * found.rows / 2
    torch.testing.assert_close(predicted, energy.detach())
    diagonal = hessian.diagonal(dim1=1, dim2=2) * found.rows / 2
    torch.testing.assert_close(found.sum_of_squares.reshape(groups, -1), diagonal)


def test_pieces_of_a_large_image_batch_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, images = nn.Conv2d(3, 4, 3), random(7, 3, 6, 6)
    whole = collect_inputs(layer, [images], layers=[""], hessian=True)[""]
    monkeypatch.setattr(calibration, "UNFOLDED_ELEMENTS", 2 * 3 * 36 * 9)
    pieces = collect_inputs(layer, [images], layers=[""], hessian=True)[""]
    assert whole.rows == pieces.rows == 7 * 16
    torch.testing.assert_close(whole.hessian, pieces.hessian)
    single = collect_inputs(layer, list(images), layers=[""], hessian=True)[""]
    torch.testing.assert_close(whole.hessian, single.hessian)


class Branches(nn.Module):
    """Calls its layers in another order than it names them, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 4)
        self.twice = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.unused = nn.Linear(4, 4)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        hidden = self.twice(self.twice(self.drop(first)) + second)
        return self.last(input=hidden)


def test_order_repeated_calls_keywords_and_kinds_of_batches() -> None:
    model = Branches()
    first, second = random(3, 4), random(3, 4, seed=1)
    found = collect_inputs(model, [(first, second)], layers=["last", "twice"])
    assert list(found) == ["twice", "last"]
    assert (found["twice"].rows, found["last"].rows) == (6, 3)
    assert found["last"].hessian is None
    by_name = collect_inputs(model, [{"second": second, "first": first}], layers=["last", "twice"])
    for name in found:
        assert torch.equal(found[name].sum_of_squares, by_name[name].sum_of_squares)


def test_the_model_is_left_as_it_was() -> None:
    model = Branches().train()
    model.twice.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    collect_inputs(model, [(random(3, 4), random(3, 4))], layers=["last"], hessian=True)
    assert (model.training, model.drop.training, model.twice.training) == (True, True, False)
    assert hooks(model) == 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_error_inside_removes_the_hooks() -> None:
    model = Branches().train()
    with pytest.raises(RuntimeError):
        collect_inputs(model, [(random(3, 4), random(3, 5))], layers=["last", "twice"])
    assert hooks(model) == 0
    assert model.training


def test_layers_that_are_not_reached_are_named() -> None:
    with pytest.raises(ValueError, match=r"no batch reached 'unused'"):
        collect_inputs(Branches(), [(random(3, 4), random(3, 4))], layers=["last", "unused"])


def test_encoder_layers_are_reached_in_spite_of_their_fast_path() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    found = collect_inputs(model, [random(2, 5, 8)], layers=["linear1", "linear2"])
    assert [statistics.rows for statistics in found.values()] == [10, 10]
    with pytest.raises(ValueError, match=r"out_proj'.*nn.MultiheadAttention"):
        collect_inputs(model, [random(2, 5, 8)], layers=["self_attn.out_proj"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    layer = nn.Linear(8, 4, dtype=dtype)
    inputs = (random(500, 8) * 100).to(dtype)
    found = collect_inputs(layer, [inputs], layers=[""], hessian=True)[""]
    expected = inputs.double().T @ inputs.double() * 2 / 500
    assert found.hessian is not None
    assert found.hessian.dtype == torch.float32
    torch.testing.assert_close(found.hessian.double(), expected, rtol=1e-5, atol=1e-2)


def test_bad_arguments() -> None:
    layer = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="batches is empty"):
        collect_inputs(layer, [], layers=[""])
    with pytest.raises(ValueError, match=r"no layers \['nowhere'\]"):
        collect_inputs(layer, [random(1, 4)], layers=["nowhere"])
    with pytest.raises(ValueError, match="layers is empty"):
        collect_inputs(layer, [random(1, 4)], layers=[])
    with pytest.raises(TypeError, match="'0' must be Linear, Conv2d or Conv1D, got ReLU"):
        collect_inputs(nn.Sequential(nn.ReLU()), [random(1, 4)], layers=["0"])
    with pytest.raises(ValueError, match="are not finite"):
        collect_inputs(layer, [torch.full((2, 4), float("inf"))], layers=[""])
    with pytest.raises(ValueError, match="only given empty inputs"):
        collect_inputs(layer, [random(0, 4)], layers=[""])


def test_batches_that_the_model_does_not_take_are_named() -> None:
    model = nn.Sequential(nn.Linear(8, 4))
    for batch in ((random(3, 8), random(3)), [random(3, 8), random(3)]):
        with pytest.raises(
            TypeError, match=r"has 2 parts, which Sequential does not take .*leave out labels"
        ):
            collect_inputs(model, [batch], layers=["0"])
    with pytest.raises(ValueError, match=r"a layer of width 8 got an input of shape \(3, 6\)"):
        collect_inputs(model, [random(3, 6)], layers=["0"])
    assert collect_inputs(model, [(random(3, 8),)], layers=["0"])["0"].rows == 3
