"""Erasure of a phone number from all tables."""
