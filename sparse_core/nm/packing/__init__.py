"""Coding of n:m weights: kept values, positions, and the files that hold them."""
