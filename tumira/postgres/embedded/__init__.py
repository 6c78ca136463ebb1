"""The PostgreSQL server that Tumira runs itself."""
