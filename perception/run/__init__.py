"""How a frame is run: one by one, as a CUDA graph, as a stream, within a budget, stage by stage."""
