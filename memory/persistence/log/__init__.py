"""The log of operations: every change of a store, what was there before, and how it is undone."""
