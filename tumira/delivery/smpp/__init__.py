"""SMPP 3.4, as spoken by both ends."""
