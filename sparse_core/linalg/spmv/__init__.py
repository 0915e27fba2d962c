"""Sparse matrix times a vector."""
