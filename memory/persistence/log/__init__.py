"""Log of operations: every change of a store, the state before it, and undo."""
