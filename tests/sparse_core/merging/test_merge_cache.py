"""Merges kept, made ahead and swapped into a module at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from sparse_core.errors import CapacityWarning
from sparse_core.merging import merge_cache as cache_module
from sparse_core.merging.api import merge
from sparse_core.merging.hot_swap import HotSwap
from sparse_core.merging.merge_cache import Combination, MergeCache
from sparse_core.merging.task_vector import TaskVector

BASE = {"w": torch.zeros(1000)}
VECTORS = {name: TaskVector({"w": torch.full((1000,), value)}) for name, value in (("a", 1.0), ("b", 10.0))}


def test_combinations_are_equal_by_what_they_say() -> None:
    first = Combination({"a": 1, "b": 2}, "dare")
    assert first == Combination((("b", 2.0), ("a", 1.0)), "dare_linear")
    assert len({first, Combination({"b": 2, "a": 1}, "dare"), Combination({"a": 1})}) == 2
    with pytest.raises(ValueError, match="did you mean 'ties'"):
        Combination({"a": 1}, "teis")


def test_least_recently_used_go_first() -> None:
    with MergeCache(BASE, VECTORS, budget_bytes=8000) as cache:
        one, two, three = (Combination({"a": weight}) for weight in (1, 2, 3))
        assert float(cache.get(two)["w"][0]) == 2
        assert float(cache.get(one)["w"][0]) == 1
        assert cache.get(two) is cache.get(two)
        cache.get(three)
        assert (one in cache, two in cache, three in cache) == (False, True, True)
        assert cache.statistics == (2, 3, 0, 1, 2, 8000)
        cache.clear()
        assert cache.statistics[4:] == (0, 0)


def test_what_is_cached_is_what_merge_makes() -> None:
    torch.manual_seed(0)
    base = {"w": torch.randn(500)}
    vectors = {name: TaskVector({"w": torch.randn(500)}) for name in "ab"}
    with MergeCache(base, vectors, budget_bytes=10**6) as cache:
        found = cache.get(Combination({"b": 0.3, "a": 0.7}, "dare_ties", 0.4, 1.2, True, "count", 0.1, 9))
    expected = merge(
        base,
        [vectors["a"], vectors["b"]],
        "dare_ties",
        [0.7, 0.3],
        0.4,
        9,
        scale=1.2,
        normalize=True,
        elect="count",
    )
    assert torch.equal(found["w"], expected["w"])


def test_prefetching_makes_later_requests_hits() -> None:
    with MergeCache(BASE, VECTORS, budget_bytes=8000) as cache:
        often, once = Combination({"a": 1}), Combination({"b": 1})
        for combination in (often, often, once):
            cache.get(combination)
        cache.clear()
        for future in cache.prefetch_common(1):
            future.result(timeout=300)
        assert (often in cache, once in cache) == (True, False)
        before = cache.statistics
        cache.get(often)
        assert (cache.statistics.hits, cache.statistics.misses) == (before.hits + 1, before.misses)
        assert cache.statistics.prefetched == 1
        for future in cache.prefetch([often]):
            future.result(timeout=300)
        assert cache.statistics.prefetched == 1
        with pytest.raises(ValueError, match=r"unknown vector 'aa' \(did you mean 'a'\?\)"):
            cache.prefetch([Combination({"aa": 1})])[0].result(timeout=300)


def test_requests_at_once_merge_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*args: object, **options: object) -> dict[str, torch.Tensor]:
        time.sleep(0.1)
        return merge(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(cache_module, "merge", slow)
    with MergeCache(BASE, VECTORS, budget_bytes=8000) as cache:
        found: list[object] = []
        threads = [
            threading.Thread(target=lambda: found.append(cache.get(Combination({"a": 1})))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 6
        assert all(one is found[0] for one in found)
        assert cache.statistics[:2] == (5, 1)


def test_budgets_and_errors() -> None:
    with pytest.raises(ValueError, match="budget_bytes must be at least 1"):
        MergeCache(BASE, VECTORS, budget_bytes=0)
    with pytest.raises(ValueError, match="at least one task vector"):
        MergeCache(BASE, {}, budget_bytes=1)
    with MergeCache(BASE, VECTORS, budget_bytes=3999) as cache:
        with pytest.warns(CapacityWarning, match="4,000 bytes is larger than the cache's budget of 3,999"):
            cache.get(Combination({"a": 1}))
        with pytest.raises(ValueError, match="unknown vector 'c'"):
            cache.get(Combination({"c": 1}))
        assert cache.statistics[4:] == (0, 0)


class Sum(nn.Module):
    """Reads its two parameters with a pause between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

    def forward(self, pause: Callable[[], object]) -> tuple[float, float]:
        first = self.first.item()
        pause()
        return first, self.second.item()


@pytest.mark.parametrize("copy", [False, True])
def test_no_forward_pass_sees_half_a_swap(copy: bool) -> None:
    module = Sum()
    pointers = [value.data_ptr() for value in module.parameters()]
    with HotSwap(module, copy=copy) as swap:
        seen: list[tuple[float, float]] = []
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                seen.append(module(lambda: time.sleep(0.001)))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1, 20):
            swap.swap({"first": torch.tensor([float(number)]), "second": torch.tensor([float(number)])})
            # The next swap comes in the middle of a pass that began after this one.
            before = len(seen)
            while len(seen) < before + 4:
                time.sleep(0.0005)
        done.set()
        for thread in threads:
            thread.join()
    assert all(first == second for first, second in seen)
    assert len({first for first, _ in seen}) >= 19
    assert [value.data_ptr() for value in module.parameters()] == pointers or not copy


def test_without_the_guard_halves_are_seen() -> None:
    """The test above can fail."""
    module = Sum()
    found: list[tuple[float, float]] = []
    paused, swapped = threading.Event(), threading.Event()

    def pause() -> None:
        paused.set()
        assert swapped.wait(300)

    thread = threading.Thread(target=lambda: found.append(module(pause)))
    thread.start()
    assert paused.wait(300)
    for value in module.parameters():
        value.data = torch.ones(1)
    swapped.set()
    thread.join()
    assert found == [(0.0, 1.0)]


def test_a_swap_fits_or_changes_nothing() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    new = {name: value + 1 for name, value in before.items()}
    with HotSwap(module) as swap:
        with pytest.raises(ValueError, match="the new state has other tensors than the module"):
            swap.swap({"0.weight": new["0.weight"]})
        with pytest.raises(ValueError, match=r"'1.bias' has shape \(5,\)"):
            swap.swap({**new, "1.bias": torch.ones(5)})
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        swap.swap({name: value.double() for name, value in new.items()})
        assert all(torch.equal(value, new[name]) for name, value in module.state_dict().items())
        assert module[0].weight.dtype == torch.float32


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.swap: HotSwap | None = None

    def forward(self, x: int) -> int:
        if self.swap is not None:
            self.swap.swap({"weight": torch.ones(1)})
        if x < 0:
            raise KeyError(x)
        return self(x - 1) if x else 0


def test_passes_that_fail_or_recurse_do_not_block() -> None:
    module = Failing()
    with HotSwap(module) as swap:
        with pytest.raises(KeyError):
            module(-1)
        assert module(3) == 0
        swap.swap({"weight": torch.ones(1)})
        assert module.weight.item() == 1
        module.swap = swap
        with pytest.raises(RuntimeError, match="within a forward pass"):
            module(0)
