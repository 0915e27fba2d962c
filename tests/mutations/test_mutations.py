from __future__ import annotations

import hashlib

import pytest
from mutations import KINDS, mutations

TEXT = b"%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.5\n2 3 -4e2\n"


@pytest.mark.parametrize("data", [TEXT, bytes(range(256)), b"x", b""])
def test_every_kind_changes_a_file_the_same_way_each_time(data: bytes) -> None:
    first = list(mutations(data, 5 * len(KINDS), seed=3))
    assert len(first) == 5 * len(KINDS)
    assert all(mutated != data for _, mutated in first)
    assert first == list(mutations(data, 5 * len(KINDS), seed=3))
    assert first != list(mutations(data, 5 * len(KINDS), seed=4))
    if data is TEXT:
        assert {name for name, _ in first} == set(KINDS)


def test_mutations_do_not_depend_on_machine_or_interpreter() -> None:
    digest = hashlib.sha256()
    for name, mutated in mutations(TEXT, 200, seed=0):
        digest.update(name.encode() + mutated)
    assert digest.hexdigest() == "8ea0ae93356c931575c36183b9815db632ad2c07a31ffa9783b4ecc88e87c7ae"
