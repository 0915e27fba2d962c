"""Scans given to commands, and the options that describe them."""
