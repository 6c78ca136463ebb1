"""Direct claims."""
