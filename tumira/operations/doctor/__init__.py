"""Checks of a machine and of what the gateway needs around it."""
