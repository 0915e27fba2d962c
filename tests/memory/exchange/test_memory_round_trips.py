"""Every field of a memory survives JSONL and Parquet."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.exchange.parquet import count_rows, read_rows, write_parquet
from memory.exchange.records import memory_from_record, record_of
from memory.types import KINDS, STATES, Memory

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_TIME = st.integers(-(2**63), 2**63 - 1)
_METRES = st.floats(-1e9, 1e9)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=4,
)


def vectors(dim: int) -> st.SearchStrategy[np.ndarray]:
    """Unit vectors in half precision, as a store gives them."""

    def unit(seed: int) -> np.ndarray:
        vector = np.random.default_rng(seed).normal(size=dim)
        return (vector / np.linalg.norm(vector)).astype(np.float16).astype(np.float32)

    return st.integers(0, 10**6).map(unit)


def _covariance(scale: float) -> np.ndarray:
    return np.diag([scale, 2 * scale, 1.0]) + 0.1 * scale * np.ones((3, 3))


def _visits(times: list[int]) -> list[tuple[int, int, int]]:
    """Each two of the rising times as a visit."""
    return [(first, last, 1 + first % 7) for first, last in zip(times[::2], times[1::2], strict=False)]


memories = st.builds(
    Memory,
    time_ns=_TIME,
    position=st.tuples(_METRES, _METRES, _METRES),
    yaw=st.floats(-10, 10),
    covariance=st.none() | st.floats(0, 100).map(_covariance),
    velocity=st.none() | st.tuples(_METRES, _METRES, _METRES),
    map_id=_TEXT,
    kind=st.sampled_from(KINDS),
    label=_TEXT,
    caption=_TEXT,
    embedding=st.none() | vectors(4),
    embeddings=st.just({}) | vectors(3).map(lambda vector: {"image": vector}),
    confidence=st.floats(0, 1),
    reward=st.floats(-1e9, 1e9),
    payload=st.dictionaries(_TEXT, _JSON, max_size=3),
    evidence=_TEXT,
    provenance=_TEXT,
    marked=st.booleans(),
    count=st.integers(1, 10**6),
    first_seen_ns=st.none() | _TIME,
    last_seen_ns=st.none() | _TIME,
    visits=st.lists(_TIME, max_size=8, unique=True).map(sorted).map(_visits),
    state=st.sampled_from(STATES),
    importance=st.none() | st.floats(0, 1),
)


def assert_same(left: Memory, right: Memory) -> None:
    """Every field, also those that ``==`` passes over."""
    assert left == right
    for name in ("covariance", "embedding"):
        first, second = getattr(left, name), getattr(right, name)
        assert (first is None) == (second is None), name
        if first is not None:
            np.testing.assert_array_equal(first.astype(np.float16), second.astype(np.float16))
    if left.covariance is not None and right.covariance is not None:
        np.testing.assert_array_equal(left.covariance, right.covariance)
    assert left.embeddings.keys() == right.embeddings.keys()
    for name, vector in left.embeddings.items():
        np.testing.assert_array_equal(vector.astype(np.float16), right.embeddings[name].astype(np.float16))


@given(memories)
def test_json(memory: Memory) -> None:
    text = json.dumps(record_of(memory), allow_nan=False)
    assert "\n" not in text
    assert_same(memory_from_record(json.loads(text), {"default": 4}), memory)


@settings(max_examples=25)
@given(st.lists(memories, max_size=5))
def test_parquet(kept: list[Memory]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memories.parquet"
        assert write_parquet(path, [kept[:2], kept[2:]]) == len(kept) == count_rows(path)
        found = [memory_from_record(row) for row in read_rows(path, batch_size=2)]
    for left, right in zip(found, kept, strict=True):
        assert_same(left, right)
