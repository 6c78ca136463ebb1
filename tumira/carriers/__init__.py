"""Carriers: the outside that messages are handed to."""
