"""The commands that start Tumira's processes, and what those share."""
