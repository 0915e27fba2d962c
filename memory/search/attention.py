"""Attention over retrieved vectors: a context vector and the weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sparse_core.attention import gathered_attention
from sparse_core.attention.operands import LARGEST_DIM

#: Factor of the similarities. Over thousands of memories, similar ones dominate and many still count.
SHARPNESS = 16.0


class ReadOut(NamedTuple):
    """Result of attention.

    Attributes:
        context: (dim,) float32 weighted mean of the vectors.
        weights: (n,) float32, sum 1; empty without vectors.
    """

    context: NDArray[np.float32]
    weights: NDArray[np.float32]


def read_out(
    query: NDArray[np.float32], vectors: NDArray[np.floating], *, sharpness: float = SHARPNESS
) -> ReadOut:
    """Compute ``softmax(sharpness * vectors @ query) @ vectors``; zeros without vectors.

    Args:
        query: (dim,) unit vector.
        vectors: (n, dim) unit vectors.
        sharpness: factor of the similarities; a larger one favours the nearest vectors.
    """
    dim = len(query)
    # Copy, because torch warns about read-only arrays.
    if not len(vectors):
        return ReadOut(np.zeros(dim, np.float32), np.zeros(0, np.float32))
    table = torch.from_numpy(np.array(vectors, dtype=np.float32, order="C"))
    question = torch.from_numpy(np.array(query, dtype=np.float32))
    scores = table @ question * sharpness
    if dim <= LARGEST_DIM:
        keys = table[None, None]
        index = torch.arange(len(table))[None, None, None]
        result = gathered_attention(
            question[None, None, None], keys, keys, index, scale=sharpness, return_lse=True
        )
        weights = torch.exp(scores - result.lse[0, 0, 0])
        context = result.out[0, 0, 0]
    else:
        weights = torch.softmax(scores, dim=0)
        context = weights @ table
    return ReadOut(context.numpy(), weights.numpy())
