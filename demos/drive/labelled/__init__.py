"""Memories of a labelled real sequence, checked against its labels."""
