"""Build the documentation as a site that works offline."""
