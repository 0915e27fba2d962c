"""RigL and SET step by step against dense tensors with masks, and what a topology update may touch."""

from __future__ import annotations

import copy

import pytest
import torch
from masked_training import MaskedTraining, cosine
from torch import Tensor, nn

from sparse_core.dynamic.rigl.conversion import dense_training, sparse_training
from sparse_core.dynamic.rigl.exchange import exchange_cells
from sparse_core.dynamic.rigl.grid import plan_grid
from sparse_core.dynamic.rigl.layers import RigLConv2d, RigLLinear
from sparse_core.dynamic.rigl.schedule import RigLScheduler
from sparse_core.dynamic.rigl.sparse_layer import SparseTrainedLayer

STEPS, EVERY, STOP = 12, 3, 11


def _network(structure: str, execution: str, block: tuple[int, int]) -> nn.Sequential:
    options = {
        "sparsity": 0.7,
        "structure": structure,
        "execution": execution,
        "block_size": block,
        "dtype": torch.float64,
    }
    return nn.Sequential(
        RigLConv2d(4, 8, 2, stride=2, padding=1, seed=1, **options),  # type: ignore[arg-type]
        nn.ReLU(),
        nn.Flatten(),
        RigLLinear(72, 24, seed=2, **options),  # type: ignore[arg-type]
        nn.ReLU(),
        RigLLinear(24, 8, bias=False, seed=3, **options),  # type: ignore[arg-type]
    )


def _batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(6, 4, 5, 5, generator=generator, dtype=torch.float64) for _ in range(STEPS)]


def _layers(model: nn.Module) -> list[SparseTrainedLayer]:
    return [module for module in model.modules() if isinstance(module, SparseTrainedLayer)]


@pytest.mark.parametrize(
    ("structure", "block", "execution", "method", "drop"),
    [
        ("unstructured", (1, 1), "sparse", "rigl", "magnitude"),
        ("unstructured", (1, 1), "dense", "rigl", "magnitude-gradient"),
        ("unstructured", (1, 1), "sparse", "set", "magnitude"),
        ("fan-in", (1, 1), "sparse", "rigl", "magnitude"),
        ("block", (4, 2), "sparse", "rigl", "magnitude"),
        ("block", (8, 4), "sparse", "set", "magnitude"),
        ("block", (2, 4), "dense", "rigl", "magnitude-gradient"),
    ],
)
def test_equals_dense_masked_training_step_by_step(
    structure: str,
    block: tuple[int, int],
    execution: str,
    method: str,
    drop: str,
) -> None:
    model = _network(structure, execution, block)
    layers = _layers(model)
    biases = [layer.bias for layer in layers if layer.bias is not None]
    values = [layer.values for layer in layers]
    optimiser = torch.optim.SGD(values, lr=0.1, momentum=0.9)
    scheduler = RigLScheduler(
        model,
        optimiser,
        update_every=EVERY,
        drop_fraction=0.4,
        stop_step=STOP,
        method=method,
        drop=drop,
        seed=9,  # type: ignore[arg-type]
    )
    plain = MaskedTraining(
        [layer.matrix.detach() for layer in layers],
        [layer.mask for layer in layers],
        rate=0.1,
        momentum=0.9,
        block=block,
    )
    random = torch.Generator().manual_seed(9)
    counts = [layer.values.numel() for layer in layers]
    exchanged = 0
    for step, x in enumerate(_batches(), 1):
        gradients = _dense_gradients(plain.weights, biases, x, by_tap=structure == "block")
        for parameter in model.parameters():
            parameter.grad = None
        model(x).square().sum().backward()
        update = scheduler.step()
        due = step % EVERY == 0 and step < STOP
        assert (update is not None) == due
        if not due or method == "set":
            plain.descend(gradients)
        if due:
            fraction = cosine(step, 0.4, STOP)
            scores = [
                w * g if "gradient" in drop else w for w, g in zip(plain.weights, gradients, strict=True)
            ]
            if method == "set":
                grow = [
                    torch.rand(layer.grid.shape, generator=random)
                    .repeat_interleave(block[0], 0)
                    .repeat_interleave(block[1], 1)
                    for layer in layers
                ]
            else:
                grow = gradients
            before = [mask.clone() for mask in plain.masks]
            plain.exchange(scores, grow, fraction, per_row=structure != "unstructured")
            fresh = [int((new & ~old).sum()) for new, old in zip(plain.masks, before, strict=True)]
            exchanged += sum(fresh)
            assert update is not None
            cell = block[0] * block[1]
            assert [count * cell for count in update.fresh.tolist()] == fresh
        for layer, weight, mask in zip(layers, plain.weights, plain.masks, strict=True):
            assert torch.equal(layer.mask, mask), step
            assert torch.allclose(layer.matrix, weight * mask, rtol=1e-9, atol=1e-12), step
    assert exchanged > 10
    assert [layer.values.numel() for layer in layers] == counts


def _dense_gradients(weights: list[Tensor], biases: list[Tensor], x: Tensor, *, by_tap: bool) -> list[Tensor]:
    leaves = [weight.clone().requires_grad_() for weight in weights]
    kernel = leaves[0].reshape(8, 2, 2, 4).permute(0, 3, 1, 2) if by_tap else leaves[0].reshape(8, 4, 2, 2)
    hidden = nn.functional.conv2d(x, kernel, biases[0].detach(), 2, 1)
    hidden = torch.relu(nn.functional.linear(torch.relu(hidden).flatten(1), leaves[1], biases[1].detach()))
    loss = nn.functional.linear(hidden, leaves[2]).square().sum()
    return list(torch.autograd.grad(loss, leaves))


def test_exchange_by_hand() -> None:
    grid = plan_grid(2, 4, density=0.5)
    cells = torch.tensor([0, 3, 4, 6])
    drop = torch.tensor([0.5, 0.1, 0.4, 0.2])
    grow = torch.tensor([[9.0, 1.0, 3.0, 2.5], [9.0, 0.0, 9.0, 2.0]])
    # 3 and 6 go; then 6 (9.0) and 2 (3.0) are grown: 6 was there before and keeps its value.
    change = exchange_cells(cells, drop, grow, grid, 2)
    assert change.cells.tolist() == [0, 2, 4, 6]
    assert change.fresh.tolist() == [False, True, False, False]
    assert change.carry(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [1.0, 0.0, 3.0, 4.0]
    rows = plan_grid(2, 4, density=0.5, structure="fan-in")
    change = exchange_cells(cells, drop, grow, rows, 1)
    # Only 3 goes, so only the first row grows one: 2.
    assert change.cells.tolist() == [0, 2, 4, 6]
    unchanged = exchange_cells(cells, drop, grow, grid, 0)
    assert unchanged.cells.tolist() == cells.tolist()
    assert not unchanged.fresh.any()


def test_dense_gradients_are_made_at_updates_only() -> None:
    layer = RigLLinear(16, 8, sparsity=0.5)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    scheduler = RigLScheduler(layer, optimiser, update_every=3, stop_step=100)
    seen = []
    for _ in range(6):
        optimiser.zero_grad()
        layer(torch.randn(4, 16)).square().sum().backward()
        seen.append(layer.growth_gradient is not None)
        scheduler.step()
    assert seen == [False, False, True, False, False, True]
    assert layer.growth_gradient is None


def test_accumulated_backward_passes_add_up() -> None:
    layer = RigLLinear(6, 4, sparsity=0.5, dtype=torch.float64)
    layer.collect_growth(True)
    x = torch.randn(8, 6, dtype=torch.float64)
    layer(x).square().sum().backward()
    whole = layer.growth_gradient
    layer.collect_growth(True)
    for part in x.split(3):
        layer(part).square().sum().backward()
    assert whole is not None
    assert layer.growth_gradient is not None
    assert torch.allclose(whole, layer.growth_gradient)
    assert torch.allclose(layer.grid.gather(whole, layer.cells), layer.values.grad / 2)  # type: ignore[operator]


def test_what_is_in_use_is_never_written() -> None:
    model = nn.Sequential(RigLLinear(32, 16, sparsity=0.8))
    (layer,) = _layers(model)
    scheduler = RigLScheduler(
        model, torch.optim.SGD(model.parameters(), lr=0.1), update_every=1, stop_step=1000
    )
    layer(torch.randn(4, 32)).sum().backward()
    cells, values = layer.cells, layer.values.detach()
    copies = cells.clone(), values.clone()
    parameter = layer.values
    scheduler.step()
    assert layer.values is parameter
    assert torch.equal(cells, copies[0])
    assert torch.equal(values, copies[1])
    assert layer.cells.data_ptr() != cells.data_ptr()
    assert layer.values.data_ptr() != values.data_ptr()
    layer(torch.randn(4, 32)).sum().backward()
    scheduler.step()
    # The first pair is written again: two buffers serve for good.
    assert layer.cells.data_ptr() == cells.data_ptr()
    assert layer.values.data_ptr() == values.data_ptr()


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "RMSprop"])
def test_moments_of_dropped_connections_are_reset(name: str) -> None:
    layer = RigLLinear(32, 16, sparsity=0.8)
    optimiser = getattr(torch.optim, name)(
        layer.parameters(), lr=0.1, **({"momentum": 0.9} if name == "SGD" else {})
    )
    scheduler = RigLScheduler(layer, optimiser, update_every=2, stop_step=1000, drop_fraction=0.5)
    layer(torch.randn(4, 32)).square().sum().backward()
    scheduler.step()
    before = {
        key: layer.grid.scatter(part, layer.cells)
        for key, part in optimiser.state[layer.values].items()
        if part is not None and part.shape == layer.values.shape
    }
    old = layer.mask
    optimiser.zero_grad()
    layer(torch.randn(4, 32)).square().sum().backward()
    scheduler.step()
    fresh = layer.mask & ~old
    assert int(fresh.sum()) > 5
    assert before
    for key, dense in before.items():
        after = layer.grid.scatter(optimiser.state[layer.values][key], layer.cells)
        assert (after[fresh] == 0).all()
        assert torch.equal(after[layer.mask & old], dense[layer.mask & old])
    assert (layer.matrix[fresh] == 0).all()


def test_a_resumed_run_equals_one_that_went_on() -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer, RigLScheduler]:
        model = _network("unstructured", "sparse", (1, 1))
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        return model, optimiser, RigLScheduler(model, optimiser, update_every=3, stop_step=100, method="set")

    def run(parts: tuple[nn.Module, torch.optim.Optimizer, RigLScheduler], batches: list[Tensor]) -> None:
        for x in batches:
            parts[1].zero_grad()
            parts[0](x).square().sum().backward()
            parts[2].step()

    batches = _batches()
    whole, first, second = build(), build(), build()
    run(whole, batches)
    run(first, batches[:7])
    for there, here in zip(second, first, strict=True):
        there.load_state_dict(copy.deepcopy(here.state_dict()))
    run(second, batches[7:])
    for there, here in zip(_layers(second[0]), _layers(whole[0]), strict=True):
        assert torch.equal(there.cells, here.cells)
        assert torch.equal(there.values, here.values)


def test_seeds_decide_the_topology() -> None:
    first, again, other = (RigLLinear(32, 16, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.cells, again.cells)
    assert torch.equal(first.values, again.values)
    assert not torch.equal(first.cells, other.cells)


def test_not_finite_numbers_are_named() -> None:
    model = sparse_training_model()
    scheduler = RigLScheduler(model, torch.optim.SGD(model.parameters(), lr=0.1), update_every=1, stop_step=9)
    with pytest.raises(RuntimeError, match="0 has no dense gradient: call backward"):
        scheduler.step()
    model(torch.randn(2, 8)).sum().backward()
    with torch.no_grad():
        model[2].values[0] = float("nan")  # type: ignore[index, operator]
    with pytest.raises(ValueError, match=r"^2: weights are NaN or infinite at step 1"):
        scheduler.step()


def sparse_training_model() -> nn.Sequential:
    return nn.Sequential(RigLLinear(8, 16, sparsity=0.5), nn.ReLU(), RigLLinear(16, 4, sparsity=0.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update_every": 0}, "update_every must be at least 1"),
        ({"drop_fraction": 0.0}, "drop_fraction must be above 0"),
        ({"method": "magic"}, "method must be one of"),
        ({"drop": "most"}, "drop one of"),
    ],
)
def test_bad_schedules(options: dict, message: str) -> None:
    model = sparse_training_model()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=message):
        RigLScheduler(model, optimiser, stop_step=10, **options)


def test_a_scheduler_needs_sparse_layers_that_the_optimiser_trains() -> None:
    dense = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(ValueError, match="no RigLLinear"):
        RigLScheduler(dense, torch.optim.SGD(dense.parameters(), lr=0.1), stop_step=10)
    model = sparse_training_model()
    with pytest.raises(ValueError, match=r"does not train \['0'\]"):
        RigLScheduler(model, torch.optim.SGD(model[2].parameters(), lr=0.1), stop_step=10)
    with pytest.raises(ValueError, match=r"lacks \['generator'\]"):
        RigLScheduler(model, torch.optim.SGD(model.parameters(), lr=0.1), stop_step=10).load_state_dict(
            {"steps": 1}
        )


def test_updates_describe_themselves() -> None:
    model = sparse_training_model()
    scheduler = RigLScheduler(
        model, torch.optim.SGD(model.parameters(), lr=0.1), update_every=1, stop_step=100
    )
    model(torch.randn(4, 8)).square().sum().backward()
    update = scheduler.step()
    assert update is not None
    # cosine at step 1 of 100 leaves 0.29993: of 64 and 32 connections 19 and 9.
    assert update.dropped == {"0": 19, "2": 9}
    assert "dropped" in str(update)
    assert update.to_json()["dropped"] == update.dropped


def test_conversion_keeps_the_budget_and_the_largest_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    weight = model[2].weight.detach().clone()
    bias = model[2].bias.detach().clone()
    report = sparse_training(model, 0.8, keep="magnitude", budget="uniform", dense=["0"])
    layer = model[2]
    assert isinstance(layer, RigLLinear)
    assert report.skipped == {"0": "kept dense"}
    assert abs(layer.sparsity - 0.8) < 0.001
    assert torch.equal(layer.matrix, weight * layer.mask)
    assert torch.equal(layer.bias, bias)  # type: ignore[arg-type]
    assert float(weight[layer.mask].abs().min()) >= float(weight[~layer.mask].abs().max())
    assert "connections" in str(report)
    assert set(report.to_json()["layers"]) == {"2", "4"}


def test_conversion_says_what_stays_dense_and_why() -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 10), nn.Conv2d(4, 4, 1, groups=2))
    report = sparse_training(model, 0.75, structure="block", block_size=16)
    assert set(report.layers) == {"0"}
    assert report.skipped == {"1": "blocks of 16x16 do not divide 10x32", "2": "grouped convolution"}
    assert report.sparsity == 0.75
    with pytest.raises(
        ValueError, match="nothing to replace: no layer matches any pattern: the model has no"
    ):
        sparse_training(nn.Sequential(nn.ReLU()), 0.5)
    with pytest.raises(ValueError, match=r"sparse already. Call dense_training\(model\) first"):
        sparse_training(nn.Sequential(*list(model)[:1]), 0.5)
    with pytest.raises(ValueError, match="cannot be replaced"):
        sparse_training(nn.Linear(4, 4), 0.5)
    broken = nn.Sequential(nn.Linear(8, 8))
    with torch.no_grad():
        broken[0].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="0: weights are NaN"):
        sparse_training(broken, 0.5, keep="magnitude")


class Shared(nn.Module):
    """One layer under two names, a tied pair, a tied embedding, and what cannot be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.again = self.first
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)
        self.right.weight = self.left.weight
        self.embedding, self.head = nn.Embedding(12, 8), nn.Linear(8, 12)
        self.head.weight = self.embedding.weight
        self.hooked = nn.Linear(8, 8)
        self.hooked.register_forward_hook(lambda *arguments: None)
        self.normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.attention = nn.MultiheadAttention(8, 2)
        self.recurrent = nn.LSTM(8, 4)


def test_conversion_breaks_no_tie_and_lists_every_matrix() -> None:
    model = Shared()
    report = sparse_training(model, 0.5)
    assert set(report.layers) == {"first"}
    assert isinstance(model.first, RigLLinear)
    assert model.again is model.first
    assert model.right.weight is model.left.weight
    assert model.head.weight is model.embedding.weight
    reasons = {
        "left": "tied: its weight is also that of 'right'",
        "right": "tied: its weight is that of 'left'",
        "head": "tied: its weight is also that of 'embedding' (Embedding)",
        "hooked": "it has hooks, which would be lost: remove them first",
        "normed": "its weight is computed from several tensors",
        "embedding": "Embedding is not among Linear, Conv2d",
        "attention": "its matrices stay dense: in_proj_weight (24, 8)",
        "attention.out_proj": "without a call",
        "recurrent": "weight_ih_l0 (16, 8), weight_hh_l0 (16, 4)",
    }
    assert report.skipped.keys() == reasons.keys()
    for name, part in reasons.items():
        assert part in report.skipped[name], name
    assert dense_training(model).again is model.first
    assert type(model.first) is nn.Linear


def test_conversion_leaves_layers_without_weights_dense() -> None:
    with pytest.warns(UserWarning, match="zero-element"):
        model = nn.Sequential(nn.Linear(8, 0), nn.Linear(8, 8))
    assert sparse_training(model, 0.5).skipped == {"0": "its weight of shape (0, 8) is empty"}
    assert (
        sparse_training(nn.Sequential(*[nn.Linear(8, 8)] * 2, nn.Linear(8, 8)), 0.5, select="2").skipped == {}
    )
