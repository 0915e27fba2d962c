"""Packed layers under transforms of torch.func, sharded training, copies and exports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, stack_module_state, vmap

from sparse_core.errors import ImplementationError
from sparse_core.nm import NMPattern
from sparse_core.nm.layers.sparse_linear import SparseLinear


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    first = SparseLinear.from_dense(nn.Linear(16, 8), activation="gelu")
    return nn.Sequential(first, nn.Linear(8, 8), SparseLinear.from_dense(nn.Linear(8, 4, bias=False)))


def dense(packed: nn.Sequential) -> nn.Sequential:
    """The same functions in layers of torch."""
    first, middle, last = packed
    assert isinstance(first, SparseLinear)
    assert isinstance(last, SparseLinear)
    return nn.Sequential(first.to_dense(), nn.GELU(), middle, last.to_dense())


X = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # By torch, for forward mode.
@pytest.mark.parametrize("transform", [jacrev, jacfwd, lambda f: hessian(lambda x: f(x).square().sum())])
def test_derivatives_are_those_of_dense_layers(transform: object) -> None:
    packed = model()
    found, expected = (transform(one)(X[0]) for one in (packed, dense(packed)))  # type: ignore[operator]
    torch.testing.assert_close(found, expected)


def test_gradients_of_samples_are_those_of_autograd() -> None:
    packed = model()
    parameters = dict(packed.named_parameters())

    def loss(given: dict[str, Tensor], x: Tensor) -> Tensor:
        y: Tensor = functional_call(packed, given, (x,))
        return y.square().sum()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, X)
    packed(X).square().sum().backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(each[name].sum(dim=0), parameter.grad)


def test_several_models_run_as_one() -> None:
    models = [model(seed) for seed in range(3)]
    parameters, buffers = stack_module_state(models)

    def run(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        y: Tensor = functional_call(models[0], (parameters, buffers), (x,))
        return y

    found = vmap(run, in_dims=(0, 0, None))(parameters, buffers, X)
    torch.testing.assert_close(found, torch.stack([one(X) for one in models]))
    # Nothing of the transform stays behind.
    torch.testing.assert_close(models[0](X), dense(models[0])(X))


def test_a_named_implementation_cannot_be_transformed() -> None:
    layer = model()[0]
    assert isinstance(layer, SparseLinear)
    layer.impl = "cpu"
    with pytest.raises(ImplementationError, match="impl='auto'"):
        jacrev(layer)(X[0])


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # of torch, about its own FSDP
@pytest.mark.parametrize("kind", ["parameters kept", "one flat parameter", "fully_shard"])
def test_trains_sharded(kind: str) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    packed = model()
    expected, before = model(), packed(X).detach()
    sharded: nn.Module
    if kind == "fully_shard":
        for layer in packed:
            fully_shard(layer)
        fully_shard(packed)
        sharded = packed
    else:
        kept = kind == "parameters kept"
        device = torch.device("cpu")
        sharded = FullyShardedDataParallel(packed, device_id=device, use_orig_params=kept)
    for one in (sharded, expected):
        optimiser = torch.optim.SGD(one.parameters(), 0.1)
        y = one(X)
        torch.testing.assert_close(y.detach(), before)
        y.square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(sharded(X), expected(X))
    state = sharded.state_dict()
    assert set(state) == set(expected.state_dict())
    if kind != "fully_shard":
        fresh = model(5)
        fresh.load_state_dict(state)
        torch.testing.assert_close(fresh(X), expected(X))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # of torch's exporter
@pytest.mark.parametrize(("pattern", "quantised"), [((2, 4), False), ((4, 8), True)])
def test_exports_to_onnx(pattern: tuple[int, int], quantised: bool, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    layer: nn.Module = SparseLinear.from_dense(nn.Linear(16, 8), NMPattern(*pattern), activation="relu")
    if quantised:
        assert isinstance(layer, SparseLinear)
        layer = layer.quantise()
    layer.eval()
    program = torch.onnx.export(layer, (X,), dynamo=True, verbose=False)
    assert program is not None
    program.save(tmp_path / "layer.onnx")
    session = runtime.InferenceSession(tmp_path / "layer.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), layer(X).detach(), atol=1e-5, rtol=1e-5)


# Of torch, about jit.trace and about sizes that are fixed in it.
@pytest.mark.filterwarnings("ignore:.torch.jit.trace", "ignore::torch.jit.TracerWarning")
def test_exports_and_traces() -> None:
    packed = model().eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(packed, (X,), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(program.module()(X[:2]), packed(X[:2]))
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.trace(packed, (X,))(X[:2]), packed(X[:2]))


@pytest.mark.parametrize("wrong", ["2:4", 2.0, True])
def test_patterns_of_other_types_say_what_to_write(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"whole number.*NMPattern"):
        NMPattern(wrong)  # type: ignore[arg-type]
