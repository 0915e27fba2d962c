"""Random shares: seeded, independent of order and pieces, and right on average."""

from __future__ import annotations

import math

import pytest
import torch

from sparse_core.merging.api import merge
from sparse_core.merging.arithmetic.masks import RandomShare
from sparse_core.merging.task_vector import TaskVector


def test_expectation_is_preserved() -> None:
    """The mean over N independent entries of value 1 lies within five standard errors of 1."""
    count, density = 1_000_000, 0.1
    kept = TaskVector({"w": torch.ones(count)}).dare(density, seed=3).deltas["w"]
    # An entry is 1/p with probability p: variance (1 - p) / p.
    bound = 5 * math.sqrt((1 - density) / density / count)
    assert abs(float(kept.double().mean()) - 1) < bound
    assert set(kept.unique().tolist()) == {0.0, float(torch.tensor(1 / (round(density * 2**32) / 2**32)))}


def test_seed_vector_and_name_decide() -> None:
    ones = torch.ones(1000)

    def mask(seed: int, vector: int, name: str) -> torch.Tensor:
        return RandomShare(0.5, seed=seed, vector=vector, name=name)(ones.clone(), 0) != 0

    first = mask(0, 0, "a")
    assert bool((mask(0, 0, "a") == first).all())
    for other in (mask(1, 0, "a"), mask(0, 1, "a"), mask(0, 0, "b")):
        # Independent halves agree in 500 of 1000 places, give or take 16; equal ones in all.
        assert 400 < int((other == first).sum()) < 600


def test_pieces_and_their_order_do_not_matter() -> None:
    share = RandomShare(0.4, seed=1, vector=0, name="w")
    whole = share(torch.ones(1001), 0)
    for bounds in ([(0, 1001)], [(0, 2), (2, 600), (600, 1001)], [(600, 1001), (0, 600)], [(2, 4), (2, 4)]):
        for start, stop in bounds:
            assert bool((share(torch.ones(stop - start), start) == whole[start:stop]).all())
    assert bool((share.for_thread()(torch.ones(1001), 0) == whole).all())


def test_order_of_tensors_does_not_matter() -> None:
    torch.manual_seed(0)
    deltas = {name: torch.randn(500) for name in ("a", "b", "c")}
    base = {name: torch.zeros(500) for name in deltas}
    forth = merge(base, [deltas], "dare_ties", 1.0, 0.5, 7)
    back = merge(dict(reversed(base.items())), [dict(reversed(deltas.items()))], "dare_ties", 1.0, 0.5, 7)
    assert all(bool((forth[name] == back[name]).all()) for name in deltas)


def test_the_stream_is_fixed() -> None:
    """Merges made today can be made again later."""
    mask = RandomShare(0.5, seed=0, vector=0, name="w")(torch.ones(16), 0)
    assert "".join("1" if bit else "0" for bit in mask) == "1101101110011011"


def test_a_density_of_one_keeps_everything() -> None:
    vector = TaskVector({"w": torch.randn(100)})
    assert bool((vector.dare(1.0).deltas["w"] == vector.deltas["w"]).all())
    with pytest.raises(ValueError, match="density must be above 0"):
        vector.dare(0.0)
