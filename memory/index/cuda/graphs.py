"""Searches captured once a shape and replayed: no launch costs and no waiting for the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

Search = Callable[[Tensor], tuple[Tensor, ...]]
#: Graphs that are kept; the one used longest ago goes first.
_KEPT = 32


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    queries: Tensor
    results: tuple[Tensor, ...]


class Graphs:
    """CUDA graphs by shape; on other devices searches simply run."""

    def __init__(self) -> None:
        self._captured: dict[Hashable, _Captured] = {}

    def __len__(self) -> int:
        return len(self._captured)

    def clear(self) -> None:
        """Forget all: what they read has moved."""
        self._captured.clear()

    def run(self, key: Hashable, search: Search, queries: Tensor) -> tuple[Tensor, ...]:
        """The results of a search for queries of a shape that belongs to the key.

        Args:
            key: everything that the search depends on besides the queries.
            search: reads nothing back and allocates through torch only.
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


def _capture(search: Search, queries: Tensor) -> _Captured:
    """Run once outside, where kernels are compiled, then capture."""
    static = queries.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        search(static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Other threads may go on meanwhile: a larger index is built beside the one that is searched.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = search(static)
    return _Captured(graph, static, results)
