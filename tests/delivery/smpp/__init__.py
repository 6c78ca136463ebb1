"""SMPP."""
