"""Attention in plain torch, the oracle of every other implementation."""

from __future__ import annotations

from functools import partial

from sparse_core.attention import sparse_attention

#: As :func:`sparse_attention`, with out and lse.
reference_attention = partial(sparse_attention, impl="reference", return_lse=True)
