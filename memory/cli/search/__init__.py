"""Commands that search a store: query, ask, explain."""
