"""Message passing of PyTorch Geometric by :func:`sparse_core.linalg.spmm`."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from sparse_core.formats import CSR, index_dtype_for
from sparse_core.formats.indexing import pointers_from_rows
from sparse_core.formats.validation import check_range, rises
from sparse_core.linalg import spmm
from sparse_core.linalg.operands import gradient_needed

__all__ = ["use_spmm"]

#: Most graphs whose matrices a model keeps.
_MOST_GRAPHS = 8
_SUMS = ("add", "sum", "mean")


def use_spmm(model: nn.Module) -> list[str]:
    """Let the layers of a PyTorch Geometric model pass messages by one sparse product, in place.

    It changes neither parameters nor results (up to rounding), and gradients flow to features and edge
    weights. It serves layers that PyG itself can compute as a product (``GCNConv``, ``SAGEConv``,
    ``GINConv``, ``GraphConv`` and others with ``message_and_aggregate``) and that add or average messages.
    A call runs unmodified if it has repeated edges, edge features, the flow ``"target_to_source"`` or an
    explainer, or under ``torch.compile``.

    The matrix of a graph is built at its first use. All layers share it while the edges stay the same. So
    training on one graph gains most; each new batch of a neighbour loader sorts its edges once.

    Args:
        model: layers of ``torch_geometric.nn``. They still take an ``edge_index``, a ``torch.sparse_csr``
            tensor or a ``torch_sparse.SparseTensor``.

    Returns:
        Names of the layers that use it.

    Raises:
        ImportError: torch_geometric is not installed.
        ValueError: no layer of the model can use it.
    """
    try:
        from torch_geometric.nn import MessagePassing
    except ImportError as error:
        raise ImportError("use_spmm needs PyTorch Geometric: pip install 'sparsight[graphs]'") from error
    graphs, names = _Graphs(), []
    for name, layer in model.named_modules():
        if isinstance(layer, MessagePassing) and layer.fuse and layer.aggr in _SUMS:
            layer.register_propagate_forward_pre_hook(_Hook(graphs))
            names.append(name)
    if not names:
        raise ValueError(
            "no layer of the model passes messages that spmm can sum: it needs layers of torch_geometric.nn"
            " with message_and_aggregate and aggr='add' or 'mean', such as GCNConv or SAGEConv"
        )
    return names


class Adjacency(Tensor):
    """A CSR matrix that PyG takes for a ``torch.sparse_csr`` tensor; its products are :func:`spmm`.

    Attributes:
        matrix: targets are rows, sources are columns.
    """

    matrix: CSR

    @staticmethod
    def __new__(cls, matrix: CSR) -> Adjacency:
        # The storage is one zero; every function of torch sees the CSR tensor instead.
        return matrix.values.detach().new_zeros(()).expand(matrix.shape).as_subclass(cls)

    def __init__(self, matrix: CSR) -> None:
        self.matrix = matrix

    def product(self, dense: Tensor, reduce: str = "sum") -> Tensor:
        """Return the sum or the mean of each row's messages, (M, N)."""
        if reduce == "sum":
            return spmm(self.matrix, dense)
        matrix = self.matrix
        if gradient_needed(matrix):
            return spmm(matrix, dense) / matrix.row_lengths().clamp(min=1)[:, None]
        return spmm(matrix.cached_values("graphs mean", lambda: _averaging(matrix)), dense)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Multiply by :func:`spmm`; give anything else the CSR tensor."""
        if func is torch.sparse.mm and isinstance(args[0], cls) and args[2:] in ((), ("sum",), ("mean",)):
            return args[0].product(*args[1:])
        if kwargs or any(isinstance(one, tuple | list) for one in args):
            args, kwargs = tree_map_only(cls, lambda one: one.csr, (args, kwargs or {}))
            return func(*args, **kwargs)
        # PyG reads a dozen attributes and sizes in each call.
        return func(*(one.csr if isinstance(one, cls) else one for one in args))

    @cached_property
    def csr(self) -> Tensor:
        """The matrix as torch's CSR tensor, on the same memory."""
        return self.matrix.to_torch()


def _averaging(matrix: CSR) -> CSR:
    lengths = matrix.row_lengths().to(matrix.dtype)
    return matrix.with_values(matrix.values / lengths.index_select(0, matrix.row_indices()))


class _Graphs:
    """The last graphs of a model as matrices."""

    def __init__(self) -> None:
        self._known: list[_Graph] = []

    def find(self, indices: Sequence[Tensor], shape: tuple[int, int]) -> _Graph:
        """Return the graph of an edge_index, or of row pointers and columns; build a new one."""
        for graph in self._known:
            if graph.shape == shape and graph.equals(indices):
                return graph
        graph = _graph_of_edges(indices, shape) if len(indices) == 1 else _graph_of_csr(indices, shape)
        self._known = [graph, *self._known[: _MOST_GRAPHS - 1]]
        return graph

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": []}


@dataclass(frozen=True, eq=False)
class _Graph:
    """A graph as a matrix.

    Attributes:
        indices: as the caller passed them, with their versions.
        pattern: CSR with ones; None if an edge is repeated.
        order: the edge of each entry; None for the same order.
    """

    indices: Sequence[Tensor]
    versions: Sequence[int]
    shape: tuple[int, int]
    pattern: CSR | None
    order: Tensor | None

    def equals(self, indices: Sequence[Tensor]) -> bool:
        """True if these indices describe this graph; waits for a CUDA device."""
        return len(indices) == len(self.indices) and all(
            _version(mine) == version
            and mine.device == theirs.device
            and (mine is theirs or (mine.shape == theirs.shape and torch.equal(mine, theirs)))
            for mine, version, theirs in zip(self.indices, self.versions, indices, strict=True)
        )

    def adjacency(self, weights: Tensor | None, dtype: torch.dtype) -> Adjacency | None:
        """Return the matrix with weights (E,) of the edges, or ones of a type."""
        if self.pattern is None:
            return None
        if weights is None:
            return Adjacency(self.pattern.to(dtype))
        return Adjacency(
            self.pattern.with_values(weights if self.order is None else weights.index_select(0, self.order))
        )


def _graph_of_edges(indices: Sequence[Tensor], shape: tuple[int, int]) -> _Graph:
    source, target = indices[0].long()
    check_range("edge_index[0]", source, shape[1])
    check_range("edge_index[1]", target, shape[0])
    keys, order = torch.sort(target * shape[1] + source)
    pattern = None
    if not bool((keys[1:] == keys[:-1]).any()):
        dtype = index_dtype_for(len(keys), *shape)
        rows = pointers_from_rows(target[order].to(dtype), shape[0])
        pattern = _pattern(rows, source[order].to(dtype), shape)
    return _Graph(indices, [_version(one) for one in indices], shape, pattern, order)


def _graph_of_csr(indices: Sequence[Tensor], shape: tuple[int, int]) -> _Graph:
    dtype = index_dtype_for(len(indices[1]), *shape)
    row_ptr, col = (one.to(dtype) for one in indices)
    pattern = _pattern(row_ptr, col, shape) if rises(col, row_ptr) else None
    return _Graph(indices, [_version(one) for one in indices], shape, pattern, None)


def _pattern(row_ptr: Tensor, col: Tensor, shape: tuple[int, int]) -> CSR:
    return CSR(row_ptr, col, torch.ones(len(col), device=col.device), shape)


def _version(tensor: Tensor) -> int:
    # Inference tensors have no version.
    return 0 if tensor.is_inference() else tensor._version


class _Edges(NamedTuple):
    """Edges of a call: indices (an edge_index, or row pointers and columns), weights (E,), and the shape."""

    indices: Sequence[Tensor]
    weights: Tensor | None
    shape: tuple[int, int]


class _Hook:
    """Give a layer's ``propagate`` an :class:`Adjacency` in place of its edges."""

    def __init__(self, graphs: _Graphs) -> None:
        self._graphs = graphs
        self._last: tuple[list[Any], Adjacency | None] = ([], None)

    def __getstate__(self) -> dict[str, Any]:
        return {"_graphs": self._graphs, "_last": ([], None)}

    def __call__(self, layer: Any, inputs: tuple[Any, Any, dict[str, Any]]) -> Any:
        edges, size, given = inputs
        features = [value for name, value in given.items() if name != "edge_weight" and value is not None]
        if torch.compiler.is_compiling() or layer.explain or layer.flow != "source_to_target":
            return None
        sources, targets = _pair(features)
        if sources is None:
            return None
        rows = (size or (None, None))[1] or len(sources if targets is None else targets)
        weights = given.get("edge_weight")
        adjacency = self._adjacency(
            edges, weights, "edge_weight" in given, (rows, len(sources)), sources.dtype
        )
        if adjacency is None:
            return None
        # PyG replaces None by the values of the matrix, whose order differs from that of the edges.
        return adjacency, size, given if weights is None else {**given, "edge_weight": None}

    def _adjacency(
        self, edges: Any, weights: Tensor | None, weighted: bool, shape: tuple[int, int], dtype: torch.dtype
    ) -> Adjacency | None:
        """Return the matrix of a call; None if the layer must run unmodified."""
        tensors = [one for one in (edges, weights) if isinstance(one, Tensor)]
        key = [shape, dtype, *(_version(one) for one in tensors)]
        known, adjacency = self._last
        if known[:-1] == key and all(map(operator.is_, known[-1], map(weakref.ref, tensors))):
            return adjacency
        found = _edges_of(edges, weights, weighted, shape)
        if found is None:
            return None
        with torch.inference_mode(False):  # Tensors of inference mode cannot take part in autograd later.
            adjacency = self._graphs.find(found.indices, found.shape).adjacency(found.weights, dtype)
        # A call without gradients must not leave weights without history to a call with gradients.
        keep = isinstance(edges, Tensor) and not any(one.requires_grad for one in tensors)
        self._last = ([*key, [weakref.ref(one) for one in tensors]], adjacency) if keep else ([], None)
        return adjacency


def _pair(features: list[Any]) -> tuple[Tensor | None, Tensor | None]:
    """Return features of sources, and of targets if they differ; None if they are not one floating matrix."""
    pair = features[0] if len(features) == 1 else None
    sources, targets = pair if isinstance(pair, tuple | list) else (pair, None)
    fits = isinstance(sources, Tensor) and sources.ndim == 2 and sources.is_floating_point()
    return (sources, targets) if fits else (None, None)


def _edges_of(edges: Any, weights: Tensor | None, weighted: bool, shape: tuple[int, int]) -> _Edges | None:
    """Return the edges of a call, or None for a kind that is not supported.

    Args:
        edges: an edge_index (2, E), a torch tensor of layout CSR, or a ``SparseTensor`` of torch_sparse.
        weights: of an edge_index.
        weighted: True if the layer knows weights; it ignores those of a ``SparseTensor`` otherwise.
        shape: targets, sources.
    """
    if type(edges) is Tensor and edges.layout == torch.sparse_csr:
        values = edges.values()
        found = _Edges((edges.crow_indices(), edges.col_indices()), values, (edges.shape[0], edges.shape[1]))
    elif type(edges) is Tensor and edges.layout == torch.strided and edges.ndim == 2 and len(edges) == 2:
        found = _Edges((edges,), weights, shape)
    elif type(edges).__module__.startswith("torch_sparse"):
        row_ptr, col, values = edges.csr()
        found = _Edges((row_ptr, col), values if weighted else None, tuple(edges.sizes()))
    else:
        return None
    count, fits = found.indices[-1].shape[-1], found.weights
    return found if fits is None or (fits.shape == (count,) and fits.is_floating_point()) else None
