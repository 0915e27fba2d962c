"""Dense product sampled at the stored positions of a sparse matrix."""
