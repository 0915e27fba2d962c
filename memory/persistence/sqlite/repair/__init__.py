"""Detection of damage in a store's file, and a new file of all intact rows."""
