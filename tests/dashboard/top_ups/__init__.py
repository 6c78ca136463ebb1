"""Pages of top-ups."""
