"""Relations between objects, distances and comparisons."""
