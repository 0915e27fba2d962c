"""Commands that change memories: add, import, mark, forget, undo, consolidate."""
