"""Options, timing, scenes and result files of all benchmarks."""
