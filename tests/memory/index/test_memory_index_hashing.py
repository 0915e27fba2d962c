"""Hash functions and the tables over them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.index import hashing
from memory.index.buckets import BUCKET_LIMIT, build_buckets, pair_codes
from memory.index.evaluation import clustered
from memory.index.hashing import HashFunctions, differing_bits, function_pairs


@pytest.mark.parametrize("dim", [1, 5, 64])
def test_near_vectors_share_values_more_often(dim: int) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((400, dim)).astype(np.float32)
    near = vectors + 0.1 * generator.standard_normal((400, dim)).astype(np.float32)
    functions = HashFunctions(dim, 6, 4, seed=1)
    codes, others = functions.codes(functions.project(vectors)), functions.codes(functions.project(near))
    assert codes.shape == (400, 6)
    assert codes.max() < 1 << 4
    same, chance = (codes == others).mean(), (codes == codes[::-1]).mean()
    assert same > chance + 0.2


@pytest.mark.parametrize("dim", [1, 16, 64, 100, 128])
def test_sets_of_projections_are_rotations_and_seeded(dim: int) -> None:
    first, again = (HashFunctions(dim, 20, 7, seed=3) for _ in range(2))
    other = HashFunctions(dim, 20, 7, seed=4)
    vectors = np.random.default_rng(0).standard_normal((50, dim)).astype(np.float32)
    projected = first.project(vectors)
    assert (projected == again.project(vectors)).all()
    assert not (projected == other.project(vectors)).all()
    sets = projected.reshape(50, -1, first.signs.shape[1])
    assert sets.shape[1] >= 10
    for number in range(sets.shape[1]):
        np.testing.assert_allclose(sets[:, number] @ sets[:, number].T, vectors @ vectors.T, atol=1e-4 * dim)
    # Every set has directions of its own.
    directions = first.project(np.eye(dim, dtype=np.float32))
    assert len(np.unique(np.abs(directions).T.round(4), axis=0)) > min(dim, 2) * sets.shape[1]


def test_the_own_value_costs_nothing_and_others_are_distinct() -> None:
    functions = HashFunctions(32, 5, 6, seed=0)
    projected = functions.project(clustered(50, 0, dim=32, centres=9).vectors)
    ranked = functions.rank_values(projected, 9)
    codes = functions.codes(projected)
    own = ranked.values == codes[..., None]
    assert (own.sum(axis=2) == 1).all()
    assert (ranked.costs[own] == 0).all()
    assert (ranked.costs >= 0).all()
    assert all(len(set(row)) == 9 for row in ranked.values.reshape(-1, 9).tolist())


def test_cross_polytope_ranks_the_nearest_axes() -> None:
    functions = HashFunctions(16, 2, 5, seed=0)
    projected = functions.project(clustered(20, 0, dim=16, centres=4).vectors)
    ranked = functions.rank_values(projected, 3)
    for row, parts in enumerate(projected[:, :32].reshape(20, 2, 16)):
        for function, part in enumerate(parts):
            right = {2 * axis + (part[axis] < 0) for axis in np.argsort(-np.abs(part))[:3]}
            assert set(ranked.values[row, function].tolist()) == right
    tied = functions.rank_values(np.zeros((1, projected.shape[1]), np.float32), 3)
    assert tied.values.tolist() == [[[0, 2, 4]] * 2]


def test_hamming_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.random.default_rng(0).integers(0, 2**63, (40, 3)).astype(np.uint64)
    right = [
        sum(bin(int(a) ^ int(b)).count("1") for a, b in zip(row, codes[0], strict=True)) for row in codes
    ]
    assert differing_bits(codes, codes[0]).tolist() == right
    # numpy before 2.0 has no bitwise_count.
    monkeypatch.delattr(hashing.np, "bitwise_count", raising=False)
    assert differing_bits(codes, codes[0]).tolist() == right


@given(st.integers(2, 12), st.data())
def test_pairs_differ_and_use_functions_evenly(functions: int, data: st.DataObject) -> None:
    tables = data.draw(st.integers(1, functions * (functions - 1) // 2))
    pairs = function_pairs(functions, tables)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == tables
    used = np.bincount(list(itertools.chain(*pairs)), minlength=functions)
    assert used.max() - used.min() <= 2


@pytest.mark.parametrize(("rows", "bits"), [(0, 4), (1, 4), (700, 3), (700, 8)])
def test_buckets_hold_every_row_of_a_code(rows: int, bits: int) -> None:
    codes = np.random.default_rng(0).integers(0, 1 << bits, (rows, 3)).astype(np.uint16)
    pairs = [(0, 1), (1, 2)]
    buckets = build_buckets(codes, 40, pairs, bits)
    for table, pair in enumerate(pairs):
        wanted = pair_codes(codes, *pair, bits)
        for code in {0, *wanted.tolist()}:
            found = buckets.read(np.array([(table << 2 * bits) | code]), 2 * bits)
            exact = (np.flatnonzero(wanted == code) + 40).tolist()
            assert set(exact) <= set(found.rows.tolist())
            if buckets.address_bits == 2 * bits:
                assert found.rows.tolist() == exact


def test_many_probes_at_once_are_told_apart_and_huge_buckets_cut() -> None:
    codes = np.zeros((BUCKET_LIMIT + 50, 2), np.uint16)
    codes[-3:] = 1
    buckets = build_buckets(codes, 0, [(0, 1)], 4)
    found = buckets.read(np.array([(1 << 4) | 1, 0, 99]), 8)
    assert found.ends.tolist() == [3, 3 + BUCKET_LIMIT, 3 + BUCKET_LIMIT]
    assert found.rows[:3].tolist() == [BUCKET_LIMIT + 47, BUCKET_LIMIT + 48, BUCKET_LIMIT + 49]
    assert found.rows[3:].tolist() == list(range(BUCKET_LIMIT))


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="bits must be from 2 to 15"):
        HashFunctions(4, 4, 16, 0)
    with pytest.raises(ValueError, match="functions must be at least 2"):
        HashFunctions(4, 1, 4, 0)
    with pytest.raises(ValueError, match="tables must be from 1 to 6"):
        function_pairs(4, 7)
