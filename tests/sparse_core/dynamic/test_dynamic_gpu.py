"""Sparse training on a GPU: the same as on the CPU, the same every time, and without waits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from sparse_core.dynamic.rigl.exchange import exchange_cells
from sparse_core.dynamic.rigl.layers import RigLConv2d, RigLLinear
from sparse_core.dynamic.rigl.schedule import RigLScheduler

# The mode that finds waits says so once a process.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode")]

STRUCTURES = [("unstructured", 16), ("fan-in", 16), ("block", 16), ("block", (32, 8)), ("block", 6)]


@pytest.fixture
def never_waits(cuda: torch.device) -> Iterator[Callable[[Callable[[], object]], object]]:
    """Calls something once to prepare, then again with an error where the host waits for the device."""

    def check(run: Callable[[], object]) -> object:
        run()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            return run()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    yield check
    torch.cuda.set_sync_debug_mode("default")


def _network(structure: str, block: int | tuple[int, int], dtype: torch.dtype, execution: str) -> nn.Module:
    options = {
        "sparsity": 0.7,
        "structure": structure,
        "block_size": block,
        "dtype": dtype,
        "execution": execution,
    }
    return nn.Sequential(
        RigLConv2d(96, 96, 3, stride=2, padding=1, seed=1, **options),  # type: ignore[arg-type]
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        RigLLinear(96, 192, seed=2, **options),  # type: ignore[arg-type]
        nn.ReLU(),
        RigLLinear(192, 96, bias=False, seed=3, **options),  # type: ignore[arg-type]
    )


def _batches(dtype: torch.dtype, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(6, 96, 7, 7, generator=generator, dtype=dtype) for _ in range(count)]


@pytest.mark.parametrize("execution", ["sparse", "dense"])
@pytest.mark.parametrize(("structure", "block"), STRUCTURES)
def test_layers_equal_those_on_the_cpu(
    structure: str, block: int | tuple[int, int], execution: str, cuda: torch.device
) -> None:
    here = _network(structure, block, torch.float64, execution)
    there = copy.deepcopy(here).to(cuda)
    x = _batches(torch.float64, 1)[0].requires_grad_()
    y = x.detach().to(cuda).requires_grad_()
    expected, found = here(x), there(y)
    expected.square().sum().backward()
    found.square().sum().backward()
    assert torch.allclose(found.cpu(), expected, rtol=1e-9, atol=1e-11)
    assert x.grad is not None
    assert y.grad is not None
    assert torch.allclose(y.grad.cpu(), x.grad, rtol=1e-9, atol=1e-11)
    for a, b in zip(there.parameters(), here.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.allclose(a.grad.cpu(), b.grad, rtol=1e-9, atol=1e-11)


def _train(
    model: nn.Module, batches: list[Tensor], method: str = "rigl", drop: str = "magnitude"
) -> tuple[list[Tensor], list[int]]:
    """Topologies and values after every step, and how many connections were new at each update."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = RigLScheduler(
        model, optimiser, update_every=3, drop_fraction=0.4, stop_step=99, method=method, drop=drop  # type: ignore[arg-type]
    )  # fmt: skip
    found, fresh = [], []
    for x in batches:
        optimiser.zero_grad()
        model(x).square().sum().backward()
        update = scheduler.step()
        if update is not None:
            fresh.append(int(update.fresh.sum()))
        for layer in scheduler.layers.values():
            found += [layer.cells.clone(), layer.values.detach().clone()]
    return found, fresh


@pytest.mark.parametrize("drop", ["magnitude", "magnitude-gradient"])
@pytest.mark.parametrize(("structure", "block"), STRUCTURES[:4])
def test_connections_move_as_on_the_cpu(
    structure: str, block: int | tuple[int, int], drop: str, cuda: torch.device
) -> None:
    here = _network(structure, block, torch.float64, "sparse")
    there = copy.deepcopy(here).to(cuda)
    batches = _batches(torch.float64, 9)
    expected, fresh = _train(here, batches, drop=drop)
    found, again = _train(there, [x.to(cuda) for x in batches], drop=drop)
    assert sum(fresh) > 20
    assert again == fresh
    for a, b in zip(found, expected, strict=True):
        same = torch.equal(a.cpu(), b) if a.dtype == torch.int64 else torch.allclose(a.cpu(), b, atol=1e-7)
        assert same


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("method", ["rigl", "set"])
@pytest.mark.parametrize("execution", ["sparse", "dense"])
@pytest.mark.parametrize(("structure", "block"), STRUCTURES)
def test_training_repeats_to_the_bit(
    structure: str,
    block: int | tuple[int, int],
    execution: str,
    method: str,
    autocast: bool,
    cuda: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The library's own convolutions, which "dense" runs, repeat only where they are asked to.
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", execution == "dense")
    batches = [x.to(cuda) for x in _batches(torch.float32, 8)]
    runs = []
    for _ in range(2):
        model = _network(structure, block, torch.float32, execution).to(cuda)
        with torch.autocast(cuda.type, torch.bfloat16, enabled=autocast):
            runs.append(_train(model, batches, method))
    assert sum(runs[0][1]) > 20
    assert runs[0][1] == runs[1][1]
    assert all(torch.equal(a, b) for a, b in zip(runs[0][0], runs[1][0], strict=True))


@pytest.mark.parametrize(("structure", "block"), STRUCTURES[:4])
def test_autocast_follows_the_dense_twin(
    structure: str, block: int | tuple[int, int], cuda: torch.device
) -> None:
    layer = RigLLinear(192, 96, sparsity=0.7, structure=structure, block_size=block, device=cuda)  # type: ignore[arg-type]
    dense = layer.to_dense()
    x = torch.randn(70, 192, device=cuda)
    with torch.autocast(cuda.type, torch.bfloat16):
        found, expected = layer(x), dense(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert torch.allclose(found.float(), expected.float(), atol=0.03, rtol=0.03)
    found.float().square().sum().backward()
    expected.float().square().sum().backward()
    assert layer.values.grad is not None
    assert layer.values.grad.dtype == torch.float32
    wanted = layer.grid.gather(dense.weight.grad, layer.cells)
    assert float((layer.values.grad - wanted).norm() / wanted.norm()) < 0.02


@pytest.mark.parametrize(("structure", "block"), [("unstructured", 16), ("fan-in", 16), ("block", 16)])
def test_steps_between_updates_never_wait(
    structure: str,
    block: int,
    cuda: torch.device,
    never_waits: Callable[[Callable[[], object]], object],
) -> None:
    model = _network(structure, block, torch.float32, "sparse").to(cuda)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = RigLScheduler(model, optimiser, update_every=50, stop_step=999)
    x = _batches(torch.float32, 1)[0].to(cuda)

    def step() -> None:
        optimiser.zero_grad()
        model(x).square().sum().backward()
        scheduler.step()

    never_waits(step)


@pytest.mark.parametrize("per_row", [0, 4])
def test_an_exchange_never_waits(
    per_row: int, cuda: torch.device, never_waits: Callable[[Callable[[], object]], object]
) -> None:
    structure = "fan-in" if per_row else "unstructured"
    layer = RigLLinear(40, 24, sparsity=0.9, structure=structure, device=cuda)  # type: ignore[arg-type]
    growth = torch.rand(layer.grid.shape, device=cuda)

    def exchange() -> None:
        score = layer.grid.of_cells(layer.values.detach())
        layer.exchange(exchange_cells(layer.cells, score, growth, layer.grid, 20))

    never_waits(exchange)


@pytest.mark.parametrize(("structure", "block"), [("unstructured", 16), ("block", 16)])
def test_a_step_replays_in_a_cuda_graph(structure: str, block: int, cuda: torch.device) -> None:
    layer = RigLLinear(192, 96, sparsity=0.8, structure=structure, block_size=block, device=cuda)  # type: ignore[arg-type]
    x = torch.randn(40, 192, device=cuda, requires_grad=True)

    def run() -> tuple[Tensor, ...]:
        y = layer(x)
        return y.detach(), *torch.autograd.grad(y.square().sum(), [x, layer.values])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
        layer.values.mul_(2)
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(found, run(), strict=True))


def test_training_resumes_from_a_file_written_on_the_gpu(cuda: torch.device, tmp_path) -> None:
    batches = [x.to(cuda) for x in _batches(torch.float64, 8)]
    models = [_network("block", 16, torch.float64, "sparse").to(cuda) for _ in range(2)]
    ends = []
    for model, stops in zip(models, (False, True), strict=True):
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
        scheduler = RigLScheduler(model, optimiser, update_every=3, stop_step=99, method="set", seed=4)
        for number, x in enumerate(batches):
            if stops and number == 4:
                torch.save([part.state_dict() for part in (model, optimiser, scheduler)], tmp_path / "state")
                model = _network("block", 16, torch.float64, "sparse").to(cuda)
                optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
                scheduler = RigLScheduler(model, optimiser, update_every=3, stop_step=99, method="set")
                for part, state in zip(
                    (model, optimiser, scheduler),
                    torch.load(tmp_path / "state", map_location="cpu"),
                    strict=True,
                ):
                    part.load_state_dict(state)
            optimiser.zero_grad()
            model(x).square().sum().backward()
            scheduler.step()
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 3, 16, 17])
def test_few_rows_without_gradients(rows: int, dtype: torch.dtype, cuda: torch.device) -> None:
    layer = RigLLinear(300, 120, sparsity=0.9, structure="fan-in", device=cuda)
    with torch.no_grad():
        assert layer.bias is not None
        layer.bias.copy_(torch.randn(120))
    layer, dense = layer.to(dtype), layer.to_dense().to(dtype)
    x = torch.randn(rows, 300, device=cuda, dtype=dtype)
    with torch.no_grad():
        found = layer(x)
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    assert torch.allclose(found, dense(x), rtol=limit, atol=limit)
    # With gradients another product runs.
    assert torch.allclose(found, layer(x), rtol=limit, atol=limit)
    assert torch.equal(found, layer.requires_grad_(False)(x))
