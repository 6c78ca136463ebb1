"""Tests of sender names."""
