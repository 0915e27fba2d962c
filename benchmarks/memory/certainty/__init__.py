"""Certainty of a memory: relocalization, and answers with a guaranteed error."""
