"""Replies on the carriers' connections."""
