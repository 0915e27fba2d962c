"""Ways to run a frame: eagerly, as a CUDA graph, as a stream, or stage by stage for a profile."""
