"""Finding damage in the file of a store, and making a new one of every row that is as it was stored."""
