"""Attention over the blocks of a pattern on a GPU: kernels, and what they need of a pattern."""

from __future__ import annotations

__all__: list[str] = []
