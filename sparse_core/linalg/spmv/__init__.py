"""Sparse matrix times a vector: the implementations."""
