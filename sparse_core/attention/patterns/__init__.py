"""Block patterns: building, combining, measuring, storing and drawing them."""
