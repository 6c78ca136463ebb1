"""Signing in and up, and the people of an account."""
