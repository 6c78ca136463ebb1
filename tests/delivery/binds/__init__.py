"""How much a bind submits, and which places it offers."""
