"""Sparse activations: top-k, thresholds, learned thresholds, and blocks that are predicted and skipped."""
