"""Replies on their way from a carrier to an account: stored as they come, then joined, matched and told."""
