"""Benchmarks: every script compares both sides in one run. See benchmarks/README.md."""
