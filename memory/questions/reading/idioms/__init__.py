"""Fixed expressions and the plainer words that mean the same."""
