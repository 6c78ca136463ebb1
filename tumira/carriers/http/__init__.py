"""Carriers that are reached over HTTP, each described by a profile."""
