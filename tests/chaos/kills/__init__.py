"""Kills at every step."""
