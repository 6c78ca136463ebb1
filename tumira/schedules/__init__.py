"""Sends that begin later."""
