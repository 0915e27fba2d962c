"""Files of weights: read, written, converted from other programs, compressed and shared."""
