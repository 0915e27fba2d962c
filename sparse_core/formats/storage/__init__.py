"""Matrices in files: Matrix Market and npz."""
