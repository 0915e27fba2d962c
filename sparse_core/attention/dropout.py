"""Dropout mask of attention: a hash of the seed and the position, the same in every implementation.

Nothing is stored between forward and backward, and the mask depends on neither the order of the work nor the
block size. The mixing function is the 32-bit finaliser of MurmurHash3 (Appleby 2011). Every step is an exact
32-bit unsigned operation, so that kernels compute the same bits.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # 2^32 divided by the golden ratio, odd
_STARTS = (0x243F6A88, 0x85A308D3)  # digits of pi


Words = TypeVar("Words", Tensor, int)


def mix(words: Words) -> Words:
    """Hash 32-bit words, integers or kept in int64."""
    words = ((words ^ (words >> 16)) * 0x85EBCA6B) & _WORD
    words = ((words ^ (words >> 13)) * 0xC2B2AE35) & _WORD
    return words ^ (words >> 16)


def drawn_seed() -> int:
    """Draw a seed from torch's CPU generator."""
    return int(torch.randint(2**63 - 1, ()))


def row_states(seed: int, batch: int, heads: int, query_length: int, device: torch.device | str) -> Tensor:
    """Return two 32-bit words per query: (batch, heads, query_length, 2) int64.

    For each of two starts, ``state = mix((state * 0x9E3779B9 + word) mod 2^32)`` over the low and the high
    word of the seed, ``batch_index * heads + head``, and the query's position.
    """
    stream = torch.arange(batch * heads, device=device).reshape(batch, heads, 1)
    query = torch.arange(query_length, device=device)
    states = []
    for state in starting_words(seed):
        rows = mix((state * _GOLDEN + stream) & _WORD)
        states.append(mix((rows * _GOLDEN + query) & _WORD))
    return torch.stack(states, dim=-1)


def starting_words(seed: int) -> tuple[int, int]:
    """Return the two states after hashing the seed, from which the states of all queries follow."""
    first, second = _STARTS
    for word in (seed & _WORD, seed >> 32):
        first = mix((first * _GOLDEN + word) & _WORD)
        second = mix((second * _GOLDEN + word) & _WORD)
    return first, second


def kept_weights(states: Tensor, keys: Tensor, dropout_p: float) -> Tensor:
    """Return the mask ``mix(mix(key * 0x9E3779B9 + first) ^ second) >= round(p * 2^32)``, True where kept.

    Args:
        states: (..., 2) from :func:`row_states`.
        keys: (keys,) or (..., keys) int64 positions of keys; broadcasts with ``states[..., :1]``.

    Returns:
        (..., keys) bool.
    """
    first, second = states[..., :1], states[..., 1:]
    bits = mix(mix((keys * _GOLDEN + first) & _WORD) ^ second)
    return bits >= round(dropout_p * 2**32)
