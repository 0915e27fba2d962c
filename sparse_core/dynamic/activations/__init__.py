"""Sparse activations: top-k, fixed and learned thresholds, and predicted blocks."""
