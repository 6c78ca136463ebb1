"""Sends that need a second person's approval."""
