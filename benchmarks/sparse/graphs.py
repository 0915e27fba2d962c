"""Message passing on graphs: ours against torch's CSR, PyG's gather and scatter, and torch_sparse.

    python -m benchmarks.sparse.graphs --device cpu

A layer of PyTorch Geometric adds weighted messages (``SimpleConv``), forward and with the gradient of the
features. Graphs have a power law of sources and the sizes of citation graphs. Every side is the same layer
with other edges; all must agree with a float64 product. On a CPU the time is that of the process on the
processor, which other programs hardly change; on a GPU it is the wall clock.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.timing import Clock, Side, interleave, paired_ratio
from benchmarks.publish.screen import tables
from benchmarks.sparse.matrices import random_dense, relative_error
from sparse_core.graphs import use_spmm

OURS, NEW = "ours", "ours, new edges"
_TOLERANCE = 1e-5


class Graph(NamedTuple):
    """Edges (2, E) from sources to targets in random order, with weights (E,), and the number of nodes."""

    edges: Tensor
    weights: Tensor
    nodes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    # torch warns once that its CSR is a beta.
    warnings.filterwarnings("ignore", message="Sparse CSR")
    notes = [f"'{NEW}' sorts the edges in every call, as for a new batch; '{OURS}' does so once."]
    rows = []
    for nodes, degree in options.graphs:
        graph = make_graph(nodes, degree, device, options.seed)
        for width in options.widths:
            rows.append(_measure(graph, width, degree, options, device, notes))
    settings = {name: getattr(options, name) for name in ("device", "rounds", "threads", "seed", "quick")} | {
        "dtype": "float32"
    }
    values = result("graphs", device, settings, cases=rows, notes=list(dict.fromkeys(notes)))
    save(values, options)
    show(values, tables(values, "graphs"), values["notes"], as_json=options.json)
    return 0 if all(row["agrees"] for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "graphs", quick="a small graph and few rounds")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (15; 3 with --quick)")
    parser.add_argument("--widths", type=int, nargs="+", help="features of a node (64 and 256)")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (3 if options.quick else 15)
    options.widths = options.widths or ([16] if options.quick else [64, 256])
    options.graphs = [(1000, 7)] if options.quick else [(10_000, 15), (170_000, 7)]
    return options


def make_graph(nodes: int, degree: int, device: torch.device, seed: int) -> Graph:
    """Draw distinct edges: targets uniformly, sources by a power law."""
    generator = torch.Generator().manual_seed(seed)
    popularity = (torch.arange(nodes) + 10.0) ** -0.8
    source = torch.multinomial(popularity, nodes * degree, replacement=True, generator=generator)
    source = torch.randperm(nodes, generator=generator)[source]
    target = torch.randint(nodes, (nodes * degree,), generator=generator)
    keys = torch.unique(target * nodes + source)
    keys = keys[torch.randperm(len(keys), generator=generator)]
    edges = torch.stack([keys % nodes, keys // nodes])
    return Graph(edges.to(device), torch.rand(len(keys), generator=generator).to(device), nodes)


def _measure(
    graph: Graph, width: int, degree: int, options: argparse.Namespace, device: torch.device, notes: list[str]
) -> dict[str, Any]:
    x = random_dense(graph.nodes, width, device=device, seed=options.seed).requires_grad_()
    layers = _layers(graph, notes)
    exact = torch.zeros(graph.nodes, width, dtype=torch.float64, device=device)
    messages = x.detach().double()[graph.edges[0]] * graph.weights.double()[:, None]
    exact.index_add_(0, graph.edges[1], messages)
    agrees = all(relative_error(layer(x).detach(), exact) <= _TOLERANCE for layer in layers.values())
    clock: Clock = "wall" if device.type == "cuda" else "process"
    found = {}
    for phase, call in (("forward", _forward), ("step", _step)):
        sides: dict[str, Side] = {name: partial(call, layer, x) for name, layer in layers.items()}
        times = interleave(
            sides, device, rounds=options.rounds, warmup=1, budget_s=10.0, clock=clock, seed=options.seed
        )
        found[phase] = {name: round(median(each), 3) for name, each in times.items()}
        found[f"{phase}_over"] = {
            name: paired_ratio(each, times[OURS])["median"] for name, each in times.items() if name != OURS
        }
    counts = {"nodes": graph.nodes, "edges": graph.edges.shape[1], "degree": degree, "width": width}
    return {**counts, "agrees": agrees, **found}


def _layers(graph: Graph, notes: list[str]) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the sides: the same layer with other edges."""
    from torch_geometric.nn import SimpleConv
    from torch_geometric.utils import to_torch_csr_tensor

    edges, weights, nodes = graph
    plain, ours = SimpleConv(), SimpleConv()
    use_spmm(ours)
    csr = to_torch_csr_tensor(edges.flip(0), weights, (nodes, nodes))
    layers = {
        OURS: lambda x: ours(x, edges, weights),
        NEW: lambda x: _converted(SimpleConv())(x, edges, weights),
        "torch CSR": lambda x: plain(x, csr),
        "PyG scatter": lambda x: plain(x, edges, weights),
    }
    try:
        from torch_sparse import SparseTensor
    except ImportError:
        notes.append("torch_sparse and pyg-lib are not installed: no wheel for this torch.")
    else:
        adjacency = SparseTensor.from_edge_index(edges.flip(0), weights, (nodes, nodes))
        layers["torch_sparse"] = lambda x: plain(x, adjacency)
    return layers


def _converted(layer: Any) -> Any:
    use_spmm(layer)
    return layer


def _forward(layer: Callable[[Tensor], Tensor], x: Tensor) -> None:
    with torch.no_grad():
        layer(x)


def _step(layer: Callable[[Tensor], Tensor], x: Tensor) -> None:
    x.grad = None
    y = layer(x)
    y.backward(torch.ones_like(y))


if __name__ == "__main__":
    sys.exit(main())
