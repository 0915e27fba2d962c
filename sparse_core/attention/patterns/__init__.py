"""Block patterns: what they are, how they are built, combined, measured, stored and drawn."""
