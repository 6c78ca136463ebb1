"""Outbound: calls to servers of others that are no carriers."""
