"""Store in a PostgreSQL database with pgvector, which many processes may write at the same time."""
