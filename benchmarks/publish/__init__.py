"""Fill the tables of README and pages from `results/`: `python -m benchmarks.publish`."""
