"""The arithmetic of a merge: one tensor of several models becomes one, piece by piece."""
