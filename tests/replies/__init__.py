"""Replies and opt-outs."""
