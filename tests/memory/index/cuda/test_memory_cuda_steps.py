"""The steps of a search in plain torch, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.index.cuda.bits import SignCodes, packed, population, weighted_distance
from memory.index.cuda.buckets import Effort, Functions, build, candidates, distinct
from memory.index.cuda.keys import MISSING, keys_of, ranked
from memory.index.cuda.rerank import rerank_top
from memory.index.cuda.scan import hamming_top
from memory.index.cuda.selection import lowest
from memory.index.evaluation import clustered

CPU = torch.device("cpu")


def words(rows: int, count: int, seed: int) -> torch.Tensor:
    generator = np.random.default_rng(seed)
    drawn = generator.integers(-(2**31), 2**31, (rows, count), dtype=np.int64).astype(np.int32)
    return torch.from_numpy(drawn)


def bits(code: torch.Tensor) -> np.ndarray:
    return np.unpackbits(code.numpy().view(np.uint8), axis=-1, bitorder="little")


def test_packed_bits_and_their_number() -> None:
    sides = torch.rand(9, 96, generator=torch.Generator().manual_seed(0)) < 0.5
    codes = packed(sides)
    assert codes.dtype == torch.int32
    assert (bits(codes) == sides.numpy()).all()
    assert population(codes).sum(1).tolist() == sides.sum(1).tolist()
    assert population(torch.tensor([0, -1, -(2**31), 2**31 - 1], dtype=torch.int32)).tolist() == [
        0,
        32,
        1,
        31,
    ]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 60),
    queries=st.integers(1, 3),
    count=st.integers(1, 70),
    few=st.booleans(),
    dead=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
)
def test_hamming_order(rows: int, queries: int, count: int, few: bool, dead: float, seed: int) -> None:
    # Few different codes make ties.
    codes = words(rows, 3, seed)[torch.arange(rows) % (4 if few else rows)]
    asked = words(queries, 3, seed + 1)
    alive = torch.rand(rows, generator=torch.Generator().manual_seed(seed)) >= dead
    found = hamming_top(codes.T.contiguous(), asked, count, alive=alive)
    places = np.flatnonzero(alive.numpy())
    for query in range(queries):
        distance = (bits(codes) != bits(asked[query : query + 1])).sum(1)[places]
        right = np.sort(places[np.argsort(distance, kind="stable")[:count]])
        assert found[query].tolist() == right.tolist() + [-1] * (count - len(right))


def test_weights_follow_the_size_of_coordinates() -> None:
    data = clustered(400, 5, dim=64, centres=5, noise=0.1)
    plain, weighted = (SignCodes(64, 256, planes, 0, CPU) for planes in (1, 3))
    vectors, queries = torch.from_numpy(data.vectors), torch.from_numpy(data.queries)
    assert torch.equal(plain.rows(vectors), weighted.rows(vectors))
    cosine = queries @ vectors.T
    agreement = []
    for signs in (plain, weighted):
        asked = signs.queries(queries)
        distance = weighted_distance(signs.rows(vectors)[None], asked.signs[:, None], asked.planes[:, None])
        agreement.append(float(np.corrcoef(distance.numpy().ravel(), cosine.numpy().ravel())[0, 1]))
    assert agreement[1] < agreement[0] < -0.9
    own = weighted.queries(vectors[:1])
    assert int(weighted_distance(weighted.rows(vectors[:1]), own.signs, own.planes)[0]) == 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 5, 9, 32767]), min_size=1, max_size=40), st.integers(1, 50))
def test_lowest(numbers: list[int], count: int) -> None:
    found = lowest(torch.tensor([numbers, numbers[::-1]], dtype=torch.int16), count)
    for row, given_row in zip(found.tolist(), (numbers, numbers[::-1]), strict=True):
        order = [int(place) for place in np.argsort(given_row, kind="stable") if given_row[place] < 32767]
        right = sorted(order[:count])
        assert row == right + [-1] * (count - len(right))


def test_largest_magnitudes() -> None:
    values = torch.randn(6, 50, generator=torch.Generator().manual_seed(0)).half() / 8
    found = lowest(values, 7)
    right = np.sort(np.argsort(-values.float().abs().numpy(), axis=1, kind="stable")[:, :7], axis=1)
    assert found.tolist() == right.tolist()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=20))
def test_keys_sort_like_scores_then_rows(scores: list[float]) -> None:
    rows = torch.arange(len(scores))
    keys = keys_of(torch.tensor([scores]), rows[None]).sort(1, descending=True).values
    found = ranked(keys)
    order = np.argsort(-np.array(scores, np.float32), kind="stable")
    assert found.rows[0].tolist() == order.tolist()
    assert found.scores[0].tolist() == np.array(scores, np.float32)[order].tolist()
    assert ranked(torch.tensor([[MISSING]])).rows.tolist() == [[-1]]


@pytest.mark.parametrize(("rows", "count", "k"), [(1, 1, 3), (50, 90, 10), (50, 20, 30)])
def test_exact_scores(rows: int, count: int, k: int) -> None:
    generator = np.random.default_rng(rows)
    data = clustered(rows, 4, dim=24, centres=3, noise=0.3)
    vectors, queries = torch.from_numpy(data.vectors).half(), torch.from_numpy(data.queries)
    vectors[rows // 2 :] = vectors[0].clone()
    listed = generator.integers(-1, rows, (4, count)).astype(np.int32)
    alive = generator.random(rows) > 0.3
    lengths = generator.integers(0, count + 1, 4).astype(np.int32)
    found = rerank_top(
        vectors,
        queries,
        torch.from_numpy(listed),
        k,
        alive=torch.from_numpy(alive),
        lengths=torch.from_numpy(lengths),
    )
    exact = vectors.double().numpy() @ data.queries.T.astype(np.float64)
    for query in range(4):
        kept = np.unique(listed[query, : lengths[query]])
        kept = kept[(kept >= 0) & alive[kept]]
        order = kept[np.lexsort((kept, -np.round(exact[kept, query], 6)))][:k]
        assert found.rows[query, : len(order)].tolist() == order.tolist()
        np.testing.assert_allclose(found.scores[query, : len(order)], exact[order, query], atol=1e-5)
        assert (found.rows[query, len(order) :] == -1).all()
        assert (found.scores[query, len(order) :] == -torch.inf).all()


def test_doubles_are_left_out() -> None:
    listed = torch.from_numpy(np.random.default_rng(0).integers(-1, 60, (5, 300)).astype(np.int32))
    rows, lengths = distinct(listed)
    for row, length, given_row in zip(rows.tolist(), lengths.tolist(), listed.tolist(), strict=True):
        assert set(row[:length]) == set(given_row) - {-1}
        assert row[length:] == [-1] * (300 - length)
        assert length < 100
    assert distinct(torch.full((1, 4), -1, dtype=torch.int32))[1].tolist() == [0]


def test_candidates_are_the_rows_of_likely_buckets() -> None:
    data = clustered(900, 6, dim=32, centres=9, noise=0.1)
    vectors, queries = torch.from_numpy(data.vectors).half(), torch.from_numpy(data.queries)
    functions, signs = Functions(32, 6, 4, 4, 0, CPU), SignCodes(32, 64, 1, 0, CPU)
    alive = torch.ones(900, dtype=torch.bool)
    alive[5::9] = False
    tables = build(functions, vectors, alive, 900)
    assert tables.postings.shape == (4, 800)
    assert (tables.offsets[:, -1] == 800).all()
    everything = Effort(8, 4 * 64, 4 * 900, 4 * 900)
    asked = signs.queries(queries)
    found = candidates(functions, tables, signs.rows(vectors), queries.half(), asked, everything)
    values = functions.values(functions.project(vectors)).numpy()
    own = functions.values(functions.project(queries)).numpy()
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4)]
    for query in range(6):
        near = [(values[:, [a, b]] == own[query, [a, b]]).all(1) for a, b in pairs]
        right = set(np.flatnonzero(np.any(near, axis=0) & alive.numpy()).tolist())
        assert right <= set(found.rows[query, : found.lengths[query]].tolist())
    assert int(found.overflow.sum()) == 0
    small = everything._replace(capacity=50)
    cut = candidates(functions, tables, signs.rows(vectors), queries.half(), asked, small)
    assert (cut.lengths <= 50).all()
    assert (cut.overflow > 0).any()
    with pytest.raises(ValueError, match="capacity"):
        candidates(functions, tables, signs.rows(vectors), queries.half(), asked, Effort(8, 9, 40_000, 9))


def test_bad_arguments() -> None:
    code = words(2, 3, 0)
    with pytest.raises(ValueError, match="words"):
        hamming_top(code, code, 1)
    with pytest.raises(TypeError, match="int32"):
        hamming_top(code.T.long(), code, 1)
    with pytest.raises(ValueError, match="count"):
        hamming_top(code.T.contiguous(), code, 0)
    with pytest.raises(ValueError, match="alive"):
        hamming_top(code.T.contiguous(), code, 1, alive=torch.ones(5, dtype=torch.bool))
    with pytest.raises(ValueError, match="planes"):
        hamming_top(code.T.contiguous(), code, 1, planes=code[:, None, :2])
    with pytest.raises(ValueError, match="impl"):
        hamming_top(code.T.contiguous(), code, 1, impl="fast")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float16"):
        rerank_top(torch.zeros(1, 2), torch.zeros(1, 2), code[:1], 1)
    with pytest.raises(ValueError, match="k must"):
        rerank_top(torch.zeros(1, 2).half(), torch.zeros(2, 2), code, 5000)
    with pytest.raises(TypeError, match="int16"):
        lowest(torch.zeros(1, 2), 1)
    with pytest.raises(ValueError, match="multiple"):
        SignCodes(8, 33, 1, 0, CPU)
    with pytest.raises(ValueError, match="planes"):
        SignCodes(8, 32, 5, 0, CPU)
