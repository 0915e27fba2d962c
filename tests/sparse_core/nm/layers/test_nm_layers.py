"""SparseLinear against the masked dense layer."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sparse_core.nm.layers.packed_layer import LAYER_FORMAT
from sparse_core.nm.layers.sparse_linear import SparseLinear, pack_weight
from sparse_core.nm.masks import fits, nm_mask
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import NMPattern


def linear_of(
    columns: int = 32, out: int = 24, *, bias: bool = True, dtype: torch.dtype = torch.float32
) -> nn.Linear:
    torch.manual_seed(columns * 1000 + out)
    return nn.Linear(columns, out, bias=bias, dtype=dtype)


def masked(linear: nn.Linear, pattern: NMPattern) -> nn.Linear:
    """The oracle: the dense layer with the small weights set to zero."""
    pruned = copy.deepcopy(linear)
    with torch.no_grad():
        pruned.weight.mul_(nm_mask(linear.weight, pattern.n, pattern.m))
    return pruned


@settings(max_examples=40)
@given(
    st.sampled_from(
        [
            NMPattern(2, 4),
            NMPattern(1, 4),
            NMPattern(3, 4),
            NMPattern(2, 8),
            NMPattern(4, 8),
            NMPattern(1, 1),
            NMPattern(2, 5),
        ]
    ),
    st.integers(1, 5),
    st.integers(1, 9),
    st.lists(st.integers(0, 4), max_size=3),
    st.booleans(),
    st.sampled_from([None, "relu", "gelu"]),
)
def test_layer_is_the_masked_linear(
    pattern: NMPattern, groups: int, out: int, lead: list[int], bias: bool, activation: Any
) -> None:
    linear = linear_of(groups * pattern.m, out, bias=bias, dtype=torch.float64)
    layer = SparseLinear.from_dense(linear, pattern, activation=activation)
    x = torch.randn(
        *lead, groups * pattern.m, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    expected = masked(linear, pattern)(x)
    if activation:
        expected = getattr(nn.functional, activation)(expected)
    assert layer(x).shape == (*lead, out)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer(x.T.contiguous().T if x.ndim == 2 else x), expected)
    assert torch.equal(layer.weight, masked(linear, pattern).weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_back_to_dense_is_exact(dtype: torch.dtype) -> None:
    linear = linear_of(dtype=dtype).requires_grad_(False).eval()
    dense = SparseLinear.from_dense(linear).to_dense()
    oracle = masked(linear, NMPattern())
    assert type(dense) is nn.Linear
    assert torch.equal(dense.weight, oracle.weight)
    assert torch.equal(dense.bias, linear.bias)
    assert dense.weight.dtype == dtype
    assert not dense.weight.requires_grad
    assert not dense.training
    assert (dense.in_features, dense.out_features) == (32, 24)


def test_gradients_are_those_of_the_masked_linear() -> None:
    linear = linear_of(dtype=torch.float64)
    oracle, layer = masked(linear, NMPattern()), SparseLinear.from_dense(linear)
    mask = nm_mask(linear.weight, 2, 4)
    x = torch.randn(5, 32, dtype=torch.float64)
    left, right = x.clone().requires_grad_(), x.clone().requires_grad_()
    weights = torch.randn(5, 24, dtype=torch.float64)
    (layer(left) * weights).sum().backward()
    (oracle(right) * weights).sum().backward()
    torch.testing.assert_close(left.grad, right.grad)
    torch.testing.assert_close(layer.values.grad, oracle.weight.grad[mask].reshape(24, 16))
    torch.testing.assert_close(layer.bias.grad, oracle.bias.grad)
    assert torch.autograd.gradcheck(layer, (left.detach().requires_grad_(),))


@pytest.mark.parametrize("keep_dense", [True, False])
def test_training_changes_what_is_multiplied(keep_dense: bool) -> None:
    layer = SparseLinear.from_dense(linear_of(), keep_dense=keep_dense)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.5)
    x, target = torch.randn(64, 32), torch.randn(64, 24)
    losses = []
    for _ in range(5):
        loss = (layer(x) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        # Evaluation between steps may use the dense copy, which must not be an old one.
        with torch.no_grad():
            torch.testing.assert_close(layer(x), layer.to_dense()(x))
    assert losses == sorted(losses, reverse=True)
    assert fits(layer.weight, layer.pattern)


def test_a_weight_that_fits_is_packed_as_it_is_and_a_mask_decides_otherwise() -> None:
    linear = linear_of()
    unusual = nm_mask(-linear.weight.abs(), 2, 4, score=-linear.weight.abs())
    layer = SparseLinear.from_dense(linear, mask=unusual)
    assert torch.equal(layer.weight, linear.weight * unusual)
    with torch.no_grad():
        linear.weight.mul_(unusual)
    assert torch.equal(SparseLinear.from_dense(linear).weight, linear.weight)
    assert torch.equal(pack_weight(linear.weight, NMPattern(3, 4)).to_dense(), linear.weight)


def test_what_the_layer_takes_over() -> None:
    linear = linear_of().eval()
    linear.weight.requires_grad_(False)
    layer = SparseLinear.from_dense(linear, NMPattern(1, 4))
    assert (layer.values.requires_grad, layer.bias.requires_grad, layer.training) == (False, True, False)
    assert SparseLinear.from_dense(linear_of(bias=False)).bias is None
    with torch.no_grad():
        layer.bias.zero_()
    assert linear.bias.abs().sum() > 0
    expected = "in_features=32, out_features=24, bias=True, pattern=1:4"
    assert repr(layer) == f"SparseLinear({expected})"
    gelu = SparseLinear.from_dense(linear, activation="gelu")
    assert repr(gelu).endswith("pattern=2:4, activation=gelu)")


def test_weight_computed_from_others_is_packed_as_computed() -> None:
    linear = nn.utils.parametrizations.weight_norm(linear_of())
    with torch.no_grad():
        layer = SparseLinear.from_dense(linear)
    assert layer.values.requires_grad
    assert torch.equal(layer.weight, linear.weight * nm_mask(linear.weight, 2, 4))
    linear.parametrizations.requires_grad_(False)
    assert not SparseLinear.from_dense(linear).values.requires_grad


class Calls:
    """Records the packed weights and dense copies that the product is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from sparse_core.nm.layers import sparse_linear as layers

        self.weights: list[Any] = []
        self.dense: list[Tensor | None] = []
        real = layers.nm_linear

        def recorded(x: Tensor, weight: Any, *arguments: Any, dense: Any = None, **options: Any) -> Tensor:
            self.weights.append(weight)
            self.dense.append(dense)
            return real(x, weight, *arguments, dense=dense, **options)

        monkeypatch.setattr(layers, "nm_linear", recorded)


def test_packed_weight_is_kept_until_the_values_change(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    layer = SparseLinear.from_dense(linear_of())
    x = torch.randn(3, 32)

    def changed() -> bool:
        layer(x.to(layer.values.dtype))
        assert calls.weights[-1].values is layer.values
        return len(calls.weights) < 2 or calls.weights[-1] is not calls.weights[-2]

    changed()
    assert not changed()
    assert layer.packed is calls.weights[-1]
    layer.values = nn.Parameter(layer.values.detach().clone())
    assert changed()
    layer.double()
    assert changed()
    assert layer.metadata.dtype == torch.uint8
    layer.to("cpu")
    layer.load_state_dict(layer.state_dict())
    assert changed()
    assert not changed()


class Plans:
    """Something an implementation prepared, which may or may not follow the values."""

    def __init__(self, follows: bool) -> None:
        self.follows = lambda values: follows


def test_plans_that_follow_the_values_outlive_a_change_in_place() -> None:
    layer = SparseLinear.from_dense(linear_of(), keep_dense=True)
    x = torch.randn(3, 32)
    layer(x)
    packed = layer.packed
    packed.plans.update(following=Plans(True), stale=Plans(False), unknown=object())
    layer(x)
    assert set(layer.packed.plans) == {"following", "stale", "unknown"}
    with torch.no_grad():
        layer.values.mul_(2)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    assert layer.packed is packed
    assert set(packed.plans) == {"following"}
    with torch.no_grad():
        torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_dense_copy_is_kept_and_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    layer = SparseLinear.from_dense(linear_of(), keep_dense=True)
    x = torch.randn(3, 32)
    layer(x)
    # A copy has no gradient for the values.
    assert calls.dense == [None]
    with torch.no_grad():
        layer(x)
        layer(x)
    assert calls.dense[1] is calls.dense[2]
    assert torch.equal(calls.dense[2], layer.weight)
    layer.requires_grad_(False)
    layer(x)
    assert calls.dense[3] is calls.dense[2]
    layer.values.mul_(2)
    layer(x)
    assert torch.equal(calls.dense[4], layer.weight)
    layer.half()
    layer(x.half())
    assert calls.dense[5].dtype == torch.float16
    calls.dense.clear()
    for keep in ("auto", False):
        plain = SparseLinear.from_dense(linear_of(), keep_dense=keep).requires_grad_(False)
        plain(x)
    assert calls.dense == [None, None]
    assert "dense" not in layer.state_dict()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_are_independent(copied: Any) -> None:
    layer = SparseLinear.from_dense(linear_of(), activation="relu", keep_dense=True)
    x = torch.randn(3, 32)
    expected = layer(x).detach()
    other = copied(layer)
    with torch.no_grad():
        layer.values.zero_()
    assert torch.equal(other(x), expected)
    assert other.packed.values is other.values


def test_inference_mode_and_functional_calls() -> None:
    linear = linear_of()
    x = torch.randn(3, 32)
    with torch.inference_mode():
        layer = SparseLinear.from_dense(linear, keep_dense=True)
        expected = layer(x)
        moved = SparseLinear.from_dense(linear).double()
        first = moved(x.double())
        moved.values.mul_(2)
        torch.testing.assert_close(moved(x.double()) - moved.bias, 2 * (first - moved.bias))
    layer(x).sum().backward()
    assert torch.equal(layer(x), expected)
    needs = x.clone().requires_grad_()
    layer.requires_grad_(False)(needs).sum().backward()
    torch.testing.assert_close(needs.grad, layer.weight.sum(dim=0).expand(3, 32))
    swapped = {"values": torch.zeros_like(layer.values), "bias": torch.ones(24)}
    assert torch.equal(torch.func.functional_call(layer, swapped, x), torch.ones(3, 24))
    assert torch.equal(layer(x), expected)


def test_compiled_layer() -> None:
    torch._dynamo.reset()
    layer = SparseLinear.from_dense(linear_of(), activation="relu", keep_dense=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 32)
    torch.testing.assert_close(compiled(x), layer(x))
    compiled(x).sum().backward()
    through_graph, layer.values.grad = layer.values.grad, None
    layer(x).sum().backward()
    torch.testing.assert_close(through_graph, layer.values.grad)
    with torch.no_grad():
        layer.values.mul_(-1)
        torch.testing.assert_close(compiled(x), layer(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(x), layer(x))
    layer.requires_grad_(False)
    torch.testing.assert_close(compiled(x), layer(x))
    layer.values.mul_(-1)
    layer.refresh()
    torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize("keep_dense", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_autocast_does_what_linear_does(keep_dense: bool, grad: bool) -> None:
    linear = linear_of()
    layer, oracle = SparseLinear.from_dense(linear, keep_dense=keep_dense), masked(linear, NMPattern())
    x = torch.randn(5, 32)
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(grad):
        for operand in (x, x.bfloat16(), x.half()):
            assert layer(operand).dtype == torch.bfloat16
            assert torch.equal(layer(operand), oracle(operand))
    if grad:
        with torch.autocast("cpu", torch.bfloat16):
            layer(x).float().sum().backward()
            oracle(x).float().sum().backward()
        mask = nm_mask(linear.weight, 2, 4)
        assert layer.values.grad.dtype == torch.float32
        torch.testing.assert_close(layer.values.grad, oracle.weight.grad[mask].reshape(24, 16))
    layer.double()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x.double()).dtype == torch.float64
        assert torch.equal(layer(x.double()), oracle.double()(x.double()))


def test_state_dict_round_trip_and_dense_weights() -> None:
    model = nn.Sequential(SparseLinear.from_dense(linear_of()), nn.ReLU(), linear_of(24, 8))
    state = model.state_dict()
    assert set(state) == {
        "0.values",
        "0.metadata",
        "0.bias",
        "0._extra_state",
        "2.weight",
        "2.bias",
    }
    assert state["0._extra_state"].tolist() == [LAYER_FORMAT, 2, 4]
    other = copy.deepcopy(model)
    fresh = nn.Linear(32, 24)
    other[0] = SparseLinear.from_dense(fresh)
    x = torch.randn(3, 32)
    for assign in (False, True):
        other[0] = SparseLinear.from_dense(fresh)
        other(x)
        other.load_state_dict(copy.deepcopy(state), assign=assign)
        assert torch.equal(other(x), model(x))
        assert other[0].values.requires_grad
    dense = {"0.weight": masked(fresh, NMPattern()).weight.detach(), "0.bias": fresh.bias.detach()}
    dense |= {name: state[name] for name in ("2.weight", "2.bias")}
    other.load_state_dict(dense)
    assert torch.equal(other[0].weight, dense["0.weight"])
    assert set(dense) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    dense["0.weight"] = fresh.weight.detach()
    before = other[0].weight
    with pytest.raises(ValueError, match=r"0\.weight is not 2:4: row 0, group 0"):
        other.load_state_dict(dense)
    dense["0.weight"] = torch.zeros(24, 36)
    with pytest.raises(ValueError, match=r"0: the stored weight has shape \(24, 36\)"):
        other.load_state_dict(dense)
    assert torch.equal(other[0].weight, before)


def test_states_of_another_kind_change_nothing() -> None:
    layer = SparseLinear.from_dense(linear_of())
    model = nn.ModuleDict({"head": layer})
    before = layer.weight

    def load(**changes: Tensor) -> None:
        model.load_state_dict(model.state_dict() | {f"head.{key}": value for key, value in changes.items()})

    other = SparseLinear.from_dense(linear_of(), NMPattern(4, 8))
    with pytest.raises(ValueError, match="head: the stored weight is 4:8 but the layer is 2:4"):
        load(**other.state_dict())
    with pytest.raises(ValueError, match="head: the stored weight has format version 7"):
        load(_extra_state=torch.tensor([7, 2, 4]))
    with pytest.raises(ValueError, match=r"head: the stored values are torch\.int8"):
        load(values=layer.values.to(torch.int8))
    with pytest.raises(ValueError, match="head: the metadata of the packed weight are damaged"):
        load(metadata=torch.zeros_like(layer.metadata))
    with pytest.raises(RuntimeError, match=r"size mismatch for head\.values"):
        load(values=torch.zeros(2, 2))
    assert torch.equal(layer.weight, before)
    with pytest.raises(ValueError, match="SparseLinear: the stored weight is 1:4"):
        layer.set_extra_state(torch.tensor([LAYER_FORMAT, 1, 4]))


def test_positions_beyond_the_group_are_found() -> None:
    # m=5 takes three bits, so 7 can be stored.
    layer = SparseLinear.from_dense(nn.Linear(5, 1), NMPattern(1, 5))
    state = {**layer.state_dict(), "metadata": torch.full((1, 1), 7, dtype=torch.uint8)}
    with pytest.raises(ValueError, match="SparseLinear: the metadata"):
        layer.load_state_dict(state)
    layer.load_state_dict({**state, "metadata": torch.full((1, 1), 4, dtype=torch.uint8)})


def test_bad_arguments_are_named() -> None:
    linear = linear_of()
    with pytest.raises(ValueError, match="30, which is not divisible by m=4"):
        SparseLinear.from_dense(linear_of(30))
    with pytest.raises(ValueError, match=r"mask of weight must be bool of shape \(24, 32\)"):
        SparseLinear.from_dense(linear, mask=torch.ones(24, 32))
    with pytest.raises(ValueError, match="the mask of weight is not 2:4: row 0, group 0"):
        SparseLinear.from_dense(linear, mask=torch.ones(24, 32, dtype=torch.bool))
    with pytest.raises(ValueError, match="keep_dense must be"):
        SparseLinear.from_dense(linear, keep_dense="always")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="activation must be"):
        SparseLinear.from_dense(linear, activation="tanh")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="impl must be one of"):
        SparseLinear.from_dense(linear, impl="cublas")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"bias must have shape \(24,\)"):
        SparseLinear(pack_weight(linear.weight, NMPattern()), torch.zeros(3))
    with pytest.raises(TypeError, match=r"floating-point values, got torch\.int8"):
        SparseLinear(pack_weight(linear.weight, NMPattern()).to(torch.int8))
    layer = SparseLinear.from_dense(linear)
    with pytest.raises(ValueError, match="32 features"):
        layer(torch.zeros(3, 24))
    with pytest.raises(TypeError, match=r"x is torch\.float64 but the weight is torch\.float32"):
        layer(torch.zeros(3, 32, dtype=torch.float64))
    with torch.no_grad():
        linear.weight[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"NaN at \(1, 2\)"):
        SparseLinear.from_dense(linear)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_layer_on_cuda(cuda: torch.device, dtype: torch.dtype, rows: int) -> None:
    linear = linear_of(256, 128)
    layer = SparseLinear.from_dense(linear).to(cuda, dtype)
    assert layer.metadata.is_cuda
    x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(0)).to(cuda, dtype)
    oracle = masked(linear, NMPattern()).to(cuda, dtype).double()(x.double())
    tolerance = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}[dtype]
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(layer(x).double(), oracle, rtol=tolerance, atol=tolerance)


def test_other_arguments_than_layers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a packed weight, got int: convert a layer with"):
        SparseLinear(64, 64)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="linear must be a Linear layer, got Tensor"):
        SparseLinear.from_dense(torch.ones(4, 4))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="linear must be a Linear layer, got Conv2d"):
        SparseLinear.from_dense(nn.Conv2d(4, 4, 3))  # type: ignore[arg-type]
    for make in (
        lambda: SparseLinear.from_dense(nn.Linear(4, 4), 2),
        lambda: PackedNM.from_dense(torch.eye(4), 2),
    ):
        with pytest.raises(TypeError, match=r"such as NMPattern\(2, 4\), got 2"):
            make()
