"""Topups."""
