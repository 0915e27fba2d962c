"""Sparse matrix times a dense matrix."""
