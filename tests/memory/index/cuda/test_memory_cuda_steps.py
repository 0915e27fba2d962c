"""The steps of a search in plain torch, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.index.cuda.cells import build, candidates, pivots_for, probe
from memory.index.cuda.codes import BINS, TOP, asked_levels, directions, distances, row_codes
from memory.index.cuda.keys import MISSING, keys_of, unpack_keys
from memory.index.cuda.layout import Cells, Sizes
from memory.index.cuda.rerank import rerank_top
from memory.index.cuda.scan import scan_top
from memory.index.evaluation import clustered


def levels_of(codes: torch.Tensor) -> np.ndarray:
    """(rows, 256) levels -3, -1, 1, 3 by the documented place of each direction."""
    words = codes.numpy().view(np.uint32)
    number = np.arange(256)
    word, shift = number % 64 // 4, 8 * (number % 4) + 2 * (number // 64)
    return 2 * ((words[:, word] >> shift) & 3).astype(np.int64) - 3


def drawn(rows: int, seed: int, dim: int = 48) -> torch.Tensor:
    vectors = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(vectors, dim=1)


def cells_of(vectors: torch.Tensor, pivots: int = 0) -> Cells:
    return build(vectors.half(), torch.ones(len(vectors), dtype=torch.bool), len(vectors), 0, pivots)


def test_directions_are_orthogonal_in_sets() -> None:
    drawn_for = directions(256, 3).double()
    torch.testing.assert_close(drawn_for @ drawn_for.T, torch.eye(256).double(), atol=1e-5, rtol=0)
    assert torch.equal(directions(48, 1), directions(48, 1))
    assert directions(300, 0).shape == (256, 300)


def test_codes_are_signs_and_the_largest_coordinates() -> None:
    coordinates = torch.randn(40, 256, generator=torch.Generator().manual_seed(0)).double().float()
    levels = levels_of(row_codes(coordinates))
    assert (np.sign(levels) == np.sign(coordinates.numpy())).all()
    assert ((np.abs(levels) == 3).sum(1) == 96).all()
    # All codes have the same length.
    assert ((levels**2).sum(1) == 1024).all()
    size = coordinates.abs().numpy()
    smallest_outer = np.where(np.abs(levels) == 3, size, np.inf).min(1)
    assert (np.where(np.abs(levels) == 1, size, 0).max(1) < smallest_outer).all()


@given(seed=st.integers(0, 999), length=st.sampled_from([0.0, 0.3, 1.0, 2.0, 900.0]))
@settings(max_examples=30)
def test_distances_are_exact_whole_numbers(seed: int, length: float) -> None:
    rows, query = drawn(20, seed, 256), length * drawn(1, seed + 1, 256)
    codes, asked = row_codes(rows), asked_levels(query.half(), 256)
    near = distances(codes, asked.levels, asked.base)[0]
    products = levels_of(codes) @ asked.levels[0].numpy().astype(np.int64)
    assert near.tolist() == np.clip((TOP - products) // 16, 0, BINS - 1).tolist()
    wanted = np.floor(query.half().double().numpy() * 24 * 16 + 0.5)
    assert (np.clip(wanted, -127, 127) == asked.levels.numpy()).all()


def test_distances_follow_cosines() -> None:
    data = clustered(400, 5, dim=64, centres=5, noise=0.1)
    vectors, queries = torch.from_numpy(data.vectors), torch.from_numpy(data.queries)
    cells = cells_of(vectors)
    asked = asked_levels(cells.coordinates(queries), 64)
    near = distances(cells.codes, asked.levels, asked.base)
    cosine = queries @ vectors[cells.rows.long()].T
    assert np.corrcoef(near.numpy().ravel(), cosine.numpy().ravel())[0, 1] < -0.98
    own = asked_levels(cells.coordinates(vectors[cells.rows[:1].long()]), 64)
    assert int(distances(cells.codes, own.levels, own.base)[0].argmin()) == 0


@pytest.mark.parametrize(
    ("rows", "pivots"),
    [(0, 1), (1, 1), (100, 64), (5000, 128), (65_536, 128), (200_000, 4096), (10_000_000, 16384)],
)
def test_number_of_pivots(rows: int, pivots: int) -> None:
    assert pivots_for(rows) == pivots
    assert pivots_for(10**9) == 32768


def test_each_row_lies_in_the_cell_of_its_nearest_pivot() -> None:
    vectors = drawn(500, 1)
    vectors[200:230] = vectors[0].clone()
    alive = torch.ones(500, dtype=torch.bool)
    alive[5::9] = False
    cells = build(vectors.half(), alive, 450, 7, 20)
    assert torch.equal(cells.base, build(vectors.half(), alive, 450, 7, 20).base)
    kept = alive[:450].nonzero()[:, 0]
    assert (cells.hashed, len(cells.rows)) == (450, len(kept))
    assert sorted(cells.rows.tolist()) == kept.tolist()
    pivots = cells.base[:20]
    # Pivots are rows, and each row's products are those of single precision, rounded once.
    assert (pivots[:, None] == vectors.half().float()[None]).all(2).any(1).all()
    nearest = (vectors.half().float() @ pivots.T).half().argmax(1)
    for cell in range(20):
        rows = cells.rows[cells.starts[cell] : cells.starts[cell + 1]].tolist()
        assert rows == [row for row in kept.tolist() if nearest[row] == cell]
    assert torch.equal(cells.slots[cells.rows.long()], torch.arange(len(kept), dtype=torch.int32))
    assert (cells.slots[~alive[:450]] == -1).all()
    cells.remove(torch.tensor([3, 200]))
    assert sorted(cells.rows[~cells.live].tolist()) == [3, 200]
    with pytest.raises(ValueError):
        build(vectors.half(), alive, 450, -1)


@settings(max_examples=30)
@given(
    rows=st.integers(1, 80),
    pivots=st.integers(1, 12),
    probes=st.integers(1, 14),
    capacity=st.integers(1, 90),
    rerank=st.integers(1, 60),
    few=st.booleans(),
    seed=st.integers(0, 99),
)
def test_candidates(
    rows: int, pivots: int, probes: int, capacity: int, rerank: int, few: bool, seed: int
) -> None:
    # Few different rows make ties.
    vectors = drawn(rows, seed)[torch.arange(rows) % (3 if few else rows)]
    cells = cells_of(vectors, pivots)
    cells.remove(torch.arange(0, rows, 5))
    products, overflow = cells.products(drawn(2, seed + 1)), torch.zeros(2, dtype=torch.int64)
    sizes = Sizes(probes, capacity, rerank)
    found = candidates(cells, products, sizes, overflow)
    starts = cells.starts.tolist()
    cut, asked = [], asked_levels(products[:, cells.pivots :], 48)
    for query in range(2):
        scores = products[query, : cells.pivots].numpy()
        order = np.argsort(-scores.astype(np.float64), kind="stable")[:probes]
        read = np.concatenate([np.arange(starts[cell], starts[cell + 1]) for cell in order])
        cut.append(max(len(read) - capacity, 0))
        read = read[:capacity]
        read = read[cells.live.numpy()[read]]
        near = distances(cells.codes[read], asked.levels, asked.base)[query].numpy()
        fitting = [value for value in np.unique(near) if (near <= value).sum() <= rerank]
        if fitting:
            right = read[near <= max(fitting)]
        else:
            right = read[near == near.min()][:rerank] if len(near) else read
        kept = found.rows[query, : int(found.lengths[query])].tolist()
        assert sorted(kept) == sorted(cells.rows[right].tolist())
    assert overflow.tolist() == [sum(number > 0 for number in cut), sum(cut)]


def test_the_farthest_cells_are_cut() -> None:
    vectors = drawn(600, 2)
    cells = cells_of(vectors, 12)
    products, overflow = cells.products(vectors[:3]), torch.zeros(2, dtype=torch.int64)
    whole = probe(cells, products, Sizes(12, 600, 9), overflow)
    assert (whole.ends[:, -1] == 600).all()
    assert overflow.tolist() == [0, 0]
    part = probe(cells, products, Sizes(12, 100, 9), overflow)
    assert torch.equal(part.ends, whole.ends.clamp_max(100))
    assert torch.equal(part.shifts, whole.shifts)
    assert overflow.tolist() == [3, 1500]


def test_effort_grows_with_the_number_of_neighbours() -> None:
    sizes = Sizes(24, 1000, 512)
    assert sizes.of(10) == sizes.of(64) == sizes
    assert sizes.of(1024) == Sizes(96, 4000, 4096)
    assert Sizes(100, 10, 1).of(1024).probes == 128


@settings(max_examples=30)
@given(
    rows=st.integers(1, 60),
    count=st.integers(1, 70),
    few=st.booleans(),
    dead=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
)
def test_scan_order(rows: int, count: int, few: bool, dead: float, seed: int) -> None:
    vectors = drawn(rows, seed)[torch.arange(rows) % (4 if few else rows)]
    cells = cells_of(vectors)
    coordinates = cells.coordinates(drawn(2, seed + 1))
    live = torch.rand(rows, generator=torch.Generator().manual_seed(seed)) >= dead
    found = scan_top(cells.codes, coordinates, count, dim=48, live=live)
    named = scan_top(cells.codes, coordinates, count, dim=48, rows=cells.rows, live=live)
    places, asked = np.flatnonzero(live.numpy()), asked_levels(coordinates, 48)
    for query in range(2):
        near = distances(cells.codes, asked.levels, asked.base)[query].numpy()[places]
        right = np.sort(places[np.argsort(near, kind="stable")[:count]])
        assert found[query].tolist() == right.tolist() + [-1] * (count - len(right))
        assert named[query, : len(right)].tolist() == cells.rows[right].tolist()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=20))
def test_keys_sort_like_scores_then_rows(scores: list[float]) -> None:
    rows = torch.arange(len(scores))
    keys = keys_of(torch.tensor([scores]), rows[None]).sort(1, descending=True).values
    found = unpack_keys(keys)
    order = np.argsort(-np.array(scores, np.float32), kind="stable")
    assert found.rows[0].tolist() == order.tolist()
    assert found.scores[0].tolist() == np.array(scores, np.float32)[order].tolist()
    assert unpack_keys(torch.tensor([[MISSING]])).rows.tolist() == [[-1]]


@pytest.mark.parametrize(
    ("rows", "count", "k", "tail"), [(1, 1, 3, 0), (50, 90, 10, 0), (50, 20, 30, 8), (50, 0, 3, 64)]
)
def test_exact_scores(rows: int, count: int, k: int, tail: int) -> None:
    generator = np.random.default_rng(rows)
    data = clustered(rows, 4, dim=24, centres=3, noise=0.3)
    vectors, queries = torch.from_numpy(data.vectors).half(), torch.from_numpy(data.queries)
    vectors[rows // 2 :] = vectors[0].clone()
    listed = generator.integers(-1, rows, (4, count)).astype(np.int32)
    alive = generator.random(rows) > 0.3
    lengths = generator.integers(0, count + 1, 4).astype(np.int32)
    names = torch.arange(rows) * 10
    found = rerank_top(
        vectors,
        queries,
        torch.from_numpy(listed),
        k,
        alive=torch.from_numpy(alive),
        lengths=torch.from_numpy(lengths),
        tail=(rows - 4, tail),
        names=names,
    )
    exact = vectors.double().numpy() @ data.queries.T.astype(np.float64)
    further = np.arange(rows - 4, min(rows - 4 + tail, rows)) if tail else np.empty(0, np.int64)
    for query in range(4):
        kept = np.unique(np.concatenate([listed[query, : lengths[query]], further]).astype(np.int64))
        kept = kept[(kept >= 0) & alive[kept]]
        order = kept[np.lexsort((kept, -np.round(exact[kept, query], 6)))][:k]
        assert found.rows[query, : len(order)].tolist() == (10 * order).tolist()
        np.testing.assert_allclose(found.scores[query, : len(order)], exact[order, query], atol=1e-5)
        assert (found.rows[query, len(order) :] == -1).all()
        assert (found.scores[query, len(order) :] == -torch.inf).all()


def test_bad_arguments() -> None:
    codes, coordinates = torch.zeros((2, 16), dtype=torch.int32), torch.zeros((1, 256)).half()
    with pytest.raises(ValueError, match="codes"):
        scan_top(codes[:, :3], coordinates, 1, dim=8)
    with pytest.raises(TypeError, match="int32"):
        scan_top(codes.long(), coordinates, 1, dim=8)
    with pytest.raises(ValueError, match="coordinates"):
        scan_top(codes, coordinates[:, :9], 1, dim=8)
    with pytest.raises(ValueError, match="count"):
        scan_top(codes, coordinates, 0, dim=8)
    with pytest.raises(ValueError, match="live"):
        scan_top(codes, coordinates, 1, dim=8, live=torch.ones(5, dtype=torch.bool))
    with pytest.raises(ValueError, match="rows"):
        scan_top(codes, coordinates, 1, dim=8, rows=torch.ones(2))
    with pytest.raises(ValueError, match="impl"):
        scan_top(codes, coordinates, 1, dim=8, impl="fast")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float16"):
        rerank_top(torch.zeros(1, 2), torch.zeros(1, 2), codes[:1], 1)
    with pytest.raises(ValueError, match="k must"):
        rerank_top(torch.zeros(1, 2).half(), torch.zeros(2, 2), codes, 5000)
