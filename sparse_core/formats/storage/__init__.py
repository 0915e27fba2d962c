"""Matrices in files: Matrix Market, npz and what files may claim."""
