"""Layers of PyTorch Geometric give the same results and gradients by our products as by PyG's own code."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparse_core import graphs
from sparse_core.graphs import Adjacency, use_spmm

pyg = pytest.importorskip("torch_geometric.nn", reason="needs torch_geometric")
# PyG makes CSR tensors without checks, of which torch warns once a process.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")

NODES, WIDTH = 30, 6
WEIGHTED: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: pyg.GCNConv(WIDTH, 4),
    "GCN, cached": lambda: pyg.GCNConv(WIDTH, 4, cached=True),
    "GraphConv": lambda: pyg.GraphConv(WIDTH, 4),
    "GraphConv, mean": lambda: pyg.GraphConv(WIDTH, 4, aggr="mean"),
    "SGConv": lambda: pyg.SGConv(WIDTH, 4, K=2),
    "APPNP": lambda: pyg.APPNP(3, 0.1),
    "SimpleConv": pyg.SimpleConv,
}
PLAIN: dict[str, Callable[[], nn.Module]] = {
    "SAGE": lambda: pyg.SAGEConv(WIDTH, 4),
    "SAGE, sum": lambda: pyg.SAGEConv(WIDTH, 4, aggr="sum"),
    "GIN": lambda: pyg.GINConv(nn.Linear(WIDTH, 4)),
    "ClusterGCN": lambda: pyg.ClusterGCNConv(WIDTH, 4),
}


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Reductions of the products that ran."""
    ran: list[str] = []
    product = Adjacency.product

    def counted(self: Adjacency, dense: Tensor, reduce: str = "sum") -> Tensor:
        ran.append(reduce)
        return product(self, dense, reduce)

    monkeypatch.setattr(Adjacency, "product", counted)
    return ran


def draw_edges(seed: int = 0, count: int = 120) -> Tensor:
    """(2, E) distinct edges in random order; the last nodes have none."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randperm((NODES - 3) * NODES, generator=generator)[:count]
    return torch.stack([keys % NODES, keys // NODES])


def features(rows: int = NODES, seed: int = 1) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed))


def compare(make: Callable[[], nn.Module], call: Callable[..., Tensor], *operands: Tensor) -> None:
    """The output and all gradients of a layer, and of its copy with our products."""
    torch.manual_seed(0)
    theirs = make()
    ours = copy.deepcopy(theirs)
    use_spmm(ours)
    found = []
    for layer in (theirs, ours):
        inputs = [one.clone().requires_grad_() for one in operands]
        first, output = call(layer, *inputs), call(layer, *inputs)
        (first + output.square()).sum().backward()
        found.append([output, *(one.grad for one in (*inputs, *layer.parameters()))])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [*WEIGHTED, *PLAIN])
def test_an_edge_index(name: str, products: list[str]) -> None:
    edges = draw_edges()
    compare((WEIGHTED | PLAIN)[name], lambda layer, x: layer(x, edges), features())
    assert products


@pytest.mark.parametrize("name", WEIGHTED)
def test_edge_weights(name: str, products: list[str]) -> None:
    edges = draw_edges()
    compare(WEIGHTED[name], lambda layer, x, w: layer(x, edges, w), features(), torch.rand(edges.shape[1]))
    assert products


@pytest.mark.parametrize("name", [*WEIGHTED, *PLAIN])
def test_a_csr_tensor(name: str, products: list[str]) -> None:
    from torch_geometric.utils import to_torch_csr_tensor

    edges = draw_edges()
    matrix = to_torch_csr_tensor(edges.flip(0), torch.rand(edges.shape[1]), (NODES, NODES))
    compare((WEIGHTED | PLAIN)[name], lambda layer, x: layer(x, matrix), features())
    assert products


@pytest.mark.parametrize("name", [*WEIGHTED, *PLAIN])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_tensor_of_torch_sparse(name: str, weighted: bool, products: list[str]) -> None:
    torch_sparse = pytest.importorskip(
        "torch_sparse", reason="needs torch_sparse, which is built from source"
    )
    edges = draw_edges()
    weights = torch.rand(edges.shape[1]) if weighted else None
    matrix = torch_sparse.SparseTensor.from_edge_index(edges.flip(0), weights, (NODES, NODES))
    compare((WEIGHTED | PLAIN)[name], lambda layer, x: layer(x, matrix), features())
    assert products


@pytest.mark.parametrize("size", [None, (NODES, 28)])
@pytest.mark.parametrize("with_targets", [True, False])
def test_two_kinds_of_nodes(size: Any, with_targets: bool, products: list[str]) -> None:
    edges, targets = draw_edges(), features(28, 2) if with_targets else None
    compare(lambda: pyg.SAGEConv(WIDTH, 4), lambda layer, x: layer((x, targets), edges, size), features())
    assert set(products) == {"mean"}


def test_layers_and_steps_share_a_graph() -> None:
    model = nn.ModuleList([pyg.SAGEConv(WIDTH, WIDTH), pyg.GCNConv(WIDTH, WIDTH), pyg.GCNConv(WIDTH, WIDTH)])
    assert use_spmm(model) == ["0", "1", "2"]
    built = graphs._Graphs.find
    known: set[int] = set()

    def counted(self: Any, *args: Any) -> Any:
        graph = built(self, *args)
        known.add(id(graph))
        return graph

    edges = draw_edges()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs._Graphs, "find", counted)
        for _ in range(3):
            for layer in model:
                layer(features(), edges)
    assert len(known) == 2  # With self-loops, and without.


def test_edges_that_change_in_place_are_noticed() -> None:
    layer, edges = pyg.SAGEConv(WIDTH, 4), draw_edges()
    plain = copy.deepcopy(layer)
    use_spmm(layer)
    layer(features(), edges)
    edges.copy_(draw_edges(seed=5))
    torch.testing.assert_close(layer(features(), edges), plain(features(), edges))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("learned", [True, False])
def test_training_after_evaluation(mode: Any, learned: bool) -> None:
    layer, edges = pyg.SimpleConv(), draw_edges()
    use_spmm(layer)
    weights = torch.rand(edges.shape[1], requires_grad=learned)
    with mode():
        before = layer(features(), edges, weights)
    x = features().requires_grad_()
    after = layer(x, edges, weights)
    after.sum().backward()
    torch.testing.assert_close(after.detach(), before.clone())
    assert x.grad is not None
    assert (weights.grad is not None) == learned


@pytest.mark.parametrize(
    ("make", "edges"),
    [
        (lambda: pyg.SAGEConv(WIDTH, 4), torch.cat([draw_edges(), draw_edges()[:, :9]], dim=1)),
        (lambda: pyg.SAGEConv(WIDTH, 4, flow="target_to_source"), draw_edges()),
    ],
    ids=["repeated edges", "flow"],
)
def test_what_runs_unmodified(make: Any, edges: Tensor, products: list[str]) -> None:
    compare(make, lambda layer, x: layer(x, edges), features())
    assert products == []


def test_a_copy_and_a_saved_model_work(products: list[str]) -> None:
    layer = pyg.SAGEConv(WIDTH, 4)
    use_spmm(layer)
    expected = layer(features(), draw_edges())
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(features(), draw_edges()), expected)
    assert len(products) == 3


def test_a_node_outside_the_graph_is_named() -> None:
    layer, edges = pyg.SAGEConv(WIDTH, 4), draw_edges()
    use_spmm(layer)
    edges[0, 7] = NODES
    with pytest.raises(ValueError, match=rf"edge_index\[0\]\[7\] is {NODES}, outside 0..{NODES - 1}"):
        layer(features(), edges)


@pytest.mark.parametrize("make", [lambda: pyg.SAGEConv(4, 4, aggr="max"), lambda: pyg.GATConv(4, 4), nn.ReLU])
def test_a_model_without_sums_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="no layer of the model passes messages that spmm can sum"):
        use_spmm(make())


def test_an_adjacency_acts_as_a_csr_tensor() -> None:
    layer = pyg.SimpleConv()
    use_spmm(layer)
    seen = []
    layer.register_message_and_aggregate_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    layer(features(), draw_edges())
    (matrix,) = seen
    assert matrix.layout == torch.sparse_csr
    assert matrix.shape == (NODES, NODES)
    torch.testing.assert_close(matrix @ features(), matrix.to_dense() @ features())
    assert "crow_indices" in repr(matrix)
