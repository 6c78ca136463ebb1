"""Contact lists and saved texts."""
