"""Summary."""
