"""Calls to carriers over HTTP, and the reports that they make."""
