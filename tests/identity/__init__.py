"""Identity."""
