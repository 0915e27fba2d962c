"""Point cloud files, one module per format."""
