"""Pages about the people of an account."""
