"""Sender names: what recipients see as the sender of an account's messages, asked for and granted."""
