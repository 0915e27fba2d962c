"""Cache of merged weights by recipe, prefetched in the background, and swapped into a running module."""

from __future__ import annotations

import threading
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from sparse_core.errors import CapacityWarning
from sparse_core.merging.api import merge
from sparse_core.merging.methods import find_method, nearest
from sparse_core.merging.rules import Elect
from sparse_core.merging.task_vector import State, TaskVector, state_of


@dataclass(frozen=True)
class Combination:
    """A recipe for vectors that a cache knows by name.

    Attributes:
        weights: (name, weight) of each vector, in any order; a mapping works too.
        method: method of :func:`~sparse_core.merging.api.merge`, which documents the other fields too.
        density: share of each delta to keep.
        scale: factor of the merged delta.
        normalize: divide by the weights that took part.
        elect: ``mass`` or ``count``.
        gamma: share of the largest magnitudes that breadcrumbs drop.
        seed: seed of random shares.
    """

    weights: tuple[tuple[str, float], ...] | Mapping[str, float]
    method: str = "task_arithmetic"
    density: float = 1.0
    scale: float = 1.0
    normalize: bool | None = None
    elect: Elect = "mass"
    gamma: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        pairs = self.weights.items() if isinstance(self.weights, Mapping) else self.weights
        object.__setattr__(
            self, "weights", tuple(sorted((str(name), float(weight)) for name, weight in pairs))
        )
        object.__setattr__(self, "method", find_method(self.method).name)

    @property
    def pairs(self) -> tuple[tuple[str, float], ...]:
        """Names and weights, sorted."""
        return tuple(self.weights.items()) if isinstance(self.weights, Mapping) else self.weights


class MergeCacheStatistics(NamedTuple):
    """Statistics of a cache.

    Attributes:
        hits: requests answered from memory, or by a merge in progress.
        misses: requests that had to merge.
        prefetched: merges made in advance.
        evictions: merges dropped to make room.
        entries: merges held now.
        nbytes: bytes of these.
    """

    hits: int
    misses: int
    prefetched: int
    evictions: int
    entries: int
    nbytes: int


class MergeCache:
    """Merged state dicts by combination; evicts the least recently used if the budget is full.

    Thread-safe: concurrent requests for one combination share one merge.

    Args:
        base: state dict or module. Its tensors are referenced, so do not change them.
        vectors: task vectors by name.
        budget_bytes: largest total size of merged tensors.

    Raises:
        ValueError: a budget below 1 byte, or no vectors.
    """

    def __init__(self, base: State, vectors: Mapping[str, TaskVector], *, budget_bytes: int) -> None:
        if budget_bytes < 1:
            raise ValueError(f"budget_bytes must be at least 1, got {budget_bytes}")
        if not vectors:
            raise ValueError("a cache needs at least one task vector")
        self._base = state_of(base, "the base")
        self._vectors = dict(vectors)
        self._budget = budget_bytes
        self._held: OrderedDict[Combination, dict[str, Tensor]] = OrderedDict()
        self._sizes: dict[Combination, int] = {}
        self._pending: dict[Combination, Future[dict[str, Tensor]]] = {}
        self._asked: Counter[Combination] = Counter()
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="merge-prefetch")

    def get(self, combination: Combination) -> Mapping[str, Tensor]:
        """Return the merged state dict. Do not write to its tensors, because they are shared.

        Raises:
            ValueError: an unknown vector, or numbers that do not fit the method.
        """
        with self._lock:
            self._asked[combination] += 1
        return self._get(combination, "misses")

    def prefetch(self, combinations: Iterable[Combination]) -> list[Future[None]]:
        """Merge in the background, one after the other.

        Returns:
            One future per combination; ``result()`` waits and raises the merge's error.
        """
        return [self._pool.submit(self._prefetch, combination) for combination in combinations]

    def prefetch_common(self, count: int) -> list[Future[None]]:
        """Merge the ``count`` most requested combinations that are not held, in the background."""
        with self._lock:
            missing = [found for found, _ in self._asked.most_common() if found not in self._held]
        return self.prefetch(missing[:count])

    @property
    def statistics(self) -> MergeCacheStatistics:
        """Statistics so far."""
        with self._lock:
            counts = self._counts
            return MergeCacheStatistics(
                counts["hits"],
                counts["misses"],
                counts["prefetched"],
                counts["evictions"],
                len(self._held),
                sum(self._sizes.values()),
            )

    def __contains__(self, combination: object) -> bool:
        with self._lock:
            return combination in self._held

    def clear(self) -> None:
        """Drop all merges; the vectors stay."""
        with self._lock:
            self._held.clear()
            self._sizes.clear()

    def close(self) -> None:
        """Stop the background merges after the current one."""
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> MergeCache:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _prefetch(self, combination: Combination) -> None:
        with self._lock:
            if combination in self._held:
                return
        self._get(combination, "prefetched")

    def _get(self, combination: Combination, counted: str) -> dict[str, Tensor]:
        with self._lock:
            held = self._held.get(combination)
            pending = self._pending.get(combination)
            if held is not None or pending is not None:
                if counted == "misses":
                    self._counts["hits"] += 1
                if held is not None:
                    self._held.move_to_end(combination)
                    return held
            else:
                self._counts[counted] += 1
                mine: Future[dict[str, Tensor]] = Future()
                self._pending[combination] = mine
        if pending is not None:
            return pending.result()
        try:
            made = self._merge(combination)
        except BaseException as error:
            with self._lock:
                del self._pending[combination]
            mine.set_exception(error)
            raise
        self._keep(combination, made)
        mine.set_result(made)
        return made

    def _merge(self, combination: Combination) -> dict[str, Tensor]:
        for name, _ in combination.pairs:
            if name not in self._vectors:
                raise ValueError(
                    f"unknown vector {name!r}{nearest(name, self._vectors)}; there are {list(self._vectors)}"
                )
        return merge(
            self._base,
            [self._vectors[name] for name, _ in combination.pairs],
            combination.method,
            [weight for _, weight in combination.pairs],
            combination.density,
            combination.seed,
            scale=combination.scale,
            normalize=combination.normalize,
            elect=combination.elect,
            gamma=combination.gamma,
        )

    def _keep(self, combination: Combination, made: dict[str, Tensor]) -> None:
        size = sum(value.nbytes for value in made.values())
        with self._lock:
            del self._pending[combination]
            if size <= self._budget:
                self._held[combination] = made
                self._sizes[combination] = size
                while sum(self._sizes.values()) > self._budget:
                    oldest, _ = self._held.popitem(last=False)
                    del self._sizes[oldest]
                    self._counts["evictions"] += 1
                return
        warnings.warn(
            f"a merge of {size:,} bytes is larger than the cache's budget of {self._budget:,} and is"
            " computed at every request: raise budget_bytes",
            CapacityWarning,
            stacklevel=4,
        )
