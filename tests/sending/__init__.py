"""Sending."""
