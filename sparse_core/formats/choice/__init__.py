"""Choice of the format for a matrix: measured thresholds over its profile."""
