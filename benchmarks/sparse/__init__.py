"""Sparse matrices and convolutions: formats, products, assembly and solvers."""
