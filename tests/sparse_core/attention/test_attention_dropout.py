"""The hash that dropout uses: fixed values, and whether it looks random."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparse_core.attention.dropout import kept_weights, mix, row_states


def test_mix_is_the_finaliser_of_murmur3() -> None:
    """Against the same steps in numpy's wrapping 32-bit arithmetic."""
    words = np.random.default_rng(0).integers(0, 2**32, 1000, dtype=np.uint32)
    expected = words.copy()
    expected = (expected ^ (expected >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    expected = (expected ^ (expected >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    expected ^= expected >> np.uint32(16)
    found = mix(torch.from_numpy(words.astype(np.int64)))
    assert np.array_equal(found.numpy(), expected.astype(np.int64))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_share_and_independence(share: float) -> None:
    kept = kept_weights(row_states(5, 2, 4, 128, "cpu"), torch.arange(256), share).double()
    count = kept.numel()
    spread = (share * (1 - share) / count) ** 0.5
    assert abs(float(kept.mean()) - (1 - share)) < 5 * spread
    centred = kept - (1 - share)
    for axis in range(4):
        neighbours = (centred.roll(1, axis) * centred).mean() / (share * (1 - share))
        assert abs(float(neighbours)) < 5 / count**0.5
    # Rows and columns scatter as expected too.
    for axis, length in ((3, 256), (2, 128)):
        ratio = float(centred.mean(axis).var()) * length / (share * (1 - share))
        assert 0.8 < ratio < 1.2


def test_every_word_of_the_seed_counts() -> None:
    seeds = (0, 1, 1 << 32, (1 << 32) + 1, (1 << 63) - 1)
    found = [kept_weights(row_states(seed, 1, 1, 64, "cpu"), torch.arange(64), 0.5) for seed in seeds]
    for one in range(len(seeds)):
        for other in range(one):
            assert 0.4 < float((found[one] ^ found[other]).double().mean()) < 0.6


def test_without_dropout_everything_is_kept() -> None:
    assert bool(kept_weights(row_states(5, 1, 1, 64, "cpu"), torch.arange(64), 0.0).all())
