"""NVIDIA's cuSPARSELt, bound directly: plans that are built once, and algorithms that are checked."""
