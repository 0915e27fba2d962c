"""Commands that serve a store: serve, mcp."""
