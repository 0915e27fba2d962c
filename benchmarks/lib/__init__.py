"""What all benchmarks share: options, timing, scenes and result files."""
