"""Carriers over HTTP."""
