"""Choice."""
