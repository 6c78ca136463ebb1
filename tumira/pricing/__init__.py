"""Destinations, phone numbers, segments and prices."""
