"""SQL for delivery."""
