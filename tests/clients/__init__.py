"""The client libraries."""
