"""Networks of ported numbers."""
