"""Searches captured as CUDA graphs, once per shape: no launch costs and no waiting for the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

Search = Callable[[Tensor], tuple[Tensor, ...]]
#: Number of cached graphs; the least recently used goes first.
_KEPT = 32


class _Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    queries: Tensor
    results: tuple[Tensor, ...]


class Graphs:
    """CUDA graphs by shape; other devices run the search directly."""

    def __init__(self) -> None:
        self._captured: dict[Hashable, _Capture] = {}

    def __len__(self) -> int:
        return len(self._captured)

    def clear(self) -> None:
        """Drop all graphs, because the arrays that they read have moved."""
        self._captured.clear()

    def run(self, key: Hashable, search: Search, queries: Tensor) -> tuple[Tensor, ...]:
        """Return the results of a search for queries of the key's shape.

        Args:
            key: everything that the search depends on besides the queries.
            search: reads nothing back, and allocates only through torch.
            queries: (queries, dim), on the device.

        Returns:
            Results that the next run may overwrite on a GPU.
        """
        if not queries.is_cuda:
            return search(queries)
        captured = self._captured.pop(key, None)
        if captured is None:
            captured = _capture(search, queries)
            while len(self._captured) >= _KEPT:
                self._captured.pop(next(iter(self._captured)))
        self._captured[key] = captured
        captured.queries.copy_(queries)
        captured.graph.replay()
        return captured.results


def _capture(search: Search, queries: Tensor) -> _Capture:
    """Run a search once without a graph, which compiles its kernels, then capture it."""
    static = queries.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        search(static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the GPU meanwhile, for example to build a larger index.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = search(static)
    return _Capture(graph, static, results)
