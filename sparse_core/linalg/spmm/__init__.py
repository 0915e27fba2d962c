"""Sparse matrix times a dense matrix: the implementations."""
