"""Histories of a cluster under faults, and what decides about them."""
