"""The SQL of the delivery."""
