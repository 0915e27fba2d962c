"""The sparse backbone: packed convolutions over the active cells of each level."""
