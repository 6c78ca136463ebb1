"""Carriers as an operator describes them: settings, URLs, profiles and routes."""
