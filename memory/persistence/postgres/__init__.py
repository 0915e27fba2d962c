"""A store in a database of a PostgreSQL server with pgvector; many processes write at the same time."""
