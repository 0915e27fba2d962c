"""Search: the memories that answer a query, by vectors, words, place and time."""
