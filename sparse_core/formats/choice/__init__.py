"""The format that suits a matrix: measured thresholds over its profile."""
