"""The store, on a real PostgreSQL."""
