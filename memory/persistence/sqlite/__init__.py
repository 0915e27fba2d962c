"""A store in one file of SQLite, in a folder: one process writes, any number reads."""
