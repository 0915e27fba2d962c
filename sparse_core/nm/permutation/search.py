"""Search the order of columns that keeps most of a weight matrix under n:m pruning."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from sparse_core.nm.pattern import NMPattern, check_groups
from sparse_core.nm.permutation.annealing import anneal, best_chain
from sparse_core.nm.permutation.descent import Arrangement, arrange, descend, descend_exhaustively, rearrange
from sparse_core.nm.permutation.stripes import matrix_retained, row_bound

Effort = Literal["fast", "default", "high"]


class Annealing(NamedTuple):
    """One annealing run.

    Attributes:
        work: upper bound of the weights that all steps of all chains read together.
        chains: upper bound of parallel chains.
        sweeps: upper bound of a chain's rounds through all pairs of stripes.
        temperatures: first and last, in standard deviations of an exchange's gain; tuned on uniform and
            normal matrices.
    """

    work: int
    chains: int
    sweeps: int
    temperatures: tuple[float, float]


@dataclass(frozen=True)
class SearchBudget:
    """Limits of a search in work instead of seconds, so that it repeats.

    Attributes:
        annealing: runs one after the other.
        escapes: attempts to leave the local optimum.
        exhaustive: total weights in the divisions of all pairs of stripes, at most.
    """

    annealing: tuple[Annealing, ...]
    escapes: int
    exhaustive: int


_SHORT = Annealing(3 << 26, 8, 225, (0.15, 0.04))
_LONG = Annealing(1 << 30, 16, 1000, (0.12, 0.06))
BUDGETS: dict[Effort, SearchBudget] = {
    "fast": SearchBudget((), escapes=0, exhaustive=1 << 26),
    "default": SearchBudget((_SHORT,), escapes=30, exhaustive=1 << 26),
    "high": SearchBudget((_SHORT, _LONG), escapes=300, exhaustive=1 << 31),
}


# With fewer rounds through all pairs of stripes, chains start from the descent's result instead of a random
# order.
_SWEEPS_FROM_RANDOM = 20
# Smaller matrices are annealed as long as one of this size, because call overhead dominates there.
_LEAST_STEP = 1 << 13


class Permutation(NamedTuple):
    """The better order of columns and the magnitude it keeps.

    Attributes:
        permutation: (columns,) int64 on the device of the weight; ``weight[:, permutation]`` is the better
            matrix.
        retained_before: sum of the magnitudes that n:m pruning keeps in the given order.
        retained: the same in the new order; never less.
        upper_bound: magnitude that each row keeps without the pattern: its largest n / m.
        recovered: share of the way from ``retained_before`` to ``upper_bound``, 0 if they are equal.
    """

    permutation: Tensor
    retained_before: float
    retained: float
    upper_bound: float
    recovered: float


def permute_channels(
    weight: Tensor | Any,
    n: int | NMPattern = 2,
    m: int | None = None,
    *,
    seed: int = 0,
    effort: Effort = "default",
    escapes: int | None = None,
    time_limit_s: float | None = None,
    progress: bool = False,
) -> Permutation:
    """Find an order of the columns of ``weight`` that keeps more of it under n:m pruning.

    After Pool and Yu, "Channel Permutations for N:M Sparsity" (NeurIPS 2021), and Mishra et al.,
    "Accelerating Sparse Deep Neural Networks" (2021):

    - Columns are exchanged between pairs of stripes of m, the best exchanges first, until no pair gains. For
      m up to 5, each pair of stripes also gets its best division of all (35 for m = 4).
    - Small matrices are then annealed in several parallel chains, beyond these papers.
    - Escapes with bounded regret follow: a few random exchanges, undone unless the descent from there ends
      higher.

    A change of one column is scored for all columns at once, so any n:m is searched alike.

    On a CPU the search uses one thread: it is many short calls on cached numbers, which threads would slow
    down. The default takes 2 to 3 s on one core for float32 matrices from 128 x 64 to 1024 x 1024, and grows
    with the rows above that; use a GPU for those.

    Args:
        weight: (rows, columns), a floating tensor or an array; columns divisible by m.
        n: columns to keep per group, or a pattern.
        m: columns per group; 4 by default.
        seed: seed of the random choices; results repeat on the same device.
        effort: ``"fast"`` only descends; ``"default"`` anneals small matrices; ``"high"`` does about eight
            times as much.
        escapes: attempts to leave the local optimum, instead of the effort's.
        time_limit_s: stop after so many seconds; results then depend on the machine's speed.
        progress: show a progress bar.

    Returns:
        The permutation with the magnitudes before and after; the identity if nothing gains.

    Raises:
        TypeError: ``weight`` is not floating point.
        ValueError: not a matrix, not divisible by m, not finite, a wrong n:m or an unknown effort.
    """
    pattern = _pattern(n, m)
    matrix = _matrix(weight, pattern)
    if effort not in get_args(Effort):
        raise ValueError(f"effort must be one of {', '.join(get_args(Effort))}; got {effort!r}")
    if escapes is not None and escapes < 0:
        raise ValueError(f"escapes must be 0 or more, got {escapes}")
    budget = BUDGETS[effort]
    with torch.no_grad(), _one_thread(matrix.device):
        dtype = torch.float64 if matrix.dtype == torch.float64 else torch.float32
        magnitudes = matrix.abs().to(dtype).T.contiguous()
        identity = torch.arange(matrix.shape[1], device=matrix.device)
        before = matrix_retained(matrix, pattern.n, pattern.m)
        bound = row_bound(magnitudes, pattern.n, pattern.m) if magnitudes.numel() else 0.0
        if pattern.n == pattern.m or matrix.shape[1] <= pattern.m or not len(matrix):
            return Permutation(identity, before, before, max(bound, before), 0.0)
        with _progress(progress) as bar:
            search = _Search(magnitudes, pattern, seed, time_limit_s, bar)
            order = search.run(budget, budget.escapes if escapes is None else escapes)
        permutation = order.flatten()
        after = matrix_retained(matrix[:, permutation], pattern.n, pattern.m)
    if after <= before:
        permutation, after = identity, before
    bound = max(bound, after)
    gap = bound - before
    return Permutation(permutation, before, after, bound, (after - before) / gap if gap > 0 else 0.0)


class _Search:
    def __init__(
        self, magnitudes: Tensor, pattern: NMPattern, seed: int, time_limit_s: float | None, bar: Progress
    ) -> None:
        self.magnitudes = magnitudes
        self.n, self.m = pattern.n, pattern.m
        self.generator = torch.Generator(device=magnitudes.device).manual_seed(seed)
        self.end = None if time_limit_s is None else time.monotonic() + time_limit_s
        self.bar = bar

    def run(self, budget: SearchBudget, escapes: int) -> Tensor:
        """Return the columns in stripes, (stripes, m)."""
        columns = len(self.magnitudes)
        start = torch.arange(columns, device=self.magnitudes.device).reshape(-1, self.m)
        best = self._descend(arrange(self.magnitudes, start, self.n), budget)
        for run in budget.annealing:
            annealed = self._anneal(best, run)
            if annealed is not None:
                # A chain may end anywhere, so it counts only after a descent.
                found = self._descend(arrange(self.magnitudes, annealed, self.n), budget)
                best = found if found.total > best.total else best
        return self._escape(best, escapes, budget).order

    def _descend(self, arrangement: Arrangement, budget: SearchBudget) -> Arrangement:
        arrangement = descend(arrangement, self.magnitudes, self.n)
        stripes = len(arrangement.order)
        divisions = math.comb(2 * self.m, self.m) // 2
        weights = stripes * (stripes - 1) // 2 * divisions * 2 * self.m * self.magnitudes.shape[1]
        if self.m > 5 or weights > budget.exhaustive or self._is_over():
            return arrangement
        return descend_exhaustively(arrangement, self.magnitudes, self.n)

    def _anneal(self, best: Arrangement, run: Annealing) -> Tensor | None:
        stripes = len(best.order)
        chain_steps = run.work // max(self.magnitudes.numel(), _LEAST_STEP)
        # One step visits a stripe once, so a sweep over all partners takes stripes - 1 steps.
        sweeps = chain_steps // (stripes - 1)
        if sweeps < 1 or self._is_over():
            return None
        chains = max(1, min(run.chains, sweeps // _SWEEPS_FROM_RANDOM))
        steps = min(chain_steps // chains, run.sweeps * (stripes - 1))
        if sweeps < _SWEEPS_FROM_RANDOM:
            order = best.order[None]
        else:
            shape = (chains, stripes * self.m)
            random = torch.rand(
                shape, generator=self.generator, device=best.order.device, dtype=torch.float32
            )
            order = random.argsort(dim=1).reshape(chains, stripes, self.m)
        task = self.bar.add_task("annealing", total=steps)

        def stop(step: int) -> bool:
            self.bar.update(task, completed=step + 1)
            return self._is_over()

        order = anneal(
            self._scaled(),
            order,
            self.n,
            steps=steps,
            temperatures=run.temperatures,
            generator=self.generator,
            stop=stop,
        )
        return best_chain(self.magnitudes, order, self.n)

    def _scaled(self) -> Tensor:
        """Return magnitudes in [0, 1] and float32, which are faster and precise enough for random choices."""
        largest = self.magnitudes.max()
        return torch.where(largest > 0, self.magnitudes / largest, 0.0).float()

    def _escape(self, best: Arrangement, escapes: int, budget: SearchBudget) -> Arrangement:
        task = self.bar.add_task("escapes", total=escapes)
        for _ in range(escapes):
            if self._is_over():
                break
            shaken = rearrange(best, self.magnitudes, self._shake(best.order), self.n)
            found = descend(shaken, self.magnitudes, self.n)
            if found.total > best.total:
                best = found
            self.bar.advance(task)
        return self._descend(best, budget)

    def _shake(self, order: Tensor) -> Tensor:
        """Return ``order`` with two random columns exchanged in each of up to four random stripes."""
        stripes, m = order.shape
        taken = torch.randperm(stripes, generator=self.generator, device=order.device)[:4]
        taken = taken[: len(taken) // 2 * 2].reshape(2, -1)
        slots = torch.randint(m, taken.shape, generator=self.generator, device=order.device)
        result = order.clone()
        result[taken, slots] = order[taken.flip(0), slots.flip(0)]
        return result

    def _is_over(self) -> bool:
        return self.end is not None and time.monotonic() >= self.end


def _pattern(n: int | NMPattern, m: int | None) -> NMPattern:
    if isinstance(n, NMPattern):
        if m is not None and m != n.m:
            raise ValueError(f"m={m} contradicts the pattern {n}")
        return n
    return NMPattern(n, 4 if m is None else m)


def _matrix(weight: Tensor | Any, pattern: NMPattern) -> Tensor:
    matrix = weight.detach() if isinstance(weight, Tensor) else torch.as_tensor(weight)
    if not matrix.is_floating_point():
        raise TypeError(f"weight must be floating point, got {matrix.dtype}")
    if matrix.ndim != 2:
        raise ValueError(
            f"weight must be a matrix (rows, columns), got shape {tuple(matrix.shape)};"
            " sparse_core.nm.pattern.weight_matrix makes one of a convolution's weight"
        )
    check_groups(matrix.shape[1], pattern.m)
    if not bool(matrix.isfinite().all()):
        raise ValueError("weight has NaN or infinite entries: channels cannot be compared")
    return matrix


@contextmanager
def _one_thread(device: torch.device) -> Iterator[None]:
    """Use one thread for tensors on a CPU.

    The search is many short calls on cached numbers. A second thread gains a tenth on an idle machine, but
    with another process on the cores each call waits, and the search takes ten times as long.
    """
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _progress(show: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(), disable=not show,
    )  # fmt: skip
