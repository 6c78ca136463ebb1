"""Rules: examples and properties."""
