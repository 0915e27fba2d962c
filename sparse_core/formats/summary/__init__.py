"""Summaries of a matrix: numbers about it, and a picture of its entries."""
