"""Profiles of carriers over HTTP."""
